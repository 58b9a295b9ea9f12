//! One side of a connection, with the bytes that were read ahead.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::MAX_HEAD_BYTES;
use super::head::HeadScan;
use super::refusal::Refusal;

const READ_BYTES: usize = 8 * 1024;
/// How many bytes are read ahead while a client waits for a decision.
const MAX_AHEAD: usize = 64 * 1024;
/// Closing a socket with unread bytes would destroy the answer that is on its way.
const LINGER_LIMIT: Duration = Duration::from_secs(2);
const MAX_LINGER_BYTES: usize = 1024 * 1024;

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) tcp: TcpStream,
    /// Bytes that were read but not used.
    pub(super) ahead: BytesMut,
}

impl Peer {
    pub(super) fn new(tcp: TcpStream) -> Peer {
        Peer { tcp, ahead: BytesMut::new() }
    }

    /// Reads more bytes. Returns false at the end of the stream. Dropping the future loses nothing.
    pub(super) async fn fill(&mut self) -> io::Result<bool> {
        self.ahead.reserve(READ_BYTES);
        Ok(self.tcp.read_buf(&mut self.ahead).await? > 0)
    }

    /// Returns this many bytes, which must come.
    pub(super) async fn take(&mut self, count: usize) -> Result<BytesMut, Refusal> {
        while self.ahead.len() < count {
            match self.fill().await {
                Ok(true) => {}
                Ok(false) | Err(_) => return Err(Refusal::left()),
            }
        }
        Ok(self.ahead.split_to(count))
    }

    /// Returns the bytes of the next head, with its empty line.
    pub(super) async fn take_head(&mut self) -> Result<BytesMut, Refusal> {
        take_head(&mut self.ahead, &mut self.tcp).await
    }

    /// Waits until the other end disconnects, and reads ahead meanwhile.
    pub(super) async fn gone(&mut self) {
        while self.ahead.len() < MAX_AHEAD {
            match self.fill().await {
                Ok(true) => {}
                Ok(false) | Err(_) => return,
            }
        }
        std::future::pending().await
    }

    /// Sends the last bytes, then closes without destroying them.
    pub(super) async fn finish(mut self, last: &[u8]) {
        let close = async {
            self.tcp.write_all(last).await?;
            self.tcp.shutdown().await?;
            let mut scrap = vec![0; READ_BYTES];
            let mut read = 0;
            while read < MAX_LINGER_BYTES {
                match self.tcp.read(&mut scrap).await? {
                    0 => break,
                    count => read += count,
                }
            }
            Ok::<(), io::Error>(())
        };
        // The client may be gone already.
        let _ = tokio::time::timeout(LINGER_LIMIT, close).await;
    }
}

/// Returns the bytes of the next head, with its empty line. `ahead` keeps what follows.
pub(super) async fn take_head(
    ahead: &mut BytesMut,
    tcp: &mut (impl AsyncRead + Unpin),
) -> Result<BytesMut, Refusal> {
    let mut scan = HeadScan::default();
    loop {
        let window = &ahead[..ahead.len().min(MAX_HEAD_BYTES)];
        if let Some(end) = scan.end(window)? {
            return Ok(ahead.split_to(end));
        }
        if ahead.len() >= MAX_HEAD_BYTES {
            return Err(Refusal::too_large(format!("the head is longer than {MAX_HEAD_BYTES} bytes")));
        }
        ahead.reserve(READ_BYTES);
        match tcp.read_buf(ahead).await {
            Ok(count) if count > 0 => {}
            Ok(_) | Err(_) => return Err(Refusal::left()),
        }
    }
}
