//! [`TransferService`] answers the requests of transfers and takes their stream frames.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_protocol::{
    ErrorCode, RawJson, StreamFrame, TransferDone, TransferHas, TransferHave, TransferMake, TransferManifest,
    TransferOver, TransferParts, TransferPrepare, TransferReceive, TransferSend, WireError, method, raw,
};
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::backend::{PathOpener, TransferBackend};
use crate::credit::Credit;
use crate::error::TransferError;
use crate::receiving::{self, HashedPart};
use crate::sending;
use crate::streams::{FrameOut, Streams};

/// How many part files may be open and hashed while they wait for the rest of their bytes.
const MAX_READY: usize = 64;

/// Part files that were not written for this long are removed, even if their gateway never returns.
const PARTS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
const SWEEP_PAUSE: Duration = Duration::from_secs(3600);

/// A request of a transfer.
pub struct TransferRequest {
    pub method: String,
    pub params: RawJson,
    /// Fires when the caller no longer waits for the answer.
    pub cancel: CancellationToken,
    /// Where stream frames go. Only `transfer.send` and `transfer.receive` need it.
    pub out: Option<Arc<dyn FrameOut>>,
}

/// One endpoint of transfers: a machine's files, or the object store.
pub struct TransferService {
    opener: Arc<dyn PathOpener>,
    backend: Arc<dyn TransferBackend>,
    streams: Streams,
    /// Part files that were hashed for `transfer.have`, by transfer and entry, until their stream opens.
    ready: Mutex<HashMap<(String, Option<String>), HashedPart>>,
    #[cfg(feature = "testing")]
    tampering: std::sync::OnceLock<crate::testing::Tamper>,
}

impl TransferService {
    pub fn new(opener: Arc<dyn PathOpener>, backend: Arc<dyn TransferBackend>) -> Arc<TransferService> {
        Arc::new(TransferService {
            opener,
            backend,
            streams: Streams::default(),
            ready: Mutex::default(),
            #[cfg(feature = "testing")]
            tampering: std::sync::OnceLock::new(),
        })
    }

    /// Makes this service dishonest: `tamper` decides what it does with each request. Only the first call counts.
    #[cfg(feature = "testing")]
    pub fn tamper_with(&self, tamper: crate::testing::Tamper) {
        let _ = self.tampering.set(tamper);
    }

    /// Takes a stream frame without blocking. A returned frame goes back to the sender.
    pub fn take(&self, frame: StreamFrame) -> Option<StreamFrame> {
        self.streams.take(frame)
    }

    /// Answers a request. `transfer.send` and `transfer.receive` return when the stream ends.
    pub async fn answer(&self, request: TransferRequest) -> Result<RawJson, WireError> {
        #[cfg(feature = "testing")]
        let conduct = match self.tampering.get() {
            Some(tamper) => tamper(&request).before_answer().await,
            None => crate::testing::Conduct::Honest,
        };
        let answer = match request.method.as_str() {
            method::TRANSFER_OPEN => raw(&self.opener.open(parse(&request)?, request.cancel.clone()).await?),
            method::TRANSFER_PREPARE => {
                let prepare: TransferPrepare = parse(&request)?;
                // Part files that are still open from an earlier attempt would block the next one.
                self.ready().retain(|(of, _), _| *of != prepare.transfer);
                raw(&self.opener.prepare(prepare, request.cancel.clone()).await?)
            }
            method::TRANSFER_MANIFEST => {
                let TransferManifest { transfer } = parse(&request)?;
                let page = self.blocking(move |backend| backend.page(&transfer)).await;
                raw(&page.map_err(|err| err.to_wire())?)
            }
            method::TRANSFER_MAKE => {
                let make: TransferMake = parse(&request)?;
                self.blocking(move |backend| backend.make(&make)).await.map_err(|err| err.to_wire())?;
                raw(&serde_json::Map::new())
            }
            method::TRANSFER_HAVE => {
                let has = self.have(parse(&request)?, &request.cancel).await;
                raw(&has.map_err(|err| err.to_wire())?)
            }
            method::TRANSFER_SEND => {
                let order = parse(&request)?;
                let sent = self.send(order, frame_out(&request)?, &request.cancel).await;
                raw(&sent.map_err(|err| err.to_wire())?)
            }
            method::TRANSFER_RECEIVE => {
                let order = parse(&request)?;
                let received = self.receive(order, frame_out(&request)?, &request.cancel).await;
                raw(&received.map_err(|err| err.to_wire())?)
            }
            method::TRANSFER_FINISH | method::TRANSFER_ABANDON => {
                // Only endpoints that keep no records of their part files need the entries.
                let TransferOver { transfer, entries: _ } = parse(&request)?;
                self.ready().retain(|(of, _), _| *of != transfer);
                let finish = request.method == method::TRANSFER_FINISH;
                let over = self.blocking(move |backend| match finish {
                    true => backend.finish(&transfer),
                    false => backend.abandon(&transfer),
                });
                over.await.map_err(|err| err.to_wire())?;
                raw(&serde_json::Map::new())
            }
            method::TRANSFER_PARTS => {
                let parts = self.blocking(|backend| backend.parts()).await;
                raw(&parts.map_err(|err| err.to_wire())?)
            }
            other => {
                let shown: String = other.chars().take(40).collect();
                return Err(WireError::new(ErrorCode::UnknownMethod, format!("unknown method \"{shown}\"")));
            }
        };
        #[cfg(feature = "testing")]
        let answer = conduct.change(answer);
        Ok(answer)
    }

