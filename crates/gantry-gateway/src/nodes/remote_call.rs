//! Carries one call to a node and its answer back, over as many connections as that takes.

use std::sync::Arc;
use std::time::Duration;

use gantry_link::{Link, LinkError, offload_if_large};
use gantry_protocol::{CallResult, ErrorCode, MAX_FRAME_BYTES, WireError, method, node_call_text};
use gantry_tool::{Call, Refusal, RefusalCode, Reply, ToolError, remote_reply};
use serde_json::Value;

use super::{Live, Node, Nodes};

/// A node that is away this long in the middle of a call is not waited for, unless the caller gave a deadline.
const AWAY_LIMIT: Duration = Duration::from_secs(60);

/// How long a node may take to end what was called off. Less than the gate waits.
const CALL_OFF_GRACE: Duration = Duration::from_millis(1500);

/// What is around the parameters of a request.
const ROOM_FOR_HEAD: usize = 1024;

/// Connections that one call may use up. A node whose answer cuts its own connection must not do so for ever.
const MAX_SENDS: usize = 256;

/// By how much a node may be early at a deadline.
const CLOCKS_DIFFER: Duration = Duration::from_millis(250);

impl Nodes {
    /// Runs a tool on a node. The same call may be sent more than once, over a new connection of the same process; the
    /// node runs it once.
    pub(crate) async fn call_on_node(
        &self,
        node: &Arc<Node>,
        call: &Arc<Call>,
        tool: &str,
        input: Value,
    ) -> Result<Reply, ToolError> {
        let first = node.live().ok_or_else(|| node.absent())?;
        let _slot = tokio::select! {
            biased;
            slot = node.slots.acquire() => slot.map_err(|err| ToolError::internal(err.to_string()))?,
            () = call.cancel.cancelled() => return Err(ToolError::Cancelled),
        };
        let _expected = Expected::new(node, call);
        let params = node_call_text(&call.id, tool, &input, &call.caller());
        // It may be large, and the wait long.
        drop(input);
        if params.get().len() > MAX_FRAME_BYTES - ROOM_FOR_HEAD {
            let message = format!("the input has {} bytes, too many for a node", params.get().len());
            return Err(ToolError::Refused(Refusal::new(RefusalCode::InvalidInput, message)));
        }
        let mut live = node.live().unwrap_or(first);
        let instance = live.instance.clone();
        for _ in 0..MAX_SENDS {
            let answer = live
                .link
                .request_until(method::TOOL_CALL, &params, call.deadline, &call.cancel, CALL_OFF_GRACE)
                .await;
            let answered = match answer {
                Ok(result) => Ok(result),
                Err(LinkError::Remote(error)) => Err(error),
                Err(LinkError::Closed(reason)) => {
                    live = next_connection(node, call, &live.link, &reason.to_string()).await?;
                    if live.instance != instance {
                        return Err(restarted(node));
                    }
                    continue;
                }
            };
            node.acknowledge(&call.id);
            return match answered {
                Err(error) if error.code == ErrorCode::Cancelled => Err(given_up(call)),
                Err(error) if is_own_fault(error.code) => Err(failed(node, &error)),
                Err(error) => Err(ToolError::Refused(refused_there(node, error))),
                Ok(result) => offload_if_large(result.get().len(), || {
                    serde_json::from_str::<CallResult<Value>>(result.get())
                        .map_err(|err| err.to_string())
                        .and_then(|result| remote_reply(result, call))
                        .unwrap_or_else(|why| Err(no_result(node, &why)))
                }),
            };
        }
        Err(lost(format!("the node \"{}\" was lost {MAX_SENDS} times during the call", node.id), ""))
    }
}

/// The node's next connection. The gate ends the wait at the deadline.
async fn next_connection(node: &Node, call: &Call, old: &Link, reason: &str) -> Result<Live, ToolError> {
    let mut connections = node.watch();
    let back = async {
        // The lost one stays in its place for a moment, and another may be lost by then too.
        let usable = |live: &Live| live.link != *old && !live.link.is_closed();
        match connections.wait_for(|live| live.as_ref().is_some_and(usable)).await {
            Ok(live) => live.clone(),
            Err(_) => None,
        }
    };
    let away = async {
        // The gateway sets a deadline on every call; only one that a caller chose is soon.
        match call.deadline {
            Some(deadline)
                if deadline.saturating_duration_since(std::time::Instant::now())
                    < Duration::from_secs(3600) =>
            {
                std::future::pending().await
            }
            _ => tokio::time::sleep(AWAY_LIMIT).await,
        }
    };
    let gone = || lost(format!("the node \"{}\" was lost during the call", node.id), reason);
    tokio::select! {
        biased;
        live = back => live.ok_or_else(gone),
        _ = node.dismissed() => Err(gone()),
        () = call.cancel.cancelled() => Err(ToolError::Cancelled),
        () = away => Err(gone()),
    }
}

fn restarted(node: &Node) -> ToolError {
    lost(format!("the node \"{}\" was restarted during the call", node.id), "")
}

/// The error of a call that may or may not have taken effect. `why` is empty where the event explains itself.
fn lost(event: String, why: &str) -> ToolError {
    let colon = if why.is_empty() { "" } else { ": " };
    ToolError::Refused(Refusal::lost(format!("{event}, whose outcome is unknown{colon}{why}")))
}

/// A node that gives up by itself does so at the deadline, which its clock may have reached a little before ours.
fn given_up(call: &Call) -> ToolError {
    let left = call.deadline.map(|deadline| deadline.saturating_duration_since(std::time::Instant::now()));
    if !call.cancel.is_cancelled() && left.is_some_and(|left| left < CLOCKS_DIFFER) {
        let refusal = Refusal::new(RefusalCode::Deadline, "the call's deadline passed");
        return ToolError::Refused(refusal.with_hint("allow more time, or ask for less"));
    }
    ToolError::Cancelled
}

/// A denial of the node's own policy says whose it is: the gateway has one too.
fn refused_there(node: &Node, error: WireError) -> Refusal {
    let mut refusal = Refusal::from_wire(error);
    if matches!(refusal.code, RefusalCode::Denied | RefusalCode::ApprovalNeeded | RefusalCode::Unaudited) {
        refusal.message = format!("the node \"{}\": {}", node.id, refusal.message);
    }
    refusal
}

/// Whether an error says that the node failed, not that it refused.
fn is_own_fault(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::Internal
            | ErrorCode::TooLarge
            | ErrorCode::Failed
            | ErrorCode::BadFrame
            | ErrorCode::UnknownMethod
            | ErrorCode::NotConnected
    )
}

fn failed(node: &Node, error: &WireError) -> ToolError {
    lost(format!("the node \"{}\" failed at the call", node.id), &error.message)
}

fn no_result(node: &Node, why: &str) -> ToolError {
    let why = format!("the node's answer cannot be read: {why}");
    lost(format!("the node \"{}\" has done the call", node.id), &why)
}

/// A call the gateway waits for; a node that comes back is told which those are.
struct Expected<'a> {
    node: &'a Node,
    id: String,
}

impl<'a> Expected<'a> {
    fn new(node: &'a Node, call: &Call) -> Expected<'a> {
        node.waiting().insert(call.id.clone(), call.progress.clone());
        Expected { node, id: call.id.clone() }
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.node.waiting().remove(&self.id);
    }
}
