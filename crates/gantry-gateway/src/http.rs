//! The HTTP surface: its routes, and the checks that every request passes first.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use gantry_domain::Identity;
pub(crate) use gantry_domain::http::{Named, json_response, problem};
use gantry_domain::http::{held, internal_error};
use gantry_protocol::{Health, HealthStatus, NodeList};

use crate::auth::AuthError;
use crate::gateway::Gateway;
use crate::page_claim::{self, PageClaim};
use crate::server::{MAX_HEAD_BYTES, Peer};
use crate::ws;

pub use protected::ProtectedResource;

mod call;
mod listing;
mod mcp;
mod protected;
mod public;
mod results;

pub(crate) fn router(gateway: Arc<Gateway>) -> Router {
    let open = Router::new()
        .route("/health", get(health))
        .route("/ws", any(ws::upgrade))
        .route(protected::PATH, get(protected::metadata))
        .route(protected::PATH_OF_MCP, get(protected::metadata))
        .method_not_allowed_fallback(not_allowed);
    let closed = Router::new()
        .route("/metrics", get(metrics))
        .route("/v1/tools", get(listing::tools))
        .route("/v1/tools/{name}", get(listing::tool).post(call::call))
        .route("/v1/results/{handle}", get(results::read))
        .route("/v1/nodes", get(nodes))
        .route("/mcp", any(mcp::mcp))
        .merge(domain_routes(&gateway))
        .layer(Extension(mcp::Mcp::new(&gateway)))
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(middleware::from_fn_with_state(gateway.clone(), authenticate));
    open.merge(public::routes(&gateway))
        .merge(closed)
        .layer(middleware::from_fn_with_state(gateway.clone(), only_our_names))
        .layer(middleware::from_fn(only_short_heads))
        .with_state(gateway)
}

/// The routes of all domains, behind authentication.
fn domain_routes(gateway: &Arc<Gateway>) -> Router<Arc<Gateway>> {
    let routes = gateway.domains.iter().map(|domain| domain.routes());
    routes.fold(Router::new(), Router::merge).with_state(gateway.request_context())
}

/// Rejects long heads. How much of one is read depends on packets, so the answer must not depend on that.
async fn only_short_heads(request: Request, next: Next) -> Response {
    // The size as sent: `GET /path HTTP/1.1`, and for each header a colon, a space and the line end.
    let line = request.method().as_str().len() + request.uri().to_string().len() + " HTTP/1.1\r\n".len() + 1;
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    if line + fields.sum::<usize>() > MAX_HEAD_BYTES {
        let message = format!("the head of a request must have at most {MAX_HEAD_BYTES} bytes");
        return problem(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too_large", &message, None);
    }
    next.run(request).await
}

/// Rejects requests for other host names, to prevent DNS rebinding, and requests from pages of other origins.
async fn only_our_names(State(gateway): State<Arc<Gateway>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let hosts: Vec<&HeaderValue> = headers.get_all(header::HOST).iter().collect();
    let asked = match *hosts {
        [host] => host.to_str().ok().filter(|host| gateway.hosts.allows_host(host)),
        _ => None,
    };
    // A request line with a full URL names a host too.
    let line_is_ours =
        request.uri().authority().is_none_or(|authority| gateway.hosts.allows_host(authority.as_str()));
    let (Some(asked), true) = (asked, line_is_ours) else {
        let hint = "use the address that the gateway listens on, or start it with --public-url";
        return problem(
            StatusCode::FORBIDDEN,
            "forbidden",
            "this gateway does not serve that host name",
            Some(hint),
        );
    };
    let origins = headers.get_all(header::ORIGIN).iter();
    let is_ours =
        |origin: &HeaderValue| origin.to_str().is_ok_and(|origin| gateway.hosts.allows_origin(origin, asked));
    let mut foreign = origins.filter(|origin| !is_ours(origin));
    if foreign.next().is_some() {
        return problem(StatusCode::FORBIDDEN, "forbidden", "requests from other origins are rejected", None);
    }
    if let Some(refused) = coded_body(headers) {
        return refused;
    }
    next.run(request).await
}

/// Rejects encoded bodies, because they would be read as plain ones. Chunked bodies are accepted.
fn coded_body(headers: &HeaderMap) -> Option<Response> {
    let is_only = |name, plain: &str| {
        let mut values = headers.get_all(name).iter();
        let is_plain =
            |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(plain.as_bytes());
        values.next().is_none_or(is_plain) && values.next().is_none()
    };
    let (status, message) = if !is_only(header::TRANSFER_ENCODING, "chunked") {
        (StatusCode::NOT_IMPLEMENTED, "the only supported transfer encoding is \"chunked\"")
    } else if !is_only(header::CONTENT_ENCODING, "identity") {
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, "send the body without a content encoding")
    } else {
        return None;
    };
    Some(problem(status, "unsupported", message, None))
}

