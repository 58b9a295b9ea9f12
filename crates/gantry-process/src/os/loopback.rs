//! Brings up the loopback interface of a new network namespace.

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// The first interface of every network namespace.
const LOOPBACK_INDEX: i32 = 1;

// Fields of a netlink request, in the byte order of the processor.
const RTM_NEWLINK: u16 = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLMSG_ERROR: u16 = 2;
const IFF_UP: u32 = 1;
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = HEADER_BYTES + 16;

/// Asks the kernel over a netlink socket and waits for its answer.
pub(crate) fn bring_up() -> Result<(), Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // The routing protocol is number 0.
        None,
    )?;
    rustix::net::send(&socket, &request(), SendFlags::empty())?;
    let mut answer = [0; 256];
    let (length, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    match error_of(&answer[..length.min(answer.len())]) {
        Some(0) => Ok(()),
        Some(code) => Err(Errno::from_raw_os_error(-code)),
        None => Err(Errno::PROTO),
    }
}

/// A request that sets the flag `up` of the interface and changes nothing else.
fn request() -> [u8; REQUEST_BYTES] {
    let mut request = [0; REQUEST_BYTES];
    let length = u32::try_from(REQUEST_BYTES).unwrap_or_default();
    request[0..4].copy_from_slice(&length.to_ne_bytes());
    request[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
    request[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    request[20..24].copy_from_slice(&LOOPBACK_INDEX.to_ne_bytes());
    request[24..28].copy_from_slice(&IFF_UP.to_ne_bytes());
    request[28..32].copy_from_slice(&IFF_UP.to_ne_bytes());
    request
}

/// The error number in an acknowledgement: 0 for success, otherwise negative.
fn error_of(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let code = i32::from_ne_bytes(answer.get(HEADER_BYTES..HEADER_BYTES + 4)?.try_into().ok()?);
    (kind == NLMSG_ERROR).then_some(code)
}
