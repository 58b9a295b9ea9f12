//! Exit codes, which are the same for every command, and how errors are reported.

use std::process::ExitCode;

use gantry_tool::{Refusal, RefusalCode};

use crate::config::ConfigError;
use crate::output::{self, Output};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// The tool returned an error, or a check failed.
    Failure,
    /// Wrong usage, invalid input, an unknown tool, or an invalid configuration.
    Usage,
    /// Denied, or approval needed.
    Denied,
    /// The gateway or the node is not reachable.
    Unreachable,
    /// The gateway rejects a node's token.
    Unauthorized,
    /// The call's deadline passed.
    Deadline,
    /// The exit code of the command that a tool ran.
    Command(u8),
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
            Exit::Command(code) => code,
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

/// `UsageError` is a mistake in how the command was used. The exit code is 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

/// `HintedUsageError` is a [`UsageError`] with a hint how to fix it.
#[derive(Debug, thiserror::Error)]
#[error("{message}\nhint: {hint}")]
pub(crate) struct HintedUsageError {
    message: String,
    hint: String,
}

impl UsageError {
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> HintedUsageError {
        HintedUsageError { message: self.0, hint: hint.into() }
    }
}

/// Returns whether an error is the user's mistake, in the command line or the configuration.
pub(crate) fn is_usage_error(err: &anyhow::Error) -> bool {
    err.is::<UsageError>() || err.is::<HintedUsageError>() || err.is::<ConfigError>()
}

/// `Refused` is the refusal of a gateway, or the failure to reach one. The refusal's code decides the exit code.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub(crate) struct Refused(pub(crate) Refusal);

impl Exit {
    /// Prints an error as text on standard error. Programs also get the error object on standard output: always for usage
    /// errors, and with `--json` for every error.
    pub(crate) fn report(output: &Output, err: &anyhow::Error) -> Exit {
        if let Some(Refused(refusal)) = err.downcast_ref() {
            return output.refused(refusal);
        }
        if is_usage_error(err) {
            output.error_object(&match err.downcast_ref() {
                Some(HintedUsageError { message, hint }) => {
                    output::error_object_with_hint("usage", message, hint)
                }
                None => output::error_object("usage", &format!("{err:#}")),
            });
            output.error(&format!("{err:#}"));
            return Exit::Usage;
        }
        if output.json {
            output.value(&output::error_object("failed", &format!("{err:#}")));
        }
        output.error(&format!("{err:#}"));
        Exit::Failure
    }

    /// Prints what the parser returned: help and version are results, anything else is a usage error.
    pub(crate) fn from_parser(err: &clap::Error) -> Exit {
        if err.use_stderr() && serves_mcp(std::env::args()) {
            // Standard output belongs to the MCP client, so only the protocol is written there.
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

/// Returns whether an invalid command line was meant to start an MCP server.
fn serves_mcp(args: impl Iterator<Item = String>) -> bool {
    const OTHERS: [&str; 8] = ["install", "add", "list", "show", "test", "accept", "login", "remove"];
    let mut args = args.skip_while(|arg| arg != "mcp").skip(1).peekable();
    args.peek().is_some() && !args.any(|arg| OTHERS.contains(&arg.as_str()))
}
