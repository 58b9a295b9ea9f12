//! One connection to a server: performs the handshake, lists tools, calls them and cancels calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_tool::{Progress, ProgressSink};
use rmcp::ClientHandler;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam, ClientCapabilities,
    ClientConfig, ClientRequest, Implementation, InputRequest, InputRequests, InputResponses,
    ListToolsRequest, PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ProtocolVersion,
    RequestId, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, NotificationContext, Peer,
    PeerRequestOptions, RoleClient, RunningService, ServiceError,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, Transport};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::http::{Guarded, MAX_CONCURRENT_REQUESTS};
use super::sanitize::shown;
use super::stdio::{Program, Stdio};
use super::wire::{Lists, is_unreadable};

/// Limits of one list of tools.
const MAX_PAGES: usize = 100;
const MAX_TOOLS: usize = 2_000;
const MAX_LIST_BYTES: usize = 16 << 20;
/// Timeout of one page of the list.
const LIST_LIMIT: Duration = Duration::from_secs(30);
/// How often a tool may request input during one call.
const MAX_ROUNDS: usize = 4;

/// How often a connection is checked that does not report its end.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long closing waits for the last messages to be sent.
const SAY_LIMIT: Duration = Duration::from_millis(500);

/// The supported protocol revisions, newest first.
const REVISIONS: [ProtocolVersion; 1] = [ProtocolVersion::V_2026_07_28];

/// `TalkError` is why a connection or a request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum TalkError {
    /// The connection was lost.
    #[error("{0}")]
    Lost(String),
    /// The server could not be reached.
    #[error("{0}")]
    NotStarted(String),
    /// The server requires a login, with its challenge.
    #[error("it requires a login")]
    Login(String),
    /// The server answered with a protocol error.
    #[error("{0}")]
    Refused(String),
    /// The server's answer is invalid.
    #[error("{0}")]
    Garbled(String),
    /// The server does not support this handshake.
    #[error("{0}")]
    Odd(String),
    #[error("it did not answer within {0:?}")]
    Silent(Duration),
}

/// The kind of handshake. Revision 2026-07-28 differs from earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Greeting {
    /// Discovers the server's revision, and falls back to the older handshake.
    Newest,
    /// The older handshake, for servers that are known to need it.
    Older,
}

/// `Listing` is a server's list of tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Listing {
    /// The definitions as sent.
    pub(super) tools: Vec<Value>,
    /// Names of the tools that the SDK could parse.
    pub(super) usable: Vec<String>,
    /// Size of all definitions as text.
    bytes: usize,
}

