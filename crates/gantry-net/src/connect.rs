//! Creates the connections of the HTTP library's pool. Each one goes through the guard, or to the
//! operator's proxy.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream::{FuturesUnordered, StreamExt};
use http::Uri;
use hyper::rt::ReadBufCursor;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use url::Url;

use crate::addresses::why_closed;
use crate::client::{ClientOptions, NetError};
use crate::dial::Stream;
use crate::guard::Guard;
use crate::target::Target;
use crate::tls::tls_config;

/// Applies in addition to the request's own deadline, because a connection may outlive the request
/// that opened it.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);
/// How long to wait for an address before the next one is tried in parallel.
const HEAD_START: Duration = Duration::from_millis(300);
/// How many addresses of a name are tried.
const MAX_ADDRESSES: usize = 4;
/// The limit for a proxy's answer to CONNECT.
const MAX_PROXY_ANSWER: usize = 8 * 1024;

/// `Connector` is cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: Arc<ClientOptions>,
    guard: Arc<Guard>,
    /// Created at the first https connection.
    tls: OnceCell<Arc<ClientConfig>>,
}

impl Connector {
    pub(crate) fn new(options: Arc<ClientOptions>, guard: Arc<Guard>) -> Connector {
        Connector { shared: Arc::new(Shared { options, guard, tls: OnceCell::new() }) }
    }

    /// Connects without TLS. `check` sees the addresses that the guard judged. The operator's proxy
    /// looks up names itself, so `check` is not called for it.
    pub(crate) async fn open(
        &self,
        target: &Target,
        check: impl Fn(&[SocketAddr]) -> Result<(), NetError>,
    ) -> Result<Opened, NetError> {
        match tokio::time::timeout(CONNECT_LIMIT, self.shared.open(target, check)).await {
            Ok(opened) => opened,
            Err(_) => Err(failed(target, "no answer")),
        }
    }

    /// Connects for bytes of any protocol. The operator's proxy opens a tunnel, also without TLS.
    pub(crate) async fn stream(&self, target: &Target) -> Result<Stream, NetError> {
        let connected = async {
            let tcp = match &self.shared.options.proxy {
                None => race(target, self.shared.guard.addresses(target).await?).await?,
                Some(proxy) => self.shared.tunnel(proxy, target).await?,
            };
            if target.secure { self.shared.secure(target, tcp).await } else { Ok(Stream::plain(tcp)) }
        };
        match tokio::time::timeout(CONNECT_LIMIT, connected).await {
            Ok(connected) => connected,
            Err(_) => Err(failed(target, "no answer")),
        }
    }

    /// Starts TLS on a connection to this target.
    pub(crate) async fn start_tls(&self, target: &Target, tcp: TcpStream) -> Result<Stream, NetError> {
        match tokio::time::timeout(CONNECT_LIMIT, self.shared.secure(target, tcp)).await {
            Ok(connected) => connected,
            Err(_) => Err(failed(target, "no answer")),
        }
    }
}

/// `Opened` is a connection to a target, or to the operator's proxy.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) tcp: TcpStream,
    /// Whether requests must contain the whole URL, for the proxy.
    pub(crate) is_proxied: bool,
}

impl tower_service::Service<Uri> for Connector {
    type Response = HttpStream;
    type Error = NetError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpStream, NetError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NetError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let mut url = Url::parse(&uri.to_string())
                .map_err(|_| NetError::BadUrl { url: uri.to_string(), reason: "it has no host" })?;
            let target = Target::of(&mut url)?;
            match tokio::time::timeout(CONNECT_LIMIT, shared.connect(&target)).await {
                Ok(connected) => connected,
                Err(_) => Err(failed(&target, "no answer")),
            }
        })
    }
}

impl Shared {
    async fn connect(&self, target: &Target) -> Result<HttpStream, NetError> {
        let Opened { tcp, is_proxied } = self.open(target, |_| Ok(())).await?;
        let peer = tcp.peer_addr().map_err(|err| failed(target, err))?;
        let is_closed = self.options.proxy.is_none() && why_closed(peer.ip().to_canonical()).is_some();
        let stream = if target.secure { self.secure(target, tcp).await? } else { Stream::plain(tcp) };
        Ok(HttpStream { io: TokioIo::new(stream), is_proxied, is_closed })
    }

    async fn open(
        &self,
        target: &Target,
        check: impl Fn(&[SocketAddr]) -> Result<(), NetError>,
    ) -> Result<Opened, NetError> {
        match &self.options.proxy {
            None => {
                let addresses = self.guard.addresses(target).await?;
                check(&addresses)?;
                Ok(Opened { tcp: race(target, addresses).await?, is_proxied: false })
            }
            Some(proxy) => {
                let tcp = match target.secure {
                    true => self.tunnel(proxy, target).await?,
                    false => self.reach_proxy(proxy, target).await?,
                };
                Ok(Opened { tcp, is_proxied: !target.secure })
            }
        }
    }

