//! Decodes the body of an answer while it arrives.

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

/// `Body` yields decoded bytes as they arrive, until the request's deadline.
pub struct Body {
    source: BodySource,
    until: Until,
}

/// `Until` says when to give up, and which error to return then.
#[derive(Debug, Clone)]
pub(crate) struct Until {
    pub(crate) host: String,
    pub(crate) deadline: Instant,
    pub(crate) limit: Duration,
}

enum BodySource {
    Plain(Incoming),
    Opening(Pin<Box<dyn Future<Output = io::Result<Reader>> + Send>>),
    Decoded(Reader),
    Unreadable(NetError),
    Ended,
}

/// `ReadBody` is a body, up to the requested limit.
#[derive(Debug)]
pub struct ReadBody {
    pub bytes: Vec<u8>,
    /// Whether there was more.
    pub cut: bool,
}

impl Body {
    /// An unknown encoding is reported only when the body is read, because status and headers are
    /// useful without it.
    pub(crate) fn new(wire: Incoming, encodings: Result<Vec<Encoding>, NetError>, until: Until) -> Body {
        let encodings = match encodings {
            Ok(encodings) => encodings,
            Err(err) => return Body { source: BodySource::Unreadable(err), until },
        };
        if encodings.is_empty() {
            return Body { source: BodySource::Plain(wire), until };
        }
        let wire = StreamReader::new(wire.into_data_stream().map_err(io::Error::other));
        Body { source: BodySource::Opening(Box::pin(decoder(wire, encodings))), until }
    }

    /// Returns the next decoded bytes; `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, NetError> {
        // The deadline is checked here as well: if bytes are always available, the timer never
        // runs.
        if Instant::now() >= self.until.deadline {
            return Err(self.until.passed());
        }
        if let BodySource::Unreadable(err) = &self.source {
            return Err(err.clone());
        }
        tokio::task::coop::consume_budget().await;
        match tokio::time::timeout_at(self.until.deadline, self.source.next()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(err)) => {
                self.source = BodySource::Ended;
                Err(self.until.broken(&err))
            }
            Err(_) => Err(self.until.passed()),
        }
    }

    /// Reads at most `limit` decoded bytes. The rest is left on the wire.
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
    /// Returns how much memory to reserve: the announced length, if it is plausible.
    fn expected(&self) -> usize {
        match &self.source {
            BodySource::Plain(wire) => {
                let announced = wire.size_hint().exact().unwrap_or(0);
                usize::try_from(announced).unwrap_or(usize::MAX).min(MAX_EXPECTED)
            }
            BodySource::Opening(_)
            | BodySource::Decoded(_)
            | BodySource::Unreadable(_)
            | BodySource::Ended => 0,
        }
    }
}

impl BodySource {
    /// Cancelling this call loses nothing.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            match self {
                BodySource::Plain(wire) => match wire.frame().await {
                    Some(frame) => match frame.map_err(io::Error::other)?.into_data() {
                        Ok(data) if !data.is_empty() => return Ok(Some(data)),
                        // Trailers are ignored.
                        Ok(_) | Err(_) => {}
                    },
                    None => *self = BodySource::Ended,
                },
                BodySource::Opening(opening) => *self = BodySource::Decoded(opening.await?),
                BodySource::Decoded(reader) => {
                    let mut chunk = BytesMut::with_capacity(CHUNK_BYTES);
                    if reader.read_buf(&mut chunk).await? > 0 {
                        return Ok(Some(chunk.freeze()));
                    }
                    *self = BodySource::Ended;
                }
                BodySource::Unreadable(err) => return Err(io::Error::other(err.clone())),
                BodySource::Ended => return Ok(None),
            }
        }
    }
}

impl Until {
    pub(crate) fn passed(&self) -> NetError {
        NetError::TimedOut { host: self.host.clone(), limit: self.limit }
    }

    /// Distinguishes a broken connection from bytes that do not decode.
    fn broken(&self, err: &io::Error) -> NetError {
        match err.get_ref().and_then(|inner| inner.downcast_ref::<hyper::Error>()) {
            Some(err) => NetError::Protocol { host: self.host.clone(), reason: innermost(err) },
            None if err.kind() == io::ErrorKind::UnexpectedEof => NetError::Decoding("it ends early".into()),
            None => NetError::Decoding(err.to_string()),
        }
    }
}

/// Returns the text of the innermost cause, which says most.
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
