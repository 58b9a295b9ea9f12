//! [`Link`] is a connection after its handshake. One task reads and writes the socket; handles are cheap to clone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gantry_protocol::{
    CloseReason, ErrorCode, JsonText, MAX_FRAME_BYTES, PROTOCOL_VERSION, RawJson, StreamFrame, WireError,
    cancel_text, event_text, request_text,
};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_websockets::{CloseCode, Message};

use crate::intake::Intake;
use crate::pool::Account;
use crate::serve::Service;
use crate::socket::Socket;

mod closed;
mod outgoing;
mod run;

pub use closed::Closed;

use outgoing::{Outgoing, Unsent};
use run::run;

/// How long to wait for an answer that was on its way when the deadline passed. A slow peer must not delay the
/// caller for longer.
const LATE_GRACE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// The ping interval. A peer that sends nothing for two intervals is disconnected.
    pub ping_every: Duration,
    /// How many requests of the peer may run at once; more are rejected.
    pub max_serving: usize,
    /// Frames that may wait to be written before senders have to wait.
    pub queue: usize,
    /// Bytes that may wait to be written before senders have to wait; one frame may be longer.
    pub queue_bytes: u32,
    /// The memory quota for large messages in both directions. `None` for a dialler that trusts its peer.
    pub account: Option<Account>,
    /// The version that `connect` agreed on.
    pub protocol: u32,
}

impl Default for LinkOptions {
    fn default() -> Self {
        LinkOptions {
            ping_every: Duration::from_secs(15),
            max_serving: 256,
            queue: 256,
            queue_bytes: 64 << 20,
            account: None,
            protocol: PROTOCOL_VERSION,
        }
    }
}

/// A handle to one connection; clones are the same connection.
#[derive(Clone)]
pub struct Link {
    inner: Arc<Inner>,
}

struct Inner {
    outgoing: Outgoing,
    /// The state of the incoming message.
    intake: Arc<Intake>,
    next_id: AtomicU64,
    next_seq: AtomicU64,
    pending: Mutex<Pending>,
    serving: Mutex<BTreeMap<u64, CancellationToken>>,
    /// Tracks the peer's requests until their answers are in the queue.
    answers: TaskTracker,
    options: LinkOptions,
    /// The link is closed, or a close was requested.
    closing: AtomicBool,
    closed: CancellationToken,
    reason: OnceLock<(CloseCode, Closed)>,
    started: Instant,
    /// When the peer last sent something, in milliseconds after `started`.
    last_activity: AtomicU64,
    /// The time of the last ping and its answer, in microseconds. 0 before the first.
    round_trip: AtomicU64,
}

/// The callers that wait for an answer, by request id.
type Pending = BTreeMap<u64, oneshot::Sender<Result<RawJson, WireError>>>;

#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    #[error("the connection was lost: {0}")]
    Closed(Closed),
    #[error("{0}")]
    Remote(WireError),
}

