//! `gantry nodes`: the machines that may join, and how they are.

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_protocol::{
    Empty, Invitation, NodeId, NodeInfo, NodeList, NodeProcesses, NodeRename, NodeRenamed, NodeTags,
    ProcessList, ProcessRecord, method,
};
use gantry_tool::{Refusal, RefusalCode, nearest};
use serde::Serialize;

use crate::client::{Address, Client, Target};
use crate::environment::Environment;
use crate::exit::{Exit, Refused};
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry nodes                                     who may join, and who is here\n  \
    gantry nodes add laptop --tag web                prints the command to run there\n  \
    gantry nodes show laptop\n  \
    gantry nodes revoke laptop                       its token no longer works, at once")]
pub(crate) struct NodesArgs {
    #[command(subcommand)]
    pub(crate) action: Option<NodesAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodesAction {
    /// All nodes, online or not
    List,
    /// One node: platform, version, capabilities, when it was seen, which processes ended
    Show {
        /// The node's id, as `gantry nodes` lists it
        id: String,
    },
    /// Let a machine join: prints the command to run there
    Add {
        /// What it shall be called: lower case letters, digits and -
        id: String,
        /// Tags, so that calls can say tag:NAME
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
    },
    /// Make a new token for a node; the old one no longer works
    Renew {
        /// The node's id, as `gantry nodes` lists it
        id: String,
    },
    /// Set the tags of a node; none removes them
    Tag {
        /// The node's id, as `gantry nodes` lists it
        id: String,
        /// All tags it shall have
        tags: Vec<String>,
    },
    /// Give a node another id
    Rename {
        /// The node's id, as `gantry nodes` lists it
        id: String,
        /// What it shall be called
        new_id: String,
    },
    /// Make a node's token invalid and close its connection
    Revoke {
        /// The node's id, as `gantry nodes` lists it
        id: String,
    },
    /// Remove a node and all that is known of it
    Forget {
        /// The node's id, as `gantry nodes` lists it
        id: String,
    },
}

pub(crate) fn run(environment: &Environment, output: &Output, args: NodesArgs) -> Result<Exit> {
    let address = Target::gateway(environment, output)?;
    let listed = || -> Result<NodeList> { Client::once(&address, output, method::NODES_LIST, &Empty {}) };
    match args.action.unwrap_or(NodesAction::List) {
        NodesAction::List => list(output, &listed()?.nodes),
        NodesAction::Show { id } => {
            let node = find(listed()?.nodes, &id)?;
            let params = NodeProcesses { id, limit: Some(10) };
            let ends: Result<ProcessList> = Client::once(&address, output, method::NODES_PROCESSES, &params);
            show(output, &node, ends.ok().map(|ends| ends.processes).as_deref());
        }
        NodesAction::Add { id, tags } => {
            let params = NodeTags { id, tags };
            invite(output, &address, &Client::once(&address, output, method::NODES_ADD, &params)?);
        }
        NodesAction::Renew { id } => {
            let params = NodeId { id };
            invite(output, &address, &Client::once(&address, output, method::NODES_RENEW, &params)?);
        }
        NodesAction::Tag { id, tags } => {
            let NodeTags { id, tags } =
                Client::once(&address, output, method::NODES_TAG, &NodeTags { id, tags })?;
            output.done(&format!("{id} has the tags: {}", tags.join(", ")));
        }
        NodesAction::Rename { id, new_id } => {
            let params = NodeRename { id, new_id };
            let NodeRenamed { rules, .. } = Client::once(&address, output, method::NODES_RENAME, &params)?;
            let NodeRename { id, new_id } = params;
            output.done(&format!("{id} is now {new_id}; start it there with --id {new_id}"));
            if !rules.is_empty() {
                output.warning(&format!(
                    "policy rules still name {id}, and do not hold for {new_id}: {}; change them in gantry.toml and \
                     restart the gateway",
                    rules.join(", ")
                ));
            }
        }
        NodesAction::Revoke { id } => {
            let NodeId { id } = Client::once(&address, output, method::NODES_REVOKE, &NodeId { id })?;
            output.done(&format!("the token of {id} is revoked; `gantry nodes renew {id}` makes a new one"));
        }
        NodesAction::Forget { id } => {
            let NodeId { id } = Client::once(&address, output, method::NODES_FORGET, &NodeId { id })?;
            output.done(&format!("{id} is forgotten"));
        }
    }
    Ok(Exit::Success)
}

fn find(nodes: Vec<NodeInfo>, id: &str) -> Result<NodeInfo> {
    if let Some(node) = nodes.iter().find(|node| node.id == id) {
        return Ok(node.clone());
    }
    let hint = match nearest(id, nodes.iter().map(|node| node.id.as_str())).first() {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => "`gantry nodes` lists them".to_owned(),
    };
    let refusal = Refusal::new(RefusalCode::InvalidInput, format!("unknown node \"{id}\""));
    Err(Refused(refusal.with_hint(hint)).into())
}

fn list(output: &Output, nodes: &[NodeInfo]) {
    if output.json {
        return output.value(nodes);
    }
    let width = nodes.iter().map(|node| node.id.len()).max().unwrap_or(0).max(4);
    for node in nodes {
        let name = output.bold(&format!("{:width$}", node.id));
        let facts = [
            node.client_platform.clone().unwrap_or_else(|| "never connected".into()),
            node.client_version.clone().unwrap_or_default(),
            if node.tags.is_empty() { String::new() } else { format!("[{}]", node.tags.join(", ")) },
            if node.online { String::new() } else { seen(node) },
        ];
        let facts: Vec<&str> = facts.iter().map(String::as_str).filter(|fact| !fact.is_empty()).collect();
        output.line(&format!("{name}  {}  {}", state(output, node), facts.join("  ")));
    }
}

fn state(output: &Output, node: &NodeInfo) -> String {
    match (node.revoked, node.online) {
        (true, _) => output.red("revoked"),
        (false, true) => output.green("online "),
        (false, false) => output.yellow("offline"),
    }
}

fn seen(node: &NodeInfo) -> String {
    let seen = node.last_seen.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    seen.map_or(String::new(), |seen| format!("last seen {seen:.0}"))
}

/// What `nodes show --json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    #[serde(flatten)]
    node: &'a NodeInfo,
    process_ends: Option<&'a [ProcessRecord]>,
}

