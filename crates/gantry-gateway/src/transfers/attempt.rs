//! One try to bring everything over: as long as both connections last. The next goes on from what has come.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesOrdered, StreamExt};
use gantry_protocol::{
    Caller, ErrorCode, ManifestPage, SentKind, StreamFrame, TransferDone, TransferHas, TransferHave,
    TransferMake, TransferManifest, TransferOpen, TransferOpened, TransferOver, TransferPrepare,
    TransferPrepared, TransferReceive, TransferSend, WireEntry, WireEntryKind, WireError, method,
};
use gantry_tool::{Call, Policy, Refusal};
use gantry_toolsets::{Endpoint, Ends, LOCAL_NODE};
use gantry_transfer::{TransferError, check_entry};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::meter::Meter;
use super::progress::{Brought, TransferProgress};
use super::relay::Relay;
use super::session::{Failure, Session};

/// Entries of a directory that are on their way at once, so that small files do not wait for each other's answers.
const WINDOW: usize = 16;

/// A file above this size takes half of the window: each stream may have its full credit in memory.
const LARGE: u64 = 1024 * 1024;
const LARGE_WEIGHT: u32 = WINDOW as u32 / 2;

/// When one end has failed, the other gets this long to tell its side.
const OTHER_END_LIMIT: Duration = Duration::from_secs(5);

const DISAGREE: &str = "the ends do not agree on what was sent";

/// What is to be brought where.
pub(crate) struct TransferSpec {
    pub(crate) id: String,
    pub(crate) caller: Caller,
    /// The caller, as rules see it.
    pub(crate) judged_as: Arc<Call>,
    pub(crate) source: Endpoint,
    pub(crate) destination: Endpoint,
}

impl TransferSpec {
    pub(crate) fn ends(&self) -> Ends<'_> {
        Ends { source: &self.source, destination: &self.destination }
    }

    /// What was approved for an end that has the gateway's own policy. Other machines judge by their own.
    fn approved(&self, end: &Endpoint, tool: &str) -> Vec<String> {
        let Endpoint::Node { node, .. } = end else { return Vec::new() };
        if node != LOCAL_NODE {
            return Vec::new();
        }
        let name = format!("{node}__{tool}");
        let asked = self.judged_as.approved.iter().filter(|asked| asked.tool == name);
        asked.map(|asked| asked.rule.clone()).collect()
    }
}

pub(crate) struct Attempt<'a> {
    pub(crate) errand: &'a TransferSpec,
    pub(crate) policy: &'a Policy,
    pub(crate) source: Session,
    pub(crate) destination: Session,
    pub(crate) relay: Arc<Relay>,
    pub(crate) meter: Arc<Meter>,
}

