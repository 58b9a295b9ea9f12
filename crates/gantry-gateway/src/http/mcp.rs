//! `/mcp`: the Model Context Protocol over streamable HTTP. Hosts, origins and tokens are checked before, as everywhere.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Extension;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use gantry_mcp::{
    Asked, Backend, HttpService, HttpSessions, McpServer, Names, Purpose, Selection, Shown, Who, http_service,
};
use gantry_tool::{Call, Outcome, Refusal, RefusalCode, Surface};
use http_body_util::{BodyExt, Full};
use tokio::sync::{broadcast, watch};

use super::call::{agent_of, read_body};
use super::problem;
use crate::auth::Identity;
use crate::callers::Wanted;
use crate::gateway::Gateway;

/// Conversations at the same time. Since 2026-07-28 the protocol has none.
const MAX_SESSIONS: usize = 256;

const SESSION: &str = "mcp-session-id";
const REVISION: &str = "mcp-protocol-version";
const WITHOUT_SESSIONS: &str = "2026-07-28";

/// The server, and whose each conversation is: its id lets nobody in.
pub(super) struct Mcp {
    service: HttpService<Served>,
    sessions: HttpSessions,
    owners: Mutex<HashMap<String, String>>,
    /// Sessions are opened one after another, so that they can be counted.
    opening: tokio::sync::Mutex<()>,
}

impl Mcp {
    pub(super) fn new(gateway: &Arc<Gateway>) -> Arc<Mcp> {
        let server = McpServer::new(Served(gateway.clone()), &gateway.version);
        let (service, sessions) = http_service(server, gateway.ending.clone());
        Arc::new(Mcp { service, sessions, owners: Mutex::default(), opening: tokio::sync::Mutex::default() })
    }

    async fn is_full(&self) -> bool {
        self.sessions.ids().await.len() >= MAX_SESSIONS
    }

    fn is_of(&self, session: &str, owner: &str) -> bool {
        let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.get(session).is_some_and(|of| of == owner)
    }

    async fn remember(&self, session: &str, owner: &str) {
        let known = self.sessions.ids().await;
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.retain(|session, _| known.contains(session));
        owners.insert(session.to_owned(), owner.to_owned());
    }
}

pub(super) async fn mcp(
    State(gateway): State<Arc<Gateway>>,
    Extension(identity): Extension<Identity>,
    Extension(mcp): Extension<Arc<Mcp>>,
    request: Request,
) -> Response {
    if gateway.stopping.is_cancelled() {
        return problem(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "the gateway is stopping", None);
    }
    let revoked = gateway.revoked.subscribe();
    let (parts, body) = request.into_parts();
    let owner = identity.owner();
    let session = text(&parts.headers, SESSION);
    if session.is_some_and(|session| !mcp.is_of(session, &owner)) {
        return problem(StatusCode::NOT_FOUND, "not_found", "there is no such session", None);
    }
    let opens = session.is_none() && text(&parts.headers, REVISION) != Some(WITHOUT_SESSIONS);
    let body = match read_body(body).await {
        Ok(body) => body,
        Err(refused) => return *refused,
    };
    let _one_by_one = if opens { Some(mcp.opening.lock().await) } else { None };
    if opens && mcp.is_full().await {
        let message = format!("there are {MAX_SESSIONS} sessions already");
        let hint = "end one, or use revision 2026-07-28 of the protocol, which has none";
        return problem(StatusCode::SERVICE_UNAVAILABLE, "too_many", &message, Some(hint));
    }
    let request: axum::http::Request<Full<Bytes>> = Request::from_parts(parts, Full::new(body));
    let response = mcp.service.handle(request).await;
    if let Some(session) = text(response.headers(), SESSION) {
        mcp.remember(session, &owner).await;
    }
    match identity {
        Identity::Operator => response.map(Body::new),
        Identity::Client(token) => response.map(|body| {
            let until = is_revoked(revoked, token.name.clone());
            Body::from_stream(body.into_data_stream().take_until(Box::pin(until)))
        }),
    }
}

