//! [`ObjectBackend`] is the endpoint in agents' storage. Objects are read in place. Incoming files are staged
//! until they are complete.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use futures_util::{StreamExt, TryStreamExt, stream};
use gantry_protocol::{
    Caller, ErrorCode, ManifestPage, SentKind, TransferMake, TransferOpen, TransferOpened, TransferParts,
    TransferPrepare, TransferPrepared, WireEntry, WireEntryKind, WireError,
};
use gantry_store::{DataDir, Depth, ObjectError, ObjectReader, Objects, Staged, UPLOAD_PREFIX, content_type};
use gantry_tool::{Call, ToolError};
use gantry_toolsets::{StoredTree, WorkspacePath};
use gantry_transfer::{
    BackendFuture, PartFile, PathOpener, SourceFile, TransferBackend, TransferError, check_entry, part_name,
};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::meter::{Meter, Meters};

/// Marks an error in its details: the store cannot be reached, and the transfer may wait for it.
const STORE_AWAY: &str = "the store is away";

const PAGE_ENTRIES: usize = 512;

/// The mode of objects without one: those that a tool wrote, and all objects of a store that keeps no modes.
const FILE_MODE: u32 = 0o644;

/// Listings have no modes, so the metadata of each file of a page is read, this many at once.
const METADATA_READS: usize = 16;

/// How long to wait for a staged file whose receiver has not yet noticed that its stream is closed.
const LOCK_LIMIT: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct ObjectBackend {
    objects: Objects,
    data: DataDir,
    meters: Meters,
    sources: Mutex<HashMap<String, StoredSource>>,
    /// Keys of files, and of directories without the final slash, by transfer.
    destinations: Mutex<HashMap<String, String>>,
}

#[derive(Clone)]
enum StoredSource {
    Object { key: String, size: u64, etag: String },
    Folder { folder: WorkspacePath, entries: Arc<Mutex<VecDeque<WireEntry>>> },
}

impl ObjectBackend {
    pub(crate) fn new(objects: Objects, data: DataDir, meters: Meters) -> ObjectBackend {
        ObjectBackend { objects, data, meters, sources: Mutex::default(), destinations: Mutex::default() }
    }

    async fn open_source(&self, request: TransferOpen) -> Result<TransferOpened, WireError> {
        let path = WorkspacePath::new(&call(&request.caller)?, &request.path).map_err(tool_error)?;
        if !path.is_folder()
            && let Some((_, info)) = path.find(&self.objects).await.map_err(tool_error)?
        {
            let opened = TransferOpened {
                kind: SentKind::File,
                size: info.size,
                mode: info.mode.unwrap_or(FILE_MODE),
                version: info.etag.clone(),
                path: info.key.clone(),
                mime: Some(info.content_type),
            };
            let source = StoredSource::Object { key: info.key, size: info.size, etag: info.etag };
            lock(&self.sources).insert(request.transfer, source);
            return Ok(opened);
        }
        let failed = |message: String| Err(WireError::new(ErrorCode::Failed, message));
        let tree = StoredTree::below(&path, &self.objects).await.map_err(object_error)?;
        if tree.truncated {
            return failed(format!("{} holds too many files to be sent at once", path.shown()));
        }
        if tree.files.is_empty() {
            return failed(format!("no such file or directory: {}", path.shown()));
        }
        let entries = tree.files.into_iter().map(|file| WireEntry {
            path: file.path,
            kind: WireEntryKind::File { size: file.size, mode: FILE_MODE },
        });
        let entries = Arc::new(Mutex::new(entries.collect()));
        let opened = TransferOpened {
            kind: SentKind::Directory,
            size: 0,
            mode: 0o755,
            version: String::new(),
            path: path.key(),
            mime: None,
        };
        lock(&self.sources).insert(request.transfer, StoredSource::Folder { folder: path, entries });
        Ok(opened)
    }

