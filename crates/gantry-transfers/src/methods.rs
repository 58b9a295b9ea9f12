//! `transfers.list`, `transfers.listen` and `transfers.cancel`, for the operator.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_domain::{MethodContext, Methods};
use gantry_protocol::{
    Empty, ErrorCode, TransferId, TransferInfo, TransferList, WireError, event, method, raw,
};
use gantry_store::{TransferRow, TransferState};

use crate::transfers::Transfers;

/// Transfers in a list.
const LISTED: u32 = 200;

/// The time between two looks at the transfers, while one is running and while none is.
const BUSY_PAUSE: Duration = Duration::from_millis(500);
const IDLE_PAUSE: Duration = Duration::from_secs(2);

/// The connections that listen.
#[derive(Default)]
pub(crate) struct Listeners(Mutex<HashSet<u64>>);

impl Listeners {
    fn all(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Answer<T> = Result<T, WireError>;

pub(crate) fn methods(transfers: &Arc<Transfers>) -> Methods {
    Methods::default()
        .on_operator(method::TRANSFERS_LIST, transfers, list)
        .on_operator(method::TRANSFERS_LISTEN, transfers, listen)
        .on_operator(method::TRANSFERS_CANCEL, transfers, cancel)
}

async fn list(transfers: Arc<Transfers>, _: MethodContext, _: Empty) -> Answer<TransferList> {
    transfers.listed().await
}

/// Answers with the transfers, and sends them again whenever they change, until the client disconnects.
async fn listen(transfers: Arc<Transfers>, context: MethodContext, _: Empty) -> Answer<TransferList> {
    let first = transfers.listed().await?;
    if !transfers.listeners.all().insert(context.connection) {
        return Ok(first);
    }
    let mut sent = first.clone();
    tokio::spawn(async move {
        loop {
            let is_busy = transfers.runs_any();
            tokio::select! {
                _ = context.link.closed() => break,
                () = tokio::time::sleep(if is_busy { BUSY_PAUSE } else { IDLE_PAUSE }) => {}
            }
            // A failed read is repeated after the pause.
            let Ok(now) = transfers.listed().await else { continue };
            if now != sent {
                if context.link.event(event::TRANSFERS_CHANGED, raw(&now)).await.is_err() {
                    break;
                }
                sent = now;
            }
        }
        transfers.listeners.all().remove(&context.connection);
    });
    Ok(first)
}

async fn cancel(transfers: Arc<Transfers>, _: MethodContext, params: TransferId) -> Answer<TransferId> {
    match transfers.by_id(&params.id) {
        Some(running) => {
            running.cancel.cancel();
            Ok(params)
        }
        None => {
            let shown: String = params.id.chars().take(80).collect();
            let message = format!("no transfer {shown:?} is running; transfers.list lists them");
            Err(WireError::new(ErrorCode::NotFound, message))
        }
    }
}

impl Transfers {
    async fn listed(&self) -> Answer<TransferList> {
        let rows = self.database.list_transfers(LISTED).await;
        let rows = rows.map_err(|err| WireError::new(ErrorCode::Internal, err.to_string()))?;
        Ok(TransferList { transfers: rows.into_iter().map(|row| self.info(row)).collect() })
    }

    /// The stored state of a transfer, and what has arrived since of a running one.
    fn info(&self, row: TransferRow) -> TransferInfo {
        let running = self.by_id(&row.id);
        let progress = running.map(|running| running.progress(&*self.nodes));
        let waits = progress.as_ref().and_then(|progress| {
            progress.message.strip_prefix("waiting for ")?.strip_suffix(" to reconnect").map(str::to_owned)
        });
        TransferInfo {
            size: progress.as_ref().and_then(|progress| progress.total).or(row.size),
            bytes_done: progress
                .as_ref()
                .map_or(row.bytes_done, |progress| progress.done.max(row.bytes_done)),
            waits_for: waits,
            state: match row.state {
                TransferState::Running => "running",
                TransferState::Done => "done",
                TransferState::Failed => "failed",
            }
            .to_owned(),
            id: row.id,
            agent: row.agent,
            principal: row.principal,
            source: row.source,
            destination: row.destination,
            error: row.error,
            created: row.created,
            updated: row.updated,
        }
    }
}
