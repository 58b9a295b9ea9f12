//! What waits to be written to a peer: bounded in frames, and in bytes for all that can wait. Beyond a small part it is paid
//! for with room that all connections share.
//!
//! What cannot wait is small, or a piece of a stream, of which the receiver's credit allows only so many.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio_websockets::Message;

use super::LinkOptions;
use crate::pool::{Account, FREE_BYTES, Share};

/// How often somebody who can wait looks for room.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The end that takes frames in.
pub(super) struct Outgoing {
    queue: mpsc::Sender<Queued>,
    /// A permit for each byte that may still be queued.
    room: Semaphore,
    budget: u32,
    /// Bytes of frames that wait, also of those that wait for a place in the queue.
    held: AtomicUsize,
    account: Option<Account>,
}

/// A frame, and how much of the budget it holds until it is written.
pub(super) struct Queued {
    pub(super) message: Message,
    cost: Cost,
}

/// What [`Outgoing::written`] has to hear once a frame is written.
#[derive(Default)]
pub(super) struct Cost {
    bytes: u32,
    held: usize,
    _share: Option<Share>,
}

impl Cost {
    /// Whether the frame is too large to be forgotten before the peer has taken it.
    pub(super) fn is_large(&self) -> bool {
        self.held > FREE_BYTES
    }
}

/// A frame that may wait, which it has the room for.
pub(super) struct Admitted<'a> {
    outgoing: &'a Outgoing,
    held: usize,
    share: Option<Share>,
}

/// A place for one frame.
pub(super) struct Room<'a> {
    slot: mpsc::Permit<'a, Queued>,
    bytes: SemaphorePermit<'a>,
    admitted: Admitted<'a>,
}

impl Outgoing {
    pub(super) fn new(options: &LinkOptions) -> (Outgoing, mpsc::Receiver<Queued>) {
        let (queue, queued) = mpsc::channel(options.queue);
        let budget = options.queue_bytes.max(1);
        let room = Semaphore::new(usize::try_from(budget).unwrap_or(Semaphore::MAX_PERMITS));
        let account = options.account.clone();
        (Outgoing { queue, room, budget, held: AtomicUsize::new(0), account }, queued)
    }

    /// Whether a frame of this length may wait to be written. `None` when there is no room to keep it in.
    pub(super) fn admit(&self, length: usize) -> Option<Admitted<'_>> {
        let waiting = self.held.fetch_add(length, Ordering::Relaxed);
        let mut admitted = Admitted { outgoing: self, held: length, share: None };
        if let Some(account) = &self.account
            && waiting + length > FREE_BYTES
        {
            admitted.share = Some(account.try_take(length)?);
        }
        Some(admitted)
    }

    /// For what is small, and said in place of what would not have been.
    pub(super) fn admit_small(&self, length: usize) -> Admitted<'_> {
        self.held.fetch_add(length, Ordering::Relaxed);
        Admitted { outgoing: self, held: length, share: None }
    }

    /// As [`Outgoing::admit`], for what can wait as long as it takes.
    pub(super) async fn admit_in_time(&self, length: usize) -> Admitted<'_> {
        loop {
            match self.admit(length) {
                Some(admitted) => return admitted,
                None => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }

    /// Waits until a frame may be queued. One that is longer than the budget has to itself what there is.
    /// `None` when nothing is written any more.
    pub(super) async fn reserve<'a>(&'a self, admitted: Admitted<'a>) -> Option<Room<'a>> {
        let bytes = u32::try_from(admitted.held).unwrap_or(u32::MAX).min(self.budget);
        let bytes = self.room.acquire_many(bytes).await.ok()?;
        Some(Room { slot: self.queue.reserve().await.ok()?, bytes, admitted })
    }

    /// Without waiting, and outside the budget.
    pub(super) fn try_send(&self, message: Message) -> Result<(), Unsent> {
        self.queue.try_send(Queued { message, cost: Cost::default() }).map_err(|err| match err {
            TrySendError::Full(queued) => Unsent::Full(queued.message),
            TrySendError::Closed(_) => Unsent::Closed,
        })
    }

    /// A frame that was queued is written.
    pub(super) fn written(&self, cost: Cost) {
        self.room.add_permits(usize::try_from(cost.bytes).unwrap_or(0));
        self.held.fetch_sub(cost.held, Ordering::Relaxed);
    }
}

pub(super) enum Unsent {
    Full(Message),
    Closed,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.outgoing.held.fetch_sub(self.held, Ordering::Relaxed);
    }
}

impl Room<'_> {
    pub(super) fn send(mut self, message: Message) {
        let bytes = u32::try_from(self.bytes.num_permits()).unwrap_or(u32::MAX);
        self.bytes.forget();
        let held = std::mem::take(&mut self.admitted.held);
        let share = self.admitted.share.take();
        self.slot.send(Queued { message, cost: Cost { bytes, held, _share: share } });
    }
}

impl Queued {
    pub(super) fn take(self) -> (Message, Cost) {
        (self.message, self.cost)
    }
}
