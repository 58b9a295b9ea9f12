//! [`Command`] is a message to a session's driver.

use std::path::PathBuf;

use gantry_model::{Effort, Thinking};
use gantry_protocol::SessionEvent;
use gantry_store::{ChannelEvent, DatabaseError};
use gantry_tool::{Approval, Consent, UserAnswers, UserQuestion};
use tokio::sync::oneshot;

use super::Status;
use crate::child::Child;
use crate::entry::{ApprovalDecision, Incoming, Notice};
use crate::sessions::SessionError;

/// A message to a session's driver. Most commands carry a channel for the answer.
pub(crate) enum Command {
    /// Look for work.
    Wake,
    Message {
        incoming: Incoming,
        /// The new working directory. It is ignored while a run is in progress.
        workspace: Option<PathBuf>,
        /// Stored together with the message.
        channel_event: Option<ChannelEvent>,
        done: Done<Option<SessionEvent>>,
    },
    /// Record a notice. The answer is whether it is new.
    Notice {
        notice: Notice,
        done: Done<bool>,
    },
    /// Start the session as a child, with its task.
    StartChild {
        child: Box<Child>,
        incoming: Incoming,
        done: Done<Option<SessionEvent>>,
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
    /// Return the final event of a message, if there is one.
    Settled {
        message: String,
        done: Done<Option<SessionEvent>>,
    },
    Answer {
        question: Option<String>,
        answer: ApprovalDecision,
        by: String,
        done: Done<String>,
    },
    Reply {
        question: Option<String>,
        answers: Vec<String>,
        by: String,
        done: Done<String>,
    },
    /// A tool asks the user.
    AskUser {
        call: String,
        questions: Vec<UserQuestion>,
        answers: oneshot::Sender<UserAnswers>,
    },
    /// The gate asks for an approval of a call of this session.
    Ask {
        call: String,
        approval: Approval,
        consent: oneshot::Sender<Consent>,
    },
}

pub(super) type Done<T> = oneshot::Sender<Result<T, SessionError>>;

/// Answers a command with an error, because the session cannot be loaded.
pub(super) fn refuse(command: Command, err: &DatabaseError) {
    let refused = || SessionError::Refused(err.to_string());
    match command {
        Command::Wake => {}
        Command::Message { done, .. } | Command::StartChild { done, .. } | Command::Settled { done, .. } => {
            drop(done.send(Err(refused())));
        }
        Command::Stop { done, .. }
        | Command::Reset { done, .. }
        | Command::Compact { done }
        | Command::Answer { done, .. }
        | Command::Reply { done, .. } => drop(done.send(Err(refused()))),
        Command::Notice { done, .. } => drop(done.send(Err(refused()))),
        Command::Set { done, .. } => drop(done.send(Err(refused()))),
        Command::Status { done } => drop(done.send(Err(refused()))),
        Command::Ask { consent, .. } => drop(consent.send(Consent::Denied(err.to_string()))),
        Command::AskUser { answers, .. } => drop(answers.send(None)),
    }
}
