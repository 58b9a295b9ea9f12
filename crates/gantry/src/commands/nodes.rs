//! `gantry nodes` manages the machines that may join, and shows their state.

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_protocol::{
    Empty, Invitation, JoinInvite, JoinOffer, KeyRotate, KeyRotation, NodeId, NodeInfo, NodeList,
    NodeProcesses, NodeRename, NodeRenamed, NodeTags, ProcessList, ProcessRecord, method,
};
use gantry_tool::{Refusal, RefusalCode, nearest};
use serde::Serialize;

use crate::client::{Address, Client, Target};
use crate::environment::Environment;
use crate::exit::{Exit, Refused};
use crate::output::Output;
use crate::qr::qr_code;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry nodes                                     list all nodes and their state\n  \
    gantry nodes add laptop --tag web                print the line to run on that machine\n  \
    gantry nodes add laptop --qr                     also as a QR code\n  \
    gantry nodes show laptop\n  \
    gantry nodes revoke laptop                       invalidate its token immediately")]
pub(crate) struct NodesArgs {
    #[command(subcommand)]
    pub(crate) action: Option<NodesAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodesAction {
    /// List all nodes, online or not
    List,
    /// Show one node: platform, version, capabilities, last seen, ended processes
    Show {
        /// The node's id, as `gantry nodes` lists it
        id: String,
    },
    /// Let a machine join: print the line to run there
    Add {
        /// New node's id: lower-case letters, digits and -
        id: String,
        /// Tag for calls that name tag:NAME; may be repeated
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
        #[command(flatten)]
        how: InviteArgs,
    },
    /// Let a known machine join again; its old token stops working at once
    Renew {
        /// The node's id, as `gantry nodes` lists it
        id: String,
        #[command(flatten)]
        how: InviteArgs,
    },
    /// Replace the gateway's TLS key; nodes learn the new one before it is used
    RotateKey {
        /// Use the new key at once; nodes that do not know it yet have to join again
        #[arg(long)]
        now: bool,
    },
    /// Set the tags of a node; without tags, remove them all
    Tag {
        /// The node's id, as `gantry nodes` lists it
        id: String,
        /// New tags; they replace the old ones
        tags: Vec<String>,
    },
    /// Rename a node
    Rename {
        /// The node's id, as `gantry nodes` lists it
        id: String,
        /// The new id
        new_id: String,
    },
    /// Invalidate a node's token and close its connection
    Revoke {
        /// The node's id, as `gantry nodes` lists it
        id: String,
    },
    /// Remove a node and its records
    Forget {
        /// The node's id, as `gantry nodes` lists it
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct InviteArgs {
    /// Also print the code as a QR code
    #[arg(long, conflicts_with = "token")]
    qr: bool,
    /// Address for the code instead of those that the gateway knows, such as the end of a tunnel; may be repeated
    #[arg(long = "address", value_name = "URL", conflicts_with = "token")]
    addresses: Vec<String>,
    /// Print a token for `gantry node` instead, which does not expire
    #[arg(long)]
    token: bool,
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
        NodesAction::Add { id, tags, how } if !how.token => {
            let params = JoinInvite { id, tags, renew: false, addresses: how.addresses };
            offer(output, how.qr, &Client::once(&address, output, method::JOIN_INVITE, &params)?);
        }
        NodesAction::Renew { id, how } if !how.token => {
            let params = JoinInvite { id, tags: Vec::new(), renew: true, addresses: how.addresses };
            offer(output, how.qr, &Client::once(&address, output, method::JOIN_INVITE, &params)?);
        }
        NodesAction::RotateKey { now } => {
            let params = KeyRotate { now };
            rotated(output, &Client::once(&address, output, method::JOIN_ROTATE_KEY, &params)?);
        }
        NodesAction::Add { id, tags, .. } => {
            let params = NodeTags { id, tags };
            print_token(output, &address, &Client::once(&address, output, method::NODES_ADD, &params)?);
        }
        NodesAction::Renew { id, .. } => {
            let params = NodeId { id };
            print_token(output, &address, &Client::once(&address, output, method::NODES_RENEW, &params)?);
        }
        NodesAction::Tag { id, tags } => {
            let NodeTags { id, tags } =
                Client::once(&address, output, method::NODES_TAG, &NodeTags { id, tags })?;
            output.done(&match tags.is_empty() {
                true => format!("{id} has no tags now."),
                false => format!("{id} is tagged {}.", tags.join(", ")),
            });
        }
        NodesAction::Rename { id, new_id } => {
            let params = NodeRename { id, new_id };
            let NodeRenamed { rules, .. } = Client::once(&address, output, method::NODES_RENAME, &params)?;
            let NodeRename { id, new_id } = params;
            output.done(&format!("{id} is now {new_id}. Restart the node with --id {new_id}."));
            if !rules.is_empty() {
                output.warning(&format!(
                    "these policy rules still name {id} and do not apply to {new_id}: {}\nhint: change them in \
                     gantry.toml and restart the gateway",
                    rules.join(", ")
                ));
            }
        }
        NodesAction::Revoke { id } => {
            let NodeId { id } = Client::once(&address, output, method::NODES_REVOKE, &NodeId { id })?;
            output.done(&format!(
                "The token of {id} is revoked. `gantry nodes renew {id}` lets it join again."
            ));
        }
        NodesAction::Forget { id } => {
            let NodeId { id } = Client::once(&address, output, method::NODES_FORGET, &NodeId { id })?;
            output.done(&format!("{id} is removed."));
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
        None => "`gantry nodes` lists the known nodes".to_owned(),
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

/// `NodeDetails` is the output of `gantry nodes show --json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeDetails<'a> {
    #[serde(flatten)]
    node: &'a NodeInfo,
    process_ends: Option<&'a [ProcessRecord]>,
}

fn show(output: &Output, node: &NodeInfo, ends: Option<&[ProcessRecord]>) {
    if output.json {
        return output.value(&NodeDetails { node, process_ends: ends });
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
        ("calls", format!("{} running", node.in_flight)),
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

/// Prints the line to run on the other machine.
fn offer(output: &Output, qr: bool, offer: &JoinOffer) {
    if output.json {
        return output.value(offer);
    }
    let JoinOffer { id, code, program, key, .. } = offer;
    output.page(&format!("On {id}, run this within 10 minutes:\n\n  gantry join {code}\n"));
    if let Some(program) = program {
        let pin = match key.as_deref().filter(|_| offer.pinned) {
            Some(key) => format!("k --pinnedpubkey '{key}'"),
            None => String::new(),
        };
        output.page(&format!(
            "Without Gantry there, on {}, this line downloads it first:\n\n  C={code}; curl -fsS{pin} -H \"gantry-join: \
             $C\" {program} -o gantry && chmod +x gantry && ./gantry join $C\n",
            offer.platform
        ));
    }
    if qr {
        match qr_code(code) {
            Some(drawn) => output.page(&format!("{drawn}\n")),
            None => output.warning("the code is too long for a QR code"),
        }
    }
    output.line(
        &output.dim(&format!(
            "The code works once. It looks for this gateway at {}.",
            offer.addresses.join(", ")
        )),
    );
}

fn rotated(output: &Output, rotation: &KeyRotation) {
    if output.json {
        return output.value(rotation);
    }
    let KeyRotation { key, in_use, adopted, waiting } = rotation;
    if !adopted.is_empty() {
        output.line(&format!("These nodes know the new key: {}.", adopted.join(", ")));
    }
    match (in_use, waiting.is_empty()) {
        (true, true) => output.line(&format!("The gateway uses the key {key} now.")),
        (true, false) => output.line(&format!(
            "The gateway uses the key {key} now. Let these nodes join again with `gantry nodes renew`: {}.",
            waiting.join(", ")
        )),
        (false, _) => output.line(&format!(
            "These nodes do not know the new key yet: {}. The gateway keeps its old key until they have connected, were \
             removed with `gantry nodes forget`, or `gantry nodes rotate-key --now` ends the wait.",
            waiting.join(", ")
        )),
    }
}

/// Prints the command to run on the other machine. The token is a variable, because every user there can see arguments.
fn print_token(output: &Output, address: &Address, invitation: &Invitation) {
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
    output.page(&format!("Install Gantry on the other machine and run:\n\n  GANTRY_TOKEN={token} gantry node --gateway {url} --id {id}\n"));
    output.line(&output.dim(
        "The token is shown only once. To keep it, save it in a file with mode 0600 and use --token-file.",
    ));
    if address.url.is_loopback() && url == address.url.to_string() {
        output.warning(
            "other machines cannot reach this address\nhint: start the gateway with --listen and --public-url, or use \
             an SSH tunnel",
        );
    }
}
