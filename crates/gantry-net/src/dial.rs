//! Connects to a gateway, with TLS when its address says so.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::gateway_url::GatewayUrl;

/// Over name, connection and TLS together.
const DIAL_LIMIT: Duration = Duration::from_secs(15);

/// Whom to believe that they are who they say.
#[derive(Debug, Clone, Default)]
pub enum Trust {
    /// The authorities this system trusts.
    #[default]
    System,
    /// Those, and one that is given as PEM.
    And { name: PathBuf, pem: Vec<u8> },
}

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
    let connector = TlsConnector::from(Arc::new(tls_config(trust)?));
    let tls = connector.connect(name, tcp).await.map_err(failed)?;
    Ok(Stream::Tls(Box::new(tls)))
}

fn tls_config(trust: &Trust) -> Result<ClientConfig, DialError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Trust::And { name, pem } = trust {
        let refused = |reason: String| DialError::Tls(format!("{}: {reason}", name.display()));
        let mut found = false;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|err| refused(err.to_string()))?;
            roots.add(certificate).map_err(|err| refused(err.to_string()))?;
            found = true;
        }
        if !found {
            return Err(refused("there is no certificate in it".into()));
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|err| DialError::Tls(err.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
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
