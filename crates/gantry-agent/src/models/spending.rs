//! [`Spending`] enforces agents' budgets. It reserves the highest cost of a request before the request is
//! sent, and records the real cost afterwards.

use std::sync::{Arc, Mutex, PoisonError};

use gantry_model::{Budgets, Model, Money, OverBudget, Request, Spent, Unpriced, most_it_costs};
use gantry_store::{ACCOUNT_SEPARATOR, Database, DatabaseError};
use jiff::tz::TimeZone;

use super::Asker;

pub(super) struct Spending {
    budgets: Mutex<Budgets>,
    database: Database,
    /// The user's time zone. A day's budget follows their calendar.
    zone: TimeZone,
    /// Held while a request is checked: two requests that fit alone may not fit together.
    deciding: tokio::sync::Mutex<()>,
    reserved: Arc<Mutex<Vec<CostReservation>>>,
}

/// The highest cost of a request that has not ended.
struct CostReservation {
    number: u64,
    day: String,
    asker: Asker,
    most: Money,
}

/// `SpendingPermit` allows one request. A permit that is dropped without being recorded costs nothing.
pub(super) struct SpendingPermit {
    number: u64,
    day: String,
    reserved: Arc<Mutex<Vec<CostReservation>>>,
    /// The fallback model also fits the budgets.
    pub(super) fallback: bool,
    /// The longest answer that fits the budgets, if it is shorter than the requested one.
    pub(super) max_tokens: Option<u32>,
}

/// An answer is not shortened below this.
const MIN_ANSWER_TOKENS: u32 = 256;

impl Spending {
    pub(super) fn new(budgets: Budgets, database: Database, zone: TimeZone) -> Spending {
        Spending {
            budgets: Mutex::new(budgets),
            database,
            zone,
            deciding: tokio::sync::Mutex::default(),
            reserved: Arc::default(),
        }
    }

    /// Replaces the budgets. Reservations stay.
    pub(super) fn set_budgets(&self, budgets: Budgets) {
        *self.budgets.lock().unwrap_or_else(PoisonError::into_inner) = budgets;
    }

    /// Reserves the highest cost of a request, or returns the budget that it could exceed. If a child's
    /// budget is too small for the longest answer, the answer is limited instead.
    pub(super) async fn reserve(
        &self,
        asker: &Asker,
        request: &Request,
        model: &Model,
        fallback: Option<&Model>,
    ) -> Result<SpendingPermit, String> {
        let day = jiff::Timestamp::now().to_zoned(self.zone.clone()).date().to_string();
        let mut permit = SpendingPermit {
            number: 0,
            day,
            reserved: self.reserved.clone(),
            fallback: true,
            max_tokens: None,
        };
        let limits = self.limits(asker);
        if limits.is_empty() {
            return Ok(permit);
        }
        let _deciding = self.deciding.lock().await;
        let mut spent = Vec::with_capacity(limits.len());
        for (budgets, account) in limits {
            let so_far = self.spent(&permit.day, asker, account).await.map_err(|err| err.to_string())?;
            spent.push((budgets, so_far));
        }
        // A child's own budget limits its answers. The operator's budgets reject the request.
        let (common, own) = spent.split_at(spent.len() - asker.budgets.len());
        let shorter = affordable(request, model, own).map_err(|err| err.to_string())?;
        permit.max_tokens = shorter.as_ref().map(|shorter| shorter.max_tokens);
        let request = shorter.as_ref().unwrap_or(request);
        for (budgets, spent) in common {
            budgets.check(request, model, spent).map_err(|err| err.to_string())?;
        }
        let fits = |model: &&Model| {
            spent.iter().all(|(budgets, spent)| budgets.check(request, model, spent).is_ok())
        };
        let second = fallback.filter(fits);
        permit.fallback = second.is_some();
        let most =
            [Some(model), second].into_iter().flatten().filter_map(|model| most_it_costs(request, model));
        let most = most.max().unwrap_or(Money::ZERO);
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        permit.number = reserved.last().map_or(1, |last| last.number + 1);
        let day = permit.day.clone();
        reserved.push(CostReservation { number: permit.number, day, asker: asker.clone(), most });
        Ok(permit)
    }

