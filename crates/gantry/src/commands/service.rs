//! `gantry service` runs the gateway or a node in the background, started at login or at boot.

mod install;
mod node_process;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use gantry_node::NodeHome;
use gantry_store::GatewayLock;
use serde_json::json;

pub(crate) use install::{InstallArgs, Installing, install_node, node_problem};
pub(crate) use node_process::{end_gateway_processes, gateway_process_count, stop_node};

use crate::commands::node::{known_home, logs_of, only_home};
use crate::environment::Environment;
use crate::exit::Exit;
use crate::output::{Output, printable};
use crate::services::manager::Manager;
use crate::services::unit::{Role, Scope, ServiceManager, Unit, UnitName};

/// What a stopped process may need beyond the time for its running calls: to end the remaining ones and to close
/// connections.
const STOP_MARGIN_SECONDS: u64 = 20;

/// How long a node lets running calls finish.
const NODE_DRAIN_SECONDS: u64 = 10;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry service install                           run the gateway in the background, from login on\n  \
    gantry service install --listen 0.0.0.0:7770 --workspace ~/src\n  \
    sudo gantry service install --system             from boot on, as the user who ran sudo\n  \
    gantry service install --node                    run the node that joined from this machine\n  \
    gantry service restart                           let running calls finish, then start again\n  \
    gantry service status\n  \
    gantry service logs -f\n\n\
    A user's systemd services end at logout, unless `loginctl enable-linger` was run once.")]
pub(crate) struct ServiceArgs {
    #[command(subcommand)]
    action: ServiceAction,
}

#[derive(Debug, Subcommand)]
enum ServiceAction {
    /// Install the service, started now and at login or boot
    Install(Box<InstallArgs>),
    /// Stop and remove the service; the data stays
    Uninstall(Which),
    /// Start the installed service
    Start(Which),
    /// Stop the service after its running calls have finished
    Stop(Which),
    /// Restart the service after its running calls have finished
    Restart(Which),
    /// Show whether the service is installed and runs
    Status(Which),
    /// Show the log
    Logs {
        #[command(flatten)]
        which: Which,
        /// Number of lines to show, the newest ones
        #[arg(short = 'n', long, default_value_t = 100, value_name = "N")]
        lines: usize,
        /// Keep printing new lines
        #[arg(short, long)]
        follow: bool,
    },
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Which {
    /// The node's service instead of the gateway's [default id: the only node on this machine]
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "")]
    pub(crate) node: Option<String>,
    /// A service of the system, which starts at boot; needs root
    #[arg(long)]
    pub(crate) system: bool,
}

pub(crate) fn run(environment: &Environment, output: &Output, args: ServiceArgs) -> Result<Exit> {
    match args.action {
        ServiceAction::Install(args) => install::install(environment, output, &args),
        ServiceAction::Uninstall(which) => {
            uninstall(environment, output, &Service::find(environment, &which)?)
        }
        ServiceAction::Start(which) => start(environment, output, &Service::find(environment, &which)?),
        ServiceAction::Stop(which) => stop(environment, output, &Service::find(environment, &which)?),
        ServiceAction::Restart(which) => restart(environment, output, &Service::find(environment, &which)?),
        ServiceAction::Status(which) => status(environment, output, &Service::find(environment, &which)?),
        ServiceAction::Logs { which, lines, follow } => {
            let service = Service::find(environment, &which)?;
            match &service.unit.role {
                Role::Gateway => logs_of(output, &environment.data.gateway_log(), "gateway", lines, follow),
                Role::Node(id) => {
                    let home = NodeHome::new(environment.data.root(), id)?;
                    logs_of(output, &home.logs(), &format!("node \"{id}\""), lines, follow)
                }
            }
        }
    }
}

/// A service on this machine, installed or not.
pub(crate) struct Service {
    pub(crate) unit: UnitName,
    pub(crate) file: PathBuf,
    pub(crate) stop_seconds: u64,
}

impl Service {
    fn find(environment: &Environment, which: &Which) -> Result<Service> {
        let role = match which.node.as_deref() {
            None => Role::Gateway,
            Some("") => Role::Node(only_home(environment)?.id().to_owned()),
            Some(id) => Role::Node(known_home(environment, id)?.id().to_owned()),
        };
        let scope = if which.system { Scope::System } else { Scope::User };
        Service::of(environment, role, scope)
    }

    pub(crate) fn of(environment: &Environment, role: Role, scope: Scope) -> Result<Service> {
        let drain = match &role {
            Role::Gateway => environment.layers.load()?.gateway.drain_seconds,
            Role::Node(_) => NODE_DRAIN_SECONDS,
        };
        let unit = UnitName { manager: ServiceManager::current(), role, scope };
        let home = environment.variable("HOME").map(Path::new).filter(|home| home.is_absolute());
        let home = home.context("cannot find the folder for user services: HOME is not set")?;
        let config = environment.variable("XDG_CONFIG_HOME").map(Path::new).filter(|path| path.is_absolute());
        let file = unit.file(home, config);
        Ok(Service { unit, file, stop_seconds: drain.saturating_add(STOP_MARGIN_SECONDS) })
    }

    pub(crate) fn is_installed(&self) -> bool {
        Unit::is_installed(&self.file)
    }

    fn what(&self) -> String {
        match &self.unit.role {
            Role::Gateway => "the gateway".into(),
            Role::Node(id) => format!("the node \"{id}\""),
        }
    }

