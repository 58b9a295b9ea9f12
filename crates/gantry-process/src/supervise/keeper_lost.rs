//! Ends a command's processes after its keeper was lost.
//!
//! On Linux this is the work of the keeper's guard (see `keeper/guard.rs`), which reaches exactly
//! the processes below it. A stuck keeper is killed here so that its guard takes over. If the guard
//! was killed too, or on systems without one, the engine itself kills the command's group and every
//! process in the keeper's session.

use rustix::process::{Pid, Signal};

use crate::session::record::SessionRecord;
use crate::supervise::keeper_link::Link;
#[cfg(target_os = "linux")]
use {
    crate::keeper::KILL_LIMIT, crate::os::process_table, crate::session::record::ProcessName,
    std::time::Duration, tokio::time::Instant,
};

#[cfg(target_os = "linux")]
const LOOK_EVERY: Duration = Duration::from_millis(2);
#[cfg(target_os = "linux")]
const STRAYS_LIMIT: Duration = KILL_LIMIT.saturating_add(Duration::from_secs(1));

/// Returns when no process is left, or when nothing more can be done.
pub(crate) async fn end_orphans(link: &mut Link, target: Option<i32>) {
    let keeper = link.child_pid();
    #[cfg(target_os = "linux")]
    if let Some(guard) = keeper
        && guard::has_taken_over(guard).await
    {
        return;
    }
    if let Some(group) = target.and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    // The keeper is not reaped yet, so its session id cannot have been reused.
    #[cfg(target_os = "linux")]
    for process in process_table::all().filter(|process| Some(process.session) == keeper) {
        process_table::signal(&process, Signal::KILL);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = keeper;
    link.kill_keeper();
}

/// Does the work of [`end_orphans`] for a keeper that a previous engine started, from that engine's
/// record.
#[cfg(target_os = "linux")]
pub(crate) async fn end_strays(record: &SessionRecord) {
    if record.boot.is_some() && record.boot != process_table::boot() {
        return;
    }
    let lives = |name: &ProcessName| {
        process_table::stat(name.pid).filter(|now| Some(now.started) == name.started && !now.zombie)
    };
    let deadline = Instant::now() + STRAYS_LIMIT;
    while let Some(guard) = record.guard.as_ref().and_then(lives)
        && Instant::now() < deadline
    {
        // The guard's only child is a stuck keeper, or what a dead keeper left.
        let children = process_table::all().filter(|process| process.parent == guard.pid);
        children.for_each(|process| process_table::signal(&process, Signal::KILL));
        tokio::time::sleep(LOOK_EVERY).await;
    }
    // The guard was killed as well. What is left is led by the command's own process.
    while let Some(leader) = lives(&record.process)
        && Instant::now() < deadline
    {
        let mut strays = process_table::below([leader.pid]);
        strays.extend(process_table::all().filter(|process| process.group == leader.pid));
        for process in strays {
            process_table::signal(&process, Signal::KILL);
        }
        process_table::signal(&leader, Signal::KILL);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// On other systems a PID alone does not identify a process, so nothing is killed.
#[cfg(not(target_os = "linux"))]
pub(crate) async fn end_strays(_record: &SessionRecord) {}

#[cfg(target_os = "linux")]
mod guard {
    use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
    use tokio::time::Instant;

    use super::{LOOK_EVERY, STRAYS_LIMIT};
    use crate::os::process_table;

    /// Reports whether the guard ended everything that its keeper left, and then exited.
    pub(super) async fn has_taken_over(guard: i32) -> bool {
        let deadline = Instant::now() + STRAYS_LIMIT;
        while Instant::now() < deadline {
            match own_end(guard) {
                Some(by_itself) => return by_itself,
                // The guard's only child is the keeper, or what a dead keeper left.
                None => process_table::all()
                    .filter(|process| process.parent == guard)
                    .for_each(|process| process_table::signal(&process, Signal::KILL)),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        false
    }

    /// Returns whether the guard exited (true) or was killed (false); `None` while it runs. It is
    /// not reaped here.
    fn own_end(guard: i32) -> Option<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        match rustix::process::waitid(WaitId::Pid(Pid::from_raw(guard)?), options) {
            Ok(Some(status)) => Some(status.exited()),
            Ok(None) => None,
            Err(_) => Some(false),
        }
    }
}
