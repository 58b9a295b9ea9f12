//! Converts the outcome of a call to its wire form.

use gantry_protocol::{ErrorCode, MAX_FRAME_BYTES, WireError, raw};
use gantry_tool::Outcome;
use serde_json::json;

/// Leaves room for the rest of the frame.
const MAX_RESULT_BYTES: usize = MAX_FRAME_BYTES - 64 * 1024;

pub(crate) fn answer(outcome: Outcome) -> crate::calls::Answer {
    let result = raw(&outcome.into_wire()?);
    let bytes = result.get().len();
    if bytes > MAX_RESULT_BYTES {
        // A larger frame would close the connection, and again after every reconnect.
        let message = format!("the result has {bytes} bytes, and at most {MAX_RESULT_BYTES} can be sent");
        let mut error = WireError::new(ErrorCode::TooLarge, message);
        error.details =
            Some(json!({"hint": "the call has run; ask for less, or copy the file with Transfer"}));
        return Err(error);
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use gantry_tool::{Answer, Reply};

    use super::*;

    fn said(text: String) -> crate::calls::Answer {
        let answer = Answer::Success(Reply::Text(text));
        let (labels, warnings) = (Vec::new(), Vec::new());
        super::answer(Outcome { call_id: "c".into(), tool: "Read".into(), answer, labels, warnings })
    }

    #[test]
    fn result_over_the_frame_limit_is_an_error() {
        assert!(said("x".into()).is_ok());
        assert_eq!(said("x".repeat(MAX_FRAME_BYTES)).unwrap_err().code, ErrorCode::TooLarge);
    }
}
