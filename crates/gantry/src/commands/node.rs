//! `gantry node`: this machine joins a gateway, in the foreground or as a service of its user.

mod join;
mod renamed;
mod service;
mod status;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_node::NodeHome;
use gantry_store::GatewayLock;
use gantry_toolsets::LOCAL_NODE;

use crate::config::LogLevel;
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        gantry node --gateway https://gantry.example.com --id laptop --workspace ~/src --token-file ~/.gantry-token\n  \
        GANTRY_TOKEN=… gantry node --gateway http://127.0.0.1:7770 --id box\n  \
        gantry node --gateway … --id reader --tools Read,Glob,Grep     only these tools\n  \
        gantry node install --gateway … --id laptop --token-file ~/.gantry-token\n  \
        gantry node status\n  \
        gantry node logs --id laptop --follow\n\n\
        The gateway's operator makes the token with `gantry nodes add ID`. It is never given on the command line. When the\n\
        gateway does not take it, the node ends with exit code 5, and its service is not started again."
)]
pub(crate) struct NodeCommand {
    #[command(subcommand)]
    pub(crate) action: Option<NodeAction>,
    #[command(flatten)]
    pub(crate) args: NodeArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct NodeArgs {
    /// The node's name on the gateway
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Where relative paths start [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Offer only these tools, such as Read,Glob,Grep
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) tools: Option<Vec<String>>,
    /// Let no tool reach beyond the workspace; shells are confined by the kernel
    #[arg(long)]
    pub(crate) contain: bool,
    /// The file with the node's token, readable by its owner only [default: GANTRY_TOKEN, or node.tokenFile]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Trust this certificate authority (PEM) beside the system's [default: GANTRY_TLS_CA]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Allow a gateway that is neither encrypted nor on this machine
    #[arg(long)]
    pub(crate) insecure: bool,
    /// What is logged, on standard error and in the data directory [default: info]
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub(crate) log_level: Option<LogLevel>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeAction {
    /// Make it a service of your user, started now and at login; takes the options of `gantry node`
    Install {
        #[command(flatten)]
        args: Box<NodeArgs>,
        /// Only show the service file
        #[arg(long)]
        print: bool,
    },
    /// Stop the service and remove it; the node's data stays
    Uninstall(NodeId),
    /// Start the service
    Start(NodeId),
    /// Stop the node; what runs in the background goes on
    Stop {
        #[command(flatten)]
        node: NodeId,
        /// End what runs in the background as well; with `--id local`, or where there is no node, what a stopped gateway left
        #[arg(long)]
        kill: bool,
    },
    /// Show whether it runs, whether it is connected, and what went wrong last
    Status(NodeId),
    /// Show the node's log
    Logs {
        #[command(flatten)]
        node: NodeId,
        /// The newest this many lines
        #[arg(short = 'n', long, default_value_t = 100, value_name = "N")]
        lines: usize,
        /// Go on with what is written
        #[arg(short, long)]
        follow: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct NodeId {
    /// The node [default: the only one on this machine]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

pub(crate) fn run(environment: Environment, output: &Output, command: NodeCommand) -> Result<Exit> {
    match command.action {
        None => join::run(environment, output, &command.args),
        Some(NodeAction::Install { args, print }) => service::install(&environment, output, &args, print),
        Some(NodeAction::Uninstall(node)) => {
            service::uninstall(&environment, output, &home(&environment, &node)?)
        }
        Some(NodeAction::Start(node)) => service::start(&environment, output, &home(&environment, &node)?),
        Some(NodeAction::Stop { node, kill }) if kill && is_the_gateways(&environment, &node) => {
            service::end_what_a_gateway_left(&environment, output)
        }
        Some(NodeAction::Stop { node, kill }) => {
            service::stop(&environment, output, &known_home(&environment, &node)?, kill)
        }
        Some(NodeAction::Status(node)) => {
            status::status(&environment, output, &known_home(&environment, &node)?)
        }
        Some(NodeAction::Logs { node, lines, follow }) => {
            status::logs(output, &home(&environment, &node)?, lines, follow)
        }
    }
}

/// Whether background commands of the gateway's own machine are meant: by their name, or because there are no others.
fn is_the_gateways(environment: &Environment, node: &NodeId) -> bool {
    match &node.id {
        Some(id) => id == LOCAL_NODE,
        None => {
            NodeHome::all(environment.data.root()).is_empty()
                && (GatewayLock::running(&environment.data).is_some()
                    || service::a_gateway_left(environment) > 0)
        }
    }
}

/// The node that is meant, if it was ever started or installed here: of any other there is nothing to tell.
fn known_home(environment: &Environment, node: &NodeId) -> Result<NodeHome> {
    let home = home(environment, node)?;
    if home.exists() || service::is_installed(environment, home.id()) {
        return Ok(home);
    }
    let homes = NodeHome::all(environment.data.root());
    let known = match homes.iter().map(NodeHome::id).collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "there is none here".to_owned(),
        ids => format!("known here: {ids}"),
    };
    let root = environment.data.root().display();
    Err(UsageError(format!("no node \"{}\" is known in {root} ({known})", home.id())).into())
}

/// The node that is meant: the named one, or the only one there is.
fn home(environment: &Environment, node: &NodeId) -> Result<NodeHome> {
    if let Some(id) = &node.id {
        if id == LOCAL_NODE {
            let message =
                format!("\"{id}\" is the gateway's own machine and no node: it runs as long as the gateway");
            return Err(UsageError(message).into());
        }
        return Ok(NodeHome::new(environment.data.root(), id).map_err(|err| UsageError(err.to_string()))?);
    }
    let mut homes = NodeHome::all(environment.data.root());
    let ids: Vec<&str> = homes.iter().map(NodeHome::id).collect();
    let message = match homes.len() {
        0 => "there is no node on this machine; `gantry node --help` shows how to start one".to_owned(),
        1 => return Ok(homes.remove(0)),
        _ => format!("there are several nodes on this machine ({}); say which with --id", ids.join(", ")),
    };
    Err(UsageError(message).into())
}
