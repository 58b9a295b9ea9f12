//! [`NodeService`] answers the requests of the gateway.

use std::sync::Arc;

use gantry_link::{Event, Link, Request, ServeFuture, Service};
use gantry_protocol::{
    ErrorCode, LogsParams, LogsResult, NodeCallParams, RawJson, StreamFrame, StreamKind, ToolAck, WireError,
    event, method, raw,
};
use gantry_tool::{Call, Gate, Surface};
use serde_json::json;

use crate::answer::answer;
use crate::bulk::Bulk;
use crate::calls::Calls;
use crate::connection::dial_gateway;
use crate::connection_questions;
use crate::gateway_key::GatewayKeys;
use crate::log::NodeLog;
use crate::progress::{self, Current};
use crate::run::NodeOptions;

pub(crate) struct NodeService {
    pub(crate) id: String,
    /// Identifies this process of the node.
    pub(crate) instance: String,
    pub(crate) options: NodeOptions,
    pub(crate) gate: Arc<Gate>,
    pub(crate) calls: Calls,
    pub(crate) current: Current,
    pub(crate) bulk: Bulk,
    pub(crate) log: NodeLog,
    pub(crate) keys: GatewayKeys,
}

impl Service for NodeService {
    fn request(self: Arc<Self>, link: Link, request: Request) -> ServeFuture {
        Box::pin(async move {
            match request.method.as_str() {
                method::TOOL_CALL => self.tool_call(&link, &request).await,
                method::GATEWAY_KEY => self.keys.announced(&request.parse()?).map(|done| raw(&done)),
                method::LOGS_GET => self.logs_get(&request).await,
                method::BULK_OPEN => {
                    request.no_params()?;
                    self.bulk_open(&link).await
                }
                name if name.starts_with("transfer.") => self.bulk.request(request).await,
                _ => Err(request.unknown()),
            }
        })
    }

    fn event(&self, _link: &Link, event: Event) {
        if event.name == event::TOOL_ACK
            && let Some(ToolAck { call_ids }) = event.parse()
        {
            self.calls.acknowledge(&call_ids);
        }
    }

    /// Rejects stream frames, which belong on the bulk connection.
    fn stream(&self, link: &Link, frame: StreamFrame) {
        if frame.kind() != StreamKind::Abort {
            link.try_stream(StreamFrame::abort(frame.stream(), "streams go over the bulk connection"));
        }
    }
}

impl NodeService {
    /// Starts the call or joins it. A cancellation by the gateway ends it; a lost connection does not.
    async fn tool_call(&self, link: &Link, request: &Request) -> Result<RawJson, WireError> {
        let NodeCallParams { call_id, tool, input, caller } = request.parse()?;
        let mut call = Call::on_behalf(&caller, self.options.workspace.clone())?;
        call.autonomy_judged = true;
        // Results are not shortened here: only the gateway knows the limit of the caller.
        call.surface = Surface::Websocket;
        call.id.clone_from(&call_id);
        call.deadline = request.deadline;
        call.egress_approver =
            caller.asks.then(|| connection_questions::approver(self.current.clone(), call_id.clone()));
        call.progress = Some(progress::sink(self.current.clone(), call_id.clone()));
        let gate = Arc::clone(&self.gate);
        let mut attached = self.calls.attach(&call_id, request.deadline, |cancel| async move {
            call.cancel = cancel;
            answer(gate.execute(call, &tool, input.get()).await)
        })?;
        for dropped in self.calls.take_dropped() {
            tracing::warn!(
                call = dropped,
                reason = "too many results wait to be acknowledged",
                "resultDropped"
            );
        }
        tokio::select! {
            answer = attached.answer() => return answer,
            () = request.cancel.cancelled() => {}
        }
        if link.is_closed() {
            return Err(WireError::new(ErrorCode::Unavailable, "the connection was lost; the call goes on"));
        }
        self.calls.cancel(&call_id);
        attached.answer().await
    }

    async fn logs_get(&self, request: &Request) -> Result<RawJson, WireError> {
        let LogsParams { lines } = request.parse()?;
        let log = self.log.clone();
        let read = tokio::task::spawn_blocking(move || log.tail(lines)).await;
        let failed = |reason: String| {
            WireError::new(ErrorCode::Failed, format!("cannot read the node's log: {reason}"))
        };
        let tail = read.map_err(|err| failed(err.to_string()))?.map_err(|err| failed(err.to_string()))?;
        Ok(raw(&LogsResult { lines: tail.lines, truncated: tail.truncated }))
    }

    async fn bulk_open(&self, link: &Link) -> Result<RawJson, WireError> {
        let dial = |hello| async {
            dial_gateway(&self.id, &self.options, hello).await.map_err(|err| err.to_string())
        };
        self.bulk.open(link, dial, &self.instance).await?;
        Ok(raw(&json!({})))
    }
}
