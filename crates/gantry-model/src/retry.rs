//! Decides when to retry: full jitter between zero and a growing bound, unless the provider says
//! when.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use gantry_net::HeaderMap;
use jiff::Timestamp;
use jiff::fmt::rfc2822;

#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// The attempts of one model, including the first.
    pub attempts: u32,
    /// The bound of the first pause. It doubles each time.
    pub first_pause: Duration,
    pub longest_pause: Duration,
    /// If a provider asks for a longer wait, the attempt fails.
    pub longest_wait: Duration,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            attempts: 4,
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
            longest_wait: Duration::from_secs(60),
        }
    }
}

impl RetryPolicy {
    /// Returns the pause after `failed` attempts; `None` if it would be too long.
    pub(crate) fn pause(&self, failed: u32, asked: Option<Duration>) -> Option<Duration> {
        match asked {
            Some(asked) => (asked <= self.longest_wait).then_some(asked),
            None => {
                let doubled = 2_u32.saturating_pow(failed.saturating_sub(1));
                let bound = self.first_pause.saturating_mul(doubled).min(self.longest_pause);
                Some(bound.mul_f64(share()))
            }
        }
    }
}

/// Returns a number from 0 to 1. It only has to differ between callers, which a hasher's seed does.
fn share() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

/// Reads `retry-after` in seconds or as a date, or `retry-after-ms`.
pub(crate) fn asked_for(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let seconds = |text: &str, unit: f64| {
        let number: f64 = text.parse().ok().filter(|number: &f64| *number >= 0.0)?;
        Duration::try_from_secs_f64(number * unit).ok()
    };
    let after = text("retry-after");
    text("retry-after-ms")
        .and_then(|text| seconds(text, 0.001))
        .or_else(|| after.and_then(|text| seconds(text, 1.0)))
        .or_else(|| {
            let at = rfc2822::parse(after?).ok()?.timestamp();
            Some(Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[(&'static str, &'static str)], expected: Option<Duration>) {
        let now = "2026-11-16T12:00:00Z".parse().unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        assert_eq!(asked_for(&map, now), expected, "{headers:?}");
    }

    #[test]
    fn every_form_of_retry_after_is_parsed() {
        check(&[], None);
        check(&[("retry-after", "7")], Some(Duration::from_secs(7)));
        check(&[("retry-after", "0.5")], Some(Duration::from_millis(500)));
        check(&[("retry-after", "Mon, 16 Nov 2026 12:00:30 GMT")], Some(Duration::from_secs(30)));
        check(&[("retry-after", "Mon, 16 Nov 2026 11:00:30 GMT")], Some(Duration::ZERO));
        check(&[("retry-after", "9"), ("retry-after-ms", "250")], Some(Duration::from_millis(250)));
        for odd in ["-3", "soon", "NaN", "inf", "1e300", ""] {
            check(&[("retry-after", odd)], None);
        }
    }

    #[test]
    fn pauses_grow_within_bounds_and_differ() {
        let policy = RetryPolicy::default();
        let pauses = |failed| (0..50).map(move |_| policy.pause(failed, None).unwrap());
        assert!(pauses(1).all(|pause| pause <= Duration::from_secs(1)));
        assert!(pauses(3).all(|pause| pause <= Duration::from_secs(4)));
        assert!(pauses(3).any(|pause| pause > Duration::from_secs(1)));
        assert!(pauses(u32::MAX).all(|pause| pause <= Duration::from_secs(30)));
        let first = policy.pause(2, None);
        assert!((0..20).any(|_| policy.pause(2, None) != first), "everybody would come back at once");
        assert_eq!(policy.pause(1, Some(Duration::from_secs(60))), Some(Duration::from_secs(60)));
        assert_eq!(policy.pause(1, Some(Duration::from_secs(61))), None);
    }
}
