//! [`Status`] of a session, and its form on the wire.

use std::path::PathBuf;

use gantry_model::Usage;
use gantry_protocol::{Addressee, SessionStatus, TokenUsage};
use gantry_tool::{Autonomy, Label};

use crate::child::{Child, Payer};
use crate::entry::{Question, UserAsked};

/// The status of a session.
///
/// The wire has [`SessionStatus`], which is built here and nowhere else. This type keeps labels, paths and usage
/// typed, and has the payer, which is internal.
#[derive(Debug, Clone)]
pub struct Status {
    pub session_key: String,
    pub agent: String,
    pub model: String,
    pub workspace: PathBuf,
    pub autonomy: Autonomy,
    pub running: Option<String>,
    pub queued: usize,
    pub messages: usize,
    pub events: i64,
    pub compactions: u32,
    pub runs: u64,
    pub usage: Usage,
    pub labels: Vec<Label>,
    /// The host that all private content came from, if there is exactly one.
    pub private_from: Option<String>,
    pub questions: Vec<Question>,
    /// The agent's open questions to its user.
    pub asks: Vec<UserAsked>,
    /// The senders that the run in progress answers.
    pub addressees: Vec<Addressee>,
    /// Its limits, if it is a child.
    pub child: Option<Box<Child>>,
    /// The account of the run in progress.
    pub payer: Payer,
}

impl From<Status> for SessionStatus {
    fn from(status: Status) -> SessionStatus {
        let label = |label: &Label| match label {
            Label::Untrusted => "untrusted".to_owned(),
            Label::Private => "private".to_owned(),
        };
        let usage = status.usage;
        SessionStatus {
            session_key: status.session_key,
            agent: status.agent,
            model: status.model,
            workspace: status.workspace.to_string_lossy().into_owned(),
            running: status.running,
            queued: status.queued,
            messages: status.messages,
            events: status.events,
            compactions: status.compactions,
            runs: status.runs,
            usage: TokenUsage {
                input_tokens: usage.input_tokens,
                output_tokens: usage.output_tokens,
                cache_read_tokens: usage.cache_read_tokens,
                cache_write_tokens: usage.cache_write_tokens,
            },
            labels: status.labels.iter().map(label).collect(),
            questions: status.questions,
            asks: status.asks,
            child: status.child.map(|child| Box::new((*child).into())),
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let running = if self.running.is_some() { "a run is in progress" } else { "no run is in progress" };
        write!(
            f,
            "{} with {}: {running}, {} messages waiting, {} messages in the conversation, {} input tokens and {} output tokens used",
            self.session_key,
            self.model,
            self.queued,
            self.messages,
            self.usage
                .input_tokens
                .saturating_add(self.usage.cache_read_tokens)
                .saturating_add(self.usage.cache_write_tokens),
            self.usage.output_tokens
        )?;
        write!(f, "; works in {}, {}", self.workspace.display(), self.autonomy.name())?;
        match self.labels.as_slice() {
            [] => {}
            [Label::Untrusted] => f.write_str("; has read untrusted content")?,
            [Label::Private] => f.write_str("; has read private content")?,
            _ => f.write_str(
                "; has read untrusted and private content, so crossing the border needs a person",
            )?,
        }
        let questions =
            self.questions.iter().map(|question| format!("; {} asks: {}", question.id, question.tool));
        f.write_str(&questions.collect::<String>())
    }
}
