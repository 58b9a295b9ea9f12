//! `/mcp` serves the Model Context Protocol over streamable HTTP. Host, origin and token are checked before.

mod sessions;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use gantry_domain::Identity;
use gantry_domain::http::{Taken, read_body, refusal_response};
use gantry_link::Reservation;
use gantry_mcp::{
    Backend, CallRequest, HttpService, HttpSessions, McpServer, Names, OfferedTools, Purpose, Selection, Who,
    http_service,
};
use gantry_tool::{Call, Outcome, Refusal, RefusalCode, Surface};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{broadcast, watch};

use super::call::agent_of;
use super::{json_response, problem};
use crate::callers::Wanted;
use crate::gateway::{Gateway, page_name};
use sessions::{MAX_OF_ONE, MAX_SESSIONS, Room, Sessions};

const SESSION: &str = "mcp-session-id";

/// Bodies up to this size are kept, so that the answer can explain why one is invalid.
const EXPLAINED_BYTES: usize = 1024 * 1024;

/// Idle sessions are checked this many times per idle timeout.
const LOOKS: u32 = 4;

type Asking = axum::http::Request<Full<Bytes>>;
type Answer = axum::http::Response<BoxBody<Bytes, Infallible>>;
/// The SDK's answer, or the error that the session limit is reached.
type Opened = Result<Answer, Box<Response>>;

/// `Mcp` is the server and the owners of its sessions. A session id alone grants no access.
pub(super) struct Mcp {
    service: HttpService<GatewayBackend>,
    alive: HttpSessions,
    sessions: Sessions,
}

impl Mcp {
    pub(super) fn new(gateway: &Arc<Gateway>) -> Arc<Mcp> {
        let server = McpServer::new(GatewayBackend(gateway.clone()), &gateway.version);
        let (service, alive) = http_service(server, gateway.ending.clone());
        let mcp = Arc::new(Mcp { service, alive, sessions: Sessions::default() });
        tokio::spawn(end_idle(Arc::downgrade(&mcp), gateway.mcp_idle));
        mcp
    }

    async fn room(&self, owner: &str) -> Room {
        let alive: HashSet<String> = self.alive.ids().await.into_iter().collect();
        self.sessions.keep_only(&alive);
        self.sessions.room(owner)
    }

    async fn end(&self, session: &str) {
        // A session that did not close is retried with the next check of idle sessions.
        if self.alive.close(session).await {
            self.sessions.forget(session);
        }
    }

    /// Opens a session. It runs to its end even if the client hangs up, so that every session the
    /// SDK opens is counted.
    async fn open(self: Arc<Self>, owner: String, asked: Asking, share: Option<Reservation>) -> Opened {
        let response = self.service.handle(asked).await;
        let admitted = self.admitted(&owner, response).await;
        drop(share);
        admitted
    }

    /// Registers the session that an answer opens, if any.
    async fn admitted(&self, owner: &str, response: Answer) -> Opened {
        let Some(session) = text(response.headers(), SESSION) else { return Ok(response) };
        match self.sessions.begin(session, owner) {
            Room::Free => {}
            Room::InPlaceOf(oldest) => self.end(&oldest).await,
            room => {
                self.alive.close(session).await;
                no_room(&room)?;
            }
        }
        Ok(response)
    }
}

/// Ends idle sessions for as long as the server exists.
async fn end_idle(mcp: Weak<Mcp>, limit: Duration) {
    let mut unknown = HashSet::new();
    loop {
        tokio::time::sleep(limit / LOOKS).await;
        let Some(mcp) = mcp.upgrade() else { return };
        // A session without an owner in two checks in a row is ended too.
        let now = mcp.sessions.unknown_of(mcp.alive.ids().await);
        let idle = mcp.sessions.idle_for(limit);
        for session in idle.iter().chain(now.intersection(&unknown)) {
            mcp.end(session).await;
        }
        unknown = now;
    }
}

pub(super) async fn mcp(
    State(gateway): State<Arc<Gateway>>,
    Extension(identity): Extension<Identity>,
    Extension(mcp): Extension<Arc<Mcp>>,
    request: Request,
) -> Response {
    match answer(&gateway, &identity, &mcp, request).await {
        Ok(response) => response,
        Err(refused) => *refused,
    }
}

