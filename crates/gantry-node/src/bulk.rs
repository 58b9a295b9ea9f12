//! The bulk connection, a second socket for streams only, so that calls never wait behind bulk data. A
//! [`StreamSink`] interprets the streams.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_link::{Event, Link, LinkOptions, Request, ServeFuture, Service};
use gantry_protocol::{CloseReason, ErrorCode, NodeHello, StreamFrame, StreamKind, WireError};

use crate::connection::Dialled;

/// Takes stream frames and answers requests about them.
pub trait StreamSink: Send + Sync + 'static {
    /// Must not block.
    fn take(&self, link: &Link, frame: StreamFrame);

    /// Answers a `transfer.…` request. Its frames go over the second socket, if that is open.
    fn request(&self, bulk: Option<Link>, request: Request) -> ServeFuture;
}

/// Aborts every stream with a reason.
#[derive(Debug, Default)]
pub struct NoTransfers;

impl StreamSink for NoTransfers {
    fn take(&self, link: &Link, frame: StreamFrame) {
        // An abort is never answered with an abort, or two ends would loop forever.
        if frame.kind() != StreamKind::Abort {
            link.try_stream(StreamFrame::abort(frame.stream(), "no transfer of this number is known here"));
        }
    }

    fn request(&self, _bulk: Option<Link>, request: Request) -> ServeFuture {
        Box::pin(async move { Err(request.unknown()) })
    }
}

/// The bulk connection, once the gateway requests it.
pub(crate) struct Bulk {
    sink: Arc<dyn StreamSink>,
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
    pub(crate) fn new(sink: Arc<dyn StreamSink>) -> Bulk {
        Bulk { sink, opened: Mutex::default(), opening: tokio::sync::Mutex::default() }
    }

    pub(crate) fn request(&self, request: Request) -> ServeFuture {
        let opened = self.opened().clone().filter(|opened| !opened.link.is_closed());
        self.sink.request(opened.map(|opened| opened.link), request)
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
        let service = Arc::new(BulkService { sink: Arc::clone(&self.sink) });
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
    sink: Arc<dyn StreamSink>,
}

impl Service for BulkService {
    fn request(self: Arc<Self>, _link: Link, request: Request) -> ServeFuture {
        Box::pin(async move { Err(request.unknown()) })
    }

    fn event(&self, _link: &Link, _event: Event) {}

    fn stream(&self, link: &Link, frame: StreamFrame) {
        self.sink.take(link, frame);
    }
}
