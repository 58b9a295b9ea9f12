//! The queue of frames to a peer. It is bounded in frames and, for senders that can wait, in bytes. Beyond
//! [`FREE_BYTES`] frames need a reservation from the memory quota that all connections share.
//!
//! Senders that cannot wait bypass the byte limit. Their frames are small, or stream frames that the receiver's
//! credit limits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};
use tokio_websockets::Message;

use super::LinkOptions;
use crate::pool::{Account, FREE_BYTES, Reservation};

/// How often a sender that can wait retries its reservation.
const RETRY_EVERY: Duration = Duration::from_millis(50);

/// The queue. Senders push frames, and the link's task pops and writes them.
pub(super) struct Outgoing {
    queue: Mutex<VecDeque<Queued>>,
    /// Wakes the link's task.
    writer: AtomicWaker,
    /// A permit for each frame that may still be queued.
    slots: Semaphore,
    /// A permit for each byte that may still be queued.
    room: Semaphore,
    budget: u32,
    /// The bytes of queued frames and of frames that wait for a place in the queue.
    held: AtomicUsize,
    account: Option<Account>,
}

/// A frame with what it holds of the limits until it is written.
pub(super) struct Queued {
    pub(super) message: Message,
    cost: Cost,
}

/// What [`Outgoing::written`] releases once a frame is written.
#[derive(Default)]
pub(super) struct Cost {
    bytes: u32,
    held: usize,
    _reservation: Option<Reservation>,
}

impl Cost {
    /// Whether the frame must count against the limits until the socket is flushed.
    pub(super) fn is_large(&self) -> bool {
        self.held > FREE_BYTES
    }
}

/// The right of one frame to wait in memory.
pub(super) struct Admitted<'a> {
    outgoing: &'a Outgoing,
    held: usize,
    reservation: Option<Reservation>,
}

/// A reserved place in the queue for one frame.
pub(super) struct Slot<'a> {
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

    /// Admits a frame of this length to wait. Returns `None` when the memory quota is exhausted.
    pub(super) fn admit(&self, length: usize) -> Option<Admitted<'_>> {
        let waiting = self.held.fetch_add(length, Ordering::Relaxed);
        let mut admitted = Admitted { outgoing: self, held: length, reservation: None };
        if let Some(account) = &self.account
            && waiting + length > FREE_BYTES
        {
            admitted.reservation = Some(account.try_reserve(length)?);
        }
        Some(admitted)
    }

    /// Admits a short error that replaces an answer for which the quota was exhausted.
    pub(super) fn admit_small(&self, length: usize) -> Admitted<'_> {
        self.held.fetch_add(length, Ordering::Relaxed);
        Admitted { outgoing: self, held: length, reservation: None }
    }

    /// Like [`Outgoing::admit`], and waits until the quota allows it.
    pub(super) async fn wait_to_admit(&self, length: usize) -> Admitted<'_> {
        loop {
            match self.admit(length) {
                Some(admitted) => return admitted,
                None => tokio::time::sleep(RETRY_EVERY).await,
            }
        }
    }

    /// Waits for a place in the queue. A frame longer than the budget waits until it has all of the budget.
    /// Returns `None` when the queue is closed.
    pub(super) async fn reserve<'a>(&'a self, admitted: Admitted<'a>) -> Option<Slot<'a>> {
        let bytes = u32::try_from(admitted.held).unwrap_or(u32::MAX).min(self.budget);
        let bytes = permits(&self.room, bytes).await?;
        Some(Slot { slot: permits(&self.slots, 1).await?, bytes, admitted })
    }

    /// Queues a frame without waiting and outside the byte budget.
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

    /// Registers the task to wake. The task must do this before it checks the queue, so that later frames
    /// wake it.
    pub(super) fn register_writer(&self, writer: &Waker) {
        self.writer.register(writer);
    }

    /// Wakes the link's task.
    pub(super) fn wake(&self) {
        self.writer.wake();
    }

    fn push(&self, queued: Queued) {
        let mut queue = self.queue();
        // A sender that got its place before the queue was closed must not leave a frame in it.
        if !self.slots.is_closed() {
            queue.push_back(queued);
        }
    }

    /// Removes the next frame.
    pub(super) fn pop(&self) -> Option<Queued> {
        let queued = self.queue().pop_front()?;
        self.slots.add_permits(1);
        Some(queued)
    }

    /// Closes the queue and returns the frames in it.
    pub(super) fn close(&self) -> VecDeque<Queued> {
        let mut queue = self.queue();
        self.slots.close();
        self.room.close();
        std::mem::take(&mut *queue)
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Queued>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases what a written frame held.
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

impl Slot<'_> {
    pub(super) fn send(self, message: Message) {
        let outgoing = self.admitted.outgoing;
        self.send_without_wake(message);
        outgoing.wake();
    }

    /// Like [`Slot::send`], without waking the task: only for the task itself, which writes before it sleeps.
    pub(super) fn send_without_wake(mut self, message: Message) {
        let bytes = u32::try_from(self.bytes.num_permits()).unwrap_or(u32::MAX);
        self.bytes.forget();
        self.slot.forget();
        let held = std::mem::take(&mut self.admitted.held);
        let reservation = self.admitted.reservation.take();
        self.admitted
            .outgoing
            .push(Queued { message, cost: Cost { bytes, held, _reservation: reservation } });
    }
}

impl Queued {
    pub(super) fn take(self) -> (Message, Cost) {
        (self.message, self.cost)
    }
}

/// Acquires permits, or returns `None` when the semaphore is closed. Tries without waiting first, because
/// permits are nearly always free.
async fn permits(semaphore: &Semaphore, count: u32) -> Option<SemaphorePermit<'_>> {
    match semaphore.try_acquire_many(count) {
        Ok(permits) => Some(permits),
        Err(TryAcquireError::NoPermits) => semaphore.acquire_many(count).await.ok(),
        Err(TryAcquireError::Closed) => None,
    }
}
