//! Passes frames from the sender of a stream to its receiver and back, as they are, and nobody else's. The end is held back until the
//! sender has answered for it: only then may a file get its name.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_link::Link;
use gantry_protocol::{MAX_UNACKNOWLEDGED_BYTES, StreamFrame, StreamKind};
use gantry_transfer::{FrameFuture, FrameOut, TransferService};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::meter::Meter;

/// Where frames come from and go to: a node's second connection, or a desk of the gateway itself.
#[derive(Clone)]
pub(crate) enum Port {
    Link(Link),
    Service(Arc<TransferService>),
}

impl PartialEq for Port {
    fn eq(&self, other: &Port) -> bool {
        match (self, other) {
            (Port::Link(one), Port::Link(other)) => one == other,
            (Port::Service(one), Port::Service(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// The open streams. Their numbers are never used again by this start of the gateway.
#[derive(Default)]
pub(crate) struct Relay {
    last: AtomicU32,
    passages: Mutex<HashMap<u32, Arc<Passage>>>,
    /// Frames that belonged to no stream of their sender.
    refused: AtomicU64,
}

/// One stream.
struct Passage {
    source: Port,
    destination: Port,
    meter: Arc<Meter>,
    /// Bytes before this offset have passed.
    passed: AtomicU64,
    granted: AtomicU64,
    /// Told with the first credit: the receiver is ready.
    ready: Mutex<Option<oneshot::Sender<u64>>>,
    /// Told with the sender's end, which is not passed on by itself.
    ended: Mutex<Option<oneshot::Sender<StreamFrame>>>,
    broken: CancellationToken,
    reason: Mutex<Option<String>>,
}

impl Relay {
    /// Opens a stream that goes on from an offset. It is closed when the handle is dropped.
    pub(crate) fn open(
        self: &Arc<Self>,
        source: Port,
        destination: Port,
        from: u64,
        meter: &Arc<Meter>,
    ) -> Opened {
        let number = self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let (ready, first_credit) = oneshot::channel();
        let (ended, end) = oneshot::channel();
        let passage = Arc::new(Passage {
            source,
            destination,
            meter: meter.clone(),
            passed: AtomicU64::new(from),
            granted: AtomicU64::new(0),
            ready: Mutex::new(Some(ready)),
            ended: Mutex::new(Some(ended)),
            broken: CancellationToken::new(),
            reason: Mutex::default(),
        });
        self.passages().insert(number, passage.clone());
        Opened { relay: self.clone(), number, passage, first_credit: Some(first_credit), end: Some(end) }
    }

    /// A frame came. What does not belong to a stream of its sender is answered with an abort, and counted.
    pub(crate) fn pass(&self, from: &Port, frame: StreamFrame) {
        let number = frame.stream();
        let found = self.passages().get(&number).cloned();
        let Some(passage) = found else { return self.refuse(from, &frame) };
        let is_source = passage.source == *from;
        let is_destination = passage.destination == *from;
        match frame.kind() {
            StreamKind::Data if is_source => match passage.advance(&frame) {
                Ok(()) => self.deliver(number, &passage, &passage.destination, frame),
                Err(reason) => self.break_off(number, &passage, reason),
            },
            StreamKind::End if is_source => {
                let ended = passage.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
                match ended {
                    Some(ended) => {
                        // Nobody may wait for it any more.
                        let _ = ended.send(frame);
                    }
                    None => self.break_off(number, &passage, "it ended twice"),
                }
            }
            StreamKind::Credit if is_destination => {
                let most = passage.passed.load(Ordering::Acquire).saturating_add(MAX_UNACKNOWLEDGED_BYTES);
                if frame.offset() > most {
                    return self.break_off(number, &passage, "more credit was granted than is allowed");
                }
                passage.granted.fetch_max(frame.offset(), Ordering::AcqRel);
                let ready = passage.ready.lock().unwrap_or_else(PoisonError::into_inner).take();
                match ready {
                    Some(ready) => {
                        // Nobody may wait for it any more.
                        let _ = ready.send(frame.offset());
                    }
                    None => self.deliver(number, &passage, &passage.source, frame),
                }
            }
            StreamKind::Abort if is_source || is_destination => {
                self.passages().remove(&number);
                passage.note(&frame.reason());
                let other = if is_source { &passage.destination } else { &passage.source };
                other.deliver(self, frame);
                // Both ends tell why in their answers; nobody waits for those if they do not.
            }
            _ => self.refuse(from, &frame),
        }
    }

    pub(crate) fn refused_frames(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn deliver(&self, number: u32, passage: &Passage, to: &Port, frame: StreamFrame) {
        if !to.deliver(self, frame) {
            self.break_off(number, passage, "the other end cannot be reached, or does not keep up");
        }
    }

    fn break_off(&self, number: u32, passage: &Passage, reason: &str) {
        self.passages().remove(&number);
        passage.note(reason);
        passage.source.deliver(self, StreamFrame::abort(number, reason));
        passage.destination.deliver(self, StreamFrame::abort(number, reason));
        passage.broken.cancel();
    }

    /// An abort is never answered with one.
    fn refuse(&self, from: &Port, frame: &StreamFrame) {
        if frame.kind() != StreamKind::Abort {
            self.refused.fetch_add(1, Ordering::Relaxed);
            from.deliver(self, StreamFrame::abort(frame.stream(), "there is no such stream"));
        }
    }

    fn passages(&self) -> MutexGuard<'_, HashMap<u32, Arc<Passage>>> {
        self.passages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Port {
    /// False when it is closed or full. Never waits.
    fn deliver(&self, relay: &Relay, frame: StreamFrame) -> bool {
        match self {
            Port::Link(link) => link.try_stream(frame),
            Port::Service(desk) => {
                if let Some(back) = desk.take(frame) {
                    relay.pass(self, back);
                }
                true
            }
        }
    }
}

impl Passage {
    /// Bytes come in order, and no more than the receiver has granted.
    fn advance(&self, frame: &StreamFrame) -> Result<(), &'static str> {
        let length = frame.payload().len() as u64;
        let passed = self.passed.load(Ordering::Acquire);
        if self.ended.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return Err("bytes came after the end");
        }
        if frame.offset() != passed {
            return Err("bytes came out of order");
        }
        if passed.saturating_add(length) > self.granted.load(Ordering::Acquire) {
            return Err("more was sent than credit was granted for");
        }
        self.passed.store(passed + length, Ordering::Release);
        self.meter.add(length);
        Ok(())
    }

    fn note(&self, reason: &str) {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| reason.to_owned());
    }
}

/// A stream that is open as long as this lives.
pub(crate) struct Opened {
    relay: Arc<Relay>,
    pub(crate) number: u32,
    passage: Arc<Passage>,
    first_credit: Option<oneshot::Receiver<u64>>,
    end: Option<oneshot::Receiver<StreamFrame>>,
}

impl Opened {
    /// Waits until the receiver is ready; returns how far it lets the sender go. `None` when the stream broke.
    pub(crate) async fn ready(&mut self) -> Option<u64> {
        self.first_credit.take()?.await.ok()
    }

    /// Waits for the sender's end, which can be taken once.
    pub(crate) async fn ended(&mut self) -> StreamFrame {
        let end = match &mut self.end {
            Some(end) => end.await,
            None => std::future::pending().await,
        };
        self.end = None;
        match end {
            Ok(end) => end,
            Err(_) => std::future::pending().await,
        }
    }

    /// Passes the sender's end on.
    pub(crate) fn release(&self, end: StreamFrame) {
        self.relay.deliver(self.number, &self.passage, &self.passage.destination, end);
    }

    /// Returns when the stream cannot go on, with the reason.
    pub(crate) fn broken(&self) -> impl Future<Output = String> + use<> {
        let passage = self.passage.clone();
        async move {
            passage.broken.cancelled().await;
            let reason = passage.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
            reason.unwrap_or_default()
        }
    }

    /// Tells both ends that it is over.
    pub(crate) fn abort(&self, reason: &str) {
        self.relay.break_off(self.number, &self.passage, reason);
    }

    /// Where the stream has got to.
    pub(crate) fn passed(&self) -> u64 {
        self.passage.passed.load(Ordering::Acquire)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.relay.passages().remove(&self.number);
    }
}

/// The way out of one of the gateway's own desks.
pub(crate) struct DeskOut {
    pub(crate) relay: Arc<Relay>,
    pub(crate) desk: Arc<TransferService>,
}

impl FrameOut for DeskOut {
    fn send(&self, frame: StreamFrame) -> FrameFuture<'_> {
        self.relay.pass(&Port::Service(self.desk.clone()), frame);
        Box::pin(std::future::ready(Ok(())))
    }

    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

#[cfg(test)]
mod tests {
    use gantry_store::{DataDir, Objects};

    use super::*;
    use crate::transfers::meter::Meters;
    use crate::transfers::storage::ObjectBackend;

    fn desk(data: &DataDir) -> Arc<TransferService> {
        TransferService::new(Arc::new(ObjectBackend::new(
            Objects::folder(data),
            data.clone(),
            Meters::default(),
        )))
    }

    fn data(stream: u32, offset: u64, length: usize) -> StreamFrame {
        StreamFrame::data_with(stream, offset, length, |room| Ok::<_, ()>(room.len())).unwrap().unwrap()
    }

    /// A stream from the first to the second of three, and what has passed on it.
    async fn check(frames: &[(usize, StreamFrame)]) -> (u64, u64, bool) {
        let folder = tempfile::tempdir().unwrap();
        let store = DataDir::new(folder.path().join("data"));
        let ports: Vec<Port> = (0..3).map(|_| Port::Service(desk(&store))).collect();
        let relay = Arc::new(Relay::default());
        let meter = Arc::new(Meter::new());
        let opened = relay.open(ports[0].clone(), ports[1].clone(), 0, &meter);
        assert_eq!(opened.number, 1);
        for (from, frame) in frames {
            relay.pass(&ports[*from], frame.clone());
        }
        (opened.passed(), relay.refused_frames(), opened.passage.broken.is_cancelled())
    }

    #[tokio::test]
    async fn only_a_streams_own_ends_can_use_it() {
        let credit = |up_to| StreamFrame::credit(1, up_to);
        // The receivers here know no stream, and abort it; what passed until then is counted.
        assert_eq!(check(&[(1, credit(100)), (0, data(1, 0, 60))]).await, (60, 0, false));
        for (name, frames) in [
            ("bytes from a stranger", vec![(1, credit(100)), (2, data(1, 0, 60))]),
            ("bytes from the receiver", vec![(1, credit(100)), (1, data(1, 0, 60))]),
            ("another stream's number", vec![(1, credit(100)), (0, data(2, 0, 60))]),
            ("an end from a stranger", vec![(2, StreamFrame::end(1, 0, &[0; 32]))]),
            ("credit from the sender", vec![(0, credit(100))]),
            ("credit from a stranger", vec![(2, credit(100))]),
        ] {
            assert_eq!(check(&frames).await, (0, 1, false), "{name}");
        }
        // A stranger's abort ends nothing, and is not answered either.
        let frames = [(1, credit(100)), (2, StreamFrame::abort(1, "no")), (0, data(1, 0, 60))];
        assert_eq!(check(&frames).await, (60, 0, false));
    }

    #[tokio::test]
    async fn who_breaks_the_rules_breaks_the_stream() {
        let credit = |up_to| StreamFrame::credit(1, up_to);
        for (name, frames) in [
            ("bytes before credit", vec![(0, data(1, 0, 1))]),
            ("more than credit", vec![(1, credit(100)), (0, data(1, 0, 101))]),
            ("a hole", vec![(1, credit(100)), (0, data(1, 1, 10))]),
            ("too much credit", vec![(1, credit(MAX_UNACKNOWLEDGED_BYTES + 1))]),
            ("two ends", vec![(0, StreamFrame::end(1, 0, &[0; 32])), (0, StreamFrame::end(1, 0, &[0; 32]))]),
            (
                "bytes after the end",
                vec![(1, credit(9)), (0, StreamFrame::end(1, 0, &[0; 32])), (0, data(1, 0, 9))],
            ),
        ] {
            assert_eq!(check(&frames).await, (0, 0, true), "{name}");
        }
    }
}
