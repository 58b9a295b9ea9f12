//! Reads the order and its descriptors.

use std::io::{Error, ErrorKind, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::keeper::control_protocol::{MAX_DESCRIPTORS, MAX_ORDER_BYTES, Order};

pub(super) fn order(mut control: &UnixStream) -> Result<(Order, Vec<OwnedFd>), Error> {
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    let received = rustix::net::recvmsg(control, &mut [IoSliceMut::new(&mut length)], &mut ancillary, flags)?;
    if received.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            descriptors.extend(files);
        }
    }
    #[cfg(not(target_os = "linux"))]
    super::inherited::close_on_exec();
    control.read_exact(&mut length[received.bytes..])?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_ORDER_BYTES {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut json = vec![0; length];
    control.read_exact(&mut json)?;
    Ok((serde_json::from_slice(&json)?, descriptors))
}