    /// The operator's budgets, then those of a child and its ancestors. Each comes with its account.
    fn limits<'a>(&self, asker: &'a Asker) -> Vec<(Budgets, &'a str)> {
        let budgets = *self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let Budgets { run, agent, day, unpriced } = budgets;
        let common = run.or(agent).or(day).map(|_| (budgets, asker.run.as_str()));
        let own = asker.budgets.iter().map(|budget| {
            let unpriced = if budget.allows_unpriced { Unpriced::Free } else { unpriced };
            let limit = Budgets { run: Some(budget.limit), agent: None, day: None, unpriced };
            (limit, budget.account.as_str())
        });
        common.into_iter().chain(own).collect()
    }

    /// Records the cost of a request that ended.
    pub(super) async fn record(
        &self,
        permit: SpendingPermit,
        asker: &Asker,
        cost: Option<Money>,
    ) -> Result<(), DatabaseError> {
        // Local models are free: there is nothing to write.
        let Some(cost) = cost.filter(|cost| *cost > Money::ZERO) else { return Ok(()) };
        let nanos = i64::try_from(cost.nanos()).unwrap_or(i64::MAX);
        // The reservation ends after this, so that the cost is counted twice for a moment, never missed.
        self.database.record_spending(&permit.day, &asker.agent, &asker.account, nanos).await
    }

    /// Sums recorded and reserved costs: of an account and those below it, of the agent, and of the day.
    async fn spent(&self, day: &str, asker: &Asker, account: &str) -> Result<Spent, DatabaseError> {
        let spent = self.database.spending(day, &asker.agent, account).await?;
        let money = |nanos: i64| Money::from_nanos(u64::try_from(nanos).unwrap_or(0));
        let reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = |counts: &dyn Fn(&CostReservation) -> bool| -> Money {
            reserved
                .iter()
                .filter(|reservation| counts(reservation))
                .map(|reservation| reservation.most)
                .sum()
        };
        Ok(Spent {
            run: money(spent.run) + sum(&|reservation| is_below(&reservation.asker.account, account)),
            agent: money(spent.agent)
                + sum(&|reservation| reservation.day == day && reservation.asker.agent == asker.agent),
            day: money(spent.day) + sum(&|reservation| reservation.day == day),
        })
    }
}

/// Limits the answer so that the request fits all budgets. Returns `None` if it fits unchanged.
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
        // The cost grows linearly with the length of the answer.
        let tokens_left = u64::from(longest - least.max_tokens);
        let affordable = u128::from(tokens_left) * u128::from(room.saturating_sub(least_cost))
            / u128::from(next.nanos().saturating_sub(least_cost).max(1));
        let more = u32::try_from(affordable).unwrap_or(u32::MAX).min(longest - least.max_tokens);
        let longer = Request { max_tokens: least.max_tokens + more, ..least.clone() };
        shorter = Some(if budgets.check(&longer, model, spent).is_ok() { longer } else { least });
    }
    Ok(shorter)
}

/// Whether `account` is `other` or below it, so that its costs count for both.
fn is_below(account: &str, other: &str) -> bool {
    account.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with(ACCOUNT_SEPARATOR))
}

impl Drop for SpendingPermit {
    fn drop(&mut self) {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        reserved.retain(|reservation| reservation.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_a_child_count_for_every_ancestor() {
        let [run, child, grandchild] = ["s/r", "s/r\u{1f}x", "s/r\u{1f}x\u{1f}y"];
        assert!([run, child, grandchild].into_iter().all(|account| is_below(account, run)));
        assert!(is_below(grandchild, child) && !is_below(run, child));
        assert!(!is_below("s/r2", run) && !is_below("s/r\u{1f}xx", child));
    }
}