    async fn prepare_destination(&self, request: TransferPrepare) -> Result<TransferPrepared, WireError> {
        let call = call(&request.caller)?;
        let failed = |message: String| Err(WireError::new(ErrorCode::Failed, message));
        let key = match request.kind {
            SentKind::File => {
                let path = WorkspacePath::written_file(&call, &request.path).map_err(tool_error)?;
                let below = format!("{}/", path.key());
                let below = self.objects.list(&below, Depth::One).await.map_err(object_error)?;
                if !below.objects.is_empty() || !below.prefixes.is_empty() {
                    return failed(format!("not a file but a directory: {}", path.shown()));
                }
                path.check_not_shared_folder(&self.objects).await.map_err(tool_error)?;
                path.key()
            }
            SentKind::Directory => {
                let path = WorkspacePath::new(&call, &request.path).map_err(tool_error)?;
                let is_root = path.shown() == "/";
                if !is_root && self.objects.head(&path.key()).await.map_err(object_error)?.is_some() {
                    return failed(format!("not a directory but a file: {}", path.shown()));
                }
                path.key()
            }
        };
        lock(&self.destinations).insert(request.transfer, key.clone());
        Ok(TransferPrepared { path: key })
    }

    /// Adds the stored mode to an entry. A file that was deleted meanwhile fails when it is sent.
    async fn with_mode(
        &self,
        folder: &WorkspacePath,
        mut entry: WireEntry,
    ) -> Result<WireEntry, ObjectError> {
        let found = folder.below(&entry.path).found(&self.objects).await?;
        if let (WireEntryKind::File { mode, .. }, Some(known)) =
            (&mut entry.kind, found.and_then(|info| info.mode))
        {
            *mode = known;
        }
        Ok(entry)
    }

    fn key(&self, transfer: &str, entry: Option<&str>) -> Result<String, TransferError> {
        let key = lock(&self.destinations).get(transfer).cloned().ok_or_else(|| unknown(transfer))?;
        Ok(match entry {
            None => key,
            Some(entry) => format!("{key}/{}", check_entry(entry)?),
        })
    }

    fn staged_ids(&self) -> Result<Vec<String>, TransferError> {
        let mut ids = Staged::ids(&self.data).map_err(|err| staging("list the staged files", &err))?;
        // Uploads of clients are no parts of transfers. The sweep removes those that nobody continues.
        ids.retain(|id| !id.starts_with(UPLOAD_PREFIX));
        Ok(ids)
    }

    fn discard_staged(&self, transfer: &str) -> Result<(), TransferError> {
        for id in self.staged_ids()?.iter().filter(|id| transfer_of(id) == transfer) {
            let discard = self.objects.discard_staged(self.open_staged(id)?);
            Handle::current().block_on(discard).map_err(stored)?;
        }
        Ok(())
    }

    fn open_staged(&self, id: &str) -> Result<Staged, TransferError> {
        let until = Instant::now() + LOCK_LIMIT;
        loop {
            match Staged::open(&self.data, id) {
                Err(err) if err.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < until => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                opened => return opened.map_err(|err| staging("stage the file", &err)),
            }
        }
    }
}

impl PathOpener for ObjectBackend {
    fn open(&self, request: TransferOpen, _cancel: CancellationToken) -> BackendFuture<'_, TransferOpened> {
        Box::pin(self.open_source(request))
    }

    fn prepare(
        &self,
        request: TransferPrepare,
        _cancel: CancellationToken,
    ) -> BackendFuture<'_, TransferPrepared> {
        Box::pin(self.prepare_destination(request))
    }
}

