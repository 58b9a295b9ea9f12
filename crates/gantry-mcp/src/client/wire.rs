//! Prepares servers' messages for the SDK: keeps the original definitions of tools, and turns an invalid answer into an
//! error for its request.
//!
//! The SDK drops unknown fields, rejects a whole list because of one invalid definition, and ignores answers that it
//! cannot parse, so that their requests would wait forever.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{ErrorData, RequestId, ServerJsonRpcMessage};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::definition;
use super::sanitize::shown;

/// Maximum lists that are kept, the newest ones, because a server may send any number.
const KEPT: usize = 4;

/// Marks an error that replaces an invalid answer.
const UNREADABLE: &str = "gantry/unreadable";

#[derive(Debug, Clone, Default)]
pub(super) struct Lists(Arc<Mutex<VecDeque<Answered>>>);

/// The id of a request, and the definitions in its answer.
type Answered = (Value, Vec<Value>);

/// The unparsed fields of an object.
type Fields<'a> = BTreeMap<String, &'a RawValue>;

impl Lists {
    /// Parses a server's message for the SDK.
    pub(super) fn message(&self, text: &str) -> Result<ServerJsonRpcMessage, serde_json::Error> {
        let read = match self.sift(text) {
            Some(sifted) => serde_json::from_value(sifted),
            None => serde_json::from_str(text),
        };
        read.or_else(|err| unreadable(text, &err).ok_or(err))
    }

    /// Returns a replacement for a message that the SDK parses itself, if one is needed.
    pub(super) fn replacement(&self, text: &str) -> Option<String> {
        if let Some(sifted) = self.sift(text) {
            return Some(sifted.to_string());
        }
        let err = serde_json::from_str::<ServerJsonRpcMessage>(text).err()?;
        serde_json::to_string(&unreadable(text, &err)?).ok()
    }

    /// Removes definitions that the SDK cannot parse from a list of tools.
    fn sift(&self, text: &str) -> Option<Value> {
        if !text.contains("\"tools\"") {
            return None;
        }
        let mut message: Fields<'_> = serde_json::from_str(text).ok()?;
        let mut result: Fields<'_> = serde_json::from_str(message.remove("result")?.get()).ok()?;
        let raw: Vec<&RawValue> = serde_json::from_str(result.remove("tools")?.get()).ok()?;
        let raw: Vec<Value> = raw.into_iter().map(|tool| definition::read(tool.get())).collect();
        let mut usable = raw.clone();
        usable.retain(|tool| serde_json::from_value::<rmcp::model::Tool>(tool.clone()).is_ok());
        let mut sifted = whole(&message);
        let mut sifted_result = whole(&result);
        sifted_result.insert("tools".to_owned(), Value::Array(usable));
        sifted.insert("result".to_owned(), Value::Object(sifted_result));
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.push_back((sifted.get("id").cloned().unwrap_or_default(), raw));
        if lists.len() > KEPT {
            lists.pop_front();
        }
        Some(Value::Object(sifted))
    }

    /// Takes the definitions in the answer to a request.
    pub(super) fn take(&self, id: &RequestId) -> Option<Vec<Value>> {
        let id = serde_json::to_value(id).ok()?;
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = lists.iter().position(|(answered, _)| *answered == id)?;
        lists.remove(at).map(|(_, tools)| tools)
    }
}

/// Returns whether an error replaces an invalid answer.
pub(super) fn is_unreadable(error: &ErrorData) -> bool {
    error.data.as_ref().is_some_and(|data| data == UNREADABLE)
}

/// Makes an error that replaces the invalid answer to `id`.
pub(super) fn no_answer(id: RequestId, why: &str) -> ServerJsonRpcMessage {
    let error = ErrorData::internal_error(format!("its answer is invalid: {why}"), Some(json!(UNREADABLE)));
    ServerJsonRpcMessage::error(error, Some(id))
}

