//! `gantry node install`, `uninstall`, `start` and `stop` manage the node as a user service.

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

/// Timeout for one command of the service manager.
const MANAGER_LIMIT: Duration = Duration::from_secs(60);

/// Timeout for a login shell, whose start files may be slow.
const SHELL_LIMIT: Duration = Duration::from_secs(10);

/// Timeout for a node to stop: running calls get ten seconds to finish and three to be ended.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Bytes of a program's output that are kept.
const OUTPUT_BYTES: usize = 64 * 1024;

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
        let message =
            "a service reads its token from a file: save the token with mode 0600 and add --token-file FILE";
        return Err(UsageError(message.into()).into());
    };
    let manager = ServiceManager::current();
    let runner = Runner::new(environment)?;
    // Otherwise the installed service would fail with this error on every start.
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
    if let Err(err) = runner.enable(manager, &name, &file) {
        // A service that existed before stays. A new one is removed again.
        if !was_installed {
            let _ = runner.disable(manager, &name);
            UserService::remove(&file).with_context(|| format!("cannot remove {}", file.display()))?;
            return Err(err.context("cannot start the service; it was not installed"));
        }
        return Err(err);
    }
    output.line(&format!("Installed and started {name} ({}).", file.display()));
    if manager == ServiceManager::Systemd {
        output.line("To keep it running while you are logged out, run: loginctl enable-linger");
    }
    Ok(Exit::Success)
}

