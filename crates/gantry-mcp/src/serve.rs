//! The two ways in: standard input and output for one client, and streamable HTTP for many.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use rmcp::transport::io::stdio_pipes;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use crate::backend::Backend;
use crate::lines::Lines;
use crate::server::McpServer;

/// A message may carry a whole file; a line beyond this is a mistake, or worse.
const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// How long calls may take to end what they started when the client is gone.
const END_LIMIT: Duration = Duration::from_secs(5);

/// A conversation over HTTP that nothing was said in for so long is over.
const IDLE_LIMIT: Duration = Duration::from_secs(30 * 60);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the client does not speak the protocol: {0}")]
    Handshake(String),
    #[error("the conversation broke off: {0}")]
    Broken(String),
}

/// Serves the client at standard input and output until it goes, or until `stop`. Nothing else may write to either.
pub async fn serve_stdio<B: Backend>(
    server: McpServer<B>,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let ending = server.ender();
    let (read, write) = stdio_pipes();
    let transport = Lines::new(read, write, MAX_MESSAGE_BYTES);
    let conversing = async {
        match server.serve(transport).await {
            Ok(running) => match running.waiting().await {
                Ok(_) => Ok(()),
                Err(err) => Err(ServeError::Broken(err.to_string())),
            },
            // It left before it said anything.
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(err) => Err(ServeError::Handshake(err.to_string())),
        }
    };
    let conversed = tokio::select! {
        conversed = conversing => conversed,
        () = stop => Ok(()),
    };
    let _ = tokio::time::timeout(END_LIMIT, ending).await;
    conversed
}

/// Conversations over HTTP that are under way.
#[derive(Clone)]
pub struct HttpSessions(Arc<LocalSessionManager>);

impl HttpSessions {
    pub async fn ids(&self) -> Vec<String> {
        self.0.sessions.read().await.keys().map(|id| id.to_string()).collect()
    }
}

pub type HttpService<B> = StreamableHttpService<McpServer<B>, LocalSessionManager>;

/// The protocol over HTTP. Whoever mounts it has checked the host, the origin and the token of every request before.
pub fn http_service<B: Backend>(
    server: McpServer<B>,
    ending: CancellationToken,
) -> (HttpService<B>, HttpSessions) {
    let mut sessions = LocalSessionManager::default();
    let mut config = SessionConfig::default();
    config.keep_alive = Some(IDLE_LIMIT);
    sessions.session_config = config;
    let sessions = Arc::new(sessions);
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_max_request_body_bytes(MAX_MESSAGE_BYTES)
        .with_cancellation_token(ending);
    let service = StreamableHttpService::new(move || Ok(server.another()), sessions.clone(), config);
    (service, HttpSessions(sessions))
}
