//! Converts calls, answers and tools to and from the types of the protocol.

use gantry_protocol::{CallResult, Caller, ErrorCode, WireAnnotations, WireError, WireTool, raw};
use serde_json::Value;

use crate::call::{Autonomy, Call, Principal, Surface};
use crate::error::{Refusal, RefusalCode, ToolError, Violation};
use crate::gate::{Answer, Outcome};
use crate::tool::{Label, Reply, Tool};

impl Refusal {
    pub fn to_wire(&self) -> WireError {
        let code = match self.code {
            RefusalCode::UnknownTool => ErrorCode::UnknownTool,
            RefusalCode::InvalidInput => ErrorCode::InvalidInput,
            RefusalCode::Denied => ErrorCode::Denied,
            RefusalCode::ApprovalNeeded => ErrorCode::ApprovalNeeded,
            RefusalCode::Unaudited => ErrorCode::Unaudited,
            RefusalCode::Unavailable => ErrorCode::Unavailable,
            RefusalCode::Deadline => ErrorCode::Deadline,
            RefusalCode::Cancelled => ErrorCode::Cancelled,
        };
        let mut details = self.to_json()["error"].take();
        if let Some(details) = details.as_object_mut() {
            details.shift_remove("code");
            details.shift_remove("message");
        }
        let details =
            Some(details).filter(|details| details.as_object().is_some_and(|object| !object.is_empty()));
        WireError { details, ..WireError::new(code, self.message.clone()) }
    }

    /// The refusal that another machine's gate, or the connection to it, reported.
    pub fn from_wire(error: WireError) -> Refusal {
        let code = RefusalCode::from_name(error.code.name()).unwrap_or(match error.code {
            ErrorCode::Forbidden | ErrorCode::Unauthorized => RefusalCode::Denied,
            ErrorCode::BadParams
            | ErrorCode::BadFrame
            | ErrorCode::TooLarge
            | ErrorCode::NotFound
            | ErrorCode::Conflict => RefusalCode::InvalidInput,
            _ => RefusalCode::Unavailable,
        });
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let details = error.details.unwrap_or_default();
        let violations = details["violations"].as_array().into_iter().flatten().map(|violation| Violation {
            path: text(&violation["path"]).unwrap_or_default(),
            message: text(&violation["message"]).unwrap_or_default(),
        });
        Refusal {
            code,
            message: error.message,
            hint: text(&details["hint"]),
            violations: violations.collect(),
            outcome_unknown: details["outcomeUnknown"] == true,
        }
    }
}

impl Outcome {
    pub fn into_wire(self) -> Result<CallResult, WireError> {
        let (is_error, reply) = match self.answer {
            Answer::Success(reply) => (false, reply),
            Answer::ToolError(reply) => (true, reply),
            Answer::Refused(refusal) => return Err(refusal.to_wire()),
        };
        let (json, text) = match reply {
            Reply::Json(value) => (Some(raw(&value)), None),
            Reply::Text(text) => (None, Some(text)),
        };
        Ok(CallResult { tool: self.tool, is_error, json, text, warnings: self.warnings })
    }

    /// The outcome of a call that passed another machine's gate.
    pub fn from_wire(tool: &str, answered: Result<CallResult<Value>, WireError>) -> Outcome {
        let mut outcome = Outcome {
            call_id: String::new(),
            tool: tool.to_owned(),
            answer: Answer::Success(Reply::Text(String::new())),
            labels: Vec::new(),
            warnings: Vec::new(),
        };
        match answered {
            Err(error) => outcome.answer = Answer::Refused(Refusal::from_wire(error)),
            Ok(mut result) => {
                outcome.warnings = std::mem::take(&mut result.warnings);
                outcome.tool = std::mem::take(&mut result.tool);
                let is_error = result.is_error;
                outcome.answer = match reply(result) {
                    Ok(reply) if is_error => Answer::ToolError(reply),
                    Ok(reply) => Answer::Success(reply),
                    Err(error) => Answer::Refused(Refusal::from_wire(error)),
                };
            }
        }
        outcome
    }
}

fn reply(result: CallResult<Value>) -> Result<Reply, WireError> {
    match (result.json, result.text) {
        (Some(json), _) => Ok(Reply::Json(json)),
        (None, Some(text)) => Ok(Reply::Text(text)),
        (None, None) => Err(WireError::new(ErrorCode::BadFrame, "the answer is neither JSON nor text")),
    }
}

