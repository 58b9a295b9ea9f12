//! [`SentGuard`] limits how many messages are sent, and refuses the same message twice in a short time.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gantry_tool::ToolError;

use crate::mail::Letter;

const SAME_WITHIN: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const PER_HOUR: usize = 50;
const PER_DAY: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Sent {
    at: Instant,
    account: String,
    fingerprint: blake3::Hash,
}

#[derive(Debug, Default)]
pub(super) struct SentGuard(Mutex<VecDeque<Sent>>);

impl SentGuard {
    /// Counts a letter before it is sent. The returned fingerprint takes it back with [`SentGuard::forget`].
    pub(super) fn count(
        &self,
        account: &str,
        letter: &Letter,
        now: Instant,
    ) -> Result<blake3::Hash, ToolError> {
        let fingerprint = fingerprint(letter);
        let mut sent = self.lock();
        while sent.front().is_some_and(|oldest| now.duration_since(oldest.at) >= DAY) {
            sent.pop_front();
        }
        let within = |limit: Duration| {
            let recent = move |one: &&Sent| one.account == account && now.duration_since(one.at) < limit;
            sent.iter().filter(recent)
        };
        if within(SAME_WITHIN).any(|one| one.fingerprint == fingerprint) {
            return Err(ToolError::failed(
                "the same message was sent less than a minute ago; it was not sent again",
            ));
        }
        for (limit, most, name) in [(HOUR, PER_HOUR, "hour"), (DAY, PER_DAY, "day")] {
            if within(limit).count() >= most {
                return Err(ToolError::failed(format!(
                    "{account} sent {most} messages in the last {name}, which is the limit; nothing was sent"
                )));
            }
        }
        sent.push_back(Sent { at: now, account: account.to_owned(), fingerprint });
        Ok(fingerprint)
    }

    /// Takes back a letter that was not sent.
    pub(super) fn forget(&self, fingerprint: blake3::Hash) {
        let mut sent = self.lock();
        if let Some(at) = sent.iter().rposition(|one| one.fingerprint == fingerprint) {
            sent.remove(at);
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Sent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fingerprint(letter: &Letter) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    let mut add = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    for list in [&letter.to, &letter.cc, &letter.bcc] {
        let mut addresses: Vec<String> = list.iter().map(|one| one.address.to_lowercase()).collect();
        addresses.sort();
        add(addresses.join(",").as_bytes());
    }
    add(letter.subject.as_bytes());
    add(letter.text.as_bytes());
    for file in &letter.attachments {
        add(file.name.as_bytes());
        add(&file.bytes);
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::Mailbox;

    fn letter(text: &str) -> Letter {
        Letter { to: Mailbox::parse_list("a@b.example").unwrap(), text: text.into(), ..Letter::default() }
    }

    #[test]
    fn same_letter_is_refused_for_a_minute() {
        let (guard, start) = (SentGuard::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let first = guard.count("me", &letter("x"), at(0)).unwrap();
        assert!(guard.count("me", &letter("x"), at(59)).is_err());
        assert!(guard.count("me", &letter("y"), at(59)).is_ok());
        assert!(guard.count("me", &letter("x"), at(60)).is_ok());
        guard.forget(first);
        assert!(guard.count("me", &letter("x"), at(61)).is_ok(), "it was not sent after all");
    }

    #[test]
    fn numbers_are_limited_by_hour_and_day() {
        let (guard, start) = (SentGuard::default(), Instant::now());
        let mut sent = 0;
        for minute in 0..(30 * 60) {
            let now = start + Duration::from_secs(minute * 60);
            let before = sent;
            for number in 0..2 {
                sent += usize::from(guard.count("me", &letter(&format!("{minute} {number}")), now).is_ok());
            }
            assert!(sent - before <= 2);
            if minute == 59 {
                assert_eq!(sent, PER_HOUR);
            }
            if minute == 23 * 60 + 59 {
                assert_eq!(sent, PER_DAY);
            }
        }
        assert!(sent > PER_DAY, "the day ends");
        assert!(guard.count("other", &letter("x"), start + DAY).is_ok());
    }
}
