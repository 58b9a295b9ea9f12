//! Finds and signals every process below the keeper, whatever group or session it moved to.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::os::process_table::{self, Stat};

/// Makes this process the subreaper: from now on orphans below it become its children instead of
/// init's.
pub(super) fn adopt() -> Result<(), std::io::Error> {
    Ok(rustix::process::set_child_subreaper(Some(Pid::INIT))?)
}

/// Returns a descriptor that becomes readable when the process ends.
pub(super) fn watch(pid: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Always false on Linux, where `list` finds the members of a group as descendants.
pub(super) fn group_remains(_group: Pid) -> bool {
    false
}

/// Lists every process below this one, at any depth.
pub(super) fn list() -> Vec<Stat> {
    process_table::below([rustix::process::getpid().as_raw_nonzero().get()])
}

pub(super) fn signal(process: &Stat, signal: Signal) {
    process_table::signal(process, signal);
}
