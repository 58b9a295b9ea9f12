//! Creates a network for the commands of one session and hands it to the engine. Later keepers visit it: they list its
//! listening sockets, or connect to one.

use std::io::{Error, IoSlice};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::Serialize;

use crate::keeper::control_protocol::{
    JoinNetwork, ListeningSocket, MAX_NETWORK_DESCRIPTORS, NetworkReport, Visit, VisitReport,
};
use crate::sandbox::namespaces;

/// Further listeners are not reported.
const MAX_LISTENERS: usize = 256;

/// The state of a listening socket in the kernel's tables.
const LISTENING: &str = "0A";

/// How long a server in the network may take to accept.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Answers over the control socket. The namespaces live as long as somebody holds them.
pub(super) fn create(control: &UnixStream) -> Result<(), Error> {
    let created = namespaces::create();
    let report = match &created {
        Ok(created) => NetworkReport::Created { with_user: created.user.is_some() },
        Err(reason) => NetworkReport::Failed { reason: reason.clone() },
    };
    let descriptors: Vec<_> = created
        .iter()
        .flat_map(|created| {
            let user = created.user.as_ref().map(AsFd::as_fd);
            user.into_iter().chain([created.network.as_fd(), created.listener.as_fd()])
        })
        .collect();
    answer(control, &report, &descriptors)
}

/// Joins the network of a session and looks at it, or connects in it. The descriptors are those of the network.
pub(super) fn visit(
    control: &UnixStream,
    visit: Visit,
    network: Option<JoinNetwork>,
    descriptors: Vec<OwnedFd>,
) -> Result<(), Error> {
    let mut descriptors = descriptors.into_iter();
    let user = network.filter(|network| network.with_user).and_then(|_| descriptors.next());
    let joined = match descriptors.next() {
        Some(network) => namespaces::join(user.as_ref(), &network),
        None => Err("the order has no network".to_owned()),
    };
    let mut socket = None;
    let report = match (joined, visit) {
        (Err(reason), _) => VisitReport::Failed { reason },
        (Ok(()), Visit::Listeners) => VisitReport::Listeners { sockets: listening() },
        (Ok(()), Visit::Connect { port }) => match connect(port) {
            Ok(connected) => {
                socket = Some(connected);
                VisitReport::Connected
            }
            Err(err) => VisitReport::Failed { reason: format!("cannot connect to port {port}: {err}") },
        },
    };
    let socket: Vec<_> = socket.iter().map(AsFd::as_fd).collect();
    answer(control, &report, &socket)
}

/// Lists the listening sockets of this process's network, each port once.
fn listening() -> Vec<ListeningSocket> {
    let mut found: Vec<ListeningSocket> = Vec::new();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        for socket in text.lines().skip(1).filter_map(listening_socket) {
            if found.len() < MAX_LISTENERS && found.iter().all(|known| known.port != socket.port) {
                found.push(socket);
            }
        }
    }
    found.sort_by_key(|socket| socket.port);
    found
}

/// Parses a line of the kernel's table. The fields are: number, local address, remote address, state, queues, timer,
/// retransmits, user, timeout, inode.
fn listening_socket(line: &str) -> Option<ListeningSocket> {
    let mut fields = line.split_whitespace().skip(1);
    let (_, port) = fields.next()?.rsplit_once(':')?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?.parse().ok()?;
    let port = u16::from_str_radix(port, 16).ok()?;
    (state == LISTENING).then_some(ListeningSocket { port, inode })
}

fn connect(port: u16) -> Result<TcpStream, Error> {
    let to = |ip: IpAddr| TcpStream::connect_timeout(&(ip, port).into(), CONNECT_LIMIT);
    to(Ipv4Addr::LOCALHOST.into()).or_else(|err| to(Ipv6Addr::LOCALHOST.into()).map_err(|_| err))
}

/// Sends one line, with descriptors.
fn answer<T: Serialize>(
    control: &UnixStream,
    report: &T,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Error> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_NETWORK_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Error::other("the descriptors do not fit"));
    }
    let sent = rustix::net::sendmsg(control, &[IoSlice::new(&line)], &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent == line.len() { Ok(()) } else { Err(Error::other("the report was cut")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_are_parsed() {
        let listening = "   0: 0100007F:1FBB 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0";
        assert_eq!(listening_socket(listening), Some(ListeningSocket { port: 8123, inode: 4242 }));
        assert_eq!(listening_socket(&listening.replace(" 0A ", " 01 ")), None);
        let six = "   1: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 7 1";
        assert_eq!(listening_socket(six), Some(ListeningSocket { port: 80, inode: 7 }));
        for odd in ["", "x", "0: y z 0A", "0: 0100007F:zz 0:0 0A 0:0 0:0 0 0 0 7"] {
            assert_eq!(listening_socket(odd), None, "{odd}");
        }
    }
}
