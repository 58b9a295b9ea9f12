//! The one task of a link: reads, works on what was asked, writes, and comes to an end.

use std::collections::VecDeque;
use std::collections::btree_map::Entry;
use std::pin::Pin;
use std::sync::Arc;
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
use crate::aside::aside;
use crate::pool::{FREE_BYTES, Share};
use crate::serve::{Event, Request, Service};
use crate::socket::Socket;

/// Frames that are no frames end the link after this many.
const MAX_BAD_FRAMES: u32 = 64;

/// Values of messages up to this length are not counted.
const SHORT: usize = 1024;

/// Answers to pings that may wait in the socket, which takes any number of them, before the peer has to read.
const MAX_PONGS: u32 = 64;

/// How long a link works on what can be answered at once before others have their turn.
const TURN: Duration = Duration::from_millis(2);

/// How long a peer may take to hear that the link is closed.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Reads and writes until either fails, the peer falls silent, or somebody closes.
pub(super) fn run<S, V>(link: Link, socket: Socket<S>, service: Arc<V>) -> impl Future<Output = ()> + Send
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    V: Service,
{
    // From now on, also when it is given up before its first turn.
    let running = Running(link);
    run_to_the_end(running, socket, service)
}

async fn run_to_the_end<S, V>(running: Running, socket: Socket<S>, service: Arc<V>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    V: Service,
{
    let link = running.0.clone();
    let mut turns = Turns::new(link.clone(), socket, service);
    let ended = std::future::poll_fn(|cx| turns.take_one(cx)).await;
    let Turns { mut socket, mut working, unwritten, .. } = turns;
    let _ = link.inner.reason.set((CloseCode::NORMAL_CLOSURE, ended));
    let queued = running.over();
    // Nobody waits for them; they have heard so, and may still tidy up.
    tokio::spawn(async move { while working.next().await.is_some() {} });
    // What was said before the end is still delivered, answers above all.
    let goodbye = async {
        for queued in unwritten.into_iter().chain(queued) {
            if socket.feed(queued.message).await.is_err() {
                // The peer has closed already: it may still hear that this was heard.
                break;
            }
        }
        let code = link.inner.reason.get().map(|(code, _)| *code);
        let close = Message::close(code, &link.reason().wire_text(link.inner.options.protocol));
        let _ = socket.send(close).await;
        let _ = socket.flush().await;
    };
    let _ = tokio::time::timeout(LAST_WORDS, goodbye).await;
    // A message that will never be whole.
    drop(link.inner.intake.give_up());
}

/// However the task of a link ends, also by a panic or by being dropped: from then on nobody waits for it.
struct Running(Link);

impl Running {
    /// What was queued and not written: it takes room that others need, however long anybody keeps a handle.
    fn over(&self) -> VecDeque<Queued> {
        let inner = &self.0.inner;
        let _ = inner.reason.set((CloseCode::NORMAL_CLOSURE, Closed::lost("its task was given up")));
        inner.closed.cancel();
        let queued = inner.outgoing.close();
        inner.pending().clear();
        std::mem::take(&mut *inner.serving()).into_values().for_each(|cancel| cancel.cancel());
        queued
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.over();
    }
}

/// Requests of the peer that are being worked on.
type Working = FuturesUnordered<Work>;
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The state of a link between two turns of its task. Every message passes at least one turn, so a turn looks at little: who
/// has something for the link puts it where a turn looks, and wakes the task.
struct Turns<S, V> {
    link: Link,
    socket: Socket<S>,
    service: Arc<V>,
    working: Working,
    bad_frames: u32,
    /// Answers to pings since the socket was last flushed.
    pongs: u32,
    /// The library would read on in the buffer of a large message, and so keep it, if it were not still in use then.
    large: Option<Message>,
    ping: Interval,
    ping_due: bool,
    /// The next frame, when the socket could not take it yet.
    unwritten: Option<Queued>,
    /// The socket was given something since it was last flushed.
    fed: bool,
    /// Nothing more is given to the socket until it is flushed.
    flushing: bool,
    /// What a large frame holds until it is flushed.
    flushed_for: Option<Cost>,
    silence: Pin<Box<Sleep>>,
    /// Since somebody wants the link closed.
    last_words: Option<Pin<Box<Sleep>>>,
}

impl<S, V> Turns<S, V>
where
    S: AsyncRead + AsyncWrite + Unpin,
    V: Service,
{
    fn new(link: Link, socket: Socket<S>, service: Arc<V>) -> Self {
        let every = link.inner.options.ping_every;
        let now = tokio::time::Instant::now();
        Turns {
            link,
            socket,
            service,
            working: Working::new(),
            bad_frames: 0,
            pongs: 0,
            large: None,
            ping: tokio::time::interval_at(now + every, every),
            ping_due: false,
            unwritten: None,
            fed: false,
            flushing: false,
            flushed_for: None,
            silence: Box::pin(tokio::time::sleep_until(now + every * 2)),
            last_words: None,
        }
    }

    /// Ready with the reason when the link is over.
    fn take_one(&mut self, cx: &mut Context<'_>) -> Poll<Closed> {
        self.link.inner.outgoing.is_written_by(cx.waker());
        // In this order: what was read is worked on, and what was answered is written, in one turn.
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
                // Nothing is heard any more; the writer has the last word.
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
                Some(Err(err)) => return Poll::Ready(Closed::lost(err)),
                None => return Poll::Ready(Closed::lost("the peer closed the connection")),
            };
            self.link.hear();
            let share = self.link.inner.intake.finished(&message);
            // Pieces of streams come one after another, and are welcome to the same buffer.
            self.large =
                (message.is_text() && message.as_payload().len() > FREE_BYTES).then(|| message.clone());
            let bad = if let Some(text) = message.as_text() {
                match aside(text.len(), || Frame::parse(text)) {
                    Ok(frame) => {
                        match pay_for_values(&self.link, text, share) {
                            Ok(share) => self.dispatch(frame, share),
                            Err(error) => turn_back(&self.link, frame, error),
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
                None
            };
            if let Some((id, error)) = bad {
                self.bad_frames += 1;
                if self.bad_frames > MAX_BAD_FRAMES {
                    return Poll::Ready(Closed::here(CloseReason::BadFrames));
                }
                complain(&self.link, id, error);
            }
        }
    }

    /// Works on the peer's requests within the link's own task: an answer that takes no time costs no switch to another.
    fn work(&mut self, cx: &mut Context<'_>) {
        let mut since: Option<Instant> = None;
        while let Poll::Ready(Some(())) = self.working.poll_next_unpin(cx) {
            match since {
                None => since = Some(Instant::now()),
                Some(since) if since.elapsed() > TURN => return cx.waker().wake_by_ref(),
                Some(_) => {}
            }
        }
    }

    /// Writes what waits, and ends with a whole message when somebody wants the link closed.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), tokio_websockets::Error>> {
        loop {
            if self.flushing {
                ready!(self.socket.poll_flush_unpin(cx))?;
                (self.flushing, self.fed, self.pongs) = (false, false, 0);
                if let Some(cost) = self.flushed_for.take() {
                    self.link.inner.outgoing.written(cost);
                }
            }
            if !self.fed {
                if self.link.is_closing() {
                    return Poll::Ready(Ok(()));
                }
                self.ping_due |= self.ping.poll_tick(cx).is_ready();
            }
            // First: somebody who only listens to us must be heard, too.
            if self.ping_due {
                ready!(self.socket.poll_ready_unpin(cx))?;
                self.socket.start_send_unpin(Message::ping(Bytes::new()))?;
                (self.ping_due, self.flushing) = (false, true);
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
                        (self.flushed_for, self.flushing) = (Some(cost), true);
                    } else {
                        self.link.inner.outgoing.written(cost);
                    }
                }
                None if self.fed => self.flushing = true,
                None => return Poll::Pending,
            }
        }
    }

    /// Ready when the peer has not been heard for two pings, also while a write to it is stuck; or when the writer has not come
    /// to an end in time.
    fn watch(&mut self, cx: &mut Context<'_>) -> Poll<Closed> {
        if self.link.is_closing() {
            let last_words = self.last_words.get_or_insert_with(|| Box::pin(tokio::time::sleep(LAST_WORDS)));
            ready!(last_words.as_mut().poll(cx));
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

    fn dispatch(&mut self, frame: Frame, share: Option<Share>) {
        match frame {
            Frame::Request { id, method, params, deadline_ms } => {
                let asked = Asked { id, method, params, deadline_ms, share };
                self.working.extend(serve(&self.link, &self.service, asked));
            }
            Frame::Response { id, outcome } => {
                // Nobody waits for an answer that comes after its request was given up.
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

/// What is made of a message takes room by its values: what its text has not paid for is paid here, and goes along with it.
fn pay_for_values(link: &Link, text: &str, mut share: Option<Share>) -> Result<Option<Share>, WireError> {
    if text.len() <= SHORT {
        return Ok(share);
    }
    let values = aside(text.len(), || count_values(text.as_bytes()));
    if values > MAX_VALUES {
        let message = format!("the message has {values} names and values; {MAX_VALUES} are allowed");
        return Err(WireError::new(ErrorCode::TooLarge, message));
    }
    let paid = share.as_ref().map_or(FREE_BYTES, Share::bytes);
    let Some(more) = (values * VALUE_BYTES).checked_sub(paid).filter(|more| *more > 0) else {
        return Ok(share);
    };
    let Some(account) = &link.inner.options.account else { return Ok(share) };
    let Some(more) = account.try_take(more) else {
        let message = format!("there is no room for a message of {values} names and values now");
        return Err(WireError::new(ErrorCode::Unavailable, message));
    };
    more.add_to(&mut share);
    Ok(share)
}

/// A message that is not worked on. Who waits for what it would have told hears why.
fn turn_back(link: &Link, frame: Frame, error: WireError) {
    match frame {
        Frame::Request { id, .. } => complain(link, Some(id), error),
        Frame::Response { id, .. } => {
            if let Some(waiting) = link.inner.pending().remove(&id) {
                let _ = waiting.send(Err(error));
            }
        }
        Frame::Event { .. } | Frame::Cancel { .. } => complain(link, None, error),
    }
}

/// An error reply, never silence. A peer that does not read its replies is not waited for.
fn complain(link: &Link, id: Option<u64>, error: WireError) {
    match id {
        Some(id) => {
            let _ = link.inner.outgoing.try_send(Message::text(response_text(id, Err(&error))));
        }
        None => {
            link.try_event("error", raw(&error));
        }
    }
}

struct Asked {
    id: u64,
    method: String,
    params: RawJson,
    deadline_ms: Option<u64>,
    share: Option<Share>,
}

/// What is to be done for a request that came; nothing for one that is refused.
fn serve<V: Service>(link: &Link, service: &Arc<V>, asked: Asked) -> Option<Work> {
    let Asked { id, method, params, deadline_ms, share } = asked;
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
        complain(link, Some(id), refusal);
        return None;
    }
    let deadline = deadline_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
    let bytes = params.get().len();
    let request = Request { id, method, params, deadline, cancel };
    let mut answer = Arc::clone(service).request(link.clone(), request);
    let answer = std::future::poll_fn(move |cx| aside(bytes, || answer.as_mut().poll(cx)));
    let own = link.clone();
    let counted = link.inner.answers.token();
    let work = async move {
        let (link, _counted) = (own, counted);
        let serving = Serving { link: &link, id };
        let outcome = std::panic::AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|_| {
            Err(WireError::new(
                ErrorCode::Internal,
                "the request failed inside; the standard error of the program that answered says where",
            ))
        });
        let refused = |error: WireError| response_text(id, Err(&error));
        let text = response_text(id, outcome.as_deref().map(|result| result.get()));
        // It may be large.
        drop(outcome);
        let mut text = sendable(text).unwrap_or_else(refused);
        // What was asked is forgotten, and makes room for the answer.
        drop(share);
        let outgoing = &link.inner.outgoing;
        let admitted = match outgoing.admit(text.len()) {
            Some(admitted) => admitted,
            None => {
                text = refused(no_room(text.len()));
                outgoing.admit_small(text.len())
            }
        };
        // It counts until there is room for its answer: a peer that asks and does not read must not make us hoard.
        let room = tokio::select! {
            biased;
            room = outgoing.reserve(admitted) => room,
            () = link.inner.closed.cancelled() => return,
        };
        drop(serving);
        if let Some(room) = room {
            room.send_in_turn(Message::text(text));
        }
    };
    Some(Box::pin(work))
}

/// It was done, but nobody gets to hear what came of it.
fn no_room(length: usize) -> WireError {
    let message =
        format!("the request was worked on, but there is no room for its answer of {length} bytes now");
    WireError::new(ErrorCode::Unavailable, message)
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