/// Makes an error for an invalid message that names a request.
fn unreadable(text: &str, err: &serde_json::Error) -> Option<ServerJsonRpcMessage> {
    #[derive(Deserialize)]
    struct Head {
        id: Option<RequestId>,
        method: Option<IgnoredAny>,
    }
    let head: Head = serde_json::from_str(text).ok()?;
    let id = head.id.filter(|_| head.method.is_none())?;
    let why = match err.classify() {
        serde_json::error::Category::Data => "it is neither a result nor an error".to_owned(),
        _ => err.to_string(),
    };
    Some(no_answer(id, &format!("{why}: {}", shown(text))))
}

/// Parses fields and drops those that are invalid.
fn whole(fields: &Fields<'_>) -> Map<String, Value> {
    let read = |(name, raw): (&String, &&RawValue)| {
        serde_json::from_str(raw.get()).ok().map(|value| (name.clone(), value))
    };
    fields.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use rmcp::model::{NumberOrString, ServerResult};

    use super::*;

    fn listed(lists: &Lists, text: &str) -> Vec<String> {
        let ServerJsonRpcMessage::Response(response) = lists.message(text).unwrap() else { panic!() };
        let ServerResult::ListToolsResult(read) = response.result else { panic!() };
        read.tools.iter().map(|tool| tool.name.to_string()).collect()
    }

    #[test]
    fn definitions_are_kept_and_invalid_ones_removed() {
        let lists = Lists::default();
        let text = r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[
            {"name":"a","inputSchema":{"type":"object"},"unheard":1},{"name":"b","inputSchema":"nonsense"}]}}"#;
        assert_eq!(listed(&lists, text), ["a"]);
        assert_eq!(lists.take(&NumberOrString::Number(8)), None);
        let raw = lists.take(&NumberOrString::Number(7)).unwrap();
        assert_eq!((raw[0]["unheard"].as_i64(), raw[1]["inputSchema"].as_str()), (Some(1), Some("nonsense")));
        assert_eq!(lists.take(&NumberOrString::Number(7)), None);
        for id in 0..100 {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[]}}}}"#);
            lists.message(&text).unwrap();
        }
        assert_eq!(lists.0.lock().unwrap().len(), KEPT);
    }

    #[test]
    fn deep_schema_affects_only_its_own_tool() {
        let lists = Lists::default();
        for depth in [61, 500, 100_000] {
            let deep = format!("{}{{}}{}", r#"{"properties":{"a":"#.repeat(depth), "}}".repeat(depth));
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{{"name":"deep","inputSchema":{deep}}},
                    {{"name":"flat","inputSchema":{{"type":"object"}}}}],"nextCursor":"next"}}}}"#
            );
            assert_eq!(listed(&lists, &text), ["flat"], "{depth}");
            let raw = lists.take(&NumberOrString::Number(1)).unwrap();
            let why = definition::problem(&raw[0]).unwrap();
            assert!(why.contains("levels deep"), "{why}");
            assert_eq!((raw[0]["name"].as_str(), definition::problem(&raw[1])), (Some("deep"), None));
            assert!(lists.replacement(&text).unwrap().contains("\"nextCursor\":\"next\""));
        }
    }

    #[test]
    fn invalid_answer_fails_its_request() {
        let lists = Lists::default();
        let deep = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        let bare = r#"{"jsonrpc":"2.0","id":7}"#;
        for text in [bare, deep.as_str(), r#"{"jsonrpc":"2.0","id":7,"error":"no"}"#] {
            let ServerJsonRpcMessage::Error(error) = lists.message(text).unwrap() else { panic!("{text}") };
            assert_eq!(error.id, Some(NumberOrString::Number(7)), "{text}");
            assert!(is_unreadable(&error.error), "{text}");
            let replaced = lists.replacement(text).unwrap();
            assert!(
                matches!(serde_json::from_str(&replaced), Ok(ServerJsonRpcMessage::Error(_))),
                "{replaced}"
            );
        }
        for stray in ["hello", "{}", r#"{"id":null}"#, r#"{"jsonrpc":"2.0","id":7,"method":7}"#, &deep[..99]]
        {
            assert!(lists.message(stray).is_err(), "{stray}");
        }
        let good = r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#;
        assert_eq!(lists.replacement(good), None);
    }
}
