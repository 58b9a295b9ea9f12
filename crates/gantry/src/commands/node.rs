//! `gantry node` runs this machine as a node of a gateway, in the foreground. `gantry service` runs it in the background.

pub(crate) mod foreground;
mod renamed;
mod status;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_node::NodeHome;
use gantry_store::GatewayLock;
use gantry_toolsets::LOCAL_NODE;

use crate::commands::service::{self, Installing};
use crate::config::LogLevel;
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

pub(crate) use foreground::Joining;
pub(crate) use status::logs_of;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        gantry node --gateway https://gantry.example.com --id laptop --workspace ~/src --token-file ~/.gantry-token\n  \
        GANTRY_TOKEN=… gantry node --gateway http://127.0.0.1:7770 --id box\n  \
        gantry node --gateway … --id reader --tools Read,Glob,Grep     offer only these tools\n  \
        gantry node                                                    run the node that `gantry join` set up\n  \
        gantry node status\n  \
        gantry node logs --id laptop --follow\n\n\
        `gantry join CODE` is the easier way: it sets up the node and its service. To pass a token yourself, create one\n\
        on the gateway with `gantry nodes add ID --token`, and pass it in GANTRY_TOKEN or in a file, never as an argument. If the gateway rejects the token, the node exits with code 5 and its service is not restarted."
)]
pub(crate) struct NodeCommand {
    #[command(subcommand)]
    pub(crate) action: Option<NodeAction>,
    #[command(flatten)]
    pub(crate) args: NodeArgs,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NodeArgs {
    /// Node id on the gateway
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Directory that relative paths start in [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Offer only these tools, such as Read,Glob,Grep
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) tools: Option<Vec<String>>,
    /// Keep all tools inside the workspace; the kernel confines shells
    #[arg(long)]
    pub(crate) contain: bool,
    /// File with the node's token, readable only by its owner [default: GANTRY_TOKEN, or node.tokenFile]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Also trust this certificate authority (PEM file) [default: GANTRY_TLS_CA]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Allow an unencrypted connection to a gateway on another machine
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Log level, for standard error and the log file in the data directory [default: info]
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub(crate) log_level: Option<LogLevel>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeAction {
    /// Install the node as a user service, like `gantry service install --node`
    Install {
        #[command(flatten)]
        args: Box<NodeArgs>,
        /// Print the service file without installing it
        #[arg(long)]
        print: bool,
    },
    /// Stop and remove the service, like `gantry service uninstall --node`
    Uninstall(NodeId),
    /// Start the installed service, like `gantry service start --node`
    Start(NodeId),
    /// Stop the node; its background commands keep running
    Stop {
        #[command(flatten)]
        node: NodeId,
        /// Also end background commands; with `--id local`, end those that a stopped gateway left running
        #[arg(long)]
        kill: bool,
    },
    /// Show whether the node runs and is connected, and its last error
    Status(NodeId),
    /// Show the node's log
    Logs {
        #[command(flatten)]
        node: NodeId,
        /// Number of lines to show, the newest ones
        #[arg(short = 'n', long, default_value_t = 100, value_name = "N")]
        lines: usize,
        /// Keep printing new lines
        #[arg(short, long)]
        follow: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct NodeId {
    /// Node id [default: the only node on this machine]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

pub(crate) fn run(environment: Environment, output: &Output, command: NodeCommand) -> Result<Exit> {
    match command.action {
        None => foreground::run(environment, output, &command.args),
        Some(NodeAction::Install { args, print }) => {
            service::install_node(&environment, output, &args, &Installing { print, ..Installing::default() })
        }
        Some(NodeAction::Uninstall(node)) => {
            service::uninstall_node(&environment, output, &home(&environment, &node)?)
        }
        Some(NodeAction::Start(node)) => {
            service::start_node(&environment, output, &home(&environment, &node)?)
        }
        Some(NodeAction::Stop { node, kill }) if kill && is_the_gateways(&environment, &node) => {
            service::end_gateway_processes(&environment, output)
        }
        Some(NodeAction::Stop { node, kill }) => {
            service::stop_node(&environment, output, &known(&environment, &node)?, kill)
        }
        Some(NodeAction::Status(node)) => status::status(&environment, output, &known(&environment, &node)?),
        Some(NodeAction::Logs { node, lines, follow }) => {
            let home = home(&environment, &node)?;
            logs_of(output, &home.logs(), &format!("node \"{}\"", home.id()), lines, follow)
        }
    }
}

/// Returns whether `stop --kill` refers to background commands of the gateway's own machine: its id is given, or there is
/// no node here.
fn is_the_gateways(environment: &Environment, node: &NodeId) -> bool {
    match &node.id {
        Some(id) => id == LOCAL_NODE,
        None => {
            NodeHome::all(environment.data.root()).is_empty()
                && (GatewayLock::running(&environment.data).is_some()
                    || service::gateway_process_count(environment) > 0)
        }
    }
}

/// Returns the home of a node that was started or installed here, or an error with the known ids.
fn known(environment: &Environment, node: &NodeId) -> Result<NodeHome> {
    let home = home(environment, node)?;
    if home.exists() || service::is_node_installed(environment, home.id()) {
        return Ok(home);
    }
    let homes = NodeHome::all(environment.data.root());
    let known = match homes.iter().map(NodeHome::id).collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "no node was started here yet".to_owned(),
        ids => format!("known nodes: {ids}"),
    };
    let root = environment.data.root().display();
    Err(UsageError(format!("unknown node \"{}\" in {root} ({known})", home.id())).into())
}

/// Returns the home of a node that was started, installed or joined here.
pub(crate) fn known_home(environment: &Environment, id: &str) -> Result<NodeHome> {
    known(environment, &NodeId { id: Some(id.to_owned()) })
}

/// Returns the home of the only node on this machine.
pub(crate) fn only_home(environment: &Environment) -> Result<NodeHome> {
    home(environment, &NodeId { id: None })
}

/// Returns the home of the named node, or of the only node on this machine.
fn home(environment: &Environment, node: &NodeId) -> Result<NodeHome> {
    if let Some(id) = &node.id {
        if id == LOCAL_NODE {
            let message =
                format!("\"{id}\" is the gateway's own machine; it starts and stops with the gateway");
            return Err(UsageError(message).into());
        }
        return Ok(NodeHome::new(environment.data.root(), id).map_err(|err| UsageError(err.to_string()))?);
    }
    let mut homes = NodeHome::all(environment.data.root());
    let ids: Vec<&str> = homes.iter().map(NodeHome::id).collect();
    let message = match homes.len() {
        0 => "no node was started on this machine; `gantry node --help` shows how to start one".to_owned(),
        1 => return Ok(homes.remove(0)),
        _ => format!("this machine has several nodes ({}); choose one with --id", ids.join(", ")),
    };
    Err(UsageError(message).into())
}
