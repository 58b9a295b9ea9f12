//! The errors of a transfer. Their wire codes decide whether the gateway resumes, restarts or fails it.

use std::io::ErrorKind;

use gantry_files::FileError;
use gantry_protocol::{ErrorCode, WireError};

use crate::backend::MAX_ENTRY_BYTES;

#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the source was changed while it was sent: {0}")]
    Changed(String),
    #[error("the bytes that the destination has are not the beginning of the source")]
    PrefixMismatch,
    #[error("what arrived is not what was sent: {0}")]
    NotWhole(String),
    /// The other end aborted the stream, or the connection was lost.
    #[error("the stream ended early: {0}")]
    Ended(String),
    #[error("the other end violated the stream protocol: {0}")]
    Violation(String),
    /// Only a malicious or broken peer sends such a path, so it is never retried.
    #[error("{0:?} is not a path below a directory")]
    BadEntry(String),
    #[error("its path is too long: {0} bytes, at most {MAX_ENTRY_BYTES}")]
    EntryTooLong(usize),
    #[error("no transfer {0:?} is open here")]
    Unknown(String),
    #[error("too many transfers are open here")]
    TooMany,
    #[error("cancelled")]
    Cancelled,
    #[error("{0}")]
    Other(WireError),
}

impl TransferError {
    /// Converts to a wire error. The code decides what the gateway does: `unavailable` and `not_found` resume,
    /// `prefix_mismatch` and `conflict` restart from the first byte, `invalid_input` fails for good.
    pub fn to_wire(&self) -> WireError {
        let code = match self {
            TransferError::File(FileError::Closed { .. } | FileError::Sensitive { .. }) => ErrorCode::Denied,
            TransferError::File(FileError::Cancelled) => ErrorCode::Cancelled,
            TransferError::File(FileError::ChangedMeanwhile { .. }) | TransferError::Changed(_) => {
                ErrorCode::Conflict
            }
            TransferError::File(error) if is_about_a_name(error) => ErrorCode::InvalidInput,
            TransferError::File(_) => ErrorCode::Failed,
            TransferError::BadEntry(_) | TransferError::EntryTooLong(_) => ErrorCode::InvalidInput,
            TransferError::PrefixMismatch | TransferError::NotWhole(_) => ErrorCode::PrefixMismatch,
            TransferError::Ended(_) | TransferError::Violation(_) => ErrorCode::Unavailable,
            TransferError::Unknown(_) => ErrorCode::NotFound,
            TransferError::TooMany => ErrorCode::TooMany,
            TransferError::Cancelled => ErrorCode::Cancelled,
            TransferError::Other(error) => return error.clone(),
        };
        WireError::new(code, self.to_string())
    }
}

/// Whether the file system rejects the name itself: too long, or with invalid characters.
fn is_about_a_name(error: &FileError) -> bool {
    match error {
        FileError::PathTooLong { .. } | FileError::NulInPath { .. } => true,
        FileError::Io { source, .. } => {
            source.raw_os_error().is_some()
                && matches!(source.kind(), ErrorKind::InvalidFilename | ErrorKind::InvalidInput)
        }
        _ => false,
    }
}
