//! The egress proxy: the only way out of an agent's network namespace. One port speaks HTTP (with
//! CONNECT) and SOCKS5. An [`EgressJudge`] decides each connection; the guard judges each address.

mod connection;
mod environment;
mod exchange;
mod framing;
mod head;
mod hello;
mod peer;
mod place;
mod preset;
mod record;
mod refusal;
mod relay;
mod request;
mod socks;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::client::ClientOptions;
use crate::connect::Connector;
use crate::guard::Guard;
use crate::policy::NetworkPolicy;

pub use environment::proxy_environment;
pub use place::LOOPBACK_SERVICE;
pub use preset::{PresetKind, preset};
pub use record::{ConnectionRecord, EgressOutcome};

/// How many connections one listener serves at once. Others wait in the socket's backlog.
pub const MAX_CONNECTIONS: usize = 512;
/// How many connections of one listener may wait for a decision at once. Others are refused.
pub const MAX_WAITING_DECISIONS: usize = 64;
/// How long a connection waits for a decision.
pub const DECISION_LIMIT: Duration = Duration::from_secs(25);
/// How long a client may take to say where it wants to go.
pub const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// How long a client may take to send its TLS hello, or its request inside a tunnel to port 80.
pub const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection may be silent in both directions. There is no limit for its total time.
pub const IDLE_LIMIT: Duration = Duration::from_secs(600);
/// The limit for the first line and the headers of a request or a response.
pub const MAX_HEAD_BYTES: usize = 32 * 1024;
/// The limit for a TLS hello with its record headers.
pub const MAX_HELLO_BYTES: usize = 64 * 1024;

/// Decisions that come within this time do not count as waiting.
const QUICK_DECISION: Duration = Duration::from_millis(250);
/// The pause after the system could not accept a connection, for example without descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// `EgressOptions` says what the proxy may reach.
#[derive(Debug, Clone, Default)]
pub struct EgressOptions {
    /// The operator's settings: exceptions of the guard, and the operator's own proxy.
    pub network: ClientOptions,
    /// The hosts that may be reached at all. The judge is asked only about these.
    pub policy: NetworkPolicy,
    /// Ports of this machine that stay closed, such as the gateway's.
    pub closed_ports: Vec<u16>,
    pub limits: EgressLimits,
}

/// `EgressLimits` holds the limits that a caller may change. The defaults are the constants of this
/// module.
#[derive(Debug, Clone)]
pub struct EgressLimits {
    pub connections: usize,
    pub waiting_decisions: usize,
    pub decision: Duration,
    pub head: Duration,
    pub hello: Duration,
    pub idle: Duration,
}

impl Default for EgressLimits {
    fn default() -> EgressLimits {
        EgressLimits {
            connections: MAX_CONNECTIONS,
            waiting_decisions: MAX_WAITING_DECISIONS,
            decision: DECISION_LIMIT,
            head: HEAD_LIMIT,
            hello: HELLO_LIMIT,
            idle: IDLE_LIMIT,
        }
    }
}

/// `EgressJudge` decides which connections are allowed, and records them.
pub trait EgressJudge: Send + Sync + 'static {
    /// Decides a connection before its name is looked up. It may wait for a person. The proxy drops
    /// the future after [`EgressLimits::decision`], or when the client disconnects.
    fn decide(&self, wanted: Wanted) -> BoxFuture<'_, EgressDecision>;

    /// Gets one record for each connection, including refused ones, when it has ended.
    fn ended(&self, record: ConnectionRecord);
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressDecision {
    Allow,
    Deny { reason: String },
}

/// `Wanted` says where a client wants to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// In the form of URLs: lower case, IPv6 in brackets, no dot at the end. An IPv4 address in an
    /// IPv6 form is shown as IPv4.
    pub host: String,
    pub port: u16,
    pub kind: WantedKind,
    /// Whether this is a service on the loopback of this machine: [`LOOPBACK_SERVICE`].
    pub loopback_service: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedKind {
    /// A tunnel, by HTTP's CONNECT.
    Connect,
    /// One request without TLS. The path includes the query.
    Http { method: String, path: String },
    /// A tunnel, by SOCKS5.
    Socks,
}

/// `EgressProxy` is cheap to clone. Clones share the guard.
#[derive(Debug, Clone)]
pub struct EgressProxy {
    engine: Arc<Engine>,
}

#[derive(Debug)]
struct Engine {
    connector: Connector,
    guard: Arc<Guard>,
    options: EgressOptions,
}

impl EgressProxy {
    pub fn new(options: EgressOptions) -> EgressProxy {
        let network = Arc::new(options.network.clone());
        let guard = Arc::new(Guard::new(Arc::clone(&network)));
        let connector = Connector::new(network, Arc::clone(&guard));
        EgressProxy { engine: Arc::new(Engine { connector, guard, options }) }
    }

    /// Serves the clients of `listener` until `stop`. Then it ends their connections, and returns
    /// after their records were written. It fails only if the listener is unusable.
    pub async fn serve(
        &self,
        listener: std::net::TcpListener,
        judge: Arc<dyn EgressJudge>,
        stop: CancellationToken,
    ) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let limits = &self.engine.options.limits;
        let slots = Arc::new(Semaphore::new(limits.connections));
        let waiting = Arc::new(Semaphore::new(limits.waiting_decisions));
        let mut connections = JoinSet::new();
        let accept = async {
            loop {
                // The semaphore is never closed.
                let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
                let Ok((tcp, _)) = listener.accept().await else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                while connections.try_join_next().is_some() {}
                let (engine, judge) = (Arc::clone(&self.engine), Arc::clone(&judge));
                let waiting = Arc::clone(&waiting);
                connections.spawn(async move {
                    Box::pin(connection::serve(engine, tcp, judge, waiting)).await;
                    drop(slot);
                });
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = accept => {}
        }
        connections.shutdown().await;
        Ok(())
    }
}
