//! Room for messages under way: a number of bytes in all, of which one account may have a part. Counts, and holds nothing
//! itself: a [`Share`] is kept beside the bytes it stands for, and gives its room back when it is dropped.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// What connections of one kind may hold together of messages that are unfinished, worked on, or not yet written.
pub const POOL_BYTES: u32 = 256 << 20;

/// What a connection may hold in either direction without asking: small messages pass also when there is no room.
pub const FREE_BYTES: usize = 64 << 10;

/// A message counts twice beyond that: as it came, and as what is made of it.
pub const WEIGHT: usize = 2;

/// How long somebody waits for room before being told that there is none.
pub const ROOM_WAIT: Duration = Duration::from_secs(10);

/// A share of which it is told when it is given back.
const MUCH: usize = 1 << 20;

/// The room of one process, or of those of its peers who share theirs.
#[derive(Debug, Clone)]
pub struct Pool {
    room: Arc<Semaphore>,
    given_back: Arc<Notify>,
    bytes: u32,
}

impl Default for Pool {
    fn default() -> Self {
        Pool::new(POOL_BYTES)
    }
}

impl Pool {
    pub fn new(bytes: u32) -> Pool {
        Pool { room: semaphore(bytes), given_back: Arc::default(), bytes }
    }

    /// As much room again, for others: whatever these do, those have theirs. Told of together.
    pub fn beside(&self) -> Pool {
        Pool { room: semaphore(self.bytes), given_back: self.given_back.clone(), bytes: self.bytes }
    }

    /// Returns when much was given back since the last time, here or beside.
    pub async fn given_back(&self) {
        self.given_back.notified().await;
    }

    /// For somebody who may have all of it.
    pub fn whole(&self) -> Account {
        self.account(self.bytes)
    }

    /// For somebody who may have half of it, so that others always find some.
    pub fn half(&self) -> Account {
        self.account(self.bytes / 2)
    }

    fn account(&self, limit: u32) -> Account {
        let given_back = self.given_back.clone();
        Account { pool: self.room.clone(), own: semaphore(limit), given_back, limit }
    }
}

/// What one peer may take of a pool, over all its connections. Clones are the same account.
#[derive(Debug, Clone)]
pub struct Account {
    own: Arc<Semaphore>,
    pool: Arc<Semaphore>,
    given_back: Arc<Notify>,
    limit: u32,
}

/// Room that was taken.
#[derive(Debug)]
pub struct Share {
    own: OwnedSemaphorePermit,
    pool: OwnedSemaphorePermit,
    given_back: Arc<Notify>,
}

impl Account {
    /// Room for so many bytes if there is some now.
    pub fn try_take(&self, bytes: usize) -> Option<Share> {
        let bytes = u32::try_from(bytes).ok()?;
        let own = self.own.clone().try_acquire_many_owned(bytes).ok()?;
        let pool = self.pool.clone().try_acquire_many_owned(bytes).ok()?;
        Some(Share { own, pool, given_back: self.given_back.clone() })
    }

    /// Room for so many bytes, waited for no longer than [`ROOM_WAIT`].
    pub async fn take(&self, bytes: usize) -> Option<Share> {
        if !self.could_hold(bytes) {
            return None;
        }
        let bytes = u32::try_from(bytes).ok()?;
        let taken = async {
            // One's own first: who has had enough must not stand in the way of others.
            let own = self.own.clone().acquire_many_owned(bytes).await.ok()?;
            let pool = self.pool.clone().acquire_many_owned(bytes).await.ok()?;
            Some(Share { own, pool, given_back: self.given_back.clone() })
        };
        tokio::time::timeout(ROOM_WAIT, taken).await.ok().flatten()
    }

    /// Whether there could ever be room for so many.
    pub fn could_hold(&self, bytes: usize) -> bool {
        u32::try_from(bytes).is_ok_and(|bytes| bytes <= self.limit)
    }

    /// Whether nobody else has this account any more.
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.own) == 1
    }
}

impl Share {
    pub fn bytes(&self) -> usize {
        self.own.num_permits()
    }

    /// Adds it to what is held of the same account, if anything is.
    pub fn add_to(self, held: &mut Option<Share>) {
        match held {
            Some(held) => held.join(self),
            None => *held = Some(self),
        }
    }

    fn join(&mut self, mut other: Share) {
        let bytes = other.bytes();
        // All of it, so that there is always something to split off.
        if let (Some(own), Some(pool)) = (other.own.split(bytes), other.pool.split(bytes)) {
            self.own.merge(own);
            self.pool.merge(pool);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.bytes() >= MUCH {
            self.given_back.notify_one();
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
    fn all_accounts_together_have_no_more_than_the_pool() {
        let pool = Pool::new(100);
        let (one, two, three) = (pool.half(), pool.half(), pool.whole());
        let first = one.try_take(50).unwrap();
        assert!(one.try_take(1).is_none(), "half is half");
        let mut second = two.try_take(20).unwrap();
        second.join(two.try_take(30).unwrap());
        assert_eq!(second.bytes(), 50);
        assert!(three.try_take(1).is_none(), "nothing is left");
        drop(first);
        assert!(two.try_take(1).is_none());
        assert_eq!(three.try_take(50).map(|share| share.bytes()), Some(50));
        drop(second);
        assert!(three.try_take(100).is_some(), "what is dropped is there again");
    }

    #[test]
    fn who_is_beside_has_room_of_their_own() {
        let pool = Pool::new(100);
        let beside = pool.beside();
        let _all = pool.whole().try_take(100).unwrap();
        assert!(pool.whole().try_take(1).is_none());
        assert!(beside.whole().try_take(100).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_waited_for_but_not_for_ever() {
        let account = Pool::new(100).whole();
        let held = account.try_take(80).unwrap();
        assert!(account.take(101).await.is_none(), "never");
        let began = tokio::time::Instant::now();
        assert!(account.take(30).await.is_none());
        assert_eq!(began.elapsed(), ROOM_WAIT);
        let waiting = tokio::spawn({
            let account = account.clone();
            async move { account.take(30).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(held);
        assert!(waiting.await.unwrap().is_some());
        assert!(account.try_take(100).is_some(), "and given back");
    }
}
