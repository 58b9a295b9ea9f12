//! Notices that a client has closed its end, which is how clients stop a server, and when nothing more is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio_util::sync::CancellationToken;

/// Calls that take longer than this to answer, once the client has said its last, are called off.
const QUIET: Duration = Duration::from_millis(300);

/// A transport that is watched.
pub(crate) struct EofWatch<T> {
    transport: T,
    watched: Arc<Watched>,
}

pub(crate) struct Watched {
    ended: CancellationToken,
    said: AtomicU64,
}

impl<T> EofWatch<T> {
    /// Fires `ended` when the client has said its last.
    pub(crate) fn new(transport: T, ended: CancellationToken) -> (EofWatch<T>, Arc<Watched>) {
        let watched = Arc::new(Watched { ended, said: AtomicU64::new(0) });
        (EofWatch { transport, watched: watched.clone() }, watched)
    }
}

impl Watched {
    /// Comes back when the client is gone and for a moment nothing was said. Whatever was ready has been said then.
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
