//! How many files may be open: a gateway has a socket for every machine, while the commands it runs keep the limit that
//! was set for them. Some programs cannot handle, or take long to close, as many as a gateway may have.

use std::ffi::{OsStr, OsString};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than the gateway takes in.
const ENOUGH: u64 = 64 * 1024;

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

/// What [`raise`] gave, in a process that it was given to.
pub(crate) fn restore(before: &OsStr) {
    if let Some(before) = before.to_str().and_then(|before| before.parse().ok()) {
        let limit = getrlimit(Resource::Nofile);
        // A lower limit is always allowed.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(before), ..limit });
    }
}