impl Attempt<'_> {
    pub(crate) async fn run(&self, ledger: &mut TransferProgress) -> Result<(), Failure> {
        let opened = self.begin(ledger).await?;
        // A store that is there when it is asked, and away when it is used, counts as any end that brings nothing.
        self.bring_all(opened, ledger).await.map_err(|failure| match failure {
            Failure::Away(reason) => Failure::Lost(reason),
            other => other,
        })
    }

    async fn begin(&self, ledger: &mut TransferProgress) -> Result<TransferOpened, Failure> {
        let mut opened = self.open().await?;
        if opened.kind == SentKind::Directory && !ledger.begun && self.tells_entries_apart() {
            self.judge_tree().await?;
            opened = self.open().await?;
        }
        if let Err(reason) = check_mode(opened.mode) {
            return Err(at(&self.errand.source, Failure::Final(WireError::new(ErrorCode::Failed, reason))));
        }
        self.prepare(&opened).await?;
        self.meter.moved();
        ledger.begun = true;
        Ok(opened)
    }

    async fn bring_all(&self, opened: TransferOpened, ledger: &mut TransferProgress) -> Result<(), Failure> {
        match opened.kind {
            SentKind::File => {
                self.meter.set_total(opened.size);
                self.meter.set_done(0);
                let from = if ledger.from_zero { Start::Zero } else { Start::WhatHasCome };
                let done = self.bring(None, from, opened.mode, Some(opened.size)).await?;
                let mut arrived = ledger.arrived();
                arrived.mime = opened.mime.or_else(|| mime_by_name(&opened.path));
                arrived.bytes = done.bytes;
            }
            SentKind::Directory => self.bring_tree(ledger).await?,
        }
        self.finish().await
    }

    async fn open(&self) -> Result<TransferOpened, Failure> {
        let ask = TransferOpen {
            transfer: self.errand.id.clone(),
            path: self.errand.source.path().to_owned(),
            caller: self.errand.caller.clone(),
            approved: self.errand.approved(&self.errand.source, "Read"),
        };
        self.source.request(method::TRANSFER_OPEN, &ask).await.map_err(|err| at(&self.errand.source, err))
    }

    async fn prepare(&self, opened: &TransferOpened) -> Result<TransferPrepared, Failure> {
        let ask = TransferPrepare {
            transfer: self.errand.id.clone(),
            path: self.errand.destination.path().to_owned(),
            kind: opened.kind,
            mode: self.root_mode(opened),
            caller: self.errand.caller.clone(),
            source: self.on_same_machine().then(|| opened.path.clone()),
            approved: self.errand.approved(&self.errand.destination, "Write"),
        };
        self.ask_destination(method::TRANSFER_PREPARE, &ask).await
    }

    async fn ask_destination<P: Serialize, R: DeserializeOwned>(
        &self,
        method: &str,
        ask: &P,
    ) -> Result<R, Failure> {
        self.destination.request(method, ask).await.map_err(|err| at(&self.errand.destination, err))
    }

    async fn finish(&self) -> Result<(), Failure> {
        let over = TransferOver { transfer: self.errand.id.clone(), entries: Vec::new() };
        let _: Value = self.destination.request(method::TRANSFER_FINISH, &over).await?;
        // Everything has arrived: a source that cannot be told forgets by itself.
        let _: Result<Value, _> = self.source.request(method::TRANSFER_FINISH, &over).await;
        Ok(())
    }

    /// Of the directory that is sent. The workspace's have none.
    fn root_mode(&self, opened: &TransferOpened) -> Option<u32> {
        let from_node = matches!(self.errand.source, Endpoint::Node { .. });
        (opened.kind == SentKind::Directory && from_node).then_some(opened.mode)
    }

    fn to_workspace(&self) -> bool {
        matches!(self.errand.destination, Endpoint::Workspace { .. })
    }

    /// What only the machine itself can tell apart: the same place under two names.
    fn on_same_machine(&self) -> bool {
        match (&self.errand.source, &self.errand.destination) {
            (Endpoint::Node { node, .. }, Endpoint::Node { node: other, .. }) => node == other,
            _ => false,
        }
    }

    /// Brings one file over, and waits until it is whole.
    async fn bring(
        &self,
        entry: Option<&str>,
        start: Start,
        mode: u32,
        size: Option<u64>,
    ) -> Result<TransferDone, Failure> {
        let transfer = self.errand.id.clone();
        let entry = entry.map(str::to_owned);
        let has: TransferHas = match start {
            Start::WhatHasCome => {
                let ask = TransferHave { transfer: transfer.clone(), entry: entry.clone() };
                self.ask_destination(method::TRANSFER_HAVE, &ask).await?
            }
            Start::Zero => TransferHas::default(),
        };
        let from = has.have;
        let mut stream =
            self.relay.open(self.source.port.clone(), self.destination.port.clone(), from, &self.meter);
        self.meter.add(from);
        let receive = TransferReceive {
            transfer: transfer.clone(),
            entry: entry.clone(),
            stream: stream.number,
            from,
            mode,
            size,
        };
        let receiving = self.destination.request::<_, TransferDone>(method::TRANSFER_RECEIVE, &receive);
        let mut receiving = std::pin::pin!(receiving);
        // The receiver has to be ready before the sender begins: then no frame finds nobody.
        let credit = tokio::select! {
            failed = &mut receiving => {
                let early = || Failure::Lost("the receiver ended before anything was sent".into());
                return Err(at(&self.errand.destination, failed.err().unwrap_or_else(early)));
            }
            credit = stream.ready() => credit.ok_or_else(|| Failure::Lost("the stream broke".into()))?,
        };
        let send = TransferSend {
            transfer,
            entry,
            stream: stream.number,
            from,
            prefix_hash: has.prefix_hash,
            credit,
        };
        let sending = self.source.request::<_, TransferDone>(method::TRANSFER_SEND, &send);
        let mut sending = std::pin::pin!(sending);
        let (mut sent, mut received, mut end) = (None, None, None);
        let mut broken = std::pin::pin!(stream.broken());
        while sent.is_none() || received.is_none() {
            let failed = matches!(sent, Some(Err(_))) || matches!(received, Some(Err(_)));
            tokio::select! {
                frame = stream.ended(), if !failed => end = Some(frame),
                done = &mut sending, if sent.is_none() => {
                    if let Err(Failure::Lost(reason) | Failure::Away(reason) | Failure::Restart(reason)) = &done {
                        stream.abort(reason);
                    } else if done.is_err() {
                        stream.abort("the source failed");
                    }
                    sent = Some(done.map_err(unreadable));
                }
                done = &mut receiving, if received.is_none() => {
                    if done.is_err() {
                        stream.abort("the destination failed");
                    }
                    received = Some(done);
                }
                // Also of a source that says it has sent all: what has not arrived was not.
                reason = &mut broken, if !failed => sent = Some(Err(Failure::Lost(reason))),
                () = tokio::time::sleep(OTHER_END_LIMIT), if failed => {
                    let silent = || Err(Failure::Lost("the other end did not answer".into()));
                    sent.get_or_insert_with(silent);
                    received.get_or_insert_with(silent);
                }
            }
            // The receiver gives the file its name when it hears the end: first the source has to stand by it.
            if let Some(Ok(done)) = &sent
                && let Some(frame) = end.take()
            {
                if stands_by(done, &frame) {
                    stream.release(frame);
                } else {
                    stream.abort(DISAGREE);
                    sent = Some(Err(Failure::Restart(DISAGREE.into())));
                }
            }
        }
        match (sent, received) {
            (Some(Ok(sent)), Some(Ok(received))) if sent == received => Ok(received),
            (Some(Ok(_)), Some(Ok(_))) => Err(Failure::Restart(DISAGREE.into())),
            (Some(Err(sent)), Some(Err(received))) => {
                Err(at(&self.errand.source, sent).or(at(&self.errand.destination, received)))
            }
            (Some(Err(failed)), _) => Err(at(&self.errand.source, failed)),
            (_, Some(Err(failed))) => Err(at(&self.errand.destination, failed)),
            _ => Err(Failure::Lost(format!("the stream ended at {}", stream.passed()))),
        }
    }

    fn tells_entries_apart(&self) -> bool {
        self.errand.ends().are_told_apart(self.policy)
    }

    /// Walks a whole directory once before anything of it is written: no file that a rule is against may be in it.
    async fn judge_tree(&self) -> Result<(), Failure> {
        loop {
            let page = self.next_page().await?;
            page.entries.iter().try_for_each(|entry| self.judge_entry(entry))?;
            if page.last {
                return Ok(());
            }
        }
    }

    fn judge_entry(&self, entry: &WireEntry) -> Result<(), Failure> {
        match entry.kind {
            WireEntryKind::Skipped { .. } => Ok(()),
            _ => self
                .errand
                .ends()
                .check_entry(self.policy, &self.errand.judged_as, &entry.path)
                .map_err(refused),
        }
    }

    /// The next entries of a directory, whose names can be used.
    async fn next_page(&self) -> Result<ManifestPage, Failure> {
        let ask = TransferManifest { transfer: self.errand.id.clone() };
        let page: ManifestPage = self.source.request(method::TRANSFER_MANIFEST, &ask).await?;
        self.meter.moved();
        if page.entries.is_empty() && !page.last {
            return Err(self.source_breaks_rules("it sent a page without entries, and says that more come"));
        }
        let entries = page.entries.into_iter().map(|entry| self.checked(entry)).collect::<Result<_, _>>()?;
        Ok(ManifestPage { entries, last: page.last })
    }

    async fn bring_tree(&self, ledger: &mut TransferProgress) -> Result<(), Failure> {
        self.meter.set_done(ledger.arrived().begin_tree(self.to_workspace()));
        let room = Semaphore::new(WINDOW);
        let resumed = ledger.resumed;
        let judges = self.tells_entries_apart();
        let mut page = VecDeque::new();
        let mut last = false;
        let mut flying = FuturesOrdered::new();
        loop {
            while flying.len() < WINDOW {
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
                // It may not have been there when the directory was judged.
                if judges {
                    self.judge_entry(&entry)?;
                }
                let done = ledger.arrived().has(&entry);
                if !done && matches!(entry.kind, WireEntryKind::File { .. }) {
                    ledger.arrived().begin(&entry.path);
                }
                let room = &room;
                flying.push_back(async move {
                    let brought = if done {
                        Ok(Brought::Before)
                    } else {
                        self.bring_entry(&entry, room, resumed).await
                    };
                    (entry, brought)
                });
            }
            let Some((entry, brought)) = flying.next().await else {
                ledger.arrived().end_tree();
                return Ok(());
            };
            let brought = brought.map_err(|failure| below(&entry.path, failure))?;
            self.meter.moved();
            ledger.arrived().note(entry, brought, self.to_workspace());
        }
    }

    /// A name that a source told is judged before anything else sees it.
    fn checked(&self, mut entry: WireEntry) -> Result<WireEntry, Failure> {
        match check_entry(&entry.path) {
            Ok(_) => {}
            Err(err @ TransferError::EntryTooLong(_)) => {
                entry.kind = WireEntryKind::Skipped { reason: err.to_string() };
            }
            Err(err) => {
                return Err(self.source_breaks_rules(&format!("it names an entry that cannot be: {err}")));
            }
        }
        Ok(entry)
    }

    fn source_breaks_rules(&self, how: &str) -> Failure {
        let message = format!("the source breaks the rules of transfers: {how}");
        at(&self.errand.source, Failure::Final(WireError::new(ErrorCode::Failed, message)))
    }

    /// Brings one entry over. What its destination cannot have under that name is left out, and told.
    async fn bring_entry(
        &self,
        entry: &WireEntry,
        room: &Semaphore,
        resumed: bool,
    ) -> Result<Brought, Failure> {
        match self.try_entry(entry, room, resumed).await {
            Err(Failure::Final(error)) if error.code == ErrorCode::InvalidInput => {
                Ok(Brought::Skipped(error.message))
            }
            brought => brought,
        }
    }

    async fn try_entry(
        &self,
        entry: &WireEntry,
        room: &Semaphore,
        resumed: bool,
    ) -> Result<Brought, Failure> {
        let make = |mode, target| TransferMake {
            transfer: self.errand.id.clone(),
            entry: entry.path.clone(),
            mode,
            target,
        };
        let to_workspace = self.to_workspace();
        match &entry.kind {
            WireEntryKind::File { .. } | WireEntryKind::Directory { .. }
                if to_workspace && gantry_store::check_key(&entry.path).is_err() =>
            {
                Ok(Brought::Skipped("the workspace takes no such name".into()))
            }
            WireEntryKind::File { mode, .. } | WireEntryKind::Directory { mode }
                if let Err(reason) = check_mode(*mode) =>
            {
                Ok(Brought::Skipped(reason))
            }
            WireEntryKind::File { size, mode } => {
                let weight = if *size > LARGE { LARGE_WEIGHT } else { 1 };
                let _room = room.acquire_many(weight).await.map_err(|err| Failure::Lost(err.to_string()))?;
                let large = resumed && *size > LARGE;
                let start = if large { Start::WhatHasCome } else { Start::Zero };
                match self.bring(Some(&entry.path), start, *mode, Some(*size)).await {
                    Ok(done) => Ok(Brought::File(done.bytes)),
                    // A file that changes while its tree is sent, or of which something else had come.
                    Err(Failure::Restart(_)) => {
                        let done = self.bring(Some(&entry.path), Start::Zero, *mode, None).await?;
                        Ok(Brought::File(done.bytes))
                    }
                    Err(Failure::Source(error)) => Ok(Brought::Skipped(error.message)),
                    Err(failure) => Err(failure),
                }
            }
            WireEntryKind::Directory { mode } => {
                let _: Value = self.ask_destination(method::TRANSFER_MAKE, &make(Some(*mode), None)).await?;
                Ok(Brought::Made)
            }
            WireEntryKind::Link { .. } if to_workspace => {
                Ok(Brought::Skipped("it is a link, and the workspace has none".into()))
            }
            WireEntryKind::Link { target } => {
                let made = make(None, Some(target.clone()));
                let _: Value = self.ask_destination(method::TRANSFER_MAKE, &made).await?;
                Ok(Brought::Made)
            }
            WireEntryKind::Skipped { reason } => Ok(Brought::Skipped(reason.clone())),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Zero,
    WhatHasCome,
}

/// What an ending says for sure: for others the store falls back to text, which a file on a node need not be.
fn mime_by_name(path: &str) -> Option<String> {
    let mime = gantry_store::content_type(path);
    let is_guess = mime == "application/octet-stream" || (mime == "text/plain" && !path.ends_with(".txt"));
    (!is_guess).then(|| mime.to_owned())
}

/// The gateway's own no.
pub(super) fn refused(refusal: Refusal) -> Failure {
    Failure::Final(refusal.to_wire())
}

/// A no to go on is not a no to what has been done.
pub(super) fn came_before(refusal: Refusal) -> Refusal {
    let message = format!("{}; files that had arrived whole before stay", refusal.message);
    Refusal { message, ..refusal }
}

/// Says at which end it failed.
fn at(endpoint: &Endpoint, failure: Failure) -> Failure {
    let place = match endpoint {
        Endpoint::Node { node, .. } => format!("on the node \"{node}\""),
        Endpoint::Workspace { .. } => "in the workspace".to_owned(),
    };
    match failure {
        Failure::Final(mut error) => {
            error.message = format!("{place}: {}", error.message);
            Failure::Final(error)
        }
        Failure::Source(mut error) => {
            error.message = format!("{place}: {}", error.message);
            Failure::Source(error)
        }
        other => other,
    }
}

/// Permission bits, and those that are never set: anything else is no mode, and what it would come to nobody meant.
fn check_mode(mode: u32) -> Result<(), String> {
    if mode <= 0o7777 { Ok(()) } else { Err(format!("its mode is none: {mode}")) }
}

/// Whether the source's answer says the same as its end.
fn stands_by(done: &TransferDone, end: &StreamFrame) -> bool {
    let hash = end.hash().map(|hash| blake3::Hash::from_bytes(hash).to_hex());
    done.bytes == end.offset() && hash.is_some_and(|hash| hash.as_str() == done.hash)
}

/// What the source itself cannot read.
fn unreadable(failure: Failure) -> Failure {
    match failure {
        Failure::Final(error) if matches!(error.code, ErrorCode::Failed | ErrorCode::Denied) => {
            Failure::Source(error)
        }
        other => other,
    }
}

fn below(path: &str, failure: Failure) -> Failure {
    match failure {
        Failure::Final(mut error) => {
            error.message = format!("{path}: {}", error.message);
            Failure::Final(error)
        }
        Failure::Restart(reason) => Failure::Restart(format!("{path}: {reason}")),
        other => other,
    }
}
