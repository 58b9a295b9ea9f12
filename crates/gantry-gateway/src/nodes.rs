//! The table of nodes: which may join, which are connected, and what each can do.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use gantry_agent::NodeLine;
use gantry_link::Link;
use gantry_net::KeyPin;
use gantry_protocol::{
    CallProgress, CloseReason, NodeHello, NodeInfo, NodeTools, ToolAck, event, is_valid_platform,
    is_valid_version, raw,
};
use gantry_store::{Database, DatabaseError, InviteKnown, NodeRow, SeenNode};
use gantry_tool::{Capability, NodeState, Progress, Registry, ToolError};
use gantry_toolsets::LOCAL_NODE;
use gantry_transfers::Transfers;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, watch};

use crate::gateway::now_ms;
use crate::remote_tools;
use crate::tls_identity::TlsIdentity;

mod connection_questions;
mod instance_conflict;
mod key_announcements;
mod logs;
mod remote_call;
mod transfer_links;

use connection_questions::WaitingCall;
use instance_conflict::Replaced;
pub use logs::LocalLog;
use logs::OwnLog;

/// Maximum concurrent calls of one node; more are queued.
const MAX_CALLS_PER_NODE: usize = 64;

/// Results are acknowledged in batches, after this pause or this many.
const ACK_PAUSE: Duration = Duration::from_millis(50);
const ACK_BATCH: usize = 32;

/// `Nodes` is the table of nodes. The registry follows it.
pub struct Nodes {
    registry: Registry,
    database: Database,
    /// The id of this run of the gateway.
    pub(crate) instance: String,
    known: Mutex<BTreeMap<String, Arc<Node>>>,
    /// The transfers domain owns the nodes, so this is weak.
    transfers: OnceLock<Weak<Transfers>>,
    own_log: OnceLock<OwnLog>,
    tls: OnceLock<Arc<TlsIdentity>>,
}

pub(crate) struct Node {
    id: String,
    live: watch::Sender<Option<Live>>,
    replaced: Replaced,
    /// Why all connections of this node must close. It is final: a node that joins again gets a new entry.
    dismissed: watch::Sender<Option<CloseReason>>,
    /// The second connection, for streams.
    pub(crate) bulk: watch::Sender<Option<Link>>,
    slots: Semaphore,
    /// Calls that the gateway waits for, with their progress receivers.
    waiting: Mutex<HashMap<String, WaitingCall>>,
    acks: Mutex<Vec<String>>,
    /// The announced key of the gateway that this node accepted.
    adopted_key: Mutex<Option<KeyPin>>,
    facts: Mutex<Facts>,
}

/// `Live` is a node's connection, and the instance id of its process.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) link: Link,
    pub(crate) instance: String,
}

#[derive(Debug, Clone, Default)]
struct Facts {
    tags: Vec<String>,
    platform: Option<String>,
    version: Option<String>,
    first_seen: Option<i64>,
    last_seen: Option<i64>,
    host_capabilities: Vec<String>,
    tool_capabilities: BTreeMap<String, Vec<String>>,
    revoked: bool,
}

/// `KeptTools` is what the database stores of a node's tools.
#[derive(Serialize, Deserialize)]
struct KeptTools {
    tools: NodeTools,
    capabilities: BTreeMap<String, Vec<String>>,
}

/// `Joining` is a node's introduction.
pub(crate) struct Joining {
    pub(crate) live: Live,
    pub(crate) hello: NodeHello,
    pub(crate) tools: NodeTools,
    pub(crate) platform: String,
    pub(crate) version: String,
}

impl Nodes {
    /// Loads all nodes from the database. They are offline until they connect.
    pub async fn open(registry: Registry, database: Database) -> Result<Arc<Nodes>, DatabaseError> {
        let nodes = Arc::new(Nodes {
            registry,
            database,
            instance: uuid::Uuid::new_v4().to_string(),
            known: Mutex::default(),
            transfers: OnceLock::new(),
            own_log: OnceLock::new(),
            tls: OnceLock::new(),
        });
        for row in nodes.database.list_nodes().await? {
            nodes.remember(row);
        }
        Ok(nodes)
    }

