//! Raises the limit of open files for a gateway, which has a socket per machine. The commands it runs keep the old limit,
//! because some programs fail or become slow with a high one.

use std::ffi::OsStr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit that a gateway asks for.
const ENOUGH: u64 = 64 * 1024;

/// The prefix of a keeper's argument with the limit to restore.
const ARGUMENT: &str = "open-files=";

/// Files that are reserved for everything except connections.
const KEPT_BACK: u64 = 1024;

/// A limit below this is reported as a warning.
const LOW: u64 = 4096;

/// Raises this process's limit. Returns the argument with which a keeper restores the old limit.
pub(crate) fn raise() -> Option<String> {
    let limit = getrlimit(Resource::Nofile);
    let before = limit.current?;
    let wanted = limit.maximum.map_or(ENOUGH, |most| most.min(ENOUGH));
    if before >= wanted {
        return None;
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).ok()?;
    Some(format!("{ARGUMENT}{before}"))
}

/// Returns how many connections leave enough files for databases, file tools and commands. Also returns the limit if it is
/// low.
pub(crate) fn room_for_connections() -> (usize, Option<u64>) {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(ENOUGH);
    let connections = limit - (limit / 2).min(KEPT_BACK);
    (usize::try_from(connections).unwrap_or(usize::MAX), (limit < LOW).then_some(limit))
}

/// Restores the limit that [`raise`] returned, in a keeper. Ignores other arguments.
pub(crate) fn restore(argument: &OsStr) {
    let before = argument.to_str().and_then(|text| text.strip_prefix(ARGUMENT));
    if let Some(before) = before.and_then(|before| before.parse().ok()) {
        let limit = getrlimit(Resource::Nofile);
        // A lower limit is always allowed.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(before), ..limit });
    }
}
