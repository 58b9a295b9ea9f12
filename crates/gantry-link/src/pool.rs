//! A memory quota for messages: [`Pool`] limits the bytes of all connections, [`Account`] the bytes of one peer.
//!
//! The pool only counts. A [`Reservation`] is stored together with the bytes it accounts for and returns its
//! share of the quota when it is dropped.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The bytes that all connections of one kind may hold in messages that are incomplete, being processed, or
/// not yet written.
pub const POOL_BYTES: u32 = 256 << 20;

/// The bytes that a connection may hold in either direction without a reservation, so that small messages
/// pass even when the pool is exhausted.
pub const FREE_BYTES: usize = 64 << 10;

/// Bytes beyond [`FREE_BYTES`] count twice: once for the message, once for the values parsed from it.
pub const MEMORY_FACTOR: usize = 2;

/// How long [`Account::reserve`] waits before it reports that the quota is exhausted.
pub const RESERVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The smallest reservation whose release wakes [`Pool::released`].
const LARGE_RELEASE: usize = 1 << 20;

/// The memory quota of one process, or of one group of its peers.
#[derive(Debug, Clone)]
pub struct Pool {
    room: Arc<Semaphore>,
    released: Arc<Notify>,
    bytes: u32,
}

impl Default for Pool {
    fn default() -> Self {
        Pool::new(POOL_BYTES)
    }
}

impl Pool {
    pub fn new(bytes: u32) -> Pool {
        Pool { room: semaphore(bytes), released: Arc::default(), bytes }
    }

    /// Creates a second quota of the same size for other peers. Neither pool can exhaust the other;
    /// [`Pool::released`] reports releases of both.
    pub fn separate(&self) -> Pool {
        Pool { room: semaphore(self.bytes), released: self.released.clone(), bytes: self.bytes }
    }

    /// Returns when a large reservation was released since the last call, here or in a separate pool.
    pub async fn released(&self) {
        self.released.notified().await;
    }

    /// Creates an account that may use the whole pool.
    pub fn whole(&self) -> Account {
        self.account(self.bytes)
    }

    /// Creates an account that may use half of the pool, so that it cannot block all others.
    pub fn half(&self) -> Account {
        self.account(self.bytes / 2)
    }

    fn account(&self, limit: u32) -> Account {
        let released = self.released.clone();
        Account { pool: self.room.clone(), own: semaphore(limit), released, limit }
    }
}

/// The part of a pool that one peer may use over all its connections. Clones share the account.
#[derive(Debug, Clone)]
pub struct Account {
    own: Arc<Semaphore>,
    pool: Arc<Semaphore>,
    released: Arc<Notify>,
    limit: u32,
}

/// Bytes that are reserved until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    own: OwnedSemaphorePermit,
    pool: OwnedSemaphorePermit,
    released: Arc<Notify>,
}

impl Account {
    /// Reserves bytes if they are free now.
    pub fn try_reserve(&self, bytes: usize) -> Option<Reservation> {
        let bytes = u32::try_from(bytes).ok()?;
        let own = self.own.clone().try_acquire_many_owned(bytes).ok()?;
        let pool = self.pool.clone().try_acquire_many_owned(bytes).ok()?;
        Some(Reservation { own, pool, released: self.released.clone() })
    }

    /// Reserves bytes and waits for them up to [`RESERVE_TIMEOUT`].
    pub async fn reserve(&self, bytes: usize) -> Option<Reservation> {
        if !self.could_hold(bytes) {
            return None;
        }
        let bytes = u32::try_from(bytes).ok()?;
        let taken = async {
            // The account first: a peer at its own limit must not hold bytes of the pool while it waits.
            let own = self.own.clone().acquire_many_owned(bytes).await.ok()?;
            let pool = self.pool.clone().acquire_many_owned(bytes).await.ok()?;
            Some(Reservation { own, pool, released: self.released.clone() })
        };
        tokio::time::timeout(RESERVE_TIMEOUT, taken).await.ok().flatten()
    }

    /// Whether the account is large enough for `bytes` at all.
    pub fn could_hold(&self, bytes: usize) -> bool {
        u32::try_from(bytes).is_ok_and(|bytes| bytes <= self.limit)
    }

    /// Whether no other clone or reservation of this account exists.
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.own) == 1
    }
}

impl Reservation {
    pub fn bytes(&self) -> usize {
        self.own.num_permits()
    }

    /// Merges this reservation into `held`, which belongs to the same account.
    pub fn add_to(self, held: &mut Option<Reservation>) {
        match held {
            Some(held) => held.join(self),
            None => *held = Some(self),
        }
    }

    fn join(&mut self, mut other: Reservation) {
        let bytes = other.bytes();
        // Splitting off all permits always succeeds.
        if let (Some(own), Some(pool)) = (other.own.split(bytes), other.pool.split(bytes)) {
            self.own.merge(own);
            self.pool.merge(pool);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes() >= LARGE_RELEASE {
            self.released.notify_one();
        }
    }
}

fn semaphore(bytes: u32) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(usize::try_from(bytes).unwrap_or(Semaphore::MAX_PERMITS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_accounts_together_get_no_more_than_the_pool() {
        let pool = Pool::new(100);
        let (one, two, three) = (pool.half(), pool.half(), pool.whole());
        let first = one.try_reserve(50).unwrap();
        assert!(one.try_reserve(1).is_none(), "the account is at its limit");
        let mut second = two.try_reserve(20).unwrap();
        second.join(two.try_reserve(30).unwrap());
        assert_eq!(second.bytes(), 50);
        assert!(three.try_reserve(1).is_none(), "the pool is exhausted");
        drop(first);
        assert!(two.try_reserve(1).is_none());
        assert_eq!(three.try_reserve(50).map(|reserved| reserved.bytes()), Some(50));
        drop(second);
        assert!(three.try_reserve(100).is_some(), "dropped reservations are free again");
    }

    #[test]
    fn separate_pool_is_not_affected_by_the_first() {
        let pool = Pool::new(100);
        let separate = pool.separate();
        let _all = pool.whole().try_reserve(100).unwrap();
        assert!(pool.whole().try_reserve(1).is_none());
        assert!(separate.whole().try_reserve(100).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn reserve_waits_until_its_timeout() {
        let account = Pool::new(100).whole();
        let held = account.try_reserve(80).unwrap();
        assert!(account.reserve(101).await.is_none(), "more than the limit");
        let began = tokio::time::Instant::now();
        assert!(account.reserve(30).await.is_none());
        assert_eq!(began.elapsed(), RESERVE_TIMEOUT);
        let waiting = tokio::spawn({
            let account = account.clone();
            async move { account.reserve(30).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(held);
        assert!(waiting.await.unwrap().is_some());
        assert!(account.try_reserve(100).is_some(), "the reservation was released");
    }
}
