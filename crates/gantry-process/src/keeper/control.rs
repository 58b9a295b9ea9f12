//! The keeper's end of its control connections: the one it was born with, then those of engines that come later.
//!
//! Nothing here waits for an engine: one that sends nonsense, or does not read, is dropped. Whoever comes later shows the
//! session's key first; until then nothing is told to it, and nothing it says is done.

use std::io::{Error, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown};

use crate::order::{CLOSE_STDIN, DETACH, KILL, Report, TERMINATE, WELCOME};
use crate::record::MAX_RECORD_BYTES;
use crate::session_key::{KEY_BYTES, SessionKey};

/// What one read takes in, so that a flood of requests cannot keep the keeper from its other duties.
const READ_BYTES: usize = 64 * 1024;

/// How long somebody who has come may take to show the key; an engine does so at once.
const KNOCK_LIMIT: Duration = Duration::from_secs(1);

/// How many may be about to show it. One more, and who has waited longest has to go.
const MAX_KNOCKS: usize = 16;

pub(super) struct Control {
    /// `None` while there is no engine.
    connection: Option<UnixStream>,
    /// Whether the connection is the first one; only that one may detach.
    first: bool,
    /// There once the session is detached.
    door: Option<Door>,
    /// Who has come and not shown the key yet.
    knocks: Vec<Knock>,
    /// A request as far as it has arrived.
    inbox: Vec<u8>,
}

struct Door {
    listener: UnixListener,
    key: SessionKey,
}

struct Knock {
    connection: UnixStream,
    since: Instant,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    Terminate,
    Kill,
    CloseStdin,
    /// With the record to leave.
    Detach(Vec<u8>),
}

impl Control {
    pub(super) fn new(connection: UnixStream) -> Self {
        Self { connection: Some(connection), first: true, door: None, knocks: Vec::new(), inbox: Vec::new() }
    }

    pub(super) fn connection(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.door.as_ref().map(|door| door.listener.as_fd())
    }

    pub(super) fn knocks(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.knocks.iter().map(|knock| knock.connection.as_fd())
    }

    /// From now on other engines may come, if they have the key.
    pub(super) fn listen(&mut self, listener: UnixListener, key: SessionKey) {
        self.door = Some(Door { listener, key });
    }

    /// The engine may be gone; there is nobody else to tell.
    pub(super) fn report(&mut self, report: &Report) {
        let (Some(connection), Ok(mut line)) = (&self.connection, serde_json::to_vec(report)) else { return };
        line.push(b'\n');
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if rustix::net::send(connection, &line, flags) != Ok(line.len()) {
            self.drop_connection();
        }
    }

    /// Takes in what has arrived.
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
                Parsed::Unfinished => return requests,
                Parsed::Nonsense => {
                    self.drop_connection();
                    return requests;
                }
            }
        }
    }

    /// Hears who has come, if it is the same user's.
    pub(super) fn accept(&mut self) {
        let Some(Ok((connection, _))) = self.door.as_ref().map(|door| door.listener.accept()) else { return };
        if is_own_user(&connection) {
            if self.knocks.len() == MAX_KNOCKS {
                self.knocks.remove(0);
            }
            self.knocks.push(Knock { connection, since: Instant::now() });
        }
    }

    /// Lets in who shows the key, in place of the engine before, and turns away who shows something else or nothing.
    pub(super) fn admit(&mut self, feed: Option<&OwnedFd>) {
        let Some(key) = self.door.as_ref().map(|door| door.key) else { return };
        for Knock { connection, since } in std::mem::take(&mut self.knocks) {
            // One byte more than a key has, so that nothing can hide behind it.
            let mut shown = [0; KEY_BYTES + 1];
            match rustix::net::recv(&connection, &mut shown[..], RecvFlags::DONTWAIT) {
                Ok((_, count)) if key.is(&shown[..count]) => {
                    if welcome(&connection, feed).is_ok() {
                        self.drop_connection();
                        self.connection = Some(connection);
                        self.first = false;
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) if since.elapsed() < KNOCK_LIMIT => {
                    self.knocks.push(Knock { connection, since });
                }
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn drop_connection(&mut self) {
        if let Some(connection) = self.connection.take() {
            // The guard holds the first one as well, so closing it would tell the engine nothing.
            let _ = rustix::net::shutdown(&connection, Shutdown::Both);
        }
        self.inbox.clear();
    }
}

enum Parsed {
    Request(Request, usize),
    Unfinished,
    Nonsense,
}

fn parse(inbox: &[u8], may_detach: bool) -> Parsed {
    match inbox {
        [] => Parsed::Unfinished,
        [TERMINATE, ..] => Parsed::Request(Request::Terminate, 1),
        [KILL, ..] => Parsed::Request(Request::Kill, 1),
        [CLOSE_STDIN, ..] => Parsed::Request(Request::CloseStdin, 1),
        [DETACH, a, b, c, d, rest @ ..] if may_detach => {
            let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            match rest.get(..length) {
                _ if length > MAX_RECORD_BYTES => Parsed::Nonsense,
                Some(record) => Parsed::Request(Request::Detach(record.to_vec()), 5 + length),
                None => Parsed::Unfinished,
            }
        }
        [DETACH, ..] if may_detach => Parsed::Unfinished,
        _ => Parsed::Nonsense,
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

/// The folder is closed to others anyway; this holds even if somebody opened it.
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

    /// The requests, and whether the connection is still there.
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
    fn requests_are_taken_apart_wherever_they_are_cut() {
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
    fn nonsense_and_what_is_too_long_cost_the_connection() {
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
    fn only_who_shows_the_key_is_let_in_and_nobody_else_hears_a_word() {
        let folder = tempfile::tempdir().unwrap();
        let key = SessionKey::make_in(std::fs::File::open(folder.path()).unwrap()).unwrap();
        let listener = UnixListener::bind(folder.path().join("control")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (mut first, keeper) = UnixStream::pair().unwrap();
        let (_source, feed) = std::io::pipe().unwrap();
        let feed = OwnedFd::from(feed);
        let mut control = Control::new(keeper);
        control.listen(listener, key);
        let knock = |control: &mut Control, shown: &[u8]| {
            let mut stream = UnixStream::connect(folder.path().join("control")).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream.write_all(shown).unwrap();
            control.accept();
            control.admit(Some(&feed));
            stream
        };
        let longer = [key.bytes(), &[TERMINATE][..]].concat();
        for shown in [&[0; KEY_BYTES][..], &key.bytes()[1..], &longer, &[KILL]] {
            let mut stranger = knock(&mut control, shown);
            // Nothing, or a reset because what it sent was not read whole.
            assert!(!matches!(stranger.read(&mut [0]), Ok(1..)), "{shown:?}");
            assert_eq!(control.knocks().count(), 0);
        }
        // One that says nothing is neither served nor waited for, nor are a hundred.
        let silent: Vec<_> = (0..100).map(|_| knock(&mut control, b"")).collect();
        assert_eq!(control.knocks().count(), MAX_KNOCKS);
        first.write_all(&[CLOSE_STDIN]).unwrap();
        assert_eq!(
            control.requests(),
            [Request::CloseStdin],
            "the engine that is here has not lost its place"
        );
        let mut engine = knock(&mut control, key.bytes());
        let mut greeting = [0];
        engine.read_exact(&mut greeting).unwrap();
        assert_eq!(greeting, [WELCOME]);
        engine.write_all(&[KILL]).unwrap();
        assert_eq!(control.requests(), [Request::Kill]);
        std::thread::sleep(KNOCK_LIMIT);
        control.admit(Some(&feed));
        assert_eq!(control.knocks().count(), 0);
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