async fn answer(
    gateway: &Arc<Gateway>,
    identity: &Identity,
    mcp: &Arc<Mcp>,
    request: Request,
) -> Result<Response, Box<Response>> {
    let refused = |status, code, message: &str, hint| Box::new(problem(status, code, message, hint));
    if gateway.stopping.is_cancelled() {
        return Err(refused(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "the gateway is stopping", None));
    }
    let revoked = gateway.revoked.subscribe();
    let (parts, body) = request.into_parts();
    let owner = identity.id();
    let session = text(&parts.headers, SESSION);
    if session.is_some_and(|session| !mcp.sessions.is_of(session, owner)) {
        return Err(refused(StatusCode::NOT_FOUND, "not_found", "unknown session", None));
    }
    if session.is_none() {
        // An invalid selection is reported now, not with the first list.
        let scoped = GatewayBackend(gateway.clone()).scoped(&parts, "unknown", Purpose::Tool);
        scoped.map_err(|refusal| Box::new(refusal_response(&refusal)))?;
    }
    let in_use = session.map(|session| mcp.sessions.in_use(session));
    let Taken { bytes: body, share } = read_body(&gateway.quota.of(identity), body).await?;
    let opens = session.is_none() && is_initialize(&body);
    if opens {
        no_room(&mcp.room(owner).await)?;
    }
    let deletes = session.filter(|_| parts.method == Method::DELETE).map(str::to_owned);
    let sent = (body.len() <= EXPLAINED_BYTES && is_json(&parts.headers)).then(|| body.clone());
    let request: Asking = Request::from_parts(parts, Full::new(body));
    let (mut response, share) = if opens {
        let opened = tokio::spawn(mcp.clone().open(owner.to_owned(), request, share)).await;
        let failed =
            |_| refused(StatusCode::INTERNAL_SERVER_ERROR, "internal", "cannot open a session", None);
        (opened.map_err(failed)??, None)
    } else {
        let response = mcp.service.handle(request).await;
        (mcp.admitted(owner, response).await?, share)
    };
    if let (Some(deleted), StatusCode::ACCEPTED) = (deletes, response.status()) {
        mcp.sessions.forget(&deleted);
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    if let (StatusCode::UNSUPPORTED_MEDIA_TYPE, Some(sent)) = (response.status(), sent) {
        return Ok(no_message(&sent));
    }
    let until = match identity {
        Identity::Operator => None,
        // The name of a token has no space.
        Identity::Page(session) => Some(page_name(&session.id)),
        Identity::Client(token) => Some(token.name.clone()),
    };
    Ok(response.map(|body| {
        let over = async move {
            match until {
                None => std::future::pending().await,
                Some(token) => is_revoked(revoked, token).await,
            }
        };
        let chunks = body.into_data_stream().take_until(Box::pin(over));
        // The session counts as in use until the answer is sent.
        Body::from_stream(keeping(chunks, (in_use, share)))
    }))
}

fn keeping<S: Stream, T>(stream: S, kept: T) -> impl Stream<Item = S::Item> {
    stream.inspect(move |_| {
        let _ = &kept;
    })
}

/// Returns an error if the session limit is reached.
fn no_room(room: &Room) -> Result<(), Box<Response>> {
    let refused = |status, message: &str| Err(Box::new(problem(status, "too_many", message, Some(END_ONE))));
    match room {
        Room::Free | Room::InPlaceOf(_) => Ok(()),
        Room::NoneOfTheirs => {
            let message = format!("this token already has {MAX_OF_ONE} sessions, and all are in use");
            refused(StatusCode::TOO_MANY_REQUESTS, &message)
        }
        Room::None => {
            let message = format!("the gateway already has {MAX_SESSIONS} sessions");
            refused(StatusCode::SERVICE_UNAVAILABLE, &message)
        }
    }
}

/// Returns whether a body is the request that opens a session, in any protocol revision.
fn is_initialize(body: &[u8]) -> bool {
    // Of repeated fields the last one counts, as in the SDK.
    let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(body).unwrap_or_default();
    let method = fields.get("method").and_then(|method| serde_json::from_str::<String>(method.get()).ok());
    method.as_deref() == Some("initialize")
}

const END_ONE: &str = "end a session, or use protocol revision 2026-07-28, which has no sessions";

fn is_json(headers: &HeaderMap) -> bool {
    text(headers, "content-type").is_some_and(|kind| kind.trim().starts_with("application/json"))
}

/// Answers an invalid body with the protocol's error: not JSON, or not a request.
fn no_message(sent: &[u8]) -> Response {
    #[derive(serde::Deserialize)]
    struct Head {
        id: Option<serde_json::Value>,
    }
    let head = serde_json::from_slice(sent);
    let (code, message) = match &head {
        Err(err) if !err.is_data() => (-32700, format!("the body is not JSON: {err}")),
        _ => (-32600, "the body is not a message of the protocol".to_owned()),
    };
    let id = head.ok().and_then(|Head { id }| id).filter(|id| id.is_string() || id.is_number());
    let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}});
    json_response(StatusCode::BAD_REQUEST, &error)
}

