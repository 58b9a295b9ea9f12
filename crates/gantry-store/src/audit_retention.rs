//! Removes old files of the audit log.
//!
//! The sealed start records which line was removed last, so that verification knows where the log begins.
//! It is written before a file is removed. A file that does not verify is never removed.

use std::io;

use jiff::Timestamp;

use crate::audit_files::{RotatedFile, last_line_of, rotated_files, sync_folder};
use crate::audit_key::{Link, SealBroken};
use crate::audit_log::Shared;
use crate::audit_read::ends_intact;

impl Shared {
    /// Removes full files whose last line is too old, oldest first, and records that.
    pub(crate) fn remove_old_files(&self, now: Timestamp) -> io::Result<()> {
        let Some(keep) = self.limits.keep else { return Ok(()) };
        let Ok(cutoff) = now.checked_sub(keep) else { return Ok(()) };
        // Verification reports a forged start.
        let Ok(start) = self.key.read_start(&self.path) else { return Ok(()) };
        let (mut last, mut old) = (start.clone(), Vec::new());
        for file in rotated_files(&self.path)? {
            if file.last <= start.seq {
                // A crash happened between writing the new start and the removal.
                old.push(file);
                continue;
            }
            match self.is_old(&file, cutoff, &last)? {
                Some(end) => last = end,
                None => break,
            }
            old.push(file);
        }
        if old.is_empty() {
            return Ok(());
        }
        self.locked(|tail| {
            match self.key.read_start(&self.path) {
                Ok(found) if found == start => {}
                // Another process removed it.
                Ok(_) | Err(SealBroken) => return Ok(()),
            }
            if last != start {
                self.key.write_start(&self.path, &last)?;
            }
            for file in &old {
                match std::fs::remove_file(&file.path) {
                    Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
                    _ => {}
                }
            }
            sync_folder(&self.path)?;
            let note =
                serde_json::json!({"phase": "retention", "removedFiles": old.len(), "removedTo": last.seq});
            self.write_line(tail, &note.to_string())
        })
    }

    /// Returns the last line of the file if the file may be removed.
    fn is_old(&self, file: &RotatedFile, cutoff: Timestamp, before: &Link) -> io::Result<Option<Link>> {
        match last_line_of(&file.path) {
            Ok(Some((_, Some(at)))) if at < cutoff => ends_intact(&self.key, file, before),
            // A damaged file stays, so that verification reports it.
            Ok(_) | Err(_) => Ok(None),
        }
    }
}