    fn flags(&self) -> String {
        let node = match &self.unit.role {
            Role::Gateway => String::new(),
            Role::Node(id) => format!(" --node {id}"),
        };
        let system = if self.unit.scope == Scope::System { " --system" } else { "" };
        format!("{node}{system}")
    }

    fn require_installed(&self) -> Result<()> {
        if self.is_installed() {
            return Ok(());
        }
        bail!(
            "{} is not installed as a service ({} does not exist)\nhint: install it with `gantry service install{}`",
            self.what(),
            self.file.display(),
            self.flags()
        )
    }
}

fn uninstall(environment: &Environment, output: &Output, service: &Service) -> Result<Exit> {
    service.require_installed()?;
    let manager = Manager::new(environment)?;
    let stopped = manager.disable(&service.unit, service.stop_seconds);
    Unit::remove(&service.file).with_context(|| format!("cannot remove {}", service.file.display()))?;
    match stopped {
        Err(err) => output.warning(&format!("cannot reach the service manager: {err:#}")),
        Ok(()) => manager.reload(&service.unit)?,
    }
    let data = match &service.unit.role {
        Role::Gateway => format!("Its data stays in {}.", environment.data.root().display()),
        Role::Node(id) => {
            let home = NodeHome::new(environment.data.root(), id)?;
            format!("The node's data stays in {}.", home.folder().display())
        }
    };
    output.line(&format!("Removed {}. {data}", service.unit.name()));
    Ok(Exit::Success)
}

fn start(environment: &Environment, output: &Output, service: &Service) -> Result<Exit> {
    service.require_installed()?;
    let manager = Manager::new(environment)?;
    install::check_manager(environment, &manager, &service.unit)?;
    manager.start(&service.unit, &service.file)?;
    output.line(&format!("Started {}.", service.unit.name()));
    Ok(Exit::Success)
}

fn stop(environment: &Environment, output: &Output, service: &Service) -> Result<Exit> {
    service.require_installed()?;
    Manager::new(environment)?.stop(&service.unit, service.stop_seconds)?;
    output.line(&format!("Stopped {}. Background commands keep running.", service.unit.name()));
    Ok(Exit::Success)
}

fn restart(environment: &Environment, output: &Output, service: &Service) -> Result<Exit> {
    service.require_installed()?;
    let manager = Manager::new(environment)?;
    install::check_manager(environment, &manager, &service.unit)?;
    output.note_on_terminal("Waiting for running calls.");
    manager.restart(&service.unit, &service.file, service.stop_seconds)?;
    output.line(&format!("Restarted {}.", service.unit.name()));
    Ok(Exit::Success)
}

/// Prints the state. Succeeds only if the process runs.
fn status(environment: &Environment, output: &Output, service: &Service) -> Result<Exit> {
    let state = state(environment, service);
    let (process, address) = match &service.unit.role {
        Role::Gateway => {
            let running = GatewayLock::running(&environment.data);
            (running.as_ref().map(|running| running.pid), running.map(|running| running.url))
        }
        Role::Node(id) => (NodeHome::new(environment.data.root(), id)?.running(), None),
    };
    let exit = if process.is_some() { Exit::Success } else { Exit::Failure };
    if output.json {
        output.value(&json!({
            "name": service.unit.name(), "file": service.file, "service": state, "pid": process, "url": address,
        }));
        return Ok(exit);
    }
    let row = |name: &str, text: &str| output.line(&format!("{name:<12} {}", printable(text)));
    row("service", &format!("{} ({state})", service.unit.name()));
    row("file", &service.file.display().to_string());
    match process {
        Some(pid) => row("process", &pid.to_string()),
        None => row("process", "not running"),
    }
    if let Some(url) = address.filter(|url| !url.is_empty()) {
        row("gateway", &url);
    }
    Ok(exit)
}

/// Describes the state of a service as the service manager reports it.
fn state(environment: &Environment, service: &Service) -> String {
    if !service.is_installed() {
        return "not installed".into();
    }
    match Manager::new(environment) {
        Ok(manager) => manager.state(&service.unit),
        Err(err) => format!("installed; cannot reach the service manager: {err:#}"),
    }
}

/// Describes the service of a node, for `gantry node status`.
pub(crate) fn node_state(environment: &Environment, id: &str) -> String {
    match Service::of(environment, Role::Node(id.to_owned()), Scope::User) {
        Ok(service) => state(environment, &service),
        Err(err) => format!("{err:#}"),
    }
}

pub(crate) fn is_node_installed(environment: &Environment, id: &str) -> bool {
    Service::of(environment, Role::Node(id.to_owned()), Scope::User)
        .is_ok_and(|service| service.is_installed())
}

/// `gantry node uninstall`, the earlier name of `gantry service uninstall --node`.
pub(crate) fn uninstall_node(environment: &Environment, output: &Output, home: &NodeHome) -> Result<Exit> {
    uninstall(environment, output, &Service::of(environment, Role::Node(home.id().to_owned()), Scope::User)?)
}

/// `gantry node start`, the earlier name of `gantry service start --node`.
pub(crate) fn start_node(environment: &Environment, output: &Output, home: &NodeHome) -> Result<Exit> {
    start(environment, output, &Service::of(environment, Role::Node(home.id().to_owned()), Scope::User)?)
}
