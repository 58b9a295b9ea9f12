//! [`DataLocations`] finds where a call reads and writes, so that labels stay with written data: a file that was
//! written after a web page was read may contain the page's text.

use std::path::{Path, PathBuf};

use gantry_store::{DatabaseError, TaintMarks};
use gantry_tool::{
    Access, Call, Capability, DataAccess, DataLocation, Gate, LOCAL_NODE, Label, Tool, ToolScope, Toolset,
};
use serde_json::{Value, json};

use crate::flow::Flow;
use crate::sessions::Shared;

/// The prefix of an object's key.
const OBJECT: &str = "gsv:";
/// The prefix of a machine's name. The location is the whole machine.
const MACHINE: &str = "node:";
/// The prefix of an API profile's id. The prefix alone means all profiles.
const API: &str = "api:";
/// The prefix of an object or an API profile that holds private data. Files are always private; these also appear
/// unasked, in prompts and lists.
const PRIVATE: &str = "private:";
/// Characters of a source in a mark.
const SOURCE_CHARS: usize = 300;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DataLocations {
    reads: Vec<String>,
    writes: Vec<String>,
    /// The remote machine that content comes from.
    foreign: Option<String>,
    /// An error message may come from a remote machine.
    may_be_answered: bool,
    /// The remote machines that the call runs on.
    machines: Vec<String>,
    /// The call runs commands, which may read and write anything.
    runs_commands: bool,
    /// The call runs commands on this machine. They may also read marked files outside these directories, the workspaces
    /// of agents.
    outside_of: Option<Vec<String>>,
    /// The machine finds the files that the call's commands change, so they are marked after the call.
    watches_changes: bool,
}

impl DataLocations {
    /// `workspaces` are those of all agents.
    pub(crate) async fn of(
        gate: &Gate,
        tool: Option<&Tool>,
        call: &Call,
        name: &str,
        input: &Value,
        workspaces: &[PathBuf],
    ) -> DataLocations {
        let mut locations = DataLocations::default();
        match tool.and_then(|tool| tool.locations_of(input)) {
            Some(declared) => {
                for accessed in declared {
                    locations.add(gate, call, accessed).await;
                }
            }
            None => {
                for touch in gate.touches(call, name, input).await {
                    locations.list(touch.access).push(path_text(&touch.path));
                }
            }
        }
        locations.runs_commands =
            tool.is_some_and(|tool| tool.capability_ids().contains(&Capability::ShellExec));
        let machines = gate.machines(call, name, input).into_iter().filter(|node| node != LOCAL_NODE);
        locations.machines = machines.map(|node| machine(&node)).collect();
        // The files that are touched there are unknown, so the whole machine is one location.
        locations.reads.extend(locations.machines.iter().cloned());
        if !tool.is_some_and(Tool::is_read_only) {
            locations.writes.extend(locations.machines.iter().cloned());
        }
        let is_here = locations.writes.iter().any(|location| !locations.machines.contains(location));
        if locations.runs_commands && is_here {
            locations.writes.push(path_text(&call.workspace));
            let workspaces = workspaces.iter().chain([&call.workspace]);
            locations.outside_of = Some(workspaces.map(|workspace| path_text(workspace)).collect());
            locations.watches_changes =
                tool.is_some_and(|tool| tool.watches_changes(call) && !tool.asks_to_leave_sandbox(input));
        }
        locations
    }

    fn list(&mut self, access: Access) -> &mut Vec<String> {
        match access {
            Access::Read => &mut self.reads,
            Access::Write => &mut self.writes,
        }
    }

    async fn add(&mut self, gate: &Gate, call: &Call, accessed: DataAccess) {
        let DataAccess { location, access } = accessed;
        match location {
            DataLocation::Object(path) => self.list(access).push(object(call, &path)),
            DataLocation::Api(id) => {
                self.list(access).push(id.map_or_else(|| API.to_owned(), |id| api(&id)));
            }
            DataLocation::OnNode { node, path } if node == LOCAL_NODE => {
                let resolved = local_paths(gate, call, &path).await;
                self.list(access).extend(resolved);
            }
            DataLocation::OnNode { node, .. } => match access {
                Access::Read => self.foreign = Some(format!("the machine {node}")),
                Access::Write => {
                    self.may_be_answered = true;
                    self.writes.push(machine(&node));
                }
            },
        }
    }

