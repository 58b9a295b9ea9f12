//! Frames as text around JSON that is already serialised. `params`, `result` and `data` are passed on without parsing
//! them again.

use serde::Serialize;
use serde_json::Value;

use crate::error::WireError;
use crate::frame::RawJson;
use crate::methods::Caller;

/// A JSON value as text.
#[derive(Debug, Clone)]
pub struct JsonText(String);

impl JsonText {
    pub fn get(&self) -> &str {
        &self.0
    }
}

impl From<RawJson> for JsonText {
    fn from(json: RawJson) -> JsonText {
        JsonText(Box::<str>::from(json).into())
    }
}

impl From<&JsonText> for JsonText {
    fn from(json: &JsonText) -> JsonText {
        json.clone()
    }
}

/// Serialises a value whose type cannot fail to serialise.
fn to_json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

pub fn request_text(id: u64, method: &str, params: &str, deadline_ms: Option<u64>) -> String {
    let method = to_json(method);
    let deadline = deadline_ms.map(|ms| format!(r#","deadlineMs":{ms}"#)).unwrap_or_default();
    format!(r#"{{"type":"req","id":{id},"method":{method},"params":{params}{deadline}}}"#)
}

pub fn response_text(id: u64, outcome: Result<&str, &WireError>) -> String {
    match outcome {
        Ok(result) => format!(r#"{{"type":"res","id":{id},"ok":true,"result":{result}}}"#),
        Err(error) => format!(r#"{{"type":"res","id":{id},"ok":false,"error":{}}}"#, to_json(error)),
    }
}

pub fn event_text(event: &str, seq: u64, data: &str) -> String {
    format!(r#"{{"type":"evt","event":{},"seq":{seq},"data":{data}}}"#, to_json(event))
}

pub fn cancel_text(id: u64) -> String {
    format!(r#"{{"type":"cancel","id":{id}}}"#)
}

/// [`NodeCallParams`](crate::NodeCallParams) as text, without copying its parts first.
pub fn node_call_text(call_id: &str, tool: &str, input: &Value, caller: &Caller) -> JsonText {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Borrowed<'a> {
        call_id: &'a str,
        tool: &'a str,
        input: &'a Value,
        caller: &'a Caller,
    }
    JsonText(to_json(&Borrowed { call_id, tool, input, caller }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::frame::{Frame, raw};
    use crate::methods::NodeCallParams;

    #[test]
    fn node_call_text_equals_the_serialised_params() {
        let input = json!({"path": "ä\n", "n": [1, null]});
        let params = NodeCallParams {
            call_id: "a\"b".into(),
            tool: "Read".into(),
            input: raw(&input),
            caller: Caller {
                principal: "client:\\x".into(),
                agent: "main".into(),
                autonomy: "guided".into(),
                surface: "http".into(),
                session: None,
                labels: Vec::new(),
                escalated: false,
                asks: false,
            },
        };
        let text = node_call_text(&params.call_id, &params.tool, &input, &params.caller);
        assert_eq!(text.get(), serde_json::to_string(&params).unwrap());
    }

    /// Names with quotes, line breaks and control characters, and numbers at both ends of their range.
    #[test]
    fn every_frame_is_parsed_as_it_was_written() {
        let error = WireError::new(crate::ErrorCode::Denied, "no \"way\"");
        for name in ["tool.call", "a\"b\\c", "x\n\u{0}\u{1f}\u{7f}", "ä ☃ 😀", "</script>"] {
            for number in [0, 9, 10, 12_345, u64::MAX] {
                let text = request_text(number, name, "{\"a\":[1]}", Some(number));
                let Ok(Frame::Request { id, method, params, deadline_ms }) = Frame::parse(&text) else {
                    panic!("{text}")
                };
                assert_eq!((id, method.as_str(), params.get()), (number, name, "{\"a\":[1]}"));
                assert_eq!(deadline_ms, Some(number));
                let text = event_text(name, number, "null");
                let Ok(Frame::Event { event, seq, data }) = Frame::parse(&text) else { panic!("{text}") };
                assert_eq!((event.as_str(), seq, data.get()), (name, number, "null"));
            }
        }
        let text = request_text(1, "a", "[]", None);
        assert!(matches!(Frame::parse(&text), Ok(Frame::Request { deadline_ms: None, .. })), "{text}");
        let text = response_text(1, Ok("[1]"));
        assert!(matches!(Frame::parse(&text), Ok(Frame::Response { id: 1, outcome: Ok(_) })), "{text}");
        let text = response_text(2, Err(&error));
        let Ok(Frame::Response { id: 2, outcome: Err(read) }) = Frame::parse(&text) else { panic!("{text}") };
        assert_eq!(read, error);
        assert!(matches!(Frame::parse(&cancel_text(3)), Ok(Frame::Cancel { id: 3 })));
    }
}
