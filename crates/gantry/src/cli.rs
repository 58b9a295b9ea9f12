//! The command line: global options and the list of commands. Each command's own options are in its file in `commands/`.

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::commands::audit::AuditArgs;
use crate::commands::call::CallArgs;
use crate::commands::channels::ChannelsArgs;
use crate::commands::chat::ChatArgs;
use crate::commands::completions::CompletionsArgs;
use crate::commands::config::ConfigArgs;
use crate::commands::cron::CronArgs;
use crate::commands::google::GoogleArgs;
use crate::commands::grants::GrantsArgs;
use crate::commands::join::JoinArgs;
use crate::commands::logs::LogsArgs;
use crate::commands::mcp::McpArgs;
use crate::commands::models::ModelsArgs;
use crate::commands::node::NodeCommand;
use crate::commands::nodes::NodesArgs;
use crate::commands::outbox::OutboxArgs;
use crate::commands::page::PageArgs;
use crate::commands::pipelines::PipelinesArgs;
use crate::commands::policy::PolicyArgs;
use crate::commands::ports::PortsArgs;
use crate::commands::processes::ProcessesArgs;
use crate::commands::results::ResultsArgs;
use crate::commands::service::ServiceArgs;
use crate::commands::tasks::TasksArgs;
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
        Every tool call passes one gate. The gate validates the input, applies your policy, writes a tamper-evident \
        audit log, and only then runs the tool.",
    after_help = "Examples:\n  \
        gantry up                                      start Gantry on this machine\n  \
        gantry nodes add laptop                        let another machine join\n  \
        gantry tools                                   list the tools\n  \
        gantry tools Grep                              show one tool and its parameters\n  \
        gantry call Read '{\"path\": \"README.md\", \"limit\": 5}'\n  \
        gantry call Grep '{\"pattern\": \"fn main\", \"include\": \"*.rs\"}'\n  \
        echo '{\"command\": \"cargo test\"}' | gantry call Bash -\n  \
        gantry chat 'What is in this directory?'       talk with an agent\n  \
        gantry audit --tool Bash                       see which commands ran, and who ran them\n  \
        gantry doctor                                  check this machine's setup"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Parses the arguments again without environment variables and returns that error. Otherwise the usage line would list
/// options that came from variables and that the user did not type.
pub(crate) fn as_typed(err: clap::Error) -> clap::Error {
    let command = ["data_dir", "config", "gateway"]
        .into_iter()
        .fold(Cli::command(), |command, name| command.mut_arg(name, |arg| arg.env(None)));
    command.try_get_matches().err().unwrap_or(err)
}

