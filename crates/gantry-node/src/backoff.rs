//! How long to wait before dialling again.

use std::time::Duration;

/// Full jitter: any time up to a bound that doubles with every failure. Many nodes that lost one gateway must not come
/// back in step.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The first bound.
    pub first: Duration,
    /// The last bound.
    pub slowest: Duration,
    /// A connection that lived this long has not failed, nor has one that lived longer than the wait before it could be.
    pub steady: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            first: Duration::from_secs(1),
            slowest: Duration::from_secs(60),
            steady: Duration::from_secs(60),
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

    /// After a connection that lived this long, or none at all.
    pub(crate) fn after(&mut self, lived: Duration) -> Duration {
        if lived >= self.bound().min(self.pace.steady) {
            self.failures = 0;
        }
        let bound = self.bound();
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(random())
    }

    fn bound(&self) -> Duration {
        self.pace.first.saturating_mul(1 << self.failures.min(20)).min(self.pace.slowest)
    }

    /// When trying again is not likely to help before somebody does something.
    pub(crate) fn slow(&mut self) -> Duration {
        self.failures = self.failures.max(6);
        self.pace.slowest.mul_f64(0.5 + random() / 2.0)
    }
}

/// From 0 to 1.
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
    fn bounds_double_up_to_the_slowest_and_fall_back_after_a_steady_connection() {
        let bound = |failures| longest(|| Backoff { pace: Pace::default(), failures }.after(Duration::ZERO));
        for (failures, seconds) in
            [(0, 1.0), (1, 2.0), (3, 8.0), (5, 32.0), (6, 60.0), (60, 60.0), (u32::MAX, 60.0)]
        {
            let longest = bound(failures).as_secs_f64();
            assert!(longest <= seconds && longest > seconds * 0.9, "{failures}: {longest}");
        }
        let mut backoff = Backoff { pace: Pace::default(), failures: 9 };
        assert!(backoff.after(Duration::from_secs(61)) <= Duration::from_secs(1));
        // A network that breaks every few seconds is not a gateway that is away.
        let after = |lived| {
            longest(|| Backoff { pace: Pace::default(), failures: 3 }.after(Duration::from_secs(lived)))
        };
        assert!(after(9) <= Duration::from_secs(1), "{:?}", after(9));
        assert!(after(7) > Duration::from_secs(7), "{:?}", after(7));
    }

    #[test]
    fn the_slow_pace_is_never_a_tight_loop() {
        let mut backoff = Backoff::new(Pace::default());
        for _ in 0..200 {
            let wait = backoff.slow();
            assert!((Duration::from_secs(30)..=Duration::from_secs(60)).contains(&wait), "{wait:?}");
        }
    }
}
