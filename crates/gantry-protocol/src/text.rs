//! Messages written straight as text. Every call passes several of them, and serialising an object field by field, name by
//! name and quote by quote costs more than the rest of the way.

use serde_json::Value;

use crate::error::WireError;
use crate::frame::RawJson;
use crate::methods::Caller;

/// A whole JSON value as text: made from one that was read, or written here.
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

/// The beginning of an object, and its next field: names are written as they are.
macro_rules! first {
    ($name:literal) => {
        concat!("{\"", $name, "\":")
    };
}
macro_rules! next {
    ($name:literal) => {
        concat!(",\"", $name, "\":")
    };
}

/// How frames begin and go on; [`crate::plain`] reads them so.
pub(crate) const REQUEST: &str = concat!(first!("type"), "\"req\"", next!("id"));
pub(crate) const METHOD: &str = next!("method");
pub(crate) const PARAMS: &str = next!("params");
pub(crate) const DEADLINE: &str = next!("deadlineMs");
pub(crate) const RESPONSE: &str = concat!(first!("type"), "\"res\"", next!("id"));
pub(crate) const RESULT: &str = concat!(next!("ok"), "true", next!("result"));
pub(crate) const CANCEL: &str = concat!(first!("type"), "\"cancel\"", next!("id"));

/// Adds a text as a JSON string.
pub fn push_string(json: &mut String, text: &str) {
    if is_plain(text.as_bytes()) {
        json.push('"');
        json.push_str(text);
        json.push('"');
    } else {
        // A string is always JSON.
        json.push_str(&serde_json::to_string(text).unwrap_or_default());
    }
}

/// Whether a string needs no escapes; looks at eight bytes at a time.
fn is_plain(text: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES * 128;
    // The usual tricks: a high bit where a byte is less than a number, or is zero.
    let below = |eight: u64, limit: u64| eight.wrapping_sub(ONES * limit) & !eight;
    let is = |eight: u64, byte: u8| below(eight ^ (ONES * u64::from(byte)), 1);
    let (eights, rest) = text.as_chunks::<8>();
    let plain_eight = |eight: &[u8; 8]| {
        let eight = u64::from_ne_bytes(*eight);
        (below(eight, 0x20) | is(eight, b'"') | is(eight, b'\\')) & HIGHS == 0
    };
    eights.iter().all(plain_eight) && rest.iter().all(|byte| *byte >= b' ' && *byte != b'"' && *byte != b'\\')
}

pub fn push_number(json: &mut String, number: u64) {
    json.push_str(itoa::Buffer::new().format(number));
}

/// Around the parts of a frame there are never more bytes than this.
const FRAME_ROOM: usize = 128;

pub fn request_text(id: u64, method: &str, params: &str, deadline_ms: Option<u64>) -> String {
    let mut text = String::with_capacity(FRAME_ROOM + method.len() + params.len());
    text.push_str(REQUEST);
    push_number(&mut text, id);
    text.push_str(METHOD);
    push_string(&mut text, method);
    text.push_str(PARAMS);
    text.push_str(params);
    if let Some(deadline) = deadline_ms {
        text.push_str(DEADLINE);
        push_number(&mut text, deadline);
    }
    text.push('}');
    text
}

pub fn response_text(id: u64, outcome: Result<&str, &WireError>) -> String {
    let failed = |error: &WireError| serde_json::to_string(error).unwrap_or_default();
    let (head, body) = match outcome {
        Ok(result) => (RESULT, result),
        Err(error) => (concat!(next!("ok"), "false", next!("error")), &*failed(error)),
    };
    let mut text = String::with_capacity(FRAME_ROOM + body.len());
    text.push_str(RESPONSE);
    push_number(&mut text, id);
    text.push_str(head);
    text.push_str(body);
    text.push('}');
    text
}

pub fn event_text(event: &str, seq: u64, data: &str) -> String {
    let mut text = String::with_capacity(FRAME_ROOM + event.len() + data.len());
    text.push_str(concat!(first!("type"), "\"evt\"", next!("event")));
    push_string(&mut text, event);
    text.push_str(next!("seq"));
    push_number(&mut text, seq);
    text.push_str(next!("data"));
    text.push_str(data);
    text.push('}');
    text
}

pub fn cancel_text(id: u64) -> String {
    format!("{CANCEL}{id}}}")
}

/// [`NodeCallParams`](crate::NodeCallParams) as text, from what a gateway has at hand.
pub fn node_call_text(call_id: &str, tool: &str, input: &Value, caller: &Caller) -> JsonText {
    // Values are always JSON.
    let input = serde_json::to_string(input).unwrap_or_default();
    let mut text = String::with_capacity(3 * FRAME_ROOM + input.len());
    text.push_str(first!("callId"));
    push_string(&mut text, call_id);
    text.push_str(next!("tool"));
    push_string(&mut text, tool);
    text.push_str(next!("input"));
    text.push_str(&input);
    text.push_str(concat!(next!("caller"), first!("principal")));
    push_string(&mut text, &caller.principal);
    text.push_str(next!("agent"));
    push_string(&mut text, &caller.agent);
    text.push_str(next!("autonomy"));
    push_string(&mut text, &caller.autonomy);
    text.push_str(next!("surface"));
    push_string(&mut text, &caller.surface);
    text.push_str("}}");
    JsonText(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::frame::raw;
    use crate::methods::NodeCallParams;

    #[test]
    fn strings_are_escaped_as_json_wants_it() {
        for text in ["", "plain ä ☃ 😀", "a\"b", "back\\slash", "line\nend", "\u{0}\u{1f}\u{7f}", "</script>"]
        {
            let mut json = String::new();
            push_string(&mut json, text);
            assert_eq!(json, serde_json::to_string(text).unwrap());
        }
    }

    #[test]
    fn numbers_are_spelled_as_they_are_everywhere() {
        for number in [0, 9, 10, 100, 12_345, u64::MAX] {
            let mut json = String::new();
            push_number(&mut json, number);
            assert_eq!(json, number.to_string());
        }
    }

    #[test]
    fn one_character_that_needs_an_escape_is_found_wherever_it_stands() {
        for byte in 0..=127_u8 {
            for at in 0..20 {
                let mut text = vec![b'x'; 20];
                text[at] = byte;
                let escaped = byte < b' ' || byte == b'"' || byte == b'\\';
                assert_eq!(is_plain(&text), !escaped, "{byte} at {at}");
            }
        }
        assert!(is_plain("ä☃😀ÿ\u{80}".repeat(3).as_bytes()));
    }

    #[test]
    fn a_nodes_call_is_written_as_it_is_read() {
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
            },
        };
        let text = node_call_text(&params.call_id, &params.tool, &input, &params.caller);
        assert_eq!(text.get(), serde_json::to_string(&params).unwrap());
    }

    #[test]
    fn every_frame_is_json() {
        let error = WireError::new(crate::ErrorCode::Denied, "no \"way\"");
        for text in [
            request_text(u64::MAX, "a\"b", "{}", Some(u64::MAX)),
            response_text(1, Ok("[1]")),
            response_text(1, Err(&error)),
            event_text("x\n", 2, "null"),
            cancel_text(3),
        ] {
            assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
        }
        assert!(response_text(1, Err(&error)).contains(r#""message":"no \"way\"""#));
    }
}
