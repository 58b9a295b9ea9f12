//! The books of a machine's files. Whether a caller may read or write a path was asked before; the scopes come from there.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gantry_files::{
    FileError, FileMeta, Manifest, ManifestKind, PartRecords, PartialFile, Scope, Source, media,
};
use gantry_protocol::{
    ManifestPage, SentKind, TransferMake, TransferOpened, TransferParts, TransferPrepared, WireEntry,
    WireEntryKind,
};
use tokio_util::sync::CancellationToken;

use crate::books::{Landing, Origin, check_entry};
use crate::error::TransferError;

/// Transfers that may be open here in each direction; the longest open goes when there are more.
const MAX_OPEN: usize = 256;

/// Entries of a directory that are told at once.
const PAGE_ENTRIES: usize = 512;

/// A part may still be held by a receiver that is about to notice that its connection is gone.
const LOCK_LIMIT: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Transfers with parts that are told at once.
const MAX_TOLD: usize = 512;

/// What is open for sending and for receiving.
pub struct FileBooks {
    /// Of every part, also of those that an earlier start left.
    records: PartRecords,
    sources: Mutex<Vec<(String, Arc<OpenSource>)>>,
    destinations: Mutex<Vec<(String, Arc<Destination>)>>,
    turns: Mutex<Vec<(String, Turn)>>,
}

/// Held while a part of one transfer is made with its record, or removed with it. A record that went between its being written and
/// its part being made would leave a part that nobody knows of.
type Turn = Arc<Mutex<()>>;

enum OpenSource {
    File { scope: Scope, path: PathBuf, version: String },
    Directory { scope: Scope, manifest: Mutex<Manifest> },
}

enum Destination {
    File {
        scope: Scope,
        path: PathBuf,
    },
    Directory {
        scope: Scope,
        root: PathBuf,
        /// Modes that forbid writing, set when everything is there.
        late_modes: Mutex<Vec<(String, u32)>>,
    },
}

/// What is to come, and where to.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub path: &'a str,
    pub kind: SentKind,
    /// Of a directory that is made for it.
    pub mode: Option<u32>,
}

/// Into a directory without these nothing could be written.
const OWN_WRITE: u32 = 0o300;

/// Makes a scope that is contained beneath a directory.
pub type Beneath<'a> = &'a dyn Fn(&Path) -> Result<Scope, FileError>;

impl FileBooks {
    pub fn new(records: PartRecords) -> FileBooks {
        FileBooks {
            records,
            sources: Mutex::default(),
            destinations: Mutex::default(),
            turns: Mutex::default(),
        }
    }

    /// Opens a source. A directory's entries are then opened beneath it only.
    pub fn open(
        &self,
        transfer: &str,
        path: &str,
        scope: Scope,
        beneath: Beneath<'_>,
    ) -> Result<TransferOpened, FileError> {
        let (opened, source) = match scope.open(path) {
            Ok(file) => {
                file.check_reports_size()?;
                let version = version(&file.meta);
                let opened = TransferOpened {
                    kind: SentKind::File,
                    size: file.meta.size,
                    mode: file.meta.mode & 0o777,
                    version: version.clone(),
                    path: file.path.to_string_lossy().into_owned(),
                    mime: media::mime_of(&file)?.map(str::to_owned),
                };
                (opened, OpenSource::File { scope, path: file.path, version })
            }
            Err(FileError::NotAFile { what: "a directory", .. }) => {
                let opened = scope.open_dir(path)?;
                let (mode, root) = (opened.mode()?, opened.path);
                let manifest = beneath(&root)?.manifest(".")?;
                let opened = TransferOpened {
                    kind: SentKind::Directory,
                    size: 0,
                    mode,
                    version: String::new(),
                    path: root.to_string_lossy().into_owned(),
                    mime: None,
                };
                (opened, OpenSource::Directory { scope: beneath(&root)?, manifest: Mutex::new(manifest) })
            }
            Err(err) => return Err(err),
        };
        remember(&self.sources, transfer, source);
        Ok(opened)
    }