/// Waits until the token is revoked. A receiver that missed revocations also returns, and the client must reconnect.
async fn is_revoked(mut revoked: broadcast::Receiver<String>, token: String) {
    while let Ok(name) = revoked.recv().await {
        if name == token {
            return;
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// `GatewayBackend` serves MCP requests from the gateway's gate, as the identity of the request's token.
#[derive(Clone)]
pub(super) struct GatewayBackend(Arc<Gateway>);

impl Backend for GatewayBackend {
    async fn offered_tools(&self, who: &Who) -> Result<OfferedTools, Refusal> {
        let (call, names) = self.scoped_for(who, Purpose::Tool)?;
        Ok(OfferedTools { tools: self.0.gate.registry().view(&call.scope), names })
    }

    async fn call(&self, who: &Who, request: CallRequest) -> Outcome {
        let mut call = match self.scoped_for(who, request.purpose) {
            Ok((call, _)) => call,
            Err(refusal) => return Outcome::from_wire(&request.tool, Err(refusal.to_wire())),
        };
        let ending = std::mem::replace(&mut call.cancel, request.cancel.clone());
        (call.progress, call.approver) = (request.progress, request.approver);
        let mut running = std::pin::pin!(Box::pin(self.0.run(call, &request.tool, request.input)));
        tokio::select! {
            outcome = &mut running => outcome,
            // The gateway or the token has ended.
            () = ending.cancelled() => {
                request.cancel.cancel();
                running.await
            }
        }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.gate.registry().changes()
    }
}

impl GatewayBackend {
    fn scoped_for(&self, who: &Who, purpose: Purpose) -> Result<(Call, Names), Refusal> {
        let parts = who.parts.as_ref().ok_or_else(unauthenticated)?;
        self.scoped(parts, &who.client, purpose)
    }

    /// Makes a call by this client. Its scope is what token and agent allow, within the client's selection.
    fn scoped(&self, parts: &Parts, client: &str, purpose: Purpose) -> Result<(Call, Names), Refusal> {
        let identity = parts.extensions.get::<Identity>().ok_or_else(unauthenticated)?;
        let agent = agent_of(&parts.headers)
            .map_err(|_| Refusal::new(RefusalCode::InvalidInput, "the header gantry-agent is invalid"))?;
        let wanted = Wanted { agent, workspace: None, mcp: Some(client) };
        let mut call = self.0.call(identity, &wanted, Surface::Mcp)?;
        let selection = selection(parts)?.for_listed(call.scope.is_listed());
        let scope = match purpose {
            Purpose::Tool => selection.scope(),
            Purpose::Resource => selection.resource_scope(),
        };
        let scope = scope.map_err(|err| Refusal::new(RefusalCode::InvalidInput, err.to_string()))?;
        call.scope = scope.within(call.scope);
        Ok((call, selection.names()))
    }
}

fn unauthenticated() -> Refusal {
    Refusal::new(RefusalCode::Denied, "the request is not authenticated")
}

/// Parses the selection in the URL: `?toolset=guarded&tools=Bash,Read&readOnly&namespaced`.
fn selection(parts: &Parts) -> Result<Selection, Refusal> {
    let invalid = |message: String| Refusal::new(RefusalCode::InvalidInput, message);
    let Query(pairs): Query<Vec<(String, String)>> =
        Query::try_from_uri(&parts.uri).map_err(|err| invalid(err.body_text()))?;
    let mut query = HashMap::new();
    for (name, value) in pairs {
        if let Some((name, _)) = query.remove_entry(&name) {
            return Err(invalid(format!(
                "the parameter {name:?} must not be repeated; separate values with commas"
            )));
        }
        query.insert(name, value);
    }
    // An empty list is an error, because it must not mean the default tools.
    let mut listed = |name: &str| -> Result<Vec<String>, Refusal> {
        let Some(value) = query.remove(name) else { return Ok(Vec::new()) };
        let parts = value.split(',').map(str::trim).filter(|part| !part.is_empty());
        let parts: Vec<String> = parts.map(str::to_owned).collect();
        if parts.is_empty() { Err(invalid(format!("the parameter {name:?} is empty"))) } else { Ok(parts) }
    };
    let (toolsets, tools) = (listed("toolset")?, listed("tools")?);
    let read_only = query.remove("readOnly").is_some_and(|value| value != "false");
    let namespaced = query.remove("namespaced").is_some_and(|value| value != "false");
    if let Some(unknown) = query.keys().next() {
        return Err(invalid(format!(
            "unknown parameter {unknown:?}; use toolset, tools, readOnly or namespaced"
        )));
    }
    let mut selection = Selection::new(&toolsets, &tools).map_err(|err| invalid(err.to_string()))?;
    if read_only {
        selection = selection.read_only();
    }
    Ok(if namespaced { selection.namespaced() } else { selection })
}
