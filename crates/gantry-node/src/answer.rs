//! What came of a call, as it goes over the wire.

use gantry_protocol::{CallResult, ErrorCode, MAX_FRAME_BYTES, WireError, raw};
use gantry_tool::{Answer, Outcome, Refusal, RefusalCode, Reply};
use serde_json::{Map, Value, json};

/// A frame has more than the result in it.
const MAX_RESULT_BYTES: usize = MAX_FRAME_BYTES - 64 * 1024;

pub(crate) fn answer(outcome: Outcome) -> crate::calls::Answer {
    let (is_error, reply) = match outcome.answer {
        Answer::Success(reply) => (false, reply),
        Answer::ToolError(reply) => (true, reply),
        Answer::Refused(refusal) => return Err(refused(&refusal)),
    };
    let (json, text) = match reply {
        Reply::Json(value) => (Some(raw(&value)), None),
        Reply::Text(text) => (None, Some(text)),
    };
    let result = raw(&CallResult { tool: outcome.tool, is_error, json, text, warnings: outcome.warnings });
    let bytes = result.get().len();
    if bytes > MAX_RESULT_BYTES {
        // A larger frame would end the connection, and again after every reconnect.
        let message = format!("the result has {bytes} bytes, and at most {MAX_RESULT_BYTES} can be sent");
        let mut error = WireError::new(ErrorCode::TooLarge, message);
        error.details = Some(json!({"hint": "the call has run; ask for less, or copy the file with Transfer"}));
        return Err(error);
    }
    Ok(result)
}

/// The gate's own no, by the same name.
fn refused(refusal: &Refusal) -> WireError {
    let code = match refusal.code {
        RefusalCode::UnknownTool => ErrorCode::UnknownTool,
        RefusalCode::InvalidInput => ErrorCode::InvalidInput,
        RefusalCode::Denied => ErrorCode::Denied,
        RefusalCode::ApprovalNeeded => ErrorCode::ApprovalNeeded,
        RefusalCode::Unaudited => ErrorCode::Unaudited,
        RefusalCode::Unavailable => ErrorCode::Unavailable,
        RefusalCode::Deadline => ErrorCode::Deadline,
        RefusalCode::Cancelled => ErrorCode::Cancelled,
    };
    let mut details = Map::new();
    if let Some(hint) = &refusal.hint {
        details.insert("hint".into(), json!(hint));
    }
    if !refusal.violations.is_empty() {
        let rows = refusal.violations.iter().map(|v| json!({"path": v.path, "message": v.message}));
        details.insert("violations".into(), rows.collect());
    }
    let details = (!details.is_empty()).then_some(Value::Object(details));
    WireError { details, ..WireError::new(code, &*refusal.message) }
}

#[cfg(test)]
mod tests {
    use gantry_tool::Violation;

    use super::*;

    fn outcome(answer: Answer) -> Outcome {
        let warnings = vec!["mind".to_owned()];
        Outcome { call_id: "c".into(), tool: "Read".into(), answer, labels: Vec::new(), warnings }
    }

    #[test]
    fn answers_and_errors_of_tools_are_results() {
        let said = |reply| answer(outcome(reply)).unwrap().get().to_owned();
        assert_eq!(
            said(Answer::Success(Reply::Json(json!({"a": 1})))),
            r#"{"tool":"Read","json":{"a":1},"warnings":["mind"]}"#
        );
        assert_eq!(
            said(Answer::ToolError(Reply::Text("no".into()))),
            r#"{"tool":"Read","isError":true,"text":"no","warnings":["mind"]}"#
        );
    }

    #[test]
    fn refusals_keep_their_code_hint_and_violations() {
        for code in RefusalCode::ALL {
            let error = answer(outcome(Answer::Refused(Refusal::new(code, "no")))).unwrap_err();
            assert_eq!((error.code.name(), error.details), (code.name(), None));
        }
        let mut refusal = Refusal::new(RefusalCode::InvalidInput, "bad").with_hint("look");
        refusal.violations = vec![Violation { path: "a.b".into(), message: "is odd".into() }];
        let error = answer(outcome(Answer::Refused(refusal))).unwrap_err();
        let details = json!({"hint": "look", "violations": [{"path": "a.b", "message": "is odd"}]});
        assert_eq!(error.details, Some(details));
    }

    #[test]
    fn what_no_frame_can_hold_is_an_error_and_no_lost_connection() {
        let text = "x".repeat(MAX_FRAME_BYTES);
        let error = answer(outcome(Answer::Success(Reply::Text(text)))).unwrap_err();
        assert_eq!(error.code, ErrorCode::TooLarge);
    }
}
