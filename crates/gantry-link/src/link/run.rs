//! The task of a link: it reads frames, polls the peer's requests, writes frames, and closes the connection.

use std::collections::VecDeque;
use std::collections::btree_map::Entry;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, SinkExt, StreamExt};
use gantry_protocol::{
    CloseReason, ErrorCode, Frame, MAX_VALUES, RawJson, StreamFrame, VALUE_BYTES, WireError, count_values,
    raw, response_text,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Interval, Sleep};
use tokio_util::sync::CancellationToken;
use tokio_websockets::{CloseCode, Message};

use super::outgoing::{Cost, Queued};
use super::{Closed, Link, sendable};
use crate::offload::offload_if_large;
use crate::pool::{FREE_BYTES, Reservation};
use crate::serve::{Event, Request, Service};
use crate::socket::Socket;

/// The link is closed after more malformed frames than this.
const MAX_BAD_FRAMES: u32 = 64;

/// Values in messages up to this length are not counted.
const SHORT_MESSAGE: usize = 1024;

/// How many pongs may be unflushed before the task stops reading. The socket itself has no limit.
const MAX_PONGS: u32 = 64;

/// How long one poll may spend on requests that finish at once before it yields to other tasks.
const MAX_POLL_TIME: Duration = Duration::from_millis(2);

/// How long queued frames and the close frame may take to be written.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the link until a read or write fails, the peer stops answering pings, or a close is requested.
pub(super) fn run<S, V>(link: Link, socket: Socket<S>, service: Arc<V>) -> impl Future<Output = ()> + Send
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    V: Service,
{
    // The guard exists before the future is first polled, so that dropping the future unpolled closes the link.
    let guard = CloseGuard(link);
    run_until_closed(guard, socket, service)
}

async fn run_until_closed<S, V>(guard: CloseGuard, socket: Socket<S>, service: Arc<V>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    V: Service,
{
    let link = guard.0.clone();
    let mut state = ConnectionState::new(link.clone(), socket, service);
    let ended = std::future::poll_fn(|cx| state.poll_once(cx)).await;
    let ConnectionState { mut socket, mut working, unwritten, .. } = state;
    let _ = link.inner.reason.set((CloseCode::NORMAL_CLOSURE, ended));
    let queued = guard.close();
    // Cancelled requests still run to their end, so that they can clean up.
    tokio::spawn(async move { while working.next().await.is_some() {} });
    // Frames that were queued before the close are still delivered.
    let deliver_and_close = async {
        for queued in unwritten.into_iter().chain(queued) {
            if socket.feed(queued.message).await.is_err() {
                // The peer has closed its side; the close frame below still acknowledges that.
                break;
            }
        }
        let code = link.inner.reason.get().map(|(code, _)| *code);
        let close = Message::close(code, &link.reason().wire_text(link.inner.options.protocol));
        let _ = socket.send(close).await;
        let _ = socket.flush().await;
    };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, deliver_and_close).await;
    // An incomplete message is never finished.
    drop(link.inner.intake.take_reservation());
}

/// Closes the link when its task ends, also by a panic or a drop, so that no caller waits for it.
struct CloseGuard(Link);

impl CloseGuard {
    /// Closes the link and returns the unwritten frames. Taking them out frees their memory even while handles
    /// to the link exist.
    fn close(&self) -> VecDeque<Queued> {
        let inner = &self.0.inner;
        let _ = inner.reason.set((CloseCode::NORMAL_CLOSURE, Closed::lost("its task was given up")));
        inner.closed.cancel();
        let queued = inner.outgoing.close();
        inner.pending().clear();
        std::mem::take(&mut *inner.serving()).into_values().for_each(|cancel| cancel.cancel());
        queued
    }
}

impl Drop for CloseGuard {
    fn drop(&mut self) {
        self.close();
    }
}

/// The running requests of the peer.
type Working = FuturesUnordered<Work>;
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The state of a link between two polls of its task. Every message costs at least one poll, so a poll checks
/// few places. Code that has work for the link puts it into one of them and wakes the task.
struct ConnectionState<S, V> {
    link: Link,
    socket: Socket<S>,
    service: Arc<V>,
    working: Working,
    bad_frames: u32,
    /// Pongs since the socket was last flushed.
    pongs: u32,
    /// Holds the last large message during the next read. While it is in use, the library allocates a new
    /// buffer instead of keeping the large one.
    large: Option<Message>,
    ping: Interval,
    ping_due: bool,
    /// When the last ping was sent, until it is answered.
    pinged: Option<Instant>,
    /// The next frame, if the socket was not ready for it.
    unwritten: Option<Queued>,
    /// Frames were passed to the socket since it was last flushed.
    fed: bool,
    /// A flush is in progress; no frame is passed to the socket before it is done.
    flushing: bool,
    /// What a large frame holds of the limits until it is flushed.
    released_by_flush: Option<Cost>,
    silence: Pin<Box<Sleep>>,
    /// Runs since a close was requested.
    close_timer: Option<Pin<Box<Sleep>>>,
}

