//! What agents may spend: checked before a call of a model, together with the calls that are under way, and written down after it.

use std::sync::{Arc, Mutex, PoisonError};

use gantry_agent::Asker;
use gantry_model::{Budgets, Model, Money, Request, Spent, most_it_costs};
use gantry_store::{Database, DatabaseError};
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
        let Budgets { run, agent, day, .. } = self.budgets;
        if run.or(agent).or(day).is_none() {
            return Ok(allowed);
        }
        let _deciding = self.deciding.lock().await;
        let spent = self.spent(&allowed.day, asker).await.map_err(|err| err.to_string())?;
        self.budgets.check(request, model, &spent).map_err(|err| err.to_string())?;
        let second = fallback.filter(|fallback| self.budgets.check(request, fallback, &spent).is_ok());
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

    /// Writes down what a call came to.
    pub(crate) async fn settle(
        &self,
        allowed: Allowed,
        asker: &Asker,
        cost: Option<Money>,
    ) -> Result<(), DatabaseError> {
        let Some(cost) = cost else { return Ok(()) };
        let nanos = i64::try_from(cost.nanos()).unwrap_or(i64::MAX);
        // Only then the promise goes: in between it counts twice, never not at all.
        self.database.record_spending(&allowed.day, &asker.agent, &asker.run, nanos).await
    }

    /// What was spent, and what calls under way may still cost.
    async fn spent(&self, day: &str, asker: &Asker) -> Result<Spent, DatabaseError> {
        let spent = self.database.spending(day, &asker.agent, &asker.run).await?;
        let money = |nanos: i64| Money::from_nanos(u64::try_from(nanos).unwrap_or(0));
        let under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let promised = |counts: &dyn Fn(&Promise) -> bool| -> Money {
            under_way.iter().filter(|promise| counts(promise)).map(|promise| promise.most).sum()
        };
        Ok(Spent {
            run: money(spent.run) + promised(&|promise| promise.asker.run == asker.run),
            agent: money(spent.agent)
                + promised(&|promise| promise.day == day && promise.asker.agent == asker.agent),
            day: money(spent.day) + promised(&|promise| promise.day == day),
        })
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.retain(|promise| promise.number != self.number);
    }
}
