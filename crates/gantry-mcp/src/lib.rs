//! Gantry as a server of the Model Context Protocol: any agent that speaks it can use the tools.
//!
//! [`McpServer`] answers the protocol over a [`Backend`], which is a gate in this process, a gateway over its link, or the
//! gateway itself. It judges nothing: whatever a client asks for, resources and prompts too, is a call through the gate.

mod approval;
mod backend;
mod lean;
mod naming;
mod progress;
mod prompts;
mod resources;
mod results;
mod selection;
mod serve;
mod server;
mod tools;

pub use backend::{Asked, Backend, Names, Purpose, Shown, Who};
pub use selection::{Selection, SelectionError};
pub use serve::{HttpService, HttpSessions, ServeError, http_service, serve_stdio};
pub use server::McpServer;
