//! Listens, serves connections, and stops gracefully.
#![expect(clippy::disallowed_methods, reason = "the gateway is what listens")]

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::gateway::Gateway;
use crate::http;
use crate::tls_identity::TlsIdentity;
use crate::write_timeout::WriteTimeout;

/// Timeout for the head of each request, and for a TLS handshake.
const HEADER_LIMIT: Duration = Duration::from_secs(10);

/// Maximum size of a request's head.
pub(crate) const MAX_HEAD_BYTES: usize = 32 * 1024;

/// Maximum number of open connections.
pub const MAX_CONNECTIONS: usize = 16 * 1024;

/// Pause after a failed accept, for example because of too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Repeated failures to accept are logged this often.
const ACCEPT_LOG_PAUSE: Duration = Duration::from_secs(10);

/// How long sockets get to close when the gateway stops.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// A certificate chain and its key.
#[derive(Clone)]
pub struct TlsFiles {
    pub certificates: PemFile,
    pub key: PemFile,
}

/// `PemFile` is the content of a PEM file, and its name for error messages.
#[derive(Clone)]
pub struct PemFile {
    pub name: PathBuf,
    pub pem: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot use the TLS certificate and key: {0}")]
    Tls(String),
    #[error("cannot use {}: {reason}", file.display())]
    Pem { file: PathBuf, reason: String },
    #[error("cannot start {domain}: {reason}")]
    Domain { domain: &'static str, reason: String },
}

/// `Peer` describes the other end of a connection.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// The tasks of upgraded sockets, which outlive their HTTP connection.
    pub(crate) sockets: TaskTracker,
    /// The connection's permit, held for as long as the socket is open.
    pub(crate) permit: Arc<OwnedSemaphorePermit>,
}

/// `Serving` is a listening gateway.
pub struct Serving {
    pub address: SocketAddr,
    gateway: Arc<Gateway>,
    stop: CancellationToken,
    accepting: tokio::task::JoinHandle<()>,
    connections: TaskTracker,
    sockets: TaskTracker,
}

/// Listens, starts the domains, and serves until [`Serving::stop`]. At most `connections` are open at a time; others wait.
pub async fn serve(
    gateway: Arc<Gateway>,
    address: SocketAddr,
    tls: Option<Arc<TlsIdentity>>,
    connections: usize,
) -> Result<Serving, ServeError> {
    let tls = tls.map(|tls| tls.acceptor()).transpose()?;
    let failed = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    gateway
        .start_domains()
        .await
        .map_err(|(domain, err)| ServeError::Domain { domain, reason: format!("{err:#}") })?;
    let limit = Arc::new(Semaphore::new(connections.clamp(1, MAX_CONNECTIONS)));
    let (stop, connections, sockets) = (CancellationToken::new(), TaskTracker::new(), TaskTracker::new());
    let accepting = AcceptLoop {
        listener,
        tls,
        router: http::router(gateway.clone()),
        stop: stop.clone(),
        connections: connections.clone(),
        sockets: sockets.clone(),
        limit,
    };
    let accepting = tokio::spawn(accepting.run());
    connections.spawn({
        let (gateway, stop) = (gateway.clone(), stop.clone());
        async move { gateway.busy_poll.run(stop).await }
    });
    connections.spawn({
        let (gateway, stop) = (gateway.clone(), stop.clone());
        async move { gateway.quota.settle(stop).await }
    });
    Ok(Serving { address, gateway, stop, accepting, connections, sockets })
}

impl Serving {
    /// Stops accepting, lets calls finish for at most `drain`, and then ends the remaining ones.
    pub async fn stop(self, drain: Duration) {
        self.stop.cancel();
        let _ = self.accepting.await;
        self.gateway.stop(drain).await;
        self.sockets.close();
        self.connections.close();
        let closed = async {
            self.sockets.wait().await;
            self.connections.wait().await;
        };
        let _ = tokio::time::timeout(CLOSE_LIMIT, closed).await;
    }
}

/// `AcceptLoop` accepts connections and starts one task for each.
struct AcceptLoop {
    listener: TcpListener,
    /// Performs TLS handshakes; `None` for plain HTTP.
    tls: Option<TlsAcceptor>,
    router: Router,
    /// Cancelled when the gateway stops: no more connections are accepted, and open ones shut down gracefully.
    stop: CancellationToken,
    /// The tasks that serve HTTP connections.
    connections: TaskTracker,
    /// The tasks of upgraded sockets, which outlive their HTTP connection.
    sockets: TaskTracker,
    /// One permit per open connection. Without a permit nothing is accepted, so that further clients wait.
    limit: Arc<Semaphore>,
}

impl AcceptLoop {
    async fn run(self) {
        let mut failures = AcceptFailures::default();
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => return,
                accepted = self.accept() => accepted,
            };
            match accepted {
                Ok((stream, from, permit)) => self.spawn_connection(stream, from, permit),
                Err(err) => {
                    failures.log(&err);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        let permit = self.limit.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, from) = self.listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok((stream, from, permit))
    }

    fn spawn_connection(&self, stream: TcpStream, from: SocketAddr, permit: OwnedSemaphorePermit) {
        // A WebSocket shares the permit, because its descriptor stays open after the HTTP connection ends.
        let permit = Arc::new(permit);
        let peer = Peer { address: from.ip(), sockets: self.sockets.clone(), permit: permit.clone() };
        let service = self.router.clone().layer(axum::Extension(ConnectInfo(peer)));
        let (stop, tls) = (self.stop.clone(), self.tls.clone());
        self.connections.spawn(async move {
            let _permit = permit;
            match tls {
                None => serve_connection(stream, service, stop).await,
                Some(tls) => {
                    if let Ok(Ok(stream)) = tokio::time::timeout(HEADER_LIMIT, tls.accept(stream)).await {
                        serve_connection(stream, service, stop).await;
                    }
                }
            }
        });
    }
}

/// Logs failures to accept a connection, at most one line every [`ACCEPT_LOG_PAUSE`]: while the limit of
/// open files is reached, every attempt fails.
#[derive(Default)]
struct AcceptFailures {
    logged: Option<Instant>,
    skipped: u64,
}

impl AcceptFailures {
    fn log(&mut self, err: &io::Error) {
        if self.logged.is_some_and(|logged| logged.elapsed() < ACCEPT_LOG_PAUSE) {
            self.skipped += 1;
            return;
        }
        tracing::warn!(error = %err, skipped = self.skipped, "accept_failed");
        (self.logged, self.skipped) = (Some(Instant::now()), 0);
    }
}

/// Serves the requests of one connection. On stop, the current request is still answered.
async fn serve_connection<S>(stream: S, service: Router, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = WriteTimeout::new(stream);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .max_buf_size(MAX_HEAD_BYTES)
        .half_close(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    // An error ends only this connection. Clients disconnect all the time, so it is not logged.
    let _ = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_accept_failures_are_counted_instead_of_logged() {
        let mut failures = AcceptFailures::default();
        let err = io::Error::from_raw_os_error(24);
        failures.log(&err);
        let first = failures.logged.unwrap();
        (0..5).for_each(|_| failures.log(&err));
        assert_eq!((failures.logged, failures.skipped), (Some(first), 5));
        failures.logged = first.checked_sub(ACCEPT_LOG_PAUSE);
        failures.log(&err);
        assert_eq!(failures.skipped, 0);
    }
}
