//! `gantry node install`, `uninstall`, `start` and `stop`: the node as a service of its user.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gantry_node::{NodeHome, ServiceManager, TokenSource, UserService};
use gantry_process::{Capture, Command, Cwd, Finished, Processes, env};
use gantry_store::GatewayLock;
use gantry_toolsets::LOCAL_NODE;
use tokio_util::sync::CancellationToken;

use super::NodeArgs;
use super::join::Joining;
use crate::environment::{Environment, own_program};
use crate::exit::{Exit, UsageError};
use crate::local;
use crate::output::Output;

/// A service manager that says nothing for this long has a problem of its own.
const MANAGER_LIMIT: Duration = Duration::from_secs(60);

/// A login shell may read slow files.
const SHELL_LIMIT: Duration = Duration::from_secs(10);

/// Calls get ten seconds to finish, and three to end.
const STOP_LIMIT: Duration = Duration::from_secs(20);

const SAID_BYTES: usize = 64 * 1024;

pub(super) fn install(
    environment: &Environment,
    output: &Output,
    args: &NodeArgs,
    print: bool,
) -> Result<Exit> {
    let mut config = environment.layers.load()?;
    config.resolve_paths(|path| environment.resolve(path));
    let joining = Joining::new(environment, &config, args)?;
    let TokenSource::File(token_file) = &joining.options.token else {
        let message = "a service needs its token in a file of mode 0600: give --token-file FILE";
        return Err(UsageError(message.into()).into());
    };
    let manager = ServiceManager::current();
    let runner = Runner::new(environment)?;
    // A mistake that `gantry node` would only tell its log, again and again.
    runner.block_on(async {
        joining.check_tools(environment, &config, local::processes(&environment.data)?)
    })?;
    let service = UserService {
        manager,
        id: joining.id.clone(),
        program: own_program()?,
        args: arguments(environment, &joining, args, token_file)?,
        path: runner.login_path(environment),
    };
    let file = service_file(environment, &joining.id)?;
    if print {
        output.note(&format!("would be written to {}", file.display()));
        output.page(service.text()?.trim_end());
        return Ok(Exit::Success);
    }
    runner.check_session(environment, &joining.id)?;
    let was_installed = UserService::is_installed(&file);
    service.write(&file)?;
    let name = UserService::name(manager, &joining.id);
    if let Err(err) = runner.take_up(manager, &name, &file) {
        // What was there before is the operator's to keep; what is new is not left half done.
        if !was_installed {
            let _ = runner.give_up(manager, &name);
            UserService::remove(&file).with_context(|| format!("cannot remove {}", file.display()))?;
            return Err(err.context("the service could not be started, and is not installed"));
        }
        return Err(err);
    }
    output.line(&format!("{name} is installed and started ({})", file.display()));
    if manager == ServiceManager::Systemd {
        output.line("To keep it running while you are not logged in: loginctl enable-busy_poll");
    }
    Ok(Exit::Success)
}

