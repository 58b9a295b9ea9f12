//! Models, whoever provides them: a [`Request`] goes out, [`StreamEvent`]s come back, a [`Reply`] is what they add up to.
//!
//! Knows no tools, no sessions and no policy: it turns messages into a provider's wire format and back, tries again where
//! that helps, and knows what it costs.

mod accepted;
mod answer;
mod anthropic;
mod budget;
mod calls;
mod codec;
mod error;
mod estimate;
mod fault;
mod known;
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
mod wire;

pub use budget::{Budgets, OverBudget, Scope, Spent, Unpriced, most_it_costs};
pub use error::{ModelError, UnknownModel};
pub use estimate::{count_estimate, estimate_block};
pub use known::PRICES_AS_OF;
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