impl PartialEq for Link {
    fn eq(&self, other: &Link) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Link {
    /// Takes over a socket after its handshake. The returned future runs the link until it is closed; the
    /// handle works only while that future is polled.
    pub fn new<S, V>(
        mut socket: Socket<S>,
        service: Arc<V>,
        options: LinkOptions,
    ) -> (Link, impl Future<Output = ()> + Send)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        V: Service,
    {
        let link = Link {
            inner: Arc::new(Inner {
                outgoing: Outgoing::new(&options),
                intake: socket.get_ref().intake(),
                next_id: AtomicU64::new(1),
                next_seq: AtomicU64::new(1),
                pending: Mutex::default(),
                serving: Mutex::default(),
                answers: TaskTracker::new(),
                options,
                closing: AtomicBool::new(false),
                closed: CancellationToken::new(),
                reason: OnceLock::new(),
                started: Instant::now(),
                last_activity: AtomicU64::new(0),
                round_trip: AtomicU64::new(0),
            }),
        };
        socket.get_mut().attach(link.clone(), link.inner.options.account.clone());
        let running = run(link.clone(), socket, service);
        (link, running)
    }

    /// Returns the time of the last ping and its answer.
    pub fn round_trip(&self) -> Option<Duration> {
        let micros = self.inner.round_trip.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    /// Sends a request and waits for the answer. Dropping the future cancels the request at the peer.
    pub async fn request(
        &self,
        method: &str,
        params: impl Into<JsonText>,
        deadline: Option<Instant>,
    ) -> Result<RawJson, LinkError> {
        let (mut waiting, answer) = self.expect_answer();
        waiting.send(method, params.into(), deadline).await?;
        self.answer(answer).await
    }

    /// Like [`Link::request`], with cancellation: when `cancel` fires, the peer is notified and gets `grace`
    /// to answer. After the deadline it gets `LATE_GRACE` at most.
    pub fn request_until(
        &self,
        method: &str,
        params: impl Into<JsonText>,
        deadline: Option<Instant>,
        cancel: &CancellationToken,
        grace: Duration,
    ) -> impl Future<Output = Result<RawJson, LinkError>> {
        self.request_numbered(method, params, deadline, cancel, grace, |_| {})
    }

    /// Like [`Link::request_until`], and passes the request's number to `number` before the request is sent.
    /// The peer's progress events carry that number.
    pub async fn request_numbered(
        &self,
        method: &str,
        params: impl Into<JsonText>,
        deadline: Option<Instant>,
        cancel: &CancellationToken,
        grace: Duration,
        number: impl FnOnce(u64),
    ) -> Result<RawJson, LinkError> {
        let (mut waiting, answer) = self.expect_answer();
        number(waiting.id);
        let cancelled = || Err(LinkError::Remote(WireError::new(ErrorCode::Cancelled, "cancelled")));
        tokio::select! {
            biased;
            sent = waiting.send(method, params.into(), deadline) => sent?,
            () = cancel.cancelled() => return cancelled(),
        }
        let mut answer = std::pin::pin!(self.answer(answer));
        tokio::select! {
            biased;
            answered = &mut answer => return answered,
            () = cancel.cancelled() => waiting.cancel(),
        }
        let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let grace = if is_late { grace.min(LATE_GRACE) } else { grace };
        tokio::time::timeout(grace, answer).await.unwrap_or_else(|_| cancelled())
    }

    /// Like [`Link::request`], with a timeout.
    pub async fn request_within(
        &self,
        method: &str,
        params: impl Into<JsonText>,
        within: Duration,
    ) -> Result<RawJson, LinkError> {
        let request = self.request(method, params, Some(Instant::now() + within));
        tokio::time::timeout(within, request).await.unwrap_or_else(|_| {
            let message = format!("{method} was not answered within {within:?}");
            Err(LinkError::Remote(WireError::new(ErrorCode::Deadline, message)))
        })
    }

    /// Sends an event, which has no answer. Waits while the queue is full.
    pub async fn event(&self, event: &str, data: RawJson) -> Result<(), LinkError> {
        self.send(self.event_message(event, &data)).await
    }

    /// Like [`Link::event`], without waiting. Returns false when the queue is full or the link is closed.
    pub fn try_event(&self, event: &str, data: RawJson) -> bool {
        self.inner.outgoing.try_send(self.event_message(event, &data)).is_ok()
    }

    /// Sends a stream frame. Waits while the queue is full.
    pub async fn stream(&self, frame: StreamFrame) -> Result<(), LinkError> {
        self.send(Message::binary(frame.into_bytes())).await
    }

    /// Like [`Link::stream`], without waiting. Returns false when the queue is full or the link is closed.
    pub fn try_stream(&self, frame: StreamFrame) -> bool {
        self.inner.outgoing.try_send(Message::binary(frame.into_bytes())).is_ok()
    }

    /// Closes the link and sends the reason to the peer.
    pub fn close(&self, reason: CloseReason) {
        self.close_with(CloseCode::NORMAL_CLOSURE, reason);
    }

    pub(crate) fn close_with(&self, code: CloseCode, reason: CloseReason) {
        let _ = self.inner.reason.set((code, Closed::here(reason)));
        self.inner.closing.store(true, Ordering::Release);
        self.inner.outgoing.wake();
    }

    fn is_closing(&self) -> bool {
        self.inner.closing.load(Ordering::Acquire)
    }

    /// Cancels all requests of the peer that are not answered yet.
    pub fn cancel_requests(&self) {
        self.inner.serving().values().for_each(CancellationToken::cancel);
    }

    /// Returns when the answers to all requests of the peer are queued. Closing after that loses none of them.
    pub async fn answered(&self) {
        self.inner.answers.close();
        self.inner.answers.wait().await;
    }

    pub fn is_closed(&self) -> bool {
        self.inner.closed.is_cancelled()
    }

    /// Returns when the link is closed, with the reason.
    pub async fn closed(&self) -> Closed {
        self.inner.closed.cancelled().await;
        self.reason()
    }

    fn expect_answer(&self) -> (PendingRequest<'_>, oneshot::Receiver<Result<RawJson, WireError>>) {
        let id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
        let (answered, answer) = oneshot::channel();
        self.inner.pending().insert(id, answered);
        (PendingRequest { link: self, id, sent: false }, answer)
    }

    async fn answer(
        &self,
        answer: oneshot::Receiver<Result<RawJson, WireError>>,
    ) -> Result<RawJson, LinkError> {
        match answer.await {
            Ok(outcome) => outcome.map_err(LinkError::Remote),
            Err(_) => Err(self.lost()),
        }
    }

    fn reason(&self) -> Closed {
        self.inner.reason.get().map_or_else(|| Closed::lost("closed"), |(_, reason)| reason.clone())
    }

    fn lost(&self) -> LinkError {
        LinkError::Closed(self.reason())
    }

    async fn send(&self, message: Message) -> Result<(), LinkError> {
        let outgoing = &self.inner.outgoing;
        let slot = async { outgoing.reserve(outgoing.wait_to_admit(message.as_payload().len()).await).await };
        tokio::select! {
            biased;
            slot = slot => match slot {
                Some(slot) => {
                    slot.send(message);
                    Ok(())
                }
                None => Err(self.lost()),
            },
            () = self.inner.closed.cancelled() => Err(self.lost()),
        }
    }

    fn event_message(&self, event: &str, data: &RawValue) -> Message {
        let seq = self.inner.next_seq.fetch_add(1, Ordering::Relaxed);
        Message::text(event_text(event, seq, data.get()))
    }

    pub(crate) fn note_activity(&self) {
        let now = u64::try_from(self.inner.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.inner.last_activity.store(now, Ordering::Relaxed);
    }

    fn silent_for(&self) -> Duration {
        let last = Duration::from_millis(self.inner.last_activity.load(Ordering::Relaxed));
        self.inner.started.elapsed().saturating_sub(last)
    }
}

impl Inner {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serving(&self) -> MutexGuard<'_, BTreeMap<u64, CancellationToken>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request whose answer is pending. Dropping it before the answer cancels the request at the peer.
struct PendingRequest<'a> {
    link: &'a Link,
    id: u64,
    sent: bool,
}

impl PendingRequest<'_> {
    async fn send(
        &mut self,
        method: &str,
        params: JsonText,
        deadline: Option<Instant>,
    ) -> Result<(), LinkError> {
        let deadline_ms = deadline.map(|deadline| {
            u64::try_from(deadline.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(u64::MAX)
        });
        let text = request_text(self.id, method, params.get(), deadline_ms);
        // The parameters may be large; free them before waiting.
        drop(params);
        let text = sendable(text).map_err(LinkError::Remote)?;
        self.link.send(Message::text(text)).await?;
        self.sent = true;
        // A link that closed before the entry was added to `pending` does not remove it.
        if self.link.is_closed() { Err(self.link.lost()) } else { Ok(()) }
    }

    /// Sends a cancellation to the peer.
    fn cancel(&mut self) {
        self.sent = false;
        let cancel = Message::text(cancel_text(self.id));
        if let Err(Unsent::Full(cancel)) = self.link.inner.outgoing.try_send(cancel)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let link = self.link.clone();
            runtime.spawn(async move { link.send(cancel).await });
        }
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        let unanswered = self.link.inner.pending().remove(&self.id).is_some();
        if unanswered && self.sent {
            self.cancel();
        }
    }
}

/// Rejects a frame over the limit. The peer would close the connection on it.
fn sendable(text: String) -> Result<String, WireError> {
    if text.len() <= MAX_FRAME_BYTES {
        return Ok(text);
    }
    let message = format!("{} bytes are more than the {MAX_FRAME_BYTES} of a message", text.len());
    Err(WireError::new(ErrorCode::TooLarge, message))
}
