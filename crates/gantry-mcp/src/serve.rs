//! The two transports: `serve_stdio` for one client, and `http_service` (streamable HTTP) for many.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use rmcp::transport::io::stdio_pipes;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{SessionId, SessionManager};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use crate::backend::Backend;
use crate::eof_watch::EofWatch;
use crate::line_transport::LineTransport;
use crate::server::McpServer;

/// Maximum size of a message. A message may contain a whole file.
const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// How long calls may take to end their processes after the client has left.
const END_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the client violated the MCP handshake: {0}")]
    Handshake(String),
    #[error("the connection to the client was lost: {0}")]
    Broken(String),
}

/// Serves the client at standard input and output until it leaves, or until `stop`. Nothing else may write to either.
/// Every request gets an answer. Calls that still run after the client has left are cancelled.
pub async fn serve_stdio<B: Backend>(
    server: McpServer<B>,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let (ending, calls) = (server.ender(), server.calls());
    tokio::spawn(server.busy_poll());
    let (read, write) = stdio_pipes();
    let (transport, client) =
        EofWatch::new(LineTransport::new(read, write, MAX_MESSAGE_BYTES), server.left());
    let conversing = async {
        match server.serve(transport).await {
            Ok(running) => match running.waiting().await {
                Ok(_) => Ok(()),
                Err(err) => Err(ServeError::Broken(err.to_string())),
            },
            // The client left before it sent a message.
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(err) => Err(ServeError::Handshake(err.to_string())),
        }
    };
    let calling_off = async {
        client.quiet().await;
        calls.cancel();
        std::future::pending().await
    };
    let conversed = tokio::select! {
        conversed = conversing => conversed,
        () = calling_off => Ok(()),
        () = stop => Ok(()),
    };
    let _ = tokio::time::timeout(END_LIMIT, ending).await;
    conversed
}

/// The SDK's open HTTP sessions.
#[derive(Clone)]
pub struct HttpSessions(Arc<LocalSessionManager>);

impl HttpSessions {
    pub async fn ids(&self) -> Vec<String> {
        self.0.sessions.read().await.keys().map(|id| id.to_string()).collect()
    }

    /// Closes a session and frees what the SDK holds for it. Returns false if the session did not
    /// take the request to close in time. Closing an unknown session succeeds.
    pub async fn close(&self, id: &str) -> bool {
        let id = SessionId::from(id);
        let closing = tokio::time::timeout(END_LIMIT, self.0.close_session(&id));
        closing.await.is_ok_and(|closed| closed.is_ok())
    }
}

pub type HttpService<B> = StreamableHttpService<McpServer<B>, LocalSessionManager>;

/// Returns the protocol over HTTP. The caller checks the host, the origin and the token of every request first. The caller
/// also closes idle sessions, because only it knows which clients are still connected.
pub fn http_service<B: Backend>(
    server: McpServer<B>,
    ending: CancellationToken,
) -> (HttpService<B>, HttpSessions) {
    let mut sessions = LocalSessionManager::default();
    let mut config = SessionConfig::default();
    config.keep_alive = None;
    sessions.session_config = config;
    let sessions = Arc::new(sessions);
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_max_request_body_bytes(MAX_MESSAGE_BYTES)
        .with_cancellation_token(ending);
    let service = StreamableHttpService::new(move || Ok(server.another()), sessions.clone(), config);
    (service, HttpSessions(sessions))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use gantry_testkit::eventually_async;
    use gantry_tool::{Outcome, Refusal, Registry, ToolScope};
    use http_body_util::Full;
    use tokio::sync::watch;

    use super::*;
    use crate::backend::{CallRequest, Names, OfferedTools, Who};

    /// Has no tools.
    #[derive(Clone, Default)]
    struct Nothing(watch::Sender<u64>);

    impl Backend for Nothing {
        async fn offered_tools(&self, _: &Who) -> Result<OfferedTools, Refusal> {
            Ok(OfferedTools { tools: Registry::default().view(&ToolScope::default()), names: Names::Bare })
        }

        async fn call(&self, _: &Who, asked: CallRequest) -> Outcome {
            panic!("nobody can have called {}", asked.tool)
        }

        fn changes(&self) -> watch::Receiver<u64> {
            self.0.subscribe()
        }
    }

    fn request(method: http::Method, session: &str, body: &str) -> http::Request<Full<Bytes>> {
        let request = http::Request::builder()
            .method(method)
            .uri("/mcp")
            .header("host", "localhost")
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json");
        let request = if session.is_empty() { request } else { request.header("mcp-session-id", session) };
        request.body(Full::new(Bytes::from(body.to_owned()))).unwrap()
    }

    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",
        "capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn closed_sessions_are_freed() {
        let backend = Nothing::default();
        let (service, sessions) =
            http_service(McpServer::new(backend.clone(), "1"), CancellationToken::new());
        for _ in 0..10 {
            let opened = service.handle(request(http::Method::POST, "", INITIALIZE)).await;
            let session = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
            // A client may repeat the notification; one task per session listens for changes.
            for _ in 0..3 {
                service.handle(request(http::Method::POST, &session, INITIALIZED)).await;
            }
        }
        eventually_async("every session listens for changes", LIMIT, || backend.0.receiver_count() >= 10)
            .await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(backend.0.receiver_count(), 10, "one task per session");
        let open = sessions.ids().await;
        assert_eq!(open.len(), 10);
        for session in &open {
            assert!(sessions.close(session).await);
        }
        assert!(sessions.ids().await.is_empty(), "the list shrinks");
        eventually_async("the sessions' tasks have ended", LIMIT, || backend.0.receiver_count() == 0).await;
        assert!(sessions.close(&open[0]).await, "closing twice is not an error");
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_connected_and_says_nothing_keeps_the_session() {
        let server = McpServer::new(Nothing::default(), "1");
        let (service, sessions) = http_service(server, CancellationToken::new());
        let begun = service.handle(request(http::Method::POST, "", INITIALIZE)).await;
        let session = begun.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        service.handle(request(http::Method::POST, &session, INITIALIZED)).await;
        let listening = service.handle(request(http::Method::GET, &session, "")).await;
        assert_eq!(listening.status(), 200);
        tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
        assert_eq!(sessions.ids().await, std::slice::from_ref(&session));
        let ping = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
        assert_eq!(service.handle(request(http::Method::POST, &session, ping)).await.status(), 200);
    }
}
