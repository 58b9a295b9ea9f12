//! Objects in a folder: temporary file, sync, rename, sync of the folder. A lock per key, shared by processes, makes
//! changes atomic.

use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustix::fs::{FlockOperation, flock};

use super::{
    Depth, ListedObject, MAX_LISTED, Object, ObjectError, ObjectInfo, ObjectListing, ObjectReader,
    ReaderInner, content_type, mode,
};
use crate::staged::Staged;

/// Enough locks that two busy keys rarely share one. Keys that share a lock only wait for each other.
const LOCKS: u64 = 64;
const BLOCK: usize = 1 << 20;
/// Temporary files of dead processes are removed after this time.
const TEMP_LIFE: Duration = Duration::from_secs(24 * 3600);
/// How often to retry when a folder that became empty is removed during a put.
const TRIES: usize = 100;

#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    data: PathBuf,
    temp: PathBuf,
    locks: PathBuf,
    swept: Once,
}

#[derive(Debug)]
pub(super) struct FolderReader {
    file: Arc<File>,
    key: String,
    offset: u64,
    size: u64,
}

impl FolderReader {
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ObjectError> {
        if self.offset >= self.size {
            return Ok(None);
        }
        let wanted = usize::try_from(self.size - self.offset).unwrap_or(BLOCK).min(BLOCK);
        let (file, offset) = (Arc::clone(&self.file), self.offset);
        let read = tokio::task::spawn_blocking(move || {
            let mut block = vec![0; wanted];
            file.read_exact_at(&mut block, offset).map(|()| Bytes::from(block))
        });
        let block = read.await.map_err(io::Error::other).and_then(|read| read);
        let block = block.map_err(io_error("read", &self.key))?;
        self.offset += block.len() as u64;
        Ok(Some(block))
    }
}

