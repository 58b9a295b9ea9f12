//! Work that runs when nobody is typing: schedules, tasks, pipelines, captured processes, and the outbox, which delivers
//! their results.
//!
//! [`FlowDomain`] plugs them into the gateway. Work of agents runs in background sessions of `gantry-agent`, and every tool
//! call goes through the gate. [`Clock`] is the only source of the time here.

mod access;
mod clock;
mod config;
mod domain;
mod inbox;
mod jobs;
mod metrics;
mod outbox;
mod pipelines;
mod plans;
mod processes;
mod run_events;
mod slots;
mod tasks;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests set up their own world")]
mod testing;
mod time;
mod tools;

pub use clock::Clock;
pub use config::{FlowConfig, WebhookConfig};
pub use domain::{Flow, FlowDomain, FlowParts};
pub use outbox::{Delivery, Outbox, OutboxChannel, OwnerChats, SecretFor};
pub use tasks::{PageAccess, TasksConfig};
pub use time::{
    MIN_INTERVAL_MS, Moment, Schedule, duration_text, jitter_ms, local_text, parse_future, parse_interval,
    parse_moment, relative_text, utc_text, zone_named,
};
pub use tools::{tool_names, tools};
