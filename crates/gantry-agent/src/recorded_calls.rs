//! The calls of a session, read from its journal.

use std::collections::HashMap;

use gantry_model::Block;
use gantry_store::DatabaseError;
use gantry_tool::published_name;
use serde_json::Value;

use crate::entry::{CallResult, Entry};
use crate::flow::without_fence;
use crate::key::SessionKey;
use crate::sessions::{SessionError, Sessions};
use crate::state::AGENT;

/// The number of events in one page.
const PAGE: u32 = 1_000;
/// The number of events that are read. The newest ones are left out of a longer conversation.
const MAX_EVENTS: usize = 200_000;

/// What happened in a conversation since it began.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordedCalls {
    /// The calls that have ended, in the order of their ends.
    pub calls: Vec<RecordedCall>,
    /// The messages that no agent wrote.
    pub messages: Vec<String>,
}

/// A call with its outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCall {
    /// The tool's own name.
    pub tool: String,
    pub input: Value,
    /// The result as text.
    pub result: String,
    pub failed: bool,
    /// The call was read-only.
    pub read_only: bool,
}

impl Sessions {
    /// Returns the calls of a session since its conversation began.
    pub async fn recorded_calls(&self, key: &SessionKey) -> Result<RecordedCalls, SessionError> {
        let mut reader = Reader::new(self.tool_names(&key.agent));
        let (mut from, mut read) = (0, 0);
        loop {
            let page = self.history(key, from, PAGE).await?;
            let Some(last) = page.last() else { break };
            from = last.seq + 1;
            read += page.len();
            for event in &page {
                let entry = serde_json::from_str(&event.data);
                let doing = "read the calls of a session";
                reader.take(entry.map_err(|cause| DatabaseError::Damaged { doing, cause })?);
            }
            if read >= MAX_EVENTS {
                break;
            }
        }
        Ok(reader.recorded)
    }

    /// The tools' own names by the names that models use.
    fn tool_names(&self, agent: &str) -> HashMap<String, String> {
        let agents = self.agents();
        let Some(agent) = agents.get(agent) else { return HashMap::new() };
        let view = self.gate().registry().view(&agent.scope);
        let shared = view.shared().into_iter().map(|tool| tool.name);
        let own = view.entries().into_iter().map(|tool| tool.name().to_owned());
        shared.chain(own).map(|name| (published_name(&name), name)).collect()
    }
}

/// Collects calls from entries.
struct Reader {
    names: HashMap<String, String>,
    /// The calls of the last replies, by id.
    open: HashMap<String, (String, Value, bool)>,
    recorded: RecordedCalls,
}

impl Reader {
    fn new(names: HashMap<String, String>) -> Reader {
        Reader { names, open: HashMap::new(), recorded: RecordedCalls::default() }
    }

    fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Reset { .. } => self.recorded = RecordedCalls::default(),
            Entry::MessageIn(message) if !message.from.starts_with(AGENT) => {
                self.recorded.messages.push(message.text);
            }
            Entry::Replied { reply } => {
                // Results belong to the last reply. A provider may use an id again.
                self.open.clear();
                for block in reply.message.content {
                    if let Block::ToolUse { id, name, input, .. } = block {
                        let name = self.names.get(&name).cloned().unwrap_or(name);
                        self.open.insert(id, (name, input, false));
                    }
                }
            }
            Entry::CallBegun { call, read_only, .. } => {
                if let Some(open) = self.open.get_mut(&call) {
                    open.2 = read_only;
                }
            }
            Entry::CallEnded { call, result } => {
                if let Some((tool, input, read_only)) = self.open.remove(&call) {
                    let failed = result.is_error || result.command.is_some_and(|command| command.failed);
                    let result = text(&result);
                    self.recorded.calls.push(RecordedCall { tool, input, result, failed, read_only });
                }
            }
            _ => {}
        }
    }
}

fn text(result: &CallResult) -> String {
    let texts = result.content.iter().filter_map(|block| match block {
        Block::Text { text } => Some(text.as_str()),
        _ => None,
    });
    without_fence(&texts.collect::<Vec<_>>().join("\n")).into_owned()
}