impl Folder {
    pub(super) fn new(root: PathBuf) -> Folder {
        let (data, temp, locks) = (root.join("data"), root.join("temp"), root.join("locks"));
        Folder { root, data, temp, locks, swept: Once::new() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn head(&self, key: &str) -> Result<Option<ObjectInfo>, ObjectError> {
        Ok(self.open_file(key)?.map(|(_, info)| info))
    }

    pub(super) fn get(&self, key: &str, limit: u64) -> Result<Option<Object>, ObjectError> {
        let Some((file, info)) = self.open_file(key)? else { return Ok(None) };
        if info.size > limit {
            return Err(ObjectError::TooLarge { key: key.to_owned(), size: info.size, limit });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(info.size).unwrap_or(0));
        file.take(limit).read_to_end(&mut bytes).map_err(io_error("read", key))?;
        Ok(Some(Object { info, bytes: bytes.into() }))
    }

    pub(super) fn open(
        &self,
        key: &str,
        offset: u64,
        etag: Option<&str>,
    ) -> Result<Option<ObjectReader>, ObjectError> {
        let Some((file, info)) = self.open_file(key)? else { return Ok(None) };
        if etag.is_some_and(|etag| etag != info.etag) {
            return Err(ObjectError::Changed { key: key.to_owned() });
        }
        let reader = FolderReader { file: Arc::new(file), key: key.to_owned(), offset, size: info.size };
        Ok(Some(ObjectReader { info, inner: ReaderInner::Folder(reader) }))
    }

    pub(super) fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
        let temp = self.temp(key)?;
        temp.file().write_all(bytes).map_err(io_error("write", key))?;
        let _lock = self.lock(key)?;
        let replaced = self.open_file(key)?;
        self.place(key, temp, replaced.and_then(|(_, info)| info.mode))
    }

    pub(super) fn put_staged(
        &self,
        key: &str,
        staged: &Staged,
        mode: Option<u32>,
    ) -> Result<(), ObjectError> {
        mode::set_on_file(staged.file(), mode).map_err(io_error("write", key))?;
        staged.file().sync_all().map_err(io_error("write", key))?;
        let _lock = self.lock(key)?;
        match self.rename_in(key, staged.path()) {
            Err(ObjectError::Io { cause, .. }) if cause.kind() == ErrorKind::CrossesDevices => {}
            placed => return placed,
        }
        let temp = self.temp(key)?;
        let mut source = File::open(staged.path()).map_err(io_error("read", key))?;
        io::copy(&mut source, &mut temp.file()).map_err(io_error("write", key))?;
        self.place(key, temp, mode)?;
        std::fs::remove_file(staged.path()).map_err(io_error("write", key))
    }

    pub(super) fn update<T, E>(
        &self,
        key: &str,
        limit: u64,
        change: &mut impl FnMut(Option<Object>) -> Result<(Vec<u8>, T), E>,
    ) -> Result<Result<T, E>, ObjectError> {
        let _lock = self.lock(key)?;
        let found = self.get(key, limit)?;
        let mode = found.as_ref().and_then(|object| object.info.mode);
        let (bytes, result) = match change(found) {
            Ok(changed) => changed,
            Err(err) => return Ok(Err(err)),
        };
        let temp = self.temp(key)?;
        temp.file().write_all(&bytes).map_err(io_error("write", key))?;
        self.place(key, temp, mode)?;
        Ok(Ok(result))
    }

    pub(super) fn delete(&self, key: &str) -> Result<bool, ObjectError> {
        let _lock = self.lock(key)?;
        let path = self.data.join(key);
        if self.open_file(key)?.is_none() {
            return Ok(false);
        }
        std::fs::remove_file(&path).map_err(io_error("delete", key))?;
        self.sync_above(key).map_err(io_error("delete", key))?;
        // Empty folders are removed too, up to the first that is not empty. Listings skip one that a crash leaves.
        let mut folder = path.parent().filter(|folder| *folder != self.data);
        while let Some(empty) = folder {
            if std::fs::remove_dir(empty).is_err() {
                break;
            }
            folder = empty.parent().filter(|folder| *folder != self.data);
        }
        Ok(true)
    }

    pub(super) fn copy(&self, from: &str, to: &str) -> Result<u64, ObjectError> {
        let (mut source, info) =
            self.open_file(from)?.ok_or_else(|| ObjectError::NotFound { key: from.to_owned() })?;
        let temp = self.temp(to)?;
        io::copy(&mut source, &mut temp.file()).map_err(io_error("copy", to))?;
        let _lock = self.lock(to)?;
        self.place(to, temp, info.mode)?;
        Ok(info.size)
    }

    pub(super) fn list(&self, prefix: &str, depth: Depth) -> Result<ObjectListing, ObjectError> {
        let mut listing = ObjectListing::default();
        // A stack of folders to read, the next one last: this yields keys in order without recursion.
        let mut waiting = vec![ListingStep::Below(prefix.to_owned())];
        while let Some(next) = waiting.pop() {
            if listing.objects.len() + listing.prefixes.len() >= MAX_LISTED {
                listing.truncated = true;
                break;
            }
            match next {
                ListingStep::Object(object) => listing.objects.push(object),
                ListingStep::Below(below) if depth == Depth::One && below != prefix => {
                    // A crash may leave a folder without objects, which is not listed.
                    if self.holds_any(&below)? {
                        listing.prefixes.push(below);
                    }
                }
                ListingStep::Below(below) => {
                    let mut entries = self.entries(&below)?;
                    entries.sort_by(|one, other| other.name().cmp(one.name()));
                    waiting.extend(entries);
                }
            }
        }
        Ok(listing)
    }

    /// Whether any object exists below.
    fn holds_any(&self, prefix: &str) -> Result<bool, ObjectError> {
        let mut folders = vec![prefix.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in self.entries(&folder)? {
                match entry {
                    ListingStep::Object(_) => return Ok(true),
                    ListingStep::Below(below) => folders.push(below),
                }
            }
        }
        Ok(false)
    }

    fn entries(&self, prefix: &str) -> Result<Vec<ListingStep>, ObjectError> {
        let failed = io_error("list", prefix);
        let entries = match std::fs::read_dir(self.data.join(prefix)) {
            Err(err) if matches!(err.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Vec::new());
            }
            entries => entries.map_err(&failed)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(&failed)?;
            // Keys are UTF-8; other file names were not created by this store.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let metadata = match entry.metadata() {
                Err(err) if err.kind() == ErrorKind::NotFound => continue,
                metadata => metadata.map_err(&failed)?,
            };
            let key = format!("{prefix}{name}");
            if metadata.is_dir() {
                found.push(ListingStep::Below(format!("{key}/")));
            } else if metadata.is_file() {
                found.push(ListingStep::Object(ListedObject {
                    key,
                    size: metadata.len(),
                    modified: modified(&metadata),
                }));
            }
        }
        Ok(found)
    }

    fn open_file(&self, key: &str) -> Result<Option<(File, ObjectInfo)>, ObjectError> {
        let file = match File::open(self.data.join(key)) {
            Err(err) if matches!(err.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            file => file.map_err(io_error("read", key))?,
        };
        let metadata = file.metadata().map_err(io_error("read", key))?;
        if !metadata.is_file() {
            return Ok(None);
        }
        let info = ObjectInfo {
            key: key.to_owned(),
            size: metadata.len(),
            modified: modified(&metadata),
            content_type: content_type(key).to_owned(),
            etag: format!(
                "{:x}-{:x}-{:x}.{:x}",
                metadata.ino(),
                metadata.len(),
                metadata.mtime(),
                metadata.mtime_nsec()
            ),
            mode: mode::of_file(&file),
        };
        Ok(Some((file, info)))
    }

    fn temp(&self, key: &str) -> Result<Temp, ObjectError> {
        self.swept.call_once(|| sweep(&self.temp));
        make_folder(&self.temp).map_err(io_error("write", key))?;
        let path = self.temp.join(uuid::Uuid::new_v4().simple().to_string());
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
        Ok(Temp { file: file.map_err(io_error("write", key))?, path })
    }

    /// Renames a temporary file to its key, durably.
    fn place(&self, key: &str, temp: Temp, mode: Option<u32>) -> Result<(), ObjectError> {
        mode::set_on_file(&temp.file, mode).map_err(io_error("write", key))?;
        temp.file.sync_all().map_err(io_error("write", key))?;
        self.rename_in(key, &temp.path)
    }

    fn rename_in(&self, key: &str, from: &Path) -> Result<(), ObjectError> {
        let path = self.data.join(key);
        let folder = path.parent().unwrap_or(&self.data);
        for _ in 0..TRIES {
            make_folder(folder).map_err(|err| self.conflict(key, err))?;
            match std::fs::rename(from, &path) {
                Err(err) if err.kind() == ErrorKind::NotFound && from.exists() => {}
                renamed => {
                    renamed.map_err(|err| self.conflict(key, err))?;
                    return self.sync_above(key).map_err(io_error("write", key));
                }
            }
        }
        Err(ObjectError::Changed { key: key.to_owned() })
    }

    /// Syncs every folder above a key, because another thread may have created one without a sync yet.
    fn sync_above(&self, key: &str) -> io::Result<()> {
        let path = self.data.join(key);
        let top = self.root.parent().unwrap_or(&self.root);
        for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(top)) {
            match File::open(folder).and_then(|folder| folder.sync_all()) {
                // Another process removed the empty folder meanwhile.
                Err(err) if err.kind() == ErrorKind::NotFound => {}
                synced => synced?,
            }
        }
        Ok(())
    }

    /// Reports a conflict between two keys; returns other errors unchanged.
    fn conflict(&self, key: &str, err: io::Error) -> ObjectError {
        let above = key.match_indices('/').map(|(at, _)| &key[..at]);
        if let Some(object) = above.into_iter().find(|above| self.data.join(above).is_file()) {
            return ObjectError::Conflict {
                key: key.to_owned(),
                why: format!("{object:?} is an object itself"),
            };
        }
        if self.data.join(key).is_dir() {
            return ObjectError::Conflict {
                key: key.to_owned(),
                why: "other objects lie below it".to_owned(),
            };
        }
        io_error("write", key)(err)
    }

    /// Locks a key against other threads and processes while it is changed.
    fn lock(&self, key: &str) -> Result<File, ObjectError> {
        let failed = io_error("lock", key);
        make_folder(&self.locks).map_err(&failed)?;
        let number = u64::from_le_bytes(first_eight(blake3::hash(key.as_bytes()).as_bytes())) % LOCKS;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(self.locks.join(number.to_string())).map_err(&failed)?;
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Err(rustix::io::Errno::INTR) => {}
                locked => return locked.map(|()| file).map_err(|err| failed(err.into())),
            }
        }
    }
}

