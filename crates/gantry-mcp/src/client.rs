//! Gantry as a client of MCP servers: programs and addresses that others wrote, whose tools join the registry.
//!
//! [`Servers`] is the whole of it. A server is started when it is first needed; its tools are those that the operator
//! has accepted, as they were then. The gate runs them like any other.

mod confidence;
mod connection;
mod content;
mod credentials;
mod definition;
mod domain;
mod http;
mod oauth;
mod server;
mod servers;
mod spec;
mod standing;
mod stdio;
mod wire;
mod words;

pub use definition::{difference, hash as definition_hash, unchecked};
pub use domain::{McpServerSpecs, McpServersDomain};
pub use oauth::flow::{BROWSER_LIMIT, Registered};
pub use oauth::{Login, LoginError};
pub use server::ServerError;
pub use servers::Servers;
pub use spec::{AddressSpec, Place, ProgramSpec, ServerSpec, Surroundings, Variable};
pub use standing::{Standing, State};
pub use words::shown_name;