pub(super) struct Connection {
    service: RunningService<RoleClient, Hearer>,
    lists: Lists,
    /// The program, if the server is one.
    program: Option<Program>,
    /// Notifications that are still being sent.
    saying: TaskTracker,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) async fn over_stdio(
        piped: gantry_process::Piped,
        hearer: Hearer,
        greeting: Greeting,
    ) -> Result<Connection, TalkError> {
        let lists = Lists::default();
        let stdio = Stdio::new(piped, lists.clone());
        let program = stdio.program();
        match greet(stdio, hearer, greeting).await {
            Ok(service) => {
                Ok(Connection { service, lists, program: Some(program), saying: TaskTracker::new() })
            }
            Err(err) => {
                let words = program.last_words().await;
                program.end().await;
                Err(match err {
                    TalkError::Lost(_) => TalkError::Lost(words),
                    other => other,
                })
            }
        }
    }

    pub(super) async fn over_http(
        url: &str,
        guarded: Guarded,
        hearer: Hearer,
        greeting: Greeting,
    ) -> Result<Connection, TalkError> {
        let lists = guarded.lists.clone();
        let mut config = StreamableHttpClientTransportConfig::with_uri(url);
        config.max_concurrent_requests = MAX_CONCURRENT_REQUESTS;
        let transport = StreamableHttpClientTransport::with_client(guarded, config);
        let service = greet(transport, hearer, greeting).await?;
        Ok(Connection { service, lists, program: None, saying: TaskTracker::new() })
    }

    /// Returns the server's name and version.
    pub(super) fn about(&self) -> Option<Value> {
        let info = self.service.peer_info()?;
        Some(json!({
            "name": info.server_info.as_ref().map(|own| shown(&own.name)),
            "version": info.server_info.as_ref().map(|own| shown(&own.version)),
            "protocolVersion": info.protocol_version.as_str(),
        }))
    }

    pub(super) fn is_lost(&self) -> bool {
        let broken = self.program.as_ref().is_some_and(Program::is_broken);
        broken || self.service.is_closed() || self.service.is_transport_closed()
    }

    /// Waits until the connection is lost or the server's process has ended.
    pub(super) async fn ended(&self) {
        loop {
            if self.is_lost() {
                return;
            }
            match &self.program {
                Some(program) => drop(program.process.wait(LOOK_AGAIN).await),
                None => tokio::time::sleep(LOOK_AGAIN).await,
            }
            if self.program.as_ref().is_some_and(|program| program.process.ended().is_some()) {
                return;
            }
        }
    }

    /// Returns the process id, for tests and `gantry mcp test`.
    pub(super) fn pid(&self) -> Option<i32> {
        self.program.as_ref().map(|program| program.process.pid())
    }

    pub(super) async fn list(&self) -> Result<Listing, TalkError> {
        let mut listing = Listing::default();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let page = tokio::time::timeout(LIST_LIMIT, self.page(cursor, &mut listing)).await;
            cursor = page.map_err(|_| TalkError::Silent(LIST_LIMIT))??;
            if listing.tools.len() > MAX_TOOLS {
                return Err(TalkError::Refused(format!("it offers more than {MAX_TOOLS} tools")));
            }
            if listing.bytes > MAX_LIST_BYTES {
                return Err(TalkError::Refused(format!(
                    "its list of tools is longer than {MAX_LIST_BYTES} bytes"
                )));
            }
            if cursor.is_none() {
                return Ok(listing);
            }
        }
        Err(TalkError::Refused(format!("its list of tools has more than {MAX_PAGES} pages")))
    }

    async fn page(&self, cursor: Option<String>, listing: &mut Listing) -> Result<Option<String>, TalkError> {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let request = ListToolsRequest { params: Some(params), ..ListToolsRequest::default() };
        let (id, result) = self.ask(ClientRequest::ListToolsRequest(request), None).await?;
        let ServerResult::ListToolsResult(read) = result else {
            return Err(TalkError::Refused("its list of tools is invalid".to_owned()));
        };
        listing.usable.extend(read.tools.iter().map(|tool| tool.name.to_string()));
        // Our transports record every list, so a missing one is a bug in Gantry.
        let raw = self.lists.take(&id).unwrap_or_else(|| {
            read.tools.iter().filter_map(|tool| serde_json::to_value(tool).ok()).collect()
        });
        listing.bytes += raw.iter().map(|tool| tool.to_string().len()).sum::<usize>();
        listing.tools.extend(raw);
        Ok(read.next_cursor)
    }

    /// Calls a tool. Dropping the future cancels the call on the server.
    pub(super) async fn call(
        &self,
        tool: &str,
        input: Map<String, Value>,
        progress: Option<ProgressSink>,
    ) -> Result<CallToolResult, TalkError> {
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(input);
        for _ in 0..MAX_ROUNDS {
            let request = CallToolRequest::new(params.clone());
            match self.ask(ClientRequest::CallToolRequest(request), progress.clone()).await?.1 {
                ServerResult::CallToolResult(result) => return Ok(result),
                ServerResult::InputRequiredResult(asked) => {
                    params.input_responses = asked.input_requests.map(answers).transpose()?;
                    params.request_state = asked.request_state;
                }
                ServerResult::CustomResult(odd) => {
                    return Err(TalkError::Garbled(describe_invalid_answer(&odd.0)));
                }
                _ => {
                    return Err(TalkError::Garbled("its answer is not the result of a tool call".to_owned()));
                }
            }
        }
        Err(TalkError::Refused("it keeps requesting input, which Gantry cannot provide".to_owned()))
    }

    async fn ask(
        &self,
        request: ClientRequest,
        progress: Option<ProgressSink>,
    ) -> Result<(RequestId, ServerResult), TalkError> {
        let peer = self.service.peer();
        let sent = peer.send_request_with_option(request, PeerRequestOptions::no_options()).await;
        let handle = match sent {
            Ok(handle) => handle,
            Err(err) => return Err(self.classify(err).await),
        };
        let id = handle.id.clone();
        let _heard = progress.map(|sink| self.service.service().listen(handle.progress_token.clone(), sink));
        let mut unanswered =
            Unanswered { peer: peer.clone(), id: Some(id.clone()), saying: self.saying.clone() };
        let answer = handle.await_response().await;
        unanswered.id = None;
        match answer {
            Ok(result) => Ok((id, result)),
            Err(err) => Err(self.classify(err).await),
        }
    }

    async fn classify(&self, err: ServiceError) -> TalkError {
        match err {
            ServiceError::McpError(error) if is_unreadable(&error) => {
                TalkError::Garbled(error.message.into_owned())
            }
            ServiceError::McpError(error) => {
                TalkError::Refused(format!("{} (code {})", shown(&error.message), error.code.0))
            }
            ServiceError::TransportSend(error) => match challenge(error.error.as_ref()) {
                Some(challenge) => TalkError::Login(challenge),
                None => self.lost(&error.error.to_string()).await,
            },
            ServiceError::TransportClosed => self.lost("it closed the connection").await,
            ServiceError::Timeout { timeout } => TalkError::Silent(timeout),
            other => TalkError::Refused(shown(&other.to_string())),
        }
    }

    async fn lost(&self, reason: &str) -> TalkError {
        match &self.program {
            Some(program) => TalkError::Lost(program.last_words().await),
            None => TalkError::Lost(shown(reason)),
        }
    }

    /// Closes the connection, and ends the program and its processes.
    pub(super) async fn close(&self) {
        self.saying.close();
        let _ = tokio::time::timeout(SAY_LIMIT, self.saying.wait()).await;
        self.service.cancellation_token().cancel();
        if let Some(program) = &self.program {
            program.end().await;
        }
    }
}