    /// Prepares a destination: directories on the way, and a look whether a file of that kind can be there. Who calls it off does
    /// so before the transfer is abandoned: then nothing is made any more.
    pub fn prepare(
        &self,
        transfer: &str,
        Wanted { path, kind, mode }: Wanted<'_>,
        scope: Scope,
        beneath: Beneath<'_>,
        called_off: &CancellationToken,
    ) -> Result<TransferPrepared, FileError> {
        let (path, destination) = match kind {
            SentKind::File if path.ends_with('/') => {
                let why = "it names a directory; give the file's own name, such as DIRECTORY/NAME";
                let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, why);
                return Err(FileError::Io { action: "receive a file as", path: path.into(), source });
            }
            SentKind::File => {
                let is_wanted = || !called_off.is_cancelled();
                let arriving = self.arriving(&scope, Path::new(path), transfer, None, &is_wanted)?;
                let real = arriving.partial.path().to_owned();
                (real.clone(), Destination::File { scope, path: real })
            }
            SentKind::Directory => {
                let is_new = matches!(scope.open_dir(path), Err(FileError::NotFound { .. }));
                let root = scope.make_dirs(path).map_err(|err| match err {
                    FileError::NotADirectory { .. } => FileError::NotADirectory { path: path.into() },
                    other => other,
                });
                let root = root?.path;
                let scope = beneath(&root)?;
                let mut late_modes = self.late_mode_of_root(transfer);
                if let Some(mode) = mode.filter(|_| is_new) {
                    // Before anything is in it: what is private was not to be seen meanwhile.
                    scope.set_directory_mode(".", mode | OWN_WRITE)?;
                    late_modes.extend((mode & OWN_WRITE != OWN_WRITE).then(|| (".".to_owned(), mode)));
                }
                (root.clone(), Destination::Directory { scope, root, late_modes: Mutex::new(late_modes) })
            }
        };
        let turn = self.turn(transfer);
        let _held = hold(&turn);
        if called_off.is_cancelled() {
            return Err(FileError::Cancelled);
        }
        remember(&self.destinations, transfer, destination);
        Ok(TransferPrepared { path: path.to_string_lossy().into_owned() })
    }

    /// That of the round before: its directory is not new any more. Those of entries are told again.
    fn late_mode_of_root(&self, transfer: &str) -> Vec<(String, u32)> {
        let Ok(before) = find(&self.destinations, transfer) else { return Vec::new() };
        let Destination::Directory { late_modes, .. } = &*before else { return Vec::new() };
        let late_modes = late_modes.lock().unwrap_or_else(PoisonError::into_inner);
        late_modes.iter().filter(|(entry, _)| entry == ".").cloned().collect()
    }

    pub fn page(&self, transfer: &str) -> Result<ManifestPage, TransferError> {
        let source = find(&self.sources, transfer)?;
        let OpenSource::Directory { manifest, .. } = &*source else {
            return Err(TransferError::Violation("a file has no entries".into()));
        };
        let mut manifest = manifest.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = ManifestPage::default();
        while page.entries.len() < PAGE_ENTRIES {
            let Some(entry) = manifest.next().transpose()? else {
                page.last = true;
                break;
            };
            let kind = match entry.kind {
                // By its name first: few files have such a one.
                ManifestKind::File if self.records.holds(&manifest.root().join(&entry.path))? => {
                    WireEntryKind::Skipped { reason: "it is the part of a file that is still coming".into() }
                }
                ManifestKind::File => WireEntryKind::File { size: entry.size, mode: entry.mode },
                ManifestKind::Directory => WireEntryKind::Directory { mode: entry.mode },
                ManifestKind::Symlink { target } => WireEntryKind::Link { target },
                ManifestKind::Skipped { reason } => WireEntryKind::Skipped { reason },
            };
            page.entries.push(WireEntry { path: entry.path, kind });
        }
        Ok(page)
    }

    pub fn origin(&self, transfer: &str, entry: Option<&str>) -> Result<Box<dyn Origin>, TransferError> {
        let source = find(&self.sources, transfer)?;
        match (&*source, entry) {
            (OpenSource::File { scope, path, version: opened }, None) => {
                let source = scope.open_source(path)?;
                if version(&source.meta()) != *opened {
                    return Err(TransferError::Changed(path.display().to_string()));
                }
                Ok(Box::new(source))
            }
            (OpenSource::Directory { scope, .. }, Some(entry)) => {
                Ok(Box::new(scope.open_source(check_entry(entry)?)?))
            }
            _ => Err(wrong_kind()),
        }
    }

    pub fn landing(&self, transfer: &str, entry: Option<&str>) -> Result<Box<dyn Landing>, TransferError> {
        let destination = find(&self.destinations, transfer)?;
        let (scope, path) = match (&*destination, entry) {
            (Destination::File { scope, path }, None) => (scope, path.as_path()),
            (Destination::Directory { scope, .. }, Some(name)) => (scope, Path::new(check_entry(name)?)),
            _ => return Err(wrong_kind()),
        };
        let is_wanted = || find(&self.destinations, transfer).is_ok();
        Ok(Box::new(self.arriving(scope, path, transfer, entry, &is_wanted)?))
    }

    /// Opens what has come of a file; one that begins is written down first. `is_wanted` is asked when nobody can abandon the
    /// transfer meanwhile.
    fn arriving(
        &self,
        scope: &Scope,
        path: &Path,
        transfer: &str,
        entry: Option<&str>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Arriving, FileError> {
        let turn = self.turn(transfer);
        let name = part_name(transfer, entry);
        let note = |part: &Path| self.records.note(transfer, &name, part);
        let until = Instant::now() + LOCK_LIMIT;
        let partial = loop {
            let held = hold(&turn);
            if !is_wanted() {
                return Err(FileError::Cancelled);
            }
            let opened = scope.open_recorded_partial(path, &name, &note);
            // Whoever has the part now may need its turn to let go of it.
            drop(held);
            match opened {
                Err(FileError::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < until =>
                {
                    std::thread::sleep(LOCK_PAUSE);
                }
                opened => break opened?,
            }
        };
        Ok(Arriving { partial, records: self.records.clone(), turn, transfer: transfer.to_owned(), name })
    }

    fn turn(&self, transfer: &str) -> Turn {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, turn)) = turns.iter().find(|(known, _)| known == transfer) {
            return turn.clone();
        }
        // Nobody waits for, or holds, what only this table knows.
        turns.retain(|(_, turn)| Arc::strong_count(turn) > 1);
        let turn = Turn::default();
        turns.push((transfer.to_owned(), turn.clone()));
        turn
    }

    pub fn make(&self, ask: &TransferMake) -> Result<(), TransferError> {
        let destination = find(&self.destinations, &ask.transfer)?;
        let Destination::Directory { scope, root, late_modes } = &*destination else {
            return Err(wrong_kind());
        };
        let entry = check_entry(&ask.entry)?;
        if let Some(target) = &ask.target {
            return Ok(scope.make_link(root, entry, target)?);
        }
        scope.make_dirs(entry).map_err(|err| match err {
            // The tree ends at the destination: a link that leads out of it stands where a directory is wanted.
            FileError::Outside { path } => FileError::NotADirectory { path },
            other => other,
        })?;
        let mode = ask.mode.unwrap_or(0o755);
        match mode & OWN_WRITE == OWN_WRITE {
            true => Ok(scope.set_directory_mode(entry, mode)?),
            false => {
                // One that was there may forbid it already. If that cannot be changed, writing tells why.
                let _ = scope.set_directory_mode(entry, mode | OWN_WRITE);
                late_modes.lock().unwrap_or_else(PoisonError::into_inner).push((entry.to_owned(), mode));
                Ok(())
            }
        }
    }

    pub fn finish(&self, transfer: &str) -> Result<(), TransferError> {
        let turn = self.turn(transfer);
        let _held = hold(&turn);
        forget(&self.sources, transfer);
        let Some(destination) = forget(&self.destinations, transfer) else { return Ok(()) };
        // Of files that were left out, before their directories forbid it. All else is there: what cannot be removed now
        // stays written down, and is swept.
        let _ = self.records.remove(transfer);
        destination.set_late_modes()
    }

    /// Of a transfer of an earlier start too: the records know.
    pub fn abandon(&self, transfer: &str) -> Result<(), TransferError> {
        let turn = self.turn(transfer);
        let _held = hold(&turn);
        forget(&self.sources, transfer);
        let destination = forget(&self.destinations, transfer);
        let removed = self.records.remove(transfer);
        // Whoever has taken such a directory away has its mode, too.
        let _ = destination.map(|destination| destination.set_late_modes());
        Ok(removed?)
    }

    pub fn parts(&self) -> Result<TransferParts, TransferError> {
        let mut transfers = self.records.transfers(MAX_TOLD + 1)?;
        let more = transfers.len() > MAX_TOLD;
        transfers.truncate(MAX_TOLD);
        Ok(TransferParts { transfers, more })
    }

    pub fn sweep(&self, older_than: Duration) -> Result<usize, TransferError> {
        Ok(self.records.sweep(older_than)?)
    }
}

