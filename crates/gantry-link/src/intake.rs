//! [`Metered`] counts the bytes of incomplete messages and reserves memory for them before it reads on.
//!
//! It sits below the WebSocket. The WebSocket allocates a buffer for a whole frame once it has read the frame's
//! header, so the length of that buffer is the number of bytes to come. The reservation covers the whole frame
//! at once; a message that was started can therefore always be finished.

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
use crate::pool::{Account, FREE_BYTES, MEMORY_FACTOR, Reservation};

/// A large message may take this long, plus one second per [`MIN_BYTES_PER_SECOND`] received bytes.
const BASE_TIMEOUT: Duration = Duration::from_secs(30);
const MIN_BYTES_PER_SECOND: usize = 256 << 10;

/// The length of a control frame's header with its mask.
const CONTROL_HEADER: usize = 6;

/// Close code 1013: try again later.
const TRY_AGAIN_LATER: u16 = 1013;

/// A byte stream below a WebSocket.
pub struct Metered<S> {
    inner: S,
    intake: Arc<Intake>,
    /// The link of this connection, once the handshake is done.
    link: Option<Link>,
    account: Option<Account>,
    waiting: Option<Pin<Box<dyn Future<Output = Option<Reservation>> + Send>>>,
    /// When the current message exceeded [`FREE_BYTES`].
    since: Option<Instant>,
    refused: bool,
}

/// The state of the incoming message, shared between [`Metered`] and its link.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    /// Bytes read since the last complete message.
    unfinished: AtomicUsize,
    reservation: Mutex<Option<Reservation>>,
    /// The bytes of `reservation`, readable without the lock.
    held: AtomicUsize,
}

impl Intake {
    /// Records that a message is complete and returns its reservation, which belongs to the message from now on.
    pub(crate) fn finished(&self, message: &Message) -> Option<Reservation> {
        if message.is_ping() || message.is_pong() {
            // Control frames arrive between the fragments of other messages.
            let others = self.unfinished.load(Ordering::Relaxed);
            let own = message.as_payload().len() + CONTROL_HEADER;
            self.unfinished.store(others.saturating_sub(own), Ordering::Relaxed);
            return None;
        }
        self.unfinished.store(0, Ordering::Relaxed);
        self.take_reservation()
    }

    pub(crate) fn take_reservation(&self) -> Option<Reservation> {
        if self.held.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.held.store(0, Ordering::Relaxed);
        self.reservation.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn keep(&self, more: Reservation) {
        let mut reservation = self.reservation.lock().unwrap_or_else(PoisonError::into_inner);
        more.add_to(&mut reservation);
        self.held.store(reservation.as_ref().map_or(0, Reservation::bytes), Ordering::Relaxed);
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

    /// Counts large messages from now on, and closes the link when memory for one cannot be reserved.
    pub(crate) fn attach(&mut self, link: Link, account: Option<Account>) {
        (self.link, self.account) = (Some(link), account);
    }

    /// Ready when memory is reserved for a message of `unfinished` received and `to_come` expected bytes.
    fn poll_reserve(&mut self, cx: &mut Context<'_>, unfinished: usize, to_come: usize) -> Poll<()> {
        if self.is_too_slow(unfinished) {
            return self.refuse(CloseCode::POLICY_VIOLATION, CloseReason::TooSlow);
        }
        let Some(account) = &self.account else { return Poll::Ready(()) };
        // A buffer that stays allocated after its message counts once: nothing is parsed from it.
        let factor = if unfinished == 0 { 1 } else { MEMORY_FACTOR };
        let wanted = (unfinished + to_come - FREE_BYTES) * factor;
        let held = self.intake.held.load(Ordering::Relaxed);
        let Some(more) = wanted.checked_sub(held).filter(|more| *more > 0) else { return Poll::Ready(()) };
        if !account.could_hold(wanted) {
            return self.refuse(CloseCode::MESSAGE_TOO_BIG, CloseReason::TooLarge);
        }
        if self.waiting.is_none() {
            if let Some(reserved) = account.try_reserve(more) {
                self.intake.keep(reserved);
                return Poll::Ready(());
            }
            let account = account.clone();
            self.waiting = Some(Box::pin(async move { account.reserve(more).await }));
        }
        let reserved = match &mut self.waiting {
            Some(waiting) => ready!(waiting.as_mut().poll(cx)),
            None => None,
        };
        self.waiting = None;
        match reserved {
            Some(reserved) => {
                // The wait was ours and does not count against the peer's time.
                self.since = self.since.map(|_| Instant::now());
                self.note_activity();
                self.intake.keep(reserved);
                Poll::Ready(())
            }
            None => {
                let code = CloseCode::try_from(TRY_AGAIN_LATER).unwrap_or(CloseCode::NORMAL_CLOSURE);
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
        let earned =
            Duration::from_secs(u64::try_from(unfinished / MIN_BYTES_PER_SECOND).unwrap_or(u64::MAX));
        since.elapsed() > BASE_TIMEOUT.saturating_add(earned)
    }

    /// Stops reading and lets the link close the connection.
    fn refuse(&mut self, code: CloseCode, reason: CloseReason) -> Poll<()> {
        self.refused = true;
        if let Some(link) = &self.link {
            link.close_with(code, reason);
        }
        Poll::Pending
    }

    fn note_activity(&self) {
        if let Some(link) = &self.link {
            link.note_activity();
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
            ready!(this.poll_reserve(cx, unfinished, buf.remaining()));
        } else {
            this.since = None;
            drop(this.intake.take_reservation());
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        this.intake.unfinished.store(unfinished + buf.filled().len() - before, Ordering::Relaxed);
        if is_large {
            // A peer that sends a large message is alive, although no complete message arrives for a while.
            this.note_activity();
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
