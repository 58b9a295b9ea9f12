//! Sessions that make one fixed call and ask no model. The journal, approvals, labels and recovery are those of every
//! session.

use gantry_model::{Block, Message, Reply, Request, Role, StopReason, Thinking, Usage};

use super::Driver;
use super::effects::Prepared;
use crate::agent::Agent;
use crate::background::FixedCall;
use crate::context::Window;
use crate::entry::{End, Entry};
use crate::flow::without_fence;
use crate::toolbox::Toolbox;

/// The model's name in the journal of such a session.
const NO_MODEL: &str = "none";
const CALL_ID: &str = "call_1";
/// A window whose results are cut at about 50 KB. The whole result stays behind a handle.
const WINDOW_TOKENS: usize = 102_400;

impl Driver {
    pub(super) fn fixed_call(&self) -> Option<&FixedCall> {
        self.child()?.background.as_ref()?.call.as_ref()
    }

    /// Prepares a run without a model and a prompt.
    pub(super) fn prepare_fixed_call(&self, agent: &Agent) -> Prepared {
        let request = Request {
            model: NO_MODEL.to_owned(),
            system: Vec::new(),
            messages: Vec::new(),
            tools: Vec::new(),
            native_web_search: false,
            max_tokens: 0,
            thinking: Thinking::Off,
            effort: None,
        };
        Prepared {
            window: Window { tokens: WINDOW_TOKENS, reserved: 0 },
            toolbox: Toolbox::default(),
            view: self.shared.parts.gate.registry().view(&agent.scope),
            request,
            labels: Vec::new(),
        }
    }

    /// Returns the entries in place of a model's reply: the call first, then its result as the answer. `None` if the
    /// session has a model.
    pub(super) fn fixed_reply(&self) -> Option<Vec<Entry>> {
        let call = self.fixed_call()?;
        let result = self.state()?.messages.iter().flat_map(|message| &message.content).find_map(|block| {
            let Block::ToolResult { content, is_error, .. } = block else { return None };
            // The fence is for models.
            Some((without_fence(&text_of(content)).into_owned(), *is_error))
        });
        let reply = match result {
            None => Reply {
                message: Message {
                    role: Role::Assistant,
                    content: vec![Block::ToolUse {
                        id: CALL_ID.to_owned(),
                        name: call.tool.clone(),
                        input: call.input.clone(),
                        malformed: None,
                    }],
                },
                stop: StopReason::ToolUse,
                usage: Usage::default(),
                model: NO_MODEL.to_owned(),
            },
            Some((error, true)) => return Some(vec![Entry::RunEnded { end: End::Failed { error } }]),
            Some((text, false)) => return Some(vec![Entry::RunEnded { end: End::Final { text } }]),
        };
        Some(vec![
            Entry::RequestBegun { model: NO_MODEL.to_owned() },
            Entry::Replied { reply: Box::new(reply) },
        ])
    }
}

fn text_of(content: &[Block]) -> String {
    let texts = content.iter().filter_map(|block| match block {
        Block::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
