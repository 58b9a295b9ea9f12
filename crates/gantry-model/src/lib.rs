//! Talks to model providers: a [`Request`] goes out, [`StreamEvent`]s come back, and a [`Reply`] is
//! their sum.
//!
//! This crate knows no tools, sessions or policy. It converts messages to a provider's wire format
//! and back, retries where that helps, and computes costs.

mod answer;
mod anthropic;
mod api_names;
mod attempt;
mod budget;
mod calls;
mod codec;
mod error;
mod estimate;
mod fault;
mod known_models;
mod limits;
mod listing;
mod message;
mod model;
mod models;
mod money;
mod openai;
mod pairing;
mod provider;
mod reply;
mod request;
mod retry;
#[cfg(feature = "testing")]
pub mod testing;

pub use budget::{Budgets, OverBudget, Scope, Spent, Unpriced, most_it_costs};
pub use error::{ModelError, UnknownModel};
pub use estimate::{count_estimate, estimate_block};
pub use known_models::PRICES_AS_OF;
pub use limits::Limits;
pub use listing::list_models;
pub use message::{Block, Message, Role};
pub use model::{Facts, Model, ModelEntry, ThinkingStyle};
pub use models::{Models, ModelsConfig, Tier};
pub use money::{LongPrompt, Money, Price, Rates};
pub use provider::{Key, Provider, ProviderKind};
pub use reply::{Reply, StopReason, StreamEvent, Usage};
pub use request::{Effort, Request, SystemPart, Thinking, ToolSpec};
pub use retry::RetryPolicy;
