//! What a session is asked from outside, and how whoever asked hears that nothing can be done. The driver does it.

use std::path::PathBuf;

use gantry_model::{Effort, Thinking};
use gantry_store::DatabaseError;
use gantry_tool::{Approval, Consent, UserAnswers, UserQuestion};
use tokio::sync::oneshot;

use super::Status;
use crate::child::Child;
use crate::entry::{Answer, Incoming};
use crate::event::Event;
use crate::sessions::SessionError;

/// What a session is asked from outside.
pub(crate) enum Command {
    /// There may be something to do.
    Wake,
    Message {
        incoming: Incoming,
        /// Where the conversation works from now on, unless a run is under way.
        workspace: Option<PathBuf>,
        done: Done<Option<Event>>,
    },
    /// The session is a child, and this is what it is to do.
    Begin {
        child: Box<Child>,
        incoming: Incoming,
        done: Done<Option<Event>>,
    },
    Stop {
        by: String,
        done: Done<String>,
    },
    Reset {
        why: String,
        done: Done<String>,
    },
    Compact {
        done: Done<String>,
    },
    Set {
        model: Option<String>,
        thinking: Option<Thinking>,
        effort: Option<Effort>,
        done: Done<()>,
    },
    Status {
        done: Done<Status>,
    },
    /// Whether a message is settled, and how.
    Settled {
        message: String,
        done: Done<Option<Event>>,
    },
    Answer {
        question: Option<String>,
        answer: Answer,
        by: String,
        done: Done<String>,
    },
    Reply {
        question: Option<String>,
        answers: Vec<String>,
        by: String,
        done: Done<String>,
    },
    /// From a tool, about what only the user knows.
    AskUser {
        call: String,
        questions: Vec<UserQuestion>,
        answers: oneshot::Sender<UserAnswers>,
    },
    /// From the gate, about a call of this session.
    Ask {
        call: String,
        approval: Approval,
        consent: oneshot::Sender<Consent>,
    },
}

pub(super) type Done<T> = oneshot::Sender<Result<T, SessionError>>;

/// Tells whoever asked that nothing can be done.
pub(super) fn refuse(command: Command, err: &DatabaseError) {
    let refused = || SessionError::Refused(err.to_string());
    match command {
        Command::Wake => {}
        Command::Message { done, .. } | Command::Begin { done, .. } | Command::Settled { done, .. } => {
            drop(done.send(Err(refused())));
        }
        Command::Stop { done, .. }
        | Command::Reset { done, .. }
        | Command::Compact { done }
        | Command::Answer { done, .. }
        | Command::Reply { done, .. } => drop(done.send(Err(refused()))),
        Command::Set { done, .. } => drop(done.send(Err(refused()))),
        Command::Status { done } => drop(done.send(Err(refused()))),
        Command::Ask { consent, .. } => drop(consent.send(Consent::Denied(err.to_string()))),
        Command::AskUser { answers, .. } => drop(answers.send(None)),
    }
}
