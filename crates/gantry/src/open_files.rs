//! How many files may be open: a gateway has a socket for every machine, while the commands it runs keep the limit that
//! was set for them. Some programs cannot handle, or take long to close, as many as a gateway may have.

use std::ffi::{OsStr, OsString};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than the gateway takes in.
const ENOUGH: u64 = 64 * 1024;

/// Files that connections leave for everything else, where there are as many.
const KEPT_BACK: u64 = 1024;

/// A limit below this is worth a word.
const LOW: u64 = 4096;

/// Allows this process as many files as it may need. Gives the argument that a keeper restores the former limit by.
pub(crate) fn raise() -> Option<OsString> {
    let limit = getrlimit(Resource::Nofile);
    let before = limit.current?;
    let wanted = limit.maximum.map_or(ENOUGH, |most| most.min(ENOUGH));
    if before >= wanted {
        return None;
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).ok()?;
    Some(before.to_string().into())
}

/// How many connections leave enough files for what is done on them: databases, files that are read, commands with their
/// pipes. The limit is told where it is low.
pub(crate) fn room_for_connections() -> (usize, Option<u64>) {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(ENOUGH);
    let connections = limit - (limit / 2).min(KEPT_BACK);
    (usize::try_from(connections).unwrap_or(usize::MAX), (limit < LOW).then_some(limit))
}

/// What [`raise`] gave, in a process that it was given to.
pub(crate) fn restore(before: &OsStr) {
    if let Some(before) = before.to_str().and_then(|before| before.parse().ok()) {
        let limit = getrlimit(Resource::Nofile);
        // A lower limit is always allowed.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(before), ..limit });
    }
}
