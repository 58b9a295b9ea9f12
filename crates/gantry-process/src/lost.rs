//! When a keeper was killed: its command's processes are orphans, and the engine ends those it can still recognise.

use rustix::process::{Pid, Signal};

/// Kills the command's group, and on Linux everything in the keeper's session.
pub(crate) fn end_orphans(keeper: Option<i32>, target: Option<i32>) {
    if let Some(group) = target.and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    #[cfg(target_os = "linux")]
    if let Some(keeper) = keeper {
        end_session(keeper);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = keeper;
}

/// The keeper is not reaped yet, so the number of its session cannot belong to anybody else.
#[cfg(target_os = "linux")]
fn end_session(keeper: i32) {
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some(pid) = pid
            && pid != keeper
            && session_of(pid) == Some(keeper)
            && let Some(pid) = Pid::from_raw(pid)
        {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

#[cfg(target_os = "linux")]
fn session_of(pid: i32) -> Option<i32> {
    let session = rustix::process::getsid(Pid::from_raw(pid)).ok()?;
    Some(session.as_raw_nonzero().get())
}