/// The result of a tool that ran on another machine. An `Err` with a text means that the result is malformed.
pub fn remote_reply(mut result: CallResult<Value>, call: &Call) -> Result<Result<Reply, ToolError>, String> {
    let (is_error, warnings) = (result.is_error, std::mem::take(&mut result.warnings));
    let reply = reply(result).map_err(|error| error.message)?;
    call.findings.warn(&warnings);
    Ok(if is_error { Err(ToolError::Shaped(reply)) } else { Ok(reply) })
}

impl Tool {
    pub fn to_wire(&self) -> WireTool {
        WireTool {
            name: self.name().to_owned(),
            description: self.description().to_owned(),
            input_schema: self.input_schema().clone(),
            output_schema: self.output_schema().cloned(),
            annotations: WireAnnotations {
                read_only: self.is_read_only(),
                destructive: self.is_destructive(),
                idempotent: self.is_idempotent(),
                open_world: self.is_open_world(),
                judges_connections: self.judges_connections_of_agents(),
            },
        }
    }
}

impl Call {
    pub fn caller(&self) -> Caller {
        Caller {
            principal: self.principal.name().into_owned(),
            agent: self.agent.clone(),
            autonomy: self.autonomy.name().to_owned(),
            surface: self.surface.name().to_owned(),
            session: self.session.clone(),
            labels: self.labels.iter().map(|label| label.name().to_owned()).collect(),
            escalated: self.escalated,
            asks: self.connection_approver().is_some() && self.autonomy != Autonomy::Autonomous,
        }
    }

    /// A call on behalf of a caller at another machine's gate.
    pub fn on_behalf(caller: &Caller, workspace: std::path::PathBuf) -> Result<Call, WireError> {
        let refused =
            |what: &str| WireError::new(ErrorCode::BadParams, format!("the caller has an unknown {what}"));
        let principal: Principal = caller.principal.parse().map_err(|_| refused("principal"))?;
        let surface = Surface::from_name(&caller.surface).ok_or_else(|| refused("surface"))?;
        let mut call = Call::new(principal, surface, workspace);
        call.autonomy = Autonomy::from_name(&caller.autonomy).ok_or_else(|| refused("autonomy"))?;
        call.agent.clone_from(&caller.agent);
        call.session.clone_from(&caller.session);
        call.escalated = caller.escalated;
        let label = |name: &String| Label::from_name(name).ok_or_else(|| refused("label"));
        call.labels = caller.labels.iter().map(label).collect::<Result<_, _>>()?;
        Ok(call)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refusals_survive_the_wire() {
        let violation = Violation { path: "a.0".into(), message: "too long".into() };
        let refusal =
            Refusal { violations: vec![violation], ..Refusal::new(RefusalCode::InvalidInput, "no") };
        for code in RefusalCode::ALL {
            let refusal = Refusal { code, ..refusal.clone().with_hint("do") };
            assert_eq!(Refusal::from_wire(refusal.to_wire()), refusal);
        }
        assert_eq!(Refusal::new(RefusalCode::Denied, "no").to_wire().details, None);
    }

    #[test]
    fn answers_survive_the_wire() {
        for answer in [
            Answer::Success(Reply::Json(json!({"a": [1, "ä"]}))),
            Answer::ToolError(Reply::Json(json!({"error": "no"}))),
            Answer::Success(Reply::Text("line\n".into())),
            Answer::Refused(Refusal::new(RefusalCode::Deadline, "late")),
        ] {
            let outcome = |answer| Outcome {
                call_id: String::new(),
                tool: "a__Read".into(),
                answer,
                labels: Vec::new(),
                warnings: vec!["careful".into()],
            };
            let text = outcome(answer).into_wire().map(|result| serde_json::to_string(&result).unwrap());
            let back = Outcome::from_wire("x", text.clone().map(|text| serde_json::from_str(&text).unwrap()));
            let again = back.into_wire().map(|result| serde_json::to_string(&result).unwrap());
            assert_eq!(again, text);
        }
    }

    #[test]
    fn callers_survive_the_wire() {
        for principal in [
            Principal::Operator,
            Principal::Scheduler,
            Principal::Client { token: "ci:2".into() },
            Principal::Mcp { client: "x".into() },
            Principal::Agent { id: "main".into() },
        ] {
            let mut call = Call::new(principal, Surface::Http, "/".into());
            (call.session, call.labels) = (Some("agent:main:main".into()), vec![Label::Untrusted]);
            call.escalated = true;
            let back = Call::on_behalf(&call.caller(), "/".into()).unwrap();
            assert_eq!(back.caller(), call.caller());
            assert_eq!((back.session, back.labels), (call.session, call.labels));
        }
        let nobody = Caller {
            principal: "root".into(),
            ..Call::new(Principal::Operator, Surface::Cli, "/".into()).caller()
        };
        assert!(Call::on_behalf(&nobody, "/".into()).is_err());
    }
}
