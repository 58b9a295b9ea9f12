//! Connects the node to its transfer service, whose frames go over the bulk connection.

use std::pin::Pin;
use std::sync::Arc;

use gantry_link::{Link, Request, ServeFuture};
use gantry_protocol::StreamFrame;
use gantry_transfer::{Ask, FrameFuture, FrameOut, Gone, TransferService};

use crate::bulk::StreamSink;

/// Passes streams and requests to a transfer service.
pub struct Transfers(pub Arc<TransferService>);

impl StreamSink for Transfers {
    fn take(&self, link: &Link, frame: StreamFrame) {
        if let Some(back) = self.0.take(frame) {
            link.try_stream(back);
        }
    }

    fn request(&self, bulk: Option<Link>, request: Request) -> ServeFuture {
        let desk = self.0.clone();
        let out = bulk.map(|link| Arc::new(BulkOut(link)) as Arc<dyn FrameOut>);
        let Request { method, params, cancel, .. } = request;
        Box::pin(async move { desk.answer(Ask { method, params, cancel, out }).await })
    }
}

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
