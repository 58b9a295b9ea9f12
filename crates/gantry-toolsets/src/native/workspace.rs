//! Paths in an agent's workspace, and their keys in object storage.
//!
//! The agent comes from the call, never from the input, so no path leads into another agent's
//! workspace. Reads of `skills/…` fall back to the shared skills; writes always go to the agent's
//! own copy.

use gantry_store::{Depth, ObjectError, ObjectInfo, Objects, check_key};
use gantry_tool::{Call, ToolError};
use serde::Serialize;

use super::object_error;

const SKILLS: &str = "skills";

/// A path in the workspace of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspacePath {
    /// `agents/{agentId}`.
    root: String,
    /// The path without slashes at either end; empty for the root.
    path: String,
    /// Whether the caller wrote a final slash or the root.
    folder: bool,
}

/// The owner of a copy of a skill: the agent, or all agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SkillSource {
    Agent,
    Global,
}

/// Checks that the caller acts for an agent: only agents have stored files and memories.
pub(crate) fn check_agent(call: &Call) -> Result<(), ToolError> {
    if call.acts_for_no_agent {
        let message = "this token acts as no agent, and only agents have stored files and memories";
        return Err(ToolError::denied(message)
            .with_hint("create a token that does: `gantry tokens add NAME --agents main`"));
    }
    Ok(())
}

impl WorkspacePath {
    /// Parses a path as a caller wrote it: relative, `/` for the root, a final slash allowed.
    pub fn new(call: &Call, written: &str) -> Result<WorkspacePath, ToolError> {
        check_agent(call)?;
        let agent = &call.agent;
        if agent.contains('/') || check_key(agent).is_err() {
            return Err(ToolError::input(format!("invalid agent id {agent:?}: it cannot have a workspace")));
        }
        let root = format!("agents/{agent}");
        if written == "/" || written.is_empty() {
            return Ok(WorkspacePath { root, path: String::new(), folder: true });
        }
        let path = written.strip_suffix('/').unwrap_or(written);
        check_key(path).map_err(|err| {
            let hint = "use a path relative to the workspace root, such as memory/notes.md";
            ToolError::input(format!("the path {err}")).with_hint(hint)
        })?;
        check_key(&format!("{root}/{path}")).map_err(object_error)?;
        Ok(WorkspacePath { root, path: path.to_owned(), folder: path.len() < written.len() })
    }

    /// Like [`WorkspacePath::new`], but the path must name a file.
    pub fn file(call: &Call, written: &str) -> Result<WorkspacePath, ToolError> {
        let path = WorkspacePath::new(call, written)?;
        if path.folder {
            return Err(ToolError::input(format!("{written:?} is a directory, not a file")));
        }
        Ok(path)
    }

    /// Like [`WorkspacePath::file`], for a file that is created or replaced.
    pub fn written_file(call: &Call, written: &str) -> Result<WorkspacePath, ToolError> {
        let path = WorkspacePath::file(call, written)?;
        // A file with that name would hide every skill, and no skill could be changed.
        if path.path == SKILLS {
            let message = format!("\"{SKILLS}\" is the directory of skills and cannot be a file");
            return Err(
                ToolError::input(message).with_hint("write a file below it, such as skills/NAME/SKILL.md")
            );
        }
        Ok(path)
    }

    /// Returns the path without slashes at its ends; `/` for the root.
    pub fn shown(&self) -> &str {
        if self.path.is_empty() { "/" } else { &self.path }
    }

    /// Whether the path can only be a directory.
    pub fn is_folder(&self) -> bool {
        self.folder
    }

    /// Returns the agent's own key. Writes always use it.
    pub fn key(&self) -> String {
        if self.path.is_empty() { self.root.clone() } else { format!("{}/{}", self.root, self.path) }
    }

    /// Returns the key of a skill's shared copy.
    pub fn global_key(&self) -> Option<String> {
        self.is_skill().then(|| self.path.clone())
    }

