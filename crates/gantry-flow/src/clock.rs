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
                tokio::time::sleep(sleep_until(time, self.now())).await;
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

/// How long to sleep before the time is compared again.
fn sleep_until(time: i64, now: i64) -> Duration {
    let left = u64::try_from(time.saturating_sub(now)).unwrap_or(0);
    Duration::from_millis(left).min(LONGEST_SLEEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s13_sleeps_are_short_so_that_a_suspended_machine_notices_the_time() {
        assert_eq!(sleep_until(8 * 3_600_000, 0), Duration::from_secs(20));
        assert_eq!(sleep_until(i64::MAX, i64::MIN), Duration::from_secs(20));
        assert_eq!(sleep_until(1_500, 1_000), Duration::from_millis(500));
        assert_eq!(sleep_until(1_000, 9_000), Duration::ZERO);
    }

    #[tokio::test]
    async fn virtual_clock_wakes_waiters_when_it_is_moved() {
        let clock = Clock::virtual_at(10);
        clock.wait_until(10).await;
        let waiting = tokio::spawn({
            let clock = clock.clone();
            async move {
                while clock.now() < 20 {
                    clock.wait_until(20).await;
                }
            }
        });
        for now in [15, 20] {
            tokio::time::sleep(Duration::from_millis(20)).await;
            clock.set(now);
        }
        waiting.await.unwrap();
    }
}