impl<S, V> ConnectionState<S, V>
where
    S: AsyncRead + AsyncWrite + Unpin,
    V: Service,
{
    fn new(link: Link, socket: Socket<S>, service: Arc<V>) -> Self {
        let every = link.inner.options.ping_every;
        let now = tokio::time::Instant::now();
        ConnectionState {
            link,
            socket,
            service,
            working: Working::new(),
            bad_frames: 0,
            pongs: 0,
            large: None,
            ping: tokio::time::interval_at(now + every, every),
            ping_due: false,
            pinged: None,
            unwritten: None,
            fed: false,
            flushing: false,
            released_by_flush: None,
            silence: Box::pin(tokio::time::sleep_until(now + every * 2)),
            close_timer: None,
        }
    }

    /// Reads, works and writes once. Ready with the reason when the link must end.
    fn poll_once(&mut self, cx: &mut Context<'_>) -> Poll<Closed> {
        self.link.inner.outgoing.register_writer(cx.waker());
        // This order lets one poll read a request, answer it and write the answer.
        if let Poll::Ready(reason) = self.read(cx) {
            return Poll::Ready(reason);
        }
        self.work(cx);
        match self.write(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(self.link.reason()),
            Poll::Ready(Err(err)) => Poll::Ready(Closed::lost(err)),
            Poll::Pending => self.watch(cx),
        }
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Closed> {
        loop {
            if self.link.is_closing() {
                // Reading stops; the writer still delivers queued frames.
                return Poll::Pending;
            }
            if self.pongs >= MAX_PONGS {
                if let Err(err) = ready!(self.socket.poll_flush_unpin(cx)) {
                    return Poll::Ready(Closed::lost(err));
                }
                self.pongs = 0;
            }
            let polled = self.socket.poll_next_unpin(cx);
            self.large = None;
            let message = match ready!(polled) {
                Some(Ok(message)) => message,
                Some(Err(tokio_websockets::Error::PayloadTooLong { .. })) => {
                    return Poll::Ready(Closed::here(CloseReason::TooLarge));
                }
                Some(Err(err)) => return Poll::Ready(Closed::lost(err)),
                None => return Poll::Ready(Closed::lost("the peer closed the connection")),
            };
            self.link.note_activity();
            let reservation = self.link.inner.intake.finished(&message);
            // Stream frames follow each other and may reuse one large buffer.
            self.large =
                (message.is_text() && message.as_payload().len() > FREE_BYTES).then(|| message.clone());
            let bad = if let Some(text) = message.as_text() {
                match offload_if_large(text.len(), || Frame::parse(text)) {
                    Ok(frame) => {
                        match reserve_for_values(&self.link, text, reservation) {
                            Ok(reservation) => self.dispatch(frame, reservation),
                            Err(error) => reject_frame(&self.link, frame, error),
                        }
                        None
                    }
                    Err(err) => Some((err.id, WireError::new(ErrorCode::BadFrame, err.message))),
                }
            } else if message.is_binary() {
                match StreamFrame::parse(message.into_payload().into()) {
                    Ok(frame) => {
                        self.service.stream(&self.link, frame);
                        None
                    }
                    Err(err) => Some((None, WireError::new(ErrorCode::BadFrame, err.to_string()))),
                }
            } else if let Some((code, reason)) = message.as_close() {
                return Poll::Ready(Closed::by_peer(u16::from(code), reason));
            } else {
                self.pongs += u32::from(message.is_ping());
                if let Some(pinged) = self.pinged.take_if(|_| message.is_pong()) {
                    let micros = u64::try_from(pinged.elapsed().as_micros()).unwrap_or(u64::MAX);
                    self.link.inner.round_trip.store(micros.max(1), Ordering::Relaxed);
                }
                None
            };
            if let Some((id, error)) = bad {
                self.bad_frames += 1;
                if self.bad_frames > MAX_BAD_FRAMES {
                    return Poll::Ready(Closed::here(CloseReason::BadFrames));
                }
                reply_error(&self.link, id, error);
            }
        }
    }

    /// Polls the peer's requests in the link's own task, so that a quick answer costs no task switch.
    fn work(&mut self, cx: &mut Context<'_>) {
        let mut since: Option<Instant> = None;
        while let Poll::Ready(Some(())) = self.working.poll_next_unpin(cx) {
            match since {
                None => since = Some(Instant::now()),
                Some(since) if since.elapsed() > MAX_POLL_TIME => return cx.waker().wake_by_ref(),
                Some(_) => {}
            }
        }
    }

    /// Writes queued frames. Ready when a close was requested and the last frame is flushed.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), tokio_websockets::Error>> {
        loop {
            if self.flushing {
                ready!(self.socket.poll_flush_unpin(cx))?;
                (self.flushing, self.fed, self.pongs) = (false, false, 0);
                if let Some(cost) = self.released_by_flush.take() {
                    self.link.inner.outgoing.written(cost);
                }
            }
            if !self.fed {
                if self.link.is_closing() {
                    return Poll::Ready(Ok(()));
                }
                self.ping_due |= self.ping.poll_tick(cx).is_ready();
            }
            // Pings go first, so that a busy queue cannot delay the check whether the peer is alive.
            if self.ping_due {
                ready!(self.socket.poll_ready_unpin(cx))?;
                self.socket.start_send_unpin(Message::ping(Bytes::new()))?;
                (self.ping_due, self.flushing) = (false, true);
                self.pinged = Some(Instant::now());
                continue;
            }
            self.unwritten = self.unwritten.take().or_else(|| self.link.inner.outgoing.pop());
            if self.unwritten.is_some() {
                ready!(self.socket.poll_ready_unpin(cx))?;
            }
            match self.unwritten.take() {
                Some(queued) => {
                    let (message, cost) = queued.take();
                    self.socket.start_send_unpin(message)?;
                    self.fed = true;
                    if cost.is_large() {
                        (self.released_by_flush, self.flushing) = (Some(cost), true);
                    } else {
                        self.link.inner.outgoing.written(cost);
                    }
                }
                None if self.fed => self.flushing = true,
                None => return Poll::Pending,
            }
        }
    }

    /// Ready when the peer was silent for two ping intervals, also while a write is stuck, or when closing takes
    /// longer than [`CLOSE_TIMEOUT`].
    fn watch(&mut self, cx: &mut Context<'_>) -> Poll<Closed> {
        if self.link.is_closing() {
            let close_timer =
                self.close_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(CLOSE_TIMEOUT)));
            ready!(close_timer.as_mut().poll(cx));
            return Poll::Ready(self.link.reason());
        }
        loop {
            ready!(self.silence.as_mut().poll(cx));
            let limit = self.link.inner.options.ping_every * 2;
            match limit.checked_sub(self.link.silent_for()) {
                None => return Poll::Ready(Closed::here(CloseReason::Silent)),
                Some(left) => {
                    let next = tokio::time::Instant::now() + left + Duration::from_millis(1);
                    self.silence.as_mut().reset(next);
                }
            }
        }
    }

    fn dispatch(&mut self, frame: Frame, reservation: Option<Reservation>) {
        match frame {
            Frame::Request { id, method, params, deadline_ms } => {
                let incoming = IncomingRequest { id, method, params, deadline_ms, reservation };
                self.working.extend(serve(&self.link, &self.service, incoming));
            }
            Frame::Response { id, outcome } => {
                // The entry is missing if the request was dropped before its answer arrived.
                if let Some(waiting) = self.link.inner.pending().remove(&id) {
                    let _ = waiting.send(outcome);
                }
            }
            Frame::Event { event, data, .. } => self.service.event(&self.link, Event { name: event, data }),
            Frame::Cancel { id } => {
                if let Some(cancel) = self.link.inner.serving().get(&id) {
                    cancel.cancel();
                }
            }
        }
    }
}

