//! Detects that a client has closed its end, which is how clients stop a server, and that all answers are sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio_util::sync::CancellationToken;

/// Calls that run longer than this after the client has closed its end are cancelled.
const QUIET: Duration = Duration::from_millis(300);

/// `EofWatch` is a transport that reports its end of input.
pub(crate) struct EofWatch<T> {
    transport: T,
    watched: Arc<Watched>,
}

pub(crate) struct Watched {
    ended: CancellationToken,
    said: AtomicU64,
}

impl<T> EofWatch<T> {
    /// Cancels `ended` when the client has closed its end.
    pub(crate) fn new(transport: T, ended: CancellationToken) -> (EofWatch<T>, Arc<Watched>) {
        let watched = Arc::new(Watched { ended, said: AtomicU64::new(0) });
        (EofWatch { transport, watched: watched.clone() }, watched)
    }
}

impl Watched {
    /// Waits until the client is gone and nothing was sent for a moment. All ready answers are sent by then.
    pub(crate) async fn quiet(&self) {
        self.ended.cancelled().await;
        let mut before = None;
        loop {
            let said = self.said.load(Ordering::Relaxed);
            if before == Some(said) {
                return;
            }
            before = Some(said);
            tokio::time::sleep(QUIET).await;
        }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for EofWatch<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.watched.said.fetch_add(1, Ordering::Relaxed);
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let received = self.transport.receive().await;
        if received.is_none() {
            self.watched.ended.cancel();
        }
        received
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.transport.close().await
    }
}
