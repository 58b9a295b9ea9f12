//! [`TransferProgress`] is what one attempt of a transfer leaves to the next. [`Arrived`] is the part of it that is
//! saved for a restarted gateway.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_protocol::{WireEntry, WireEntryKind};
use serde::{Deserialize, Serialize};

/// The first skipped entries are listed, further ones only counted.
const MAX_SKIPPED: usize = 200;
const MAX_SHOWN_CHARS: usize = 500;

#[derive(Debug, Default)]
pub(crate) struct TransferProgress {
    /// Whether there was an earlier attempt, which may have left parts.
    pub(crate) resumed: bool,
    /// Whether both endpoints were ready at least once.
    pub(crate) begun: bool,
    /// Whether the arrived bytes of a file must not be continued.
    pub(crate) from_zero: bool,
    /// Shared with the driver, which saves it during an attempt.
    arrived: Arc<Mutex<Arrived>>,
}

/// What has arrived at the destination. The field names are those of saved records.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Arrived {
    pub(crate) mime: Option<String>,
    /// Set if a directory is sent.
    pub(crate) files: Option<u64>,
    skipped: Vec<String>,
    skipped_more: u64,
    /// The bytes of complete files.
    pub(crate) bytes: u64,
    /// Everything up to this entry has arrived, in manifest order.
    done_to: Option<String>,
    /// Entries that are being copied and may have parts.
    pub(crate) partial: Vec<String>,
    /// The last directory, while none of its entries was seen. The root is `""`. Only set for the workspace.
    empty: Option<String>,
}

/// What became of one entry.
pub(crate) enum EntryOutcome {
    File(u64),
    Made,
    Skipped(String),
    ArrivedBefore,
}

impl TransferProgress {
    /// Restores saved progress. If it cannot be read, the entries are sent again.
    pub(crate) fn resumed(saved: Option<&str>) -> TransferProgress {
        let arrived: Arrived = saved.and_then(|saved| serde_json::from_str(saved).ok()).unwrap_or_default();
        TransferProgress {
            resumed: true,
            begun: true,
            from_zero: false,
            arrived: Arc::new(Mutex::new(arrived)),
        }
    }

    /// The guard must not be held across an await.
    pub(crate) fn arrived(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a second handle for the driver.
    pub(crate) fn share(&self) -> SharedArrived {
        SharedArrived(self.arrived.clone())
    }
}

/// The arrived entries of a running attempt.
pub(crate) struct SharedArrived(Arc<Mutex<Arrived>>);

impl SharedArrived {
    /// Returns the text to save for a directory. A single file needs none, because its part file has the length.
    pub(crate) fn text(&self) -> Option<String> {
        let arrived = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.files.and_then(|_| serde_json::to_string(&*arrived).ok())
    }
}

impl Arrived {
    /// Begins or continues a directory. Returns the bytes that have arrived before.
    pub(crate) fn begin_tree(&mut self, to_workspace: bool) -> u64 {
        if self.files.is_none() {
            self.files = Some(0);
            self.empty = to_workspace.then(String::new);
        }
        self.bytes
    }

    pub(crate) fn end_tree(&mut self) {
        self.leave_empty("");
    }

    pub(crate) fn begin(&mut self, path: &str) {
        if !self.partial.iter().any(|known| known == path) {
            self.partial.push(path.to_owned());
        }
    }

    /// Whether an entry has arrived. Directories are created again, because their modes may be set at the end.
    pub(crate) fn has(&self, entry: &WireEntry) -> bool {
        let in_order = |done: &String| entry.path.split('/').le(done.split('/'));
        !matches!(entry.kind, WireEntryKind::Directory { .. }) && self.done_to.as_ref().is_some_and(in_order)
    }

    pub(crate) fn note(&mut self, entry: WireEntry, outcome: EntryOutcome, to_workspace: bool) {
        self.partial.retain(|path| *path != entry.path);
        let further = |done: &String| done.split('/').lt(entry.path.split('/'));
        // An earlier attempt has counted this entry.
        if matches!(outcome, EntryOutcome::ArrivedBefore) || !self.done_to.as_ref().is_none_or(further) {
            return;
        }
        self.leave_empty(&entry.path);
        match outcome {
            EntryOutcome::File(bytes) => {
                self.bytes += bytes;
                *self.files.get_or_insert(0) += 1;
            }
            EntryOutcome::Skipped(reason) => self.skip(&entry.path, &reason),
            EntryOutcome::Made if to_workspace => self.empty = Some(entry.path.clone()),
            EntryOutcome::Made | EntryOutcome::ArrivedBefore => {}
        }
        self.done_to = Some(entry.path);
    }

    /// Skips the last directory if the next entry is not in it: the workspace cannot keep it.
    fn leave_empty(&mut self, next: &str) {
        let Some(directory) = self.empty.take() else { return };
        let holds = match directory.as_str() {
            "" => !next.is_empty(),
            directory => next.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/')),
        };
        if !holds {
            let shown = if directory.is_empty() { "." } else { &directory };
            self.skip(shown, "it is an empty directory, and the workspace keeps files only");
        }
    }

    fn skip(&mut self, path: &str, reason: &str) {
        if self.skipped.len() < MAX_SKIPPED {
            self.skipped.push(format!("{}: {}", shortened(path), shortened(reason)));
        } else {
            self.skipped_more += 1;
        }
    }

    /// Returns one line per skipped entry, and the number of all skipped entries.
    pub(crate) fn take_skipped(&mut self) -> (Vec<String>, u64) {
        let mut skipped = std::mem::take(&mut self.skipped);
        let count = skipped.len() as u64 + self.skipped_more;
        if self.skipped_more > 0 {
            skipped.push(format!("and {} more", self.skipped_more));
        }
        (skipped, count)
    }
}

/// Bounds names and reasons, because the source chooses them.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((at, _)) => format!("{}… ({} bytes)", &text[..at], text.len()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The names are those of records that earlier versions saved, so they must not change.
    #[test]
    fn saved_progress_of_an_earlier_version_is_restored() {
        let saved = json!({
            "mime": null, "files": 2, "skipped": ["x: unreadable"], "skippedMore": 1, "bytes": 7,
            "doneTo": "a/b", "partial": ["c"], "empty": "d",
        });
        let progress = TransferProgress::resumed(Some(&saved.to_string()));
        let file =
            |path: &str| WireEntry { path: path.into(), kind: WireEntryKind::File { size: 1, mode: 0o644 } };
        assert!(progress.arrived().has(&file("a/b")) && progress.arrived().has(&file("a")));
        assert!(!progress.arrived().has(&file("a/c")));
        let text = progress.share().text().unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), saved);
        assert_eq!(progress.arrived().take_skipped().1, 2);
    }

    #[test]
    fn unreadable_progress_starts_from_nothing() {
        let progress = TransferProgress::resumed(Some("{"));
        assert!(progress.resumed && progress.begun && progress.share().text().is_none());
    }
}
