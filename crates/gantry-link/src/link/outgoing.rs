//! What waits to be written to a peer: bounded in frames, and in bytes for all that can wait.
//!
//! What cannot wait is small, or a piece of a stream, of which the receiver's credit allows only so many.

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio_websockets::Message;

/// The end that takes frames in.
pub(super) struct Outgoing {
    queue: mpsc::Sender<Queued>,
    /// A permit for each byte that may still be queued.
    room: Semaphore,
    budget: u32,
}

/// A frame, and how much of the budget it holds until it is written.
pub(super) struct Queued {
    pub(super) message: Message,
    bytes: u32,
}

/// Room for one frame.
pub(super) struct Room<'a> {
    slot: mpsc::Permit<'a, Queued>,
    bytes: SemaphorePermit<'a>,
}

impl Outgoing {
    pub(super) fn new(frames: usize, bytes: u32) -> (Outgoing, mpsc::Receiver<Queued>) {
        let (queue, queued) = mpsc::channel(frames);
        let budget = bytes.max(1);
        let room = Semaphore::new(usize::try_from(budget).unwrap_or(Semaphore::MAX_PERMITS));
        (Outgoing { queue, room, budget }, queued)
    }

    /// Waits until a frame of this length may be queued. One that is longer than the budget has to itself what there is.
    /// `None` when nothing is written any more.
    pub(super) async fn reserve(&self, length: usize) -> Option<Room<'_>> {
        let bytes = u32::try_from(length).unwrap_or(u32::MAX).min(self.budget);
        let bytes = self.room.acquire_many(bytes).await.ok()?;
        Some(Room { slot: self.queue.reserve().await.ok()?, bytes })
    }

    /// Without waiting, and outside the budget.
    pub(super) fn try_send(&self, message: Message) -> Result<(), Unsent> {
        self.queue.try_send(Queued { message, bytes: 0 }).map_err(|err| match err {
            TrySendError::Full(queued) => Unsent::Full(queued.message),
            TrySendError::Closed(_) => Unsent::Closed,
        })
    }

    /// A frame that was queued is written.
    pub(super) fn written(&self, bytes: u32) {
        self.room.add_permits(usize::try_from(bytes).unwrap_or(0));
    }
}

pub(super) enum Unsent {
    Full(Message),
    Closed,
}

impl Room<'_> {
    pub(super) fn send(self, message: Message) {
        let bytes = u32::try_from(self.bytes.num_permits()).unwrap_or(u32::MAX);
        self.bytes.forget();
        self.slot.send(Queued { message, bytes });
    }
}

impl Queued {
    /// The frame, and what [`Outgoing::written`] has to hear once it is written.
    pub(super) fn take(self) -> (Message, u32) {
        (self.message, self.bytes)
    }
}
