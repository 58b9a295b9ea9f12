//! The server: HTTP and WebSocket surfaces over one gate, and the nodes that join.
//!
//! It reads no environment and no configuration file; the binary passes values in. Start with [`Gateway`] and [`serve`].

mod admin;
mod auth;
mod callers;
mod certificate;
mod gateway;
mod hosts;
mod http;
mod join;
mod maintenance;
mod node_logs;
mod nodes;
mod page_claim;
mod ports;
mod process_exits;
mod remote_tools;
mod server;
mod tls_identity;
mod write_timeout;
mod ws;

pub use callers::Agent;
pub use certificate::Certificate;
pub use gateway::{Gateway, GatewayParts, StatusReport};
pub use hosts::Hosts;
pub use http::ProtectedResource;
pub use join::{JoinDomain, JoinParts};
pub use maintenance::Maintenance;
pub use nodes::{LocalLog, Nodes, node_lines};
pub use ports::PortsDomain;
pub use server::{MAX_CONNECTIONS, PemFile, ServeError, Serving, TlsFiles, serve};
pub use tls_identity::TlsIdentity;
