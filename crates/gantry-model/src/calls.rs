//! Tool calls in any wire format: new ids for calls that have none, and arguments.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};

use serde_json::{Map, Value, json};

/// Returns an id for a call that has none, or whose id another call has.
pub(crate) fn fresh() -> String {
    format!("call_{:016x}", RandomState::new().build_hasher().finish())
}

/// Anything that is not an object is kept as it was written. `whole` is what arrived without
/// streaming.
pub(crate) fn parse_arguments(arguments: String, whole: Value) -> (Value, Option<String>) {
    if arguments.trim().is_empty() {
        return match whole {
            Value::Object(_) => (whole, None),
            Value::Null => (json!({}), None),
            other => (json!({}), Some(other.to_string())),
        };
    }
    match serde_json::from_str::<Map<String, Value>>(&arguments) {
        Ok(input) => (Value::Object(input), None),
        Err(_) => (json!({}), Some(arguments)),
    }
}

/// Every API requires an object, and the model should see what it wrote.
pub(crate) fn sent_arguments<'a>(input: &'a Value, malformed: Option<&str>) -> Cow<'a, Value> {
    match malformed {
        Some(text) => Cow::Owned(json!({"INVALID_JSON": text})),
        None if input.is_object() => Cow::Borrowed(input),
        None => Cow::Owned(json!({"INVALID_JSON": input.to_string()})),
    }
}
