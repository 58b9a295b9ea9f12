//! The bulk connection, a second socket for streams only, so that calls never wait behind bulk data. A
//! [`TransferService`] sends and takes the frames on it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_link::{Event, Link, LinkOptions, Request, ServeFuture, Service};
use gantry_protocol::{CloseReason, ErrorCode, NodeHello, RawJson, StreamFrame, StreamKind, WireError};
use gantry_transfer::{FrameFuture, FrameOut, Gone, TransferRequest, TransferService};

use crate::connection::Dialled;

/// The bulk connection, once the gateway requests it.
pub(crate) struct Bulk {
    transfers: Option<Arc<TransferService>>,
    opened: Mutex<Option<Opened>>,
    /// Allows one opening at a time: the gateway keeps one bulk connection per node.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Opened {
    link: Link,
    /// The connection over which it was requested.
    main: Link,
}

impl Bulk {
    pub(crate) fn new(transfers: Option<Arc<TransferService>>) -> Bulk {
        Bulk { transfers, opened: Mutex::default(), opening: tokio::sync::Mutex::default() }
    }

    /// Answers a `transfer.…` request. Its frames go over the bulk connection, if that is open.
    pub(crate) async fn request(&self, request: Request) -> Result<RawJson, WireError> {
        let Some(transfers) = &self.transfers else { return Err(request.unknown()) };
        let opened = self.opened().clone().filter(|opened| !opened.link.is_closed());
        let out = opened.map(|opened| Arc::new(BulkOut(opened.link)) as Arc<dyn FrameOut>);
        let Request { method, params, cancel, .. } = request;
        transfers.answer(TransferRequest { method, params, cancel, out }).await
    }

    fn opened(&self) -> MutexGuard<'_, Option<Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the bulk connection unless it is open. It is closed with the connection over which it was requested, so
    /// a request over another connection does not get one that is about to close.
    pub(crate) async fn open<F>(
        &self,
        main: &Link,
        dial: impl FnOnce(NodeHello) -> F,
        instance: &str,
    ) -> Result<(), WireError>
    where
        F: Future<Output = Result<Dialled, String>>,
    {
        let _opening = self.opening.lock().await;
        if self.opened().as_ref().is_some_and(|opened| opened.main == *main && !opened.link.is_closed()) {
            return Ok(());
        }
        let hello = NodeHello { instance: instance.to_owned(), bulk: true, ..NodeHello::default() };
        let dialled = dial(hello).await.map_err(|reason| WireError::new(ErrorCode::Unavailable, reason))?;
        let service = Arc::new(BulkService { transfers: self.transfers.clone() });
        let (link, running) = Link::new(
            dialled.socket,
            service,
            LinkOptions { protocol: dialled.welcome.protocol, ..LinkOptions::default() },
        );
        let main = main.clone();
        *self.opened() = Some(Opened { link: link.clone(), main: main.clone() });
        tokio::spawn(running);
        tokio::spawn(async move {
            tokio::select! {
                _ = main.closed() => link.close(CloseReason::MainClosed),
                _ = link.closed() => {}
            }
        });
        Ok(())
    }
}

struct BulkService {
    transfers: Option<Arc<TransferService>>,
}

impl Service for BulkService {
    fn request(self: Arc<Self>, _link: Link, request: Request) -> ServeFuture {
        Box::pin(async move { Err(request.unknown()) })
    }

    fn event(&self, _link: &Link, _event: Event) {}

    fn stream(&self, link: &Link, frame: StreamFrame) {
        let back = match &self.transfers {
            Some(transfers) => transfers.take(frame),
            // An abort is never answered with an abort, or two ends would loop forever.
            None => (frame.kind() != StreamKind::Abort)
                .then(|| StreamFrame::abort(frame.stream(), "this node takes part in no transfers")),
        };
        if let Some(back) = back {
            link.try_stream(back);
        }
    }
}

/// Sends the frames of the transfer service over the bulk connection.
struct BulkOut(Link);

impl FrameOut for BulkOut {
    fn send(&self, frame: StreamFrame) -> FrameFuture<'_> {
        Box::pin(async { self.0.stream(frame).await.map_err(|_| Gone) })
    }

    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            self.0.closed().await;
        })
    }
}