fn show(output: &Output, node: &NodeInfo, ends: Option<&[ProcessRecord]>) {
    if output.json {
        return output.value(&Shown { node, process_ends: ends });
    }
    let time = |ms: Option<i64>| {
        let time = ms.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        time.map_or("never".to_owned(), |time| format!("{time:.0}"))
    };
    output.line(&format!("{}  {}", output.bold(&node.id), state(output, node)));
    let rows = [
        ("platform", node.client_platform.clone().unwrap_or_default()),
        ("version", node.client_version.clone().unwrap_or_default()),
        ("tags", node.tags.join(", ")),
        ("first seen", time(node.first_seen)),
        ("last seen", time(node.last_seen)),
        ("capabilities", node.host_capabilities.join(", ")),
        ("tools", node.tool_capabilities.keys().cloned().collect::<Vec<_>>().join(", ")),
        ("calls", format!("{} under way", node.in_flight)),
    ];
    for (name, text) in rows.iter().filter(|(_, text)| !text.is_empty()) {
        output.line(&format!("  {}  {text}", output.dim(&format!("{name:<12}"))));
    }
    for ProcessRecord { event, .. } in ends.into_iter().flatten() {
        let code = match (event.exit_code, &event.signal) {
            (Some(code), _) => code.to_string(),
            (None, Some(signal)) => signal.clone(),
            (None, None) => "unknown".to_owned(),
        };
        let command: String = event.command.chars().take(60).collect();
        output.line(&format!(
            "  {}  {} ended with {code}",
            output.dim(&format!("{:<12}", "process")),
            command
        ));
    }
}

/// The command to run on the other machine. The token is no argument: those are seen by everybody there.
fn invite(output: &Output, address: &Address, invitation: &Invitation) {
    #[derive(Serialize)]
    struct Printed<'a> {
        id: &'a str,
        token: &'a str,
        gateway: &'a str,
    }
    let Invitation { id, token, public_url } = invitation;
    let url = public_url.clone().unwrap_or_else(|| address.url.to_string());
    if output.json {
        return output.value(&Printed { id, token, gateway: &url });
    }
    output.page(&format!("On the other machine, with gantry installed, run:\n\n  GANTRY_TOKEN={token} gantry node --gateway {url} --id {id}\n"));
    output.line(&output.dim(
        "The token is shown this once. To keep it, put it into a file of mode 0600 and use --token-file.",
    ));
    if address.url.is_loopback() && url == address.url.to_string() {
        output.warning(
            "this address is only reached from this machine: start the gateway with --listen and --public-url, \
             or use an SSH tunnel",
        );
    }
}
