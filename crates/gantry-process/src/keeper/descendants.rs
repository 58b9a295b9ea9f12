//! Finds and signals every process below the keeper, whatever group or session it fled to.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal};

/// A process, with the time it started: numbers are reused, the pair is not.
pub(super) struct Process {
    pid: i32,
    started: u64,
}

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
pub(super) fn list() -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Stat>> = HashMap::new();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    for entry in entries.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some(stat) = pid.and_then(stat) {
            children.entry(stat.parent).or_default().push(stat);
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![rustix::process::getpid().as_raw_nonzero().get()];
    while let Some(parent) = parents.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            parents.push(child.pid);
            found.push(Process { pid: child.pid, started: child.started });
        }
    }
    found
}

/// Signals through a handle that is taken first and compared then, so that a reused number is never hit.
pub(super) fn signal(process: &Process, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return };
    if stat(process.pid).is_some_and(|now| now.started == process.started) {
        let _ = rustix::process::pidfd_send_signal(handle, signal);
    }
}

struct Stat {
    pid: i32,
    parent: i32,
    started: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may itself contain anything, parentheses included.
    let after_name = text.iter().rposition(|byte| *byte == b')')? + 2;
    let mut fields = std::str::from_utf8(text.get(after_name..)?).ok()?.split(' ');
    let parent = fields.nth(1)?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(Stat { pid, parent, started })
}
