//! The fallback for systems without /proc and subreapers: only the process group can be reached.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal};

pub(super) struct Process;

pub(super) fn adopt() -> Result<(), std::io::Error> {
    Ok(())
}

pub(super) fn watch(_pid: Pid) -> Option<OwnedFd> {
    None
}

pub(super) fn list() -> Vec<Process> {
    Vec::new()
}

pub(super) fn signal(_process: &Process, _signal: Signal) {}

pub(super) fn group_remains(group: Pid) -> bool {
    rustix::process::test_kill_process_group(group).is_ok()
}
