//! The storage behind a transfer service. [`PathOpener`] decides whether a path may be used and opens it;
//! [`TransferBackend`] then reads and writes below it.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use gantry_protocol::{
    ManifestPage, TransferMake, TransferOpen, TransferOpened, TransferParts, TransferPrepare,
    TransferPrepared, WireError,
};
use tokio_util::sync::CancellationToken;

use crate::error::TransferError;

pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, WireError>> + Send + 'a>>;

/// Opens the paths of a transfer, if the caller may use them. The backend of the same service then works on
/// what was opened.
pub trait PathOpener: Send + Sync + 'static {
    /// Opens a source, if the caller may read it.
    fn open(&self, request: TransferOpen, cancel: CancellationToken) -> BackendFuture<'_, TransferOpened>;

    /// Prepares a destination, if the caller may write it.
    fn prepare(
        &self,
        request: TransferPrepare,
        cancel: CancellationToken,
    ) -> BackendFuture<'_, TransferPrepared>;
}

/// The open sources and destinations of one service. All methods may block and are called on a blocking thread.
pub trait TransferBackend: Send + Sync + 'static {
    /// Returns the next entries of an opened directory.
    fn page(&self, transfer: &str) -> Result<ManifestPage, TransferError>;

    fn source_file(&self, transfer: &str, entry: Option<&str>) -> Result<Box<dyn SourceFile>, TransferError>;

    /// Opens the part file of an entry, or creates it. Only one handle per part file may exist.
    fn part_file(&self, transfer: &str, entry: Option<&str>) -> Result<Box<dyn PartFile>, TransferError>;

    /// Creates a directory or a link below a prepared directory.
    fn make(&self, request: &TransferMake) -> Result<(), TransferError>;

    /// Ends a transfer after all entries that were not skipped are complete: applies delayed modes, removes
    /// part files of skipped entries, and forgets the transfer.
    fn finish(&self, transfer: &str) -> Result<(), TransferError>;

    /// Removes all part files of a transfer, also those of an earlier process, and forgets the transfer.
    fn abandon(&self, transfer: &str) -> Result<(), TransferError>;

    /// Returns the transfers that have part files here.
    fn parts(&self) -> Result<TransferParts, TransferError>;

    /// Removes part files that were not written for `older_than`. Returns how many.
    fn sweep(&self, older_than: Duration) -> Result<usize, TransferError>;
}

/// A file to send.
pub trait SourceFile: Send + 'static {
    fn size(&self) -> u64;

    /// Fills `block` from `offset`. Fewer bytes mean that the file ends there. Callers only increase `offset`.
    fn read_at(&mut self, offset: u64, block: &mut [u8]) -> Result<usize, TransferError>;

    /// Fails if the file was written since it was opened.
    fn check_unchanged(&self) -> Result<(), TransferError>;
}

/// A file that is being received. Dropping it keeps the received bytes.
pub trait PartFile: Send + 'static {
    fn length(&self) -> u64;

    /// Hashes the received bytes. The caller continues with the returned hasher.
    fn hash_prefix(&self) -> Result<blake3::Hasher, TransferError>;

    fn truncate(&mut self, length: u64) -> Result<(), TransferError>;

    fn append(&mut self, bytes: &[u8]) -> Result<(), TransferError>;

    /// Renames the part file to its final name, durably.
    fn commit(self: Box<Self>, mode: u32) -> Result<(), TransferError>;
}

/// The longest path of an entry below a transferred directory.
pub const MAX_ENTRY_BYTES: usize = 4096;

/// Checks the path of an entry that another machine sent: only plain names, no `.` or `..`.
pub fn check_entry(entry: &str) -> Result<&str, TransferError> {
    let plain = |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains('\0');
    if !entry.split('/').all(plain) {
        return Err(TransferError::BadEntry(entry.chars().take(200).collect()));
    }
    if entry.len() > MAX_ENTRY_BYTES {
        return Err(TransferError::EntryTooLong(entry.len()));
    }
    Ok(entry)
}
