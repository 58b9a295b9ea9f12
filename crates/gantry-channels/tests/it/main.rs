//! Official client libraries of the chat services judge the servers that the adapters are tested with.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "tests start programs and fail by panicking"
)]

mod discord;
mod judge;
mod slack;
mod telegram;
mod whatsapp;
