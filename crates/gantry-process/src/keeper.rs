//! The keeper: a small process between the engine and one command, which never outlives the command, and the engine
//! only when it was told to.
//!
//! It adopts every orphan the command makes, so that at the end (the command's own, a request, its timeout, or the death
//! of the engine) it can end all of them, reap all of them, and only then report. A session that was detached goes on
//! without an engine: its keeper waits for the next one on a socket, and leaves the end in the session's folder. On
//! Linux a keeper runs below a `guard` that ends the command's tree should the keeper be killed. Plain blocking code,
//! no runtime.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use crate::order::Report;
use crate::record::{Cause, EndRecord, Moment};

mod control;
#[cfg_attr(not(target_os = "linux"), path = "keeper/descendants_portable.rs")]
mod descendants;
mod folder;
#[cfg(target_os = "linux")]
mod guard;
mod inherited;
mod launch;
mod pump;
mod receive;

use control::{Control, Request};
use folder::Folder;
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
    // While it starts a confined command one of its threads is as confined as that, and would otherwise be its to trace.
    crate::unseen::hide_from_others();
    crate::survive_file_size_limit();
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
    // A keeper may wait for days; it need not hold the command's environment meanwhile.
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
    };
    keeper.run();
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

struct Keeper {
    control: Control,
    target: Pid,
    pump: Option<Pump>,
    folder: Option<Folder>,
    /// Keeps the command's standard input open while engines come and go; each gets a copy to write to.
    feed: Option<OwnedFd>,
    detached: bool,
    begun: Instant,
    deadline: Option<Instant>,
    /// How the target ended, once it has.
    status: Option<WaitStatus>,
}

/// Which of the control sockets has something for us.
struct Ready {
    connection: bool,
    listener: bool,
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
        let cause = self.wait(target.as_ref());
        if self.remain() {
            if cause != Cause::Killed {
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
        let end = EndRecord {
            code: self.status.and_then(WaitStatus::exit_status),
            signal: self.status.and_then(WaitStatus::terminating_signal),
            survivors,
            log: self.pump.take().map(Pump::finish).unwrap_or_default(),
            cause,
            ended_at: Moment::now(),
            duration_ms: u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        if let Some(folder) = self.folder.as_ref().filter(|_| self.detached) {
            folder.leave_end(&end);
        }
        self.control.report(&Report::Ended(end));
    }

    /// Copies output and serves engines until the command ends or has to.
    fn wait(&mut self, target: Option<&OwnedFd>) -> Cause {
        loop {
            self.reap();
            if self.status.is_some() {
                return Cause::Own;
            }
            if self.is_deserted() {
                return Cause::Terminated;
            }
            let now = Instant::now();
            let left = self.deadline.map(|deadline| deadline.saturating_duration_since(now));
            if left == Some(Duration::ZERO) {
                return Cause::TimedOut;
            }
            let ready = self.sleep(target, REAP_EVERY.min(left.unwrap_or(REAP_EVERY)));
            if let Some(pump) = &mut self.pump {
                pump.copy_what_is_there();
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

    /// Without an engine and no other can come, or on record nowhere: whoever removes the folder ends the command.
    fn is_deserted(&self) -> bool {
        match self.detached {
            true => self.folder.as_ref().is_some_and(Folder::was_removed),
            false => self.control.connection().is_none(),
        }
    }

    /// Until there is something to do.
    fn sleep(&self, target: Option<&OwnedFd>, limit: Duration) -> Ready {
        fn watch<'a>(fds: &mut Vec<PollFd<'a>>, fd: Option<BorrowedFd<'a>>) -> Option<usize> {
            fds.push(PollFd::from_borrowed_fd(fd?, PollFlags::IN));
            Some(fds.len() - 1)
        }
        let mut fds = Vec::with_capacity(4);
        let connection = watch(&mut fds, self.control.connection());
        let listener = watch(&mut fds, self.control.listener());
        fds.extend(self.control.knocks().map(|knock| PollFd::from_borrowed_fd(knock, PollFlags::IN)));
        fds.extend(target.map(|target| PollFd::new(target, PollFlags::IN)));
        watch(&mut fds, self.pump.as_ref().and_then(Pump::source));
        poll(&mut fds, limit);
        let ready = |index: Option<usize>| index.is_some_and(|index| !fds[index].revents().is_empty());
        Ready { connection: ready(connection), listener: ready(listener) }
    }

    /// Does what an engine asks for; gives the cause when that is the command's end.
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