impl TransferBackend for ObjectBackend {
    fn page(&self, transfer: &str) -> Result<ManifestPage, TransferError> {
        let source = lock(&self.sources).get(transfer).cloned().ok_or_else(|| unknown(transfer))?;
        let StoredSource::Folder { entries, folder } = source else {
            return Err(TransferError::Violation("a file has no entries".into()));
        };
        let (page, last) = {
            let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
            let count = entries.len().min(PAGE_ENTRIES);
            let page: Vec<WireEntry> = entries.drain(..count).collect();
            (page, entries.is_empty())
        };
        let reads = stream::iter(page).map(|entry| self.with_mode(&folder, entry)).buffered(METADATA_READS);
        let entries = Handle::current().block_on(reads.try_collect()).map_err(stored)?;
        Ok(ManifestPage { entries, last })
    }

    fn source_file(&self, transfer: &str, entry: Option<&str>) -> Result<Box<dyn SourceFile>, TransferError> {
        let source = lock(&self.sources).get(transfer).cloned().ok_or_else(|| unknown(transfer))?;
        let (key, size, etag) = match (source, entry) {
            (StoredSource::Object { key, size, etag }, None) => (key, size, etag),
            (StoredSource::Folder { folder, .. }, Some(entry)) => {
                let path = folder.below(check_entry(entry)?);
                let found = Handle::current().block_on(path.found(&self.objects)).map_err(stored)?;
                let info = found.ok_or_else(|| stored(ObjectError::NotFound { key: path.key() }))?;
                (info.key, info.size, info.etag)
            }
            _ => {
                return Err(TransferError::Violation(
                    "a file has no entries, and a directory has only entries".into(),
                ));
            }
        };
        Ok(Box::new(ObjectSource { objects: self.objects.clone(), key, size, etag, reading: None }))
    }

    fn part_file(&self, transfer: &str, entry: Option<&str>) -> Result<Box<dyn PartFile>, TransferError> {
        let key = self.key(transfer, entry)?;
        let staged = self.open_staged(&part_name(transfer, entry))?;
        let meter = self.meters.find(transfer);
        Ok(Box::new(StagedPart { staged, objects: self.objects.clone(), key, meter }))
    }

    /// Does nothing for a directory, which exists as soon as an object is below it.
    fn make(&self, request: &TransferMake) -> Result<(), TransferError> {
        match request.target {
            None => Ok(()),
            Some(_) => Err(TransferError::Violation("the workspace has no links".into())),
        }
    }

    fn finish(&self, transfer: &str) -> Result<(), TransferError> {
        lock(&self.sources).remove(transfer);
        if lock(&self.destinations).remove(transfer).is_some() {
            // Only skipped files are still staged. A file that cannot be removed now is swept later.
            let _ = self.discard_staged(transfer);
        }
        Ok(())
    }

    fn abandon(&self, transfer: &str) -> Result<(), TransferError> {
        lock(&self.sources).remove(transfer);
        lock(&self.destinations).remove(transfer);
        self.discard_staged(transfer)
    }

    fn parts(&self) -> Result<TransferParts, TransferError> {
        let mut transfers: Vec<String> =
            self.staged_ids()?.iter().map(|id| transfer_of(id).to_owned()).collect();
        transfers.sort_unstable();
        transfers.dedup();
        Ok(TransferParts { transfers, more: false })
    }

    fn sweep(&self, older_than: Duration) -> Result<usize, TransferError> {
        Staged::sweep(&self.data, older_than).map_err(|err| staging("remove old staged files", &err))
    }
}

/// Returns the transfer of a staged file, whose name begins with the id of the transfer.
fn transfer_of(staged: &str) -> &str {
    const ID_CHARS: usize = uuid::fmt::Hyphenated::LENGTH;
    staged.get(..ID_CHARS).unwrap_or(staged)
}

/// An object that is being sent.
struct ObjectSource {
    objects: Objects,
    key: String,
    size: u64,
    etag: String,
    reading: Option<Reading>,
}

struct Reading {
    reader: ObjectReader,
    left: Bytes,
    offset: u64,
}

