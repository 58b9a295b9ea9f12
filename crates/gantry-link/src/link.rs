//! A link after its handshake: one task reads and writes the socket, handles to it are cheap to clone.

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

/// For an answer that was on its way when the deadline passed. Whoever waits for it must not be kept by the peer.
const LATE_GRACE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// A ping this often; a peer that says nothing for two of them is gone.
    pub ping_every: Duration,
    /// Requests of the peer that may be worked on at once; more are refused.
    pub max_serving: usize,
    /// Frames that may wait to be written before senders have to wait.
    pub queue: usize,
    /// Bytes that may wait to be written before senders have to wait; one frame may be longer.
    pub queue_bytes: u32,
    /// Who pays for the room that large messages take, in both directions. Who dials somebody it trusts needs none.
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
    /// The message that is coming.
    intake: Arc<Intake>,
    next_id: AtomicU64,
    next_seq: AtomicU64,
    pending: Mutex<Pending>,
    serving: Mutex<BTreeMap<u64, CancellationToken>>,
    /// Requests of the peer until their answers are in the queue.
    answers: TaskTracker,
    options: LinkOptions,
    /// Somebody wants the link closed, or it is.
    closing: AtomicBool,
    closed: CancellationToken,
    reason: OnceLock<(CloseCode, Closed)>,
    started: Instant,
    /// Milliseconds after `started` when the peer was last heard.
    heard: AtomicU64,
}

/// Who waits for which answer.
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
    /// Takes over a socket whose handshake is done. The future runs the link until it is closed; the handle works while
    /// it is polled.
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
                heard: AtomicU64::new(0),
            }),
        };
        socket.get_mut().attach(link.clone(), link.inner.options.account.clone());
        let running = run(link.clone(), socket, service);
        (link, running)
    }

    /// Asks the peer. Dropping the future tells the peer that nobody waits any more.
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

    /// As [`Link::request`], for work that may be called off: then the peer is told, and still gets `grace` to answer, but
    /// after the deadline hardly any.
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

    /// As [`Link::request_until`], and tells the number of the request before it is sent: what the peer says about it on
    /// the way, it says by that number.
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
        let given_up = || Err(LinkError::Remote(WireError::new(ErrorCode::Cancelled, "cancelled")));
        tokio::select! {
            biased;
            sent = waiting.send(method, params.into(), deadline) => sent?,
            () = cancel.cancelled() => return given_up(),
        }
        let mut answer = std::pin::pin!(self.answer(answer));
        tokio::select! {
            biased;
            answered = &mut answer => return answered,
            () = cancel.cancelled() => waiting.cancel(),
        }
        let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let grace = if is_late { grace.min(LATE_GRACE) } else { grace };
        tokio::time::timeout(grace, answer).await.unwrap_or_else(|_| given_up())
    }

    /// As [`Link::request`], for what should be answered soon.
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

    /// Tells the peer something that needs no answer. Waits while the queue is full.
    pub async fn event(&self, event: &str, data: RawJson) -> Result<(), LinkError> {
        self.send(self.event_message(event, &data)).await
    }

    /// As [`Link::event`], from where nobody can wait. False when the queue is full or the link closed.
    pub fn try_event(&self, event: &str, data: RawJson) -> bool {
        self.inner.outgoing.try_send(self.event_message(event, &data)).is_ok()
    }

    /// Sends a piece of a stream. Waits while the queue is full.
    pub async fn stream(&self, frame: StreamFrame) -> Result<(), LinkError> {
        self.send(Message::binary(frame.into_bytes())).await
    }

    /// As [`Link::stream`], from where nobody can wait. False when the queue is full or the link closed.
    pub fn try_stream(&self, frame: StreamFrame) -> bool {
        self.inner.outgoing.try_send(Message::binary(frame.into_bytes())).is_ok()
    }

    /// Closes with a reason that the peer gets to hear.
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

    /// Calls off what the peer has asked for and not heard of yet.
    pub fn call_off(&self) {
        self.inner.serving().values().for_each(CancellationToken::cancel);
    }

    /// Returns when every request of the peer has its answer on the way. Who closes after that takes none back.
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

    fn expect_answer(&self) -> (Waiting<'_>, oneshot::Receiver<Result<RawJson, WireError>>) {
        let id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
        let (answered, answer) = oneshot::channel();
        self.inner.pending().insert(id, answered);
        (Waiting { link: self, id, sent: false }, answer)
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
        let room = async { outgoing.reserve(outgoing.admit_in_time(message.as_payload().len()).await).await };
        tokio::select! {
            biased;
            room = room => match room {
                Some(room) => {
                    room.send(message);
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

    pub(crate) fn hear(&self) {
        let now = u64::try_from(self.inner.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.inner.heard.store(now, Ordering::Relaxed);
    }

    fn silent_for(&self) -> Duration {
        let heard = Duration::from_millis(self.inner.heard.load(Ordering::Relaxed));
        self.inner.started.elapsed().saturating_sub(heard)
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

/// A request whose answer is awaited; when it is dropped unanswered, the peer is told.
struct Waiting<'a> {
    link: &'a Link,
    id: u64,
    sent: bool,
}

impl Waiting<'_> {
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
        // It may be large.
        drop(params);
        let text = sendable(text).map_err(LinkError::Remote)?;
        self.link.send(Message::text(text)).await?;
        self.sent = true;
        // The link may have closed before our entry was there to be cleared.
        if self.link.is_closed() { Err(self.link.lost()) } else { Ok(()) }
    }

    /// Tells the peer that its answer is not wanted any more.
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

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let unanswered = self.link.inner.pending().remove(&self.id).is_some();
        if unanswered && self.sent {
            self.cancel();
        }
    }
}

/// A frame that the peer would not take must not reach it: it would hang up.
fn sendable(text: String) -> Result<String, WireError> {
    if text.len() <= MAX_FRAME_BYTES {
        return Ok(text);
    }
    let message = format!("{} bytes are more than the {MAX_FRAME_BYTES} of a message", text.len());
    Err(WireError::new(ErrorCode::TooLarge, message))
}
