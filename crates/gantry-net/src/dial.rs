//! Connects to a gateway, with TLS when its address says so.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::gateway_url::GatewayUrl;
use crate::tls::{Trust, tls_config};

/// Over name, connection and TLS together.
const DIAL_LIMIT: Duration = Duration::from_secs(15);

#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("cannot connect to {address}: {source}")]
    Connect { address: String, source: io::Error },
    #[error("cannot connect to {address}: no answer within {DIAL_LIMIT:?}")]
    TimedOut { address: String },
    #[error("cannot set up TLS: {0}")]
    Tls(String),
}

/// A connection, plain or not.
#[derive(Debug)]
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

pub async fn dial(url: &GatewayUrl, trust: &Trust) -> Result<Stream, DialError> {
    let address = url.authority();
    match tokio::time::timeout(DIAL_LIMIT, connect(url, trust, &address)).await {
        Ok(connected) => connected,
        Err(_) => Err(DialError::TimedOut { address }),
    }
}

async fn connect(url: &GatewayUrl, trust: &Trust, address: &str) -> Result<Stream, DialError> {
    let failed = |source| DialError::Connect { address: address.to_owned(), source };
    let tcp = TcpStream::connect((url.host.as_str(), url.port)).await.map_err(failed)?;
    tcp.set_nodelay(true).map_err(failed)?;
    if !url.secure {
        return Ok(Stream::Plain(tcp));
    }
    let name = ServerName::try_from(url.host.clone()).map_err(|err| DialError::Tls(err.to_string()))?;
    let connector = TlsConnector::from(Arc::new(tls_config(trust).map_err(DialError::Tls)?));
    let tls = connector.connect(name, tcp).await.map_err(failed)?;
    Ok(Stream::Tls(Box::new(tls)))
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
