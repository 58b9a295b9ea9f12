//! Finds and signals every process below the keeper, whatever group or session it fled to.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::process_table::{self, Stat};

/// From now on orphans below us become our children instead of init's.
pub(super) fn adopt() -> Result<(), std::io::Error> {
    Ok(rustix::process::set_child_subreaper(Some(Pid::INIT))?)
}

/// Becomes readable when the process ends.
pub(super) fn watch(pid: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Members of a group are descendants here, and found as such.
pub(super) fn group_remains(_group: Pid) -> bool {
    false
}

/// Every process below us, whatever its distance.
pub(super) fn list() -> Vec<Stat> {
    process_table::below([rustix::process::getpid().as_raw_nonzero().get()])
}

pub(super) fn signal(process: &Stat, signal: Signal) {
    process_table::signal(process, signal);
}