    /// Removes all part files, because no transfer will be resumed.
    pub async fn abandon_all(&self) -> Result<(), TransferError> {
        self.ready().clear();
        self.blocking(|backend| {
            loop {
                let TransferParts { transfers, more } = backend.parts()?;
                transfers.iter().try_for_each(|transfer| backend.abandon(transfer))?;
                if !more {
                    return Ok(());
                }
            }
        })
        .await
    }

    /// Removes part files that were not written for a week. Returns how many.
    pub async fn sweep(&self) -> Result<usize, TransferError> {
        self.blocking(|backend| backend.sweep(PARTS_KEPT)).await
    }

    /// Sweeps now, and then every hour.
    pub async fn keep_tidy(&self) -> std::convert::Infallible {
        loop {
            // A failed sweep is retried in an hour.
            let _ = self.sweep().await;
            tokio::time::sleep(SWEEP_PAUSE).await;
        }
    }

    async fn have(
        &self,
        request: TransferHave,
        cancel: &CancellationToken,
    ) -> Result<TransferHas, TransferError> {
        let key = (request.transfer, request.entry);
        // Only one handle per part file may exist.
        self.ready().remove(&key);
        let (transfer, entry) = key.clone();
        let hashed = self.blocking(move |backend| {
            let part = backend.part_file(&transfer, entry.as_deref())?;
            let hasher = part.hash_prefix()?;
            Ok(HashedPart { part, hasher })
        });
        let hashed = hashed.await?;
        let have = hashed.part.length();
        let prefix_hash = (have > 0).then(|| hashed.hasher.finalize().to_hex().to_string());
        let mut ready = self.ready();
        // A cancelled request is not followed by `transfer.receive`.
        if ready.len() < MAX_READY && !cancel.is_cancelled() {
            ready.insert(key, hashed);
        }
        Ok(TransferHas { have, prefix_hash })
    }

    async fn send(
        &self,
        order: TransferSend,
        out: Arc<dyn FrameOut>,
        cancel: &CancellationToken,
    ) -> Result<TransferDone, TransferError> {
        let credit = Arc::new(Credit::new(order.credit));
        let entry = self.streams.send(order.stream, &credit)?;
        let (backend, runtime) = (self.backend.clone(), Handle::current());
        let (own_credit, own_out) = (credit.clone(), out.clone());
        let mut work = tokio::task::spawn_blocking(move || {
            let source = backend.source_file(&order.transfer, order.entry.as_deref());
            sending::run(&order, source, &own_credit, &own_out, &runtime)
        });
        let sent = tokio::select! {
            sent = &mut work => sent,
            () = out.closed() => {
                credit.end("the connection was lost");
                work.await
            }
            () = cancel.cancelled() => {
                credit.end("the request was cancelled");
                work.await
            }
        };
        drop(entry);
        joined(sent)
    }

    async fn receive(
        &self,
        order: TransferReceive,
        out: Arc<dyn FrameOut>,
        cancel: &CancellationToken,
    ) -> Result<TransferDone, TransferError> {
        let (entry, frames) = self.streams.receive(order.stream)?;
        let ready = self.ready().remove(&(order.transfer.clone(), order.entry.clone()));
        let (backend, runtime) = (self.backend.clone(), Handle::current());
        let (shared, own_out) = (entry.shared.clone(), out.clone());
        let mut work = tokio::task::spawn_blocking(move || {
            let hashed = ready.map_or_else(
                || {
                    let mut part = backend.part_file(&order.transfer, order.entry.as_deref())?;
                    part.truncate(order.from)?;
                    let hasher = part.hash_prefix()?;
                    Ok(HashedPart { part, hasher })
                },
                Ok,
            );
            receiving::run(&order, hashed, frames, &shared, &own_out, &runtime)
        });
        let received = tokio::select! {
            received = &mut work => received,
            () = out.closed() => {
                entry.end("the connection was lost");
                work.await
            }
            () = cancel.cancelled() => {
                entry.end("the request was cancelled");
                work.await
            }
        };
        drop(entry);
        joined(received)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn TransferBackend) -> Result<T, TransferError> + Send + 'static,
    ) -> Result<T, TransferError> {
        let backend = self.backend.clone();
        joined(tokio::task::spawn_blocking(move || work(&*backend)).await)
    }

    fn ready(&self) -> MutexGuard<'_, HashMap<(String, Option<String>), HashedPart>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn joined<T>(joined: Result<Result<T, TransferError>, tokio::task::JoinError>) -> Result<T, TransferError> {
    joined.unwrap_or_else(|err| {
        let message = format!("a task of the transfer failed: {err}");
        Err(TransferError::Other(WireError::new(ErrorCode::Internal, message)))
    })
}

fn parse<T: DeserializeOwned>(request: &TransferRequest) -> Result<T, WireError> {
    serde_json::from_str(request.params.get()).map_err(|err| {
        let message = format!("the parameters of {} are not valid: {err}", request.method);
        WireError::new(ErrorCode::BadParams, message)
    })
}

fn frame_out(request: &TransferRequest) -> Result<Arc<dyn FrameOut>, WireError> {
    request
        .out
        .clone()
        .ok_or_else(|| WireError::new(ErrorCode::Unavailable, "the connection for streams is not open"))
}
