//! What several test suites share. It is a dev-dependency only: no product crate may depend on it.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "test code opens files, starts processes and panics"
)]

#[cfg(feature = "chat")]
pub mod chat;
mod files;
#[cfg(feature = "program")]
mod fleet;
#[cfg(feature = "program")]
mod gateway;
#[cfg(feature = "google")]
pub mod google;
#[cfg(feature = "program")]
mod http;
#[cfg(feature = "program")]
pub mod networks;
#[cfg(feature = "peers")]
pub mod peers;
#[cfg(feature = "program")]
mod process;
#[cfg(feature = "program")]
mod proxy;
mod random;
#[cfg(feature = "s3")]
mod s3_proxy;
#[cfg(feature = "s3")]
mod s3_server;
#[cfg(feature = "program")]
mod terminal;
mod wait;
#[cfg(feature = "program")]
mod websocket;
#[cfg(feature = "program")]
mod world;

pub use files::files_below;
#[cfg(feature = "program")]
pub use fleet::{Fleet, Machine, with_mounts};
#[cfg(feature = "program")]
pub use gateway::Gateway;
#[cfg(feature = "program")]
pub use http::{Connection, Response};
#[cfg(feature = "program")]
pub use process::Process;
#[cfg(feature = "program")]
pub use proxy::Proxy;
pub use random::{Random, is_soak, scaled, seed, seed_or};
#[cfg(feature = "s3")]
pub use s3_proxy::S3Proxy;
#[cfg(feature = "s3")]
pub use s3_server::S3Server;
#[cfg(feature = "program")]
pub use terminal::Terminal;
pub use wait::{SOON, eventually, eventually_async};
#[cfg(feature = "program")]
pub use websocket::Socket;
#[cfg(feature = "program")]
pub use world::{Ran, World, program};
