//! The keeper is a small process between the engine and one command. It never outlives the command,
//! and it outlives the engine only if the session was detached.
//!
//! The keeper adopts every orphan of the command. The command may end by itself, by a request, by
//! its timeout or by the death of the engine. In each case the keeper ends and reaps all of these
//! processes, and only then reports.
//!
//! A detached session continues without an engine. Its keeper waits for the next engine on a socket
//! and records the exit in the session's folder. On Linux a keeper runs below a `guard`, which ends
//! the command's process tree if the keeper is killed.
//!
//! This is plain blocking code without an async runtime.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use crate::keeper::control_protocol::Report;
use crate::sandbox::quarantine::Protected;
use crate::session::record::{Cause, EndRecord, Moment};

mod control;
pub(crate) mod control_protocol;
#[cfg_attr(not(target_os = "linux"), path = "keeper/descendants_portable.rs")]
mod descendants;
mod folder;
#[cfg(target_os = "linux")]
mod guard;
mod inherited;
mod launch;
#[cfg(target_os = "linux")]
mod network;
mod pump;
mod receive;

use control::{Control, Request};
use folder::Folder;
use pump::Pump;

/// The time between SIGTERM and SIGKILL.
pub const TERM_GRACE: Duration = Duration::from_millis(250);

/// SIGKILL is repeated for this long, because processes may fork faster than the keeper finds them.
pub const KILL_LIMIT: Duration = Duration::from_secs(5);

/// How often the keeper reaps adopted processes while the command runs.
#[cfg(target_os = "linux")]
const REAP_EVERY: Duration = Duration::from_secs(1);
#[cfg(not(target_os = "linux"))]
const REAP_EVERY: Duration = Duration::from_millis(5);

const STEP: Duration = Duration::from_millis(2);

/// Runs one command. The order arrives on standard input, which is the control socket.
pub fn main() -> ExitCode {
    // The thread that starts a sandboxed command is itself sandboxed for a moment. Without this the
    // command could trace it.
    crate::os::not_dumpable::hide_from_others();
    crate::survive_file_size_limit();
    #[cfg(target_os = "linux")]
    let done = if guard::is_parent() { keep() } else { guard::guard() };
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
    #[cfg(target_os = "linux")]
    if order.create_network {
        return network::create(&control);
    }
    #[cfg(target_os = "linux")]
    if let Some(visit) = order.visit {
        return network::visit(&control, visit, order.network, descriptors);
    }
    let mut control = Control::new(control);
    let launched = match launch::launch(&order, descriptors) {
        Ok(launched) => launched,
        Err(refusal) => {
            control.report(&refusal);
            return Ok(());
        }
    };
    let begun = Instant::now();
    control.report(&Report::Started { pid: launched.pid.as_raw_nonzero().get() });
    let timeout = order.keep.and_then(|keep| keep.timeout_ms).map(Duration::from_millis);
    // A keeper may wait for days. It need not hold the command's environment in memory.
    drop(order);
    let keeper = Keeper {
        control,
        target: launched.pid,
        pump: launched.pump,
        folder: launched.folder.map(Folder),
        feed: launched.feed,
        detached: false,
        begun,
        deadline: timeout.and_then(|timeout| begun.checked_add(timeout)),
        status: None,
        protected: launched.protected,
    };
    keeper.run();
    Ok(())
}

/// Moves the keeper out of reach of signals to the engine's group, and detaches the command from
/// any terminal.
///
/// A new session is created only if there is a terminal. The kernel schedules each session as its
/// own group, and on a busy machine a new one waits several milliseconds for its first time slice.
pub(crate) fn leave_terminal() {
    let terminal =
        rustix::fs::open("/dev/tty", OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty());
    let _ = match terminal {
        Ok(_) => rustix::process::setsid().map(drop),
        Err(_) => rustix::process::setpgid(None, None),
    };
}

struct Keeper {
    control: Control,
    target: Pid,
    pump: Option<Pump>,
    folder: Option<Folder>,
    /// Keeps the command's standard input open across engines. Each engine gets a copy to write to.
    feed: Option<OwnedFd>,
    detached: bool,
    begun: Instant,
    deadline: Option<Instant>,
    /// How the target ended; `None` while it runs.
    status: Option<WaitStatus>,
    protected: Protected,
}

/// `Ready` says which control sockets are readable.
struct Ready {
    connection: bool,
    listener: bool,
}

/// `Children` says whether any child, adopted ones included, still exists.
#[derive(PartialEq, Eq)]
enum Children {
    Some,
    None,
}

