//! [`Clock`] is the wall clock, or a clock that a test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// A sleep ends at least this often, because a suspended machine and a changed clock do not end it.
const LONGEST_SLEEP: Duration = Duration::from_secs(20);

/// The time in milliseconds since 1970. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Clock(Source);

#[derive(Debug, Clone, Default)]
enum Source {
    #[default]
    System,
    Virtual(Arc<Virtual>),
}

#[derive(Debug)]
struct Virtual {
    now: AtomicI64,
    moved: Notify,
}

impl Clock {
    pub fn system() -> Clock {
        Clock(Source::System)
    }

    /// A clock that stands at `now` until [`Clock::set`] moves it.
    pub fn virtual_at(now: i64) -> Clock {
        Clock(Source::Virtual(Arc::new(Virtual { now: AtomicI64::new(now), moved: Notify::new() })))
    }

    pub fn now(&self) -> i64 {
        match &self.0 {
            Source::System => jiff::Timestamp::now().as_millisecond(),
            Source::Virtual(clock) => clock.now.load(Ordering::SeqCst),
        }
    }

    /// Moves a virtual clock, forwards or backwards. The system's clock stays as it is.
    pub fn set(&self, now: i64) {
        if let Source::Virtual(clock) = &self.0 {
            clock.now.store(now, Ordering::SeqCst);
            clock.moved.notify_waiters();
        }
    }

    /// Waits until `time`, or until something may have changed: callers compare the time again.
    pub async fn wait_until(&self, time: i64) {
        match &self.0 {
            Source::System => {
                let left = u64::try_from(time.saturating_sub(self.now())).unwrap_or(0);
                tokio::time::sleep(Duration::from_millis(left).min(LONGEST_SLEEP)).await;
            }
            Source::Virtual(clock) => {
                let moved = clock.moved.notified();
                if clock.now.load(Ordering::SeqCst) < time {
                    moved.await;
                }
            }
        }
    }
}
