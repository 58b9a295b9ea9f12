//! Guarded byte streams, for protocols other than HTTP.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::client::{Client, NetError};
use crate::connect::Connector;
use crate::dial::Stream;
use crate::policy::NetworkPolicy;
use crate::target::Target;

/// Whether a stream begins with TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    Tls,
    /// Without TLS, at least at first: see [`GuardedStream::upgrade_tls`].
    Plain,
}

/// `GuardedStream` is a connection to a host that the guard judged. With an operator's proxy, it is a tunnel.
#[derive(Debug)]
pub struct GuardedStream {
    stream: Stream,
    target: Target,
    connector: Connector,
    /// How many more bytes may be read, while that is limited.
    pub(crate) budget: Option<usize>,
}

impl Client {
    /// Connects to a host and port of any protocol. The deadline is for name lookup, connection and TLS together.
    pub async fn connect_stream(
        &self,
        host: &str,
        port: u16,
        security: Security,
        policy: &NetworkPolicy,
        deadline: Instant,
    ) -> Result<GuardedStream, NetError> {
        let target = Target::of_stream(host, port, security == Security::Tls)?;
        self.open_stream(target, policy, deadline).await
    }

    pub(crate) async fn open_stream(
        &self,
        target: Target,
        policy: &NetworkPolicy,
        deadline: Instant,
    ) -> Result<GuardedStream, NetError> {
        self.guard().check(&target, policy)?;
        let connector = self.connector();
        let stream = match tokio::time::timeout_at(deadline, connector.stream(&target)).await {
            Ok(stream) => stream?,
            Err(_) => return Err(no_answer(&target)),
        };
        Ok(GuardedStream { stream, target, connector, budget: None })
    }
}

impl GuardedStream {
    /// Starts TLS on a connection without it, as after STARTTLS. The certificate must name `host`. The caller must
    /// discard everything that it read before, because anybody on the way could have written it.
    pub async fn upgrade_tls(self, host: &str) -> Result<GuardedStream, NetError> {
        let GuardedStream { stream, target, connector, budget } = self;
        let target = Target::of_stream(host, target.port, true)?;
        match stream {
            Stream::Plain { tcp, .. } => {
                let stream = connector.start_tls(&target, tcp).await?;
                Ok(GuardedStream { stream, target, connector, budget })
            }
            Stream::Tls(_) => {
                Err(NetError::Connect { host: target.host, reason: "TLS has begun already".into() })
            }
        }
    }

    pub fn is_secure(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }
}

fn no_answer(target: &Target) -> NetError {
    NetError::Connect { host: target.host.clone(), reason: "no answer".into() }
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        let Some(budget) = &mut this.budget else { return Poll::Ready(Ok(())) };
        match budget.checked_sub(buffer.filled().len() - before) {
            Some(left) => {
                *budget = left;
                Poll::Ready(Ok(()))
            }
            None => Poll::Ready(Err(io::Error::other("its answer is too long"))),
        }
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }
}
