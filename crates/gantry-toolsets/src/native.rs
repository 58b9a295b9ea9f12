//! The `native` toolset: an agent's workspace in object storage, and a look at the gateway. Success is
//! `{"ok": true, "result": …}`, an error `{"ok": false, "error": …}`.

mod agent_desk;
mod config_get;
mod delete_file;
mod edit_file;
mod endpoint;
mod ends;
mod hub;
mod logs_get;
mod read_file;
mod session_desk;
mod session_send;
mod sessions_list;
mod stored_tree;
mod transfer;
mod workspace;
mod write_file;

use std::sync::{Arc, OnceLock};

use gantry_store::{Memories, ObjectError, Objects};
use gantry_tool::ToolError;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::Listed;

pub use agent_desk::{AgentDesk, SpawnEnd};
pub use endpoint::Endpoint;
pub use ends::Ends;
pub use hub::{Hub, HubFuture, NodeLogs, Transferred};
pub use session_desk::{ListedMessage, ListedSession, SessionDesk, SessionSent, SessionsListed};
pub use stored_tree::StoredTree;
pub(crate) use workspace::check_agent;
pub use workspace::{SkillSource, WorkspacePath};

type Ctx = gantry_tool::Ctx<Native>;

/// What the native tools, and those that remember, are made with.
pub struct Native {
    objects: Objects,
    /// The configuration in force, secrets masked before it came here.
    config: Value,
    pub(crate) memories: Memories,
    hub: OnceLock<Arc<dyn Hub>>,
    session_desk: OnceLock<Arc<dyn SessionDesk>>,
    agent_desk: OnceLock<Arc<dyn AgentDesk>>,
}

impl Native {
    /// `config` is shown to agents: secrets must be masked in it.
    pub fn new(objects: Objects, config: Value, memories: Memories) -> Native {
        Native {
            objects,
            config,
            memories,
            hub: OnceLock::new(),
            session_desk: OnceLock::new(),
            agent_desk: OnceLock::new(),
        }
    }

    /// Connects the tools with a gateway, once; without one they tell that they need it.
    pub fn connect(&self, hub: Arc<dyn Hub>) {
        // A second gateway in one process would be a mistake in its wiring; the first stays.
        let _ = self.hub.set(hub);
    }

    /// Connects the tools with the agents of a gateway, once.
    pub fn connect_sessions<D: SessionDesk + AgentDesk + 'static>(&self, desk: Arc<D>) {
        let _ = self.session_desk.set(desk.clone());
        let _ = self.agent_desk.set(desk);
    }

    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    fn hub(&self) -> Result<&Arc<dyn Hub>, ToolError> {
        self.hub.get().ok_or_else(no_gateway)
    }

    fn session_desk(&self) -> Result<&Arc<dyn SessionDesk>, ToolError> {
        self.session_desk.get().ok_or_else(no_gateway)
    }

    pub(crate) fn agent_desk(&self) -> Result<&Arc<dyn AgentDesk>, ToolError> {
        self.agent_desk.get().ok_or_else(no_gateway)
    }
}

fn no_gateway() -> ToolError {
    ToolError::failed("this needs a running gateway").with_hint("start one with `gantry up`")
}

/// The shape of every success.
#[derive(Debug, Serialize, JsonSchema)]
struct Done<T> {
    /// Always true; an error has `ok: false` and `error`.
    ok: bool,
    /// What the tool found or did.
    result: T,
}

fn done<T>(result: T) -> Done<T> {
    Done { ok: true, result }
}

/// A failure of the object store in a tool's words.
fn object_error(err: ObjectError) -> ToolError {
    match err {
        ObjectError::BadKey(why) => ToolError::input(why),
        ObjectError::Changed { .. } => ToolError::failed(err.to_string()).with_hint("try again"),
        other => ToolError::failed(other.to_string()),
    }
}

/// The largest file that the tools of the workspace read and write: what one has written the other can read.
const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;

/// As [`object_error`], for a file that is read whole: one that is too large is named as the caller knows it.
fn reading_error(path: &WorkspacePath) -> impl Fn(ObjectError) -> ToolError {
    let shown = path.shown().to_owned();
    move |err| match err {
        ObjectError::TooLarge { size, limit, .. } => {
            let hint = format!(
                "`gantry transfer gsv:{shown} NODE:PATH` (gsv__Transfer) takes it to a machine, of any size"
            );
            ToolError::failed(format!("{shown} has {size} bytes, at most {limit} can be read at once"))
                .with_hint(hint)
        }
        other => object_error(other),
    }
}

pub(crate) const TOOLS: &[Listed<Native>] = &[
    (read_file::NAME, read_file::tool),
    (write_file::NAME, write_file::tool),
    (edit_file::NAME, edit_file::tool),
    (delete_file::NAME, delete_file::tool),
    (config_get::NAME, config_get::tool),
    (logs_get::NAME, logs_get::tool),
    (transfer::NAME, transfer::tool),
    (sessions_list::NAME, sessions_list::tool),
    (session_send::NAME, session_send::tool),
];
