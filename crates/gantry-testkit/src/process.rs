//! A child process that ends with its test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::eventually;

/// `Process` is a child process. It is killed when dropped.
pub struct Process {
    pub child: Child,
}

impl Process {
    pub fn spawn(command: &mut Command) -> Process {
        Process { child: command.spawn().unwrap_or_else(|err| panic!("cannot run {command:?}: {err}")) }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Sends SIGTERM and returns how long the process took to end.
    pub fn terminate(&mut self, within: Duration) -> Duration {
        let began = Instant::now();
        self.signal(Signal::TERM);
        self.wait(within);
        began.elapsed()
    }

    /// Waits for the process to end. Panics after `within`.
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        let mut ended = None;
        eventually("the process ends", within, || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    /// Sends SIGKILL and reaps the process.
    pub fn kill(mut self) {
        self.end();
    }

    /// Returns a path as the process sees it, through its own mounts.
    pub fn inside(&self, path: &Path) -> PathBuf {
        let root = format!("/proc/{}/root", self.id());
        Path::new(&root).join(path.strip_prefix("/").unwrap())
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