    /// Whether the call runs commands.
    pub(crate) fn runs_commands(&self) -> bool {
        self.runs_commands
    }

    /// Whether the call itself writes files or objects here, without a command.
    pub(crate) fn stores_here(&self) -> bool {
        !self.writes.is_empty() && self.machines.is_empty() && !self.runs_commands
    }

    /// Whether the call runs commands on this machine whose changed files are not found.
    pub(crate) fn changes_unknown_files(&self) -> bool {
        self.outside_of.is_some() && !self.watches_changes
    }

    /// Whether the call itself can send private data.
    pub(crate) fn takes_along(&self) -> bool {
        self.runs_commands || !self.reads.is_empty() || !self.writes.is_empty()
    }

    /// Returns the source of untrusted content that the call may read.
    pub(crate) async fn source(&self, shared: &Shared) -> Result<Option<String>, DatabaseError> {
        if self.foreign.is_some() {
            return Ok(self.foreign.clone());
        }
        let marks = &shared.marks;
        let settings = shared.settings();
        for location in self.reads.iter().chain(&self.writes).map(Path::new) {
            let touches = |listed: &&PathBuf| location.starts_with(listed) || listed.starts_with(location);
            if let Some(cache) = settings.cache_paths.iter().find(|cache| location.starts_with(cache)) {
                return Ok(Some(format!("commands put them into {}", cache.display())));
            }
            if let Some(listed) = settings.untrusted_paths.iter().find(touches) {
                return Ok(Some(format!("others put them into {}", listed.display())));
            }
        }
        for location in self.reads.iter().chain(&self.writes) {
            if let Some(source) = marks.touching(location).await? {
                return Ok(Some(source));
            }
        }
        match &self.outside_of {
            Some(workspaces) => {
                marks.outside(&workspaces.iter().map(String::as_str).collect::<Vec<_>>()).await
            }
            None => Ok(None),
        }
    }

