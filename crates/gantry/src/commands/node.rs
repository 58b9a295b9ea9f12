//! `gantry node`: this machine joins a gateway, in the foreground or as a service of its user.

mod join;
mod service;
mod status;

use anyhow::Result;
use gantry_node::NodeHome;

use crate::cli::{NodeAction, NodeCommand, NodeId};
use crate::exit::{Exit, UsageError};
use crate::output::Output;
use crate::places::Places;

pub(crate) fn run(places: Places, output: &Output, command: NodeCommand) -> Result<Exit> {
    match command.action {
        None => join::run(places, output, &command.args),
        Some(NodeAction::Install { args, print }) => service::install(&places, output, &args, print),
        Some(NodeAction::Uninstall(node)) => service::uninstall(&places, output, &home(&places, &node)?),
        Some(NodeAction::Start(node)) => service::start(&places, output, &home(&places, &node)?),
        Some(NodeAction::Stop { node, kill }) => service::stop(&places, output, &home(&places, &node)?, kill),
        Some(NodeAction::Status(node)) => status::status(&places, output, &home(&places, &node)?),
        Some(NodeAction::Logs { node, lines, follow }) => {
            status::logs(output, &home(&places, &node)?, lines, follow)
        }
    }
}

/// The node that is meant: the named one, or the only one there is.
fn home(places: &Places, node: &NodeId) -> Result<NodeHome> {
    if let Some(id) = &node.id {
        return Ok(NodeHome::new(places.data.root(), id).map_err(|err| UsageError(err.to_string()))?);
    }
    let mut homes = NodeHome::all(places.data.root());
    let ids: Vec<&str> = homes.iter().map(NodeHome::id).collect();
    let message = match homes.len() {
        0 => "there is no node on this machine; `gantry node --help` shows how to start one".to_owned(),
        1 => return Ok(homes.remove(0)),
        _ => format!("there are several nodes on this machine ({}); say which with --id", ids.join(", ")),
    };
    Err(UsageError(message).into())
}