/// Comes back when that token is revoked. Who misses so many of them that it cannot tell has to come again.
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

/// The gateway's gate, for whoever the request's token belongs to.
#[derive(Clone)]
pub(super) struct Served(Arc<Gateway>);

impl Backend for Served {
    async fn shown(&self, who: &Who) -> Result<Shown, Refusal> {
        let (call, names) = self.scoped(who, Purpose::Tool)?;
        Ok(Shown { tools: self.0.gate.registry().view(&call.scope), names })
    }

    async fn call(&self, who: &Who, asked: Asked) -> Outcome {
        let mut call = match self.scoped(who, asked.purpose) {
            Ok((call, _)) => call,
            Err(refusal) => return Outcome::from_wire(&asked.tool, Err(refusal.to_wire())),
        };
        let ending = std::mem::replace(&mut call.cancel, asked.cancel.clone());
        (call.progress, call.approver) = (asked.progress, asked.approver);
        let mut running = std::pin::pin!(Box::pin(self.0.run(call, &asked.tool, asked.input)));
        tokio::select! {
            outcome = &mut running => outcome,
            // The gateway is stopping, and this call has had its time.
            () = ending.cancelled() => {
                asked.cancel.cancel();
                running.await
            }
        }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.gate.registry().changes()
    }
}

impl Served {
    /// A call by this client: what its token and its agent may do, and of that what it chose to be shown.
    fn scoped(&self, who: &Who, purpose: Purpose) -> Result<(Call, Names), Refusal> {
        let unknown = || Refusal::new(RefusalCode::Denied, "nobody knows who asks");
        let parts = who.parts.as_ref().ok_or_else(unknown)?;
        let identity = parts.extensions.get::<Identity>().ok_or_else(unknown)?;
        let agent = agent_of(&parts.headers)
            .map_err(|_| Refusal::new(RefusalCode::InvalidInput, "the header gantry-agent is not valid"))?;
        let wanted = Wanted { agent, workspace: None, mcp: Some(&who.client) };
        let mut call = self.0.call(identity, &wanted, Surface::Mcp)?;
        let selection = selection(identity, parts)?;
        let scope = match purpose {
            Purpose::Tool => selection.scope(),
            Purpose::Resource => selection.resource_scope(),
        };
        let scope = scope.map_err(|err| Refusal::new(RefusalCode::InvalidInput, err.to_string()))?;
        call.scope = scope.within(call.scope);
        Ok((call, selection.names()))
    }
}

/// `?toolset=guarded&tools=Bash,Read&readOnly&namespaced`. A token that names its tools is shown them.
fn selection(identity: &Identity, parts: &Parts) -> Result<Selection, Refusal> {
    let invalid = |message: String| Refusal::new(RefusalCode::InvalidInput, message);
    let Query(mut query): Query<HashMap<String, String>> =
        Query::try_from_uri(&parts.uri).map_err(|err| invalid(err.body_text()))?;
    let mut listed = |name: &str| -> Vec<String> {
        let value = query.remove(name).unwrap_or_default();
        value.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let (toolsets, tools) = (listed("toolset"), listed("tools"));
    let read_only = query.remove("readOnly").is_some_and(|value| value != "false");
    let namespaced = query.remove("namespaced").is_some_and(|value| value != "false");
    if let Some(unknown) = query.keys().next() {
        return Err(invalid(format!(
            "unknown parameter {unknown:?}; there are toolset, tools, readOnly, namespaced"
        )));
    }
    let mut selection = Selection::new(&toolsets, &tools).map_err(|err| invalid(err.to_string()))?;
    if selection.is_default()
        && let Identity::Client(token) = identity
        && token.tools.is_some()
    {
        selection = Selection::everything();
    }
    if read_only {
        selection = selection.read_only();
    }
    Ok(if namespaced { selection.namespaced() } else { selection })
}
