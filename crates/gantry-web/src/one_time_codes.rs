//! One-time codes, which open the page in a browser. They are kept in memory, so they end with the gateway.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gantry_store::PlainToken;

/// How long a code is valid.
pub(crate) const CODE_LIFE: Duration = Duration::from_secs(10 * 60);

/// Codes that may be open at a time. Then the oldest one ends.
const MAX_CODES: usize = 64;

/// Longer texts cannot be codes and are not hashed.
const MAX_CODE_CHARS: usize = 64;

#[derive(Default)]
pub(crate) struct OneTimeCodes(Mutex<VecDeque<(blake3::Hash, Instant)>>);

impl OneTimeCodes {
    pub(crate) fn issue(&self, now: Instant) -> io::Result<PlainToken> {
        let code = PlainToken::one_time_code()?;
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MAX_CODES {
            open.pop_front();
        }
        open.push_back((blake3::hash(code.expose().as_bytes()), now));
        Ok(code)
    }

    /// Forgets all codes.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Uses a code up. False if it is unknown, used or too old.
    pub(crate) fn redeem(&self, code: &str, now: Instant) -> bool {
        if code.len() > MAX_CODE_CHARS {
            return false;
        }
        let hash = blake3::hash(code.as_bytes());
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, issued)| now.saturating_duration_since(*issued) < CODE_LIFE);
        // `blake3::Hash` compares in constant time.
        let found = open.iter().position(|(known, _)| *known == hash);
        found.and_then(|index| open.remove(index)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_works_once_and_for_ten_minutes() {
        let (codes, now) = (OneTimeCodes::default(), Instant::now());
        let code = codes.issue(now).unwrap();
        assert_eq!(code.expose().len(), 22, "128 bits");
        for wrong in ["", "x", &code.expose()[..21], &"x".repeat(1000)] {
            assert!(!codes.redeem(wrong, now), "{wrong}");
        }
        assert!(codes.redeem(code.expose(), now + CODE_LIFE - Duration::from_secs(1)));
        assert!(!codes.redeem(code.expose(), now), "used");
        let late = codes.issue(now).unwrap();
        assert!(!codes.redeem(late.expose(), now + CODE_LIFE), "expired");
    }

    #[test]
    fn cleared_codes_are_unknown() {
        let (codes, now) = (OneTimeCodes::default(), Instant::now());
        let code = codes.issue(now).unwrap();
        codes.clear();
        assert!(!codes.redeem(code.expose(), now));
    }

    #[test]
    fn open_codes_are_bounded() {
        let (codes, now) = (OneTimeCodes::default(), Instant::now());
        let issued: Vec<_> = (0..=MAX_CODES).map(|_| codes.issue(now).unwrap()).collect();
        assert!(!codes.redeem(issued[0].expose(), now) && codes.redeem(issued[MAX_CODES].expose(), now));
        assert_eq!(codes.0.lock().unwrap().len(), MAX_CODES - 1);
    }
}
