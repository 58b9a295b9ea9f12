//! A file to be sent. It is opened once, read by offset, and checked for changes at the end.

use std::io;
use std::path::Path;

use crate::error::FileError;
use crate::scope::{FileMeta, OpenFile, Scope, fill_from};

/// `Source` is a regular file, open to be sent in blocks.
#[derive(Debug)]
pub struct Source {
    open: OpenFile,
}

impl Scope {
    /// Opens a regular file to be sent, if it reports its size. Links are followed as far as the
    /// scope allows.
    pub fn open_source(&self, path: impl AsRef<Path>) -> Result<Source, FileError> {
        let open = self.open(path)?;
        open.check_reports_size()?;
        Ok(Source { open })
    }
}

impl Source {
    /// Size, time, permission bits and identity at the time of opening.
    pub fn meta(&self) -> FileMeta {
        self.open.meta
    }

    /// The real absolute path, links followed.
    pub fn path(&self) -> &Path {
        &self.open.path
    }

    /// Fills `block` from an offset. Fewer bytes than it holds mean that the file ends there.
    pub fn read_at(&self, offset: u64, block: &mut [u8]) -> Result<usize, FileError> {
        fill_from(&self.open.file, block, offset).map_err(|err| self.failed(err))
    }

    /// Fails if the file was written since it was opened, because the sent bytes are then neither
    /// the old nor the new content.
    pub fn check_unchanged(&self) -> Result<(), FileError> {
        let stat = rustix::fs::fstat(&self.open.file).map_err(|err| self.failed(err.into()))?;
        let (then, now) = (self.open.meta, FileMeta::of(&stat));
        if (then.size, then.modified_ns) == (now.size, now.modified_ns) {
            Ok(())
        } else {
            Err(FileError::ChangedMeanwhile { path: self.open.path.clone() })
        }
    }

    fn failed(&self, err: io::Error) -> FileError {
        FileError::io("read", &self.open.path, err)
    }
}