async fn authenticate(
    State(gateway): State<Arc<Gateway>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    if request.headers().get_all(header::AUTHORIZATION).iter().count() > 1 {
        let message = "the header authorization must not be repeated";
        return problem(StatusCode::BAD_REQUEST, "bad_params", message, None);
    }
    match identify(&gateway, request.headers(), peer.address).await {
        Ok(identity) => {
            let account = gateway.quota.of(&identity);
            let is_page = matches!(identity, Identity::Page(_));
            request.extensions_mut().insert(identity);
            let mut response = held(&account, next.run(request).await);
            if is_page {
                // A browser keeps nothing of it, and reads it as nothing but what it is declared to be.
                let headers = response.headers_mut();
                headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
                headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            }
            response
        }
        Err(err) => {
            let mut response = refused(&err);
            if request.uri().path() == "/mcp"
                && let Some(challenge) = gateway.protected.as_ref().and_then(protected::challenge)
            {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            }
            response
        }
    }
}

async fn identify(gateway: &Gateway, headers: &HeaderMap, from: IpAddr) -> Result<Identity, AuthError> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let scheme = bearer.and_then(|bearer| bearer.split_once(' '));
    match scheme {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => {
            gateway.auth.check(token.trim(), from).await
        }
        _ => match headers.get(page_claim::KEY_HEADER).map(|key| key.to_str().unwrap_or_default()) {
            Some(key) => gateway.auth.check_page(&PageClaim::of(headers, key), from).await,
            None => Err(AuthError::Missing),
        },
    }
}

fn refused(err: &AuthError) -> Response {
    let message = err.to_string();
    let mut response = match err {
        AuthError::TooMany => {
            let mut response = problem(StatusCode::TOO_MANY_REQUESTS, "too_many", &message, None);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
            response
        }
        AuthError::Database(err) => internal_error(&message, err),
        AuthError::NoPageSession | AuthError::NotOwnPage => {
            return problem(StatusCode::UNAUTHORIZED, "unauthorized", &message, None);
        }
        _ => {
            let hint = "send Authorization: Bearer TOKEN; the operator's token is in operator.token of the data directory";
            problem(StatusCode::UNAUTHORIZED, "unauthorized", &message, Some(hint))
        }
    };
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

async fn health(State(gateway): State<Arc<Gateway>>) -> Response {
    let status = if gateway.stopping.is_cancelled() { HealthStatus::Stopping } else { HealthStatus::Ok };
    json_response(StatusCode::OK, &Health { status, version: gateway.version.clone() })
}

/// The last line of OpenMetrics text.
const METRICS_END: &str = "# EOF\n";

async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")];
    let text = gateway.gate.metrics().render();
    let refused = format!(
        "# HELP stream_frames_refused Frames that belonged to no stream of their sender.\n\
         # TYPE stream_frames_refused counter\nstream_frames_refused_total {}\n",
        gateway.nodes.transfers().map_or(0, |transfers| transfers.rejected_frames())
    );
    let mut further = vec![refused];
    for domain in &gateway.domains {
        further.push(domain.metrics().await);
    }
    let body = |page: &str| page.strip_suffix(METRICS_END).unwrap_or(page).to_owned();
    let mut page = body(&text);
    further.iter().for_each(|one| page.push_str(&body(one)));
    page.push_str(METRICS_END);
    (StatusCode::OK, headers, page).into_response()
}

async fn nodes(State(gateway): State<Arc<Gateway>>) -> Response {
    json_response(StatusCode::OK, &NodeList { nodes: gateway.node_infos() })
}

async fn unknown(request: Request) -> Response {
    let path: String = request.uri().path().chars().take(200).collect();
    problem(StatusCode::NOT_FOUND, "not_found", &format!("unknown path {path}"), Some("see docs/http.md"))
}

pub(crate) async fn not_allowed(method: Method, uri: Uri) -> Response {
    let path: String = uri.path().chars().take(200).collect();
    let message = format!("{method} is not allowed on {path}");
    problem(StatusCode::METHOD_NOT_ALLOWED, "not_allowed", &message, Some("see docs/http.md"))
}