pub(super) fn uninstall(environment: &Environment, output: &Output, home: &NodeHome) -> Result<Exit> {
    let file = service_file(environment, home.id())?;
    if !UserService::is_installed(&file) {
        bail!("there is no service for the node \"{}\" ({} is not there)", home.id(), file.display());
    }
    let manager = ServiceManager::current();
    let name = UserService::name(manager, home.id());
    let runner = Runner::new(environment)?;
    let stopped = runner.give_up(manager, &name);
    UserService::remove(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    if let Err(err) = stopped {
        output.warning(&format!("the service manager could not be told: {err:#}"));
    } else if manager == ServiceManager::Systemd {
        runner.manage(&["systemctl", "--user", "daemon-reload"])?;
    }
    output.line(&format!("{name} is removed; the node's data stays in {}", home.folder().display()));
    Ok(Exit::Success)
}

pub(super) fn start(environment: &Environment, output: &Output, home: &NodeHome) -> Result<Exit> {
    let file = service_file(environment, home.id())?;
    if !UserService::is_installed(&file) {
        bail!("the node \"{}\" is no service yet; `gantry node install` makes it one", home.id());
    }
    let manager = ServiceManager::current();
    let name = UserService::name(manager, home.id());
    let runner = Runner::new(environment)?;
    runner.check_session(environment, home.id())?;
    match manager {
        ServiceManager::Systemd => runner.manage(&["systemctl", "--user", "start", &name])?,
        ServiceManager::Launchd => {
            runner.manage(&["launchctl", "bootstrap", &launchd_domain(), &file.display().to_string()])?
        }
    };
    output.line(&format!("{name} is started"));
    Ok(Exit::Success)
}

/// Also stops a node that runs in the foreground somewhere.
pub(super) fn stop(environment: &Environment, output: &Output, home: &NodeHome, kill: bool) -> Result<Exit> {
    let runner = Runner::new(environment)?;
    if UserService::is_installed(&service_file(environment, home.id())?) {
        let manager = ServiceManager::current();
        let name = UserService::name(manager, home.id());
        let stopped = match manager {
            ServiceManager::Systemd => runner.manage(&["systemctl", "--user", "stop", &name]),
            ServiceManager::Launchd => {
                runner.manage(&["launchctl", "bootout", &format!("{}/{name}", launchd_domain())])
            }
        };
        if let Err(err) = stopped {
            output.note(&format!("the service manager could not be asked: {err:#}"));
        }
    }
    let was_running = home.ask_to_stop().context("cannot stop the node's process")?;
    let told = Instant::now();
    while home.running().is_some() {
        if told.elapsed() > STOP_LIMIT {
            bail!(
                "the node \"{}\" (process {}) does not stop",
                home.id(),
                home.running().unwrap_or_default()
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut ended = 0;
    if kill {
        // Also what others left under this id: by no other name can it be ended.
        for sessions in std::iter::once(home.processes()).chain(home.left_by_all()) {
            ended += runner.block_on(gantry_process::end_sessions(&sessions))?;
        }
    }
    let text = if was_running { "stopped" } else { "not running" };
    output.line(&format!("the node \"{}\" is {text}", home.id()));
    if kill {
        tell_ended(output, ended);
        let others = a_gateway_left(environment);
        if others > 0 && GatewayLock::running(&environment.data).is_none() {
            output.line(&format!(
                "{others} more that a gateway left here: `gantry node stop --kill --id {LOCAL_NODE}` ends what it left"
            ));
        }
    }
    Ok(Exit::Success)
}

/// Ends what gateways on this data directory left running. While one runs, they are its own.
pub(super) fn end_what_a_gateway_left(environment: &Environment, output: &Output) -> Result<Exit> {
    if let Some(running) = GatewayLock::running(&environment.data) {
        bail!(
            "what runs in the background here is the gateway's, which runs (process {}); nothing was ended. End it there \
             (`gantry call Process '{{\"action\": \"kill\", \"sessionId\": \"…\"}}'`, `list` shows them), or stop the gateway first",
            running.pid
        );
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    // A gateway that starts now has the directory's lock, and this fails.
    let ended = runtime.block_on(gantry_process::end_sessions(&environment.data.process_logs()))?;
    output.line("the gateway is not running");
    tell_ended(output, ended);
    Ok(Exit::Success)
}

/// How many background commands of gateways on this data directory run.
pub(super) fn a_gateway_left(environment: &Environment) -> usize {
    gantry_process::living_sessions(&environment.data.process_logs())
}

fn tell_ended(output: &Output, ended: usize) {
    let processes = if ended == 1 { "process was" } else { "processes were" };
    output.line(&format!("{ended} background {processes} ended"));
}

pub(super) fn is_installed(environment: &Environment, id: &str) -> bool {
    service_file(environment, id).is_ok_and(|file| UserService::is_installed(&file))
}

/// What the service manager says of it, in a word or two.
pub(super) fn state(environment: &Environment, id: &str) -> String {
    if !is_installed(environment, id) {
        return "not installed".into();
    }
    let manager = ServiceManager::current();
    let name = UserService::name(manager, id);
    let target = format!("{}/{name}", launchd_domain());
    let asked: &[&str] = match manager {
        ServiceManager::Systemd => &["systemctl", "--user", "is-active", &name],
        ServiceManager::Launchd => &["launchctl", "print", &target],
    };
    let said = Runner::new(environment).and_then(|runner| runner.run(asked, MANAGER_LIMIT));
    match (said, manager) {
        (Err(err), _) => format!("installed; the service manager cannot be asked: {err:#}"),
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

/// What the service is started with: everything absolute, nothing taken from the environment.
fn arguments(
    environment: &Environment,
    joining: &Joining,
    args: &NodeArgs,
    token_file: &Path,
) -> Result<Vec<String>> {
    let text = |path: &Path| {
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| UsageError(format!("{} is not UTF-8", path.display())))
    };
    let mut words = vec!["--data-dir".into(), text(environment.data.root())?];
    if environment.layers.file != environment.data.config_file() {
        words.extend(["--config".into(), text(&environment.layers.file)?]);
    }
    words.extend(["node".into(), "--gateway".into(), joining.options.gateway.to_string()]);
    words.extend([
        "--id".into(),
        joining.id.clone(),
        "--workspace".into(),
        text(&joining.options.workspace)?,
    ]);
    words.extend(["--token-file".into(), text(token_file)?]);
    if let Some(tools) = &args.tools {
        words.extend(["--tools".into(), tools.join(",")]);
    }
    if let Some(file) = args.tls_ca.as_deref().or_else(|| environment.tls_ca()) {
        words.extend(["--tls-ca".into(), text(&environment.resolve(file))?]);
    }
    if let Some(level) = args.log_level {
        words.extend(["--log-level".into(), level.name().to_owned()]);
    }
    words.extend(args.contain.then(|| "--contain".into()));
    words.extend(args.insecure.then(|| "--insecure".into()));
    Ok(words)
}

fn service_file(environment: &Environment, id: &str) -> Result<PathBuf> {
    let home = environment.variable("HOME").map(Path::new).filter(|home| home.is_absolute());
    let home = home.context("HOME is not set, so there is no place for a user's service")?;
    let config = environment.variable("XDG_CONFIG_HOME").map(Path::new).filter(|path| path.is_absolute());
    Ok(UserService::file(ServiceManager::current(), id, home, config))
}

fn launchd_domain() -> String {
    format!("gui/{}", rustix::process::getuid().as_raw())
}

/// Runs the few programs that are needed, through the engine as everything else.
struct Runner {
    runtime: tokio::runtime::Runtime,
    processes: Processes,
    variables: env::Variables,
    cwd: PathBuf,
}

impl Runner {
    fn new(environment: &Environment) -> Result<Runner> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
        let processes = runtime.block_on(async { local::processes(&environment.data) })?;
        let variables = env::inherited(environment.variables.iter().cloned());
        Ok(Runner { runtime, processes, variables, cwd: PathBuf::from("/") })
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    fn run(&self, words: &[&str], limit: Duration) -> Result<Finished> {
        let (program, args) = words.split_first().context("there is nothing to run")?;
        let mut command = Command::new(*program, Cwd::Path(self.cwd.clone())).args(args);
        command.env.clone_from(&self.variables);
        command.timeout = Some(limit);
        command.capture = Capture::Separate { stdout: SAID_BYTES, stderr: SAID_BYTES };
        Ok(self.block_on(self.processes.run(command, CancellationToken::new()))?)
    }

    /// Has a service that was written started, now and at login.
    fn take_up(&self, manager: ServiceManager, name: &str, file: &Path) -> Result<()> {
        match manager {
            ServiceManager::Systemd => {
                self.manage(&["systemctl", "--user", "daemon-reload"])?;
                self.manage(&["systemctl", "--user", "enable", name])?;
                self.manage(&["systemctl", "--user", "restart", name])
            }
            ServiceManager::Launchd => {
                let domain = launchd_domain();
                // One that is loaded already would be refused.
                let _ = self.manage(&["launchctl", "bootout", &format!("{domain}/{name}")]);
                self.manage(&["launchctl", "bootstrap", &domain, &file.display().to_string()])
            }
        }
    }

    /// Has it stopped, and not started again.
    fn give_up(&self, manager: ServiceManager, name: &str) -> Result<()> {
        match manager {
            ServiceManager::Systemd => self.manage(&["systemctl", "--user", "disable", "--now", name]),
            ServiceManager::Launchd => {
                self.manage(&["launchctl", "bootout", &format!("{}/{name}", launchd_domain())])
            }
        }
    }

    fn manage(&self, words: &[&str]) -> Result<()> {
        let finished = self.run(words, MANAGER_LIMIT)?;
        if finished.ended.exit.code == Some(0) {
            return Ok(());
        }
        bail!("`{}` failed: {}", words.join(" "), finished.stderr.text.trim());
    }

    /// Without a session of the user there is nobody who could run a service.
    fn check_session(&self, environment: &Environment, id: &str) -> Result<()> {
        if ServiceManager::current() != ServiceManager::Systemd {
            return Ok(());
        }
        let reason = match self.run(&["systemctl", "--user", "show-environment"], MANAGER_LIMIT) {
            Ok(finished) if finished.ended.exit.code == Some(0) => return Ok(()),
            Ok(finished) => finished.stderr.text.trim().to_owned(),
            Err(err) => format!("{err:#}"),
        };
        let gateway = environment.gateway.as_deref().unwrap_or("URL");
        bail!(
            "there is no systemd session of this user here ({reason}); run the node in the foreground instead: \
             gantry node --gateway {gateway} --id {id} --token-file FILE (or log in by ssh, or try \
             `loginctl enable-busy_poll`)"
        )
    }

    /// `PATH` as a login shell has it; as it is here when that cannot be told.
    fn login_path(&self, environment: &Environment) -> String {
        let here = environment
            .variable("PATH")
            .and_then(|path| path.to_str())
            .unwrap_or("/usr/local/bin:/usr/bin:/bin");
        let shell = environment
            .variable("SHELL")
            .and_then(|shell| shell.to_str())
            .filter(|shell| shell.starts_with('/'));
        let script = "printf '\\n%s' \"$PATH\"";
        let said = self.run(&[shell.unwrap_or("/bin/sh"), "-lc", script], SHELL_LIMIT);
        let said = said.ok().filter(|finished| finished.ended.exit.code == Some(0));
        // Start files may print before it.
        let path = said.and_then(|finished| finished.stdout.text.lines().last().map(str::to_owned));
        path.filter(|path| path.contains('/')).unwrap_or_else(|| here.to_owned())
    }
}
