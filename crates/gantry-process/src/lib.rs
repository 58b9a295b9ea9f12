//! The door to processes: runs commands in the foreground and in sessions, and lets none of them outlive its welcome.
//!
//! The engine knows no tool and reads no environment. Every command runs under a [`keeper`], a small process that ends
//! and reaps whatever the command leaves behind, also when the engine itself dies. Only a session that was detached
//! goes on without an engine, until the next one finds it. Start with [`Processes`].
#![expect(clippy::disallowed_methods, reason = "this crate is the door to processes and to their logs")]

mod capture;
mod command;
mod ends;
pub mod env;
mod error;
mod exit;
mod file_size_signal;
pub mod keeper;
mod keepers;
mod link;
mod log;
mod log_budget;
mod log_directory;
mod log_layout;
mod lost;
mod options;
mod order;
mod piped;
mod private_tmp;
#[cfg(target_os = "linux")]
mod process_table;
mod processes;
mod program;
mod provisional;
mod record;
mod recovery;
mod sandbox;
mod session;
mod session_folder;
mod session_key;
mod sessions_directory;
mod supervise;
mod surviving;
mod text;
mod unseen;

pub use command::{Capture, Command, Cwd, DEFAULT_KEEP_TAIL, Stdin};
pub use ends::{EndReport, Ends};
pub use error::ProcessError;
pub use exit::{Exit, Signal};
pub use file_size_signal::survive_file_size_limit;
pub use log::LogPage;
pub use options::ProcessesOptions;
pub use piped::{Piped, PipedProcess};
pub use private_tmp::PrivateTmp;
pub use processes::{Processes, Waited};
pub use program::{Program, find_program, find_program_outside};
pub use sandbox::{Network, Sandbox, SandboxSupport, existing, sandbox_support};
pub use session::{Ended, Finished, SessionId, Snapshot, Stream, Written};
pub use sessions_directory::{living_sessions, move_sessions};
pub use surviving::end_sessions;
pub use unseen::hide_from_others;
