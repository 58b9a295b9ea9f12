//! [`Failure`] says why an attempt failed, by what the driver does next.

use gantry_protocol::{ErrorCode, WireError};
use gantry_tool::Refusal;
use gantry_toolsets::Endpoint;

#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// A connection was lost. The next attempt continues with the bytes that have arrived.
    Lost(String),
    /// The object store cannot be reached. The driver waits for it, up to the idle limit.
    StoreAway(String),
    /// The bytes that have arrived are wrong. The next attempt begins at zero.
    Restart(String),
    /// The source cannot be read. Below a directory, only this entry is skipped.
    Source(WireError),
    /// No other attempt can succeed.
    Final(WireError),
}

impl Failure {
    pub(crate) fn failed(message: impl Into<String>) -> Failure {
        Failure::Final(WireError::new(ErrorCode::Failed, message))
    }

    /// The gateway's own policy denies it.
    pub(crate) fn denied(refusal: Refusal) -> Failure {
        Failure::Final(refusal.to_wire())
    }

    /// Returns the cause when both endpoints failed. One of them usually reports only that the other one did.
    pub(crate) fn or(self, other: Failure) -> Failure {
        match (&self, &other) {
            (Failure::Final(_), _) => self,
            (_, Failure::Final(_)) => other,
            (Failure::Source(_), _) => self,
            (_, Failure::Source(_)) => other,
            (Failure::Restart(_), _) => self,
            (_, Failure::Restart(_)) => other,
            (_, Failure::StoreAway(_)) => other,
            _ => self,
        }
    }

    /// Adds the endpoint to the message.
    pub(crate) fn at(self, endpoint: &Endpoint) -> Failure {
        let place = match endpoint {
            Endpoint::Node { node, .. } => format!("on the node \"{node}\""),
            Endpoint::Workspace { .. } => "in the workspace".to_owned(),
        };
        match self {
            Failure::Final(error) => Failure::Final(prefixed(&place, error)),
            Failure::Source(error) => Failure::Source(prefixed(&place, error)),
            other => other,
        }
    }

    /// Adds the entry of a directory to the message.
    pub(crate) fn in_entry(self, path: &str) -> Failure {
        match self {
            Failure::Final(error) => Failure::Final(prefixed(path, error)),
            Failure::Restart(reason) => Failure::Restart(format!("{path}: {reason}")),
            other => other,
        }
    }

    /// Marks an answer of the sender as a failure to read the source.
    pub(crate) fn of_source(self) -> Failure {
        match self {
            Failure::Final(error) if matches!(error.code, ErrorCode::Failed | ErrorCode::Denied) => {
                Failure::Source(error)
            }
            other => other,
        }
    }
}

fn prefixed(place: &str, error: WireError) -> WireError {
    WireError { message: format!("{place}: {}", error.message), ..error }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Failure {
        match error.code {
            ErrorCode::Unavailable
            | ErrorCode::NotFound
            | ErrorCode::TooMany
            | ErrorCode::Deadline
            | ErrorCode::Cancelled => Failure::Lost(error.message),
            ErrorCode::PrefixMismatch | ErrorCode::Conflict => Failure::Restart(error.message),
            ErrorCode::UnknownMethod => Failure::failed("the node's version does not support transfers"),
            _ => Failure::Final(error),
        }
    }
}
