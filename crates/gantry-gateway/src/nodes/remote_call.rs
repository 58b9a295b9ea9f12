//! Sends a call to a node and returns its answer, also across reconnects.

use std::sync::Arc;
use std::time::Duration;

use gantry_link::{Link, LinkError, offload_if_large};
use gantry_protocol::{CallResult, ErrorCode, MAX_FRAME_BYTES, WireError, method, node_call_text};
use gantry_tool::{Call, Refusal, RefusalCode, Reply, ToolError, remote_reply};
use serde_json::Value;

use super::connection_questions::WaitingCall;
use super::{Live, Node, Nodes};

/// How long a call waits for a node to reconnect, unless the caller set a deadline.
const AWAY_LIMIT: Duration = Duration::from_secs(60);

/// How long a node may take to end a cancelled call. It is less than the gate waits.
const CALL_OFF_GRACE: Duration = Duration::from_millis(1500);

/// Bytes of a request around its parameters.
const ROOM_FOR_HEAD: usize = 1024;

/// Maximum connections of one call, in case a node's answer always cuts its own connection.
const MAX_SENDS: usize = 256;

/// How much earlier than the gateway a node may reach a deadline.
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
        let _expected = Expected::new(node, call, tool);
        let params = node_call_text(&call.id, tool, &input, &call.caller());
        // The input may be large, and the call may take long.
        drop(input);
        if params.get().len() > MAX_FRAME_BYTES - ROOM_FOR_HEAD {
            let message = format!("the input is too large for a node: {} bytes", params.get().len());
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
        Err(lost(format!("the node \"{}\" disconnected {MAX_SENDS} times during the call", node.id), ""))
    }
}

/// Waits for the node's next connection. The gate ends the wait at the deadline.
async fn next_connection(node: &Node, call: &Call, old: &Link, reason: &str) -> Result<Live, ToolError> {
    let mut connections = node.watch();
    let back = async {
        // The lost connection may still be the current one, and a newer one may be closed already.
        let usable = |live: &Live| live.link != *old && !live.link.is_closed();
        match connections.wait_for(|live| live.as_ref().is_some_and(usable)).await {
            Ok(live) => live.clone(),
            Err(_) => None,
        }
    };
    let away = async {
        // Every call has a deadline. One within an hour was set by the caller.
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
    let gone = || lost(format!("the node \"{}\" disconnected during the call", node.id), reason);
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

/// Makes the error of a call that may have had an effect. `why` may be empty.
fn lost(event: String, why: &str) -> ToolError {
    let colon = if why.is_empty() { "" } else { ": " };
    ToolError::Refused(Refusal::lost(format!("{event}; its outcome is unknown{colon}{why}")))
}

/// Makes the error of a call that the node cancelled: at its deadline, which the node's clock may reach a little earlier.
fn given_up(call: &Call) -> ToolError {
    let left = call.deadline.map(|deadline| deadline.saturating_duration_since(std::time::Instant::now()));
    if !call.cancel.is_cancelled() && left.is_some_and(|left| left < CLOCKS_DIFFER) {
        let refusal = Refusal::new(RefusalCode::Deadline, "the call's deadline passed");
        return ToolError::Refused(refusal.with_hint("set a longer deadline, or request less work"));
    }
    ToolError::Cancelled
}

/// Names the node in a denial of its own policy, because the gateway has a policy too.
fn refused_there(node: &Node, error: WireError) -> Refusal {
    let mut refusal = Refusal::from_wire(error);
    if matches!(refusal.code, RefusalCode::Denied | RefusalCode::ApprovalNeeded | RefusalCode::Unaudited) {
        refusal.message = format!("the node \"{}\": {}", node.id, refusal.message);
    }
    refusal
}

/// Returns whether an error means that the node failed, and not that it refused.
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
    lost(format!("the node \"{}\" failed to run the call", node.id), &error.message)
}

fn no_result(node: &Node, why: &str) -> ToolError {
    let why = format!("cannot parse the node's answer: {why}");
    lost(format!("the node \"{}\" ran the call", node.id), &why)
}

/// `Expected` registers a call that the gateway waits for. A reconnecting node gets the list of these calls.
struct Expected<'a> {
    node: &'a Node,
    id: String,
}

impl<'a> Expected<'a> {
    fn new(node: &'a Node, call: &Arc<Call>, tool: &str) -> Expected<'a> {
        node.waiting().insert(call.id.clone(), WaitingCall::new(call, node.id(), tool));
        Expected { node, id: call.id.clone() }
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.node.waiting().remove(&self.id);
    }
}
