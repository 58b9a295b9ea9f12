//! The whole product, as its users run it, and the shape of the workspace. One folder per surface.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests read files, start processes and panic"
)]

mod architecture;
mod channels;
#[cfg(feature = "gantry-example")]
mod domain;
mod faults;
mod google;
mod growth;
mod layers;
mod log;
mod mcp;
mod pipelines;
mod schedules;
mod sessions;
mod snapshots;
mod tasks;
mod workers;

/// Commands, their output and their exit codes.
mod cli {
    mod agents;
    mod apis;
    mod audit;
    mod commands;
    mod config;
    mod exit_codes;
    mod gateway_parity;
    mod live_config;
    mod models;
    mod native_tools;
    mod policy;
    mod printing;
    mod terminal;
    mod web;
}

/// The gateway's HTTP routes.
mod http {
    mod idempotency;
    mod routes;
    mod tls;
}

/// The gateway's WebSocket.
mod ws {
    mod clients;
    mod documentation;
    mod page_data;
    mod python;
    mod request_validation;
}

/// Nodes: joining, reconnecting, and their tools over every surface.
mod nodes {
    mod bad_input;
    mod command;
    mod fan_out;
    mod invalid_answers;
    mod joining;
    mod limited_tools;
    mod many_nodes;
    mod reconnect;
    mod second_machine;
    mod services;
    mod surface_parity;
}

/// Transfers between real processes.
mod transfer {
    mod cuts;
    mod kills;
    mod lying_peers;
}

/// Attacks, permissions and limits.
mod security {
    mod attacks;
    mod denials;
    mod file_modes;
    mod memory_pressure;
    mod page;
    mod tokens;
}