    fn remember(self: &Arc<Self>, row: NodeRow) {
        let kept: Option<KeptTools> = row.tools.and_then(|tools| serde_json::from_value(tools).ok());
        let facts = Facts {
            tags: row.tags.clone(),
            // An earlier Gantry accepted any text here.
            platform: row.platform.filter(|platform| is_valid_platform(platform)),
            version: row.version.filter(|version| is_valid_version(version)),
            first_seen: row.first_seen,
            last_seen: row.last_seen,
            host_capabilities: row.capabilities,
            tool_capabilities: kept.as_ref().map(|kept| kept.capabilities.clone()).unwrap_or_default(),
            revoked: row.revoked.is_some(),
        };
        let node = Arc::new(Node {
            id: row.id.clone(),
            live: watch::channel(None).0,
            replaced: Replaced::default(),
            dismissed: watch::channel(None).0,
            bulk: watch::channel(None).0,
            slots: Semaphore::new(MAX_CALLS_PER_NODE),
            waiting: Mutex::default(),
            acks: Mutex::default(),
            adopted_key: Mutex::default(),
            facts: Mutex::new(facts),
        });
        let tools = kept.iter().flat_map(|kept| &kept.tools.tools).map(|tool| {
            let ids = node.facts().tool_capabilities.get(&tool.name).cloned().unwrap_or_default();
            let capabilities = ids.iter().filter_map(|id| Capability::from_id(id)).collect();
            remote_tools::remote_tool(self, &node, tool, capabilities)
        });
        let tools = tools.collect();
        self.registry.set_node(&row.id, NodeState { online: false, tags: row.tags }, tools);
        self.known().insert(row.id, node);
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Node>> {
        self.known().get(id).cloned()
    }

    /// Returns which of a reconnecting node's calls the gateway still waits for.
    pub(crate) fn wanted(&self, id: &str, calls: &[String]) -> Vec<String> {
        let Some(node) = self.find(id) else { return Vec::new() };
        let waiting = node.waiting();
        calls.iter().filter(|call| waiting.contains_key(*call)).cloned().collect()
    }

    /// Adds a connected node to routing and closes its older connection.
    pub(crate) async fn attach(self: &Arc<Self>, node: &Arc<Node>, joining: Joining) -> Result<(), String> {
        let Joining { live, hello, tools, platform, version } = joining;
        let made = remote_tools::tools(self, node, &hello, &tools)?;
        let kept = KeptTools { tools, capabilities: hello.tools.clone() };
        let seen = SeenNode {
            platform: platform.clone(),
            version: version.clone(),
            instance: live.instance.clone(),
            tools: serde_json::to_value(&kept).unwrap_or_default(),
            host_capabilities: hello.host_capabilities.clone(),
        };
        let now = now_ms();
        self.database.node_seen(&node.id, &seen, now).await.map_err(|err| err.to_string())?;
        let tags = {
            let mut facts = node.facts();
            facts.platform = Some(platform);
            facts.version = Some(version);
            facts.first_seen.get_or_insert(now);
            facts.last_seen = Some(now);
            facts.host_capabilities = hello.host_capabilities;
            facts.tool_capabilities = hello.tools;
            facts.tags.clone()
        };
        // The node may have been removed or revoked during its introduction.
        if self.find(&node.id).is_none_or(|known| !Arc::ptr_eq(&known, node)) || node.facts().revoked {
            return Err("the node was removed or revoked while it connected".into());
        }
        tracing::info!(node = node.id, platform = seen.platform, version = seen.version, "node_connected");
        self.registry.set_node(&node.id, NodeState { online: true, tags }, made);
        if let Some(transfers) = self.transfers() {
            transfers.node_connected(&node.id, &live.link);
        }
        self.announce_key_to(node, &live.link);
        if let Some(old) = node.take_place(live) {
            old.link.close(CloseReason::Replaced);
        }
        // The bulk connection belongs to the main one. A new one is requested when needed.
        if let Some(bulk) = node.bulk.send_replace(None) {
            bulk.close(CloseReason::MainClosed);
        }
        Ok(())
    }

    /// Removes a disconnected node from routing, unless it has already reconnected.
    pub(crate) async fn detach(&self, node: &Arc<Node>, link: &Link) {
        let gone = node.live.send_if_modified(|live| {
            let ours = live.as_ref().is_some_and(|live| live.link == *link);
            if ours {
                *live = None;
            }
            ours
        });
        if !gone {
            return;
        }
        tracing::info!(node = node.id, "node_disconnected");
        let now = now_ms();
        let tags = {
            let mut facts = node.facts();
            facts.last_seen = Some(now);
            facts.tags.clone()
        };
        if self.find(&node.id).is_some() {
            self.registry.set_node_state(&node.id, NodeState { online: false, tags });
            // The time is only informative, so a failed write is ignored.
            let _ = self.database.node_left(&node.id, now).await;
        }
    }

    pub(crate) fn attach_bulk(&self, node: &Node, instance: &str, link: Link) -> Result<(), CloseReason> {
        if node.live().is_none_or(|live| live.instance != instance) {
            return Err(CloseReason::MainClosed);
        }
        if let Some(old) = node.bulk.send_replace(Some(link)) {
            old.close(CloseReason::Replaced);
        }
        Ok(())
    }

    pub(crate) fn detach_bulk(&self, node: &Node, link: &Link) {
        node.bulk.send_if_modified(|bulk| {
            let ours = bulk.as_ref() == Some(link);
            if ours {
                *bulk = None;
            }
            ours
        });
    }

    pub(crate) fn infos(&self) -> Vec<NodeInfo> {
        self.known().values().map(|node| node.info()).collect()
    }

    pub(crate) fn close_all(&self, reason: &CloseReason) {
        for node in self.known().values() {
            for link in node.live().map(|live| live.link).into_iter().chain(node.bulk.borrow().clone()) {
                link.close(reason.clone());
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Node>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Administration of nodes. Each change is written to the database first, then to memory.
impl Nodes {
    pub(crate) async fn add(self: &Arc<Self>, id: &str, tags: &[String]) -> Result<String, DatabaseError> {
        self.check_not_a_server(id)?;
        let token = self.database.add_node(id, tags, now_ms()).await?;
        self.reload(id).await?;
        Ok(token.expose().to_owned())
    }

    /// Returns why a node cannot be invited, before anything changes.
    pub(crate) async fn check_invite(
        &self,
        id: &str,
        tags: &[String],
        known: InviteKnown,
    ) -> Result<(), DatabaseError> {
        self.check_not_a_server(id)?;
        self.database.check_invite(id, tags, known).await
    }

    /// Stores a join code for a node, which is added if it is new. Returns when the code expires.
    pub(crate) async fn invite(
        self: &Arc<Self>,
        id: &str,
        tags: &[String],
        known: InviteKnown,
        code: &[u8],
    ) -> Result<i64, DatabaseError> {
        self.check_not_a_server(id)?;
        let expires = self.database.invite_node(id, tags, known, code, now_ms()).await?;
        self.dismiss(id, CloseReason::NodeTokenRenewed, id).await;
        self.reload(id).await?;
        Ok(expires)
    }

    /// Fails if an MCP server has this name, because both kinds of names are prefixes of tools.
    fn check_not_a_server(&self, id: &str) -> Result<(), DatabaseError> {
        if self.registry.has_server(id) {
            let message = format!("\"{id}\" is the name of an MCP server; choose another name for the node");
            return Err(DatabaseError::Refused(message));
        }
        Ok(())
    }

    /// Creates a new token and closes connections with the old one.
    pub(crate) async fn renew(self: &Arc<Self>, id: &str) -> Result<String, DatabaseError> {
        let token = self.database.renew_node_token(id).await?;
        self.dismiss(id, CloseReason::NodeTokenRenewed, id).await;
        self.reload(id).await?;
        Ok(token.expose().to_owned())
    }

    /// Returns the tags as they are kept: in order, each once.
    pub(crate) async fn tag(&self, id: &str, tags: &[String]) -> Result<Vec<String>, DatabaseError> {
        let tags = self.database.set_node_tags(id, tags).await?;
        if let Some(node) = self.find(id) {
            node.facts().tags.clone_from(&tags);
            let online = node.live().is_some();
            self.registry.set_node_state(id, NodeState { online, tags: tags.clone() });
        }
        Ok(tags)
    }

    /// Renames a node. It must reconnect under the new id; running calls and transfers then continue.
    pub async fn rename(self: &Arc<Self>, id: &str, new_id: &str) -> Result<(), DatabaseError> {
        self.check_not_a_server(new_id)?;
        self.database.rename_node(id, new_id).await?;
        self.reload(new_id).await?;
        // Before the connections are closed: transfers must not take that for the end of the node.
        if let Some(transfers) = self.transfers() {
            transfers.node_renamed(id, new_id);
        }
        self.dismiss(id, CloseReason::NodeRenamed { new_id: new_id.to_owned() }, new_id).await;
        let last_seen = self.find(id).and_then(|node| node.facts().last_seen);
        if let Some(renamed) = self.find(new_id) {
            renamed.facts().last_seen = last_seen;
        }
        self.forget_in_memory(id);
        Ok(())
    }

    pub(crate) async fn revoke(&self, id: &str) -> Result<(), DatabaseError> {
        self.database.revoke_node(id, now_ms()).await?;
        if let Some(node) = self.find(id) {
            node.facts().revoked = true;
        }
        self.dismiss(id, CloseReason::NodeTokenRevoked, id).await;
        Ok(())
    }

    pub(crate) async fn forget(&self, id: &str) -> Result<(), DatabaseError> {
        self.database.forget_node(id).await?;
        self.dismiss(id, CloseReason::NodeForgotten, id).await;
        self.forget_in_memory(id);
        Ok(())
    }

    fn forget_in_memory(&self, id: &str) {
        self.known().remove(id);
        self.registry.remove_node(id);
    }

    async fn reload(self: &Arc<Self>, id: &str) -> Result<(), DatabaseError> {
        if let Some(row) = self.database.node(id).await? {
            self.remember(row);
        }
        Ok(())
    }

    /// Closes every connection of a node for good. `known_as` is its current name in the database.
    async fn dismiss(&self, id: &str, reason: CloseReason, known_as: &str) {
        let Some(node) = self.find(id) else { return };
        node.dismissed.send_replace(Some(reason.clone()));
        let live = node.live.send_replace(None);
        if let Some(bulk) = node.bulk.send_replace(None) {
            bulk.close(reason.clone());
        }
        let tags = node.facts().tags.clone();
        self.registry.set_node_state(id, NodeState { online: false, tags });
        if let Some(live) = live {
            live.link.close(reason);
            let now = now_ms();
            node.facts().last_seen = Some(now);
            // The time is only informative, so a failed write is ignored.
            let _ = self.database.node_left(known_as, now).await;
        }
    }
}

impl Node {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.facts().revoked
    }

    /// Returns the error for a call to this node while it is not connected.
    pub(crate) fn absent(&self) -> ToolError {
        let id = &self.id;
        if self.is_revoked() {
            let hint = format!(
                "`gantry nodes renew {id}` lets it join again, `gantry nodes forget {id}` removes the node"
            );
            return ToolError::unavailable(format!("the token of the node \"{id}\" is revoked"))
                .with_hint(hint);
        }
        let seen = self.info().last_seen.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        let seen = seen.map_or("it never connected".to_owned(), |seen| format!("last seen {seen:.0}"));
        ToolError::unavailable(format!("the node \"{id}\" is offline; {seen}"))
            .with_hint("start it on its machine with `gantry node`; `gantry nodes` lists all nodes")
    }

    pub(crate) fn live(&self) -> Option<Live> {
        self.live.borrow().clone()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Option<Live>> {
        self.live.subscribe()
    }

    /// Waits until the node's connections must close, and returns the reason.
    pub(crate) async fn dismissed(&self) -> CloseReason {
        let mut dismissed = self.dismissed.subscribe();
        match dismissed.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(CloseReason::NodeForgotten),
            Err(_) => CloseReason::NodeForgotten,
        }
    }

    /// Passes a call's progress to its receiver.
    pub(crate) fn report(&self, progress: CallProgress) {
        let sink = self.waiting().get(&progress.call).and_then(|waiting| waiting.call.progress.clone());
        if let Some(sink) = sink {
            sink.report(Progress { done: progress.done, total: progress.total, message: progress.message });
        }
    }

    pub(crate) fn info(&self) -> NodeInfo {
        let facts = self.facts().clone();
        let online = self.live().is_some();
        NodeInfo {
            id: self.id.clone(),
            online,
            revoked: facts.revoked,
            tags: facts.tags,
            client_platform: facts.platform,
            client_version: facts.version,
            first_seen: facts.first_seen,
            last_seen: if online { Some(now_ms()) } else { facts.last_seen },
            host_capabilities: facts.host_capabilities,
            tool_capabilities: facts.tool_capabilities,
            in_flight: self.waiting().len(),
            latency_ms: self
                .live()
                .and_then(|live| live.link.round_trip())
                .map(|time| time.as_secs_f64() * 1000.0),
        }
    }

    /// Acknowledges a result to the node, in a batch.
    fn acknowledge(self: &Arc<Self>, call_id: &str) {
        let waiting = {
            let mut acks = self.acks.lock().unwrap_or_else(PoisonError::into_inner);
            acks.push(call_id.to_owned());
            acks.len()
        };
        match waiting {
            ACK_BATCH => self.send_acks(),
            1 => {
                let node = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(ACK_PAUSE).await;
                    node.send_acks();
                });
            }
            _ => {}
        }
    }

    /// Sends the acknowledgements. A node that misses them learns from its next `connect` which results are wanted.
    fn send_acks(&self) {
        let call_ids = std::mem::take(&mut *self.acks.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(live) = self.live().filter(|_| !call_ids.is_empty()) {
            live.link.try_event(event::TOOL_ACK, raw(&ToolAck { call_ids }));
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, WaitingCall>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lists the known machines for agents' prompts.
pub fn node_lines(
    registry: Registry,
    nodes: Arc<Nodes>,
    version: String,
) -> Arc<dyn Fn() -> Vec<NodeLine> + Send + Sync> {
    Arc::new(move || {
        let infos = local_info(&registry, &version).into_iter().chain(nodes.infos());
        let known = infos.filter(|info| !info.revoked).map(|info| NodeLine {
            id: info.id,
            platform: info.client_platform,
            online: info.online,
            capabilities: info.host_capabilities,
        });
        known.collect()
    })
}

/// Describes the gateway's own machine for listings.
pub(crate) fn local_info(registry: &Registry, version: &str) -> Option<NodeInfo> {
    let prefix = format!("{LOCAL_NODE}__");
    let mut tool_capabilities = BTreeMap::new();
    for tool in registry.entries() {
        if let Some(name) = tool.name().strip_prefix(&prefix) {
            let ids: Vec<String> = tool.capability_ids().iter().map(|id| id.id().to_owned()).collect();
            tool_capabilities.insert(name.to_owned(), ids);
        }
    }
    let host: std::collections::BTreeSet<String> = tool_capabilities.values().flatten().cloned().collect();
    (!tool_capabilities.is_empty()).then(|| NodeInfo {
        id: LOCAL_NODE.to_owned(),
        online: true,
        revoked: false,
        tags: Vec::new(),
        client_platform: Some(gantry_protocol::current_platform()),
        client_version: Some(version.to_owned()),
        first_seen: None,
        last_seen: Some(now_ms()),
        host_capabilities: host.into_iter().collect(),
        tool_capabilities,
        in_flight: 0,
        latency_ms: None,
    })
}