#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Directory for Gantry's own state; no tool can read it
    #[arg(long, global = true, env = "GANTRY_DATA_DIR", value_name = "DIR", hide_env_values = true)]
    pub(crate) data_dir: Option<PathBuf>,
    /// Configuration file [default: gantry.toml in the data directory]
    #[arg(long, global = true, env = "GANTRY_CONFIG", value_name = "FILE", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// Gateway to use; set its token in GANTRY_TOKEN or GANTRY_TOKEN_FILE [default: the gateway that runs on this data
    /// directory]
    #[arg(long, global = true, env = "GANTRY_GATEWAY", value_name = "URL", hide_env_values = true)]
    pub(crate) gateway: Option<String>,
    /// Override a configuration key for this run, such as --set shell.sandbox=off
    #[arg(long = "set", global = true, value_name = "KEY=VALUE")]
    pub(crate) overrides: Vec<String>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Do not print warnings
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print more details on standard error
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// When to use colors
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
    /// Start the gateway without this machine's tools
    #[command(after_help = crate::commands::up::SERVE_EXAMPLES)]
    Serve(UpArgs),
    /// Print a link to the web page; list and log out browsers
    Page(PageArgs),
    /// Manage the machines that may join: list, add, show, rename, tag, revoke, forget
    Nodes(NodesArgs),
    /// Manage access tokens of client programs: list, add, revoke
    Tokens(TokensArgs),
    /// Manage credentials that tools can send but never show: set, list, rm
    Secrets(SecretsArgs),
    /// Manage profiles of the APIs that agents use: list, show, add, rm, import
    Apis(ApisArgs),
    /// Manage the models that agents use: list, test, set
    Models(ModelsArgs),
    /// Manage an agent's files in storage: ls, cat, put, rm, edit
    Workspace(WorkspaceArgs),
    /// Show the newest log lines of a node or the gateway
    Logs(LogsArgs),
    /// Copy a file or directory between machines and storage
    Transfer(TransferArgs),
    /// List the tools, or show one with its parameters
    Tools(ToolsArgs),
    /// Run one tool
    Call(CallArgs),
    /// Talk to an agent: send one message, or start a conversation
    Chat(ChatArgs),
    /// Manage conversations: list, show, export, reset, stop, questions, answer
    Sessions(SessionsArgs),
    /// Manage scheduled jobs: list, show, add, edit, run, pause, history and more
    Cron(CronArgs),
    /// Show chat channels, link yourself, admit people
    Channels(ChannelsArgs),
    /// Sign in to Google Workspace, show accounts, sign out
    Google(GoogleArgs),
    /// List messages of background work, and resend or drop them
    Outbox(OutboxArgs),
    /// Manage approvals that also cover later calls: list, explain, revoke
    Grants(GrantsArgs),
    /// Manage pipelines and their runs: list, show, add, run, cancel, retry and more
    Pipelines(PipelinesArgs),
    /// Manage captured processes: list, show, promote, remove
    Processes(ProcessesArgs),
    /// Manage tasks: list, show, add, done, edit, run, cancel, confirm, history
    Tasks(TasksArgs),
    /// List the agents that the gateway runs
    Agents,
    /// Serve tools to an MCP client over stdio, or manage MCP servers
    Mcp(McpArgs),
    /// List the ports that agents' commands listen on, or forward one to this machine
    Ports(PortsArgs),
    /// Join a gateway with a code of `gantry nodes add`
    Join(JoinArgs),
    /// Run this machine as a node of a gateway, in the foreground
    Node(NodeCommand),
    /// Run the gateway or a node in the background: install, start, restart, logs
    Service(ServiceArgs),
    /// Read a stored tool result
    Results(ResultsArgs),
    /// Show the audit log, or verify it
    Audit(AuditArgs),
    /// Show or change the configuration
    Config(ConfigArgs),
    /// Check and try the policy: check, explain, test
    Policy(PolicyArgs),
    /// Show the gateway, machines, channels, schedules and conversations at a glance
    Status,
    /// Check this machine's setup and suggest fixes
    Doctor,
    /// Print a completion script for a shell, or write the man pages
    Completions(CompletionsArgs),
}

/// Parses a duration: a number of seconds, or a text such as 90s, 15m or 1h30m.
pub(crate) fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    duration(text).ok_or_else(|| "expected seconds, or a duration such as 90s, 15m or 2h".to_owned())
}

/// Parses a duration like [`parse_duration`], and also accepts days.
pub(crate) fn parse_long_duration(text: &str) -> Result<std::time::Duration, String> {
    let Some(days) = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok()) else {
        return duration(text)
            .ok_or_else(|| "expected seconds, or a duration such as 90s, 15m, 12h or 30d".to_owned());
    };
    let seconds = days.checked_mul(24 * 3600).ok_or("this duration is too long")?;
    Ok(std::time::Duration::from_secs(seconds))
}

fn duration(text: &str) -> Option<std::time::Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(std::time::Duration::from_secs(seconds));
    }
    text.parse::<jiff::SignedDuration>().ok()?.try_into().ok()
}

/// Parses a point in time: a timestamp, or a duration before now.
pub(crate) fn parse_since(text: &str) -> Result<jiff::Timestamp, String> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(time);
    }
    let ago = parse_long_duration(text).map_err(
        |_| "expected a time such as 2026-01-31T12:00:00Z, or an age such as 90s, 15m, 12h or 30d",
    )?;
    jiff::Timestamp::now().checked_sub(ago).map_err(|_| "this time is too far in the past".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_argument_has_help() {
        fn check(command: &clap::Command, path: &str, missing: &mut Vec<String>) {
            for argument in command.get_arguments().filter(|argument| argument.get_help().is_none()) {
                missing.push(format!("{path} {}", argument.get_id()));
            }
            for child in command.get_subcommands() {
                check(child, &format!("{path} {}", child.get_name()), missing);
            }
        }
        let mut missing = Vec::new();
        check(&Cli::command(), "gantry", &mut missing);
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn every_command_has_a_short_first_line_of_help() {
        fn check(command: &clap::Command, path: &str, wrong: &mut Vec<String>) {
            for child in command.get_subcommands() {
                let path = format!("{path} {}", child.get_name());
                let about = child.get_about().map(ToString::to_string).unwrap_or_default();
                if about.is_empty() || about.chars().count() > 80 {
                    wrong.push(format!("{path}: {about}"));
                }
                check(child, &path, wrong);
            }
        }
        let mut wrong = Vec::new();
        check(&Cli::command(), "gantry", &mut wrong);
        assert_eq!(wrong, [""; 0]);
    }
}
