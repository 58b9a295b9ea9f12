//! Money and prices in whole billionths of a dollar, so that sums neither drift nor depend on their
//! order.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;

use serde::{Deserialize, Serialize};

use crate::Usage;

/// `Money` is an amount in US dollars. It never wraps: an overflow saturates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money {
    nanos: u64,
}

/// `Rates` is the price of a million tokens in dollars, as providers quote it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    pub input: f64,
    pub output: f64,
    pub cache_read: f64,
    pub cache_write: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    pub rates: Rates,
    /// Some models cost more for long prompts.
    pub long: Option<LongPrompt>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LongPrompt {
    /// Applies to prompts of more tokens than this, including those from the cache.
    pub above: u64,
    pub rates: Rates,
}

impl Money {
    pub const ZERO: Money = Money { nanos: 0 };

    pub const fn from_nanos(nanos: u64) -> Money {
        Money { nanos }
    }

    /// Anything that is not a valid amount becomes zero.
    pub fn from_dollars(dollars: f64) -> Money {
        // A cast from a float saturates, and NaN becomes zero.
        Money { nanos: (dollars * 1e9).round() as u64 }
    }

    pub fn nanos(self) -> u64 {
        self.nanos
    }

    pub fn dollars(self) -> f64 {
        self.nanos as f64 / 1e9
    }
}

impl Add for Money {
    type Output = Money;

    fn add(self, other: Money) -> Money {
        Money { nanos: self.nanos.saturating_add(other.nanos) }
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Money>>(amounts: I) -> Money {
        amounts.fold(Money::ZERO, Add::add)
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dollars = self.dollars();
        if self.nanos == 0 || dollars >= 0.1 {
            write!(f, "${dollars:.2}")
        } else {
            write!(f, "${dollars:.6}")
        }
    }
}

impl Rates {
    /// The usual ratios: reading the cache costs a tenth of the input, and writing it a quarter
    /// more.
    pub const fn usual(input: f64, output: f64) -> Rates {
        Rates { input, output, cache_read: input * 0.1, cache_write: input * 1.25 }
    }

    fn cost(self, usage: &Usage) -> Money {
        let of = |tokens: u64, dollars_a_million: f64| Money {
            nanos: tokens.saturating_mul((dollars_a_million * 1000.0).round() as u64),
        };
        of(usage.input_tokens, self.input)
            + of(usage.output_tokens, self.output)
            + of(usage.cache_read_tokens, self.cache_read)
            + of(usage.cache_write_tokens, self.cache_write)
    }
}

impl Price {
    pub const FREE: Price = Price::flat(Rates::usual(0.0, 0.0));

    pub const fn flat(rates: Rates) -> Price {
        Price { rates, long: None }
    }

    pub fn cost(&self, usage: &Usage) -> Money {
        let prompt = usage
            .input_tokens
            .saturating_add(usage.cache_read_tokens)
            .saturating_add(usage.cache_write_tokens);
        let long = self.long.filter(|long| prompt > long.above);
        long.map_or(self.rates, |long| long.rates).cost(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_token_has_a_price() {
        let price = Price::flat(Rates { input: 2.0, output: 10.0, cache_read: 0.2, cache_write: 2.5 });
        let million = 1_000_000;
        let check = |usage: Usage, dollars: f64| assert_eq!(price.cost(&usage), Money::from_dollars(dollars));
        check(Usage { input_tokens: million, ..Usage::default() }, 2.0);
        check(Usage { output_tokens: million, ..Usage::default() }, 10.0);
        check(Usage { cache_read_tokens: million, ..Usage::default() }, 0.2);
        check(Usage { cache_write_tokens: million, ..Usage::default() }, 2.5);
        check(Usage { input_tokens: 3, output_tokens: 5, ..Usage::default() }, 0.000_056);
    }

    #[test]
    fn long_prompts_use_the_long_rates() {
        let long = LongPrompt { above: 100, rates: Rates::usual(5.0, 50.0) };
        let price = Price { rates: Rates::usual(1.0, 10.0), long: Some(long) };
        let prompt =
            |input_tokens, cache_read_tokens| Usage { input_tokens, cache_read_tokens, ..Usage::default() };
        assert_eq!(price.cost(&prompt(100, 0)).nanos(), 100_000);
        assert_eq!(price.cost(&prompt(101, 0)).nanos(), 505_000);
        assert_eq!(
            price.cost(&prompt(1, 100)).nanos(),
            5_000 + 50_000,
            "what is cached is part of the prompt"
        );
    }

    #[test]
    fn money_saturates() {
        let most = Money::from_nanos(u64::MAX);
        assert_eq!(most + most, most);
        assert_eq!(Money::from_dollars(f64::INFINITY), most);
        assert_eq!(Money::from_dollars(f64::NAN), Money::ZERO);
        assert_eq!(Money::from_dollars(-1.0), Money::ZERO);
        let usage = Usage { input_tokens: u64::MAX, output_tokens: u64::MAX, ..Usage::default() };
        assert_eq!(Price::flat(Rates::usual(1.0, 1.0)).cost(&usage), most);
        assert_eq!(
            format!("{} {} {}", Money::from_dollars(1.5), Money::from_nanos(1_234_567), Money::ZERO),
            "$1.50 $0.001235 $0.00"
        );
    }
}
