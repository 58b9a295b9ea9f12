//! The command line, as typed: what all commands share, and the list of them. What each takes stands beside what it does.

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::commands::audit::AuditArgs;
use crate::commands::call::CallArgs;
use crate::commands::chat::ChatArgs;
use crate::commands::completions::CompletionsArgs;
use crate::commands::config::ConfigArgs;
use crate::commands::logs::LogsArgs;
use crate::commands::mcp::McpArgs;
use crate::commands::models::ModelsArgs;
use crate::commands::node::NodeCommand;
use crate::commands::nodes::NodesArgs;
use crate::commands::results::ResultsArgs;
use crate::commands::tokens::TokensArgs;
use crate::commands::tools::ToolsArgs;
use crate::commands::transfer::TransferArgs;
use crate::commands::up::UpArgs;
use crate::commands::workspace::WorkspaceArgs;

use crate::commands::apis::ApisArgs;
use crate::commands::secrets::SecretsArgs;
use crate::commands::sessions::SessionsArgs;

#[derive(Debug, Parser)]
#[command(
    name = "gantry",
    version,
    about = "Hands for AI agents on every machine their owner has",
    long_about = "Hands for AI agents on every machine their owner has.\n\n\
        Every tool call passes one gate: it is checked against the tool's schema, judged by policy, written to a \
        tamper-evident audit log, and only then run.",
    after_help = "Examples:\n  \
        gantry up                                      the gateway, with this machine's tools\n  \
        gantry nodes add laptop                        let another machine join\n  \
        gantry tools                                   what there is\n  \
        gantry tools Grep                              one tool, with its parameters\n  \
        gantry call Read '{\"path\": \"README.md\", \"limit\": 5}'\n  \
        gantry call Grep '{\"pattern\": \"fn main\", \"include\": \"*.rs\"}'\n  \
        echo '{\"command\": \"cargo test\"}' | gantry call Bash -\n  \
        gantry chat 'What is in this directory?'       talk with an agent\n  \
        gantry audit --tool Bash                       what was run, by whom\n  \
        gantry doctor                                  is this machine set up well?"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The error as it is without the environment: the usage line names every option that has a value, and those that come from
/// a variable were not typed.
pub(crate) fn as_typed(err: clap::Error) -> clap::Error {
    let command = ["data_dir", "config", "gateway"]
        .into_iter()
        .fold(Cli::command(), |command, name| command.mut_arg(name, |arg| arg.env(None)));
    command.try_get_matches().err().unwrap_or(err)
}

#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Where Gantry keeps its own state; closed to every tool
    #[arg(long, global = true, env = "GANTRY_DATA_DIR", value_name = "DIR", hide_env_values = true)]
    pub(crate) data_dir: Option<PathBuf>,
    /// The configuration file [default: gantry.toml in the data directory]
    #[arg(long, global = true, env = "GANTRY_CONFIG", value_name = "FILE", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// The gateway to use [default: the one that runs on this data directory]; its token comes from GANTRY_TOKEN or
    /// GANTRY_TOKEN_FILE
    #[arg(long, global = true, env = "GANTRY_GATEWAY", value_name = "URL", hide_env_values = true)]
    pub(crate) gateway: Option<String>,
    /// Override a configuration key for this run, such as --set shell.sandbox=off
    #[arg(long = "set", global = true, value_name = "KEY=VALUE")]
    pub(crate) overrides: Vec<String>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// No warnings on standard error
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Say more on standard error
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// When to use colour
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN")]
    pub(crate) color: ColorChoice,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ColorChoice {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start Gantry here (gateway + this machine's tools)
    Up(UpArgs),
    /// Start the gateway alone
    #[command(after_help = crate::commands::up::SERVE_EXAMPLES)]
    Serve(UpArgs),
    /// The machines that may join: list, add, show, rename, tag, revoke, forget
    Nodes(NodesArgs),
    /// Tokens of client programs: list, add, revoke
    Tokens(TokensArgs),
    /// Credentials that tools send and never show: set, list, rm
    Secrets(SecretsArgs),
    /// Profiles of the APIs that agents use: list, show, add, rm, import
    Apis(ApisArgs),
    /// The models that agents speak with: list, test, set
    Models(ModelsArgs),
    /// An agent's files in storage: ls, cat, put, rm, edit
    Workspace(WorkspaceArgs),
    /// The newest lines of the log of a node or the gateway
    Logs(LogsArgs),
    /// Send a file or a directory between nodes and storage
    Transfer(TransferArgs),
    /// List the tools, or show one with its parameters
    Tools(ToolsArgs),
    /// Run one tool
    Call(CallArgs),
    /// Talk with an agent: one message, or a conversation
    Chat(ChatArgs),
    /// Conversations of agents: list, show, export, reset, compact, stop, answer
    Sessions(SessionsArgs),
    /// The agents that the gateway runs
    Agents,
    /// Serve the tools to an MCP client on standard input and output; `mcp install` sets one up
    Mcp(McpArgs),
    /// Join a gateway: contribute this machine's tools
    Node(NodeCommand),
    /// Read a kept result
    Results(ResultsArgs),
    /// Show what was called, by whom and with what outcome; `audit verify` checks the log
    Audit(AuditArgs),
    /// Show or change the configuration
    Config(ConfigArgs),
    /// Check that this machine is set up well
    Doctor,
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

/// Seconds, or what people write: 90s, 15m, 1h30m.
pub(crate) fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    duration(text).ok_or_else(|| "give seconds, or a time such as 90s, 15m or 2h".to_owned())
}

/// As [`parse_duration`], and days.
pub(crate) fn parse_long_duration(text: &str) -> Result<std::time::Duration, String> {
    let Some(days) = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok()) else {
        return duration(text)
            .ok_or_else(|| "give seconds, or a time such as 90s, 15m, 12h or 30d".to_owned());
    };
    let seconds = days.checked_mul(24 * 3600).ok_or("that is longer than can be told")?;
    Ok(std::time::Duration::from_secs(seconds))
}

fn duration(text: &str) -> Option<std::time::Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(std::time::Duration::from_secs(seconds));
    }
    text.parse::<jiff::SignedDuration>().ok()?.try_into().ok()
}

pub(crate) fn parse_since(text: &str) -> Result<jiff::Timestamp, String> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(time);
    }
    let ago = parse_long_duration(text)
        .map_err(|_| "give a time such as 2026-01-31T12:00:00Z, or how long ago: 90s, 15m, 12h, 30d")?;
    jiff::Timestamp::now().checked_sub(ago).map_err(|_| "that is longer ago than can be told".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_says_what_every_argument_is() {
        fn look(command: &clap::Command, path: &str, silent: &mut Vec<String>) {
            for argument in command.get_positionals().filter(|argument| argument.get_help().is_none()) {
                silent.push(format!("{path} {}", argument.get_id()));
            }
            for below in command.get_subcommands() {
                look(below, &format!("{path} {}", below.get_name()), silent);
            }
        }
        let mut silent = Vec::new();
        look(&Cli::command(), "gantry", &mut silent);
        assert_eq!(silent, [""; 0]);
    }
}
