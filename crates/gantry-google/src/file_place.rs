//! [`FilePlace`] is where a file of a call is: in the workspace, or in the agent's storage.

use std::sync::Arc;

use gantry_tool::{Call, DataLocation, LOCAL_NODE, ToolError};

use crate::workspace::WorkspaceFiles;

/// The prefix of paths in storage, as in transfers.
const STORAGE: &str = "gsv:";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilePlace<'a> {
    Workspace(&'a str),
    Storage(&'a str),
}

impl<'a> FilePlace<'a> {
    pub(crate) fn parse(path: &'a str) -> FilePlace<'a> {
        match path.strip_prefix(STORAGE) {
            Some(path) => FilePlace::Storage(path),
            None => FilePlace::Workspace(path),
        }
    }

    /// The path, if policy has to judge it as a path of this machine.
    pub(crate) fn in_workspace(self) -> Option<&'a str> {
        match self {
            FilePlace::Workspace(path) => Some(path),
            FilePlace::Storage(_) => None,
        }
    }

    /// Where marks of untrusted and private content follow the data.
    pub(crate) fn location(self) -> DataLocation {
        match self {
            FilePlace::Workspace(path) => {
                DataLocation::OnNode { node: LOCAL_NODE.to_owned(), path: path.to_owned() }
            }
            FilePlace::Storage(path) => DataLocation::Object(path.to_owned()),
        }
    }

    /// The name of the file itself.
    pub(crate) fn file_name(self) -> &'a str {
        let (FilePlace::Workspace(path) | FilePlace::Storage(path)) = self;
        path.rsplit(['/', '\\']).next().unwrap_or(path)
    }
}

/// Reads a file of the workspace or of storage.
pub(crate) async fn read(
    files: &Arc<dyn WorkspaceFiles>,
    call: &Arc<Call>,
    path: &str,
    max: u64,
) -> Result<Vec<u8>, ToolError> {
    match FilePlace::parse(path) {
        FilePlace::Workspace(path) => {
            let (files, call, path) = (files.clone(), call.clone(), path.to_owned());
            blocking(move || files.read(&call, &path, max)).await
        }
        FilePlace::Storage(path) => files.read_stored(call, path, max).await,
    }
}

/// Writes a new file to the workspace or to storage.
pub(crate) async fn create(
    files: &Arc<dyn WorkspaceFiles>,
    call: &Arc<Call>,
    path: &str,
    content: Vec<u8>,
) -> Result<(), ToolError> {
    match FilePlace::parse(path) {
        FilePlace::Workspace(path) => {
            let (files, call, path) = (files.clone(), call.clone(), path.to_owned());
            blocking(move || files.create(&call, &path, &content)).await
        }
        FilePlace::Storage(path) => files.create_stored(call, path, content).await,
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    tokio::task::spawn_blocking(work).await.map_err(|err| ToolError::internal(err.to_string()))?
}
