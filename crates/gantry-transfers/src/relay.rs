//! [`Relay`] passes the frames of a stream between its sender and its receiver, and rejects those of others. It holds
//! the end frame back until the sender has confirmed it, because the receiver renames the file when it gets it.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_link::Link;
use gantry_protocol::{MAX_UNACKNOWLEDGED_BYTES, StreamFrame, StreamKind};
use gantry_transfer::{FrameFuture, FrameOut, TransferService};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::meter::Meter;

/// Where frames come from and go to: a node's bulk connection, or a service in the gateway's process.
#[derive(Clone)]
pub(crate) enum FramePeer {
    Link(Link),
    Service(Arc<TransferService>),
}

impl PartialEq for FramePeer {
    fn eq(&self, other: &FramePeer) -> bool {
        match (self, other) {
            (FramePeer::Link(one), FramePeer::Link(other)) => one == other,
            (FramePeer::Service(one), FramePeer::Service(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// The open streams by number. This process does not use a number twice.
#[derive(Default)]
pub(crate) struct Relay {
    last: AtomicU32,
    streams: Mutex<HashMap<u32, Arc<StreamState>>>,
    /// Frames that belonged to no stream of their sender.
    rejected: AtomicU64,
}

struct StreamState {
    source: FramePeer,
    destination: FramePeer,
    meter: Arc<Meter>,
    /// Bytes before this offset have passed.
    passed: AtomicU64,
    granted: AtomicU64,
    /// Gets the first credit, which means that the receiver is ready.
    ready: Mutex<Option<oneshot::Sender<u64>>>,
    /// Gets the sender's end frame, which only [`RelayStream::release`] passes on.
    ended: Mutex<Option<oneshot::Sender<StreamFrame>>>,
    broken: CancellationToken,
    reason: Mutex<Option<String>>,
}

impl Relay {
    /// Opens a stream that starts at an offset. Dropping the handle closes it.
    pub(crate) fn open(
        self: &Arc<Self>,
        source: FramePeer,
        destination: FramePeer,
        from: u64,
        meter: &Arc<Meter>,
    ) -> RelayStream {
        let number = self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let (ready, first_credit) = oneshot::channel();
        let (ended, end) = oneshot::channel();
        let state = Arc::new(StreamState {
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
        self.streams().insert(number, state.clone());
        RelayStream { relay: self.clone(), number, state, first_credit: Some(first_credit), end: Some(end) }
    }

    /// Passes a frame on. A frame that belongs to no stream of its sender is counted and answered with an abort.
    pub(crate) fn pass(&self, from: &FramePeer, frame: StreamFrame) {
        let number = frame.stream();
        let found = self.streams().get(&number).cloned();
        let Some(state) = found else { return self.reject(from, &frame) };
        let is_source = state.source == *from;
        let is_destination = state.destination == *from;
        match frame.kind() {
            StreamKind::Data if is_source => match state.advance(&frame) {
                Ok(()) => self.deliver(number, &state, &state.destination, frame),
                Err(reason) => self.abort(number, &state, reason),
            },
            StreamKind::End if is_source => {
                let ended = state.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
                match ended {
                    Some(ended) => {
                        // The attempt may have ended.
                        let _ = ended.send(frame);
                    }
                    None => self.abort(number, &state, "the sender sent two end frames"),
                }
            }
            StreamKind::Credit if is_destination => {
                let most = state.passed.load(Ordering::Acquire).saturating_add(MAX_UNACKNOWLEDGED_BYTES);
                if frame.offset() > most {
                    return self.abort(number, &state, "more credit was granted than is allowed");
                }
                state.granted.fetch_max(frame.offset(), Ordering::AcqRel);
                let ready = state.ready.lock().unwrap_or_else(PoisonError::into_inner).take();
                match ready {
                    Some(ready) => {
                        // The attempt may have ended.
                        let _ = ready.send(frame.offset());
                    }
                    None => self.deliver(number, &state, &state.source, frame),
                }
            }
            StreamKind::Abort if is_source || is_destination => {
                self.streams().remove(&number);
                state.note(&frame.reason());
                let other = if is_source { &state.destination } else { &state.source };
                other.deliver(self, frame);
                // Both endpoints report the reason in their answers.
            }
            _ => self.reject(from, &frame),
        }
    }

    pub(crate) fn rejected_frames(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    fn deliver(&self, number: u32, state: &StreamState, to: &FramePeer, frame: StreamFrame) {
        if !to.deliver(self, frame) {
            self.abort(number, state, "the other endpoint cannot be reached or is too slow");
        }
    }

    fn abort(&self, number: u32, state: &StreamState, reason: &str) {
        self.streams().remove(&number);
        state.note(reason);
        state.source.deliver(self, StreamFrame::abort(number, reason));
        state.destination.deliver(self, StreamFrame::abort(number, reason));
        state.broken.cancel();
    }

    /// An abort is never answered with an abort, or two endpoints would loop forever.
    fn reject(&self, from: &FramePeer, frame: &StreamFrame) {
        if frame.kind() != StreamKind::Abort {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            from.deliver(self, StreamFrame::abort(frame.stream(), "unknown stream"));
        }
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<u32, Arc<StreamState>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FramePeer {
    /// Returns false if the connection is closed or its queue is full. Never waits.
    fn deliver(&self, relay: &Relay, frame: StreamFrame) -> bool {
        match self {
            FramePeer::Link(link) => link.try_stream(frame),
            FramePeer::Service(service) => {
                if let Some(back) = service.take(frame) {
                    relay.pass(self, back);
                }
                true
            }
        }
    }
}

impl StreamState {
    /// Checks that a data frame is next in order and within the granted credit, and counts its bytes.
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

/// An open stream. Dropping it closes the stream.
pub(crate) struct RelayStream {
    relay: Arc<Relay>,
    pub(crate) number: u32,
    state: Arc<StreamState>,
    first_credit: Option<oneshot::Receiver<u64>>,
    end: Option<oneshot::Receiver<StreamFrame>>,
}

impl RelayStream {
    /// Waits until the receiver is ready, and returns its credit. Returns `None` if the stream was closed.
    pub(crate) async fn ready(&mut self) -> Option<u64> {
        self.first_credit.take()?.await.ok()
    }

    /// Waits for the sender's end frame. Only the first call returns it.
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

    /// Passes the sender's end frame on.
    pub(crate) fn release(&self, end: StreamFrame) {
        self.relay.deliver(self.number, &self.state, &self.state.destination, end);
    }

    /// Waits until the stream is aborted, and returns the reason.
    pub(crate) fn broken(&self) -> impl Future<Output = String> + use<> {
        let state = self.state.clone();
        async move {
            state.broken.cancelled().await;
            let reason = state.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
            reason.unwrap_or_default()
        }
    }

    /// Aborts the stream at both endpoints.
    pub(crate) fn abort(&self, reason: &str) {
        self.relay.abort(self.number, &self.state, reason);
    }

    /// Bytes before this offset have passed.
    pub(crate) fn passed(&self) -> u64 {
        self.state.passed.load(Ordering::Acquire)
    }
}

impl Drop for RelayStream {
    fn drop(&mut self) {
        self.relay.streams().remove(&self.number);
    }
}

/// Sends the frames of a service in the gateway's process to the relay.
pub(crate) struct RelayOut {
    pub(crate) relay: Arc<Relay>,
    pub(crate) service: Arc<TransferService>,
}

impl FrameOut for RelayOut {
    fn send(&self, frame: StreamFrame) -> FrameFuture<'_> {
        self.relay.pass(&FramePeer::Service(self.service.clone()), frame);
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
    use crate::meter::Meters;
    use crate::object_backend::ObjectBackend;

    fn service(data: &DataDir) -> Arc<TransferService> {
        let backend = ObjectBackend::new(Objects::folder(data), data.clone(), Meters::default());
        let backend = Arc::new(backend);
        TransferService::new(backend.clone(), backend)
    }

    fn data(stream: u32, offset: u64, length: usize) -> StreamFrame {
        StreamFrame::data_with(stream, offset, length, |room| Ok::<_, ()>(room.len())).unwrap().unwrap()
    }

    /// Passes frames on a stream from the first to the second of three services. Returns the passed bytes, the
    /// rejected frames, and whether the stream was aborted.
    async fn check(frames: &[(usize, StreamFrame)]) -> (u64, u64, bool) {
        let folder = tempfile::tempdir().unwrap();
        let store = DataDir::new(folder.path().join("data"));
        let peers: Vec<FramePeer> = (0..3).map(|_| FramePeer::Service(service(&store))).collect();
        let relay = Arc::new(Relay::default());
        let meter = Arc::new(Meter::new());
        let opened = relay.open(peers[0].clone(), peers[1].clone(), 0, &meter);
        assert_eq!(opened.number, 1);
        for (from, frame) in frames {
            relay.pass(&peers[*from], frame.clone());
        }
        (opened.passed(), relay.rejected_frames(), opened.state.broken.is_cancelled())
    }

    #[tokio::test]
    async fn frames_of_other_peers_are_rejected() {
        let credit = |up_to| StreamFrame::credit(1, up_to);
        // The services here do not know the stream and abort it. The bytes that passed before are counted.
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
        // An abort by another peer is ignored.
        let frames = [(1, credit(100)), (2, StreamFrame::abort(1, "no")), (0, data(1, 0, 60))];
        assert_eq!(check(&frames).await, (60, 0, false));
    }

    #[tokio::test]
    async fn protocol_violation_aborts_the_stream() {
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
