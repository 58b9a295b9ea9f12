//! When a keeper was killed: its command's processes are orphans, and the engine ends those it can still recognise.

use rustix::process::{Pid, Signal};

/// Kills the command's group, and on Linux everything in the keeper's session, if it made one.
///
/// The keeper is not reaped yet, so the number of its session cannot belong to anybody else.
pub(crate) fn end_orphans(keeper: Option<i32>, target: Option<i32>) {
    if let Some(group) = target.and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    #[cfg(target_os = "linux")]
    for process in crate::process_table::all().filter(|process| Some(process.session) == keeper) {
        if let Some(pid) = Pid::from_raw(process.pid) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = keeper;
}
