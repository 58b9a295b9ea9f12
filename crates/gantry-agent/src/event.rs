//! What clients of a session hear, as it happens. Not kept: what counts is in the journal.

use gantry_protocol::SessionEvent;
use serde_json::Value;

use crate::entry::{Answer, Question, UserAsked};
use crate::state::Addressee;

/// The driver's event. [`SessionEvent`] is its form on the wire.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    RunBegun {
        run: String,
    },
    /// A piece of what the model says.
    Text {
        run: String,
        delta: String,
    },
    Thinking {
        run: String,
        delta: String,
    },
    /// The model began to write a call.
    CallWriting {
        run: String,
        call: String,
        tool: String,
    },
    /// A piece of its arguments, of tools whose arguments are wanted at once.
    CallInput {
        run: String,
        call: String,
        delta: String,
    },
    /// What the model said since it was asked counts no more: it is asked again.
    Restart {
        run: String,
        reason: String,
    },
    ToolStart {
        run: String,
        call: String,
        tool: String,
        input: Value,
    },
    ToolProgress {
        run: String,
        call: String,
        done: u64,
        total: Option<u64>,
        message: String,
    },
    ToolEnd {
        run: String,
        call: String,
        tool: String,
        is_error: bool,
        /// The call has no tick: it is an error, or a command that ended with another exit code than 0, a signal or its timeout.
        failed: bool,
        /// Of a command that ended.
        exit_code: Option<i64>,
        result: String,
    },
    /// Somebody has to answer before the run goes on.
    Approval {
        run: String,
        question: Question,
    },
    ApprovalAnswered {
        run: String,
        question: String,
        answer: Answer,
        by: String,
    },
    /// The agent asks its user, and goes on with the answer.
    Asked {
        run: String,
        asked: UserAsked,
    },
    AskedAnswered {
        run: String,
        question: String,
        answers: Vec<String>,
        by: String,
    },
    Compacted {
        replaced: usize,
        by_model: bool,
    },
    Reset {
        why: String,
    },
    /// The answer, to each of the messages that the run took up.
    Final {
        run: String,
        text: String,
        messages: Vec<Addressee>,
    },
    Stopped {
        run: String,
        by: String,
        messages: Vec<Addressee>,
    },
    Error {
        run: Option<String>,
        message: String,
        messages: Vec<Addressee>,
    },
    /// The gateway stops; the run goes on when it is back.
    Suspended,
}

impl From<Event> for SessionEvent {
    fn from(event: Event) -> SessionEvent {
        match event {
            Event::RunBegun { run } => SessionEvent::RunBegun { run },
            Event::Text { run, delta } => SessionEvent::Text { run, delta },
            Event::Thinking { run, delta } => SessionEvent::Thinking { run, delta },
            Event::CallWriting { run, call, tool } => SessionEvent::CallWriting { run, call, tool },
            Event::CallInput { run, call, delta } => SessionEvent::CallInput { run, call, delta },
            Event::Restart { run, reason } => SessionEvent::Restart { run, reason },
            Event::ToolStart { run, call, tool, input } => SessionEvent::ToolStart { run, call, tool, input },
            Event::ToolProgress { run, call, done, total, message } => {
                SessionEvent::ToolProgress { run, call, done, total, message }
            }
            Event::ToolEnd { run, call, tool, is_error, failed, exit_code, result } => {
                SessionEvent::ToolEnd { run, call, tool, is_error, failed, exit_code, result }
            }
            Event::Approval { run, question } => SessionEvent::Approval { run, question },
            Event::ApprovalAnswered { run, question, answer, by } => {
                SessionEvent::ApprovalAnswered { run, question, answer: (&answer).into(), by }
            }
            Event::Asked { run, asked } => SessionEvent::Asked { run, asked },
            Event::AskedAnswered { run, question, answers, by } => {
                SessionEvent::AskedAnswered { run, question, answers, by }
            }
            Event::Compacted { replaced, by_model } => SessionEvent::Compacted { replaced, by_model },
            Event::Reset { why } => SessionEvent::Reset { why },
            Event::Final { run, text, messages } => SessionEvent::Final { run, text, messages },
            Event::Stopped { run, by, messages } => SessionEvent::Stopped { run, by, messages },
            Event::Error { run, message, messages } => SessionEvent::Error { run, message, messages },
            Event::Suspended => SessionEvent::Suspended,
        }
    }
}

impl Event {
    /// Logs when a run begins and how it ends.
    pub(crate) fn log(&self, session: &str) {
        match self {
            Event::RunBegun { run } => tracing::info!(run, sessionKey = session, "run_started"),
            Event::Final { run, .. } => tracing::info!(run, sessionKey = session, "run_ended"),
            Event::Stopped { run, by, .. } => {
                tracing::info!(run, sessionKey = session, stoppedBy = by, "run_ended");
            }
            Event::Error { run, message, .. } => {
                tracing::warn!(run = run.as_deref(), sessionKey = session, error = message, "run_failed");
            }
            _ => {}
        }
    }

    /// Whether somebody is asked, or has answered.
    pub(crate) fn is_question(&self) -> bool {
        matches!(
            self,
            Event::Approval { .. }
                | Event::ApprovalAnswered { .. }
                | Event::Asked { .. }
                | Event::AskedAnswered { .. }
        )
    }

    /// The messages that this settles.
    pub fn settles(&self, message: &str) -> bool {
        match self {
            Event::Final { messages, .. }
            | Event::Stopped { messages, .. }
            | Event::Error { messages, .. } => messages.iter().any(|settled| settled.id == message),
            _ => false,
        }
    }
}
