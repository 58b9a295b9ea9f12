//! One model: what it is called, what it costs, what it accepts.

use crate::Usage;
use crate::money::{Money, Price};

/// A model as configured; what is left out is taken from what is known of it.
#[derive(Debug, Clone, Default)]
pub struct ModelEntry {
    /// As the provider calls it.
    pub id: String,
    pub price: Option<Price>,
    pub context_window: Option<u64>,
    pub max_output: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// `provider/id`, which is how everybody names it.
    pub name: String,
    pub provider: String,
    /// As the provider calls it.
    pub id: String,
    pub facts: Facts,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Facts {
    /// Unknown if it is neither configured nor among the known ones.
    pub price: Option<Price>,
    /// In tokens, of prompt and answer together.
    pub context_window: u64,
    /// In tokens.
    pub max_output: u32,
    pub thinking: ThinkingStyle,
    /// Whether it can be told how hard to try.
    pub effort: bool,
}

/// How a model is asked to think, since each generation refuses the others' way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingStyle {
    Unsupported,
    /// With a number of tokens.
    Budget,
    /// As it sees fit; a budget is refused.
    Adaptive,
    /// As [`ThinkingStyle::Adaptive`], and it cannot be turned off.
    Always,
    /// Nothing is known: it is asked as the request says.
    Unknown,
}

impl Facts {
    /// Careful guesses: a small window, a short answer.
    pub(crate) const UNKNOWN: Facts = Facts {
        price: None,
        context_window: 32_768,
        max_output: 8_192,
        thinking: ThinkingStyle::Unknown,
        effort: true,
    };
}

impl Model {
    /// `None`: nobody knows what it costs.
    pub fn cost(&self, usage: &Usage) -> Option<Money> {
        self.facts.price.map(|price| price.cost(usage))
    }
}
