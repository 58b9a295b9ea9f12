//! What calls under way may still cost. It counts as spent until they have ended, so that calls side by side do not pass a
//! budget together which each of them would keep.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_agent::Asker;
use gantry_model::{Money, Spent};
use gantry_store::BELOW;

#[derive(Debug, Clone, Default)]
pub(super) struct Holds(Arc<Mutex<Vec<Hold>>>);

#[derive(Debug)]
struct Hold {
    number: u64,
    agent: String,
    account: String,
    most: Money,
}

/// Counts until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    holds: Holds,
    number: u64,
}

impl Holds {
    pub(super) fn hold(&self, asker: &Asker, most: Money) -> Held {
        let mut holds = self.lock();
        let number = holds.last().map_or(0, |last| last.number + 1);
        holds.push(Hold { number, agent: asker.agent.clone(), account: asker.account.clone(), most });
        Held { holds: self.clone(), number }
    }

    /// What is held of an account and those beneath it, of an agent, and in all.
    pub(super) fn sum(&self, account: &str, agent: &str) -> Spent {
        let is_beneath = |hold: &Hold| {
            hold.account.strip_prefix(account).is_some_and(|rest| rest.is_empty() || rest.starts_with(BELOW))
        };
        let holds = self.lock();
        let sum = |counts: &dyn Fn(&Hold) -> bool| {
            holds.iter().filter(|hold| counts(hold)).fold(Money::ZERO, |sum, hold| sum + hold.most)
        };
        Spent { run: sum(&is_beneath), agent: sum(&|hold| hold.agent == agent), day: sum(&|_| true) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Hold>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.holds.lock().retain(|hold| hold.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_counts_for_everybody_above_until_it_is_dropped() {
        let holds = Holds::default();
        let asker = |agent: &str, account: &str| Asker {
            agent: agent.into(),
            run: "r".into(),
            account: account.into(),
            budgets: Vec::new(),
        };
        let money = Money::from_nanos;
        let first = holds.hold(&asker("a", "r\u{1f}x"), money(1));
        let second = holds.hold(&asker("a", "r"), money(20));
        let _other = holds.hold(&asker("b", "rr"), money(300));
        let sum = |account: &str, agent: &str| {
            let Spent { run, agent, day } = holds.sum(account, agent);
            (run.nanos(), agent.nanos(), day.nanos())
        };
        assert_eq!((sum("r", "a"), sum("r\u{1f}x", "b")), ((21, 21, 321), (1, 300, 321)));
        drop(first);
        assert_eq!(sum("r", "a"), (20, 20, 320));
        drop(second);
        assert_eq!(sum("r", "a"), (0, 0, 300));
    }
}
