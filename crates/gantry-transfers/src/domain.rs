//! [`TransfersDomain`] plugs transfers into the gateway.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::BoxFuture;
use gantry_domain::{Domain, Methods, Running};
use gantry_protocol::{ErrorCode, WireError};
use gantry_tool::{Call, Message, Refusal, ToolError};
use gantry_toolsets::{Endpoint, NodeLogs, NodeServices, ToolFuture, Transferred, gateway_tools};

use crate::methods;
use crate::transfers::Transfers;

/// How often a caller gets a progress report. Surfaces send fewer of them.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// File transfers, and the tools that reach nodes for files and logs.
#[derive(Clone)]
pub struct TransfersDomain(pub Arc<Transfers>);

impl Domain for TransfersDomain {
    fn name(&self) -> &'static str {
        "transfers"
    }

    fn methods(&self) -> Methods {
        methods::methods(&self.0)
    }

    fn start<'a>(&'a self, running: &'a Running) -> BoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            running.tools.add(gateway_tools(&self.0.objects, Some(Arc::new(self.clone()))))?;
            let unfinished = self.0.unfinished().await.context("cannot read unfinished transfers")?;
            unfinished.resume(&*running.services).await.context("cannot resume transfers")?;
            let transfers = self.0.clone();
            running.spawn_worker(async move {
                transfers.keep_tidy().await;
            });
            Ok(())
        })
    }
}

impl NodeServices for TransfersDomain {
    fn logs(&self, call: Arc<Call>, node: Option<String>, lines: usize) -> ToolFuture<'_, NodeLogs> {
        self.0.nodes.logs(call, node, lines)
    }

    /// Starts the transfer, or joins it if it runs already, and reports progress until it ends.
    fn transfer(
        &self,
        call: Arc<Call>,
        source: Endpoint,
        destination: Endpoint,
    ) -> ToolFuture<'_, Transferred> {
        Box::pin(async move {
            self.0.wait_for_returning(&call, &source).await;
            self.0.wait_for_returning(&call, &destination).await;
            self.0.check_tool(&call, &source, "Read")?;
            self.0.check_tool(&call, &destination, "Write")?;
            let waiter = self.0.start(&call, source, destination).await?;
            let report = || {
                if let Some(sink) = &call.progress {
                    sink.report(waiter.transfer.progress(&*self.0.nodes));
                }
            };
            let mut interval = tokio::time::interval(REPORT_INTERVAL);
            let mut outcome = std::pin::pin!(waiter.outcome());
            let outcome = loop {
                tokio::select! {
                    outcome = &mut outcome => break outcome,
                    () = call.cancel.cancelled() => return Err(ToolError::Cancelled),
                    _ = interval.tick() => report(),
                }
            };
            if outcome.is_ok() {
                report();
            }
            outcome.map_err(tool_error)
        })
    }
}

pub(crate) fn tool_error(error: WireError) -> ToolError {
    match error.code {
        ErrorCode::Denied | ErrorCode::ApprovalNeeded | ErrorCode::Unaudited => {
            ToolError::Refused(Refusal::from_wire(error))
        }
        ErrorCode::Cancelled => ToolError::Cancelled,
        ErrorCode::Unavailable => ToolError::Unavailable(Message::new(error.message)),
        ErrorCode::InvalidInput | ErrorCode::BadParams => ToolError::input(error.message),
        _ => ToolError::failed(error.message),
    }
}
