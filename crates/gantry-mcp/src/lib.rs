//! The Model Context Protocol in both directions: MCP clients use Gantry's tools, and Gantry uses tools of MCP servers.
//!
//! [`McpServer`] serves a [`Backend`], which is a gate in this process, a gateway over its link, or the gateway itself. It
//! decides nothing: every request of a client, also for resources and prompts, is a call through the gate.
//! [`client`] connects to MCP servers and adds their tools to the registry.

mod approval;
mod backend;
pub mod client;
mod eof_watch;
mod line_transport;
mod output_shape;
mod progress;
mod prompts;
mod resources;
mod results;
mod selection;
mod serve;
mod server;
mod titles;
mod tools;

pub use backend::{Backend, CallRequest, Names, OfferedTools, Purpose, Who};
pub use selection::{RESULT_READ, Selection, SelectionError};
pub use serve::{HttpService, HttpSessions, ServeError, http_service, serve_stdio};
pub use server::McpServer;