impl Destination {
    fn set_late_modes(&self) -> Result<(), TransferError> {
        let Destination::Directory { scope, late_modes, .. } = self else { return Ok(()) };
        let late_modes = late_modes.lock().unwrap_or_else(PoisonError::into_inner);
        // The deepest first: a parent may forbid to go there.
        for (entry, mode) in late_modes.iter().rev() {
            scope.set_directory_mode(entry, *mode)?;
        }
        Ok(())
    }
}

fn hold(turn: &Turn) -> MutexGuard<'_, ()> {
    turn.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wrong_kind() -> TransferError {
    TransferError::Violation("files have no entries, and directories nothing else".into())
}

/// Names the content of a file without reading it.
fn version(meta: &FileMeta) -> String {
    format!("{:x}-{:x}-{:x}-{:x}", meta.id.dev, meta.id.ino, meta.size, meta.modified_ns)
}

/// The part of one file of one transfer; several of a directory come at once.
pub fn part_name(transfer: &str, entry: Option<&str>) -> String {
    match entry {
        None => transfer.to_owned(),
        Some(entry) => format!("{transfer}-{}", &blake3::hash(entry.as_bytes()).to_hex()[..16]),
    }
}

type Table<T> = Mutex<Vec<(String, Arc<T>)>>;

fn lock<T>(table: &Table<T>) -> MutexGuard<'_, Vec<(String, Arc<T>)>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remember<T>(table: &Table<T>, transfer: &str, item: T) {
    let mut table = lock(table);
    table.retain(|(known, _)| known != transfer);
    if table.len() >= MAX_OPEN {
        table.remove(0);
    }
    table.push((transfer.to_owned(), Arc::new(item)));
}