pub(super) fn uninstall(environment: &Environment, output: &Output, home: &NodeHome) -> Result<Exit> {
    let file = service_file(environment, home.id())?;
    if !UserService::is_installed(&file) {
        bail!("the node \"{}\" is not installed as a service ({} does not exist)", home.id(), file.display());
    }
    let manager = ServiceManager::current();
    let name = UserService::name(manager, home.id());
    let runner = Runner::new(environment)?;
    let stopped = runner.disable(manager, &name);
    UserService::remove(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    if let Err(err) = stopped {
        output.warning(&format!("cannot reach the service manager: {err:#}"));
    } else if manager == ServiceManager::Systemd {
        runner.manage(&["systemctl", "--user", "daemon-reload"])?;
    }
    output.line(&format!("Removed {name}. The node's data stays in {}.", home.folder().display()));
    Ok(Exit::Success)
}

pub(super) fn start(environment: &Environment, output: &Output, home: &NodeHome) -> Result<Exit> {
    let file = service_file(environment, home.id())?;
    if !UserService::is_installed(&file) {
        bail!(
            "the node \"{}\" is not installed as a service\nhint: install it with `gantry node install`",
            home.id()
        );
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
    output.line(&format!("Started {name}."));
    Ok(Exit::Success)
}

/// Stops the service, and also a node that runs in the foreground.
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
            output.note(&format!("cannot reach the service manager: {err:#}"));
        }
    }
    let was_running = home.ask_to_stop().context("cannot stop the node's process")?;
    let asked_at = Instant::now();
    while home.running().is_some() {
        if asked_at.elapsed() > STOP_LIMIT {
            bail!(
                "the node \"{}\" (process {}) did not stop in time",
                home.id(),
                home.running().unwrap_or_default()
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut ended = 0;
    if kill {
        // This includes commands that other nodes left under this id, because no other id reaches them.
        for sessions in std::iter::once(home.processes()).chain(home.left_by_all()) {
            ended += runner.block_on(gantry_process::end_sessions(&sessions))?;
        }
    }
    let text = if was_running { "stopped" } else { "not running" };
    output.line(&format!("The node \"{}\" is {text}.", home.id()));
    if kill {
        print_ended(output, ended);
        let others = gateway_process_count(environment);
        if others > 0 && GatewayLock::running(&environment.data).is_none() {
            output.line(&format!(
                "A stopped gateway left {others} more; `gantry node stop --kill --id {LOCAL_NODE}` ends them."
            ));
        }
    }
    Ok(Exit::Success)
}

/// Ends background commands that stopped gateways on this data directory left running. A running gateway manages its own.
pub(super) fn end_gateway_processes(environment: &Environment, output: &Output) -> Result<Exit> {
    if let Some(running) = GatewayLock::running(&environment.data) {
        bail!(
            "cannot end background commands: the gateway that owns them is running (process {})\nhint: stop the gateway \
             first, or end one command with `gantry call Process '{{\"action\": \"kill\", \"sessionId\": \"…\"}}'` \
             (action \"list\" shows them)",
            running.pid
        );
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    // If a gateway starts now, it holds the directory's lock and this fails.
    let ended = runtime.block_on(gantry_process::end_sessions(&environment.data.process_logs()))?;
    output.line("The gateway is not running.");
    print_ended(output, ended);
    Ok(Exit::Success)
}

/// Counts the running background commands of gateways on this data directory.
pub(super) fn gateway_process_count(environment: &Environment) -> usize {
    gantry_process::living_sessions(&environment.data.process_logs())
}

fn print_ended(output: &Output, ended: usize) {
    let processes = if ended == 1 { "process" } else { "processes" };
    output.line(&format!("Ended {ended} background {processes}."));
}

pub(super) fn is_installed(environment: &Environment, id: &str) -> bool {
    service_file(environment, id).is_ok_and(|file| UserService::is_installed(&file))
}

/// Describes the service's state as the service manager reports it.
pub(super) fn state(environment: &Environment, id: &str) -> String {
    if !is_installed(environment, id) {
        return "not installed".into();
    }
    let manager = ServiceManager::current();
    let name = UserService::name(manager, id);
    let target = format!("{}/{name}", launchd_domain());
    let query: &[&str] = match manager {
        ServiceManager::Systemd => &["systemctl", "--user", "is-active", &name],
        ServiceManager::Launchd => &["launchctl", "print", &target],
    };
    let output = Runner::new(environment).and_then(|runner| runner.run(query, MANAGER_LIMIT));
    match (output, manager) {
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

/// Returns the service's arguments. All paths are absolute, and nothing depends on the environment.
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
    let home = home.context("cannot find the folder for user services: HOME is not set")?;
    let config = environment.variable("XDG_CONFIG_HOME").map(Path::new).filter(|path| path.is_absolute());
    Ok(UserService::file(ServiceManager::current(), id, home, config))
}

fn launchd_domain() -> String {
    format!("gui/{}", rustix::process::getuid().as_raw())
}

/// Runs the service manager and a login shell through the process engine.
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
        let (program, args) = words.split_first().context("no command to run")?;
        let mut command = Command::new(*program, Cwd::Path(self.cwd.clone())).args(args);
        command.env.clone_from(&self.variables);
        command.timeout = Some(limit);
        command.capture = Capture::Separate { stdout: OUTPUT_BYTES, stderr: OUTPUT_BYTES };
        Ok(self.block_on(self.processes.run(command, CancellationToken::new()))?)
    }

    /// Enables a written service: starts it now and at login.
    fn enable(&self, manager: ServiceManager, name: &str, file: &Path) -> Result<()> {
        match manager {
            ServiceManager::Systemd => {
                self.manage(&["systemctl", "--user", "daemon-reload"])?;
                self.manage(&["systemctl", "--user", "enable", name])?;
                self.manage(&["systemctl", "--user", "restart", name])
            }
            ServiceManager::Launchd => {
                let domain = launchd_domain();
                // launchctl rejects a service that is already loaded.
                let _ = self.manage(&["launchctl", "bootout", &format!("{domain}/{name}")]);
                self.manage(&["launchctl", "bootstrap", &domain, &file.display().to_string()])
            }
        }
    }

    /// Stops the service and disables it.
    fn disable(&self, manager: ServiceManager, name: &str) -> Result<()> {
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

    /// Fails if the user has no systemd session, which is needed to run a user service.
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
            "this user has no systemd session here ({reason})\nhint: run the node in the foreground with `gantry node \
             --gateway {gateway} --id {id} --token-file FILE`, log in with ssh, or try `loginctl enable-linger`"
        )
    }

    /// Returns `PATH` of a login shell, or this process's `PATH` if that cannot be read.
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
        let output = self.run(&[shell.unwrap_or("/bin/sh"), "-lc", script], SHELL_LIMIT);
        let output = output.ok().filter(|finished| finished.ended.exit.code == Some(0));
        // Start files may print other lines first.
        let path = output.and_then(|finished| finished.stdout.text.lines().last().map(str::to_owned));
        path.filter(|path| path.contains('/')).unwrap_or_else(|| here.to_owned())
    }
}
