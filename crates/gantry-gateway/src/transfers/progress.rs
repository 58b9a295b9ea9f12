//! What is known of a transfer over all its rounds, and over starts of the gateway.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_protocol::{WireEntry, WireEntryKind};
use serde::{Deserialize, Serialize};

/// What was left out is told up to here, and then counted.
const MAX_SKIPPED: usize = 200;
const MAX_SHOWN_CHARS: usize = 500;

#[derive(Debug, Default)]
pub(crate) struct TransferProgress {
    /// Not the first round: parts may have come before.
    pub(crate) resumed: bool,
    /// Both ends were there, if only once.
    pub(crate) begun: bool,
    /// What has come is not to be gone on with.
    pub(crate) from_zero: bool,
    /// Written down now and then while the rounds go on.
    arrived: Arc<Mutex<Arrived>>,
}

/// What is there.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Arrived {
    pub(crate) mime: Option<String>,
    /// Set when a directory is sent.
    pub(crate) files: Option<u64>,
    skipped: Vec<String>,
    skipped_more: u64,
    /// Bytes of files that are whole.
    pub(crate) bytes: u64,
    /// Everything up to this entry, in the order of manifests, is there.
    done_to: Option<String>,
    /// Entries on their way, of which parts may have come.
    pub(crate) partial: Vec<String>,
    /// On the way into the workspace: the directory that was met last, while nothing in it was. The root is the empty one.
    empty: Option<String>,
}

pub(crate) enum Brought {
    File(u64),
    Made,
    Skipped(String),
    /// In an earlier round.
    Before,
}

impl TransferProgress {
    /// Of a transfer that goes on from an earlier start. One that cannot be read costs nothing but what is sent again.
    pub(crate) fn resumed(kept: Option<&str>) -> TransferProgress {
        let arrived: Arrived = kept.and_then(|kept| serde_json::from_str(kept).ok()).unwrap_or_default();
        TransferProgress {
            resumed: true,
            begun: true,
            from_zero: false,
            arrived: Arc::new(Mutex::new(arrived)),
        }
    }

    /// Held for moments only, never while anything is waited for.
    pub(crate) fn arrived(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another handle on what has arrived.
    pub(crate) fn share(&self) -> Kept {
        Kept(self.arrived.clone())
    }
}

/// What has arrived, for whoever writes it down.
pub(crate) struct Kept(Arc<Mutex<Arrived>>);

impl Kept {
    /// As text, if it is a directory that is sent: of a file, the part tells.
    pub(crate) fn text(&self) -> Option<String> {
        let arrived = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.files.and_then(|_| serde_json::to_string(&*arrived).ok())
    }
}

impl Arrived {
    /// A directory is sent, perhaps again; returns the bytes that are there already.
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

    /// Directories are made again, which costs little: their modes may have to be set at the end.
    pub(crate) fn has(&self, entry: &WireEntry) -> bool {
        let in_order = |done: &String| entry.path.split('/').le(done.split('/'));
        !matches!(entry.kind, WireEntryKind::Directory { .. }) && self.done_to.as_ref().is_some_and(in_order)
    }

    pub(crate) fn note(&mut self, entry: WireEntry, brought: Brought, to_workspace: bool) {
        self.partial.retain(|path| *path != entry.path);
        let further = |done: &String| done.split('/').lt(entry.path.split('/'));
        // Of an earlier round; directories are only made again.
        if matches!(brought, Brought::Before) || !self.done_to.as_ref().is_none_or(further) {
            return;
        }
        self.leave_empty(&entry.path);
        match brought {
            Brought::File(bytes) => {
                self.bytes += bytes;
                *self.files.get_or_insert(0) += 1;
            }
            Brought::Skipped(reason) => self.skip(&entry.path, &reason),
            Brought::Made if to_workspace => self.empty = Some(entry.path.clone()),
            Brought::Made | Brought::Before => {}
        }
        self.done_to = Some(entry.path);
    }

    /// The next entry tells whether the directory before it held anything.
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

    /// What was left out, the last line counting the rest.
    /// The lines about what was left out, and how many entries that were.
    pub(crate) fn take_skipped(&mut self) -> (Vec<String>, u64) {
        let mut skipped = std::mem::take(&mut self.skipped);
        let count = skipped.len() as u64 + self.skipped_more;
        if self.skipped_more > 0 {
            skipped.push(format!("and {} more", self.skipped_more));
        }
        (skipped, count)
    }
}

/// Names and reasons come from a source, which may say anything.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((at, _)) => format!("{}… ({} bytes)", &text[..at], text.len()),
        None => text.to_owned(),
    }
}
