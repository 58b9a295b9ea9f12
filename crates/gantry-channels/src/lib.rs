//! Chat channels: people talk to agents where they already are.
//!
//! An adapter speaks the protocol of one service. Everything else is shared: who may do what, sessions, questions, and the
//! outbox, which delivers answers.

mod accounts;
mod adapter;
mod address;
mod answers;
mod authorise;
mod bridge;
mod chat_channel;
mod chats;
mod config;
mod connection;
mod discord;
mod domain;
mod email;
mod intake;
mod matrix;
mod media;
mod message_tool;
mod multipart;
mod outgoing;
mod people;
mod questions;
mod render;
mod signature;
mod slack;
mod surfaces;
mod telegram;
#[cfg(test)]
mod testing;
mod typing;
mod webhook;
mod whatsapp;

pub use address::{Address, PeerKind, Person};
pub use chats::ChannelsParts;
pub use config::{
    BridgeConfig, ChannelsConfig, DiscordConfig, DmPolicy, EmailConfig, GroupConfig, MatrixConfig,
    SlackConfig, TelegramConfig, WebhookAccountConfig, WhatsappConfig, WhatsappTemplate,
};
pub use domain::{ChannelsDomain, tool_names, tools};