/// Describes why an answer to a call is invalid.
fn describe_invalid_answer(answer: &Value) -> String {
    const KINDS: [&str; 5] = ["text", "image", "audio", "resource", "resource_link"];
    let Some(blocks) = answer.get("content").and_then(Value::as_array) else {
        return "its answer has no content".to_owned();
    };
    let kind = |block: &Value| block.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    match blocks.iter().map(kind).find(|kind| !KINDS.contains(&kind.as_str())) {
        Some(kind) if kind.is_empty() => "its answer has content without a type".to_owned(),
        Some(kind) => {
            format!("its answer has content of the unknown type \"{}\"", shown(&kind))
        }
        None => "its answer has content that violates the protocol".to_owned(),
    }
}

async fn greet<T>(
    transport: T,
    hearer: Hearer,
    greeting: Greeting,
) -> Result<RunningService<RoleClient, Hearer>, TalkError>
where
    T: Transport<RoleClient> + 'static,
{
    let lifecycle = match greeting {
        Greeting::Older => ClientLifecycleMode::Initialize,
        Greeting::Newest => {
            ClientLifecycleMode::Auto { preferred_versions: REVISIONS.to_vec(), legacy_version: None }
        }
    };
    let service = hearer.serve_with_lifecycle(transport, lifecycle).await.map_err(not_greeted)?;
    let theirs = service.peer_info().map(|info| info.protocol_version.clone());
    match theirs.filter(|version| !ProtocolVersion::KNOWN_VERSIONS.contains(version)) {
        None => Ok(service),
        Some(theirs) => {
            service.cancellation_token().cancel();
            let ours = ProtocolVersion::KNOWN_VERSIONS.iter().map(ProtocolVersion::as_str);
            let message = format!(
                "it uses protocol revision \"{}\", and Gantry supports {}",
                shown(theirs.as_str()),
                ours.collect::<Vec<_>>().join(", ")
            );
            Err(TalkError::Refused(message))
        }
    }
}

