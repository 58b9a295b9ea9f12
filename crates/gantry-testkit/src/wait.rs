//! Waiting for a condition by polling.

use std::time::{Duration, Instant};

/// `SOON` is the limit for steps that take a moment, on a machine that is busy with other tests.
pub const SOON: Duration = Duration::from_secs(20);

const STEP: Duration = Duration::from_millis(10);

/// Waits until the condition holds and returns how long that took. Panics with `what` after `within`.
#[track_caller]
pub fn eventually(what: &str, within: Duration, mut condition: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < within, "not within {within:?}: {what}");
        std::thread::sleep(STEP);
    }
    began.elapsed()
}

/// Like [`eventually`], for async tests. It also works in paused time.
pub async fn eventually_async(what: &str, within: Duration, mut condition: impl FnMut() -> bool) -> Duration {
    let began = tokio::time::Instant::now();
    while !condition() {
        assert!(began.elapsed() < within, "not within {within:?}: {what}");
        tokio::time::sleep(STEP).await;
    }
    began.elapsed()
}
