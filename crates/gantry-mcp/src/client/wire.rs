//! Lists of tools as they came over the wire, kept aside before the SDK reads what it knows of them.
//!
//! The SDK drops fields it does not know, and one definition that is none would cost the whole list.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{RequestId, ServerJsonRpcMessage};
use serde_json::Value;

/// Lists that nobody has asked for may be as many as the server likes; only the newest are kept.
const KEPT: usize = 4;

#[derive(Debug, Clone, Default)]
pub(super) struct Lists(Arc<Mutex<VecDeque<Answered>>>);

/// The id of a request, and the definitions that came in answer to it.
type Answered = (Value, Vec<Value>);

impl Lists {
    /// A message of the server, for the SDK.
    pub(super) fn message(&self, text: &str) -> Result<ServerJsonRpcMessage, serde_json::Error> {
        match self.sift(text) {
            Some(sifted) => serde_json::from_value(sifted),
            None => serde_json::from_str(text),
        }
    }

    /// For a message with a list of tools: the same without those the SDK could not read.
    pub(super) fn sift(&self, text: &str) -> Option<Value> {
        if !text.contains("\"tools\"") {
            return None;
        }
        let mut message: Value = serde_json::from_str(text).ok()?;
        let tools = message.get_mut("result")?.get_mut("tools")?.as_array_mut()?;
        let raw = tools.clone();
        tools.retain(|tool| serde_json::from_value::<rmcp::model::Tool>(tool.clone()).is_ok());
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.push_back((message.get("id").cloned().unwrap_or_default(), raw));
        if lists.len() > KEPT {
            lists.pop_front();
        }
        Some(message)
    }

    /// The definitions that came in answer to a request.
    pub(super) fn take(&self, id: &RequestId) -> Option<Vec<Value>> {
        let id = serde_json::to_value(id).ok()?;
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = lists.iter().position(|(answered, _)| *answered == id)?;
        lists.remove(at).map(|(_, tools)| tools)
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{NumberOrString, ServerResult};

    use super::*;

    #[test]
    fn definitions_are_kept_whole_and_bad_ones_cost_only_themselves() {
        let lists = Lists::default();
        let text = r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[
            {"name":"a","inputSchema":{"type":"object"},"unheard":1},{"name":"b","inputSchema":"nonsense"}]}}"#;
        let ServerJsonRpcMessage::Response(response) = lists.message(text).unwrap() else { panic!() };
        let ServerResult::ListToolsResult(read) = response.result else { panic!() };
        assert_eq!(read.tools.len(), 1);
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
}
