//! How often one agent writes to another: two that only answer each other come to rest, whichever sessions they use.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use crate::state::MINUTE_MS;

/// Messages of one agent to another within a minute.
pub(crate) const PER_MINUTE: usize = 10;
/// Pairs that are remembered; the stale ones go first.
const MAX_PAIRS: usize = 4_096;

/// When each agent wrote to each other one within the last minute.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    written: Mutex<HashMap<(String, String), VecDeque<i64>>>,
}

impl Pairs {
    /// Counts a message, unless the pair has had its share.
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

/// The agent that a session's key is of: a child is an agent of its own, all other sessions are their agent's.
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
    fn a_pair_has_its_share_whatever_sessions_it_uses() {
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
