//! The keeper: a small process between the engine and one command, which outlives neither.
//!
//! It adopts every orphan the command makes, so that at the end (the command's own, a request, or the death of the
//! engine) it can end all of them, reap all of them, and only then report. On Linux it runs below a `guard` that does
//! the same should the keeper be killed. Plain blocking code, no runtime.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use crate::order::{KILL, Report, TERMINATE};

#[cfg_attr(not(target_os = "linux"), path = "keeper/descendants_portable.rs")]
mod descendants;
#[cfg(target_os = "linux")]
mod guard;
mod inherited;
mod launch;
mod pump;
mod receive;

use pump::Pump;

/// Between SIGTERM and SIGKILL.
pub const TERM_GRACE: Duration = Duration::from_millis(250);

/// SIGKILL is repeated this long against processes that fork faster than they are found.
pub const KILL_LIMIT: Duration = Duration::from_secs(5);

/// How often adopted processes that ended are reaped while the command runs.
#[cfg(target_os = "linux")]
const REAP_EVERY: Duration = Duration::from_secs(1);
#[cfg(not(target_os = "linux"))]
const REAP_EVERY: Duration = Duration::from_millis(5);

const STEP: Duration = Duration::from_millis(2);

/// Runs one command by the order that waits on standard input, which is the control socket.
pub fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    let done = if guard::is_above_us() { keep() } else { guard::guard() };
    #[cfg(not(target_os = "linux"))]
    let done = keep();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn keep() -> Result<(), std::io::Error> {
    let control = UnixStream::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
    inherited::close_on_exec();
    leave_terminal();
    descendants::adopt()?;
    let (order, descriptors) = receive::order(&control)?;
    match launch::launch(&order, descriptors) {
        Ok(launched) => {
            report(&control, &Report::Started { pid: launched.pid.as_raw_nonzero().get() });
            Keeper { control, target: launched.pid, pump: launched.pump, status: None }.run()
        }
        Err(refusal) => report(&control, &refusal),
    }
    Ok(())
}

/// Takes us out of reach of signals to the engine's group, and the command out of reach of a terminal to read from or
/// type into. A new session is made only when there is a terminal: the kernel schedules sessions as groups of their own,
/// and on a busy machine a new one waits several milliseconds for its first turn.
fn leave_terminal() {
    let terminal =
        rustix::fs::open("/dev/tty", OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty());
    let _ = match terminal {
        Ok(_) => rustix::process::setsid().map(drop),
        Err(_) => rustix::process::setpgid(None, None),
    };
}

/// The engine may be gone; there is nobody else to tell.
fn report(mut control: &UnixStream, report: &Report) {
    if let Ok(mut line) = serde_json::to_vec(report) {
        line.push(b'\n');
        let _ = control.write_all(&line);
    }
}

struct Keeper {
    control: UnixStream,
    target: Pid,
    pump: Option<Pump>,
    /// How the target ended, once it has.
    status: Option<WaitStatus>,
}

enum Event {
    TargetEnded,
    Terminate,
    Kill,
}

/// Whether any child, adopted ones included, is still there.
#[derive(PartialEq, Eq)]
enum Children {
    Some,
    None,
}

impl Keeper {
    fn run(mut self) {
        let target = descendants::watch(self.target);
        let event = self.wait(target.as_ref());
        if self.remain() {
            if !matches!(event, Event::Kill) {
                self.signal_all(Signal::TERM);
                self.settle(TERM_GRACE);
            }
            self.kill_all();
        }
        let survivors = match self.reap() {
            Children::Some => descendants::list().len(),
            Children::None => 0,
        };
        if let Some(pump) = &mut self.pump {
            pump.drain();
        }
        let ended = Report::Ended {
            code: self.status.and_then(WaitStatus::exit_status),
            signal: self.status.and_then(WaitStatus::terminating_signal),
            survivors,
            log: self.pump.take().map(Pump::finish).unwrap_or_default(),
        };
        report(&self.control, &ended);
    }

    /// Copies output until the command ends or somebody wants it to.
    fn wait(&mut self, target: Option<&OwnedFd>) -> Event {
        loop {
            self.reap();
            if self.status.is_some() {
                return Event::TargetEnded;
            }
            let mut fds = vec![PollFd::new(&self.control, PollFlags::IN)];
            fds.extend(target.map(|target| PollFd::new(target, PollFlags::IN)));
            fds.extend(
                self.pump
                    .as_ref()
                    .and_then(Pump::source)
                    .map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::IN)),
            );
            poll(&mut fds, REAP_EVERY);
            let asked = !fds[0].revents().is_empty();
            if let Some(pump) = &mut self.pump {
                pump.copy_what_is_there();
            }
            if asked {
                return self.asked();
            }
        }
    }

    fn asked(&self) -> Event {
        let mut byte = [0];
        match rustix::io::read(&self.control, &mut byte) {
            Ok(1) if byte[0] == KILL => Event::Kill,
            Ok(1) if byte[0] == TERMINATE => Event::Terminate,
            // End of file: the engine is gone, and nobody will want the command any more.
            _ => Event::Terminate,
        }
    }

    fn kill_all(&mut self) {
        let deadline = Instant::now() + KILL_LIMIT;
        while self.remain() && Instant::now() < deadline {
            self.signal_all(Signal::KILL);
            self.settle(4 * STEP);
        }
    }

    /// Gives processes up to `limit` to end, reaping and copying output meanwhile.
    fn settle(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while self.remain() && Instant::now() < deadline {
            match self.pump.as_ref().and_then(Pump::source) {
                Some(pipe) => {
                    poll(&mut [PollFd::from_borrowed_fd(pipe, PollFlags::IN)], STEP);
                }
                None => std::thread::sleep(STEP),
            }
            if let Some(pump) = &mut self.pump {
                pump.copy_what_is_there();
            }
        }
    }

    fn signal_all(&self, signal: Signal) {
        // While the target is not reaped nobody else can have its number; afterwards only members keep the group alive,
        // and they are found among the descendants.
        if self.status.is_none() || descendants::group_remains(self.target) {
            let _ = rustix::process::kill_process_group(self.target, signal);
        }
        for process in descendants::list() {
            descendants::signal(&process, signal);
        }
    }

    fn remain(&mut self) -> bool {
        self.reap() == Children::Some || descendants::group_remains(self.target)
    }

    fn reap(&mut self) -> Children {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.target => self.status = Some(status),
                Ok(Some(_)) => {}
                Ok(None) => return Children::Some,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Children::None,
            }
        }
    }
}

fn poll(fds: &mut [PollFd<'_>], timeout: Duration) {
    let timeout = Timespec::try_from(timeout).ok();
    // An interrupted or failed poll only means that the caller looks again.
    let _ = rustix::event::poll(fds, timeout.as_ref());
}
