//! How a feature area plugs into the gateway.
//!
//! A feature area (agents, transfers, MCP servers) implements [`Domain`] and is listed once, in
//! `running_gateway.rs` of the binary. Its tools, routes, protocol methods, configuration section and
//! background workers arrive together. The gateway knows domains only through this trait.

mod busy_poll;
mod config_section;
mod domain;
pub mod http;
mod idempotent_requests;
mod identity;
mod memory_quota;
mod methods;
mod owner_command;
mod public_route;
mod request_context;

pub use busy_poll::BusyPoll;
pub use config_section::{Checked, ConfigSection, ConfigSections};
pub use domain::{Domain, Finding, FindingLevel, Running, ToolsHandle};
pub use idempotent_requests::{IdempotentRequests, KeyedRequest, KeyedTurn, Reserved, repeated_response};
pub use identity::{Identity, LOCAL_OPERATOR, wait_until};
pub use memory_quota::MemoryQuota;
pub use methods::{DuplicateMethod, MethodContext, Methods};
pub use owner_command::OwnerCommand;
pub use public_route::{CallerAddress, PublicRoute, page_cookie_name};
pub use request_context::{GatewayServices, RequestContext};
