//! The body of an answer, decoded, as it comes.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;
use tokio_util::io::StreamReader;

use crate::client::NetError;
use crate::decode::{Encoding, Reader, decoder};

const CHUNK_BYTES: usize = 64 * 1024;
const MAX_EXPECTED: usize = 4 << 20;

/// Decoded bytes, as they come, until the request's deadline.
pub struct Body {
    source: Source,
    until: Until,
}

/// When to give up, and what to say then.
#[derive(Debug, Clone)]
pub(crate) struct Until {
    pub(crate) host: String,
    pub(crate) deadline: Instant,
    pub(crate) limit: Duration,
}

enum Source {
    Plain(Incoming),
    Opening(Pin<Box<dyn Future<Output = io::Result<Reader>> + Send>>),
    Decoded(Reader),
    Unreadable(NetError),
    Ended,
}

/// A body, as far as it was wanted.
#[derive(Debug)]
pub struct ReadBody {
    pub bytes: Vec<u8>,
    /// There was more.
    pub cut: bool,
}

impl Body {
    /// Encodings that are not known are told to whoever reads: status and headers are worth having all the same.
    pub(crate) fn new(wire: Incoming, encodings: Result<Vec<Encoding>, NetError>, until: Until) -> Body {
        let encodings = match encodings {
            Ok(encodings) => encodings,
            Err(err) => return Body { source: Source::Unreadable(err), until },
        };
        if encodings.is_empty() {
            return Body { source: Source::Plain(wire), until };
        }
        let wire = StreamReader::new(wire.into_data_stream().map_err(io::Error::other));
        Body { source: Source::Opening(Box::pin(decoder(wire, encodings))), until }
    }

    /// The next decoded bytes; `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, NetError> {
        // Asked here as well, since bytes that are always there already would never let the timer speak.
        if Instant::now() >= self.until.deadline {
            return Err(self.until.passed());
        }
        if let Source::Unreadable(err) = &self.source {
            return Err(err.clone());
        }
        tokio::task::coop::consume_budget().await;
        match tokio::time::timeout_at(self.until.deadline, self.source.next()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(err)) => {
                self.source = Source::Ended;
                Err(self.until.broken(&err))
            }
            Err(_) => Err(self.until.passed()),
        }
    }

    /// At most `limit` decoded bytes; the rest is left on the wire.
    pub async fn read(mut self, limit: usize) -> Result<ReadBody, NetError> {
        let mut bytes = Vec::with_capacity(self.expected().min(limit));
        while let Some(chunk) = self.chunk().await? {
            let room = limit - bytes.len();
            bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                return Ok(ReadBody { bytes, cut: true });
            }
        }
        Ok(ReadBody { bytes, cut: false })
    }
}

impl Body {
    /// What to make room for at once: the length that was told, if it is believable.
    fn expected(&self) -> usize {
        match &self.source {
            Source::Plain(wire) => {
                let told = wire.size_hint().exact().unwrap_or(0);
                usize::try_from(told).unwrap_or(usize::MAX).min(MAX_EXPECTED)
            }
            Source::Opening(_) | Source::Decoded(_) | Source::Unreadable(_) | Source::Ended => 0,
        }
    }
}

impl Source {
    /// May be dropped and called again without losing anything.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            match self {
                Source::Plain(wire) => match wire.frame().await {
                    Some(frame) => match frame.map_err(io::Error::other)?.into_data() {
                        Ok(data) if !data.is_empty() => return Ok(Some(data)),
                        // Trailers say nothing that anybody here wants to know.
                        Ok(_) | Err(_) => {}
                    },
                    None => *self = Source::Ended,
                },
                Source::Opening(opening) => *self = Source::Decoded(opening.await?),
                Source::Decoded(reader) => {
                    let mut chunk = BytesMut::with_capacity(CHUNK_BYTES);
                    if reader.read_buf(&mut chunk).await? > 0 {
                        return Ok(Some(chunk.freeze()));
                    }
                    *self = Source::Ended;
                }
                Source::Unreadable(err) => return Err(io::Error::other(err.clone())),
                Source::Ended => return Ok(None),
            }
        }
    }
}

impl Until {
    pub(crate) fn passed(&self) -> NetError {
        NetError::TimedOut { host: self.host.clone(), limit: self.limit }
    }

    /// A connection that broke is told from bytes that do not decode.
    fn broken(&self, err: &io::Error) -> NetError {
        match err.get_ref().and_then(|inner| inner.downcast_ref::<hyper::Error>()) {
            Some(err) => NetError::Protocol { host: self.host.clone(), reason: innermost(err) },
            None if err.kind() == io::ErrorKind::UnexpectedEof => {
                NetError::Decoding("it ends in the middle".into())
            }
            None => NetError::Decoding(err.to_string()),
        }
    }
}

/// The words of the last cause, which say most.
pub(crate) fn innermost(err: &dyn std::error::Error) -> String {
    let mut err = err;
    while let Some(source) = err.source() {
        err = source;
    }
    err.to_string()
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("until", &self.until).finish_non_exhaustive()
    }
}
