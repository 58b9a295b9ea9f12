//! The guard is the keeper's parent and handles the case that somebody kills the keeper.
//!
//! The guard also adopts orphans. What a killed keeper leaves behind becomes the guard's child,
//! whatever group or session it moved to. Nothing else does: the engine's other children and other
//! keepers' trees are out of its reach.
//!
//! The guard holds the control socket open until it is done, so the engine learns of the loss when
//! all processes are gone. If only the guard is killed, the keeper continues without it. Processes
//! can escape only if somebody kills both, the guard first.

use std::io::Error;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

use rustix::process::{Signal, WaitOptions};

use super::{KILL_LIMIT, STEP, descendants, inherited, leave_terminal};

/// The name under which a guard starts its keeper. A keeper with any other name starts a guard
/// first.
const GUARDED: &str = "gantry-guarded-keeper";

pub(super) fn is_parent() -> bool {
    std::env::args_os().next().is_some_and(|name| name == GUARDED)
}

/// Starts the keeper with the same arguments and control socket, and ends what it leaves behind.
pub(super) fn guard() -> Result<(), Error> {
    inherited::close_on_exec();
    leave_terminal();
    descendants::adopt()?;
    // This is the running program, even if its file was replaced since.
    let mut keeper = Command::new("/proc/self/exe");
    let status = keeper.arg0(GUARDED).args(std::env::args_os().skip(1)).env_clear().spawn()?.wait()?;
    // A keeper that exited by itself has reported what it could not end.
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
