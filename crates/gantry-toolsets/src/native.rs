//! The `native` toolset: an agent's workspace in object storage, and a look at the gateway. Success is
//! `{"ok": true, "result": …}`, an error `{"ok": false, "error": …}`.

mod config_get;
mod delete_file;
mod edit_file;
mod endpoint;
mod logs_get;
mod node_services;
mod read_file;
mod stored_tree;
mod transfer;
mod transfer_policy;
mod workspace;
mod write_file;

use gantry_store::{Memories, ObjectError, Objects};
use gantry_tool::{Done, ToolError, done};
use serde_json::Value;

use crate::Listed;

pub use endpoint::Endpoint;
pub(crate) use node_services::gateway_tool_names;
pub use node_services::{NodeLogs, NodeServices, ToolFuture, Transferred, gateway_tools};
pub use stored_tree::StoredTree;
pub use transfer_policy::Ends;
pub(crate) use workspace::check_agent;
pub use workspace::{SkillSource, WorkspacePath};

type Ctx = gantry_tool::Ctx<Native>;

/// What the native tools, and those that remember, are made with.
pub struct Native {
    objects: Objects,
    /// The configuration in force, secrets masked before it came here.
    config: Value,
    pub(crate) memories: Memories,
}

impl Native {
    /// `config` is shown to agents: secrets must be masked in it.
    pub fn new(objects: Objects, config: Value, memories: Memories) -> Native {
        Native { objects, config, memories }
    }

    pub fn objects(&self) -> &Objects {
        &self.objects
    }
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
];
