//! [`Windows`] knows when each person wrote last. WhatsApp accepts free texts for 24 hours after that, and templates only
//! later. The account's cursor holds it, so that a restart does not forget it.

use std::collections::HashMap;

/// How long after a message of theirs a person can be written to.
const WINDOW_MS: i64 = 24 * 3600 * 1000;
/// How many people are remembered. The ones who wrote longest ago are forgotten first.
const MAX_PEOPLE: usize = 500;

#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Milliseconds since 1970, by person.
    last: HashMap<String, i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Window {
    Open,
    Closed,
    /// The provider decides.
    Unknown,
}

impl Windows {
    /// Adds what a cursor says. Newer times stay.
    pub(super) fn load(&mut self, cursor: &str) {
        let saved: HashMap<String, i64> = serde_json::from_str(cursor).unwrap_or_default();
        for (person, at) in saved.into_iter().take(MAX_PEOPLE) {
            self.note(&person, at);
        }
    }

    pub(super) fn note(&mut self, person: &str, at: i64) {
        if self.last.len() >= MAX_PEOPLE && !self.last.contains_key(person) {
            let oldest = self.last.iter().min_by_key(|(_, at)| **at).map(|(person, _)| person.clone());
            oldest.and_then(|oldest| self.last.remove(&oldest));
        }
        let last = self.last.entry(person.to_owned()).or_insert(at);
        *last = at.max(*last);
    }

    /// The provider said that the window is closed.
    pub(super) fn close(&mut self, person: &str) {
        if let Some(last) = self.last.get_mut(person) {
            *last = 0;
        }
    }

    pub(super) fn of(&self, person: &str, now: i64) -> Window {
        match self.last.get(person) {
            None => Window::Unknown,
            Some(at) if now.saturating_sub(*at) < WINDOW_MS => Window::Open,
            Some(_) => Window::Closed,
        }
    }

    pub(super) fn cursor(&self) -> String {
        serde_json::to_string(&self.last).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_closes_after_a_day_and_survives_a_restart() {
        let mut windows = Windows::default();
        windows.note("DE.1", 1_000);
        windows.note("DE.1", 500);
        let mut again = Windows::default();
        again.load(&windows.cursor());
        for windows in [&windows, &again] {
            assert_eq!(windows.of("DE.1", 1_000 + WINDOW_MS - 1), Window::Open);
            assert_eq!(windows.of("DE.1", 1_000 + WINDOW_MS), Window::Closed);
            assert_eq!(windows.of("DE.2", 0), Window::Unknown);
        }
        again.close("DE.1");
        again.close("DE.2");
        assert_eq!((again.of("DE.1", 2 * WINDOW_MS), again.of("DE.2", 0)), (Window::Closed, Window::Unknown));
        again.load("not a cursor");
    }

    #[test]
    fn number_of_people_is_bounded() {
        let mut windows = Windows::default();
        for person in 0..2 * MAX_PEOPLE as i64 {
            windows.note(&person.to_string(), person);
        }
        assert_eq!(windows.last.len(), MAX_PEOPLE);
        assert_eq!(windows.of("0", 1), Window::Unknown, "the oldest is forgotten");
    }
}
