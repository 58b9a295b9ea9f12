//! [`Transfers`] keeps the running transfers of a gateway.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gantry_link::Link;
use gantry_protocol::StreamFrame;
use gantry_store::{DataDir, Database, NewTransfer, Objects};
use gantry_tool::{Call, Gate, Refusal, ResumedWork, ToolError};
use gantry_toolsets::Endpoint;
use gantry_transfer::TransferService;
use tokio_util::sync::CancellationToken;

use crate::connection::OwnServices;
use crate::domain::tool_error;
use crate::log;
use crate::meter::Meters;
use crate::methods::Listeners;
use crate::node_connections::NodeConnections;
use crate::object_backend::ObjectBackend;
use crate::orphan_parts::{PartHolder, remove_orphan_parts};
use crate::relay::{FramePeer, Relay};
use crate::resume_identity::ResumeIdentity;
use crate::running_transfer::{RunningTransfer, TransferKey, Waiter};
use crate::spec::TransferSpec;

/// How many transfers run at once.
const MAX_RUNNING: usize = 256;

const TIDY_INTERVAL: Duration = Duration::from_secs(3600);

/// A transfer without progress for this long fails.
pub const IDLE_LIMIT: Duration = Duration::from_secs(10 * 60);

pub struct TransfersParts {
    pub nodes: Arc<dyn NodeConnections>,
    /// Decides about both ends of a transfer and about files of directories, and audits resumed transfers.
    pub gate: Arc<Gate>,
    pub database: Database,
    pub objects: Objects,
    pub data: DataDir,
    /// The files of this machine, if the gateway serves them.
    pub local: Option<Arc<TransferService>>,
    pub idle_limit: Duration,
}

pub struct Transfers {
    pub(crate) nodes: Arc<dyn NodeConnections>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) database: Database,
    pub(crate) objects: Objects,
    pub(crate) own: OwnServices,
    pub(crate) relay: Arc<Relay>,
    pub(crate) idle_limit: Duration,
    /// Fires when the gateway stops. The next process resumes the transfers.
    pub(crate) suspended: CancellationToken,
    /// When this gateway started.
    pub(crate) started: Instant,
    /// Held while a transfer starts, so that two equal requests become one transfer.
    pub(crate) starting: tokio::sync::Mutex<()>,
    running: Mutex<HashMap<TransferKey, Arc<RunningTransfer>>>,
    meters: Meters,
    pub(crate) listeners: Listeners,
}

impl Transfers {
    pub fn new(parts: TransfersParts) -> Arc<Transfers> {
        let meters = Meters::default();
        let backend = Arc::new(ObjectBackend::new(parts.objects.clone(), parts.data, meters.clone()));
        let storage = TransferService::new(backend.clone(), backend);
        Arc::new(Transfers {
            nodes: parts.nodes,
            gate: parts.gate,
            database: parts.database,
            objects: parts.objects,
            own: OwnServices { storage, local: parts.local },
            relay: Arc::default(),
            idle_limit: parts.idle_limit,
            suspended: CancellationToken::new(),
            started: Instant::now(),
            starting: tokio::sync::Mutex::default(),
            running: Mutex::default(),
            meters,
            listeners: Listeners::default(),
        })
    }

    /// Returns the transfer for this request with the caller as a waiter. Starts it unless it runs already.
    pub(crate) async fn start(
        self: &Arc<Self>,
        call: &Call,
        source: Endpoint,
        destination: Endpoint,
    ) -> Result<Waiter, ToolError> {
        let _starting = self.starting.lock().await;
        let caller = call.caller();
        let identity = ResumeIdentity::of(call);
        let saved_identity = identity.to_text();
        let policy_call = Arc::new(identity.call(&caller).map_err(tool_error)?);
        let id = uuid::Uuid::now_v7().to_string();
        let spec = TransferSpec { id, caller, policy_call, source, destination };
        let transfer = RunningTransfer::new(spec, None);
        let (key, spec) = (transfer.key(), transfer.spec());
        let known = self.running().get(&key).filter(|known| !known.cancel.is_cancelled()).cloned();
        if let Some(known) = known {
            return Ok(Waiter::new(known));
        }
        for endpoint in [&spec.source, &spec.destination] {
            self.check_connected(endpoint)?;
        }
        if self.running().len() >= MAX_RUNNING {
            let text = format!("{MAX_RUNNING} transfers are already running");
            return Err(ToolError::unavailable(text).with_hint("try again later"));
        }
        let new = NewTransfer {
            id: transfer.id.clone(),
            agent: key.agent,
            principal: key.principal,
            autonomy: spec.caller.autonomy.clone(),
            source: key.source,
            destination: key.destination,
            standing: saved_identity,
        };
        let recorded = self.database.insert_transfer(&new, now_ms()).await;
        recorded.map_err(|err| ToolError::failed(format!("cannot record the transfer: {err}")))?;
        let waiter = Waiter::new(Arc::new(transfer));
        self.spawn(waiter.transfer.clone(), None);
        Ok(waiter)
    }