impl SourceFile for ObjectSource {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&mut self, offset: u64, block: &mut [u8]) -> Result<usize, TransferError> {
        let runtime = Handle::current();
        if self.reading.as_ref().is_none_or(|reading| reading.offset != offset) {
            let reader =
                runtime.block_on(self.objects.open(&self.key, offset, Some(&self.etag))).map_err(stored)?;
            let reader = reader.ok_or_else(|| stored(ObjectError::NotFound { key: self.key.clone() }))?;
            self.reading = Some(Reading { reader, left: Bytes::new(), offset });
        }
        let Some(reading) = &mut self.reading else { return Ok(0) };
        let mut filled = 0;
        while filled < block.len() {
            if reading.left.is_empty() {
                match runtime.block_on(reading.reader.next()).map_err(stored)? {
                    Some(bytes) => reading.left = bytes,
                    None => break,
                }
            }
            let count = reading.left.len().min(block.len() - filled);
            reading.left.copy_to_slice(&mut block[filled..filled + count]);
            filled += count;
        }
        reading.offset += filled as u64;
        Ok(filled)
    }

    /// The object cannot change while it is read, because every reader asks for the version of the etag.
    fn check_unchanged(&self) -> Result<(), TransferError> {
        Ok(())
    }
}

/// A file that is being received, and will become an object.
struct StagedPart {
    staged: Staged,
    objects: Objects,
    key: String,
    /// Notes progress while the complete file is uploaded to a bucket.
    meter: Option<Arc<Meter>>,
}

impl PartFile for StagedPart {
    fn length(&self) -> u64 {
        self.staged.length()
    }

    fn hash_prefix(&self) -> Result<blake3::Hasher, TransferError> {
        self.staged.hash_prefix().map_err(|err| staging("read the staged file", &err))
    }

    fn truncate(&mut self, length: u64) -> Result<(), TransferError> {
        self.staged.truncate(length).map_err(|err| staging("truncate the staged file", &err))
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        self.staged.append(bytes).map_err(|err| staging("write the staged file", &err))
    }

    fn commit(self: Box<Self>, mode: u32) -> Result<(), TransferError> {
        let StagedPart { staged, objects, key, meter } = *self;
        let moved = || meter.iter().for_each(|meter| meter.moved());
        let put = objects.put_staged(&key, staged, content_type(&key), Some(mode), &moved);
        Handle::current().block_on(put).map_err(stored)
    }
}

fn call(caller: &Caller) -> Result<Call, WireError> {
    Call::on_behalf(caller, "/".into())
}

fn lock<T>(table: &Mutex<HashMap<String, T>>) -> MutexGuard<'_, HashMap<String, T>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unknown(transfer: &str) -> TransferError {
    TransferError::Unknown(transfer.to_owned())
}

fn staging(doing: &str, err: &std::io::Error) -> TransferError {
    TransferError::Other(WireError::new(ErrorCode::Failed, format!("cannot {doing}: {err}")))
}

fn stored(err: ObjectError) -> TransferError {
    TransferError::Other(object_error(err))
}

/// Whether an error only means that the store cannot be reached.
pub(crate) fn is_store_away(error: &WireError) -> bool {
    error.code == ErrorCode::Unavailable
        && error.details.as_ref().is_some_and(|details| *details == STORE_AWAY)
}

fn object_error(err: ObjectError) -> WireError {
    if err.is_passing() {
        let error = WireError::new(ErrorCode::Unavailable, err.to_string());
        return WireError { details: Some(STORE_AWAY.into()), ..error };
    }
    let code = match err {
        ObjectError::BadKey(_) => ErrorCode::InvalidInput,
        ObjectError::Changed { .. } => ErrorCode::Conflict,
        _ => ErrorCode::Failed,
    };
    WireError::new(code, err.to_string())
}

fn tool_error(err: ToolError) -> WireError {
    let code = match err {
        ToolError::Input(_) => ErrorCode::InvalidInput,
        ToolError::Denied(_) => ErrorCode::Denied,
        _ => ErrorCode::Failed,
    };
    WireError::new(code, err.to_string())
}
