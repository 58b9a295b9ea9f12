//! When a keeper was lost: makes sure that its command's processes are gone.
//!
//! On Linux that is the work of the keeper's guard (see `keeper/guard.rs`), which reaches exactly the processes below
//! it; here a keeper that is stuck is killed for the guard to take over. Only when the guard was killed as well, or
//! where there is none, the engine itself kills the command's group and whatever is in the keeper's session.

use rustix::process::{Pid, Signal};

use crate::link::Link;
use crate::record::SessionRecord;
#[cfg(target_os = "linux")]
use {
    crate::keeper::KILL_LIMIT, crate::process_table, crate::record::ProcessName, std::time::Duration,
    tokio::time::Instant,
};

#[cfg(target_os = "linux")]
const LOOK_EVERY: Duration = Duration::from_millis(2);
#[cfg(target_os = "linux")]
const STRAYS_LIMIT: Duration = KILL_LIMIT.saturating_add(Duration::from_secs(1));

/// Returns when nothing is left, or nothing more can be done.
pub(crate) async fn end_orphans(link: &mut Link, target: Option<i32>) {
    let keeper = link.child_pid();
    #[cfg(target_os = "linux")]
    if let Some(guard) = keeper
        && guard::took_over(guard).await
    {
        return;
    }
    if let Some(group) = target.and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    // Not reaped yet, so the number of its session cannot belong to anybody else.
    #[cfg(target_os = "linux")]
    for process in process_table::all().filter(|process| Some(process.session) == keeper) {
        process_table::signal(&process, Signal::KILL);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = keeper;
    link.kill_keeper();
}

/// As [`end_orphans`], for a keeper that an engine before us started: by what that one wrote down.
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
        // Its only child is a keeper that is stuck, or what a keeper that is gone has left.
        let children = process_table::all().filter(|process| process.parent == guard.pid);
        children.for_each(|process| process_table::signal(&process, Signal::KILL));
        tokio::time::sleep(LOOK_EVERY).await;
    }
    // Somebody has killed the guard as well: what is left is what the command's own process leads.
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

/// Elsewhere a number alone does not say whose it is by now.
#[cfg(not(target_os = "linux"))]
pub(crate) async fn end_strays(_record: &SessionRecord) {}

#[cfg(target_os = "linux")]
mod guard {
    use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
    use tokio::time::Instant;

    use super::{LOOK_EVERY, STRAYS_LIMIT};
    use crate::process_table;

    /// Whether the guard ended all that its keeper left, and then itself.
    pub(super) async fn took_over(guard: i32) -> bool {
        let deadline = Instant::now() + STRAYS_LIMIT;
        while Instant::now() < deadline {
            match own_end(guard) {
                Some(by_itself) => return by_itself,
                // Its only child is the keeper, or what a keeper that is gone has left.
                None => process_table::all()
                    .filter(|process| process.parent == guard)
                    .for_each(|process| process_table::signal(&process, Signal::KILL)),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        false
    }

    /// Whether it exited, rather than was killed; `None` while it runs. It stays to be reaped.
    fn own_end(guard: i32) -> Option<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        match rustix::process::waitid(WaitId::Pid(Pid::from_raw(guard)?), options) {
            Ok(Some(status)) => Some(status.exited()),
            Ok(None) => None,
            Err(_) => Some(false),
        }
    }
}
