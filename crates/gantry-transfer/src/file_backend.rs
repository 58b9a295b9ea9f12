//! [`FileBackend`] transfers files of a machine. The caller checks whether a path may be read or written and
//! passes the scope that results from the check.

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

use crate::backend::{PartFile, SourceFile, TransferBackend, check_entry};
use crate::error::TransferError;

/// How many transfers may be open in each direction. The oldest is dropped when there are more.
const MAX_OPEN: usize = 256;

/// How many entries of a directory one page holds.
const PAGE_ENTRIES: usize = 512;

/// How long to wait for a part file whose receiver has not yet noticed that its connection is lost.
const LOCK_LIMIT: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// How many transfers with part files one answer lists.
const MAX_LISTED: usize = 512;

/// The open sources and destinations of a machine's files.
pub struct FileBackend {
    /// The records of all part files, also of those that an earlier process left.
    records: PartRecords,
    sources: Mutex<Vec<(String, Arc<OpenSource>)>>,
    destinations: Mutex<Vec<(String, Arc<Destination>)>>,
    part_locks: Mutex<Vec<(String, PartLock)>>,
}

/// Held while a part file of one transfer is created or removed together with its record. Otherwise a record could
/// be removed before its part file is created, which would leave an orphan.
type PartLock = Arc<Mutex<()>>;

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
        /// Read-only modes, which are set after all entries are written.
        late_modes: Mutex<Vec<(String, u32)>>,
    },
}

/// What the source will send, and to which path.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub path: &'a str,
    pub kind: SentKind,
    /// The mode of a directory that is created for it.
    pub mode: Option<u32>,
}

/// The mode bits that a directory needs while entries are written into it.
const OWN_WRITE: u32 = 0o300;

/// Creates a scope that is contained beneath a directory.
pub type Beneath<'a> = &'a dyn Fn(&Path) -> Result<Scope, FileError>;

impl FileBackend {
    pub fn new(records: PartRecords) -> FileBackend {
        FileBackend {
            records,
            sources: Mutex::default(),
            destinations: Mutex::default(),
            part_locks: Mutex::default(),
        }
    }

    /// Opens a source. The entries of a directory are opened beneath it only.
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

    /// Prepares a destination: creates missing directories and checks that the file can be created. Callers cancel
    /// before they abandon the transfer; after that nothing is created.
    pub fn prepare(
        &self,
        transfer: &str,
        Wanted { path, kind, mode }: Wanted<'_>,
        scope: Scope,
        beneath: Beneath<'_>,
        cancel: &CancellationToken,
    ) -> Result<TransferPrepared, FileError> {
        let (path, destination) = match kind {
            SentKind::File if path.ends_with('/') => {
                let why = "it names a directory; give the file's own name, such as DIRECTORY/NAME";
                let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, why);
                return Err(FileError::Io { action: "receive a file as", path: path.into(), source });
            }
            SentKind::File => {
                let is_wanted = || !cancel.is_cancelled();
                let received = self.open_part(&scope, Path::new(path), transfer, None, &is_wanted)?;
                let real = received.partial.path().to_owned();
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
                    // The mode is set before the first entry, so that private content is never visible to others.
                    scope.set_directory_mode(".", mode | OWN_WRITE)?;
                    late_modes.extend((mode & OWN_WRITE != OWN_WRITE).then(|| (".".to_owned(), mode)));
                }
                (root.clone(), Destination::Directory { scope, root, late_modes: Mutex::new(late_modes) })
            }
        };
        let part_lock = self.part_lock(transfer);
        let _held = hold(&part_lock);
        if cancel.is_cancelled() {
            return Err(FileError::Cancelled);
        }
        remember(&self.destinations, transfer, destination);
        Ok(TransferPrepared { path: path.to_string_lossy().into_owned() })
    }

    /// Returns the delayed mode of the root from the previous attempt, for which the directory was new. The modes
    /// of entries are sent again.
    fn late_mode_of_root(&self, transfer: &str) -> Vec<(String, u32)> {
        let Ok(before) = find(&self.destinations, transfer) else { return Vec::new() };
        let Destination::Directory { late_modes, .. } = &*before else { return Vec::new() };
        let late_modes = late_modes.lock().unwrap_or_else(PoisonError::into_inner);
        late_modes.iter().filter(|(entry, _)| entry == ".").cloned().collect()
    }

    /// Opens a part file, or records and creates it. `is_wanted` is called under the lock, so that the transfer
    /// cannot be abandoned between the check and the creation.
    fn open_part(
        &self,
        scope: &Scope,
        path: &Path,
        transfer: &str,
        entry: Option<&str>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<RecordedPart, FileError> {
        let part_lock = self.part_lock(transfer);
        let name = part_name(transfer, entry);
        let note = |part: &Path| self.records.note(transfer, &name, part);
        let until = Instant::now() + LOCK_LIMIT;
        let partial = loop {
            let held = hold(&part_lock);
            if !is_wanted() {
                return Err(FileError::Cancelled);
            }
            let opened = scope.open_recorded_partial(path, &name, &note);
            // The current holder of the part file may need the lock to release it.
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
        Ok(RecordedPart {
            partial,
            records: self.records.clone(),
            part_lock,
            transfer: transfer.to_owned(),
            name,
        })
    }

    fn part_lock(&self, transfer: &str) -> PartLock {
        let mut locks = self.part_locks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, part_lock)) = locks.iter().find(|(known, _)| known == transfer) {
            return part_lock.clone();
        }
        // A lock that only this table references is neither held nor waited for.
        locks.retain(|(_, part_lock)| Arc::strong_count(part_lock) > 1);
        let part_lock = PartLock::default();
        locks.push((transfer.to_owned(), part_lock.clone()));
        part_lock
    }
}

