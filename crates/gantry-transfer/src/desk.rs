//! Answers the requests of transfers, and takes their frames, for the place whose books it has.

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

use crate::books::Books;
use crate::credit::Credit;
use crate::error::TransferError;
use crate::receiving::{self, Arrived};
use crate::sending;
use crate::streams::{FrameOut, Streams};

/// Files whose beginning is hashed and that wait for the rest to be sent.
const MAX_READY: usize = 64;

/// Parts that nobody has written to for so long are removed, whatever became of their gateway.
const PARTS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
const SWEEP_PAUSE: Duration = Duration::from_secs(3600);

/// A request of a transfer.
pub struct Ask {
    pub method: String,
    pub params: RawJson,
    /// Fires when nobody waits for the answer.
    pub cancel: CancellationToken,
    /// Where frames go; only sending and receiving needs it.
    pub out: Option<Arc<dyn FrameOut>>,
}

pub struct Desk {
    books: Arc<dyn Books>,
    streams: Streams,
    ready: Mutex<HashMap<(String, Option<String>), Arrived>>,
}

impl Desk {
    pub fn new(books: Arc<dyn Books>) -> Arc<Desk> {
        Arc::new(Desk { books, streams: Streams::default(), ready: Mutex::default() })
    }

    /// Takes a frame of a stream. What it returns goes back to where the frame came from. Never blocks.
    pub fn take(&self, frame: StreamFrame) -> Option<StreamFrame> {
        self.streams.take(frame)
    }

    /// Answers a request; sending and receiving take as long as bytes flow.
    pub async fn answer(&self, ask: Ask) -> Result<RawJson, WireError> {
        match ask.method.as_str() {
            method::TRANSFER_OPEN => Ok(raw(&self.books.open(parse(&ask)?, ask.cancel.clone()).await?)),
            method::TRANSFER_PREPARE => {
                let prepare: TransferPrepare = parse(&ask)?;
                // Files that wait for a round that is over would be in the way of the next.
                self.ready().retain(|(of, _), _| *of != prepare.transfer);
                Ok(raw(&self.books.prepare(prepare, ask.cancel.clone()).await?))
            }
            method::TRANSFER_MANIFEST => {
                let TransferManifest { transfer } = parse(&ask)?;
                let page = self.blocking(move |books| books.page(&transfer)).await;
                Ok(raw(&page.map_err(|err| err.to_wire())?))
            }
            method::TRANSFER_MAKE => {
                let make: TransferMake = parse(&ask)?;
                self.blocking(move |books| books.make(&make)).await.map_err(|err| err.to_wire())?;
                Ok(raw(&serde_json::Map::new()))
            }
            method::TRANSFER_HAVE => {
                let has = self.have(parse(&ask)?, &ask.cancel).await;
                Ok(raw(&has.map_err(|err| err.to_wire())?))
            }
            method::TRANSFER_SEND => {
                let order = parse(&ask)?;
                let sent = self.send(order, way_out(&ask)?, &ask.cancel).await;
                Ok(raw(&sent.map_err(|err| err.to_wire())?))
            }
            method::TRANSFER_RECEIVE => {
                let order = parse(&ask)?;
                let received = self.receive(order, way_out(&ask)?, &ask.cancel).await;
                Ok(raw(&received.map_err(|err| err.to_wire())?))
            }
            method::TRANSFER_FINISH | method::TRANSFER_ABANDON => {
                // The entries are for ends that do not write their parts down.
                let TransferOver { transfer, entries: _ } = parse(&ask)?;
                self.ready().retain(|(of, _), _| *of != transfer);
                let finish = ask.method == method::TRANSFER_FINISH;
                let over = self.blocking(move |books| match finish {
                    true => books.finish(&transfer),
                    false => books.abandon(&transfer),
                });
                over.await.map_err(|err| err.to_wire())?;
                Ok(raw(&serde_json::Map::new()))
            }
            method::TRANSFER_PARTS => {
                let parts = self.blocking(|books| books.parts()).await;
                Ok(raw(&parts.map_err(|err| err.to_wire())?))
            }
            other => {
                let shown: String = other.chars().take(40).collect();
                Err(WireError::new(ErrorCode::UnknownMethod, format!("there is no method \"{shown}\"")))
            }
        }
    }

