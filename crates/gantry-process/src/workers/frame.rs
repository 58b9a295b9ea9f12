//! One message between the engine and a worker: two lengths, a JSON header, and a body of any bytes. Descriptors travel
//! with the first byte.

use std::io::{Error, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;

/// A longer message is invalid: more than any input of a call, and than both output streams of a command.
const MAX_BYTES: usize = 160 << 20;

/// A directory, and the two namespaces of a network.
const MAX_DESCRIPTORS: usize = 3;

const LENGTHS: usize = 16;

/// `Frame` is a job or its answer.
#[derive(Debug, Default)]
pub struct Frame {
    pub header: Vec<u8>,
    pub body: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

impl Frame {
    /// The descriptors are closed here afterwards.
    pub(super) async fn send(self, stream: &mut UnixStream) -> Result<(), Error> {
        let Frame { header, body, descriptors } = self;
        if header.len() + body.len() > MAX_BYTES || descriptors.len() > MAX_DESCRIPTORS {
            return Err(Error::new(ErrorKind::InvalidInput, "the message is too large"));
        }
        let mut lengths = [0; LENGTHS];
        lengths[..8].copy_from_slice(&(header.len() as u64).to_le_bytes());
        lengths[8..].copy_from_slice(&(body.len() as u64).to_le_bytes());
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let socket = &*stream;
        let sent = socket
            .async_io(Interest::WRITABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
                let mut ancillary = SendAncillaryBuffer::new(&mut space);
                if !borrowed.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)) {
                    return Err(ErrorKind::InvalidInput.into());
                }
                let parts = [IoSlice::new(&lengths)];
                Ok(rustix::net::sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL)?)
            })
            .await?;
        stream.write_all(&lengths[sent..]).await?;
        stream.write_all(&header).await?;
        stream.write_all(&body).await
    }

    /// Returns `None` at the end of the connection.
    pub(super) async fn receive(stream: &mut UnixStream) -> Result<Option<Frame>, Error> {
        let mut lengths = [0; LENGTHS];
        let (mut received, descriptors) = {
            let socket = &*stream;
            socket.async_io(Interest::READABLE, || begin(socket, &mut lengths)).await?
        };
        if received == 0 {
            return Ok(None);
        }
        while received < LENGTHS {
            match stream.read(&mut lengths[received..]).await? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                more => received += more,
            }
        }
        let length = |bytes: &[u8]| {
            let bytes: [u8; 8] = bytes.try_into().map_err(Error::other)?;
            usize::try_from(u64::from_le_bytes(bytes)).map_err(Error::other)
        };
        let (header, body) = (length(&lengths[..8])?, length(&lengths[8..])?);
        if header.saturating_add(body) > MAX_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        let (mut header, mut body) = (vec![0; header], vec![0; body]);
        stream.read_exact(&mut header).await?;
        stream.read_exact(&mut body).await?;
        Ok(Some(Frame { header, body, descriptors }))
    }
}

fn begin(socket: &UnixStream, lengths: &mut [u8; LENGTHS]) -> Result<(usize, Vec<OwnedFd>), Error> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(lengths)], &mut ancillary, flags)?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            descriptors.extend(files);
        }
    }
    Ok((received.bytes, descriptors))
}
