//! Limits how long an answer may take.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The limit over all attempts, including the fallback.
    pub deadline: Instant,
    /// A stream that is silent for this long is given up. Pings count as activity.
    pub stall: Duration,
    /// Whether the fallback model may be asked.
    pub fallback: bool,
}

impl Limits {
    pub fn within(time: Duration) -> Limits {
        // A year is practically unlimited, and can be added to any clock.
        let deadline = Instant::now() + time.min(Duration::from_secs(365 * 24 * 3600));
        Limits { deadline, stall: Duration::from_secs(120), fallback: true }
    }
}