    /// Nobody will go on with any transfer: all parts go.
    pub async fn abandon_all(&self) -> Result<(), TransferError> {
        self.ready().clear();
        self.blocking(|books| {
            loop {
                let TransferParts { transfers, more } = books.parts()?;
                transfers.iter().try_for_each(|transfer| books.abandon(transfer))?;
                if !more {
                    return Ok(());
                }
            }
        })
        .await
    }

    /// Removes parts that nobody has written to for a week; returns how many.
    pub async fn sweep(&self) -> Result<usize, TransferError> {
        self.blocking(|books| books.sweep(PARTS_KEPT)).await
    }

    /// Sweeps now, and then every hour.
    pub async fn keep_tidy(&self) -> std::convert::Infallible {
        loop {
            // What fails now is tried again.
            let _ = self.sweep().await;
            tokio::time::sleep(SWEEP_PAUSE).await;
        }
    }

    async fn have(
        &self,
        ask: TransferHave,
        cancel: &CancellationToken,
    ) -> Result<TransferHas, TransferError> {
        let key = (ask.transfer, ask.entry);
        // One at a time may be open.
        self.ready().remove(&key);
        let (transfer, entry) = key.clone();
        let arrived = self.blocking(move |books| {
            let landing = books.landing(&transfer, entry.as_deref())?;
            let hasher = landing.hash_prefix()?;
            Ok(Arrived { landing, hasher })
        });
        let arrived = arrived.await?;
        let have = arrived.landing.length();
        let prefix_hash = (have > 0).then(|| arrived.hasher.finalize().to_hex().to_string());
        let mut ready = self.ready();
        // Nobody comes for it when the answer is not waited for.
        if ready.len() < MAX_READY && !cancel.is_cancelled() {
            ready.insert(key, arrived);
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
        let (books, runtime) = (self.books.clone(), Handle::current());
        let (own_credit, own_out) = (credit.clone(), out.clone());
        let mut work = tokio::task::spawn_blocking(move || {
            let origin = books.origin(&order.transfer, order.entry.as_deref());
            sending::run(&order, origin, &own_credit, &own_out, &runtime)
        });
        let sent = tokio::select! {
            sent = &mut work => sent,
            () = out.closed() => {
                credit.end("the connection was lost");
                work.await
            }
            () = cancel.cancelled() => {
                credit.end("it was called off");
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
        let (books, runtime) = (self.books.clone(), Handle::current());
        let (shared, own_out) = (entry.shared.clone(), out.clone());
        let mut work = tokio::task::spawn_blocking(move || {
            let arrived = ready.map_or_else(
                || {
                    let mut landing = books.landing(&order.transfer, order.entry.as_deref())?;
                    landing.truncate(order.from)?;
                    let hasher = landing.hash_prefix()?;
                    Ok(Arrived { landing, hasher })
                },
                Ok,
            );
            receiving::run(&order, arrived, frames, &shared, &own_out, &runtime)
        });
        let received = tokio::select! {
            received = &mut work => received,
            () = out.closed() => {
                entry.end("the connection was lost");
                work.await
            }
            () = cancel.cancelled() => {
                entry.end("it was called off");
                work.await
            }
        };
        drop(entry);
        joined(received)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Books) -> Result<T, TransferError> + Send + 'static,
    ) -> Result<T, TransferError> {
        let books = self.books.clone();
        joined(tokio::task::spawn_blocking(move || work(&*books)).await)
    }

    fn ready(&self) -> MutexGuard<'_, HashMap<(String, Option<String>), Arrived>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn joined<T>(joined: Result<Result<T, TransferError>, tokio::task::JoinError>) -> Result<T, TransferError> {
    joined.unwrap_or_else(|err| {
        let message = format!("the transfer's work did not end well: {err}");
        Err(TransferError::Other(WireError::new(ErrorCode::Internal, message)))
    })
}

fn parse<T: DeserializeOwned>(ask: &Ask) -> Result<T, WireError> {
    serde_json::from_str(ask.params.get()).map_err(|err| {
        let message = format!("the parameters of {} are not valid: {err}", ask.method);
        WireError::new(ErrorCode::BadParams, message)
    })
}

fn way_out(ask: &Ask) -> Result<Arc<dyn FrameOut>, WireError> {
    ask.out
        .clone()
        .ok_or_else(|| WireError::new(ErrorCode::Unavailable, "the connection for streams is not open"))
}