    pub fn is_skill(&self) -> bool {
        self.path == SKILLS || self.path.strip_prefix(SKILLS).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Returns the keys to try for reading, the agent's own first.
    pub fn candidates(&self) -> Vec<(SkillSource, String)> {
        let own = (SkillSource::Agent, self.key());
        std::iter::once(own).chain(self.global_key().map(|key| (SkillSource::Global, key))).collect()
    }

    /// Returns the prefixes whose listings make up this directory. The root has `skills/` also if
    /// only shared skills exist.
    pub(super) fn prefixes(&self) -> Vec<String> {
        self.candidates().into_iter().map(|(_, key)| format!("{key}/")).collect()
    }

    /// Returns the prefixes of the files in this directory, each with the path that the workspace
    /// shows before their names.
    pub(super) fn trees(&self) -> Vec<(String, String)> {
        let mut trees: Vec<_> = self.prefixes().into_iter().map(|prefix| (prefix, String::new())).collect();
        if self.path.is_empty() {
            trees.push((format!("{SKILLS}/"), format!("{SKILLS}/")));
        }
        trees
    }

    /// Returns the path of an entry below this directory. `entry` must be valid.
    pub fn below(&self, entry: &str) -> WorkspacePath {
        let path = if self.path.is_empty() { entry.to_owned() } else { format!("{}/{entry}", self.path) };
        WorkspacePath { root: self.root.clone(), path, folder: false }
    }

    /// Rejects a file path that is a shared directory: the file would exist next to that directory.
    pub async fn check_not_shared_folder(&self, objects: &Objects) -> Result<(), ToolError> {
        let Some(key) = self.global_key() else { return Ok(()) };
        let below = objects.list(&format!("{key}/"), Depth::One).await.map_err(object_error)?;
        if below.is_empty() {
            return Ok(());
        }
        let message = format!("not a file but a directory: {}", self.shown());
        Err(ToolError::failed(message).with_hint("name a file in it, such as skills/NAME/SKILL.md"))
    }

    /// Returns the copy that a read gets, if there is one.
    pub async fn find(&self, objects: &Objects) -> Result<Option<(SkillSource, ObjectInfo)>, ToolError> {
        for (copy, key) in self.candidates() {
            if let Some(info) = objects.head(&key).await.map_err(object_error)? {
                return Ok(Some((copy, info)));
            }
        }
        Ok(None)
    }

    /// Like [`WorkspacePath::find`], without the owner of the copy.
    pub async fn found(&self, objects: &Objects) -> Result<Option<ObjectInfo>, ObjectError> {
        for (_, key) in self.candidates() {
            if let Some(info) = objects.head(&key).await? {
                return Ok(Some(info));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use gantry_tool::{Principal, Surface};

    use super::*;

    fn call(agent: &str) -> Call {
        Call::new(Principal::Agent { id: agent.into() }, Surface::Cli, "/".into())
    }

    #[test]
    fn paths_cannot_leave_the_callers_workspace() {
        let key =
            |path: &str| WorkspacePath::new(&call("a"), path).map(|path| (path.key(), path.is_folder())).ok();
        let some = |key: &str, folder| Some((key.to_owned(), folder));
        assert_eq!(key("/"), some("agents/a", true));
        assert_eq!(key("SOUL.md"), some("agents/a/SOUL.md", false));
        assert_eq!(key("memory/"), some("agents/a/memory", true));
        assert_eq!(key("skills/x/SKILL.md"), some("agents/a/skills/x/SKILL.md", false));
        for bad in ["..", "../b/x", "a/../../b", "/etc", "//", "a//b", "a//", "./a", "a\\b", "a\0b"] {
            assert_eq!(key(bad), None, "{bad:?}");
        }
        for agent in ["", "..", "a/b", "a\\b", "."] {
            assert!(WorkspacePath::new(&call(agent), "x").is_err(), "{agent:?}");
        }
        assert!(WorkspacePath::file(&call("a"), "memory/").is_err());
        assert!(WorkspacePath::file(&call("a"), "/").is_err());
        assert!(WorkspacePath::file(&call("a"), "skills").is_ok(), "an existing one can be deleted");
        let error = WorkspacePath::written_file(&call("a"), "skills").unwrap_err().to_string();
        assert!(error.contains("cannot be a file"), "{error}");
        assert!(WorkspacePath::written_file(&call("a"), "skills/x").is_ok());
    }

    #[test]
    fn only_skills_have_a_shared_copy() {
        let global = |path: &str| WorkspacePath::new(&call("a"), path).unwrap().global_key();
        assert_eq!(global("skills/x"), Some("skills/x".into()));
        assert_eq!(global("skills/"), Some("skills".into()));
        for own in ["skills2/x", "a/skills/x", "/", "SOUL.md"] {
            assert_eq!(global(own), None, "{own}");
        }
    }
}
