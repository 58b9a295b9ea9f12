//! Closes a full file of the audit log and continues in a new one.
//!
//! The log's lock is held throughout. The order makes every crash harmless: first the lines are synced, then the head
//! names the last of them, then the file is renamed. A log without `audit.log` continues after the newest full file
//! or the head.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use crate::audit_files::{last_line_of, rotated_files, rotated_path, sync_folder};
use crate::audit_key::{Link, NO_MAC, SealBroken};
use crate::audit_log::{Shared, Tail, unsynced};

/// Identifies a file, even after another file took its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(crate) fn of(metadata: &Metadata) -> FileId {
        FileId { device: metadata.dev(), inode: metadata.ino() }
    }

    /// Opens or creates the current file. A new name is synced before the first line.
    pub(crate) fn open(path: &Path) -> io::Result<(File, FileId)> {
        let mut options = File::options();
        let file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
        let metadata = file.metadata()?;
        if metadata.len() == 0 {
            sync_folder(path)?;
        }
        Ok((file, FileId::of(&metadata)))
    }
}

impl Shared {
    /// Returns the length of the current file. If another process closed the file that is open here, this switches to
    /// the new one.
    pub(crate) fn follow_rotation(&self, tail: &mut Tail) -> io::Result<u64> {
        match std::fs::metadata(&self.path) {
            Ok(metadata) if FileId::of(&metadata) == tail.file => return Ok(metadata.len()),
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            Ok(_) | Err(_) => {}
        }
        let (log, file) = FileId::open(&self.path)?;
        let length = log.metadata()?.len();
        (tail.log, tail.file, tail.length) = (Arc::new(log), file, 0);
        Ok(length)
    }

    /// Returns the link before the first line of an empty file, according to the other files.
    pub(crate) fn before_the_file(&self) -> io::Result<Link> {
        let Some(newest) = rotated_files(&self.path)?.pop() else {
            return Ok(self.key.read_start(&self.path).unwrap_or_else(|SealBroken| Link::none()));
        };
        // Verification reports a damaged end; numbering continues.
        let known = last_line_of(&newest.path).ok().flatten().map(|(last, _)| last);
        Ok(known.unwrap_or_else(|| Link { seq: newest.last, mac: NO_MAC.to_owned() }))
    }

    /// Closes a full file. If that fails, the file grows on, and the next attempt comes at 1.5 times the size.
    pub(crate) fn rotate_if_full(&self, tail: &mut Tail) -> io::Result<()> {
        if tail.length < tail.rotate_from || tail.length == 0 {
            return Ok(());
        }
        self.write_out(tail)?;
        match self.rotate(tail) {
            Ok(()) => tail.rotate_from = self.limits.max_file_bytes,
            Err(err) if tail.broken.is_some() => return Err(err),
            Err(_) => tail.rotate_from = tail.length.saturating_add(self.limits.max_file_bytes / 2),
        }
        Ok(())
    }

    fn rotate(&self, tail: &mut Tail) -> io::Result<()> {
        if let Err(err) = tail.log.sync_data() {
            tail.broken = Some(unsynced(&err));
            return Err(err);
        }
        tail.synced = tail.seq;
        self.key.advance_head(&self.head, tail.seq, &tail.mac)?;
        let closed = rotated_path(&self.path, tail.seq);
        std::fs::rename(&self.path, &closed)?;
        let (log, file) = match FileId::open(&self.path) {
            Ok(opened) => opened,
            Err(err) => {
                if let Err(stuck) = std::fs::rename(&closed, &self.path) {
                    tail.broken = Some(format!("no new file could be begun: {err}; {stuck}"));
                }
                return Err(err);
            }
        };
        (tail.log, tail.file, tail.length, tail.rotated) = (Arc::new(log), file, 0, true);
        Ok(())
    }
}
