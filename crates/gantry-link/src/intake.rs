//! Counts what is read of a message that is not whole yet, and takes room for it before reading on.
//!
//! It stands below the WebSocket, which reserves a buffer for a whole frame once it has seen its head: the length of that
//! buffer is how much is to come. So room is taken for all of a frame at once, and those who have some can always end.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use gantry_protocol::CloseReason;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_websockets::{CloseCode, Message};

use crate::link::Link;
use crate::pool::{Account, FREE_BYTES, Share, WEIGHT};

/// What a large message may take: this, and a second for every so many bytes that have come.
const PATIENCE: Duration = Duration::from_secs(30);
const SLOWEST: usize = 256 << 10;

/// The head of a control frame with its mask.
const CONTROL_HEAD: usize = 6;

/// Close code 1013: try again later.
const AGAIN: u16 = 1013;

/// A byte stream below a WebSocket.
pub struct Metered<S> {
    inner: S,
    intake: Arc<Intake>,
    /// Whose connection it is, once it is a link.
    link: Option<Link>,
    account: Option<Account>,
    waiting: Option<Pin<Box<dyn Future<Output = Option<Share>> + Send>>>,
    /// When the message that is coming became a large one.
    since: Option<Instant>,
    refused: bool,
}

/// What the link knows of a message that is coming.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    /// Bytes read since the last whole message.
    unfinished: AtomicUsize,
    share: Mutex<Option<Share>>,
    /// Bytes of that share.
    held: AtomicUsize,
}

impl Intake {
    /// A message is whole. The room it has goes along with it.
    pub(crate) fn finished(&self, message: &Message) -> Option<Share> {
        if message.is_ping() || message.is_pong() {
            // These come between the parts of others.
            let others = self.unfinished.load(Ordering::Relaxed);
            let own = message.as_payload().len() + CONTROL_HEAD;
            self.unfinished.store(others.saturating_sub(own), Ordering::Relaxed);
            return None;
        }
        self.unfinished.store(0, Ordering::Relaxed);
        self.give_up()
    }

    pub(crate) fn give_up(&self) -> Option<Share> {
        if self.held.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.held.store(0, Ordering::Relaxed);
        self.share.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn keep(&self, more: Share) {
        let mut share = self.share.lock().unwrap_or_else(PoisonError::into_inner);
        more.add_to(&mut share);
        self.held.store(share.as_ref().map_or(0, Share::bytes), Ordering::Relaxed);
    }
}

impl<S> Metered<S> {
    pub fn new(inner: S) -> Metered<S> {
        Metered {
            inner,
            intake: Arc::default(),
            link: None,
            account: None,
            waiting: None,
            since: None,
            refused: false,
        }
    }

    pub(crate) fn intake(&self) -> Arc<Intake> {
        self.intake.clone()
    }

    /// From now on large messages are counted, and the link is told when there is no room.
    pub(crate) fn attach(&mut self, link: Link, account: Option<Account>) {
        (self.link, self.account) = (Some(link), account);
    }

    /// Returns when there is room for a message of which `unfinished` bytes have come, and `to_come` may come.
    fn poll_room(&mut self, cx: &mut Context<'_>, unfinished: usize, to_come: usize) -> Poll<()> {
        if self.is_too_slow(unfinished) {
            return self.refuse(CloseCode::POLICY_VIOLATION, CloseReason::TooSlow);
        }
        let Some(account) = &self.account else { return Poll::Ready(()) };
        // A buffer that is kept after its message is nothing but a buffer.
        let weight = if unfinished == 0 { 1 } else { WEIGHT };
        let wanted = (unfinished + to_come - FREE_BYTES) * weight;
        let held = self.intake.held.load(Ordering::Relaxed);
        let Some(more) = wanted.checked_sub(held).filter(|more| *more > 0) else { return Poll::Ready(()) };
        if !account.could_hold(wanted) {
            return self.refuse(CloseCode::MESSAGE_TOO_BIG, CloseReason::TooLarge);
        }
        if self.waiting.is_none() {
            if let Some(share) = account.try_take(more) {
                self.intake.keep(share);
                return Poll::Ready(());
            }
            let account = account.clone();
            self.waiting = Some(Box::pin(async move { account.take(more).await }));
        }
        let taken = match &mut self.waiting {
            Some(waiting) => ready!(waiting.as_mut().poll(cx)),
            None => None,
        };
        self.waiting = None;
        match taken {
            Some(share) => {
                // Waiting was ours, not the peer's.
                self.since = self.since.map(|_| Instant::now());
                self.heard();
                self.intake.keep(share);
                Poll::Ready(())
            }
            None => {
                let code = CloseCode::try_from(AGAIN).unwrap_or(CloseCode::NORMAL_CLOSURE);
                self.refuse(code, CloseReason::NoRoom)
            }
        }
    }

    fn is_too_slow(&mut self, unfinished: usize) -> bool {
        if unfinished <= FREE_BYTES {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let earned = Duration::from_secs(u64::try_from(unfinished / SLOWEST).unwrap_or(u64::MAX));
        since.elapsed() > PATIENCE.saturating_add(earned)
    }

    /// Nothing is read any more: the link has the last word.
    fn refuse(&mut self, code: CloseCode, reason: CloseReason) -> Poll<()> {
        self.refused = true;
        if let Some(link) = &self.link {
            link.close_with(code, reason);
        }
        Poll::Pending
    }

    fn heard(&self) {
        if let Some(link) = &self.link {
            link.hear();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.refused {
            return Poll::Pending;
        }
        let unfinished = this.intake.unfinished.load(Ordering::Relaxed);
        let is_large = unfinished + buf.remaining() > FREE_BYTES;
        if is_large {
            ready!(this.poll_room(cx, unfinished, buf.remaining()));
        } else {
            this.since = None;
            drop(this.intake.give_up());
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        this.intake.unfinished.store(unfinished + buf.filled().len() - before, Ordering::Relaxed);
        if is_large {
            // A peer that sends a large message is there, although nothing whole has come for a while.
            this.heard();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
