//! Where a call reads and writes, so that labels stay with what a run leaves behind: a file that was written after a page
//! was read may hold the page's words, whoever reads it next.

use std::path::{Path, PathBuf};

use gantry_store::{DatabaseError, TaintMarks};
use gantry_tool::{
    Access, Call, Capability, DataAccess, DataLocation, Gate, LOCAL_NODE, Label, Tool, ToolScope, Toolset,
};
use serde_json::{Value, json};

use crate::flow::Flow;

/// Before an object's key.
const OBJECT: &str = "gsv:";
/// Before a machine's name, where a place is all of it.
const MACHINE: &str = "node:";
/// Before an API profile's id. The profiles are as in a folder, which is all of them.
const API: &str = "api:";
/// Before an object or an API profile that holds what is the owner's own. Files always count as that; these are also told
/// where nobody asked for them: in prompts and lists.
const PRIVATE: &str = "private:";
/// Of where something comes from, as it is told.
const SOURCE_CHARS: usize = 300;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DataLocations {
    reads: Vec<String>,
    writes: Vec<String>,
    /// Another machine that content comes from.
    foreign: Option<String>,
    /// Another machine has its say when it fails.
    may_be_answered: bool,
    /// Other machines that it runs on.
    machines: Vec<String>,
    /// It runs commands, which read and write what they like.
    runs_commands: bool,
}

