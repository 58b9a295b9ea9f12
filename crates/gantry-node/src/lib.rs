//! A node: a machine that joins a gateway and contributes its tools.
//!
//! [`run`] dials the gateway, sends `connect`, serves calls through the node's own gate, and dials again when the
//! connection is lost. Running calls continue meanwhile. The caller provides the tools and the paths.

mod address;
mod answer;
mod backoff;
mod bulk;
mod calls;
mod connection;
mod connection_questions;
mod ends;
mod gateway_key;
mod home;
mod joined;
mod log;
mod progress;
mod run;
mod service;
mod state;
mod token;

pub use address::{AddressError, check_address};
pub use backoff::Pace;
pub use home::{HomeError, NodeHome, NodeLock};
pub use joined::{GatewayPlace, JoinedError, JoinedGateway, JoinedNode, trust};
pub use log::{Follow, Level, LogTail, MAX_FILE_BYTES, MAX_FILES, NodeLog, bounded, tail};
pub use run::{DEFAULT_MAX_CALLS, ExitReason, Node, NodeOptions, Rejoin, UNAUTHORIZED_EXIT, run};
pub use state::{NodeState, Phase};
pub use token::{Token, TokenError, TokenSource};