    async fn secure(&self, target: &Target, tcp: TcpStream) -> Result<Stream, NetError> {
        let config = self.tls.get_or_try_init(|| self.load_tls()).await;
        let config = config.map_err(|reason| failed(target, reason))?;
        let name = target.host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(name).map_err(|err| failed(target, err))?;
        let tls = TlsConnector::from(Arc::clone(config)).connect(name, tcp).await;
        Ok(Stream::Tls(Box::new(tls.map_err(|err| failed(target, err))?)))
    }

    async fn load_tls(&self) -> Result<Arc<ClientConfig>, String> {
        let trust = self.options.trust.clone();
        let config = tokio::task::spawn_blocking(move || tls_config(&trust)).await;
        config.map_err(|err| err.to_string())?.map(Arc::new)
    }

    /// Connects to the target through the proxy. The proxy looks up the target's name, so only its
    /// form and a literal address can be checked here.
    async fn tunnel(&self, proxy: &Url, target: &Target) -> Result<TcpStream, NetError> {
        let mut tcp = self.reach_proxy(proxy, target).await?;
        let tunnel = open_tunnel(&mut tcp, proxy, target).await;
        tunnel.map_err(|err| failed(target, format!("the proxy refused: {err}")))?;
        Ok(tcp)
    }

    /// Connects to the proxy, whose address the operator chose.
    async fn reach_proxy(&self, proxy: &Url, target: &Target) -> Result<TcpStream, NetError> {
        if proxy.scheme() != "http" {
            return Err(failed(target, "the proxy's address does not begin with http://"));
        }
        let host = proxy.host_str().ok_or_else(|| failed(target, "the proxy's address has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = proxy.port_or_known_default().unwrap_or(80);
        race(target, self.guard.look_up(host, port).await?).await
    }
}

/// Returns the first connection that succeeds. The next address is tried when one fails, or in
/// parallel when one is slow.
async fn race(target: &Target, addresses: Vec<SocketAddr>) -> Result<TcpStream, NetError> {
    let mut waiting = addresses.into_iter().take(MAX_ADDRESSES).peekable();
    let mut attempts = FuturesUnordered::new();
    let mut reason = "it has no addresses".to_owned();
    loop {
        attempts.extend(waiting.next().map(reach));
        let patience = if waiting.peek().is_some() { HEAD_START } else { CONNECT_LIMIT };
        match tokio::time::timeout(patience, attempts.next()).await {
            Ok(Some(Ok(tcp))) => return Ok(tcp),
            Ok(Some(Err(err))) => reason = err.to_string(),
            Ok(None) => return Err(failed(target, reason)),
            Err(_) => {}
        }
    }
}

async fn reach(address: SocketAddr) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(address).await?;
    // The guard judged this address, so the socket must be connected to it.
    if tcp.peer_addr()?.ip().to_canonical() != address.ip().to_canonical() {
        return Err(io::Error::other("the connection went to another address"));
    }
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

async fn open_tunnel(tcp: &mut TcpStream, proxy: &Url, target: &Target) -> io::Result<()> {
    let place = format!("{}:{}", target.host, target.port);
    let mut request = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n");
    if let Some(credentials) = proxy_authorization(proxy) {
        request.push_str(&format!("Proxy-Authorization: {credentials}\r\n"));
    }
    request.push_str("\r\n");
    tcp.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= MAX_PROXY_ANSWER {
            return Err(io::Error::other("its answer is too long"));
        }
        // Reads one byte at a time, because what follows belongs to the target.
        answer.push(tcp.read_u8().await?);
    }
    let status = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = status.split(|byte| *byte == b' ');
    match (words.next(), words.next()) {
        (Some(b"HTTP/1.1" | b"HTTP/1.0"), Some([b'2', _, _])) => Ok(()),
        _ => Err(io::Error::other(String::from_utf8_lossy(&status[..status.len().min(100)]).into_owned())),
    }
}

/// Returns the `Proxy-Authorization` value, if the proxy's address has credentials.
pub(crate) fn proxy_authorization(proxy: &Url) -> Option<String> {
    if proxy.username().is_empty() && proxy.password().is_none() {
        return None;
    }
    let plain = |text: &str| percent_encoding::percent_decode_str(text).collect::<Vec<u8>>();
    let password = proxy.password().unwrap_or_default();
    let credentials = [plain(proxy.username()), plain(password)].join(&b':');
    Some(format!("Basic {}", STANDARD.encode(credentials)))
}

fn failed(target: &Target, reason: impl ToString) -> NetError {
    NetError::Connect { host: target.host.clone(), reason: reason.to_string() }
}

/// `HttpStream` is a connection in the form that the HTTP library needs.
#[derive(Debug)]
pub(crate) struct HttpStream {
    io: TokioIo<Stream>,
    /// Whether requests must contain the whole URL, for the proxy.
    is_proxied: bool,
    /// Whether the address is not public.
    is_closed: bool,
}

/// `ClosedNetwork` is an extension of responses from addresses that are not public.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClosedNetwork;

impl Connection for HttpStream {
    fn connected(&self) -> Connected {
        let connected = Connected::new().proxy(self.is_proxied);
        if self.is_closed { connected.extra(ClosedNetwork) } else { connected }
    }
}

impl hyper::rt::Read for HttpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_read(cx, buffer)
    }
}

impl hyper::rt::Write for HttpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, slices)
    }
}
