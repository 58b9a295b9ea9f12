//! What a desk needs of the place behind it: something to read from, something to write to, and trees.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use gantry_protocol::{
    ManifestPage, TransferMake, TransferOpen, TransferOpened, TransferParts, TransferPrepare,
    TransferPrepared, WireError,
};
use tokio_util::sync::CancellationToken;

use crate::error::TransferError;

pub type BooksFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, WireError>> + Send + 'a>>;

/// The transfers that one place has a part in. All but `open` and `prepare` may block and are asked on a blocking thread.
pub trait Books: Send + Sync + 'static {
    /// Opens a source, if its caller may read it.
    fn open(&self, ask: TransferOpen, cancel: CancellationToken) -> BooksFuture<'_, TransferOpened>;

    /// Prepares a destination, if its caller may write it.
    fn prepare(&self, ask: TransferPrepare, cancel: CancellationToken) -> BooksFuture<'_, TransferPrepared>;

    /// The next entries of an opened directory.
    fn page(&self, transfer: &str) -> Result<ManifestPage, TransferError>;

    fn origin(&self, transfer: &str, entry: Option<&str>) -> Result<Box<dyn Origin>, TransferError>;

    /// What has come of a file, or a new one. One at a time may be open.
    fn landing(&self, transfer: &str, entry: Option<&str>) -> Result<Box<dyn Landing>, TransferError>;

    /// Makes a directory or a link below a prepared directory.
    fn make(&self, ask: &TransferMake) -> Result<(), TransferError>;

    /// Everything has come but what was left out: what had to wait for that is done, parts of what was left out are removed,
    /// and the transfer is forgotten.
    fn finish(&self, transfer: &str) -> Result<(), TransferError>;

    /// Removes the parts that have come, also before an earlier start, and forgets the transfer.
    fn abandon(&self, transfer: &str) -> Result<(), TransferError>;

    /// The transfers of which parts are here.
    fn parts(&self) -> Result<TransferParts, TransferError>;

    /// Removes parts that nobody has written to for so long; returns how many.
    fn sweep(&self, older_than: Duration) -> Result<usize, TransferError>;
}

/// A file to be sent.
pub trait Origin: Send + 'static {
    fn size(&self) -> u64;

    /// Fills `block` from an offset; fewer bytes than it holds mean that the file ends there. Offsets only grow.
    fn read_at(&mut self, offset: u64, block: &mut [u8]) -> Result<usize, TransferError>;

    /// Fails if it was written since it was opened.
    fn check_unchanged(&self) -> Result<(), TransferError>;
}

/// A file that comes. Dropping it keeps what has come.
pub trait Landing: Send + 'static {
    fn length(&self) -> u64;

    /// Hashes what has come; the hasher goes on with what comes next.
    fn hash_prefix(&self) -> Result<blake3::Hasher, TransferError>;

    fn truncate(&mut self, length: u64) -> Result<(), TransferError>;

    fn append(&mut self, bytes: &[u8]) -> Result<(), TransferError>;

    /// Gives it its final name, durably.
    fn commit(self: Box<Self>, mode: u32) -> Result<(), TransferError>;
}

/// The longest path below a directory that is sent.
pub const MAX_ENTRY_BYTES: usize = 4096;

/// A path below a directory, as another machine tells it: only plain names.
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
