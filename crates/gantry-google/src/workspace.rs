//! [`WorkspaceFiles`] gives the tools access to files of the caller's workspace. The binary implements it with the engine
//! that all file tools use, so closed and sensitive paths stay closed.

use std::path::PathBuf;
use std::pin::Pin;

use gantry_tool::{Call, ToolError};

pub type FileFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ToolError>> + Send + 'a>>;

/// Reads and writes files of a caller's workspace. `read` and `create` block; call them off the async threads.
pub trait WorkspaceFiles: Send + Sync + 'static {
    /// Resolves a path for [`gantry_tool::Tool::touches`].
    fn touched(&self, call: &Call, path: &str) -> PathBuf;

    /// Reads a whole file of at most `max` bytes.
    fn read(&self, call: &Call, path: &str, max: u64) -> Result<Vec<u8>, ToolError>;

    /// Writes a new file. An existing file is an error.
    fn create(&self, call: &Call, path: &str, content: &[u8]) -> Result<(), ToolError>;

    /// Reads a whole file of the calling agent's storage.
    fn read_stored<'a>(&'a self, call: &'a Call, path: &'a str, max: u64) -> FileFuture<'a, Vec<u8>>;

    /// Writes a new file to the calling agent's storage. An existing file is an error.
    fn create_stored<'a>(&'a self, call: &'a Call, path: &'a str, content: Vec<u8>) -> FileFuture<'a, ()>;
}
