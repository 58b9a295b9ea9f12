//! [`JobDefinition`] is what a job is: its schedule, its work and its options, as stored.

use gantry_agent::Authority;
use gantry_tool::Label;
use serde::{Deserialize, Serialize};

use crate::time::Schedule;

/// The time limit of a run, unless the job sets another.
pub(crate) const TIMEOUT_SECONDS: u32 = 30 * 60;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobDefinition {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    pub(crate) schedule: Schedule,
    pub(crate) spec: JobSpec,
    #[serde(default)]
    pub(crate) delete_after_run: bool,
    #[serde(default)]
    pub(crate) catch_up: CatchUp,
    #[serde(default)]
    pub(crate) overlap: Overlap,
    #[serde(default)]
    pub(crate) jitter_seconds: u32,
    #[serde(default)]
    pub(crate) carry: Carry,
}

/// What a job does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum JobSpec {
    /// A message to the agent's main session.
    SystemEvent { text: String },
    /// A turn in a session of its own.
    Task {
        message: String,
        deliver: bool,
        /// Where the answer goes.
        #[serde(flatten)]
        to: Delivers,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking: Option<String>,
        timeout_seconds: u32,
        #[serde(default)]
        best_effort_deliver: bool,
    },
}

/// A channel of the outbox and the receiver in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Delivers {
    pub(crate) channel: String,
    pub(crate) to: String,
}

impl JobSpec {
    /// The text that the agent gets.
    pub(crate) fn text(&self) -> &str {
        match self {
            JobSpec::SystemEvent { text } => text,
            JobSpec::Task { message, .. } => message,
        }
    }

    pub(crate) fn timeout_ms(&self) -> i64 {
        let seconds = match self {
            JobSpec::SystemEvent { .. } => TIMEOUT_SECONDS,
            JobSpec::Task { timeout_seconds, .. } => *timeout_seconds,
        };
        i64::from(seconds) * 1_000
    }
}

/// What happens to occurrences while the gateway was not running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CatchUp {
    /// The last one runs once, if it is not too late.
    #[default]
    Last,
    None,
}

/// What happens to an occurrence while the previous run has not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Overlap {
    #[default]
    Skip,
    /// One run waits.
    Queue,
}

/// What a run gets from the one before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Carry {
    #[default]
    None,
    /// The answer of the last run.
    Summary,
}

macro_rules! named {
    ($name:ident, $($variant:ident = $text:literal),+) => {
        impl $name {
            pub(crate) fn name(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }

            pub(crate) fn from_name(name: &str) -> Option<$name> {
                match name { $($text => Some($name::$variant),)+ _ => None }
            }
        }
    };
}
named!(CatchUp, Last = "last", None = "none");
named!(Overlap, Skip = "skip", Queue = "queue");
named!(Carry, None = "none", Summary = "summary");

/// An answer for the next run of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CarriedAnswer {
    pub(crate) text: String,
    /// The labels of the conversation that it comes from.
    pub(crate) labels: Vec<Label>,
}

impl CarriedAnswer {
    /// Reads a stored answer. One without labels gets the worst ones.
    pub(crate) fn of(stored: &str) -> CarriedAnswer {
        serde_json::from_str(stored)
            .unwrap_or_else(|_| CarriedAnswer { text: stored.to_owned(), labels: Label::BOTH.to_vec() })
    }
}

/// The job as it was when a run was admitted. Later changes do not affect the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunSnapshot {
    pub(crate) name: String,
    pub(crate) spec: JobSpec,
    pub(crate) authority: Authority,
    /// The instant for which it runs.
    pub(crate) scheduled_at: i64,
    pub(crate) is_once: bool,
    pub(crate) delete_after_run: bool,
    /// The answer of the run before, if the job carries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<CarriedAnswer>,
}
