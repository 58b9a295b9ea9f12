//! The guard: the keeper's parent, there for the case that somebody kills the keeper.
//!
//! It too adopts orphans, so whatever a killed keeper leaves behind becomes its child, whatever group or session that
//! fled to, and nothing else ever does: the engine's other children, and other keepers' trees, are out of its reach.
//! It holds the control socket open until it is done, so that the engine learns of the loss when all are gone. If the
//! guard alone is killed the keeper goes on without it; only somebody who kills both, the guard first, gets away.

use std::io::Error;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

use rustix::process::{Signal, WaitOptions};

use super::{KILL_LIMIT, STEP, descendants, inherited, leave_terminal};

/// The name under which a guard starts its keeper; anybody else gets a guard first.
const GUARDED: &str = "gantry-guarded-keeper";

pub(super) fn is_above_us() -> bool {
    std::env::args_os().next().is_some_and(|name| name == GUARDED)
}

/// Starts the keeper, with the same arguments and control socket, and ends what it leaves behind.
pub(super) fn guard() -> Result<(), Error> {
    inherited::close_on_exec();
    leave_terminal();
    descendants::adopt()?;
    // This very program, also when its file was replaced since.
    let mut keeper = Command::new("/proc/self/exe");
    let status = keeper.arg0(GUARDED).args(std::env::args_os().skip(1)).env_clear().spawn()?.wait()?;
    // A keeper that came to its own end has reported whom it could not end.
    if status.code().is_none() {
        end_all();
    }
    Ok(())
}

fn end_all() {
    let deadline = Instant::now() + KILL_LIMIT;
    while children_remain() && Instant::now() < deadline {
        for process in descendants::list() {
            descendants::signal(&process, Signal::KILL);
        }
        std::thread::sleep(STEP);
    }
}

fn children_remain() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