fn not_greeted(err: ClientInitializeError) -> TalkError {
    if let Some(challenge) = err.auth_challenge() {
        return TalkError::Login(challenge.to_owned());
    }
    match err {
        ClientInitializeError::JsonRpcError(error) => TalkError::Refused(shown(&error.message)),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => not_greeted(*fallback),
        ClientInitializeError::TransportError { error, .. } => {
            TalkError::Lost(shown(&error.error.to_string()))
        }
        lost @ ClientInitializeError::ConnectionClosed(_) => TalkError::Lost(shown(&lost.to_string())),
        other => TalkError::Odd(shown(&other.to_string())),
    }
}

fn challenge(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    use rmcp::transport::streamable_http_client::{AuthRequiredError, InsufficientScopeError};
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(wanted) = error.downcast_ref::<AuthRequiredError>() {
            return Some(wanted.www_authenticate_header.clone());
        }
        if let Some(wanted) = error.downcast_ref::<InsufficientScopeError>() {
            return Some(wanted.www_authenticate_header.clone());
        }
        next = error.source();
    }
    None
}

/// Answers a server's requests without a person: declines every form, and lists no roots.
fn answers(requests: InputRequests) -> Result<InputResponses, TalkError> {
    let answer = |(key, request): (String, InputRequest)| match request {
        InputRequest::Elicitation(_) => Ok((key, json!({"action": "decline"}))),
        InputRequest::ListRoots(_) => Ok((key, json!({"roots": []}))),
        _ => Err(TalkError::Refused("it requests sampling, which Gantry does not support".to_owned())),
    };
    requests.into_iter().map(answer).collect()
}

/// Sends a cancellation when dropped, unless the answer has arrived.
struct Unanswered {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
    saying: TaskTracker,
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current()) else { return };
        let peer = self.peer.clone();
        self.saying.spawn_on(
            async move {
                let params = CancelledNotificationParam::new(Some(id), Some("cancelled".to_owned()));
                let _ = peer.notify_cancelled(params).await;
            },
            &runtime,
        );
    }
}

type Sinks = Arc<Mutex<HashMap<ProgressToken, ProgressSink>>>;

/// Receives the server's notifications.
#[derive(Clone)]
pub(super) struct Hearer {
    version: &'static str,
    /// Counts the notifications that the tools have changed.
    changed: watch::Sender<u64>,
    sinks: Sinks,
}

impl Hearer {
    pub(super) fn new(version: &'static str) -> (Hearer, watch::Receiver<u64>) {
        let (changed, heard) = watch::channel(0);
        (Hearer { version, changed, sinks: Sinks::default() }, heard)
    }

    fn listen(&self, token: ProgressToken, sink: ProgressSink) -> Listening {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), sink);
        Listening { sinks: self.sinks.clone(), token }
    }
}

struct Listening {
    sinks: Sinks,
    token: ProgressToken,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.token);
    }
}

impl ClientHandler for Hearer {
    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let sink =
            self.sinks.lock().unwrap_or_else(PoisonError::into_inner).get(&params.progress_token).cloned();
        if let Some(sink) = sink {
            let count = |number: f64| if number.is_finite() && number > 0.0 { number as u64 } else { 0 };
            sink.report(Progress {
                done: count(params.progress),
                total: params.total.map(count),
                message: params.message.unwrap_or_default(),
            });
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.send_modify(|changed| *changed += 1);
    }

    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("gantry", self.version))
    }
}
