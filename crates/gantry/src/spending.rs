//! What agents may spend: checked before a call of a model, together with the calls that are under way, and written down after it.

use std::sync::{Arc, Mutex, PoisonError};

use gantry_agent::Asker;
use gantry_model::{Budgets, Model, Money, Request, Spent, most_it_costs};
use gantry_store::{BELOW, Database, DatabaseError};
use jiff::tz::TimeZone;

pub(crate) struct Spending {
    budgets: Budgets,
    database: Database,
    /// The user's: a day's budget is one of their calendar.
    zone: TimeZone,
    /// One after the other: two calls that fit by themselves may not fit together.
    deciding: tokio::sync::Mutex<()>,
    under_way: Arc<Mutex<Vec<Promise>>>,
}

/// The most that a call under way may cost.
struct Promise {
    number: u64,
    day: String,
    asker: Asker,
    most: Money,
}

/// A call that may be made. Dropped without being settled, it cost nothing.
pub(crate) struct Allowed {
    number: u64,
    day: String,
    under_way: Arc<Mutex<Vec<Promise>>>,
    /// The second model fits into the budgets too.
    pub(crate) fallback: bool,
}

impl Spending {
    pub(crate) fn new(budgets: Budgets, database: Database, zone: TimeZone) -> Spending {
        Spending {
            budgets,
            database,
            zone,
            deciding: tokio::sync::Mutex::default(),
            under_way: Arc::default(),
        }
    }

    /// Whether the call may be made; if not, which budget it would pass.
    pub(crate) async fn allow(
        &self,
        asker: &Asker,
        request: &Request,
        model: &Model,
        fallback: Option<&Model>,
    ) -> Result<Allowed, String> {
        let day = jiff::Timestamp::now().to_zoned(self.zone.clone()).date().to_string();
        let mut allowed = Allowed { number: 0, day, under_way: self.under_way.clone(), fallback: true };
        let limits = self.limits(asker);
        if limits.is_empty() {
            return Ok(allowed);
        }
        let _deciding = self.deciding.lock().await;
        let mut second = fallback;
        for (budgets, account) in limits {
            let spent = self.spent(&allowed.day, asker, account).await.map_err(|err| err.to_string())?;
            budgets.check(request, model, &spent).map_err(|err| err.to_string())?;
            second = second.filter(|fallback| budgets.check(request, fallback, &spent).is_ok());
        }
        allowed.fallback = second.is_some();
        let most =
            [Some(model), second].into_iter().flatten().filter_map(|model| most_it_costs(request, model));
        let most = most.max().unwrap_or(Money::ZERO);
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        allowed.number = under_way.last().map_or(1, |last| last.number + 1);
        let day = allowed.day.clone();
        under_way.push(Promise { number: allowed.number, day, asker: asker.clone(), most });
        Ok(allowed)
    }

    /// The budgets of everybody, then those that a child and each above it were given, with the account each is of.
    fn limits<'a>(&self, asker: &'a Asker) -> Vec<(Budgets, &'a str)> {
        let Budgets { run, agent, day, unpriced } = self.budgets;
        let common = run.or(agent).or(day).map(|_| (self.budgets, asker.run.as_str()));
        let own = asker.budgets.iter().map(|budget| {
            let limit = Budgets { run: Some(budget.limit), agent: None, day: None, unpriced };
            (limit, budget.account.as_str())
        });
        common.into_iter().chain(own).collect()
    }

    /// Writes down what a call came to.
    pub(crate) async fn settle(
        &self,
        allowed: Allowed,
        asker: &Asker,
        cost: Option<Money>,
    ) -> Result<(), DatabaseError> {
        // A model of one's own costs nothing, and nobody need wait for the disk to say so.
        let Some(cost) = cost.filter(|cost| *cost > Money::ZERO) else { return Ok(()) };
        let nanos = i64::try_from(cost.nanos()).unwrap_or(i64::MAX);
        // Only then the promise goes: in between it counts twice, never not at all.
        self.database.record_spending(&allowed.day, &asker.agent, &asker.account, nanos).await
    }

    /// What was spent on an account and those beneath it, by the agent and in all, and what calls under way may still cost.
    async fn spent(&self, day: &str, asker: &Asker, account: &str) -> Result<Spent, DatabaseError> {
        let spent = self.database.spending(day, &asker.agent, account).await?;
        let money = |nanos: i64| Money::from_nanos(u64::try_from(nanos).unwrap_or(0));
        let under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let promised = |counts: &dyn Fn(&Promise) -> bool| -> Money {
            under_way.iter().filter(|promise| counts(promise)).map(|promise| promise.most).sum()
        };
        Ok(Spent {
            run: money(spent.run) + promised(&|promise| is_beneath(&promise.asker.account, account)),
            agent: money(spent.agent)
                + promised(&|promise| promise.day == day && promise.asker.agent == asker.agent),
            day: money(spent.day) + promised(&|promise| promise.day == day),
        })
    }
}

/// Whether what is spent on one account is spent on the other, too.
fn is_beneath(account: &str, other: &str) -> bool {
    account.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with(BELOW))
}

impl Drop for Allowed {
    fn drop(&mut self) {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.retain(|promise| promise.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_spends_is_spent_by_everybody_above() {
        let [run, child, grandchild] = ["s/r", "s/r\u{1f}x", "s/r\u{1f}x\u{1f}y"];
        assert!([run, child, grandchild].into_iter().all(|account| is_beneath(account, run)));
        assert!(is_beneath(grandchild, child) && !is_beneath(run, child));
        assert!(!is_beneath("s/r2", run) && !is_beneath("s/r\u{1f}xx", child));
    }
}
