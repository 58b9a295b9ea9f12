//! Runs of schedules, tasks and pipelines, as clients follow them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pipelines::StepStatus;

/// What started a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    Schedule,
    Task,
    Pipeline,
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}

impl RunKind {
    pub fn name(self) -> &'static str {
        match self {
            RunKind::Schedule => "schedule",
            RunKind::Task => "task",
            RunKind::Pipeline => "pipeline",
            RunKind::Other => "other",
        }
    }
}

/// `data` of `run.event`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunEventData {
    pub kind: RunKind,
    pub run_id: String,
    /// The id of the job, the task or the pipeline.
    pub source_id: String,
    /// The name of the job, the title of the task, or the name of the pipeline.
    pub name: String,
    pub agent: String,
    pub event: RunEvent,
}

/// Something that happened to a run. Events are not stored; the histories of runs have the facts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum RunEvent {
    Started {
        /// The session of the run. A pipeline has one session per step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_key: Option<String>,
        /// An earlier process of the gateway started the run, and this one continues it.
        resumed: bool,
    },
    StepStarted {
        step: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_key: Option<String>,
    },
    StepEnded {
        step: String,
        status: StepStatus,
        duration_ms: i64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// The number of steps that have ended, and of all steps.
        done: u64,
        total: u64,
    },
    /// The run, or one of its steps, waits for a person. `sessions.status` of the session has the question.
    Waiting {
        session_key: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<String>,
    },
    /// The run, or one of its steps, was answered and works again.
    Continued {
        session_key: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<String>,
    },
    Ended {
        /// As in the history of the run: `ok`, `error`, `cancelled` for schedules and tasks; `completed`, `failed`,
        /// `rejected`, `interrupted` for pipelines.
        status: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        duration_ms: i64,
    },
    /// An event that this version does not know.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_of_a_later_version_are_readable() {
        let later = json!({
            "kind": "of_a_later_version", "runId": "r", "sourceId": "s", "name": "n", "agent": "main",
            "event": {"event": "of_a_later_version", "x": 1},
        });
        let read: RunEventData = serde_json::from_value(later).unwrap();
        assert_eq!((read.kind, read.event), (RunKind::Other, RunEvent::Unknown));
    }
}
