//! Connects to a gateway, with TLS if its address says so.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::CertificateError;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::gateway_url::GatewayUrl;
use crate::key_pin::KeyPin;
use crate::tls::{OtherKey, Trust, tls_config};

/// The limit for name lookup, connection and TLS together.
const DIAL_LIMIT: Duration = Duration::from_secs(15);

/// The first byte that a TLS server sends to a client without TLS. No HTTP answer begins with it.
const TLS_ALERT: u8 = 0x15;

#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("cannot connect to {address}: {source}")]
    Connect { address: String, source: io::Error },
    #[error("cannot connect to {address}: no answer within {DIAL_LIMIT:?}")]
    TimedOut { address: String },
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    #[error("{address} does not use TLS: use http:// instead")]
    NotTls { address: String },
    #[error(
        "the certificate of {address} is of an authority that is not trusted here; if it is yours, name the authority with \
         --tls-ca FILE or GANTRY_TLS_CA"
    )]
    UnknownAuthority { address: String },
    #[error(
        "the server at {address} has another key ({found}) than the gateway that is known here: another machine has this \
         address now, somebody intercepts the connection, or the gateway has a new key that it did not announce"
    )]
    OtherKey { address: String, found: KeyPin },
}

/// `Stream` is a connection with or without TLS.
#[derive(Debug)]
pub enum Stream {
    Plain {
        tcp: TcpStream,
        /// Whether the other end has sent anything yet. Its first byte shows whether it expected
        /// TLS.
        heard: bool,
    },
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
        return Ok(Stream::plain(tcp));
    }
    let name = ServerName::try_from(url.host.clone()).map_err(|err| DialError::Tls(err.to_string()))?;
    let connector = TlsConnector::from(Arc::new(tls_config(trust).map_err(DialError::Tls)?));
    let tls = connector.connect(name, tcp).await.map_err(|err| refused(address, err))?;
    Ok(Stream::Tls(Box::new(tls)))
}

/// Maps a TLS error to a message that says how to fix it, where there is a fix.
fn refused(address: &str, err: io::Error) -> DialError {
    let reason = err.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let address = address.to_owned();
    match reason {
        Some(rustls::Error::InvalidMessage(_)) => DialError::NotTls { address },
        // The other errors mean that a trusted authority has the same name but did not sign the
        // certificate.
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer
            | CertificateError::BadSignature
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
        )) => DialError::UnknownAuthority { address },
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(other)))
            if let Some(OtherKey { found }) = other.0.downcast_ref() =>
        {
            DialError::OtherKey { address, found: *found }
        }
        _ => DialError::Connect { address, source: err },
    }
}

impl Stream {
    /// Returns the key of the other end, if the connection has TLS.
    pub fn peer_key(&self) -> Option<KeyPin> {
        match self {
            Stream::Plain { .. } => None,
            Stream::Tls(stream) => KeyPin::of_certificate(stream.get_ref().1.peer_certificates()?.first()?),
        }
    }

    pub(crate) fn plain(tcp: TcpStream) -> Stream {
        Stream::Plain { tcp, heard: false }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain { tcp, heard: true } => Pin::new(tcp).poll_read(cx, buffer),
            Stream::Plain { tcp, heard } => {
                let before = buffer.filled().len();
                std::task::ready!(Pin::new(tcp).poll_read(cx, buffer))?;
                *heard = true;
                match buffer.filled().get(before) {
                    Some(&TLS_ALERT) => {
                        Poll::Ready(Err(io::Error::other("the server expects TLS: use https:// instead")))
                    }
                    _ => Poll::Ready(Ok(())),
                }
            }
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain { tcp, .. } => Pin::new(tcp).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain { tcp, .. } => Pin::new(tcp).poll_write_vectored(cx, slices),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain { tcp, .. } => tcp.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain { tcp, .. } => Pin::new(tcp).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain { tcp, .. } => Pin::new(tcp).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
