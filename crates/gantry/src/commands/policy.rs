//! `gantry policy` checks the policy, explains a decision, and replays the audit log against a policy.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use gantry_tool::Decision;

use crate::cli::parse_since;
use crate::environment::Environment;
use crate::exit::Exit;
use crate::output::Output;

pub(crate) mod check;
mod explain;
mod node_tools;
mod replay;

#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) action: PolicyAction,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    gantry policy check\n  \
    gantry policy explain Bash '{\"command\": \"git push\"}' --agent main\n  \
    gantry policy explain Read '{\"path\": \"~/.ssh/id_ed25519\"}' --as mcp\n  \
    gantry policy test --since 7d new.toml")]
pub(crate) enum PolicyAction {
    /// Check the rules, and warn of rules that can never match
    Check {
        /// Configuration file [default: the configuration in use]
        file: Option<PathBuf>,
    },
    /// Show what would be decided on a call, and why; nothing runs
    Explain(ExplainArgs),
    /// Decide again on the calls of the audit log, and show what would change
    Test {
        /// Configuration file with the policy to try [default: the configuration in use]
        file: Option<PathBuf>,
        /// Use only calls since this time: 30m, 2h, 7d, or 2026-01-31T12:00:00Z
        #[arg(long, value_name = "WHEN", default_value = "7d", value_parser = parse_since)]
        since: jiff::Timestamp,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Tool to explain; `gantry tools` lists them
    pub(crate) name: String,
    /// Input as JSON, @FILE to read a file, or - to read standard input
    #[arg(default_value = "{}", hide_default_value = true)]
    pub(crate) input: String,
    /// Explain a call as this agent, with its tools, autonomy and workspace
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// Explain a call by this kind of caller [default: agent with --agent, otherwise operator]
    #[arg(long = "as", value_enum, value_name = "CALLER")]
    pub(crate) caller: Option<Caller>,
    /// Directory that relative paths start in [default: the agent's workspace, or the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Caller {
    Operator,
    Client,
    Mcp,
    Agent,
}

pub(crate) fn run(environment: Environment, output: &Output, args: PolicyArgs) -> Result<Exit> {
    match args.action {
        PolicyAction::Check { file } => check::run(with_file(environment, file), output),
        PolicyAction::Explain(args) => explain::run(environment, output, args),
        PolicyAction::Test { file, since } => replay::run(with_file(environment, file), output, since),
    }
}

/// Makes this file the configuration, as `--config` does.
fn with_file(mut environment: Environment, file: Option<PathBuf>) -> Environment {
    if let Some(file) = file {
        (environment.layers.file, environment.layers.is_named) = (environment.resolve(&file), true);
    }
    environment
}

pub(crate) fn decision_name(decision: Decision) -> &'static str {
    match decision {
        Decision::Allow => "allow",
        Decision::Ask => "ask",
        Decision::Deny => "deny",
    }
}

fn decision_shown(output: &Output, decision: Decision) -> String {
    let name = decision_name(decision);
    match decision {
        Decision::Allow => output.green(name),
        Decision::Ask => output.yellow(name),
        Decision::Deny => output.red(name),
    }
}
