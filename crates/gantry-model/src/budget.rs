//! Limits spending per run, per agent and per day. It is checked before each call and updated after
//! it.

use std::fmt;

use crate::estimate::count_estimate;
use crate::model::Model;
use crate::money::Money;
use crate::{Request, Usage};

/// `Budgets` holds the operator's limits; `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budgets {
    pub run: Option<Money>,
    /// The daily limit of one agent.
    pub agent: Option<Money>,
    /// The daily limit of all agents together.
    pub day: Option<Money>,
    pub unpriced: Unpriced,
}

/// `Unpriced` says how to treat a model without a known price when there is a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unpriced {
    #[default]
    Refused,
    /// Counts as if it cost nothing.
    Free,
}

/// `Spent` says what the run, the agent and everybody have spent so far, including children and the
/// fallback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    pub run: Money,
    pub agent: Money,
    pub day: Money,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Run,
    Agent,
    Day,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OverBudget {
    #[error("the budget of {scope} is {limit}; {spent} is spent and this call may cost up to {next}")]
    Passed { scope: Scope, limit: Money, spent: Money, next: Money },
    #[error("the price of {model} is unknown, but a budget is set; configure its price")]
    Unpriced { model: String },
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Run => "this run",
            Scope::Agent => "this agent for today",
            Scope::Day => "today",
        })
    }
}

/// Returns the most that a call can cost: the whole prompt uncached, and the longest allowed
/// answer.
pub fn most_it_costs(request: &Request, model: &Model) -> Option<Money> {
    let answer = match request.max_tokens {
        0 => model.facts.max_output,
        asked => asked.min(model.facts.max_output),
    };
    let prompt = count_estimate(request);
    let output_tokens = u64::from(answer);
    // Writing a cache costs more than not having one.
    let plain = model.cost(&Usage { input_tokens: prompt, output_tokens, ..Usage::default() })?;
    let cached = model.cost(&Usage { cache_write_tokens: prompt, output_tokens, ..Usage::default() })?;
    Some(plain.max(cached))
}

impl Budgets {
    /// Checks whether a call may be made. Its cost is only estimated beforehand, so its maximum
    /// counts.
    pub fn check(&self, request: &Request, model: &Model, spent: &Spent) -> Result<(), OverBudget> {
        let limits = [
            (Scope::Run, self.run, spent.run),
            (Scope::Agent, self.agent, spent.agent),
            (Scope::Day, self.day, spent.day),
        ];
        let set = limits.into_iter().filter_map(|(scope, limit, spent)| Some((scope, limit?, spent)));
        let mut set = set.peekable();
        if set.peek().is_none() {
            return Ok(());
        }
        let next = match (most_it_costs(request, model), self.unpriced) {
            (Some(next), _) => next,
            (None, Unpriced::Free) => Money::ZERO,
            (None, Unpriced::Refused) => return Err(OverBudget::Unpriced { model: model.name.clone() }),
        };
        match set.find(|(_, limit, spent)| *spent + next > *limit) {
            Some((scope, limit, spent)) => Err(OverBudget::Passed { scope, limit, spent, next }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;
    use crate::model::Facts;
    use crate::money::{Price, Rates};

    fn model(price: Option<Price>) -> Model {
        let facts = Facts { price, max_output: 1_000, ..Facts::UNKNOWN };
        Model { name: "p/m".into(), provider: "p".into(), id: "m".into(), facts }
    }

    fn request(max_tokens: u32) -> Request {
        Request { messages: vec![Message::user("x".repeat(2_964))], max_tokens, ..Request::default() }
    }

    #[test]
    fn only_the_call_that_would_exceed_a_budget_is_refused() {
        // The prompt has 1,000 tokens, written to a cache, and the answer 100.
        let model =
            model(Some(Price::flat(Rates { input: 1.0, output: 10.0, cache_read: 0.1, cache_write: 2.0 })));
        let cost = Money::from_dollars(0.002 + 0.001);
        assert_eq!(most_it_costs(&request(100), &model), Some(cost));
        assert_eq!(
            most_it_costs(&request(0), &model),
            Some(Money::from_dollars(0.012)),
            "as long as it may be"
        );
        let limit = Money::from_dollars(1.0);
        let just = Money::from_nanos(limit.nanos() - cost.nanos());
        let over = just + Money::from_nanos(1);
        let only = |run, agent, day| Budgets { run, agent, day, ..Budgets::default() };
        let some = Some(limit);
        for (budgets, spent, scope) in [
            (only(some, None, None), Spent { run: over, ..Spent::default() }, Scope::Run),
            (only(None, some, None), Spent { agent: over, ..Spent::default() }, Scope::Agent),
            (only(None, None, some), Spent { day: over, ..Spent::default() }, Scope::Day),
        ] {
            let err = budgets.check(&request(100), &model, &spent).unwrap_err();
            assert_eq!(err, OverBudget::Passed { scope, limit, spent: over, next: cost });
            let all = Spent { run: just, agent: just, day: just };
            assert_eq!(budgets.check(&request(100), &model, &all), Ok(()));
        }
        let err =
            only(some, None, None).check(&request(100), &model, &Spent { run: limit, ..Spent::default() });
        assert_eq!(
            err.unwrap_err().to_string(),
            "the budget of this run is $1.00; $1.00 is spent and this call may cost up to $0.003000"
        );
    }

    #[test]
    fn unknown_price_is_refused_with_a_budget() {
        let model = model(None);
        let limit = Some(Money::from_dollars(1.0));
        let check = |budgets: Budgets| budgets.check(&request(1), &model, &Spent::default());
        assert_eq!(check(Budgets::default()), Ok(()));
        assert_eq!(
            check(Budgets { day: limit, ..Budgets::default() }),
            Err(OverBudget::Unpriced { model: "p/m".into() })
        );
        assert_eq!(check(Budgets { day: limit, unpriced: Unpriced::Free, ..Budgets::default() }), Ok(()));
    }
}
