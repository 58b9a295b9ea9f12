//! The Model Context Protocol both ways: any agent that speaks it can use Gantry's tools, and Gantry can use any server.
//!
//! [`McpServer`] answers the protocol over a [`Backend`], which is a gate in this process, a gateway over its link, or the
//! gateway itself. It judges nothing: whatever a client asks for, resources and prompts too, is a call through the gate.
//! [`client`] is the other way: servers that others wrote, whose tools join the registry.

mod approval;
mod backend;
pub mod client;
mod eof_watch;
mod line_transport;
mod naming;
mod output_shape;
mod progress;
mod prompts;
mod resources;
mod results;
mod selection;
mod serve;
mod server;
mod tools;

pub use backend::{Asked, Backend, Names, Purpose, Shown, Who};
pub use selection::{RESULT_READ, Selection, SelectionError};
pub use serve::{HttpService, HttpSessions, ServeError, http_service, serve_stdio};
pub use server::McpServer;
