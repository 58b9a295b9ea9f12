//! The memory limit of a worker: the soft limit of its data (`RLIMIT_DATA`). Keepers restore the old limit, so that
//! commands are not bound by it.

use std::ffi::{OsStr, OsString};
use std::io::{Error, ErrorKind};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The prefix of a keeper's argument with the limit to restore.
const ARGUMENT: &str = "data-limit=";

/// `MemoryLimit` is a limit in effect, and the one before it.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLimit {
    before: Option<u64>,
}

impl MemoryLimit {
    /// The argument with which a keeper restores the limit from before.
    pub fn keeper_argument(&self) -> OsString {
        let before = self.before.map_or_else(|| "none".to_owned(), |before| before.to_string());
        format!("{ARGUMENT}{before}").into()
    }
}

/// Sets the limit that the engine sent.
pub(super) fn apply(bytes: &[u8]) -> Result<MemoryLimit, Error> {
    let bytes = std::str::from_utf8(bytes).ok().and_then(|bytes| bytes.parse().ok());
    let wanted: u64 = bytes.ok_or(ErrorKind::InvalidData)?;
    let limit = getrlimit(Resource::Data);
    let wanted = limit.current.map_or(wanted, |current| current.min(wanted));
    setrlimit(Resource::Data, Rlimit { current: Some(wanted), ..limit })?;
    Ok(MemoryLimit { before: limit.current })
}

/// Restores the limit, in a keeper. Ignores other arguments.
pub fn restore(argument: &OsStr) {
    let Some(before) = argument.to_str().and_then(|text| text.strip_prefix(ARGUMENT)) else { return };
    let before = match before {
        "none" => None,
        bytes => match bytes.parse() {
            Ok(bytes) => Some(bytes),
            Err(_) => return,
        },
    };
    let limit = getrlimit(Resource::Data);
    // The hard limit was not changed, so the old soft limit is allowed.
    let _ = setrlimit(Resource::Data, Rlimit { current: before, ..limit });
}
