//! Reads /proc: parents, sessions and start times of processes. Signals exactly the process that
//! was read.

use std::collections::HashMap;

use rustix::process::{Pid, PidfdFlags, Signal};

pub(crate) struct Stat {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// The process has ended and waits to be reaped.
    pub(crate) zombie: bool,
    /// PIDs are reused, but a PID with its start time is unique.
    pub(crate) started: u64,
}

/// Iterates over all visible processes.
pub(crate) fn all() -> impl Iterator<Item = Stat> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| stat(entry.file_name().to_str()?.parse().ok()?))
}

pub(crate) fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may itself contain any byte, parentheses included.
    let after_name = text.iter().rposition(|byte| *byte == b')')? + 2;
    let mut fields = std::str::from_utf8(text.get(after_name..)?).ok()?.split(' ');
    let zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    let started = fields.nth(15)?.parse().ok()?;
    Some(Stat { pid, parent, group, session, zombie, started })
}

/// Lists every process below these, at any depth.
pub(crate) fn below(parents: impl IntoIterator<Item = i32>) -> Vec<Stat> {
    let mut children: HashMap<i32, Vec<Stat>> = HashMap::new();
    for process in all() {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut parents: Vec<i32> = parents.into_iter().collect();
    while let Some(parent) = parents.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            parents.push(child.pid);
            found.push(child);
        }
    }
    found
}

/// Identifies this boot of the machine. PIDs of another boot are meaningless.
pub(crate) fn boot() -> Option<String> {
    Some(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

/// Opens a pidfd first and compares the start time afterwards, so that a reused PID is never
/// signalled.
pub(crate) fn signal(process: &Stat, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return };
    if stat(process.pid).is_some_and(|now| now.started == process.started) {
        let _ = rustix::process::pidfd_send_signal(handle, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_has_parent_and_session() {
        let own = stat(rustix::process::getpid().as_raw_nonzero().get()).unwrap();
        assert!(own.started > 0 && all().any(|process| process.pid == own.pid));
        // The test's own session may have begun outside this PID namespace, where it has no number.
        // A new session has one.
        let mut leader = std::process::Command::new("setsid")
            .args(["sh", "-c", "echo; read _"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Read::read_exact(leader.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let child = stat(leader.id().cast_signed()).unwrap();
        assert_eq!((child.parent, child.session), (own.pid, child.pid));
        drop(leader.stdin.take());
        leader.wait().unwrap();
        assert!(stat(-1).is_none());
    }
}