/// Reserves memory for the values of a message, which can take much more than its text. Extends the
/// reservation of the text, which the request keeps until it is answered.
fn reserve_for_values(
    link: &Link,
    text: &str,
    mut reservation: Option<Reservation>,
) -> Result<Option<Reservation>, WireError> {
    if text.len() <= SHORT_MESSAGE {
        return Ok(reservation);
    }
    let values = offload_if_large(text.len(), || count_values(text.as_bytes()));
    if values > MAX_VALUES {
        let message = format!("the message has {values} names and values; {MAX_VALUES} are allowed");
        return Err(WireError::new(ErrorCode::TooLarge, message));
    }
    let reserved = reservation.as_ref().map_or(FREE_BYTES, Reservation::bytes);
    let Some(more) = (values * VALUE_BYTES).checked_sub(reserved).filter(|more| *more > 0) else {
        return Ok(reservation);
    };
    let Some(account) = &link.inner.options.account else { return Ok(reservation) };
    let Some(more) = account.try_reserve(more) else {
        let message =
            format!("no memory is free now for a message of {values} names and values; try again later");
        return Err(WireError::new(ErrorCode::Unavailable, message));
    };
    more.add_to(&mut reservation);
    Ok(reservation)
}

/// Rejects a frame: the peer gets the error for a request, our own caller for a response.
fn reject_frame(link: &Link, frame: Frame, error: WireError) {
    match frame {
        Frame::Request { id, .. } => reply_error(link, Some(id), error),
        Frame::Response { id, .. } => {
            if let Some(waiting) = link.inner.pending().remove(&id) {
                let _ = waiting.send(Err(error));
            }
        }
        Frame::Event { .. } | Frame::Cancel { .. } => reply_error(link, None, error),
    }
}

