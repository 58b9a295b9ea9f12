//! Bodies of requests: where they end, and how they are forwarded. The proxy writes
//! lengths and chunk sizes itself, so the server sees exactly one request.

use std::sync::atomic::Ordering;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::head::Headers;
use super::record::Traffic;
use super::refusal::Refusal;

const READ_BYTES: usize = 64 * 1024;
/// The limit for a chunk's size in hexadecimal digits.
const MAX_SIZE_DIGITS: usize = 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    NoBody,
    Length(u64),
    Chunked,
}

impl Framing {
    pub(super) fn of(headers: &Headers, minor: u8) -> Result<Framing, Refusal> {
        let coding = headers.single("transfer-encoding")?;
        let length = headers.single("content-length")?;
        match (coding, length) {
            (None, None) => Ok(Framing::NoBody),
            (Some(_), Some(_)) => {
                Err(Refusal::invalid("the request has both Content-Length and Transfer-Encoding"))
            }
            (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") && minor == 1 => {
                Ok(Framing::Chunked)
            }
            (Some(_), None) => Err(Refusal::invalid("the only supported Transfer-Encoding is \"chunked\"")),
            (None, Some(digits)) => {
                let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                let length = digits.parse().ok().filter(|_| plain);
                length.map(Framing::Length).ok_or_else(|| Refusal::invalid("the Content-Length is invalid"))
            }
        }
    }
}

/// `Source` is what a client sends, beginning with the bytes that were read ahead.
pub(super) struct Source<'a> {
    pub(super) ahead: &'a mut BytesMut,
    pub(super) tcp: ReadHalf<'a>,
}

/// `SendError` says which side ended the request early.
#[derive(Debug)]
pub(super) enum SendError {
    Client(Refusal),
    Server,
}

impl Source<'_> {
    pub(super) async fn send_body(
        &mut self,
        framing: Framing,
        server: &mut WriteHalf<'_>,
        traffic: &Traffic,
    ) -> Result<(), SendError> {
        match framing {
            Framing::NoBody => Ok(()),
            Framing::Length(length) => self.send_bytes(length, server, traffic).await,
            Framing::Chunked => loop {
                let size = self.chunk_size().await.map_err(SendError::Client)?;
                send(format!("{size:x}\r\n").as_bytes(), server, traffic).await?;
                self.send_bytes(size, server, traffic).await?;
                // After the last chunk this refuses trailers, which could repeat any header.
                self.line_end().await.map_err(SendError::Client)?;
                send(b"\r\n", server, traffic).await?;
                if size == 0 {
                    return Ok(());
                }
            },
        }
    }

    /// Reads and discards until the client sends no more.
    pub(super) async fn drain(&mut self) {
        self.ahead.clear();
        while self.fill().await.is_ok() {
            self.ahead.clear();
        }
    }

    async fn send_bytes(
        &mut self,
        mut left: u64,
        server: &mut WriteHalf<'_>,
        traffic: &Traffic,
    ) -> Result<(), SendError> {
        while left > 0 {
            if self.ahead.is_empty() {
                self.fill().await.map_err(SendError::Client)?;
            }
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(self.ahead.len());
            send(&self.ahead.split_to(count), server, traffic).await?;
            left -= count as u64;
        }
        Ok(())
    }

    async fn chunk_size(&mut self) -> Result<u64, Refusal> {
        let mut digits = String::new();
        loop {
            match self.byte().await? {
                byte if byte.is_ascii_hexdigit() && digits.len() < MAX_SIZE_DIGITS => {
                    digits.push(char::from(byte));
                }
                b'\r' if self.byte().await? == b'\n' => break,
                _ => return Err(bad_chunk()),
            }
        }
        u64::from_str_radix(&digits, 16).map_err(|_| bad_chunk())
    }

    async fn line_end(&mut self) -> Result<(), Refusal> {
        match (self.byte().await?, self.byte().await?) {
            (b'\r', b'\n') => Ok(()),
            _ => Err(bad_chunk()),
        }
    }

    async fn byte(&mut self) -> Result<u8, Refusal> {
        if self.ahead.is_empty() {
            self.fill().await?;
        }
        Ok(self.ahead.split_to(1)[0])
    }

    async fn fill(&mut self) -> Result<(), Refusal> {
        self.ahead.reserve(READ_BYTES);
        match self.tcp.read_buf(self.ahead).await {
            Ok(count) if count > 0 => Ok(()),
            Ok(_) | Err(_) => Err(Refusal::left()),
        }
    }
}

fn bad_chunk() -> Refusal {
    Refusal::invalid("the chunked body is invalid, or has extensions or trailers, which are not supported")
}

pub(super) async fn send(
    bytes: &[u8],
    server: &mut WriteHalf<'_>,
    traffic: &Traffic,
) -> Result<(), SendError> {
    server.write_all(bytes).await.map_err(|_| SendError::Server)?;
    traffic.up.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::head::Header;

    fn framing(headers: &[(&str, &str)], minor: u8) -> Option<Framing> {
        let header = |(name, value): &(&str, &str)| Header {
            name: (*name).to_owned(),
            value: value.as_bytes().to_vec(),
        };
        Framing::of(&Headers(headers.iter().map(header).collect()), minor).ok()
    }

    #[test]
    fn ambiguous_lengths_are_refused() {
        let (te, cl) = ("transfer-encoding", "content-length");
        assert_eq!(framing(&[], 1), Some(Framing::NoBody));
        assert_eq!(framing(&[(cl, "12")], 0), Some(Framing::Length(12)));
        assert_eq!(framing(&[(te, "Chunked")], 1), Some(Framing::Chunked));
        let refused: &[&[(&str, &str)]] = &[
            &[(cl, "1"), (te, "chunked")],
            &[(cl, "1"), (cl, "1")],
            &[(cl, "1"), (cl, "2")],
            &[(cl, "1, 1")],
            &[(cl, "+1")],
            &[(cl, "-1")],
            &[(cl, "0x1")],
            &[(cl, "")],
            &[(cl, "99999999999999999999999")],
            &[(te, "chunked"), (te, "chunked")],
            &[(te, "gzip, chunked")],
            &[(te, "chunked, identity")],
            &[(te, "identity")],
            &[(te, "xchunked")],
            &[(te, "\"chunked\"")],
            &[(te, "")],
        ];
        for headers in refused {
            assert_eq!(framing(headers, 1), None, "{headers:?}");
        }
        assert_eq!(framing(&[(te, "chunked")], 0), None, "HTTP/1.0 has no chunks");
    }
}
