//! Closes a connection whose peer does not read, because everything queued for it would stay in memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Timeout of a write, equal to two pings.
const TAKES_NOTHING: Duration = Duration::from_secs(30);

pub(crate) struct WriteTimeout<S> {
    inner: S,
    /// Runs while a write is blocked; restarted whenever the peer reads something.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub(crate) fn new(inner: S) -> WriteTimeout<S> {
        WriteTimeout { inner, stuck: None }
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep(TAKES_NOTHING)));
        match stuck.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                let message = "the peer read nothing for 30 s";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write(cx, buf);
        this.watch(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write_vectored(cx, bufs);
        this.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.inner).poll_flush(cx);
        this.watch(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let closed = Pin::new(&mut this.inner).poll_shutdown(cx);
        this.watch(cx, closed)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn blocked_peer_times_out_and_slow_peer_does_not() {
        let (here, mut there) = tokio::io::duplex(1000);
        let mut here = WriteTimeout::new(here);
        let slow = tokio::spawn(async move {
            let mut taken = vec![0; 10];
            for _ in 0..10 {
                tokio::time::sleep(TAKES_NOTHING - Duration::from_secs(1)).await;
                there.read_exact(&mut taken).await.unwrap();
            }
            there
        });
        here.write_all(&[0; 1100]).await.unwrap();
        let mut there = slow.await.unwrap();
        let began = tokio::time::Instant::now();
        // The peer keeps sending, which does not reset the timeout.
        let sending = tokio::spawn(async move {
            while there.write_all(b"still here").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        });
        let given_up = tokio::time::timeout(10 * TAKES_NOTHING, here.write_all(b"more"));
        let err = given_up.await.unwrap().unwrap_err();
        assert_eq!((err.kind(), began.elapsed()), (io::ErrorKind::TimedOut, TAKES_NOTHING));
        drop(here);
        sending.await.unwrap();
    }
}
