//! [`Pairs`] limits how often one agent writes to another, over all their sessions. Two agents that only answer each other
//! come to rest.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use crate::state::MINUTE_MS;

/// The highest number of messages from one agent to another within a minute.
pub(crate) const PER_MINUTE: usize = 10;
/// The number of pairs that are remembered. Stale pairs are dropped.
const MAX_PAIRS: usize = 4_096;

/// The times of messages within the last minute, by sender and receiver.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    written: Mutex<HashMap<(String, String), VecDeque<i64>>>,
}

impl Pairs {
    /// Counts a message. Returns false if the pair has reached its limit.
    pub(crate) fn may_write(&self, from: &str, to: &str, now: i64) -> bool {
        let is_recent = |at: &i64| now.saturating_sub(*at) < MINUTE_MS;
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.len() >= MAX_PAIRS {
            written.retain(|_, times| times.iter().any(is_recent));
        }
        let times = written.entry((from.to_owned(), to.to_owned())).or_default();
        times.retain(is_recent);
        let allowed = times.len() < PER_MINUTE;
        if allowed {
            times.push_back(now);
        }
        allowed
    }
}

/// Returns the agent of a session's key. A child counts as an agent of its own.
pub(crate) fn agent_of(session: &str) -> &str {
    let mut parts = session.splitn(4, ':').skip(1);
    match (parts.next(), parts.next()) {
        (Some(_), Some("child")) | (None, _) => session,
        (Some(agent), _) => agent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_a_pair_covers_all_its_sessions() {
        assert_eq!(agent_of("agent:main:main"), "main");
        assert_eq!(agent_of("agent:main:dm:7"), "main");
        assert_eq!(agent_of("agent:main:child:9f"), "agent:main:child:9f");
        let pairs = Pairs::default();
        let sent = |from: &str, to: &str, now| pairs.may_write(agent_of(from), agent_of(to), now);
        for number in 0..PER_MINUTE {
            assert!(sent(&format!("agent:a:s{number}"), &format!("agent:b:s{number}"), 1_000));
        }
        assert!(!sent("agent:a:other", "agent:b:other", 1_000));
        assert!(sent("agent:b:main", "agent:a:main", 1_000) && sent("agent:a:main", "agent:c:main", 1_000));
        assert!(sent("agent:a:child:1", "agent:b:main", 1_000), "a child is an agent of its own");
        assert!(sent("agent:a:other", "agent:b:other", 1_000 + MINUTE_MS));
    }
}