impl DataLocations {
    pub(crate) async fn of(
        gate: &Gate,
        tool: Option<&Tool>,
        call: &Call,
        name: &str,
        input: &Value,
    ) -> DataLocations {
        let mut places = DataLocations::default();
        match tool.and_then(|tool| tool.locations_of(input)) {
            Some(declared) => {
                for accessed in declared {
                    places.add(gate, call, accessed).await;
                }
            }
            None => {
                for touch in gate.touches(call, name, input).await {
                    places.list(touch.access).push(touch.path.to_string_lossy().into_owned());
                }
            }
        }
        places.runs_commands =
            tool.is_some_and(|tool| tool.capability_ids().contains(&Capability::ShellExec));
        let machines = gate.machines(call, name, input).into_iter().filter(|node| node != LOCAL_NODE);
        places.machines = machines.map(|node| machine(&node)).collect();
        // Nobody here knows which files are touched there, so the whole of it counts as one place.
        places.reads.extend(places.machines.iter().cloned());
        if !tool.is_some_and(Tool::is_read_only) {
            places.writes.extend(places.machines.iter().cloned());
        }
        let is_here = places.writes.iter().any(|place| !places.machines.contains(place));
        if places.runs_commands && is_here {
            places.writes.push(call.workspace.to_string_lossy().into_owned());
        }
        places
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

    /// Whether the call itself takes something of the owner's along.
    pub(crate) fn takes_along(&self) -> bool {
        self.runs_commands || !self.reads.is_empty() || !self.writes.is_empty()
    }

    /// Where what the call reads may come from, if others may have written it.
    pub(crate) async fn source(&self, marks: &TaintMarks) -> Result<Option<String>, DatabaseError> {
        if self.foreign.is_some() {
            return Ok(self.foreign.clone());
        }
        for place in self.reads.iter().chain(&self.writes) {
            if let Some(source) = marks.touching(place).await? {
                return Ok(Some(source));
            }
        }
        Ok(None)
    }

    /// Whether what is told of these places may be the owner's own, by what was written there.
    pub(crate) async fn are_private(&self, marks: &TaintMarks) -> Result<bool, DatabaseError> {
        for place in self.reads.iter().chain(&self.writes) {
            if marks.touching(&private(place)).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the words of an answer that is no success may be another machine's.
    pub(crate) fn may_be_answered(&self) -> bool {
        self.may_be_answered
    }

    /// The only machine that it runs on, if that is another one.
    pub(crate) fn machine(&self) -> Option<&str> {
        match self.machines.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// From now on what is there may be the owner's own, if the run has read such, or the call itself brings it there.
    pub(crate) async fn mark_private(
        &self,
        marks: &TaintMarks,
        flow: &Flow,
        now: i64,
    ) -> Result<(), DatabaseError> {
        if self.reads.is_empty() && !flow.labels().contains(&Label::Private) {
            return Ok(());
        }
        for place in self.writes.iter().filter(|place| is_told_unasked(place)) {
            marks.add(&private(place), "private data", now).await?;
        }
        Ok(())
    }

    /// From now on others may have written what is there. What `flow` has from a machine alone is nothing new to it.
    pub(crate) async fn mark(
        &self,
        marks: &TaintMarks,
        flow: &Flow,
        source: &str,
        now: i64,
    ) -> Result<(), DatabaseError> {
        let source: String = source.chars().take(SOURCE_CHARS).collect();
        for place in self.writes.iter().filter(|place| !flow.is_all_from(place)) {
            marks.add(place, &source, now).await?;
        }
        Ok(())
    }
}

/// An object of an agent's own.
fn object(call: &Call, path: &str) -> String {
    object_key(&format!("agents/{}/{}", call.agent, path.trim_matches('/')))
}

pub(crate) fn object_key(key: &str) -> String {
    format!("{OBJECT}{}", key.trim_end_matches('/'))
}

pub(crate) fn private(place: &str) -> String {
    format!("{PRIVATE}{place}")
}

fn is_told_unasked(place: &str) -> bool {
    place.starts_with(OBJECT) || place.starts_with(API)
}

fn machine(node: &str) -> String {
    format!("{MACHINE}{node}")
}

fn api(id: &str) -> String {
    format!("{API}/{id}")
}

/// A place as its owner writes it: an object, a machine, an API profile, or a path that may start at the workspace.
pub(crate) fn written(agent: &str, workspace: &Path, text: &str) -> String {
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
            path.to_string_lossy().into_owned()
        }
    }
}

/// Where a path on this machine leads, as the file engine resolves it, also for callers who may not read it. Asks the tool
/// of this machine that reads files.
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
    touches.into_iter().map(|touch| touch.path.to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use gantry_tool::testing::{echo_tool, gate};
    use gantry_tool::{Principal, Surface};

    use super::*;

    async fn places(tool: Tool) -> DataLocations {
        let (gate, _) = gate([tool.clone()]);
        let call =
            Call { agent: "main".into(), ..Call::new(Principal::Operator, Surface::Agent, "/work".into()) };
        DataLocations::of(&gate, Some(&tool), &call, "new", &json!({"text": "a/b"})).await
    }

    fn tool() -> Tool {
        echo_tool("new", Toolset::Gantry)
    }

    fn accessing(accessed: DataAccess) -> Tool {
        tool().data_locations(move |_: Value| vec![accessed.clone()])
    }

    #[tokio::test]
    async fn places_come_from_what_the_tool_declares() {
        assert_eq!(places(tool()).await, DataLocations::default());
        let read = places(tool().reads_object("text")).await;
        assert_eq!(read.reads, ["gsv:agents/main/a/b"]);
        let written = places(tool().writes_object("text")).await;
        assert_eq!((written.reads, written.writes), (Vec::new(), vec!["gsv:agents/main/a/b".to_owned()]));
        let profile = places(accessing(DataAccess::write(DataLocation::Api(Some("x".into()))))).await;
        assert_eq!(profile.writes, ["api:/x"]);
        let profiles = places(accessing(DataAccess::read(DataLocation::Api(None)))).await;
        assert_eq!(profiles.reads, ["api:"]);
        let far = || DataLocation::OnNode { node: "far".into(), path: "/x".into() };
        let from = places(accessing(DataAccess::read(far()))).await;
        assert_eq!((from.foreign.as_deref(), from.may_be_answered), (Some("the machine far"), false));
        let to = places(accessing(DataAccess::write(far()))).await;
        assert_eq!((to.writes, to.may_be_answered, to.foreign), (vec!["node:far".to_owned()], true, None));
    }
}
