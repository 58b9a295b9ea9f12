//! What can go wrong with a transfer, sorted by what the gateway does about it.

use gantry_files::FileError;
use gantry_protocol::{ErrorCode, WireError};

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
    /// `unavailable` and `not_found`: try again from what is there; `prefix_mismatch` and `conflict`: begin anew.
    pub fn to_wire(&self) -> WireError {
        let code = match self {
            TransferError::File(FileError::Closed { .. } | FileError::Sensitive { .. }) => ErrorCode::Denied,
            TransferError::File(FileError::ChangedMeanwhile { .. }) | TransferError::Changed(_) => {
                ErrorCode::Conflict
            }
            TransferError::File(_) => ErrorCode::Failed,
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