/// A step of a listing.
enum ListingStep {
    Object(ListedObject),
    Below(String),
}

impl ListingStep {
    fn name(&self) -> &str {
        match self {
            ListingStep::Object(object) => &object.key,
            ListingStep::Below(prefix) => prefix,
        }
    }
}

/// A temporary file that is removed on drop unless it was renamed.
struct Temp {
    file: File,
    path: PathBuf,
}

impl Temp {
    fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn first_eight(bytes: &[u8; 32]) -> [u8; 8] {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[..8]);
    eight
}

/// Creates a folder and its missing parents.
fn make_folder(folder: &Path) -> io::Result<()> {
    for _ in 0..TRIES {
        match DirBuilder::new().mode(0o700).create(folder) {
            Ok(()) => return Ok(()),
            Err(err) if err.kind() == ErrorKind::AlreadyExists => match std::fs::metadata(folder) {
                Ok(found) if found.is_dir() => return Ok(()),
                Ok(_) => return Err(ErrorKind::NotADirectory.into()),
                // Another process removed the empty folder meanwhile.
                Err(err) if err.kind() == ErrorKind::NotFound => {}
                Err(err) => return Err(err),
            },
            Err(err) if err.kind() == ErrorKind::NotFound => {
                // The recursion is limited by the number of segments of a key.
                make_folder(folder.parent().ok_or(err)?)?;
            }
            Err(err) => return Err(err),
        }
    }
    Err(ErrorKind::NotFound.into())
}

/// Removes temporary files of dead processes. Errors are ignored; the files stay.
fn sweep(temp: &Path) {
    for entry in std::fs::read_dir(temp).into_iter().flatten().flatten() {
        let age = entry
            .metadata()
            .and_then(|metadata| metadata.modified())
            .map(|modified| SystemTime::now().duration_since(modified).unwrap_or_default());
        if age.is_ok_and(|age| age > TEMP_LIFE) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn modified(metadata: &Metadata) -> i64 {
    metadata.mtime() * 1000 + metadata.mtime_nsec() / 1_000_000
}

fn io_error(doing: &'static str, key: &str) -> impl Fn(io::Error) -> ObjectError {
    let key = key.to_owned();
    move |cause| ObjectError::Io { doing, key: key.clone(), cause }
}
