//! The one task of a link: reads, works on what was asked, writes, and comes to an end.

use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, SinkExt, StreamExt};
use gantry_protocol::{
    ErrorCode, Frame, MAX_VALUES, RawJson, StreamFrame, VALUE_BYTES, WireError, count_values, raw,
    response_text,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_websockets::{CloseCode, Message};

use super::outgoing::Queued;
use super::{Link, sendable};
use crate::aside::aside;
use crate::handshake::close_reason;
use crate::pool::{FREE_BYTES, Share};
use crate::serve::{Event, Request, Service};
use crate::socket::Socket;

/// Frames that are no frames end the link after this many.
const MAX_BAD_FRAMES: u32 = 64;

/// Values of messages up to this length are not counted.
const SHORT: usize = 1024;

/// How long a link works on what can be answered at once before others have their turn.
const TURN: Duration = Duration::from_millis(2);

/// How long a peer may take to hear that the link is closed.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Reads and writes until either fails, the peer falls silent, or somebody closes.
pub(super) async fn run<S, V>(
    link: Link,
    socket: Socket<S>,
    service: Arc<V>,
    mut queue: mpsc::Receiver<Queued>,
) where
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
    let _ = link.inner.reason.set((CloseCode::NORMAL_CLOSURE, ended));
    link.inner.closed.cancel();
    link.inner.pending().clear();
    link.inner.serving().drain().for_each(|(_, cancel)| cancel.cancel());
    // Nobody waits for them; they have heard so, and may still tidy up.
    working.extend(link.inner.take_arrived());
    tokio::spawn(async move { while working.next().await.is_some() {} });
    // What was said before the end is still delivered, answers above all.
    let goodbye = async {
        queue.close();
        while let Ok(queued) = queue.try_recv() {
            if sink.feed(queued.message).await.is_err() {
                return;
            }
        }
        let code = link.inner.reason.get().map(|(code, _)| *code);
        let close = Message::close(code, &close_reason(&link.reason()));
        let _ = sink.send(close).await;
        let _ = sink.flush().await;
    };
    let _ = tokio::time::timeout(LAST_WORDS, goodbye).await;
    // A message that will never be whole.
    drop(link.inner.intake.give_up());
}

/// Requests of the peer that are being worked on.
type Working = FuturesUnordered<Work>;
pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Works on the peer's requests within the link's own task: an answer that takes no time costs no switch to another.
async fn work(link: &Link, working: &mut Working) -> Infallible {
    std::future::poll_fn(|cx| {
        loop {
            let arrived = link.inner.take_arrived();
            let nothing_new = arrived.is_empty();
            working.extend(arrived);
            let mut since = None;
            while let Poll::Ready(Some(())) = working.poll_next_unpin(cx) {
                if since.get_or_insert_with(Instant::now).elapsed() > TURN {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
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
    queue: &mut mpsc::Receiver<Queued>,
) -> String
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let every = link.inner.options.ping_every;
    let mut ping = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
    let mut closing = std::pin::pin!(link.inner.closing.cancelled());
    while !link.inner.closing.is_cancelled() {
        let written = tokio::select! {
            biased;
            // First: somebody who only listens to us must be heard, too.
            _ = ping.tick() => sink.send(Message::ping(Bytes::new())).await,
            queued = queue.recv() => match queued {
                Some(first) => async {
                    let mut next = Some(first);
                    while let Some(queued) = next {
                        let (message, cost) = queued.take();
                        sink.feed(message).await?;
                        if cost.is_large() {
                            sink.flush().await?;
                        }
                        link.inner.outgoing.written(cost);
                        next = queue.try_recv().ok();
                    }
                    sink.flush().await
                }.await,
                None => return "closed".into(),
            },
            () = &mut closing => break,
        };
        if let Err(err) = written {
            return err.to_string();
        }
    }
    link.reason()
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
    // The library would read on in the buffer of a large message, and so keep it, if it were not still in use then.
    let mut large = None;
    loop {
        let message = std::future::poll_fn(|cx| {
            // Nothing is heard any more; the writer has the last word. Whoever ends the link wakes this task.
            if link.inner.closing.is_cancelled() {
                return Poll::Pending;
            }
            let polled = stream.poll_next_unpin(cx);
            large = None;
            polled
        });
        let message = match message.await {
            Some(Ok(message)) => message,
            Some(Err(err)) => return err.to_string(),
            None => return "the peer closed the connection".into(),
        };
        link.hear();
        let share = link.inner.intake.finished(&message);
        // Pieces of streams come one after another, and are welcome to the same buffer.
        large = (message.is_text() && message.as_payload().len() > FREE_BYTES).then(|| message.clone());
        let bad = if let Some(text) = message.as_text() {
            match aside(text.len(), || Frame::parse(text)) {
                Ok(frame) => {
                    match pay_for_values(link, text, share) {
                        Ok(share) => dispatch(link, service, frame, share),
                        Err(error) => turn_back(link, frame, error),
                    }
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

fn dispatch<V: Service>(link: &Link, service: &Arc<V>, frame: Frame, share: Option<Share>) {
    match frame {
        Frame::Request { id, method, params, deadline_ms } => {
            let asked = Asked { id, method, params, deadline_ms, share };
            serve(link, service, asked);
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

struct Asked {
    id: u64,
    method: String,
    params: RawJson,
    deadline_ms: Option<u64>,
    share: Option<Share>,
}

fn serve<V: Service>(link: &Link, service: &Arc<V>, asked: Asked) {
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
        return complain(link, Some(id), refusal);
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
            Err(WireError::new(ErrorCode::Internal, "an internal error; the log has more"))
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
            room.send(Message::text(text));
        }
    };
    link.inner.arrived.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(work));
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
