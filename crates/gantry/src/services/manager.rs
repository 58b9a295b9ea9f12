//! Talks to the service manager, systemd or launchd, through its own programs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gantry_process::{Capture, Command, Cwd, Finished, Processes, env};
use tokio_util::sync::CancellationToken;

use super::unit::{Scope, ServiceManager, Unit, UnitName};
use crate::environment::Environment;
use crate::local;

/// Timeout for one command of the service manager. A stop waits until running calls have finished.
const MANAGER_LIMIT: Duration = Duration::from_secs(60);

/// Timeout for a login shell, whose start files may be slow.
const SHELL_LIMIT: Duration = Duration::from_secs(10);

/// Bytes of a program's output that are kept.
const OUTPUT_BYTES: usize = 64 * 1024;

/// Runs the service manager and a login shell through the process engine.
pub(crate) struct Manager {
    runtime: tokio::runtime::Runtime,
    processes: Processes,
    variables: env::Variables,
    cwd: PathBuf,
}

impl Manager {
    pub(crate) fn new(environment: &Environment) -> Result<Manager> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
        let processes = runtime.block_on(async { local::processes(&environment.data) })?;
        let variables = env::inherited(environment.variables.iter().cloned());
        Ok(Manager { runtime, processes, variables, cwd: PathBuf::from("/") })
    }

    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    fn run(&self, words: &[&str], limit: Duration) -> Result<Finished> {
        let (program, args) = words.split_first().context("no command to run")?;
        let mut command = Command::new(*program, Cwd::Path(self.cwd.clone())).args(args);
        command.env.clone_from(&self.variables);
        command.timeout = Some(limit);
        command.capture = Capture::Separate { stdout: OUTPUT_BYTES, stderr: OUTPUT_BYTES };
        Ok(self.block_on(self.processes.run(command, CancellationToken::new()))?)
    }

    fn manage(&self, words: &[&str], limit: Duration) -> Result<()> {
        let finished = self.run(words, limit)?;
        if finished.ended.exit.code == Some(0) {
            return Ok(());
        }
        bail!("`{}` failed: {}", words.join(" "), finished.stderr.text.trim());
    }

    /// Runs `systemctl`, for the user's manager or the system's.
    fn systemctl(&self, scope: Scope, words: &[&str], limit: Duration) -> Result<()> {
        let user: &[&str] = if scope == Scope::User { &["--user"] } else { &[] };
        self.manage(&[&["systemctl"], user, words].concat(), limit)
    }

    /// Enables a written service: starts it now, and at login or boot.
    pub(crate) fn enable(&self, unit: &Unit, file: &Path) -> Result<()> {
        let (name, scope) = (unit.name.name(), unit.name.scope);
        match unit.name.manager {
            ServiceManager::Systemd => {
                self.systemctl(scope, &["daemon-reload"], MANAGER_LIMIT)?;
                self.systemctl(scope, &["enable", &name], MANAGER_LIMIT)?;
                self.systemctl(scope, &["restart", &name], stop_limit(unit.stop_seconds))
            }
            ServiceManager::Launchd => {
                // launchctl rejects a service that is already loaded.
                let _ = self.bootout(&unit.name, unit.stop_seconds);
                self.bootstrap(&unit.name, file)
            }
        }
    }

    /// Stops the service and disables it.
    pub(crate) fn disable(&self, unit: &UnitName, stop_seconds: u64) -> Result<()> {
        match unit.manager {
            ServiceManager::Systemd => {
                self.systemctl(unit.scope, &["disable", "--now", &unit.name()], stop_limit(stop_seconds))
            }
            ServiceManager::Launchd => self.bootout(unit, stop_seconds),
        }
    }

    /// Makes the manager forget a removed file.
    pub(crate) fn reload(&self, unit: &UnitName) -> Result<()> {
        match unit.manager {
            ServiceManager::Systemd => self.systemctl(unit.scope, &["daemon-reload"], MANAGER_LIMIT),
            ServiceManager::Launchd => Ok(()),
        }
    }

    pub(crate) fn start(&self, unit: &UnitName, file: &Path) -> Result<()> {
        match unit.manager {
            ServiceManager::Systemd => self.systemctl(unit.scope, &["start", &unit.name()], MANAGER_LIMIT),
            ServiceManager::Launchd => self.bootstrap(unit, file),
        }
    }

    pub(crate) fn stop(&self, unit: &UnitName, stop_seconds: u64) -> Result<()> {
        match unit.manager {
            ServiceManager::Systemd => {
                self.systemctl(unit.scope, &["stop", &unit.name()], stop_limit(stop_seconds))
            }
            ServiceManager::Launchd => self.bootout(unit, stop_seconds),
        }
    }

    /// Stops the service, which lets running calls finish, and starts it.
    pub(crate) fn restart(&self, unit: &UnitName, file: &Path, stop_seconds: u64) -> Result<()> {
        match unit.manager {
            ServiceManager::Systemd => {
                self.systemctl(unit.scope, &["restart", &unit.name()], stop_limit(stop_seconds))
            }
            ServiceManager::Launchd => {
                self.bootout(unit, stop_seconds)?;
                self.bootstrap(unit, file)
            }
        }
    }

    /// Describes the state of an installed service as the manager reports it.
    pub(crate) fn state(&self, unit: &UnitName) -> String {
        let name = unit.name();
        let target = format!("{}/{name}", launchd_domain(unit.scope));
        let query: &[&str] = match (unit.manager, unit.scope) {
            (ServiceManager::Systemd, Scope::User) => &["systemctl", "--user", "is-active", &name],
            (ServiceManager::Systemd, Scope::System) => &["systemctl", "is-active", &name],
            (ServiceManager::Launchd, _) => &["launchctl", "print", &target],
        };
        match (self.run(query, MANAGER_LIMIT), unit.manager) {
            (Err(err), _) => format!("installed; cannot reach the service manager: {err:#}"),
            (Ok(finished), ServiceManager::Systemd) => match finished.stdout.text.trim() {
                "" => format!("installed; {}", finished.stderr.text.trim()),
                word => format!("installed, {word}"),
            },
            (Ok(finished), ServiceManager::Launchd) if finished.ended.exit.code == Some(0) => {
                "installed, loaded".into()
            }
            (Ok(_), ServiceManager::Launchd) => "installed, not loaded".into(),
        }
    }

    /// Returns why services of this scope cannot run here, if that is so: a user needs a systemd session.
    pub(crate) fn problem(&self, scope: Scope) -> Option<String> {
        if ServiceManager::current() != ServiceManager::Systemd {
            return None;
        }
        let query: &[&str] = match scope {
            Scope::User => &["systemctl", "--user", "show-environment"],
            Scope::System => &["systemctl", "show-environment"],
        };
        match self.run(query, MANAGER_LIMIT) {
            Ok(finished) if finished.ended.exit.code == Some(0) => None,
            Ok(finished) => Some(finished.stderr.text.trim().to_owned()),
            Err(err) => Some(format!("{err:#}")),
        }
    }

    fn bootstrap(&self, unit: &UnitName, file: &Path) -> Result<()> {
        let file = file.display().to_string();
        self.manage(&["launchctl", "bootstrap", &launchd_domain(unit.scope), &file], MANAGER_LIMIT)
    }

    fn bootout(&self, unit: &UnitName, stop_seconds: u64) -> Result<()> {
        let target = format!("{}/{}", launchd_domain(unit.scope), unit.name());
        self.manage(&["launchctl", "bootout", &target], stop_limit(stop_seconds))
    }

    /// Returns `PATH` of a login shell, or this process's `PATH` if that cannot be read.
    pub(crate) fn login_path(&self, environment: &Environment) -> String {
        let here = environment
            .variable("PATH")
            .and_then(|path| path.to_str())
            .unwrap_or("/usr/local/bin:/usr/bin:/bin");
        let shell = environment
            .variable("SHELL")
            .and_then(|shell| shell.to_str())
            .filter(|shell| shell.starts_with('/'));
        let script = "printf '\\n%s' \"$PATH\"";
        let output = self.run(&[shell.unwrap_or("/bin/sh"), "-lc", script], SHELL_LIMIT);
        let output = output.ok().filter(|finished| finished.ended.exit.code == Some(0));
        // Start files may print other lines first.
        let path = output.and_then(|finished| finished.stdout.text.lines().last().map(str::to_owned));
        path.filter(|path| path.contains('/')).unwrap_or_else(|| here.to_owned())
    }
}

/// The manager itself ends the process after `stop_seconds`, and then answers.
fn stop_limit(stop_seconds: u64) -> Duration {
    MANAGER_LIMIT + Duration::from_secs(stop_seconds)
}

fn launchd_domain(scope: Scope) -> String {
    match scope {
        Scope::User => format!("gui/{}", rustix::process::getuid().as_raw()),
        Scope::System => "system".into(),
    }
}
