//! The command line, as typed. What it means is in `commands`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

#[derive(Debug, Parser)]
#[command(
    name = "gantry",
    version,
    about = "Hands for AI agents on every machine their owner has",
    long_about = "Hands for AI agents on every machine their owner has.\n\n\
        Every tool call passes one gate: it is checked against the tool's schema, judged by policy, written to a \
        tamper-evident audit log, and only then run.",
    after_help = "Examples:\n  \
        gantry tools                                   what there is\n  \
        gantry tools Grep                              one tool, with its parameters\n  \
        gantry call Read '{\"path\": \"README.md\", \"limit\": 5}'\n  \
        gantry call Grep '{\"pattern\": \"fn main\", \"include\": \"*.rs\"}'\n  \
        echo '{\"command\": \"cargo test\"}' | gantry call Bash -\n  \
        gantry audit --tool Bash                       what was run, by whom\n  \
        gantry doctor                                  is this machine set up well?"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Where Gantry keeps its own state; closed to every tool
    #[arg(long, global = true, env = "GANTRY_DATA_DIR", value_name = "DIR", hide_env_values = true)]
    pub(crate) data_dir: Option<PathBuf>,
    /// The configuration file [default: gantry.toml in the data directory]
    #[arg(long, global = true, env = "GANTRY_CONFIG", value_name = "FILE", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// The gateway to call through; this version has no client for one yet, and says so
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
    /// List the tools, or show one with its parameters
    Tools(ToolsArgs),
    /// Run one tool
    Call(CallArgs),
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

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry tools --toolset guarded\n  \
    gantry tools Bash\n  \
    gantry tools --agent file-assistant            what that agent sees\n  \
    gantry tools read --json | jq .inputSchema")]
pub(crate) struct ToolsArgs {
    /// Show this tool
    pub(crate) name: Option<String>,
    /// Only this toolset: node, guarded, basic, assistant, gantry
    #[arg(long, value_name = "TOOLSET")]
    pub(crate) toolset: Option<String>,
    /// Only what this agent sees
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// The tools of this process, whatever gateway is configured
    #[arg(long)]
    pub(crate) local: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry call Bash '{\"command\": \"git status --short\"}'\n  \
    gantry call read '{\"path\": \"/var/log/syslog\", \"offset\": -20}'\n  \
    gantry call tool::apply_patch @patch.json\n  \
    jq -n --rawfile content notes.md '{path: \"copy.md\", $content}' | gantry call Write -\n  \
    gantry call Glob '{\"pattern\": \"**/*.rs\"}' | jq -r '.matches[]'\n\n\
    Exit codes: 0 success · 1 the tool answered with an error · 2 usage, schema violation, unknown tool ·\n\
    3 denied, or approval needed · 4 not reachable · 124 the deadline passed")]
pub(crate) struct CallArgs {
    /// The tool; `gantry tools` lists them
    pub(crate) name: String,
    /// The input: JSON, @FILE, or - for standard input
    #[arg(default_value = "{}", hide_default_value = true)]
    pub(crate) input: String,
    /// Call as this agent: its tools, its policy, its workspace
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// Where relative paths start [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Give up after this long, such as 500ms, 30s or 5m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) deadline: Option<std::time::Duration>,
    /// Run in this process, whatever gateway is configured
    #[arg(long)]
    pub(crate) local: bool,
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        gantry node --gateway https://gantry.example.com --id laptop --workspace ~/src --token-file ~/.gantry-token\n  \
        GANTRY_TOKEN=… gantry node --gateway http://127.0.0.1:7770 --id box\n  \
        gantry node --gateway … --id reader --tools Read,Glob,Grep     only these tools\n  \
        gantry node install --gateway … --id laptop --token-file ~/.gantry-token\n  \
        gantry node status\n  \
        gantry node logs --id laptop --follow\n\n\
        The gateway's operator makes the token with `gantry nodes add ID`. It is never given on the command line."
)]
pub(crate) struct NodeCommand {
    #[command(subcommand)]
    pub(crate) action: Option<NodeAction>,
    #[command(flatten)]
    pub(crate) args: NodeArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct NodeArgs {
    /// The node's name on the gateway
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Where relative paths start [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Offer only these tools, such as Read,Glob,Grep
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) tools: Option<Vec<String>>,
    /// The file with the node's token, readable by its owner only [default: GANTRY_TOKEN, or node.tokenFile]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Trust this certificate authority (PEM) beside the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Allow a gateway that is neither encrypted nor on this machine
    #[arg(long)]
    pub(crate) insecure: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeAction {}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry results res_0123456789abcdef0123456789abcdef --limit 2000\n  \
    gantry results res_0123456789abcdef0123456789abcdef --grep 'error|warning'")]
pub(crate) struct ResultsArgs {
    /// The handle, as given in `resultHandle`
    pub(crate) handle: String,
    /// First character to show; with --grep, how many matches to skip
    #[arg(long, default_value_t = 0)]
    pub(crate) offset: usize,
    /// At most this many characters
    #[arg(long, default_value_t = 80_000)]
    pub(crate) limit: usize,
    /// Show only passages that match this regular expression
    #[arg(long, value_name = "REGEX")]
    pub(crate) grep: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        gantry audit --tool Bash --limit 20\n  \
        gantry audit --status denied --since 2h\n  \
        gantry audit verify"
)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) action: Option<AuditAction>,
    /// Only tools whose name contains this
    #[arg(long)]
    pub(crate) tool: Option<String>,
    /// Only principals that contain this, such as operator or agent:main
    #[arg(long)]
    pub(crate) principal: Option<String>,
    /// Only calls made as this agent
    #[arg(long)]
    pub(crate) agent: Option<String>,
    /// Only this status: success, failure, denied, approval_needed, invalid_input, unknown_tool
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// Only the lines of one call
    #[arg(long)]
    pub(crate) call: Option<String>,
    /// Only lines since then: 30m, 2h, 7d, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = parse_since)]
    pub(crate) since: Option<jiff::Timestamp>,
    /// The newest this many lines
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditAction {
    /// Find changed, removed, reordered and inserted lines, and a cut tail
    Verify,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) action: ConfigAction,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    gantry config show\n  \
    gantry config set maxToolResultChars 40000\n  \
    gantry config set agents.reader.tools '[\"read\", \"local__Grep\"]'\n  \
    gantry config get agents.reader")]
pub(crate) enum ConfigAction {
    /// The whole configuration in force, secrets masked
    Show,
    /// One key, such as shell.sandbox
    Get { key: String },
    /// Change one key of the file; comments stay
    Set { key: String, value: String },
    /// Where the configuration file is
    Path,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry completions bash > ~/.local/share/bash-completion/completions/gantry\n  \
    gantry completions zsh > ~/.zfunc/_gantry")]
pub(crate) struct CompletionsArgs {
    pub(crate) shell: Shell,
}

fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let plain_seconds = text.parse::<u64>().map(std::time::Duration::from_secs);
    plain_seconds.or_else(|_| {
        let duration: jiff::SignedDuration = text.parse().map_err(|err: jiff::Error| err.to_string())?;
        duration.try_into().map_err(|err: jiff::Error| err.to_string())
    })
}

fn parse_since(text: &str) -> Result<jiff::Timestamp, String> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(time);
    }
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok());
    let ago = match days {
        Some(days) => {
            let seconds = days.checked_mul(24 * 3600).ok_or("that is longer ago than can be told")?;
            std::time::Duration::from_secs(seconds)
        }
        None => parse_duration(text)?,
    };
    jiff::Timestamp::now().checked_sub(ago).map_err(|err| err.to_string())
}
