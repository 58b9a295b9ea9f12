//! What waits to be written to a peer: bounded in frames, and in bytes for all that can wait. Beyond a small part it is paid
//! for with room that all connections share.
//!
//! What cannot wait is small, or a piece of a stream, of which the receiver's credit allows only so many.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};
use tokio_websockets::Message;

use super::LinkOptions;
use crate::pool::{Account, FREE_BYTES, Share};

/// How often somebody who can wait looks for room.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The queue of frames, which the link's task takes out and writes.
pub(super) struct Outgoing {
    queue: Mutex<VecDeque<Queued>>,
    /// The link's task.
    writer: AtomicWaker,
    /// A permit for each frame that may still be queued.
    slots: Semaphore,
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
    slot: SemaphorePermit<'a>,
    bytes: SemaphorePermit<'a>,
    admitted: Admitted<'a>,
}

impl Outgoing {
    pub(super) fn new(options: &LinkOptions) -> Outgoing {
        let budget = options.queue_bytes.max(1);
        Outgoing {
            queue: Mutex::default(),
            writer: AtomicWaker::new(),
            slots: Semaphore::new(options.queue.max(1)),
            room: Semaphore::new(usize::try_from(budget).unwrap_or(Semaphore::MAX_PERMITS)),
            budget,
            held: AtomicUsize::new(0),
            account: options.account.clone(),
        }
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
        let bytes = permits(&self.room, bytes).await?;
        Some(Room { slot: permits(&self.slots, 1).await?, bytes, admitted })
    }

    /// Without waiting, and outside the budget.
    pub(super) fn try_send(&self, message: Message) -> Result<(), Unsent> {
        match self.slots.try_acquire() {
            Ok(slot) => slot.forget(),
            Err(TryAcquireError::NoPermits) => return Err(Unsent::Full(message)),
            Err(TryAcquireError::Closed) => return Err(Unsent::Closed),
        }
        self.push(Queued { message, cost: Cost::default() });
        self.wake();
        Ok(())
    }

    /// Who is to be woken. Told before the queue is looked at: what comes after that wakes.
    pub(super) fn is_written_by(&self, writer: &Waker) {
        self.writer.register(writer);
    }

    /// The link's task has to look at something.
    pub(super) fn wake(&self) {
        self.writer.wake();
    }

    fn push(&self, queued: Queued) {
        let mut queue = self.queue();
        // Nothing is written any more: who had room before that keeps nothing here either.
        if !self.slots.is_closed() {
            queue.push_back(queued);
        }
    }

    /// The next frame to be written.
    pub(super) fn pop(&self) -> Option<Queued> {
        let queued = self.queue().pop_front()?;
        self.slots.add_permits(1);
        Some(queued)
    }

    /// Nothing more is taken in. Returns what was there.
    pub(super) fn close(&self) -> VecDeque<Queued> {
        let mut queue = self.queue();
        self.slots.close();
        self.room.close();
        std::mem::take(&mut *queue)
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Queued>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(super) fn send(self, message: Message) {
        let outgoing = self.admitted.outgoing;
        self.send_in_turn(message);
        outgoing.wake();
    }

    /// As [`Room::send`], within a turn of the link's task that ends with writing.
    pub(super) fn send_in_turn(mut self, message: Message) {
        let bytes = u32::try_from(self.bytes.num_permits()).unwrap_or(u32::MAX);
        self.bytes.forget();
        self.slot.forget();
        let held = std::mem::take(&mut self.admitted.held);
        let share = self.admitted.share.take();
        self.admitted.outgoing.push(Queued { message, cost: Cost { bytes, held, _share: share } });
    }
}

impl Queued {
    pub(super) fn take(self) -> (Message, Cost) {
        (self.message, self.cost)
    }
}

/// `None` when the semaphore is closed. Nearly always there is room, and nothing to wait for.
async fn permits(semaphore: &Semaphore, count: u32) -> Option<SemaphorePermit<'_>> {
    match semaphore.try_acquire_many(count) {
        Ok(permits) => Some(permits),
        Err(TryAcquireError::NoPermits) => semaphore.acquire_many(count).await.ok(),
        Err(TryAcquireError::Closed) => None,
    }
}
