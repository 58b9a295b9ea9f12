//! Has parts removed that no transfer goes on with: those that were given up while their machine was away, or that an earlier
//! gateway, or an earlier data directory, began.

use std::sync::Arc;
use std::time::Duration;

use gantry_link::Link;
use gantry_protocol::{RawJson, TransferOver, TransferParts, method, raw};
use gantry_store::{Database, TransferState};
use gantry_toolsets::Endpoint;
use gantry_transfer::{Ask, TransferService};
use tokio_util::sync::CancellationToken;

const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A place where parts may lie.
pub(crate) enum End {
    Node { id: String, link: Link },
    Service(Arc<TransferService>),
}

/// Asks which transfers an end has parts of, and has those removed that are over, or were never heard of. What is not answered is
/// asked again when the machine connects again.
pub(crate) async fn remove_orphan_parts(database: &Database, end: &End) {
    loop {
        let asked = end.ask(method::TRANSFER_PARTS, raw(&serde_json::Map::new())).await;
        let parts = asked.and_then(|answer| serde_json::from_str::<TransferParts>(answer.get()).ok());
        let Some(TransferParts { transfers, more }) = parts else { return };
        let mut removed = false;
        for transfer in transfers {
            if is_wanted(database, end, &transfer).await {
                continue;
            }
            let over = TransferOver { transfer, entries: Vec::new() };
            if end.ask(method::TRANSFER_ABANDON, raw(&over)).await.is_none() {
                return;
            }
            removed = true;
        }
        if !more || !removed {
            return;
        }
    }
}

/// What the database cannot tell is kept.
async fn is_wanted(database: &Database, end: &End, transfer: &str) -> bool {
    match database.transfer(transfer).await {
        Ok(Some(row)) if row.state == TransferState::Running => {
            match (end, Endpoint::parse(&row.destination)) {
                (End::Node { id, .. }, Ok(Endpoint::Node { node, .. })) => node == *id,
                (End::Node { .. }, _) => false,
                (End::Service(_), _) => true,
            }
        }
        Ok(_) => false,
        Err(_) => true,
    }
}

impl End {
    async fn ask(&self, method: &str, params: RawJson) -> Option<RawJson> {
        match self {
            End::Node { link, .. } => link.request_within(method, params, ANSWER_LIMIT).await.ok(),
            End::Service(desk) => {
                let cancel = CancellationToken::new();
                desk.answer(Ask { method: method.to_owned(), params, cancel, out: None }).await.ok()
            }
        }
    }
}