impl TransferBackend for FileBackend {
    fn page(&self, transfer: &str) -> Result<ManifestPage, TransferError> {
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
                // `holds` checks the name first; few files have the name of a part file.
                ManifestKind::File if self.records.holds(&manifest.root().join(&entry.path))? => {
                    WireEntryKind::Skipped { reason: "it is a part file of a running transfer".into() }
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

    fn source_file(&self, transfer: &str, entry: Option<&str>) -> Result<Box<dyn SourceFile>, TransferError> {
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

    fn part_file(&self, transfer: &str, entry: Option<&str>) -> Result<Box<dyn PartFile>, TransferError> {
        let destination = find(&self.destinations, transfer)?;
        let (scope, path) = match (&*destination, entry) {
            (Destination::File { scope, path }, None) => (scope, path.as_path()),
            (Destination::Directory { scope, .. }, Some(name)) => (scope, Path::new(check_entry(name)?)),
            _ => return Err(wrong_kind()),
        };
        let is_wanted = || find(&self.destinations, transfer).is_ok();
        Ok(Box::new(self.open_part(scope, path, transfer, entry, &is_wanted)?))
    }

    fn make(&self, request: &TransferMake) -> Result<(), TransferError> {
        let destination = find(&self.destinations, &request.transfer)?;
        let Destination::Directory { scope, root, late_modes } = &*destination else {
            return Err(wrong_kind());
        };
        let entry = check_entry(&request.entry)?;
        if let Some(target) = &request.target {
            return Ok(scope.make_link(root, entry, target)?);
        }
        scope.make_dirs(entry).map_err(|err| match err {
            // A link at this path leads out of the destination, so the directory cannot be created.
            FileError::Outside { path } => FileError::NotADirectory { path },
            other => other,
        })?;
        let mode = request.mode.unwrap_or(0o755);
        match mode & OWN_WRITE == OWN_WRITE {
            true => Ok(scope.set_directory_mode(entry, mode)?),
            false => {
                // An existing directory may be read-only. If its mode cannot be changed, the write reports why.
                let _ = scope.set_directory_mode(entry, mode | OWN_WRITE);
                late_modes.lock().unwrap_or_else(PoisonError::into_inner).push((entry.to_owned(), mode));
                Ok(())
            }
        }
    }

    fn finish(&self, transfer: &str) -> Result<(), TransferError> {
        let part_lock = self.part_lock(transfer);
        let _held = hold(&part_lock);
        forget(&self.sources, transfer);
        let Some(destination) = forget(&self.destinations, transfer) else { return Ok(()) };
        // Part files of skipped entries are removed before their directories become read-only. A file that cannot be
        // removed now keeps its record and is swept later.
        let _ = self.records.remove(transfer);
        destination.set_late_modes()
    }

    /// Removes the part files, also of a transfer of an earlier process: the records list them.
    fn abandon(&self, transfer: &str) -> Result<(), TransferError> {
        let part_lock = self.part_lock(transfer);
        let _held = hold(&part_lock);
        forget(&self.sources, transfer);
        let destination = forget(&self.destinations, transfer);
        let removed = self.records.remove(transfer);
        // This fails if somebody removed the directory, and then there is no mode to set.
        let _ = destination.map(|destination| destination.set_late_modes());
        Ok(removed?)
    }

    fn parts(&self) -> Result<TransferParts, TransferError> {
        let mut transfers = self.records.transfers(MAX_LISTED + 1)?;
        let more = transfers.len() > MAX_LISTED;
        transfers.truncate(MAX_LISTED);
        Ok(TransferParts { transfers, more })
    }

    fn sweep(&self, older_than: Duration) -> Result<usize, TransferError> {
        Ok(self.records.sweep(older_than)?)
    }
}

impl Destination {
    fn set_late_modes(&self) -> Result<(), TransferError> {
        let Destination::Directory { scope, late_modes, .. } = self else { return Ok(()) };
        let late_modes = late_modes.lock().unwrap_or_else(PoisonError::into_inner);
        // Deepest first, because a parent may become inaccessible.
        for (entry, mode) in late_modes.iter().rev() {
            scope.set_directory_mode(entry, *mode)?;
        }
        Ok(())
    }
}

fn hold(part_lock: &PartLock) -> MutexGuard<'_, ()> {
    part_lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wrong_kind() -> TransferError {
    TransferError::Violation("a file has no entries, and a directory has only entries".into())
}

/// Identifies a version of a file without reading it.
fn version(meta: &FileMeta) -> String {
    format!("{:x}-{:x}-{:x}-{:x}", meta.id.dev, meta.id.ino, meta.size, meta.modified_ns)
}

/// The name of the part file of one entry. Several entries of a directory may be received at once.
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

impl SourceFile for Source {
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

/// A part file with its record, which is erased when the file is complete.
struct RecordedPart {
    partial: PartialFile,
    records: PartRecords,
    part_lock: PartLock,
    transfer: String,
    name: String,
}

impl PartFile for RecordedPart {
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
        let _held = hold(&self.part_lock);
        // The file is complete. A record that cannot be erased now names no file, and a later sweep removes it.
        let _ = self.records.erase(&self.transfer, &self.name);
        Ok(())
    }
}
