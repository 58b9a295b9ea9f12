//! Computes how long to wait before dialling again.

use std::time::Duration;

/// Full jitter: a random time up to a bound that doubles with every failure. It keeps many nodes that lost one
/// gateway from reconnecting at the same moment.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The first bound.
    pub first: Duration,
    /// The last bound.
    pub slowest: Duration,
    /// A connection that lived this long resets the bound: an unstable network does not mean that the gateway is down.
    pub steady: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            first: Duration::from_secs(1),
            slowest: Duration::from_secs(60),
            steady: Duration::from_secs(1),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Backoff {
    pace: Pace,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(pace: Pace) -> Backoff {
        Backoff { pace, failures: 0 }
    }

    /// Returns the wait after a connection that lived for `lived`, zero if none was made.
    pub(crate) fn after(&mut self, lived: Duration) -> Duration {
        if lived >= self.pace.steady {
            self.failures = 0;
        }
        let bound = self.pace.first.saturating_mul(1 << self.failures.min(20)).min(self.pace.slowest);
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(random())
    }

    /// Returns the wait when a retry is unlikely to help before a person acts.
    pub(crate) fn slow(&mut self) -> Duration {
        self.failures = self.failures.max(6);
        self.pace.slowest.mul_f64(0.5 + random() / 2.0)
    }
}

/// Returns a random number from 0 to 1.
fn random() -> f64 {
    let bits = uuid::Uuid::new_v4().as_u128() >> 96;
    bits as f64 / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(mut next: impl FnMut() -> Duration) -> Duration {
        (0..400).map(|_| next()).max().unwrap()
    }

    #[test]
    fn bounds_double_up_to_the_maximum_and_reset_after_a_stable_connection() {
        let bound = |failures| longest(|| Backoff { pace: Pace::default(), failures }.after(Duration::ZERO));
        for (failures, seconds) in
            [(0, 1.0), (1, 2.0), (3, 8.0), (5, 32.0), (6, 60.0), (60, 60.0), (u32::MAX, 60.0)]
        {
            let longest = bound(failures).as_secs_f64();
            assert!(longest <= seconds && longest > seconds * 0.9, "{failures}: {longest}");
        }
        let mut backoff = Backoff { pace: Pace::default(), failures: 9 };
        assert!(backoff.after(Duration::from_secs(2)) <= Duration::from_secs(1));
        // A connection that closes at once counts as a failure.
        let brief =
            longest(|| Backoff { pace: Pace::default(), failures: 3 }.after(Duration::from_millis(900)));
        assert!(brief > Duration::from_secs(7), "{brief:?}");
    }

    #[test]
    fn slow_wait_is_never_a_tight_loop() {
        let mut backoff = Backoff::new(Pace::default());
        for _ in 0..200 {
            let wait = backoff.slow();
            assert!((Duration::from_secs(30)..=Duration::from_secs(60)).contains(&wait), "{wait:?}");
        }
    }
}
