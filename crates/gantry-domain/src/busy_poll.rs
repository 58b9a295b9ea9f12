//! Stays awake for a moment around a call. Who passes a call on is about to get its answer, and who answered is about to be
//! asked again: going to sleep in between costs more than the call itself.
//!
//! One task, one thread, and only for [`BUSY_POLL`] after the last call began or ended: an idle process sleeps. Not while several calls
//! are under way or come at once either: then there is work enough to stay awake for, and others need the core.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Longer than it takes to wake a neighbour and hear from it, shorter than anybody would notice on a bill.
const BUSY_POLL: Duration = Duration::from_micros(150);

pub struct BusyPoll {
    lasts: Duration,
    since: Instant,
    /// Nanoseconds after `since` when a call last began or ended.
    active: AtomicU64,
    /// How often that was.
    touches: AtomicU64,
    /// Awake, or about to be.
    awake: AtomicBool,
    woken: Notify,
    calls: TaskTracker,
    /// Work that was put off so that nobody had to wait for it.
    settle: Box<dyn Fn() + Send + Sync>,
}

impl BusyPoll {
    /// Of a process whose calls are tracked by these. `settle` does what they put off, while nothing else is to do.
    pub fn new(calls: TaskTracker, settle: impl Fn() + Send + Sync + 'static) -> BusyPoll {
        BusyPoll::lasting(BUSY_POLL, calls, settle)
    }

    fn lasting(lasts: Duration, calls: TaskTracker, settle: impl Fn() + Send + Sync + 'static) -> BusyPoll {
        BusyPoll {
            lasts,
            since: Instant::now(),
            active: AtomicU64::new(0),
            touches: AtomicU64::new(0),
            awake: AtomicBool::new(false),
            woken: Notify::new(),
            calls,
            settle: Box::new(settle),
        }
    }

    /// A call begins or ends.
    pub fn on_activity(&self) {
        self.active.store(self.now(), Ordering::Relaxed);
        self.touches.fetch_add(1, Ordering::Relaxed);
        if self.calls.len() <= 1 && !self.awake.swap(true, Ordering::Relaxed) {
            self.woken.notify_one();
        }
    }

    /// Until the process is to stop.
    pub async fn run(&self, stop: CancellationToken) {
        let mut seen = 0;
        // On a runtime of one thread what follows from input may be for the main task to do, which has its turn after the next look.
        let looks = match Handle::current().runtime_flavor() {
            RuntimeFlavor::CurrentThread => 2,
            _ => 1,
        };
        loop {
            tokio::select! {
                () = self.woken.notified() => {}
                () = stop.cancelled() => return,
            }
            while self.is_active() {
                for _ in 0..looks {
                    look_for_input().await;
                }
                let touches = self.touches.load(Ordering::Relaxed);
                let new = touches.saturating_sub(std::mem::replace(&mut seen, touches));
                if new > 0 {
                    (self.settle)();
                }
                // A call that begins and ends in one turn touches twice; more are several calls.
                if new > 2 {
                    break;
                }
                // Whoever is waited for may need this very core.
                std::thread::yield_now();
            }
            self.awake.store(false, Ordering::Relaxed);
        }
    }

    fn is_active(&self) -> bool {
        let quiet = self.now().saturating_sub(self.active.load(Ordering::Relaxed));
        u128::from(quiet) < self.lasts.as_nanos() && self.calls.len() <= 1
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Lets the runtime look for input, and returns when that is worked on.
async fn look_for_input() {
    tokio::task::yield_now().await;
    // It comes back before it has worked on what came in, for which it is enough to stand behind that.
    let mut stood_behind = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut stood_behind, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn it_stays_awake_while_there_are_calls_and_sleeps_when_there_are_none() {
        let calls = TaskTracker::new();
        let lasts = Duration::from_millis(300);
        let settled = Arc::new(AtomicU64::new(0));
        let counting = settled.clone();
        let settle = move || {
            counting.fetch_add(1, Ordering::Relaxed);
        };
        let busy_poll = Arc::new(BusyPoll::lasting(lasts, calls.clone(), settle));
        let stop = CancellationToken::new();
        let running = tokio::spawn({
            let (busy_poll, stop) = (busy_poll.clone(), stop.clone());
            async move { busy_poll.run(stop).await }
        });
        let awake = || busy_poll.awake.load(Ordering::Relaxed);
        for _ in 0..3 {
            tokio::time::sleep(2 * lasts).await;
            assert!(!awake());
            busy_poll.on_activity();
            tokio::task::yield_now().await;
            assert!(awake());
        }
        tokio::time::sleep(2 * lasts).await;
        assert_eq!(settled.load(Ordering::Relaxed), 3, "once after each call");
        (0..10).for_each(|_| busy_poll.on_activity());
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        assert!(!awake(), "many at once");
        busy_poll.on_activity();
        tokio::task::yield_now().await;
        assert!(awake());
        let _several = (calls.token(), calls.token());
        tokio::time::sleep(2 * lasts).await;
        busy_poll.on_activity();
        tokio::task::yield_now().await;
        assert!(!awake());
        stop.cancel();
        running.await.unwrap();
    }
}
