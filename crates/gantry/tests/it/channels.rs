//! People talk to agents in chats: a real gateway with servers of chat services.

mod bridge;
mod conversation;
mod services;
mod webhook;
