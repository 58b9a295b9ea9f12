//! The keeper's side of its control connections: the first one, which it inherits, and those of
//! later engines.
//!
//! Nothing here waits for an engine. An engine that sends invalid requests or does not read is
//! dropped. A later engine must first show the session's key; until then the keeper sends it
//! nothing and executes none of its requests.

use std::io::{Error, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown};

use crate::keeper::control_protocol::{CLOSE_STDIN, DETACH, KILL, Report, TERMINATE, WELCOME};
use crate::session::key::{KEY_BYTES, SessionKey};
use crate::session::record::MAX_RECORD_BYTES;

/// The size of one read, so that a flood of requests cannot block the keeper's other work.
const READ_BYTES: usize = 64 * 1024;

/// How long a new connection may take to show the key. An engine shows it at once.
const KEY_LIMIT: Duration = Duration::from_secs(1);

/// How many connections may be waiting to show the key. One more evicts the one that has waited
/// longest.
const MAX_UNAUTHENTICATED: usize = 16;

pub(super) struct Control {
    /// `None` while no engine is connected.
    connection: Option<UnixStream>,
    /// Whether this is the first connection. Only that one may detach.
    first: bool,
    /// Set once the session is detached.
    listening: Option<Listening>,
    /// Connections that have not shown the key yet.
    unauthenticated: Vec<Unauthenticated>,
    /// The bytes of an incomplete request.
    inbox: Vec<u8>,
}

struct Listening {
    listener: UnixListener,
    key: SessionKey,
}

struct Unauthenticated {
    connection: UnixStream,
    since: Instant,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    Terminate,
    Kill,
    CloseStdin,
    /// Carries the record to write into the session's folder.
    Detach(Vec<u8>),
}

impl Control {
    pub(super) fn new(connection: UnixStream) -> Self {
        Self {
            connection: Some(connection),
            first: true,
            listening: None,
            unauthenticated: Vec::new(),
            inbox: Vec::new(),
        }
    }

    pub(super) fn connection(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listening.as_ref().map(|listening| listening.listener.as_fd())
    }

    pub(super) fn unauthenticated(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.unauthenticated.iter().map(|connect| connect.connection.as_fd())
    }

    /// Accepts other engines from now on, if they have the key.
    pub(super) fn listen(&mut self, listener: UnixListener, key: SessionKey) {
        self.listening = Some(Listening { listener, key });
    }

    /// Errors are ignored: the engine may be gone, and nobody else listens.
    pub(super) fn report(&mut self, report: &Report) {
        let (Some(connection), Ok(mut line)) = (&self.connection, serde_json::to_vec(report)) else { return };
        line.push(b'\n');
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if rustix::net::send(connection, &line, flags) != Ok(line.len()) {
            self.drop_connection();
        }
    }

    /// Reads the requests that have arrived.
    pub(super) fn requests(&mut self) -> Vec<Request> {
        let Some(connection) = &self.connection else { return Vec::new() };
        let mut buffer = [0; READ_BYTES];
        match rustix::net::recv(connection, &mut buffer[..], RecvFlags::DONTWAIT) {
            Ok((_, count @ 1..)) => self.inbox.extend_from_slice(&buffer[..count]),
            Err(Errno::AGAIN | Errno::INTR) => return Vec::new(),
            Ok(_) | Err(_) => {
                self.drop_connection();
                return Vec::new();
            }
        }
        let mut requests = Vec::new();
        loop {
            match parse(&self.inbox, self.first) {
                Parsed::Request(request, length) => {
                    self.inbox.drain(..length);
                    requests.push(request);
                }
                Parsed::Incomplete => return requests,
                Parsed::Invalid => {
                    self.drop_connection();
                    return requests;
                }
            }
        }
    }

