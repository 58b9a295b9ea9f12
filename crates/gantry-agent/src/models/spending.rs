//! What agents may spend: checked before a call of a model, together with the calls that are under way, and written down after it.

use std::sync::{Arc, Mutex, PoisonError};

use gantry_agent::Asker;
use gantry_model::{Budgets, Model, Money, OverBudget, Request, Spent, most_it_costs};
use gantry_store::{ACCOUNT_SEPARATOR, Database, DatabaseError};
use jiff::tz::TimeZone;

pub(crate) struct Spending {
    budgets: Mutex<Budgets>,
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
    /// The longest answer that the budgets have room for, where that is less than what was asked for.
    pub(crate) max_tokens: Option<u32>,
}

/// The shortest answer that is worth paying for.
const MIN_ANSWER_TOKENS: u32 = 256;

impl Spending {
    pub(crate) fn new(budgets: Budgets, database: Database, zone: TimeZone) -> Spending {
        Spending {
            budgets: Mutex::new(budgets),
            database,
            zone,
            deciding: tokio::sync::Mutex::default(),
            under_way: Arc::default(),
        }
    }

    /// From now on; calls under way are counted as before.
    pub(crate) fn set_budgets(&self, budgets: Budgets) {
        *self.budgets.lock().unwrap_or_else(PoisonError::into_inner) = budgets;
    }

    /// Whether the call may be made; if not, which budget it would pass. A child's budget that has no room for the longest
    /// answer makes the answer shorter.
    pub(crate) async fn allow(
        &self,
        asker: &Asker,
        request: &Request,
        model: &Model,
        fallback: Option<&Model>,
    ) -> Result<Allowed, String> {
        let day = jiff::Timestamp::now().to_zoned(self.zone.clone()).date().to_string();
        let mut allowed =
            Allowed { number: 0, day, under_way: self.under_way.clone(), fallback: true, max_tokens: None };
        let limits = self.limits(asker);
        if limits.is_empty() {
            return Ok(allowed);
        }
        let _deciding = self.deciding.lock().await;
        let mut spent = Vec::with_capacity(limits.len());
        for (budgets, account) in limits {
            let so_far = self.spent(&allowed.day, asker, account).await.map_err(|err| err.to_string())?;
            spent.push((budgets, so_far));
        }
        // What the operator has set is kept to as it stands; what a child was given makes its answers shorter.
        let (common, own) = spent.split_at(spent.len() - asker.budgets.len());
        let shorter = affordable(request, model, own).map_err(|err| err.to_string())?;
        allowed.max_tokens = shorter.as_ref().map(|shorter| shorter.max_tokens);
        let request = shorter.as_ref().unwrap_or(request);
        for (budgets, spent) in common {
            budgets.check(request, model, spent).map_err(|err| err.to_string())?;
        }
        let fits = |model: &&Model| {
            spent.iter().all(|(budgets, spent)| budgets.check(request, model, spent).is_ok())
        };
        let second = fallback.filter(fits);
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
        let budgets = *self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let Budgets { run, agent, day, unpriced } = budgets;
        let common = run.or(agent).or(day).map(|_| (budgets, asker.run.as_str()));
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

/// The request with an answer that fits all budgets; none if it fits as it is.
fn affordable(
    request: &Request,
    model: &Model,
    spent: &[(Budgets, Spent)],
) -> Result<Option<Request>, OverBudget> {
    let mut shorter: Option<Request> = None;
    for (budgets, spent) in spent {
        let asked = shorter.as_ref().unwrap_or(request);
        let Err(over) = budgets.check(asked, model, spent) else { continue };
        let OverBudget::Passed { limit, spent: so_far, next, .. } = &over else { return Err(over) };
        let longest = match asked.max_tokens {
            0 => model.facts.max_output,
            tokens => tokens.min(model.facts.max_output),
        };
        let least = Request { max_tokens: MIN_ANSWER_TOKENS.min(longest), ..asked.clone() };
        budgets.check(&least, model, spent)?;
        let (room, least_cost) = (limit.nanos().saturating_sub(so_far.nanos()), most_it_costs(&least, model));
        let least_cost = least_cost.map_or(0, Money::nanos);
        // The price of an answer grows with its length alone.
        let tokens_left = u64::from(longest - least.max_tokens);
        let affordable = u128::from(tokens_left) * u128::from(room.saturating_sub(least_cost))
            / u128::from(next.nanos().saturating_sub(least_cost).max(1));
        let more = u32::try_from(affordable).unwrap_or(u32::MAX).min(longest - least.max_tokens);
        let longer = Request { max_tokens: least.max_tokens + more, ..least.clone() };
        shorter = Some(if budgets.check(&longer, model, spent).is_ok() { longer } else { least });
    }
    Ok(shorter)
}

/// Whether what is spent on one account is spent on the other, too.
fn is_beneath(account: &str, other: &str) -> bool {
    account.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with(ACCOUNT_SEPARATOR))
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