    /// Drives a transfer in a task. `work` is the audit record of a resumed one.
    pub(crate) fn spawn(self: &Arc<Self>, transfer: Arc<RunningTransfer>, work: Option<ResumedWork>) {
        self.running().insert(transfer.key(), transfer.clone());
        self.meters.add(&transfer.id, &transfer.meter);
        let transfers = self.clone();
        log::started(&transfer, work.is_some());
        tokio::spawn(async move {
            let outcome = transfers.drive(&transfer).await;
            log::ended(&transfer, &outcome);
            if let Some(work) = work {
                let failed = outcome.as_ref().err().map(|error| Refusal::from_wire(error.clone()));
                work.ended(failed.as_ref().map_or(Ok(()), Err));
            }
            transfers.meters.remove(&transfer.id);
            let mut running = transfers.running();
            let key = transfer.key();
            if running.get(&key).is_some_and(|known| Arc::ptr_eq(known, &transfer)) {
                running.remove(&key);
            }
            drop(running);
            transfer.outcome.send_replace(Some(outcome));
        });
    }

    /// Removes orphan parts from all endpoints, and records of old transfers: now, and then every hour. A node is also
    /// cleaned when it connects.
    pub async fn keep_tidy(&self) -> std::convert::Infallible {
        loop {
            let own = || self.own.local.iter().chain([&self.own.storage]);
            let nodes = self.nodes.connected().into_iter().map(|(id, link)| PartHolder::Node { id, link });
            for holder in own().map(|service| PartHolder::Own(service.clone())).chain(nodes) {
                remove_orphan_parts(&self.database, &holder).await;
            }
            // A failed sweep is retried in an hour.
            for service in own() {
                let _ = service.sweep().await;
            }
            let _ = self.database.sweep_transfers(now_ms()).await;
            tokio::time::sleep(TIDY_INTERVAL).await;
        }
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<Arc<RunningTransfer>> {
        self.running().values().find(|transfer| transfer.id == id).cloned()
    }

    pub(crate) fn runs_any(&self) -> bool {
        !self.running().is_empty()
    }

    fn running(&self) -> MutexGuard<'_, HashMap<TransferKey, Arc<RunningTransfer>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the gateway reports.
impl Transfers {
    /// A stream frame arrived over a node's bulk connection.
    pub fn relay_frame(&self, link: &Link, frame: StreamFrame) {
        self.relay.pass(&FramePeer::Link(link.clone()), frame);
    }

    /// A node connected. Its orphan parts are removed in the background.
    pub fn node_connected(&self, id: &str, link: &Link) {
        let database = self.database.clone();
        let holder = PartHolder::Node { id: id.to_owned(), link: link.clone() };
        tokio::spawn(async move { remove_orphan_parts(&database, &holder).await });
    }

    /// A node was renamed. Its transfers continue under the new name.
    pub fn node_renamed(&self, old: &str, new: &str) {
        let mut running = self.running();
        for transfer in std::mem::take(&mut *running).into_values() {
            transfer.rename_node(old, new);
            running.insert(transfer.key(), transfer);
        }
    }

    /// The gateway stops. Callers get an error that says so, and the next process resumes the transfers.
    pub fn suspend(&self) {
        self.suspended.cancel();
    }

    /// Counts frames that belonged to no stream of their sender.
    pub fn rejected_frames(&self) -> u64 {
        self.relay.rejected_frames()
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
