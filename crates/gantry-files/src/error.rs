//! `FileError` lists what can go wrong with a file.
//!
//! Pure functions on text (edits, line writes) define their own errors.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("path is empty")]
    EmptyPath,
    #[error("path contains a NUL character: {}", .path.display())]
    NulInPath { path: PathBuf },
    #[error("path is too long: {length} bytes, at most {limit}")]
    PathTooLong { length: usize, limit: usize },
    #[error("path is outside the workspace: {}", .path.display())]
    Outside { path: PathBuf },
    #[error("path belongs to Gantry itself and is closed to tools: {}", .path.display())]
    Closed { path: PathBuf },
    /// The caller's test refused the real path.
    #[error("path may hold keys or credentials, which this call may not touch: {}", .path.display())]
    Sensitive { path: PathBuf },
    #[error("no such file or directory: {}", .path.display())]
    NotFound { path: PathBuf },
    #[error("permission denied: {}", .path.display())]
    PermissionDenied { path: PathBuf },
    #[error("not a directory: {}", .path.display())]
    NotADirectory { path: PathBuf },
    /// A directory, FIFO, socket or device was found where a regular file is needed.
    #[error("not a regular file but {what}: {}", .path.display())]
    NotAFile { path: PathBuf, what: &'static str },
    #[error("already exists: {}", .path.display())]
    Exists { path: PathBuf },
    #[error("too many symbolic links on the way to {}", .path.display())]
    TooManyLinks { path: PathBuf },
    #[error("file is too large: {} has {size} bytes, at most {limit}", .path.display())]
    TooLarge { path: PathBuf, size: u64, limit: u64 },
    /// The caller's tag differs from the file's: the file changed since it was read.
    #[error("file changed since it was read (its tag is now {current}): {}", .path.display())]
    Stale { path: PathBuf, current: String },
    /// Another program replaced or wrote the file between the read and the write.
    #[error("another program changed the file in the meantime: {}", .path.display())]
    ChangedMeanwhile { path: PathBuf },
    #[error("cannot keep the owner of {}: it belongs to user {uid}, group {gid}", .path.display())]
    OwnerNotKept { path: PathBuf, uid: u32, gid: u32 },
    #[error("binary file ({mime}): {}", .path.display())]
    Binary { path: PathBuf, mime: &'static str },
    #[error("cancelled")]
    Cancelled,
    #[error("cannot {action} {}: {source}", .path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

impl FileError {
    /// Maps an OS error to a variant, by what the caller can do about it.
    pub(crate) fn io(action: &'static str, path: &Path, err: impl Into<io::Error>) -> FileError {
        let source = err.into();
        let path = path.to_path_buf();
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT) => FileError::NotFound { path },
            Some(Errno::ACCESS | Errno::PERM) => FileError::PermissionDenied { path },
            Some(Errno::NOTDIR) => FileError::NotADirectory { path },
            Some(Errno::ISDIR) => FileError::NotAFile { path, what: "a directory" },
            Some(Errno::EXIST) => FileError::Exists { path },
            Some(Errno::LOOP) => FileError::TooManyLinks { path },
            _ => FileError::Io { action, path, source },
        }
    }

    /// Returns the same error for another path.
    pub(crate) fn about(mut self, asked: &Path) -> FileError {
        match &mut self {
            FileError::NulInPath { path }
            | FileError::Outside { path }
            | FileError::Closed { path }
            | FileError::Sensitive { path }
            | FileError::NotFound { path }
            | FileError::PermissionDenied { path }
            | FileError::NotADirectory { path }
            | FileError::NotAFile { path, .. }
            | FileError::Exists { path }
            | FileError::TooManyLinks { path }
            | FileError::Io { path, .. } => asked.clone_into(path),
            _ => {}
        }
        self
    }

    /// Suggests what to do next, where there is something to do.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            FileError::Outside { .. } => Some("use a path inside the workspace root"),
            FileError::Stale { .. } | FileError::ChangedMeanwhile { .. } => {
                Some("read the file again, then repeat the change on what it holds now")
            }
            FileError::Exists { .. } => Some("choose another name, or remove the existing file first"),
            FileError::NotAFile { what: "a directory", .. } => Some("list the directory instead"),
            FileError::OwnerNotKept { .. } => Some("change the file as its owner"),
            _ => None,
        }
    }
}
