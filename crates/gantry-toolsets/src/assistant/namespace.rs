//! The four namespaces of an agent's memories.

use schemars::JsonSchema;
use serde::Deserialize;

/// The kind of knowledge.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Namespace {
    /// Facts: people, systems, preferences.
    Knowledge,
    /// How to do things.
    Methods,
    /// State of the work.
    ProjectState,
    /// Lessons from experience.
    Learnings,
}

impl Namespace {
    pub(super) fn name(self) -> &'static str {
        match self {
            Namespace::Knowledge => "knowledge",
            Namespace::Methods => "methods",
            Namespace::ProjectState => "project-state",
            Namespace::Learnings => "learnings",
        }
    }
}
