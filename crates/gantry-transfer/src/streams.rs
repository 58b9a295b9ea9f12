//! The open streams of one service, and [`FrameOut`], the way their frames leave.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_protocol::{StreamFrame, StreamKind};
use tokio::sync::mpsc;

use crate::credit::Credit;
use crate::error::TransferError;

/// How many frames may wait at one receiver. Full frames never reach this; a sender of tiny frames is aborted.
const MAX_WAITING_FRAMES: usize = 256;

/// How many streams one service may have open in each direction.
const MAX_STREAMS: usize = 256;

/// The connection for frames is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

pub type FrameFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Gone>> + Send + 'a>>;

/// Sends the frames of a service.
pub trait FrameOut: Send + Sync + 'static {
    /// Sends a frame, and waits while the queue is full.
    fn send(&self, frame: StreamFrame) -> FrameFuture<'_>;

    /// Returns when no more frames can be sent.
    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The open streams by number. A number names one stream per direction, because a machine may send to itself.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    sending: Mutex<HashMap<u32, Arc<Credit>>>,
    receiving: Mutex<HashMap<u32, Incoming>>,
}

#[derive(Debug, Clone)]
struct Incoming {
    frames: mpsc::Sender<StreamFrame>,
    shared: Arc<Shared>,
}

/// State shared between a receiver's thread and its service.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The sender may send bytes before this offset.
    pub(crate) granted: AtomicU64,
    ended: Mutex<Option<String>>,
}

impl Shared {
    pub(crate) fn end(&self, reason: &str) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| reason.to_owned());
    }

    pub(crate) fn reason(&self) -> Option<String> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Streams {
    pub(crate) fn send(&self, stream: u32, credit: &Arc<Credit>) -> Result<SendingEntry<'_>, TransferError> {
        let mut sending = lock(&self.sending);
        if sending.len() >= MAX_STREAMS {
            return Err(TransferError::TooMany);
        }
        if sending.insert(stream, credit.clone()).is_some() {
            return Err(TransferError::Violation(format!("stream {stream} is open already")));
        }
        Ok(SendingEntry { streams: self, stream, credit: credit.clone() })
    }

    pub(crate) fn receive(
        &self,
        stream: u32,
    ) -> Result<(ReceivingEntry<'_>, mpsc::Receiver<StreamFrame>), TransferError> {
        let mut receiving = lock(&self.receiving);
        if receiving.len() >= MAX_STREAMS {
            return Err(TransferError::TooMany);
        }
        let (frames, waiting) = mpsc::channel(MAX_WAITING_FRAMES);
        let shared = Arc::new(Shared::default());
        if receiving.insert(stream, Incoming { frames, shared: shared.clone() }).is_some() {
            return Err(TransferError::Violation(format!("stream {stream} is open already")));
        }
        Ok((ReceivingEntry { streams: self, stream, shared }, waiting))
    }

    /// Takes an incoming frame. Returns an abort to send back if the frame is rejected.
    pub(crate) fn take(&self, frame: StreamFrame) -> Option<StreamFrame> {
        let stream = frame.stream();
        match frame.kind() {
            StreamKind::Credit => {
                // Credit after the last frame is valid. An abort would end a file that has just arrived.
                if let Some(credit) = lock(&self.sending).get(&stream) {
                    credit.grant(frame.offset());
                }
            }
            StreamKind::Abort => self.end(stream, &frame.reason()),
            StreamKind::Data | StreamKind::End => {
                let Some(incoming) = lock(&self.receiving).get(&stream).cloned() else {
                    return Some(unknown_stream(stream));
                };
                let end = frame.offset().saturating_add(match frame.kind() {
                    StreamKind::Data => frame.payload().len() as u64,
                    _ => 0,
                });
                let reason = if frame.kind() == StreamKind::Data
                    && end > incoming.shared.granted.load(Ordering::Acquire)
                {
                    "more was sent than credit was granted for"
                } else if incoming.frames.try_send(frame).is_err() {
                    "more frames were sent than can wait"
                } else {
                    return None;
                };
                self.end(stream, reason);
                return Some(StreamFrame::abort(stream, reason));
            }
        }
        None
    }

    /// Ends a stream in both directions. Its threads get the reason.
    pub(crate) fn end(&self, stream: u32, reason: &str) {
        if let Some(credit) = lock(&self.sending).remove(&stream) {
            credit.end(reason);
        }
        // Dropping the last sender closes the channel, which wakes the receiver.
        if let Some(incoming) = lock(&self.receiving).remove(&stream) {
            incoming.shared.end(reason);
        }
    }
}

fn unknown_stream(stream: u32) -> StreamFrame {
    StreamFrame::abort(stream, "unknown stream")
}

fn lock<T>(table: &Mutex<HashMap<u32, T>>) -> MutexGuard<'_, HashMap<u32, T>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream that is being sent. Dropping it ends the stream.
pub(crate) struct SendingEntry<'a> {
    streams: &'a Streams,
    stream: u32,
    credit: Arc<Credit>,
}

impl Drop for SendingEntry<'_> {
    fn drop(&mut self) {
        lock(&self.streams.sending).remove(&self.stream);
        self.credit.end("the sender was cancelled");
    }
}

/// A stream that is being received. Dropping it ends the stream.
pub(crate) struct ReceivingEntry<'a> {
    streams: &'a Streams,
    stream: u32,
    pub(crate) shared: Arc<Shared>,
}

impl ReceivingEntry<'_> {
    pub(crate) fn end(&self, reason: &str) {
        self.shared.end(reason);
        lock(&self.streams.receiving).remove(&self.stream);
    }
}

impl Drop for ReceivingEntry<'_> {
    fn drop(&mut self) {
        self.end("the receiver was cancelled");
    }
}
