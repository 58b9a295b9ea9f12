//! [`Entry`] is an entry of a session's journal: the storage format. Entries are written before or when
//! something happens, and never change.
//!
//! Questions and answers are the same types as on the wire. The other entries are storage only: clients read
//! a part of them as `gantry_protocol::HistoryEntry`.

use std::path::PathBuf;

use gantry_model::{Block, Effort, Reply, Thinking};
pub(crate) use gantry_protocol::{ApprovalDecision, GrantScope, Question, UserAsked};
use gantry_tool::Label;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::child::{Child, Payer};
use crate::state::State;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Entry {
    /// The session is a child of another one. Journals hold it under its first name.
    #[serde(rename = "born")]
    ChildStarted(Box<Child>),
    /// A message arrived. It waits until it joins a run.
    MessageIn(Incoming),
    RunBegun {
        run: String,
        at: i64,
    },
    /// A message about work elsewhere arrived. It starts no run: the model sees it with the next message.
    Notice(Notice),
    /// Waiting messages join the conversation and the run that answers them.
    Joined {
        messages: Vec<String>,
    },
    /// The model's prompt carries these labels.
    Labelled {
        labels: Vec<Label>,
        by: String,
    },
    /// A request to the model is about to be sent.
    RequestBegun {
        model: String,
    },
    Replied {
        reply: Box<Reply>,
    },
    /// The gateway stopped before the model answered. The request is repeated.
    RequestLost,
    RequestFailed {
        error: String,
        /// The request was longer than the model's window.
        #[serde(default)]
        overflow: bool,
        /// The window that the failure implies.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        learned: Option<LearnedWindow>,
    },
    /// A call of the last reply is about to run.
    CallBegun {
        call: String,
        /// The call is read-only or resumable, so it may run again after a crash.
        read_only: bool,
        /// The tool is meant to be polled with the same input.
        #[serde(default)]
        polls: bool,
    },
    CallEnded {
        call: String,
        result: CallResult,
    },
    /// The call had no effect yet, or has none. It starts again.
    CallAgain {
        call: String,
    },
    /// The gateway stopped during the call, so its outcome is unknown.
    CallInterrupted {
        call: String,
    },
    ApprovalAsked(Question),
    ApprovalAnswered {
        question: String,
        answer: ApprovalDecision,
        /// Who answered, or the timeout.
        by: String,
        at: i64,
    },
    /// The agent asks its user and waits for the answers.
    UserAsked(UserAsked),
    UserAnswered {
        question: String,
        /// One answer for each question. Empty if the questions expired.
        answers: Vec<String>,
        by: String,
        at: i64,
    },
    Set {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking: Option<Thinking>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effort: Option<Effort>,
        /// The new working directory of the conversation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workspace: Option<PathBuf>,
    },
    StopAsked {
        by: String,
    },
    RunEnded {
        end: End,
    },
    /// A summary replaced the older part of the conversation. The earlier entries stay in the journal.
    Compacted {
        state: Box<State>,
        /// The number of messages that the summary replaced.
        replaced: usize,
        /// Whether the model wrote the summary.
        by_model: bool,
    },
    /// A checkpoint: loading can start here.
    Snapshot {
        state: Box<State>,
    },
    /// The conversation was reset. The earlier entries stay in the journal.
    Reset {
        why: String,
        at: i64,
        state: Box<State>,
    },
}

impl Entry {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Entry::ChildStarted(_) => "born",
            Entry::MessageIn(_) => "message_in",
            Entry::Notice(_) => "notice",
            Entry::RunBegun { .. } => "run_begun",
            Entry::Joined { .. } => "joined",
            Entry::Labelled { .. } => "labelled",
            Entry::RequestBegun { .. } => "request_begun",
            Entry::Replied { .. } => "replied",
            Entry::RequestLost => "request_lost",
            Entry::RequestFailed { .. } => "request_failed",
            Entry::CallBegun { .. } => "call_begun",
            Entry::CallEnded { .. } => "call_ended",
            Entry::CallAgain { .. } => "call_again",
            Entry::CallInterrupted { .. } => "call_interrupted",
            Entry::ApprovalAsked(_) => "approval_asked",
            Entry::ApprovalAnswered { .. } => "approval_answered",
            Entry::UserAsked(_) => "user_asked",
            Entry::UserAnswered { .. } => "user_answered",
            Entry::Set { .. } => "set",
            Entry::StopAsked { .. } => "stop_asked",
            Entry::RunEnded { .. } => "run_ended",
            Entry::Compacted { .. } => "compacted",
            Entry::Snapshot { .. } => "snapshot",
            Entry::Reset { .. } => "reset",
        }
    }

    /// Whether it holds the whole state, so that loading can start here.
    pub(crate) fn is_checkpoint(&self) -> bool {
        matches!(self, Entry::Compacted { .. } | Entry::Snapshot { .. } | Entry::Reset { .. })
    }
}

/// A model's window as its errors show it, if it is smaller than documented.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedWindow {
    pub model: String,
    pub tokens: usize,
}

/// A message to a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incoming {
    /// The sender may choose the id. A message with a known id is a repetition and is ignored.
    pub id: String,
    pub text: String,
    /// Pictures that the model sees after the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    pub at: i64,
    /// The sender: a principal, or the key of an agent's session.
    pub from: String,
    /// The address for the answer, opaque to the session.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub reply_to: Value,
    /// The labels of the sender's conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Label>,
    /// The account for the run that this message starts, if it is not the run's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payer: Option<Payer>,
}

/// A picture in a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Such as `image/png`.
    pub media_type: String,
    /// In base64.
    pub data: String,
}

/// A message about work elsewhere, such as a scheduled run. Nobody waits for an answer to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// A notice with a known id is a repetition and is ignored.
    pub id: String,
    /// What it comes from, such as `cron:JOB`.
    pub from: String,
    pub text: String,
    pub at: i64,
    /// The labels of the conversation that the text comes from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Label>,
}

/// The result of a call, as the model sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// Text and images.
    pub content: Vec<Block>,
    #[serde(default)]
    pub is_error: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Label>,
    /// The remote machine of the owner that the whole result comes from, if there is exactly one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The host that all private content of the result came from, if there is exactly one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_from: Option<String>,
    /// How the call's command ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandEnd>,
    /// Tools that the call found. The model is offered them from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found_tools: Vec<String>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandEnd {
    pub failed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
}

impl CallResult {
    pub(crate) fn error(text: impl Into<String>) -> CallResult {
        CallResult::new(vec![Block::text(text)], true, Vec::new())
    }

    pub(crate) fn new(content: Vec<Block>, is_error: bool, labels: Vec<Label>) -> CallResult {
        CallResult { content, is_error, labels, ..CallResult::default() }
    }
}

/// How a run ended.
///
/// Clients read it as `gantry_protocol::RunEnd`, which also accepts ends that they do not know. A journal
/// must not be read that way: an unknown end would be lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum End {
    Final { text: String },
    Stopped { by: String },
    Failed { error: String },
}

#[cfg(test)]
mod tests;
