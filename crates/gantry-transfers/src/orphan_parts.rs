//! Removes orphan parts: part files that no transfer will continue. Their transfer ended while their machine was
//! offline, or another gateway or data directory began it.

use std::sync::Arc;
use std::time::Duration;

use gantry_link::Link;
use gantry_protocol::{RawJson, TransferOver, TransferParts, method, raw};
use gantry_store::{Database, TransferState};
use gantry_toolsets::Endpoint;
use gantry_transfer::{TransferRequest, TransferService};
use tokio_util::sync::CancellationToken;

const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// An endpoint that may hold part files.
pub(crate) enum PartHolder {
    Node { id: String, link: Link },
    Own(Arc<TransferService>),
}

/// Lists the transfers whose parts an endpoint holds, and removes the parts of ended and unknown transfers. An endpoint
/// that does not answer is cleaned when it connects again.
pub(crate) async fn remove_orphan_parts(database: &Database, holder: &PartHolder) {
    loop {
        let answer = holder.request(method::TRANSFER_PARTS, raw(&serde_json::Map::new())).await;
        let parts = answer.and_then(|answer| serde_json::from_str::<TransferParts>(answer.get()).ok());
        let Some(TransferParts { transfers, more }) = parts else { return };
        let mut removed = false;
        for transfer in transfers {
            if is_wanted(database, holder, &transfer).await {
                continue;
            }
            let over = TransferOver { transfer, entries: Vec::new() };
            if holder.request(method::TRANSFER_ABANDON, raw(&over)).await.is_none() {
                return;
            }
            removed = true;
        }
        if !more || !removed {
            return;
        }
    }
}

/// Whether a transfer will continue with its parts here. If the database cannot answer, the parts are kept.
async fn is_wanted(database: &Database, holder: &PartHolder, transfer: &str) -> bool {
    match database.transfer(transfer).await {
        Ok(Some(row)) if row.state == TransferState::Running => {
            match (holder, Endpoint::parse(&row.destination)) {
                (PartHolder::Node { id, .. }, Ok(Endpoint::Node { node, .. })) => node == *id,
                (PartHolder::Node { .. }, _) => false,
                (PartHolder::Own(_), _) => true,
            }
        }
        Ok(_) => false,
        Err(_) => true,
    }
}

impl PartHolder {
    async fn request(&self, method: &str, params: RawJson) -> Option<RawJson> {
        match self {
            PartHolder::Node { link, .. } => link.request_within(method, params, ANSWER_LIMIT).await.ok(),
            PartHolder::Own(service) => {
                let cancel = CancellationToken::new();
                let request = TransferRequest { method: method.to_owned(), params, cancel, out: None };
                service.answer(request).await.ok()
            }
        }
    }
}
