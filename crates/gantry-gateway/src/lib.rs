//! The server: HTTP and WebSocket surfaces over one gate, and the machines that join.
//!
//! Reads no environment and no configuration file; the binary passes values in. Start with [`Gateway`] and [`serve`].

mod accounts;
mod admin;
mod agent_desk;
mod answers;
mod auth;
mod callers;
mod certificate;
mod conversations;
mod ends;
mod gateway;
mod hosts;
mod http;
mod maintenance;
mod node_logs;
mod nodes;
mod remote_tools;
mod server;
mod session_desk;
mod transfers;
mod unstuck;
mod ws;

pub use callers::Agent;
pub use certificate::Certificate;
pub use conversations::node_lines;
pub use gateway::{Gateway, GatewayParts, StatusReport};
pub use hosts::Hosts;
pub use http::ProtectedResource;
pub use maintenance::Maintenance;
pub use nodes::{LocalLog, Nodes};
pub use server::{MAX_CONNECTIONS, PemFile, ServeError, Serving, TlsFiles, serve};
pub use session_desk::GatewayDesk;
pub use transfers::{GatewayHub, IDLE_LIMIT, Transfers, TransfersParts, Unfinished};
