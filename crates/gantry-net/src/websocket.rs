//! Guarded WebSocket clients.

use http::{HeaderMap, HeaderValue, header};
use tokio::time::Instant;
use tokio_websockets::{ClientBuilder, Error, Limits, WebSocketStream, upgrade};
use url::Url;

use crate::client::{Client, NetError, USER_AGENT, is_clients_own};
use crate::policy::NetworkPolicy;
use crate::stream::GuardedStream;
use crate::target::{MAX_URL_BYTES, Target, shown};

pub type WebSocket = WebSocketStream<GuardedStream>;

/// The limit for one message, all its frames together.
pub const MAX_WEBSOCKET_MESSAGE: usize = 16 * 1024 * 1024;
/// The limit for the answer to the upgrade.
const MAX_UPGRADE_BYTES: usize = 64 * 1024;

impl Client {
    /// Opens a WebSocket at a `ws` or `wss` URL. Redirects are not followed. The deadline is for everything up to the
    /// end of the upgrade. `secret_headers` are never shown.
    pub async fn websocket(
        &self,
        url: &Url,
        policy: &NetworkPolicy,
        headers: &HeaderMap,
        secret_headers: &HeaderMap,
        deadline: Instant,
    ) -> Result<WebSocket, NetError> {
        let target = target_of(url)?;
        let builder = request(url, &target, headers, secret_headers)?;
        let host = target.host.clone();
        let failed = |reason: String| NetError::Connect { host: host.clone(), reason };
        let mut stream = self.open_stream(target, policy, deadline).await?;
        stream.budget = Some(MAX_UPGRADE_BYTES);
        let upgraded = tokio::time::timeout_at(deadline, builder.connect_on(stream)).await;
        let upgraded = upgraded.map_err(|_| failed("no answer to the WebSocket upgrade".into()))?;
        let (mut socket, _) = upgraded.map_err(|err| failed(reason(&err)))?;
        socket.get_mut().budget = None;
        Ok(socket)
    }
}

/// Judges the URL in the same way as one with the scheme `http` or `https`.
fn target_of(url: &Url) -> Result<Target, NetError> {
    let scheme = match url.scheme() {
        "ws" => "http",
        "wss" => "https",
        _ => return Err(refused(url, "only ws and wss are supported")),
    };
    if url.as_str().len() > MAX_URL_BYTES {
        return Err(refused(url, "it is longer than 8192 bytes"));
    }
    let place = &url[url::Position::BeforeUsername..url::Position::BeforePath];
    let judged = Url::parse(&format!("{scheme}://{place}/"));
    Target::of(&mut judged.map_err(|_| refused(url, "it has no host"))?)
}

/// The error does not contain the query, in which providers put tickets.
fn refused(url: &Url, reason: &'static str) -> NetError {
    let mut url = url.clone();
    url.set_query(None);
    NetError::BadUrl { url: shown(&url), reason }
}

fn request<'a>(
    url: &Url,
    target: &Target,
    headers: &HeaderMap,
    secret_headers: &HeaderMap,
) -> Result<ClientBuilder<'a>, NetError> {
    let invalid = "it contains characters that are invalid in a request";
    let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let uri = format!("{}://{}{path}", url.scheme(), target.authority());
    let mut builder = ClientBuilder::new().uri(&uri).map_err(|_| refused(url, invalid))?;
    let limits = Limits::default().max_payload_len(Some(MAX_WEBSOCKET_MESSAGE));
    builder = builder.limits(limits);
    let own = [(header::USER_AGENT, HeaderValue::from_static(USER_AGENT))];
    let own = own.iter().map(|(name, value)| (name, value));
    for (name, value) in own.chain(headers).chain(secret_headers) {
        let bad_header = || NetError::BadHeader { name: name.to_string() };
        if is_clients_own(name.as_str()) || name.as_str().starts_with("sec-websocket-") {
            return Err(bad_header());
        }
        builder = builder.add_header(name.clone(), value.clone()).map_err(|_| bad_header())?;
    }
    Ok(builder)
}

/// Describes a failed upgrade. It contains nothing of the request.
fn reason(err: &Error) -> String {
    match err {
        Error::Upgrade(upgrade::Error::DidNotSwitchProtocols(status @ 300..=399)) => {
            format!(
                "it answered the WebSocket upgrade with a redirect (status {status}), which is not followed"
            )
        }
        Error::Upgrade(upgrade::Error::DidNotSwitchProtocols(status)) => {
            format!("it refused the WebSocket upgrade with status {status}")
        }
        other => format!("the WebSocket upgrade failed: {other}"),
    }
}