impl Keeper {
    fn run(mut self) {
        let target = descendants::watch(self.target);
        let cause = self.wait(target.as_ref());
        if self.remain() {
            if cause != Cause::Killed {
                self.signal_all(Signal::TERM);
                self.reap_for(TERM_GRACE);
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
        let end = EndRecord {
            code: self.status.and_then(WaitStatus::exit_status),
            signal: self.status.and_then(WaitStatus::terminating_signal),
            survivors,
            log: self.pump.take().map(Pump::finish).unwrap_or_default(),
            cause,
            ended_at: Moment::now(),
            duration_ms: u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            quarantined: self.protected.quarantine_new(),
        };
        if let Some(folder) = self.folder.as_ref().filter(|_| self.detached) {
            folder.write_end(&end);
        }
        self.control.report(&Report::Ended(end));
    }

    /// Copies output and serves engines until the command ends or must be ended.
    fn wait(&mut self, target: Option<&OwnedFd>) -> Cause {
        loop {
            self.reap();
            if self.status.is_some() {
                return Cause::Own;
            }
            if self.is_unreachable() {
                return Cause::Terminated;
            }
            let now = Instant::now();
            let left = self.deadline.map(|deadline| deadline.saturating_duration_since(now));
            if left == Some(Duration::ZERO) {
                return Cause::TimedOut;
            }
            let ready = self.sleep(target, REAP_EVERY.min(left.unwrap_or(REAP_EVERY)));
            if let Some(pump) = &mut self.pump {
                pump.copy_available();
            }
            if ready.connection {
                for request in self.control.requests() {
                    if let Some(cause) = self.serve(request) {
                        return cause;
                    }
                }
            }
            if ready.listener {
                self.control.accept();
            }
            self.control.admit(self.feed.as_ref());
        }
    }

    /// Reports whether no engine can reach the command: the connection is gone and no other can
    /// follow, or the folder was removed. Removing the folder therefore ends the command.
    fn is_unreachable(&self) -> bool {
        match self.detached {
            true => self.folder.as_ref().is_some_and(Folder::was_removed),
            false => self.control.connection().is_none(),
        }
    }

    /// Sleeps until there is something to do.
    fn sleep(&self, target: Option<&OwnedFd>, limit: Duration) -> Ready {
        fn watch<'a>(fds: &mut Vec<PollFd<'a>>, fd: Option<BorrowedFd<'a>>) -> Option<usize> {
            fds.push(PollFd::from_borrowed_fd(fd?, PollFlags::IN));
            Some(fds.len() - 1)
        }
        let mut fds = Vec::with_capacity(4);
        let connection = watch(&mut fds, self.control.connection());
        let listener = watch(&mut fds, self.control.listener());
        fds.extend(
            self.control
                .unauthenticated()
                .map(|connection| PollFd::from_borrowed_fd(connection, PollFlags::IN)),
        );
        fds.extend(target.map(|target| PollFd::new(target, PollFlags::IN)));
        watch(&mut fds, self.pump.as_ref().and_then(Pump::source));
        poll(&mut fds, limit);
        let ready = |index: Option<usize>| index.is_some_and(|index| !fds[index].revents().is_empty());
        Ready { connection: ready(connection), listener: ready(listener) }
    }

    /// Executes an engine's request. Returns the cause if the request ends the command.
    fn serve(&mut self, request: Request) -> Option<Cause> {
        match request {
            Request::Terminate => return Some(Cause::Terminated),
            Request::Kill => return Some(Cause::Killed),
            Request::CloseStdin => self.feed = None,
            Request::Detach(record) => self.detach(&record),
        }
        None
    }

    fn detach(&mut self, record: &[u8]) {
        let Some(folder) = self.folder.as_ref().filter(|_| !self.detached) else {
            let reason = "this session cannot be detached".to_owned();
            return self.control.report(&Report::NotDetached { reason });
        };
        match folder.detach(record) {
            Ok((listener, key)) => {
                self.detached = true;
                self.control.listen(listener, key);
                self.control.report(&Report::Detached);
                folder.sync();
            }
            Err(err) => self.control.report(&Report::NotDetached { reason: err.to_string() }),
        }
    }

    fn kill_all(&mut self) {
        let deadline = Instant::now() + KILL_LIMIT;
        while self.remain() && Instant::now() < deadline {
            self.signal_all(Signal::KILL);
            self.reap_for(4 * STEP);
        }
    }

    /// Gives processes up to `limit` to end. Meanwhile it reaps them and copies output.
    fn reap_for(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while self.remain() && Instant::now() < deadline {
            match self.pump.as_ref().and_then(Pump::source) {
                Some(pipe) => {
                    poll(&mut [PollFd::from_borrowed_fd(pipe, PollFlags::IN)], STEP);
                }
                None => std::thread::sleep(STEP),
            }
            if let Some(pump) = &mut self.pump {
                pump.copy_available();
            }
        }
    }

    fn signal_all(&self, signal: Signal) {
        // Until the target is reaped its PID cannot be reused. Afterwards only members keep the
        // group alive, and they are found among the descendants.
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
    // After an interrupted or failed poll the caller simply checks again.
    let _ = rustix::event::poll(fds, timeout.as_ref());
}