    /// Accepts a new connection if it comes from the same user.
    pub(super) fn accept(&mut self) {
        let Some(Ok((connection, _))) = self.listening.as_ref().map(|listening| listening.listener.accept())
        else {
            return;
        };
        if is_own_user(&connection) {
            if self.unauthenticated.len() == MAX_UNAUTHENTICATED {
                self.unauthenticated.remove(0);
            }
            self.unauthenticated.push(Unauthenticated { connection, since: Instant::now() });
        }
    }

    /// Admits a connection that shows the key, in place of the previous engine. Rejects one that
    /// shows anything else or nothing.
    pub(super) fn admit(&mut self, feed: Option<&OwnedFd>) {
        let Some(key) = self.listening.as_ref().map(|listening| listening.key) else { return };
        for Unauthenticated { connection, since } in std::mem::take(&mut self.unauthenticated) {
            // Reads one byte more than a key has, so that extra bytes cannot follow it unnoticed.
            let mut shown = [0; KEY_BYTES + 1];
            match rustix::net::recv(&connection, &mut shown[..], RecvFlags::DONTWAIT) {
                Ok((_, count)) if key.matches(&shown[..count]) => {
                    if welcome(&connection, feed).is_ok() {
                        self.drop_connection();
                        self.connection = Some(connection);
                        self.first = false;
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) if since.elapsed() < KEY_LIMIT => {
                    self.unauthenticated.push(Unauthenticated { connection, since });
                }
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn drop_connection(&mut self) {
        if let Some(connection) = self.connection.take() {
            // The guard also holds the first connection, so the engine would not notice a plain
            // close.
            let _ = rustix::net::shutdown(&connection, Shutdown::Both);
        }
        self.inbox.clear();
    }
}

enum Parsed {
    Request(Request, usize),
    Incomplete,
    Invalid,
}

fn parse(inbox: &[u8], may_detach: bool) -> Parsed {
    match inbox {
        [] => Parsed::Incomplete,
        [TERMINATE, ..] => Parsed::Request(Request::Terminate, 1),
        [KILL, ..] => Parsed::Request(Request::Kill, 1),
        [CLOSE_STDIN, ..] => Parsed::Request(Request::CloseStdin, 1),
        [DETACH, a, b, c, d, rest @ ..] if may_detach => {
            let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            match rest.get(..length) {
                _ if length > MAX_RECORD_BYTES => Parsed::Invalid,
                Some(record) => Parsed::Request(Request::Detach(record.to_vec()), 5 + length),
                None => Parsed::Incomplete,
            }
        }
        [DETACH, ..] if may_detach => Parsed::Incomplete,
        _ => Parsed::Invalid,
    }
}

fn welcome(connection: &UnixStream, feed: Option<&OwnedFd>) -> Result<(), Error> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let feed: Vec<_> = feed.into_iter().map(AsFd::as_fd).collect();
    if !feed.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&feed)) {
        return Err(Error::other("the descriptor does not fit"));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(connection, &[IoSlice::new(&[WELCOME])], &mut ancillary, flags)?;
    Ok(())
}

/// The folder is closed to other users anyway. This check holds even if somebody opened it.
#[cfg(target_os = "linux")]
fn is_own_user(connection: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(connection).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

#[cfg(not(target_os = "linux"))]
fn is_own_user(_connection: &UnixStream) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// Returns the parsed requests, and whether the connection is still open.
    fn requests(sent: &[u8]) -> (Vec<Request>, bool) {
        let (mut engine, keeper) = UnixStream::pair().unwrap();
        let mut control = Control::new(keeper);
        engine.write_all(sent).unwrap();
        (control.requests(), control.connection().is_some())
    }

    fn detach(record: &[u8]) -> Vec<u8> {
        [&[DETACH][..], &u32::try_from(record.len()).unwrap().to_le_bytes(), record].concat()
    }

    #[test]
    fn requests_are_parsed_wherever_the_bytes_are_split() {
        let sent = [&[CLOSE_STDIN][..], &detach(b"{\"K\": 1}"), &[TERMINATE, KILL]].concat();
        let expected =
            [Request::CloseStdin, Request::Detach(b"{\"K\": 1}".to_vec()), Request::Terminate, Request::Kill];
        for cut in 0..=sent.len() {
            let (mut engine, keeper) = UnixStream::pair().unwrap();
            let mut control = Control::new(keeper);
            engine.write_all(&sent[..cut]).unwrap();
            let mut got = control.requests();
            engine.write_all(&sent[cut..]).unwrap();
            got.extend(control.requests());
            assert_eq!(got, expected, "cut at {cut}");
        }
    }

    #[test]
    fn invalid_or_oversized_requests_close_the_connection() {
        assert_eq!(requests(b"Cx"), (vec![Request::CloseStdin], false));
        assert_eq!(requests(b"\n{}"), (vec![], false));
        assert_eq!(requests(&[DETACH, 0xff, 0xff, 0xff, 0xff]), (vec![], false));
        assert_eq!(requests(&[DETACH, 0xff, 0xff]), (vec![], true));
        let (mut engine, keeper) = UnixStream::pair().unwrap();
        let mut control = Control::new(keeper);
        engine.write_all(b"?").unwrap();
        control.requests();
        assert_eq!(engine.read(&mut [0]).unwrap(), 0);
        assert!(control.connection().is_none() && control.requests().is_empty());
        control.report(&Report::Detached);
    }

    #[test]
    fn connection_without_the_key_gets_no_reply() {
        let folder = tempfile::tempdir().unwrap();
        let key = SessionKey::create_in(std::fs::File::open(folder.path()).unwrap()).unwrap();
        let listener = UnixListener::bind(folder.path().join("control")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (mut first, keeper) = UnixStream::pair().unwrap();
        let (_source, feed) = std::io::pipe().unwrap();
        let feed = OwnedFd::from(feed);
        let mut control = Control::new(keeper);
        control.listen(listener, key);
        let connect = |control: &mut Control, shown: &[u8]| {
            let mut stream = UnixStream::connect(folder.path().join("control")).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream.write_all(shown).unwrap();
            control.accept();
            control.admit(Some(&feed));
            stream
        };
        let longer = [key.bytes(), &[TERMINATE][..]].concat();
        for shown in [&[0; KEY_BYTES][..], &key.bytes()[1..], &longer, &[KILL]] {
            let mut stranger = connect(&mut control, shown);
            // The stranger reads nothing, or gets a reset because its bytes were not all read.
            assert!(!matches!(stranger.read(&mut [0]), Ok(1..)), "{shown:?}");
            assert_eq!(control.unauthenticated().count(), 0);
        }
        // A silent connection is neither served nor waited for, and neither are a hundred of them.
        let silent: Vec<_> = (0..100).map(|_| connect(&mut control, b"")).collect();
        assert_eq!(control.unauthenticated().count(), MAX_UNAUTHENTICATED);
        first.write_all(&[CLOSE_STDIN]).unwrap();
        assert_eq!(control.requests(), [Request::CloseStdin], "the connected engine stays connected");
        let mut engine = connect(&mut control, key.bytes());
        let mut greeting = [0];
        engine.read_exact(&mut greeting).unwrap();
        assert_eq!(greeting, [WELCOME]);
        engine.write_all(&[KILL]).unwrap();
        assert_eq!(control.requests(), [Request::Kill]);
        std::thread::sleep(KEY_LIMIT);
        control.admit(Some(&feed));
        assert_eq!(control.unauthenticated().count(), 0);
        drop(silent);
    }

    #[test]
    fn an_engine_that_does_not_read_is_dropped() {
        let (_engine, keeper) = UnixStream::pair().unwrap();
        let mut control = Control::new(keeper);
        for _ in 0..100_000 {
            control.report(&Report::Detached);
        }
        assert!(control.connection().is_none());
    }
}