fn find<T>(table: &Table<T>, transfer: &str) -> Result<Arc<T>, TransferError> {
    let found = lock(table).iter().find(|(known, _)| known == transfer).map(|(_, item)| item.clone());
    found.ok_or_else(|| TransferError::Unknown(transfer.chars().take(64).collect()))
}

fn forget<T>(table: &Table<T>, transfer: &str) -> Option<Arc<T>> {
    let mut table = lock(table);
    let at = table.iter().position(|(known, _)| known == transfer)?;
    Some(table.remove(at).1)
}

impl Origin for Source {
    fn size(&self) -> u64 {
        self.meta().size
    }

    fn read_at(&mut self, offset: u64, block: &mut [u8]) -> Result<usize, TransferError> {
        Ok(Source::read_at(self, offset, block)?)
    }

    fn check_unchanged(&self) -> Result<(), TransferError> {
        Ok(Source::check_unchanged(self)?)
    }
}

/// A part that is written down as long as it is one.
struct Arriving {
    partial: PartialFile,
    records: PartRecords,
    turn: Turn,
    transfer: String,
    name: String,
}

impl Landing for Arriving {
    fn length(&self) -> u64 {
        self.partial.length()
    }

    fn hash_prefix(&self) -> Result<blake3::Hasher, TransferError> {
        Ok(self.partial.hash_prefix()?)
    }

    fn truncate(&mut self, length: u64) -> Result<(), TransferError> {
        Ok(self.partial.truncate(length)?)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        Ok(self.partial.append(bytes)?)
    }

    fn commit(self: Box<Self>, mode: u32) -> Result<(), TransferError> {
        self.partial.commit(mode)?;
        let _held = hold(&self.turn);
        // The file is whole and has its name. A record that cannot be erased now leads nowhere, and whoever tidies up looks again.
        let _ = self.records.erase(&self.transfer, &self.name);
        Ok(())
    }
}
