//! People talk to agents in chats: a real gateway with servers of chat services.

mod adding;
mod attacks;
mod bridge;
mod conversation;
mod kills;
mod messages;
mod services;
mod webhook;
mod whatsapp;
