//! [`Staged`] holds a file that arrives in pieces for the object store. A crash loses no received bytes.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};

use crate::DataDir;

const HASH_BLOCK: usize = 1 << 20;
const MAX_ID_BYTES: usize = 64;

/// The ids of files that clients upload begin like this. They belong to no transfer.
pub const UPLOAD_PREFIX: &str = "upload-";

/// A partly received file. Dropping it keeps the bytes. Only one handle per id may exist.
#[derive(Debug)]
pub struct Staged {
    file: File,
    path: PathBuf,
    /// The record of its upload into a bucket.
    upload_record: PathBuf,
    length: u64,
}

impl Staged {
    /// Opens the staged file of an id, or creates it.
    pub fn open(data: &DataDir, id: &str) -> io::Result<Staged> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if id.is_empty() || id.len() > MAX_ID_BYTES || !id.bytes().all(allowed) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{id:?} cannot name a staged file"),
            ));
        }
        let folder = data.staging();
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let path = folder.join(id);
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| io::Error::new(io::ErrorKind::WouldBlock, "another transfer is writing it"))?;
        let length = file.metadata()?.len();
        Ok(Staged { file, path, upload_record: data.uploads().join(id), length })
    }

    /// Removes staged files that were not written for `older_than`. Returns how many.
    pub fn sweep(data: &DataDir, older_than: Duration) -> io::Result<usize> {
        let entries = match std::fs::read_dir(data.staging()) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries?,
        };
        let mut swept = 0;
        for entry in entries {
            let path = entry?.path();
            let Ok(file) = File::open(&path) else { continue };
            let modified = file.metadata()?.modified()?;
            let old = SystemTime::now().duration_since(modified).is_ok_and(|age| age >= older_than);
            if old && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                std::fs::remove_file(path)?;
                swept += 1;
            }
        }
        Ok(swept)
    }

    /// Returns the ids of staged files and of incomplete uploads.
    pub fn ids(data: &DataDir) -> io::Result<Vec<String>> {
        let mut ids = names_in(&data.staging())?;
        ids.extend(names_in(&data.uploads())?.into_iter().filter(|name| !name.contains('.')));
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Returns the number of received bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_at(self.length, bytes)
    }

    /// Writes at an offset, which must not exceed the length.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset > self.length {
            let message = format!("bytes for offset {offset} arrived when only {} had arrived", self.length);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.file.write_all_at(bytes, offset)?;
        self.length = self.length.max(offset + bytes.len() as u64);
        Ok(())
    }

    /// Removes everything after the first `length` bytes.
    pub fn truncate(&mut self, length: u64) -> io::Result<()> {
        let length = length.min(self.length);
        self.file.set_len(length)?;
        self.length = length;
        Ok(())
    }

    /// Hashes the received bytes in bounded memory. The caller continues with the returned hasher.
    pub fn hash_prefix(&self) -> io::Result<blake3::Hasher> {
        let mut hasher = blake3::Hasher::new();
        let mut block = vec![0; HASH_BLOCK];
        let mut offset = 0;
        while offset < self.length {
            let wanted = usize::try_from(self.length - offset).unwrap_or(HASH_BLOCK).min(HASH_BLOCK);
            self.file.read_exact_at(&mut block[..wanted], offset)?;
            hasher.update(&block[..wanted]);
            offset += wanted as u64;
        }
        Ok(hasher)
    }

    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Removes the file and the record of its upload.
    pub fn discard(self) -> io::Result<()> {
        match std::fs::remove_file(&self.upload_record) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            _ => {}
        }
        std::fs::remove_file(&self.path)
    }

    pub(crate) fn id(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub(crate) fn upload_record(&self) -> &Path {
        &self.upload_record
    }

    /// Returns when the file was last written, in nanoseconds since 1970.
    pub(crate) fn written(&self) -> io::Result<u128> {
        let modified = self.file.metadata()?.modified()?;
        Ok(modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl DataDir {
    /// Holds staged files.
    pub fn staging(&self) -> PathBuf {
        self.root().join("staging")
    }

    /// Holds the records of running uploads.
    pub fn uploads(&self) -> PathBuf {
        self.root().join("uploads")
    }
}

fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_bytes_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        let mut staged = Staged::open(&data, "t-1").unwrap();
        staged.append(b"hello ").unwrap();
        assert!(Staged::open(&data, "t-1").is_err(), "one at a time");
        drop(staged);
        let mut staged = Staged::open(&data, "t-1").unwrap();
        assert_eq!(staged.length(), 6);
        assert!(staged.write_at(7, b"x").is_err());
        staged.append(b"worlds").unwrap();
        staged.truncate(11).unwrap();
        assert_eq!(staged.hash_prefix().unwrap().finalize(), blake3::hash(b"hello world"));
        assert_eq!(Staged::sweep(&data, Duration::ZERO).unwrap(), 0, "it is open");
        drop(staged);
        assert_eq!(Staged::sweep(&data, Duration::from_secs(60)).unwrap(), 0, "it is young");
        assert_eq!(Staged::sweep(&data, Duration::ZERO).unwrap(), 1);
        for bad in ["", "..", "a/b", "a.b"] {
            assert!(Staged::open(&data, bad).is_err(), "{bad}");
        }
    }
}
