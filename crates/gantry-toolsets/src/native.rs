//! The `native` toolset: an agent's workspace in object storage, and information about the gateway.
//! Success is `{"ok": true, "result": …}`, an error is `{"ok": false, "error": …}`.

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
use gantry_tool::{AskedCall, Call, Done, Live, ToolError, done};
use serde_json::Value;

use crate::{ToolEntry, asked};

pub use endpoint::Endpoint;
pub(crate) use node_services::gateway_tool_names;
pub use node_services::{NodeLogs, NodeServices, ToolFuture, Transferred, gateway_tools};
pub use stored_tree::StoredTree;
pub use transfer_policy::Ends;
pub(crate) use workspace::check_agent;
pub use workspace::{SkillSource, WorkspacePath};

type Ctx = gantry_tool::Ctx<Native>;

/// `Native` is the state of the native tools and the memory tools.
pub struct Native {
    objects: Objects,
    /// The configuration in effect, with secrets already masked.
    config: Live<Value>,
    pub(crate) memories: Memories,
}

impl Native {
    /// Creates the state. Agents can read `config`, so its secrets must be masked.
    pub fn new(objects: Objects, config: Value, memories: Memories) -> Native {
        Native { objects, config: Live::new(config), memories }
    }

    /// Replaces the configuration that agents can read. Its secrets must be masked.
    pub fn configure(&self, config: Value) {
        self.config.set(config);
    }

    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Reads a whole file of the calling agent's storage, for tools of domains.
    pub async fn read_stored_file(&self, call: &Call, path: &str, max: u64) -> Result<Vec<u8>, ToolError> {
        let path = WorkspacePath::file(call, path)?;
        for (_, key) in path.candidates() {
            let found = self.objects.get(&key, max).await.map_err(reading_error(&path))?;
            if let Some(object) = found {
                return Ok(object.bytes.to_vec());
            }
        }
        Err(ToolError::failed(format!("there is no file {} in storage", path.shown())))
    }

    /// Writes a new file to the calling agent's storage, for tools of domains. An existing file is an error.
    pub async fn create_stored_file(
        &self,
        call: &Call,
        path: &str,
        content: Vec<u8>,
    ) -> Result<(), ToolError> {
        let path = WorkspacePath::written_file(call, path)?;
        path.check_not_shared_folder(&self.objects).await?;
        let key = path.key();
        if self.objects.head(&key).await.map_err(object_error)?.is_some() {
            let text = format!("{} exists in storage", path.shown());
            return Err(ToolError::failed(text).with_hint("choose another name"));
        }
        let put = self.objects.put(&key, content, gantry_store::content_type(path.shown()));
        put.await.map_err(object_error)
    }
}

/// The present text of a file in the agent's storage, for questions: the outer `None` if it cannot be shown, the inner one
/// if there is no such file.
async fn stored_text(native: &Native, asked: &AskedCall, path: &str) -> Option<Option<String>> {
    if !asked.call.principal.is_own_agent() {
        return None;
    }
    let path = WorkspacePath::written_file(&asked.call, path).ok()?;
    let present = native.objects.get(&path.key(), MAX_FILE_BYTES).await.ok()?;
    match present {
        Some(present) => Some(Some(asked::joined(&[&present.bytes[..]])?)),
        None => Some(None),
    }
}

/// Converts an error of the object store.
fn object_error(err: ObjectError) -> ToolError {
    match err {
        ObjectError::BadKey(why) => ToolError::input(why),
        ObjectError::Changed { .. } => ToolError::failed(err.to_string()).with_hint("retry"),
        other => ToolError::failed(other.to_string()),
    }
}

/// The largest file that the workspace tools read and write. Both limits are equal, so every
/// written file is readable.
const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;

/// Like [`object_error`], for a file that is read whole; the error for a file that is too large has
/// the caller's path.
fn reading_error(path: &WorkspacePath) -> impl Fn(ObjectError) -> ToolError {
    let shown = path.shown().to_owned();
    move |err| match err {
        ObjectError::TooLarge { size, limit, .. } => {
            let hint = format!(
                "`gantry transfer gsv:{shown} NODE:PATH` (gsv__Transfer) copies a file of any size to a machine"
            );
            ToolError::failed(format!("{shown} has {size} bytes, at most {limit} can be read at once"))
                .with_hint(hint)
        }
        other => object_error(other),
    }
}

pub(crate) const TOOLS: &[ToolEntry<Native>] = &[
    (read_file::NAME, read_file::tool),
    (write_file::NAME, write_file::tool),
    (edit_file::NAME, edit_file::tool),
    (delete_file::NAME, delete_file::tool),
    (config_get::NAME, config_get::tool),
];
