//! Binary frames: numbered streams of bytes with credit, an end with length and hash, and abort with a reason.

use bytes::{BufMut, Bytes, BytesMut};

/// Kind, flags, two bytes of zero, stream id, offset; big-endian.
pub const HEADER_BYTES: usize = 16;

pub const MAX_PAYLOAD_BYTES: usize = 1024 * 1024;

/// The most bytes that a sender may send before the receiver acknowledges them.
pub const MAX_UNACKNOWLEDGED_BYTES: u64 = 8 * 1024 * 1024;

const HASH_BYTES: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    /// Payload: bytes from `offset` on.
    Data,
    /// `offset`: everything before it may be sent. No payload.
    Credit,
    /// `offset`: the length of the whole. Payload: its BLAKE3, 32 bytes.
    End,
    /// Payload: the reason, as text.
    Abort,
}

/// A binary frame as it travels: header and payload in one piece, so that it can be passed on without a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamFrame {
    bytes: Bytes,
    kind: StreamKind,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    #[error("the binary frame has {0} bytes, fewer than the {HEADER_BYTES} of a header")]
    Short(usize),
    #[error("unknown kind of binary frame: {0}")]
    Kind(u8),
    #[error("the payload has {0} bytes; the limit is {MAX_PAYLOAD_BYTES}")]
    Long(usize),
    #[error("the payload of this kind of frame has the wrong length: {0}")]
    Payload(usize),
}

impl StreamFrame {
    pub fn parse(bytes: Bytes) -> Result<StreamFrame, StreamError> {
        if bytes.len() < HEADER_BYTES {
            return Err(StreamError::Short(bytes.len()));
        }
        let kind = match bytes[0] {
            1 => StreamKind::Data,
            2 => StreamKind::Credit,
            3 => StreamKind::End,
            4 => StreamKind::Abort,
            other => return Err(StreamError::Kind(other)),
        };
        let payload = bytes.len() - HEADER_BYTES;
        if payload > MAX_PAYLOAD_BYTES {
            return Err(StreamError::Long(payload));
        }
        let fits = match kind {
            StreamKind::Data => payload > 0,
            StreamKind::Credit => payload == 0,
            StreamKind::End => payload == HASH_BYTES,
            StreamKind::Abort => true,
        };
        if !fits {
            return Err(StreamError::Payload(payload));
        }
        Ok(StreamFrame { bytes, kind })
    }

    /// A data frame whose payload `fill` writes directly after the header, so that a block of a file is copied only once.
    /// `None` if it wrote nothing.
    pub fn data_with<E>(
        stream: u32,
        offset: u64,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Option<StreamFrame>, E> {
        let most = most.min(MAX_PAYLOAD_BYTES);
        let mut bytes = header(StreamKind::Data, stream, offset, most);
        bytes.resize(HEADER_BYTES + most, 0);
        let filled = fill(&mut bytes[HEADER_BYTES..])?;
        if filled == 0 {
            return Ok(None);
        }
        bytes.truncate(HEADER_BYTES + filled);
        Ok(Some(StreamFrame { bytes: bytes.freeze(), kind: StreamKind::Data }))
    }

    pub fn credit(stream: u32, up_to: u64) -> StreamFrame {
        StreamFrame::small(StreamKind::Credit, stream, up_to, &[])
    }

    pub fn end(stream: u32, length: u64, hash: &[u8; HASH_BYTES]) -> StreamFrame {
        StreamFrame::small(StreamKind::End, stream, length, hash)
    }

    pub fn abort(stream: u32, reason: &str) -> StreamFrame {
        let cut = reason.floor_char_boundary(1024);
        StreamFrame::small(StreamKind::Abort, stream, 0, &reason.as_bytes()[..cut])
    }

    fn small(kind: StreamKind, stream: u32, offset: u64, payload: &[u8]) -> StreamFrame {
        let mut bytes = header(kind, stream, offset, payload.len());
        bytes.put_slice(payload);
        StreamFrame { bytes: bytes.freeze(), kind }
    }

    pub fn kind(&self) -> StreamKind {
        self.kind
    }

    pub fn stream(&self) -> u32 {
        u32::from_be_bytes([self.bytes[4], self.bytes[5], self.bytes[6], self.bytes[7]])
    }

    pub fn offset(&self) -> u64 {
        let mut offset = [0; 8];
        offset.copy_from_slice(&self.bytes[8..16]);
        u64::from_be_bytes(offset)
    }

    pub fn payload(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// The hash of an end frame.
    pub fn hash(&self) -> Option<[u8; HASH_BYTES]> {
        (self.kind == StreamKind::End).then(|| self.payload().try_into().ok()).flatten()
    }

    pub fn reason(&self) -> String {
        String::from_utf8_lossy(self.payload()).into_owned()
    }

    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }
}

fn header(kind: StreamKind, stream: u32, offset: u64, room: usize) -> BytesMut {
    let mut bytes = BytesMut::with_capacity(HEADER_BYTES + room);
    bytes.put_u8(match kind {
        StreamKind::Data => 1,
        StreamKind::Credit => 2,
        StreamKind::End => 3,
        StreamKind::Abort => 4,
    });
    bytes.put_bytes(0, 3);
    bytes.put_u32(stream);
    bytes.put_u64(offset);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_the_wire() {
        let data = StreamFrame::data_with(7, 1 << 40, 100, |room| {
            room[..3].copy_from_slice(b"abc");
            Ok::<_, ()>(3)
        });
        let data = data.unwrap().unwrap();
        for frame in [
            data,
            StreamFrame::credit(1, u64::MAX),
            StreamFrame::end(u32::MAX, 9, &[5; 32]),
            StreamFrame::abort(2, "disk full"),
        ] {
            let parsed = StreamFrame::parse(frame.clone().into_bytes()).unwrap();
            assert_eq!(parsed, frame);
            assert_eq!((parsed.stream(), parsed.offset()), (frame.stream(), frame.offset()));
        }
        assert_eq!(StreamFrame::end(1, 9, &[5; 32]).hash(), Some([5; 32]));
    }

    #[test]
    fn empty_data_makes_no_frame() {
        assert!(StreamFrame::data_with(1, 0, 10, |_| Ok::<_, ()>(0)).unwrap().is_none());
    }

    #[test]
    fn invalid_frame_is_rejected() {
        let frame = |kind: u8, payload: usize| {
            let mut bytes = vec![0; HEADER_BYTES + payload];
            bytes[0] = kind;
            StreamFrame::parse(bytes.into())
        };
        assert!(frame(1, 1).is_ok() && frame(1, 0).is_err() && frame(1, MAX_PAYLOAD_BYTES + 1).is_err());
        assert!(frame(2, 0).is_ok() && frame(2, 1).is_err());
        assert!(frame(3, 32).is_ok() && frame(3, 31).is_err());
        assert!(frame(4, 0).is_ok() && frame(0, 0).is_err() && frame(5, 0).is_err());
        assert!(StreamFrame::parse(Bytes::from_static(b"short")).is_err());
    }
}