/// Sends an error reply, without waiting for a peer that does not read.
fn reply_error(link: &Link, id: Option<u64>, error: WireError) {
    match id {
        Some(id) => {
            let _ = link.inner.outgoing.try_send(Message::text(response_text(id, Err(&error))));
        }
        None => {
            link.try_event("error", raw(&error));
        }
    }
}

struct IncomingRequest {
    id: u64,
    method: String,
    params: RawJson,
    deadline_ms: Option<u64>,
    reservation: Option<Reservation>,
}

/// Returns the work for a request, or `None` after rejecting it.
fn serve<V: Service>(link: &Link, service: &Arc<V>, incoming: IncomingRequest) -> Option<Work> {
    let IncomingRequest { id, method, params, deadline_ms, reservation } = incoming;
    let cancel = CancellationToken::new();
    let refusal = {
        let mut serving = link.inner.serving();
        if serving.len() >= link.inner.options.max_serving {
            let message = format!("{} requests are running already", serving.len());
            Some(WireError::new(ErrorCode::TooMany, message))
        } else if let Entry::Vacant(free) = serving.entry(id) {
            free.insert(cancel.clone());
            None
        } else {
            Some(WireError::new(ErrorCode::BadFrame, format!("request {id} is running already")))
        }
    };
    if let Some(refusal) = refusal {
        reply_error(link, Some(id), refusal);
        return None;
    }
    let deadline = deadline_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
    let bytes = params.get().len();
    let request = Request { id, method, params, deadline, cancel };
    let mut answer = Arc::clone(service).request(link.clone(), request);
    let answer = std::future::poll_fn(move |cx| offload_if_large(bytes, || answer.as_mut().poll(cx)));
    let own = link.clone();
    let counted = link.inner.answers.token();
    let work = async move {
        let (link, _counted) = (own, counted);
        let serving = Serving { link: &link, id };
        let outcome = std::panic::AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|_| {
            // The panic itself is logged where it happens, with its place.
            tracing::error!(request = id, "internal_error");
            let message = format!(
                "an internal error; the log of the program that answered has more under request {id}"
            );
            Err(WireError::new(ErrorCode::Internal, message))
        });
        let error_reply = |error: WireError| response_text(id, Err(&error));
        let text = response_text(id, outcome.as_deref().map(|result| result.get()));
        // The result may be large; free it before waiting.
        drop(outcome);
        let mut text = sendable(text).unwrap_or_else(error_reply);
        // The request's memory is free; the answer may use its quota.
        drop(reservation);
        let outgoing = &link.inner.outgoing;
        let admitted = match outgoing.admit(text.len()) {
            Some(admitted) => admitted,
            None => {
                text = error_reply(no_room(text.len()));
                outgoing.admit_small(text.len())
            }
        };
        // The request counts as running until its answer is queued. Otherwise a peer that sends requests and
        // does not read could make answers pile up.
        let slot = tokio::select! {
            biased;
            slot = outgoing.reserve(admitted) => slot,
            () = link.inner.closed.cancelled() => return,
        };
        drop(serving);
        if let Some(slot) = slot {
            slot.send_without_wake(Message::text(text));
        }
    };
    Some(Box::pin(work))
}

/// The error for a request that ran, but whose answer exceeds the memory quota.
fn no_room(length: usize) -> WireError {
    let message =
        format!("the request was processed, but no memory is free now for its answer of {length} bytes");
    WireError::new(ErrorCode::Unavailable, message)
}

/// Counts a request as running until this is dropped.
struct Serving<'a> {
    link: &'a Link,
    id: u64,
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.link.inner.serving().remove(&self.id);
    }
}
