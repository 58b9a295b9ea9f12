//! The `gantry` binary parses the command line, runs the command, and maps its result to an exit code.

mod administration;
mod agent_sessions;
mod agent_shells_summary;
mod cli;
mod client;
mod commands;
mod completion;
mod config;
mod environment;
mod exit;
mod gateway_tls;
mod google;
mod line_editor;
mod live_config;
mod live_screen;
mod live_secrets;
mod local;
mod logging;
mod models;
mod open_files;
mod output;
mod qr;
mod running_gateway;
mod services;
mod table;
mod terminal_input;
mod terminal_markdown;
mod terminal_text;
mod wrapping;

use std::process::ExitCode;

use clap::Parser;

/// A tool call makes many small allocations. With the system's allocator they took a quarter of the call's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The keeper of a command is this same binary. Every command waits for it, so it starts before anything else.
    let mut args = std::env::args_os().skip(1);
    let first = args.next();
    if first.as_ref().is_some_and(|arg| arg == local::KEEPER_ARGUMENT) {
        args.for_each(|limit| restore_limit(&limit));
        return gantry_process::keeper::main();
    }
    if first.is_some_and(|arg| arg == local::WORKER_ARGUMENT) {
        return gantry_toolsets::worker_main();
    }
    gantry_process::survive_file_size_limit();
    if completion::answer() {
        return ExitCode::SUCCESS;
    }
    let exit = match cli::Cli::try_parse() {
        Ok(cli) => {
            let output = output::Output::new(&cli.global);
            let exit = commands::run(cli, &output).unwrap_or_else(|err| exit::Exit::report(&output, &err));
            if output.is_complete() { exit } else { exit::Exit::Failure }
        }
        Err(err) => exit::Exit::from_parser(&cli::as_typed(err)),
    };
    exit.into()
}

/// Restores a limit that the engine changed for itself, in a keeper.
fn restore_limit(argument: &std::ffi::OsStr) {
    open_files::restore(argument);
    gantry_process::workers::memory_limit::restore(argument);
}
