//! What can happen in a session: the events of its journal. They are written before or as things happen, and never change.

use std::path::PathBuf;

use gantry_model::{Block, Effort, Reply, Thinking};
pub use gantry_protocol::{GrantScope, Question, UserAsked};
use gantry_tool::Label;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::child::{Child, Payer};
use crate::state::State;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Entry {
    /// The session is a child of another one.
    Born(Box<Child>),
    /// Somebody said something; it waits until a run takes it up.
    MessageIn(Incoming),
    RunBegun {
        run: String,
        at: i64,
    },
    /// Waiting messages become part of the conversation, and of what the run answers.
    Joined {
        messages: Vec<String>,
    },
    /// The model is told what carries these labels.
    Labelled {
        labels: Vec<Label>,
        by: String,
    },
    /// The model is being asked.
    RequestBegun {
        model: String,
    },
    Replied {
        reply: Box<Reply>,
    },
    /// The gateway ended before the model answered: it is asked again.
    RequestLost,
    RequestFailed {
        error: String,
        /// The request was longer than the model takes.
        #[serde(default)]
        overflow: bool,
        /// What the failure says about the model's window.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        learned: Option<LearnedWindow>,
    },
    /// A call of the last reply is about to run.
    CallBegun {
        call: String,
        /// It changes nothing, or not twice, so it may run again after a crash.
        read_only: bool,
        /// Asking the same again and again is what it is for.
        #[serde(default)]
        polls: bool,
    },
    CallEnded {
        call: String,
        result: CallResult,
    },
    /// The call did not get to its effect, or has none: it begins anew.
    CallAgain {
        call: String,
    },
    /// The gateway ended during the call: nobody knows what came of it.
    CallInterrupted {
        call: String,
    },
    ApprovalAsked(Question),
    ApprovalAnswered {
        question: String,
        answer: Answer,
        /// Who answered; the clock, when nobody did.
        by: String,
        at: i64,
    },
    /// The agent asks its user.
    UserAsked(UserAsked),
    UserAnswered {
        question: String,
        /// One for each question; none when nobody answered.
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
        /// Where the conversation works from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workspace: Option<PathBuf>,
    },
    StopAsked {
        by: String,
    },
    RunEnded {
        end: End,
    },
    /// The older part of the conversation was replaced by a summary. The whole is still in the journal before this.
    Compacted {
        state: Box<State>,
        /// Messages that the summary stands for.
        replaced: usize,
        /// Whether the model wrote it.
        by_model: bool,
    },
    /// Nothing happened; loading may begin here.
    Snapshot {
        state: Box<State>,
    },
    /// The conversation begins anew. What was before stays in the journal.
    Reset {
        why: String,
        at: i64,
        state: Box<State>,
    },
}

impl Entry {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Entry::Born(_) => "born",
            Entry::MessageIn(_) => "message_in",
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

    /// Whether it holds all that is needed of the entries before it.
    pub(crate) fn is_checkpoint(&self) -> bool {
        matches!(self, Entry::Compacted { .. } | Entry::Snapshot { .. } | Entry::Reset { .. })
    }
}

/// A model's window as its refusals show it, where that is less than what is known of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedWindow {
    pub model: String,
    pub tokens: usize,
}

/// A message on its way into a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incoming {
    /// The sender may choose it: the same id twice is one message.
    pub id: String,
    pub text: String,
    pub at: i64,
    /// Who sent it: a principal, or an agent's session.
    pub from: String,
    /// Where the answer goes. Its surface's own; kept as it came.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub reply_to: Value,
    /// Of what the sender knew when it wrote this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Label>,
    /// Of the run that this begins, if it is not one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payer: Option<Payer>,
}

/// What a call came to, as the model sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// Text and images.
    pub content: Vec<Block>,
    #[serde(default)]
    pub is_error: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Label>,
    /// The one machine of the owner's that all of it comes from, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// How a command ended that the call ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandEnd>,
    /// Tools that the call found, which the model is offered from now on.
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    Yes,
    No,
    /// Yes, and to the same from now on.
    Always {
        scope: GrantScope,
        until: i64,
    },
    Expired,
}

impl From<&Answer> for gantry_protocol::ApprovalDecision {
    fn from(answer: &Answer) -> Self {
        match *answer {
            Answer::Yes => Self::Yes,
            Answer::No => Self::No,
            Answer::Always { scope, until } => Self::Always { scope, until },
            Answer::Expired => Self::Expired,
        }
    }
}

impl Answer {
    pub(crate) fn allows(&self) -> bool {
        matches!(self, Answer::Yes | Answer::Always { .. })
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum End {
    Final { text: String },
    Stopped { by: String },
    Failed { error: String },
}
