//! The four namespaces of what an agent remembers.

use schemars::JsonSchema;
use serde::Deserialize;

/// What kind of knowledge it is.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Namespace {
    /// Facts: people, systems, preferences.
    Knowledge,
    /// How things are done.
    Methods,
    /// Where the work stands.
    ProjectState,
    /// What experience has taught.
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
