//! The whole product, as its users run it, and the shape of the workspace.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests set up their own world"
)]

mod agents;
mod apis;
mod audit;
mod cli;
mod config;
mod denials;
#[cfg(feature = "gantry-example")]
mod domain;
mod end_to_end;
mod exit_codes;
mod faults;
mod gateway;
mod growth;
mod layers;
mod log;
mod mcp;
mod models;
mod native;
mod node;
mod printing;
mod run;
mod sessions;
mod terminal;
mod transfer;
mod web;
