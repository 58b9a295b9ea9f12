//! Decodes `Content-Encoding` while streaming, in bounded memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_compression::tokio::bufread::{
    BrotliDecoder, DeflateDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder,
};
use async_compression::zstd::DParameter;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, BufReader, ReadBuf};

use crate::client::NetError;

const MAX_CHAINED: usize = 2;
/// The largest window that a decoder may keep. RFC 9659 has this limit for zstd. RFC 7932 allows
/// brotli twice as much, which only files above 8 MiB use.
const WINDOW_BITS: u32 = 23;
/// Two chained decoders together keep no more than one.
const CHAINED_WINDOW_BITS: u32 = 22;
/// The buffer between two decoders.
const BUFFER_BYTES: usize = 4 * 1024;
/// How many buffers are decoded before other tasks run and the deadline is checked.
const FILLS_BEFORE_YIELD: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

pub(crate) type Reader = Pin<Box<dyn AsyncRead + Send>>;

/// Returns the encodings of the body, in the order in which to undo them.
pub(crate) fn encodings(headers: &HeaderMap) -> Result<Vec<Encoding>, NetError> {
    let mut found = Vec::new();
    for value in headers.get_all(CONTENT_ENCODING) {
        let value = value
            .to_str()
            .map_err(|_| NetError::Decoding("its Content-Encoding header is invalid".into()))?;
        for name in value.split(',').map(str::trim) {
            found.push(match name.to_ascii_lowercase().as_str() {
                "" | "identity" => continue,
                "gzip" | "x-gzip" => Encoding::Gzip,
                "deflate" => Encoding::Deflate,
                "br" => Encoding::Brotli,
                "zstd" => Encoding::Zstd,
                _ => {
                    let name: String = name.chars().take(40).collect();
                    return Err(NetError::Decoding(format!("its encoding \"{name}\" is unknown")));
                }
            });
            if found.len() > MAX_CHAINED {
                return Err(NetError::Decoding("it is encoded more than twice".into()));
            }
        }
    }
    found.reverse();
    Ok(found)
}

/// Waits for the first bytes, because they determine the variant of an encoding.
pub(crate) async fn decoder(
    wire: impl AsyncBufRead + Send + 'static,
    encodings: Vec<Encoding>,
) -> io::Result<Reader> {
    let window_bits = if encodings.len() > 1 { CHAINED_WINDOW_BITS } else { WINDOW_BITS };
    let mut input: Pin<Box<dyn AsyncBufRead + Send>> = Box::pin(Yielding::new(Box::pin(wire)));
    for (position, encoding) in encodings.iter().enumerate() {
        let Some(first) = input.fill_buf().await?.first().copied() else {
            return Ok(Box::pin(tokio::io::empty()));
        };
        let output = undo(*encoding, input, first, window_bits)?;
        if position + 1 == encodings.len() {
            return Ok(output);
        }
        input = Box::pin(Yielding::new(Box::pin(BufReader::with_capacity(BUFFER_BYTES, output))));
    }
    Ok(Box::pin(input))
}

fn undo(
    encoding: Encoding,
    input: Pin<Box<dyn AsyncBufRead + Send>>,
    first: u8,
    window_bits: u32,
) -> io::Result<Reader> {
    Ok(match encoding {
        Encoding::Gzip => {
            let mut decoder = GzipDecoder::new(input);
            decoder.multiple_members(true);
            Box::pin(decoder)
        }
        // The name means zlib, but some servers send the bare stream. No bare stream begins like a
        // zlib header.
        Encoding::Deflate if first & 0x8f == 0x08 => Box::pin(ZlibDecoder::new(input)),
        Encoding::Deflate => Box::pin(DeflateDecoder::new(input)),
        Encoding::Brotli => {
            if brotli_window_bits(first) > window_bits {
                return Err(io::Error::other("its window is too large"));
            }
            Box::pin(BrotliDecoder::new(input))
        }
        Encoding::Zstd => {
            let window = DParameter::window_log_max(window_bits);
            let mut decoder = ZstdDecoder::with_params(input, &[window]);
            decoder.multiple_members(true);
            Box::pin(decoder)
        }
    })
}

/// Reads the window size from the first bits of a stream (RFC 7932, section 9.1).
fn brotli_window_bits(first: u8) -> u32 {
    let first = u32::from(first);
    match (first & 1, first >> 1 & 7, first >> 4 & 7) {
        (0, _, _) => 16,
        (_, 0, 0) => 17,
        // This marks a window beyond the standard.
        (_, 0, 1) => u32::MAX,
        (_, 0, n) => 8 + n,
        (_, n, _) => 17 + n,
    }
}

/// `Yielding` yields to other tasks regularly. A few bytes can decode into gigabytes that the next
/// decoder consumes, without any wait in between.
struct Yielding<R> {
    inner: R,
    fills: u32,
}

impl<R> Yielding<R> {
    fn new(inner: R) -> Yielding<R> {
        Yielding { inner, fills: 0 }
    }
}

impl<R: AsyncBufRead + Send> AsyncBufRead for Yielding<Pin<Box<R>>> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        this.fills += 1;
        if this.fills > FILLS_BEFORE_YIELD {
            this.fills = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.inner.as_mut().poll_fill_buf(cx)
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        self.get_mut().inner.as_mut().consume(amount);
    }
}

impl<R: AsyncBufRead + Send> AsyncRead for Yielding<Pin<Box<R>>> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().inner.as_mut().poll_read(cx, buffer)
    }
}
