//! Gantry as a client of MCP servers, which are programs or URLs. Their tools join the registry.
//!
//! Start with [`Servers`]. A server is started when it is first needed. Only tools that the operator has accepted are
//! offered, in the accepted definition. The gate runs them like any other tool.

mod connection;
mod content;
mod credentials;
mod definition;
mod domain;
mod http;
mod methods;
mod oauth;
mod sanitize;
mod server;
mod server_secrets;
mod servers;
mod spec;
mod stdio;
mod tool_status;
mod wire;

pub use definition::{difference, hash as definition_hash, unchecked};
pub use domain::{McpServerSpecs, McpServersDomain};
pub use oauth::flow::{BROWSER_LIMIT, Registered};
pub use oauth::{Login, LoginError};
pub use sanitize::shown_name;
pub use server::ServerError;
pub use servers::Servers;
pub use spec::{AddressSpec, Place, ProgramSpec, ServerSpec, Surroundings, Variable};
pub use tool_status::{State, ToolStatus};
