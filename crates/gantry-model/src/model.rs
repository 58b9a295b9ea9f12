//! One model: its name, its price and what it accepts.

use crate::Usage;
use crate::money::{Money, Price};

/// `ModelEntry` is a configured model. Missing values come from what is known about it.
#[derive(Debug, Clone, Default)]
pub struct ModelEntry {
    /// The provider's name for the model.
    pub id: String,
    pub price: Option<Price>,
    pub context_window: Option<u64>,
    pub max_output: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// `provider/id`, the name that users write.
    pub name: String,
    pub provider: String,
    /// The provider's name for the model.
    pub id: String,
    pub facts: Facts,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Facts {
    /// `None` if the price is neither configured nor known.
    pub price: Option<Price>,
    /// The tokens of prompt and answer together.
    pub context_window: u64,
    /// The longest answer, in tokens.
    pub max_output: u32,
    pub thinking: ThinkingStyle,
    /// Whether the model accepts an effort level.
    pub effort: bool,
}

/// `ThinkingStyle` says how a model is asked to think. Each generation refuses the others' way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingStyle {
    Unsupported,
    /// With a number of tokens.
    Budget,
    /// The model decides; a budget is refused.
    Adaptive,
    /// Like [`ThinkingStyle::Adaptive`], and it cannot be turned off.
    Always,
    /// Unknown: the request's own setting is sent.
    Unknown,
}

impl Facts {
    /// Conservative guesses: a small window and a short answer.
    pub(crate) const UNKNOWN: Facts = Facts {
        price: None,
        context_window: 32_768,
        max_output: 8_192,
        thinking: ThinkingStyle::Unknown,
        effort: true,
    };
}

impl Model {
    /// Returns the cost; `None` if the price is unknown.
    pub fn cost(&self, usage: &Usage) -> Option<Money> {
        self.facts.price.map(|price| price.cost(usage))
    }
}
