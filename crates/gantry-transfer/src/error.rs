//! What can go wrong with a transfer, sorted by what the gateway does about it.

use std::io::ErrorKind;

use gantry_files::FileError;
use gantry_protocol::{ErrorCode, WireError};

use crate::books::MAX_ENTRY_BYTES;

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
    /// The other end gave up, or the way there is cut.
    #[error("the stream ended early: {0}")]
    Ended(String),
    #[error("the other end broke the rules of streams: {0}")]
    Violation(String),
    /// Nobody honest says so: it is never tried again.
    #[error("{0:?} is no path below a directory")]
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
    /// `unavailable` and `not_found`: try again from what is there; `prefix_mismatch` and `conflict`: begin anew;
    /// `invalid_input`: the place cannot have that name, and never will.
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

/// The system cannot have such a name there: too long, or of characters that it does not take.
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