    /// Whether the locations are marked as private.
    pub(crate) async fn are_private(&self, marks: &TaintMarks) -> Result<bool, DatabaseError> {
        for location in self.reads.iter().chain(&self.writes) {
            if marks.touching(&private(location)).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether an error message may come from a remote machine.
    pub(crate) fn may_be_answered(&self) -> bool {
        self.may_be_answered
    }

    /// Returns the remote machine that the call runs on, if there is exactly one.
    pub(crate) fn machine(&self) -> Option<&str> {
        match self.machines.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Marks written locations as private, if the run holds private data or the call reads any.
    pub(crate) async fn mark_private(
        &self,
        marks: &TaintMarks,
        flow: &Flow,
        now: i64,
    ) -> Result<(), DatabaseError> {
        if self.reads.is_empty() && !flow.labels().contains(&Label::Private) {
            return Ok(());
        }
        for location in self.writes.iter().filter(|location| appears_unasked(location)) {
            marks.add(&private(location), "private data", now).await?;
        }
        Ok(())
    }

    /// Marks written locations as untrusted, and returns the new marks. Content that comes from one machine alone may be written back there unmarked.
    pub(crate) async fn mark(
        &self,
        marks: &TaintMarks,
        flow: &Flow,
        source: &str,
        now: i64,
    ) -> Result<Vec<String>, DatabaseError> {
        let is_found_later =
            |location: &str| self.watches_changes && !self.machines.iter().any(|own| own == location);
        let places = self.writes.iter().map(String::as_str);
        let places: Vec<&str> =
            places.filter(|place| !flow.is_all_from(place) && !is_found_later(place)).collect();
        marks.add_all(&places, &shortened(source), now).await
    }
}

/// Shortens the source of a mark.
pub(crate) fn shortened(source: &str) -> String {
    source.chars().take(SOURCE_CHARS).collect()
}

/// The location of an agent's object.
fn object(call: &Call, path: &str) -> String {
    object_key(&format!("agents/{}/{}", call.agent, path.trim_matches('/')))
}

pub(crate) fn object_key(key: &str) -> String {
    format!("{OBJECT}{}", key.trim_end_matches('/'))
}

pub(crate) fn private(location: &str) -> String {
    format!("{PRIVATE}{location}")
}

/// Whether prompts and lists show the location without being asked.
fn appears_unasked(location: &str) -> bool {
    location.starts_with(OBJECT) || location.starts_with(API)
}

fn machine(node: &str) -> String {
    format!("{MACHINE}{node}")
}

fn api(id: &str) -> String {
    format!("{API}/{id}")
}

/// Parses a location as users write it: an object, a machine, an API profile, or a path relative to the workspace.
pub(crate) fn parse(agent: &str, workspace: &Path, text: &str) -> String {
    if text.starts_with(MACHINE) {
        return text.to_owned();
    }
    if let Some(id) = text.strip_prefix(API) {
        return api(id);
    }
    match text.strip_prefix(OBJECT) {
        Some(path) => object_key(&format!("agents/{agent}/{}", path.trim_matches('/'))),
        None => {
            let path: PathBuf = workspace.join(text).components().collect();
            path_text(&path)
        }
    }
}

/// The location of a path of this machine.
pub(crate) fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Resolves a path on this machine with the file engine, also for callers that may not read it. It asks the local
/// tool that reads files.
async fn local_paths(gate: &Gate, call: &Call, path: &str) -> Vec<String> {
    let prefix = format!("{LOCAL_NODE}__");
    let reads = |tool: &Tool| {
        tool.toolset() == Toolset::Node
            && tool.name().starts_with(&prefix)
            && tool.capability_ids().contains(&Capability::FilesystemRead)
    };
    let Some(reader) = gate.registry().entries().into_iter().find(|tool| reads(tool)) else {
        return Vec::new();
    };
    let anybody = Call { scope: ToolScope::default(), ..call.clone() };
    let touches = gate.touches(&anybody, reader.name(), &json!({ "path": path })).await;
    touches.into_iter().map(|touch| path_text(&touch.path)).collect()
}

#[cfg(test)]
mod tests {
    use gantry_tool::testing::{echo_tool, gate};
    use gantry_tool::{Principal, Surface};

    use super::*;

    async fn locations_of(tool: Tool) -> DataLocations {
        let (gate, _) = gate([tool.clone()]);
        let call =
            Call { agent: "main".into(), ..Call::new(Principal::Operator, Surface::Agent, "/work".into()) };
        DataLocations::of(&gate, Some(&tool), &call, "new", &json!({"text": "a/b"}), &[]).await
    }

    fn tool() -> Tool {
        echo_tool("new", Toolset::Gantry)
    }

    fn accessing(accessed: DataAccess) -> Tool {
        tool().data_locations(move |_: Value| vec![accessed.clone()])
    }

    #[tokio::test]
    async fn locations_come_from_the_declarations_of_the_tool() {
        assert_eq!(locations_of(tool()).await, DataLocations::default());
        let read = locations_of(tool().reads_object("text")).await;
        assert_eq!(read.reads, ["gsv:agents/main/a/b"]);
        let written = locations_of(tool().writes_object("text")).await;
        assert_eq!((written.reads, written.writes), (Vec::new(), vec!["gsv:agents/main/a/b".to_owned()]));
        let profile = locations_of(accessing(DataAccess::write(DataLocation::Api(Some("x".into()))))).await;
        assert_eq!(profile.writes, ["api:/x"]);
        let profiles = locations_of(accessing(DataAccess::read(DataLocation::Api(None)))).await;
        assert_eq!(profiles.reads, ["api:"]);
        let far = || DataLocation::OnNode { node: "far".into(), path: "/x".into() };
        let from = locations_of(accessing(DataAccess::read(far()))).await;
        assert_eq!((from.foreign.as_deref(), from.may_be_answered), (Some("the machine far"), false));
        let to = locations_of(accessing(DataAccess::write(far()))).await;
        assert_eq!((to.writes, to.may_be_answered, to.foreign), (vec!["node:far".to_owned()], true, None));
    }
}
