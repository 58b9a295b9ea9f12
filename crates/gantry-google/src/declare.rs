//! What all Google tools have in common, and the state that they share.

use std::sync::Arc;

use gantry_tool::{Effect, Label, Masker, Tool};
use jiff::tz::TimeZone;

use crate::api::Api;
use crate::workspace::WorkspaceFiles;

/// The state of every Google tool.
pub(crate) struct Google {
    pub(crate) api: Api,
    pub(crate) files: Arc<dyn WorkspaceFiles>,
    /// Knows the stored secrets, which no message may contain.
    pub(crate) masker: Masker,
    /// The zone in which local times are read and shown.
    pub(crate) zone: TimeZone,
}

pub(crate) type Ctx = gantry_tool::Ctx<Google>;

/// The time for one action, with its retries.
pub(crate) const ACTION_LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

/// Declares what holds for every Google tool. Each tool adds `crosses` and `asks_as` for its actions:
///
/// - a read crosses nothing: it goes to the owner's own account;
/// - a write that the owner need not confirm is `Crossing::Network`, which is asked about only in a labelled run;
/// - a write that needs a confirmation is `Crossing::Change`, or `Crossing::Message` if it reaches other people.
pub(crate) fn declared(tool: Tool) -> Tool {
    tool.works_without_machine()
        .offered_to_agents()
        .effects(&[Effect::ReachesNetwork, Effect::SendsMessages])
        .labels(&[Label::Untrusted, Label::Private])
}
