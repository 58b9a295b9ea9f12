//! A link after its handshake: one task reads and writes the socket, handles to it are cheap to clone.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, SinkExt, StreamExt};
use gantry_protocol::{ErrorCode, Frame, MAX_FRAME_BYTES, RawJson, StreamFrame, WireError, raw};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_websockets::{CloseCode, Message};

use crate::handshake::close_reason;
use crate::serve::{Event, Request, Service};
use crate::socket::Socket;

/// Frames that are no frames end the link after this many.
const MAX_BAD_FRAMES: u32 = 64;

/// How long a peer may take to hear that the link is closed.
const LAST_WORDS: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
pub struct LinkOptions {
    /// A ping this often; a peer that says nothing for two of them is gone.
    pub ping_every: Duration,
    /// Requests of the peer that may be worked on at once; more are refused.
    pub max_serving: usize,
    /// Frames that may wait to be written before senders have to wait.
    pub queue: usize,
}

impl Default for LinkOptions {
    fn default() -> Self {
        LinkOptions { ping_every: Duration::from_secs(15), max_serving: 256, queue: 256 }
    }
}

/// A handle to one connection; clones are the same connection.
#[derive(Clone)]
pub struct Link {
    inner: Arc<Inner>,
}

struct Inner {
    outgoing: mpsc::Sender<Message>,
    next_id: AtomicU64,
    next_seq: AtomicU64,
    pending: Mutex<HashMap<u64, oneshot::Sender<Result<RawJson, WireError>>>>,
    serving: Mutex<HashMap<u64, CancellationToken>>,
    /// Requests that came since the link's task last looked.
    arrived: Mutex<Vec<Work>>,
    /// Requests of the peer until their answers are in the queue.
    answers: TaskTracker,
    options: LinkOptions,
    /// Somebody wants the link closed, or it is.
    closing: CancellationToken,
    closed: CancellationToken,
    reason: OnceLock<String>,
    started: Instant,
    /// Milliseconds after `started` when the peer was last heard.
    heard: AtomicU64,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    #[error("the connection was lost: {0}")]
    Closed(String),
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
        socket: Socket<S>,
        service: Arc<V>,
        options: LinkOptions,
    ) -> (Link, impl Future<Output = ()> + Send)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        V: Service,
    {
        let (outgoing, queue) = mpsc::channel(options.queue);
        let link = Link {
            inner: Arc::new(Inner {
                outgoing,
                next_id: AtomicU64::new(1),
                next_seq: AtomicU64::new(1),
                pending: Mutex::default(),
                serving: Mutex::default(),
                arrived: Mutex::default(),
                answers: TaskTracker::new(),
                options,
                closing: CancellationToken::new(),
                closed: CancellationToken::new(),
                reason: OnceLock::new(),
                started: Instant::now(),
                heard: AtomicU64::new(0),
            }),
        };
        let running = run(link.clone(), socket, service, queue);
        (link, running)
    }

    /// Asks the peer. Dropping the future tells the peer that nobody waits any more.
    pub async fn request(
        &self,
        method: &str,
        params: RawJson,
        deadline: Option<Instant>,
    ) -> Result<RawJson, LinkError> {
        let (mut waiting, answer) = self.expect_answer();
        waiting.send(method, params, deadline).await?;
        self.answer(answer).await
    }

    /// As [`Link::request`], for work that may be called off: then the peer is told, and still gets `grace` to answer.
    pub async fn request_until(
        &self,
        method: &str,
        params: RawJson,
        deadline: Option<Instant>,
        cancel: &CancellationToken,
        grace: Duration,
    ) -> Result<RawJson, LinkError> {
        let (mut waiting, answer) = self.expect_answer();
        waiting.send(method, params, deadline).await?;
        let mut answer = std::pin::pin!(self.answer(answer));
        tokio::select! {
            biased;
            answered = &mut answer => return answered,
            () = cancel.cancelled() => waiting.cancel(),
        }
        tokio::time::timeout(grace, answer)
            .await
            .unwrap_or_else(|_| Err(LinkError::Remote(WireError::new(ErrorCode::Cancelled, "cancelled"))))
    }

    /// As [`Link::request`], for what should be answered soon.
    pub async fn request_within(
        &self,
        method: &str,
        params: RawJson,
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
        self.send(self.event_message(event, data)).await
    }

    /// As [`Link::event`], from where nobody can wait. False when the queue is full or the link closed.
    pub fn try_event(&self, event: &str, data: RawJson) -> bool {
        self.inner.outgoing.try_send(self.event_message(event, data)).is_ok()
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
    pub fn close(&self, reason: &str) {
        let _ = self.inner.reason.set(reason.to_owned());
        self.inner.closing.cancel();
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
    pub async fn closed(&self) -> String {
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

    fn reason(&self) -> String {
        self.inner.reason.get().cloned().unwrap_or_else(|| "closed".into())
    }

    fn lost(&self) -> LinkError {
        LinkError::Closed(self.reason())
    }

    async fn send(&self, message: Message) -> Result<(), LinkError> {
        tokio::select! {
            biased;
            sent = self.inner.outgoing.send(message) => sent.map_err(|_| self.lost()),
            () = self.inner.closed.cancelled() => Err(self.lost()),
        }
    }

    fn event_message(&self, event: &str, data: RawJson) -> Message {
        let seq = self.inner.next_seq.fetch_add(1, Ordering::Relaxed);
        Message::text(Frame::Event { event: event.to_owned(), seq, data }.to_text())
    }

    fn hear(&self) {
        let now = u64::try_from(self.inner.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.inner.heard.store(now, Ordering::Relaxed);
    }

    fn silent_for(&self) -> Duration {
        let heard = Duration::from_millis(self.inner.heard.load(Ordering::Relaxed));
        self.inner.started.elapsed().saturating_sub(heard)
    }
}

impl Inner {
    fn take_arrived(&self) -> Vec<Work> {
        std::mem::take(&mut *self.arrived.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Result<RawJson, WireError>>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serving(&self) -> MutexGuard<'_, HashMap<u64, CancellationToken>> {
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
        params: RawJson,
        deadline: Option<Instant>,
    ) -> Result<(), LinkError> {
        let deadline_ms = deadline.map(|deadline| {
            u64::try_from(deadline.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(u64::MAX)
        });
        let frame = Frame::Request { id: self.id, method: method.to_owned(), params, deadline_ms };
        let text = sendable(frame.to_text()).map_err(LinkError::Remote)?;
        self.link.send(Message::text(text)).await?;
        self.sent = true;
        // The link may have closed before our entry was there to be cleared.
        if self.link.is_closed() { Err(self.link.lost()) } else { Ok(()) }
    }

    /// Tells the peer that its answer is not wanted any more.
    fn cancel(&mut self) {
        self.sent = false;
        let cancel = Message::text(Frame::Cancel { id: self.id }.to_text());
        if let Err(mpsc::error::TrySendError::Full(cancel)) = self.link.inner.outgoing.try_send(cancel)
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

/// Reads and writes until either fails, the peer falls silent, or somebody closes.
async fn run<S, V>(link: Link, socket: Socket<S>, service: Arc<V>, mut queue: mpsc::Receiver<Message>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    V: Service,
{
    let (mut sink, stream) = socket.split();
    let mut working = Working::new();
    let ended = {
        let reading = read(&link, stream, &service);
        let writing = write(&link, &mut sink, &mut queue);
        // In this order: what was read is worked on, and what was answered is written, in one turn of this task.
        tokio::select! {
            biased;
            reason = reading => reason,
            never = work(&link, &mut working) => match never {},
            reason = writing => reason,
            reason = silence(&link) => reason,
            reason = closing(&link) => reason,
        }
    };
    let _ = link.inner.reason.set(ended);
    link.inner.closed.cancel();
    link.inner.pending().clear();
    link.inner.serving().drain().for_each(|(_, cancel)| cancel.cancel());
    // Nobody waits for them; they have heard so, and may still tidy up.
    working.extend(link.inner.take_arrived());
    tokio::spawn(async move { while working.next().await.is_some() {} });
    // What was said before the end is still delivered, answers above all.
    let goodbye = async {
        queue.close();
        while let Ok(message) = queue.try_recv() {
            if sink.feed(message).await.is_err() {
                return;
            }
        }
        let close = Message::close(Some(CloseCode::NORMAL_CLOSURE), &close_reason(&link.reason()));
        let _ = sink.send(close).await;
        let _ = sink.flush().await;
    };
    let _ = tokio::time::timeout(LAST_WORDS, goodbye).await;
}

/// Requests of the peer that are being worked on.
type Working = FuturesUnordered<Work>;
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Works on the peer's requests within the link's own task: an answer that takes no time costs no switch to another.
async fn work(link: &Link, working: &mut Working) -> Infallible {
    std::future::poll_fn(|cx| {
        loop {
            let arrived = link.inner.take_arrived();
            let nothing_new = arrived.is_empty();
            working.extend(arrived);
            while let Poll::Ready(Some(())) = working.poll_next_unpin(cx) {}
            if nothing_new {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// Returns when the peer has not been heard for two pings, also while a write to it is stuck.
async fn silence(link: &Link) -> String {
    let limit = link.inner.options.ping_every * 2;
    loop {
        match limit.checked_sub(link.silent_for()) {
            None => return "the peer fell silent: two pings were not answered".into(),
            Some(left) => tokio::time::sleep(left + Duration::from_millis(1)).await,
        }
    }
}

/// Somebody wants the link closed. The writer sees it too, and ends with a whole message if the peer takes it in time.
async fn closing(link: &Link) -> String {
    link.inner.closing.cancelled().await;
    tokio::time::sleep(LAST_WORDS).await;
    link.reason()
}

async fn write<S>(
    link: &Link,
    sink: &mut futures_util::stream::SplitSink<Socket<S>, Message>,
    queue: &mut mpsc::Receiver<Message>,
) -> String
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let every = link.inner.options.ping_every;
    let mut ping = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
    loop {
        let written = tokio::select! {
            message = queue.recv() => match message {
                Some(message) => async {
                    sink.feed(message).await?;
                    while let Ok(more) = queue.try_recv() {
                        sink.feed(more).await?;
                    }
                    sink.flush().await
                }.await,
                None => return "closed".into(),
            },
            _ = ping.tick() => sink.send(Message::ping(Bytes::new())).await,
            () = link.inner.closing.cancelled() => return link.reason(),
        };
        if let Err(err) = written {
            return err.to_string();
        }
    }
}

async fn read<S, V>(
    link: &Link,
    mut stream: futures_util::stream::SplitStream<Socket<S>>,
    service: &Arc<V>,
) -> String
where
    S: AsyncRead + AsyncWrite + Unpin,
    V: Service,
{
    let mut bad_frames = 0;
    loop {
        let message = tokio::select! {
            biased;
            // Nothing is heard any more; the writer has the last word.
            () = link.inner.closing.cancelled() => std::future::pending().await,
            message = stream.next() => message,
        };
        let message = match message {
            Some(Ok(message)) => message,
            Some(Err(err)) => return err.to_string(),
            None => return "the peer closed the connection".into(),
        };
        link.hear();
        let bad = if let Some(text) = message.as_text() {
            match Frame::parse(text) {
                Ok(frame) => {
                    dispatch(link, service, frame);
                    None
                }
                Err(err) => Some((err.id, WireError::new(ErrorCode::BadFrame, err.message))),
            }
        } else if message.is_binary() {
            match StreamFrame::parse(message.into_payload().into()) {
                Ok(frame) => {
                    service.stream(link, frame);
                    None
                }
                Err(err) => Some((None, WireError::new(ErrorCode::BadFrame, err.to_string()))),
            }
        } else if let Some((code, reason)) = message.as_close() {
            return format!("the peer closed with {} {reason}", u16::from(code));
        } else {
            None
        };
        if let Some((id, error)) = bad {
            bad_frames += 1;
            if bad_frames > MAX_BAD_FRAMES {
                return "too many frames that are none".into();
            }
            complain(link, id, error);
        }
    }
}

/// An error reply, never silence. A peer that does not read its replies is not waited for.
fn complain(link: &Link, id: Option<u64>, error: WireError) {
    match id {
        Some(id) => {
            let frame = Frame::Response { id, outcome: Err(error) };
            let _ = link.inner.outgoing.try_send(Message::text(frame.to_text()));
        }
        None => {
            link.try_event("error", raw(&error));
        }
    }
}

fn dispatch<V: Service>(link: &Link, service: &Arc<V>, frame: Frame) {
    match frame {
        Frame::Request { id, method, params, deadline_ms } => {
            serve(link, service, id, method, params, deadline_ms);
        }
        Frame::Response { id, outcome } => {
            // Nobody waits for an answer that comes after its request was given up.
            if let Some(waiting) = link.inner.pending().remove(&id) {
                let _ = waiting.send(outcome);
            }
        }
        Frame::Event { event, data, .. } => service.event(link, Event { name: event, data }),
        Frame::Cancel { id } => {
            if let Some(cancel) = link.inner.serving().get(&id) {
                cancel.cancel();
            }
        }
    }
}

fn serve<V: Service>(
    link: &Link,
    service: &Arc<V>,
    id: u64,
    method: String,
    params: RawJson,
    deadline_ms: Option<u64>,
) {
    let cancel = CancellationToken::new();
    let refusal = {
        let mut serving = link.inner.serving();
        if serving.len() >= link.inner.options.max_serving {
            let message = format!("{} requests are being worked on already", serving.len());
            Some(WireError::new(ErrorCode::TooMany, message))
        } else if let Entry::Vacant(free) = serving.entry(id) {
            free.insert(cancel.clone());
            None
        } else {
            Some(WireError::new(ErrorCode::BadFrame, format!("request {id} is being worked on already")))
        }
    };
    if let Some(refusal) = refusal {
        return complain(link, Some(id), refusal);
    }
    let deadline = deadline_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
    let request = Request { id, method, params, deadline, cancel };
    let answer = Arc::clone(service).request(link.clone(), request);
    let own = link.clone();
    let counted = link.inner.answers.token();
    let work = async move {
        let (link, _counted) = (own, counted);
        let serving = Serving { link: &link, id };
        let outcome = std::panic::AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|_| {
            Err(WireError::new(ErrorCode::Internal, "an internal error; the log has more"))
        });
        // It counts until there is room for its answer: a peer that asks and does not read must not make us hoard.
        let room = tokio::select! {
            room = link.inner.outgoing.reserve() => room,
            () = link.inner.closed.cancelled() => return,
        };
        drop(serving);
        if let Ok(room) = room {
            let text = sendable(Frame::Response { id, outcome }.to_text())
                .unwrap_or_else(|error| Frame::Response { id, outcome: Err(error) }.to_text());
            room.send(Message::text(text));
        }
    };
    link.inner.arrived.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(work));
}

/// A frame that the peer would not take must not reach it: it would hang up.
fn sendable(text: String) -> Result<String, WireError> {
    if text.len() <= MAX_FRAME_BYTES {
        return Ok(text);
    }
    let message = format!("{} bytes are more than the {MAX_FRAME_BYTES} of a message", text.len());
    Err(WireError::new(ErrorCode::TooLarge, message))
}

/// A request that is being worked on, counted until it is over.
struct Serving<'a> {
    link: &'a Link,
    id: u64,
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.link.inner.serving().remove(&self.id);
    }
}
