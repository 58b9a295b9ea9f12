//! [`RunningTransfer`] is a transfer that is being driven, and [`Waiter`] a caller that waits for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gantry_protocol::{ErrorCode, WireError};
use gantry_tool::Progress;
use gantry_toolsets::{Endpoint, Transferred};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::meter::Meter;
use crate::node_connections::{NodeConnections, NodeStatus};
use crate::spec::TransferSpec;

pub(crate) type TransferResult = Result<Transferred, WireError>;

/// Identifies a running transfer. A second request by the same caller for the same paths joins it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TransferKey {
    pub(crate) principal: String,
    pub(crate) agent: String,
    pub(crate) source: String,
    pub(crate) destination: String,
}

/// What is known of a transfer that an earlier process of the gateway began.
pub(crate) struct ResumedState {
    /// The saved progress.
    pub(crate) progress: Option<String>,
    /// Fires when the client token that started the transfer is no longer valid.
    pub(crate) token_ended: CancellationToken,
}

pub(crate) struct RunningTransfer {
    pub(crate) id: String,
    /// Replaced when a node at one end is renamed.
    spec: Mutex<Arc<TransferSpec>>,
    pub(crate) resumed: Option<ResumedState>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) cancel: CancellationToken,
    pub(crate) outcome: watch::Sender<Option<TransferResult>>,
    /// The number of callers that wait. The last one to give up cancels the transfer.
    waiters: AtomicUsize,
}

impl RunningTransfer {
    pub(crate) fn new(spec: TransferSpec, resumed: Option<ResumedState>) -> RunningTransfer {
        RunningTransfer {
            id: spec.id.clone(),
            spec: Mutex::new(Arc::new(spec)),
            resumed,
            meter: Arc::new(Meter::new()),
            cancel: CancellationToken::new(),
            outcome: watch::channel(None).0,
            waiters: AtomicUsize::new(0),
        }
    }

    pub(crate) fn spec(&self) -> Arc<TransferSpec> {
        self.spec.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn key(&self) -> TransferKey {
        let spec = self.spec();
        TransferKey {
            principal: spec.caller.principal.clone(),
            agent: spec.caller.agent.clone(),
            source: spec.source.to_string(),
            destination: spec.destination.to_string(),
        }
    }

    pub(crate) fn rename_node(&self, old: &str, new: &str) {
        let mut spec = self.spec.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(renamed) = spec.renamed(old, new) {
            *spec = Arc::new(renamed);
        }
    }

    /// Returns when the token that started a resumed transfer is no longer valid. A transfer that callers have joined
    /// since belongs to them, and ends when they give up.
    pub(crate) async fn token_ended(&self) {
        if let Some(resumed) = &self.resumed {
            resumed.token_ended.cancelled().await;
            if self.waiters.load(Ordering::Acquire) == 0 {
                // A cancelled transfer cannot be joined.
                return self.cancel.cancel();
            }
        }
        std::future::pending().await
    }

    /// Reports how many bytes have arrived, and which node the transfer waits for.
    pub(crate) fn progress(&self, nodes: &dyn NodeConnections) -> Progress {
        let spec = self.spec();
        let offline = [&spec.source, &spec.destination].into_iter().find_map(|end| match end {
            Endpoint::Node { node, .. } => match nodes.status(node)? {
                NodeStatus::Connected => None,
                NodeStatus::Offline { .. } => Some(node),
            },
            Endpoint::Workspace { .. } => None,
        });
        let message = offline.map_or("bytes".into(), |node| format!("waiting for {node} to reconnect"));
        Progress { done: self.meter.done(), total: self.meter.total(), message }
    }
}

/// A caller that waits for a transfer. Dropping the last one cancels the transfer.
pub(crate) struct Waiter {
    pub(crate) transfer: Arc<RunningTransfer>,
}

impl Waiter {
    pub(crate) fn new(transfer: Arc<RunningTransfer>) -> Waiter {
        transfer.waiters.fetch_add(1, Ordering::AcqRel);
        Waiter { transfer }
    }

    pub(crate) async fn outcome(&self) -> TransferResult {
        let mut outcome = self.transfer.outcome.subscribe();
        let ended = outcome.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone());
        ended.unwrap_or_else(|| Err(WireError::new(ErrorCode::Internal, "the transfer's task failed")))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.transfer.waiters.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.transfer.cancel.cancel();
        }
    }
}
