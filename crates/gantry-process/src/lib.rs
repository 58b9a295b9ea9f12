//! Runs commands in the foreground and in sessions. This is the only crate that starts processes.
//!
//! The engine knows no tools and does not read the environment. Every command runs under a
//! [`keeper`], a small process that ends and reaps whatever the command leaves behind, also when
//! the engine dies. Only a detached session continues without an engine, until the next engine
//! adopts it.
//!
//! Start reading with [`Processes`]:
//!
//! - `processes` is the engine; `command`, `options`, `env` and `program` describe what it runs.
//! - `capture` and `piped` handle the output and the pipes of commands without a log.
//! - `session` holds what is known about a session, and its folder on disk.
//! - `detached` lets sessions outlive the engine: recovery after a restart, and exit reports.
//! - `supervise` is the engine's side of one command, `keeper` the side in the other process.
//! - `log` stores output and reads it by page.
//! - `sandbox` restricts what a command can reach.
//! - `workers` runs jobs in processes of their own.
//! - `os` has small functions on the operating system's processes.
#![expect(clippy::disallowed_methods, reason = "this crate starts processes and manages their logs")]

mod capture;
mod command;
mod command_data;
mod detached;
pub mod env;
mod error;
mod exit;
pub mod keeper;
mod log;
mod network;
mod network_visit;
mod options;
mod os;
mod piped;
mod processes;
mod program;
mod sandbox;
mod session;
mod supervise;
mod text;
pub mod workers;

pub use command::{Capture, Command, Cwd, DEFAULT_KEEP_TAIL, Stdin};
pub use command_data::CommandData;
pub use detached::end_sessions;
pub use detached::exit_reports::{ExitReport, ExitReports};
pub use error::ProcessError;
pub use exit::{Exit, Signal};
pub use log::LogPage;
pub use network::{NewNetwork, SessionNetwork};
pub use network_visit::Listener;
pub use options::ProcessesOptions;
pub use os::file_size_signal::survive_file_size_limit;
pub use os::not_dumpable::hide_from_others;
pub use piped::{Piped, PipedProcess};
pub use processes::{Processes, Waited};
pub use program::{Program, find_program, find_program_outside};
pub use sandbox::private_tmp::{PrivateTmp, create_private_dir};
pub use sandbox::{Network, Sandbox, SandboxSupport, could_write, existing, sandbox_support};
pub use session::directory::{living_sessions, move_sessions};
pub use session::{Ended, Finished, SessionId, Snapshot, Stream, TAIL_CHARS, Written};
