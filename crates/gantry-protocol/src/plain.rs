//! Reads requests and answers that are spelled as this crate spells them, field after field. Whatever else may be a frame is
//! for [`Frame::parse`] to read: nearly all messages are ours, and finding fields by their names costs more than the rest of
//! reading one.

use serde_json::value::RawValue;

use crate::frame::{Frame, RawJson};
use crate::text::{CANCEL, DEADLINE, METHOD, PARAMS, REQUEST, RESPONSE, RESULT};

/// `None` when the text is spelled in another way, or is no frame.
pub(crate) fn read(text: &str) -> Option<Frame> {
    if let Some(rest) = text.strip_prefix(REQUEST) {
        let (id, rest) = number(rest)?;
        let (method, rest) = name(rest.strip_prefix(METHOD)?)?;
        let (params, rest) = value(rest.strip_prefix(PARAMS)?)?;
        let deadline_ms = match rest.strip_prefix(DEADLINE) {
            Some(rest) => Some(whole(number(rest)?)?),
            None => whole((None, rest))?,
        };
        return Some(Frame::Request { id, method: method.to_owned(), params, deadline_ms });
    }
    if let Some(rest) = text.strip_prefix(RESPONSE) {
        let (id, rest) = number(rest)?;
        let result = whole(value(rest.strip_prefix(RESULT)?)?)?;
        return Some(Frame::Response { id, outcome: Ok(result) });
    }
    let id = whole(number(text.strip_prefix(CANCEL)?)?)?;
    Some(Frame::Cancel { id })
}

/// What was read, if nothing but the end of the object follows.
fn whole<T>((read, rest): (T, &str)) -> Option<T> {
    (rest == "}").then_some(read)
}

fn number(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    // A number of several digits that begins with a zero is none.
    let sound = digits == 1 || !number.starts_with('0');
    Some((number.parse().ok().filter(|_| sound)?, rest))
}

/// A string without escapes, and what follows it.
fn name(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('"')?;
    let end =
        text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_')).count();
    let (name, rest) = text.split_at(end);
    Some((name, rest.strip_prefix('"')?))
}

/// Any JSON value, and what follows it.
fn value(text: &str) -> Option<(RawJson, &str)> {
    // What is not in brackets ends where something else begins, and is left to the other reader.
    if !text.starts_with(['{', '[']) {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let value = values.next()?.ok()?;
    Some((value.to_owned(), text.get(values.byte_offset()..)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(frame: &Frame) -> String {
        format!("{frame:?}")
    }

    #[test]
    fn what_we_write_is_read_here() {
        for text in [
            r#"{"type":"req","id":7,"method":"tool.call","params":{"tool":"Read","x":[1,2]},"deadlineMs":60000}"#,
            r#"{"type":"req","id":0,"method":"nodes.list","params":{}}"#,
            r#"{"type":"res","id":7,"ok":true,"result":{"a":"ä\n"}}"#,
            r#"{"type":"cancel","id":18446744073709551615}"#,
        ] {
            let frame = read(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(frame.to_text(), text);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        /// Frames with a few bytes changed: what is read here is what the other reader reads, to the letter.
        #[test]
        fn both_readers_agree(
            whole in prop::sample::select(vec![
                r#"{"type":"req","id":7,"method":"tool.call","params":{"tool":"Read","x":[1,-2.5e3]},"deadlineMs":60000}"#,
                r#"{"type":"req","id":10,"method":"a_b","params":[]}"#,
                r#"{"type":"res","id":7,"ok":true,"result":{"a":"ä\n\u00e4","b":null}}"#,
                r#"{"type":"cancel","id":7}"#,
            ]),
            changes in prop::collection::vec((any::<prop::sample::Index>(), r#"[ -~]|\PC|"\}|,"id":1|00|\]"#, 0..3_usize), 0..3),
        ) {
            let mut text: Vec<char> = whole.chars().collect();
            for (at, new, removed) in changes {
                let at = at.index(text.len() + 1);
                let end = (at + removed).min(text.len());
                text.splice(at..end, new.chars());
            }
            let text: String = text.into_iter().collect();
            if let Some(frame) = read(&text) {
                let other = Frame::parse_any(&text);
                prop_assert_eq!(Some(shown(&frame)), other.ok().as_ref().map(shown), "{}", text);
            }
        }
    }
}
