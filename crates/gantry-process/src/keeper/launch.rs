//! Starts the command described by the order.

use std::io::Error;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::Pid;

use super::pump::Pump;
use crate::keeper::control_protocol::{LaunchStep, Order, Output, Report};
use crate::sandbox::quarantine::Protected;
use crate::sandbox::{self, Sandbox};

pub(super) struct Launched {
    pub(super) pid: Pid,
    pub(super) pump: Option<Pump>,
    /// The folder of a session that can be detached.
    pub(super) folder: Option<OwnedFd>,
    pub(super) feed: Option<OwnedFd>,
    pub(super) protected: Protected,
}

pub(super) fn launch(order: &Order, descriptors: Vec<OwnedFd>) -> Result<Launched, Report> {
    let mut descriptors = descriptors.into_iter();
    let mut next = || {
        descriptors.next().ok_or_else(|| refused(LaunchStep::Order, &Error::other("a descriptor is missing")))
    };
    let stdin = if order.stdin { Stdio::from(next()?) } else { Stdio::null() };
    let (stdout, stderr, pump) = match order.output {
        Output::Separate => (next()?, next()?, None),
        Output::Merged => {
            let both = next()?;
            (both.try_clone().map_err(|err| refused(LaunchStep::Order, &err))?, both, None)
        }
        Output::Log { max } => {
            let (pump, both) = Pump::new(next()?, max).map_err(|err| refused(LaunchStep::Order, &err))?;
            (both.try_clone().map_err(|err| refused(LaunchStep::Order, &err))?, both, Some(pump))
        }
    };
    let folder = if order.keep.is_some() { Some(next()?) } else { None };
    let feed = if order.keep.is_some() && order.stdin { Some(next()?) } else { None };
    let namespaces = match order.network {
        Some(join) => Some((if join.with_user { Some(next()?) } else { None }, next()?)),
        None => None,
    };
    let directory = match &order.cwd {
        Some(path) => open_directory(path).map_err(|err| refused(LaunchStep::Directory, &err))?,
        None => next()?,
    };
    // The keeper enters the directory itself, so that a missing directory and a missing program
    // give different errors.
    rustix::process::fchdir(&directory).map_err(|err| refused(LaunchStep::Directory, &err.into()))?;

    // `Command` is the only holder of the keeper's copies of the pipes. It is dropped at the end of
    // this function, so the pipes end when the processes behind them do.
    let mut command = Command::new(&order.program.0);
    command
        .args(order.args.iter().map(|arg| &arg.0))
        .env_clear()
        .envs(order.env.iter().map(|(name, value)| (&name.0, &value.0)))
        .process_group(0)
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr);
    let mut protected = Protected::default();
    if let Sandbox::Isolated { covered, read_only, .. } = &order.sandbox {
        protected = Protected::record(covered.iter().chain(read_only));
    }
    if order.sandbox.needs_namespaces() || namespaces.is_some() {
        enter_network(namespaces.as_ref())?;
    }
    let pid = match &order.sandbox {
        Sandbox::None => spawn(&mut command)?,
        sandbox => spawn_sandboxed(&mut command, sandbox, &directory)?,
    };
    Ok(Launched { pid, pump, folder, feed, protected })
}

/// Moves the keeper into the network of the command. The keeper itself uses no network.
#[cfg(target_os = "linux")]
fn enter_network(network: Option<&(Option<OwnedFd>, OwnedFd)>) -> Result<(), Report> {
    let entered = match network {
        Some((user, network)) => sandbox::namespaces::join(user.as_ref(), network),
        None => sandbox::namespaces::unshare_network().map(drop),
    };
    entered.map_err(|reason| Report::Refused { step: LaunchStep::Sandbox, errno: None, reason })
}

#[cfg(not(target_os = "linux"))]
fn enter_network(_: Option<&(Option<OwnedFd>, OwnedFd)>) -> Result<(), Report> {
    let reason = "this system has no namespaces".to_owned();
    Err(Report::Refused { step: LaunchStep::Sandbox, errno: None, reason })
}

/// Enters the directory again in the thread's own mounts. The handle still leads to what is below a
/// mount that covers the directory now, so a covered directory is refused.
fn reenter(directory: &OwnedFd) -> Result<(), String> {
    let failed = |err: Error| format!("cannot enter the working directory in the sandbox: {err}");
    let path = rustix::process::getcwd(Vec::new()).map_err(|err| failed(err.into()))?;
    rustix::process::chdir(path.as_c_str()).map_err(|err| failed(err.into()))?;
    let (now, before) = (rustix::fs::stat("."), rustix::fs::fstat(directory));
    match (now, before) {
        (Ok(now), Ok(before)) if (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino) => Ok(()),
        (Ok(_), Ok(_)) => Err("the working directory is closed to this command".to_owned()),
        (Err(err), _) | (_, Err(err)) => Err(failed(err.into())),
    }
}

fn open_directory(path: &crate::keeper::control_protocol::OsText) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    #[cfg(target_os = "linux")]
    let flags = (flags - OFlags::RDONLY) | OFlags::PATH;
    Ok(rustix::fs::openat(CWD, path.path(), flags, Mode::empty())?)
}

/// Applies the sandbox on a separate thread, which binds that thread and what it starts. The keeper
/// stays outside: the command can neither signal nor trace it, and the keeper still sees all
/// processes.
fn spawn_sandboxed(command: &mut Command, sandbox: &Sandbox, directory: &OwnedFd) -> Result<Pid, Report> {
    std::thread::scope(|scope| {
        let bound = || {
            let applied = sandbox::apply(sandbox);
            let applied = match sandbox.needs_namespaces() {
                true => applied.and_then(|()| reenter(directory)),
                false => applied,
            };
            applied.map_err(|reason| Report::Refused { step: LaunchStep::Sandbox, errno: None, reason })?;
            spawn(command)
        };
        let thread = std::thread::Builder::new()
            .spawn_scoped(scope, bound)
            .map_err(|err| refused(LaunchStep::Sandbox, &err))?;
        thread
            .join()
            .unwrap_or_else(|_| Err(refused(LaunchStep::Sandbox, &Error::other("the sandbox thread failed"))))
    })
}

fn spawn(command: &mut Command) -> Result<Pid, Report> {
    let child = command.spawn().map_err(|err| refused(LaunchStep::Program, &err))?;
    Ok(Pid::from_child(&child))
}

fn refused(step: LaunchStep, err: &Error) -> Report {
    Report::Refused { step, errno: err.raw_os_error(), reason: err.to_string() }
}
