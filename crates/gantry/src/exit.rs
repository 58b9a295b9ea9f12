//! Exit codes, the same for every command.

use std::process::ExitCode;

use gantry_tool::{Refusal, RefusalCode};

use crate::config::ConfigError;
use crate::output::{self, Output};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// The tool answered with an error, or a check failed.
    Failure,
    /// Usage, schema violation, unknown tool, configuration that is not valid.
    Usage,
    /// Denied, or approval needed.
    Denied,
    /// The gateway or the node is not reachable.
    Unreachable,
    /// The gateway does not take a node's token.
    Unauthorized,
    /// The call's deadline passed.
    Deadline,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Denied => 3,
            Exit::Unreachable => 4,
            Exit::Unauthorized => gantry_node::UNAUTHORIZED_EXIT,
            Exit::Deadline => 124,
        })
    }
}

impl From<RefusalCode> for Exit {
    fn from(code: RefusalCode) -> Exit {
        match code {
            RefusalCode::UnknownTool | RefusalCode::InvalidInput => Exit::Usage,
            RefusalCode::Denied | RefusalCode::ApprovalNeeded | RefusalCode::Unaudited => Exit::Denied,
            RefusalCode::Unavailable => Exit::Unreachable,
            RefusalCode::Deadline => Exit::Deadline,
            RefusalCode::Cancelled => Exit::Failure,
        }
    }
}

/// A mistake in how the command was used; exits with 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

/// A gateway, or the way to it, refuses; the refusal tells the exit code.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub(crate) struct Refused(pub(crate) Refusal);

impl Exit {
    /// Prints what went wrong: words on standard error; for programs also the error object on standard output, of usage
    /// errors and, with `--json`, of all.
    pub(crate) fn report(output: &Output, err: &anyhow::Error) -> Exit {
        if let Some(Refused(refusal)) = err.downcast_ref() {
            return output.refused(refusal);
        }
        let usage = err.downcast_ref::<UsageError>().is_some() || err.downcast_ref::<ConfigError>().is_some();
        if usage {
            output.error_object(&output::error_object("usage", &format!("{err:#}")));
            output.error(&format!("{err:#}"));
            return Exit::Usage;
        }
        if output.json {
            output.value(&output::error_object("failed", &format!("{err:#}")));
        }
        output.error(&format!("{err:#}"));
        Exit::Failure
    }

    /// Help and version are answers; a command line that does not parse is an error like any other.
    pub(crate) fn from_parser(err: &clap::Error) -> Exit {
        if err.use_stderr() && speaks_mcp(std::env::args()) {
            // Standard output is the client's: nothing but the protocol is written there.
            let _ = err.print();
            return Exit::Usage;
        }
        if err.use_stderr() {
            output::print_usage_error(err, std::env::args().any(|arg| arg == "--json"));
            return Exit::Usage;
        }
        if output::print_help(err) { Exit::Success } else { Exit::Failure }
    }
}

/// Whether a command line that does not parse was to serve the protocol.
fn speaks_mcp(args: impl Iterator<Item = String>) -> bool {
    const OTHERS: [&str; 8] = ["install", "add", "list", "show", "test", "accept", "login", "remove"];
    let mut args = args.skip_while(|arg| arg != "mcp").skip(1).peekable();
    args.peek().is_some() && !args.any(|arg| OTHERS.contains(&arg.as_str()))
}
