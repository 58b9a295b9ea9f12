//! Models, whoever provides them: a [`Request`] goes out, [`StreamEvent`]s come back, a [`Reply`] is what they add up to.
//!
//! Knows no tools, no sessions and no policy: it turns messages into a provider's wire format and back.

mod message;
mod reply;
mod request;

pub use message::{Block, Message, Role};
pub use reply::{Reply, StopReason, StreamEvent, Usage};
pub use request::{Effort, Request, SystemPart, Thinking, ToolSpec};
