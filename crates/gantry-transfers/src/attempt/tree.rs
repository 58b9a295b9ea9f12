//! Copies a directory entry by entry, several at a time, in the order of its manifest.

use std::collections::VecDeque;

use futures_util::stream::{FuturesOrdered, StreamExt};
use gantry_protocol::{
    ErrorCode, ManifestPage, TransferMake, TransferManifest, WireEntry, WireEntryKind, method,
};
use gantry_transfer::{TransferError, check_entry};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::file::StartAt;
use super::{Attempt, check_mode};
use crate::failure::Failure;
use crate::progress::{EntryOutcome, TransferProgress};

/// How many entries are copied at once, so that small files do not wait for each other's answers.
const WINDOW: usize = 16;

/// A file above this size takes half of the window, because each stream may hold its full credit in memory.
const LARGE: u64 = 1024 * 1024;
const LARGE_WEIGHT: u32 = WINDOW as u32 / 2;

impl Attempt<'_> {
    /// Whether policy can decide differently about an entry than about its directory.
    pub(super) fn rules_differ_by_entry(&self) -> bool {
        self.spec.ends().are_told_apart(self.policy)
    }

    /// Reads the whole manifest once before anything is written, and fails if a rule denies one of the entries.
    pub(super) async fn check_tree(&self) -> Result<(), Failure> {
        loop {
            let page = self.next_page().await?;
            page.entries.iter().try_for_each(|entry| self.check_policy(entry))?;
            if page.last {
                return Ok(());
            }
        }
    }

    pub(super) async fn copy_tree(&self, progress: &mut TransferProgress) -> Result<(), Failure> {
        let to_workspace = self.spec.to_workspace();
        self.meter.set_done(progress.arrived().begin_tree(to_workspace));
        let room = Semaphore::new(WINDOW);
        let resumed = progress.resumed;
        let checks_entries = self.rules_differ_by_entry();
        let mut page = VecDeque::new();
        let mut last = false;
        let mut copying = FuturesOrdered::new();
        loop {
            while copying.len() < WINDOW {
                if page.is_empty() && !last {
                    let next = self.next_page().await?;
                    last = next.last;
                    page = VecDeque::from(next.entries);
                }
                let Some(entry): Option<WireEntry> = page.pop_front() else {
                    if last {
                        break;
                    }
                    continue;
                };
                // The entry may be newer than `check_tree`.
                if checks_entries {
                    self.check_policy(&entry)?;
                }
                let done = progress.arrived().has(&entry);
                if !done && matches!(entry.kind, WireEntryKind::File { .. }) {
                    progress.arrived().begin(&entry.path);
                }
                let room = &room;
                copying.push_back(async move {
                    let outcome = match done {
                        true => Ok(EntryOutcome::ArrivedBefore),
                        false => self.copy_entry(&entry, room, resumed).await,
                    };
                    (entry, outcome)
                });
            }
            let Some((entry, outcome)) = copying.next().await else {
                progress.arrived().end_tree();
                return Ok(());
            };
            let outcome = outcome.map_err(|failure| failure.in_entry(&entry.path))?;
            self.meter.moved();
            progress.arrived().note(entry, outcome, to_workspace);
        }
    }

    /// Returns the next entries of the manifest, with checked names.
    async fn next_page(&self) -> Result<ManifestPage, Failure> {
        let params = TransferManifest { transfer: self.spec.id.clone() };
        let page: ManifestPage = self.source.request(method::TRANSFER_MANIFEST, &params).await?;
        self.meter.moved();
        if page.entries.is_empty() && !page.last {
            return Err(self.source_violation("it sent a page without entries that is not the last one"));
        }
        let entries = page.entries.into_iter().map(|entry| self.checked(entry)).collect::<Result<_, _>>()?;
        Ok(ManifestPage { entries, last: page.last })
    }

    /// Checks the path of an entry before anything else uses it. An entry with a path that is too long is skipped.
    fn checked(&self, mut entry: WireEntry) -> Result<WireEntry, Failure> {
        match check_entry(&entry.path) {
            Ok(_) => {}
            Err(err @ TransferError::EntryTooLong(_)) => {
                entry.kind = WireEntryKind::Skipped { reason: err.to_string() };
            }
            Err(err) => return Err(self.source_violation(&format!("it sent an invalid entry: {err}"))),
        }
        Ok(entry)
    }

    fn source_violation(&self, how: &str) -> Failure {
        let message = format!("the source violates the transfer protocol: {how}");
        Failure::failed(message).at(&self.spec.source)
    }

    fn check_policy(&self, entry: &WireEntry) -> Result<(), Failure> {
        match entry.kind {
            WireEntryKind::Skipped { .. } => Ok(()),
            _ => self
                .spec
                .ends()
                .check_entry(self.policy, &self.spec.policy_call, &entry.path)
                .map_err(Failure::denied),
        }
    }

    /// Copies one entry. An entry whose name the destination cannot store is skipped.
    async fn copy_entry(
        &self,
        entry: &WireEntry,
        room: &Semaphore,
        resumed: bool,
    ) -> Result<EntryOutcome, Failure> {
        let skipped = |reason: String| Ok(EntryOutcome::Skipped(reason));
        let to_workspace = self.spec.to_workspace();
        let outcome = match &entry.kind {
            WireEntryKind::File { .. } | WireEntryKind::Directory { .. }
                if to_workspace && gantry_store::check_key(&entry.path).is_err() =>
            {
                skipped("the workspace cannot store this name".into())
            }
            WireEntryKind::File { mode, .. } | WireEntryKind::Directory { mode }
                if let Err(reason) = check_mode(*mode) =>
            {
                skipped(reason)
            }
            WireEntryKind::File { size, mode } => {
                self.copy_file_entry(&entry.path, *size, *mode, room, resumed).await
            }
            WireEntryKind::Directory { mode } => self.make(entry, Some(*mode), None).await,
            WireEntryKind::Link { .. } if to_workspace => {
                skipped("it is a link, and the workspace keeps files only".into())
            }
            WireEntryKind::Link { target } => self.make(entry, None, Some(target.clone())).await,
            WireEntryKind::Skipped { reason } => skipped(reason.clone()),
        };
        match outcome {
            Err(Failure::Final(error)) if error.code == ErrorCode::InvalidInput => skipped(error.message),
            outcome => outcome,
        }
    }

    async fn copy_file_entry(
        &self,
        path: &str,
        size: u64,
        mode: u32,
        room: &Semaphore,
        resumed: bool,
    ) -> Result<EntryOutcome, Failure> {
        let is_large = size > LARGE;
        let weight = if is_large { LARGE_WEIGHT } else { 1 };
        let _room = room.acquire_many(weight).await.map_err(|err| Failure::Lost(err.to_string()))?;
        let start = if resumed && is_large { StartAt::ArrivedBytes } else { StartAt::Zero };
        match self.copy_file(Some(path), start, mode, Some(size)).await {
            Ok(done) => Ok(EntryOutcome::File(done.bytes)),
            // The file changed while it was sent, or the arrived bytes are not its beginning.
            Err(Failure::Restart(_)) => {
                let done = self.copy_file(Some(path), StartAt::Zero, mode, None).await?;
                Ok(EntryOutcome::File(done.bytes))
            }
            Err(Failure::Source(error)) => Ok(EntryOutcome::Skipped(error.message)),
            Err(failure) => Err(failure),
        }
    }

    /// Creates a directory, or a link if there is a target.
    async fn make(
        &self,
        entry: &WireEntry,
        mode: Option<u32>,
        target: Option<String>,
    ) -> Result<EntryOutcome, Failure> {
        let make = TransferMake { transfer: self.spec.id.clone(), entry: entry.path.clone(), mode, target };
        let _: Value = self.request_destination(method::TRANSFER_MAKE, &make).await?;
        Ok(EntryOutcome::Made)
    }
}
