//! The command line, as typed. What it means is in `commands`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::commands::apis::ApisArgs;
use crate::commands::secrets::SecretsArgs;

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
    /// Start the gateway, with this machine's tools: the main job
    Up(UpArgs),
    /// Start the gateway alone
    Serve(UpArgs),
    /// The machines that may join: list, add, show, rename, tag, revoke, forget
    Nodes(NodesArgs),
    /// Tokens of client programs: list, add, revoke
    Tokens(TokensArgs),
    /// Credentials that tools send and never show: set, list, rm
    Secrets(SecretsArgs),
    /// Profiles of the APIs that agents use: list, show, add, rm, import
    Apis(ApisArgs),
    /// An agent's files in storage: ls, cat, put, rm, edit
    Workspace(WorkspaceArgs),
    /// The newest lines of a node's log
    Logs(LogsArgs),
    /// Send a file or a directory between nodes and storage
    Transfer(TransferArgs),
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
    gantry up                                        on 127.0.0.1:7770, tools work in the current directory\n  \
    gantry up --listen 127.0.0.1:0 --json            any free port, told as JSON\n  \
    gantry up --listen 0.0.0.0:7770 --public-url https://gantry.example.com \\\n            \
        --tls-cert chain.pem --tls-key key.pem")]
pub(crate) struct UpArgs {
    /// Address and port; port 0 picks one [default: 127.0.0.1:7770]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Where relative paths start [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// The address by which others reach this gateway, with its scheme
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// Certificate chain as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's key as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry nodes                                     who may join, and who is here\n  \
    gantry nodes add laptop --tag web                prints the command to run there\n  \
    gantry nodes show laptop\n  \
    gantry nodes revoke laptop                       its token no longer works, at once")]
pub(crate) struct NodesArgs {
    #[command(subcommand)]
    pub(crate) action: Option<NodesAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodesAction {
    /// All nodes, online or not
    List,
    /// One node: platform, version, capabilities, when it was seen, which processes ended
    Show { id: String },
    /// Let a machine join: prints the command to run there
    Add {
        id: String,
        /// Tags, so that calls can say tag:NAME
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
    },
    /// Make a new token for a node; the old one no longer works
    Renew { id: String },
    /// Set the tags of a node; none removes them
    Tag { id: String, tags: Vec<String> },
    /// Give a node another id
    Rename { id: String, new_id: String },
    /// Make a node's token invalid and close its connection
    Revoke { id: String },
    /// Remove a node and all that is known of it
    Forget { id: String },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry workspace ls memory/\n  \
    gantry workspace cat SOUL.md\n  \
    gantry workspace put notes.md memory/notes.md\n  \
    gantry workspace edit SOUL.md 'old words' 'new words'\n  \
    gantry workspace ls --agent helper")]
pub(crate) struct WorkspaceArgs {
    #[command(subcommand)]
    pub(crate) action: WorkspaceAction,
    /// Whose workspace [default: main]
    #[arg(long, global = true, value_name = "ID")]
    pub(crate) agent: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkspaceAction {
    /// List a directory
    Ls { path: Option<String> },
    /// Print a file
    Cat { path: String },
    /// Write a file from a text file here, or from standard input with -
    Put { file: String, path: String },
    /// Delete a file
    Rm { path: String },
    /// Replace exact text in a file
    Edit {
        path: String,
        old: String,
        new: String,
        /// Every occurrence, not just the only one
        #[arg(long)]
        all: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry transfer laptop:/home/me/data.tar build-box:/tmp/data.tar\n  \
    gantry transfer laptop:photos gsv:photos         a directory, into storage\n  \
    gantry transfer gsv:report.pdf local:report.pdf\n\n\
    A transfer that was cut goes on where it was. Ctrl-C calls it off.")]
pub(crate) struct TransferArgs {
    /// Where from: NODE:PATH, or gsv:PATH for storage; relative paths start in the node's workspace
    pub(crate) source: String,
    /// Where to, in the same form
    pub(crate) destination: String,
    /// Whose workspace gsv: means [default: main]
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry logs                                      of the only node that is connected\n  \
    gantry logs laptop --lines 500 | jq .event")]
pub(crate) struct LogsArgs {
    /// The node [default: the only one]
    pub(crate) node: Option<String>,
    /// How many lines, at most 5000
    #[arg(short = 'n', long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub(crate) lines: u32,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry tokens add ci --tools 'local__Read,local__Grep' --read-only --expires 30d\n  \
    gantry tokens revoke ci")]
pub(crate) struct TokensArgs {
    #[command(subcommand)]
    pub(crate) action: Option<TokensAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokensAction {
    /// All tokens and what they may do
    List,
    /// Make a token; it is shown once
    Add {
        name: String,
        /// Names, globs and toolsets it may call [default: all]
        #[arg(long, value_delimiter = ',', value_name = "TOOLS")]
        tools: Vec<String>,
        /// Agents it may act as
        #[arg(long, value_delimiter = ',', value_name = "AGENTS")]
        agents: Vec<String>,
        /// Only tools that change nothing
        #[arg(long)]
        read_only: bool,
        /// How long it works, such as 12h or 30d
        #[arg(long, value_name = "TIME", value_parser = parse_long_duration)]
        expires: Option<std::time::Duration>,
    },
    /// Make a token invalid and close its connections
    Revoke { name: String },
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
    /// Let no tool reach beyond the workspace; shells are confined by the kernel
    #[arg(long)]
    pub(crate) contain: bool,
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
pub(crate) enum NodeAction {
    /// Make it a service of your user, started now and at login; takes the options of `gantry node`
    Install {
        #[command(flatten)]
        args: Box<NodeArgs>,
        /// Only show the service file
        #[arg(long)]
        print: bool,
    },
    /// Stop the service and remove it; the node's data stays
    Uninstall(NodeId),
    /// Start the service
    Start(NodeId),
    /// Stop the node; what runs in the background goes on
    Stop {
        #[command(flatten)]
        node: NodeId,
        /// End what runs in the background as well
        #[arg(long)]
        kill: bool,
    },
    /// Show whether it runs, whether it is connected, and what went wrong last
    Status(NodeId),
    /// Show the node's log
    Logs {
        #[command(flatten)]
        node: NodeId,
        /// The newest this many lines
        #[arg(short = 'n', long, default_value_t = 100, value_name = "N")]
        lines: usize,
        /// Go on with what is written
        #[arg(short, long)]
        follow: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct NodeId {
    /// The node [default: the only one on this machine]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

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

/// As [`parse_duration`], and days.
fn parse_long_duration(text: &str) -> Result<std::time::Duration, String> {
    match text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok()) {
        Some(days) => {
            let seconds = days.checked_mul(24 * 3600).ok_or("that is longer than can be told")?;
            Ok(std::time::Duration::from_secs(seconds))
        }
        None => parse_duration(text),
    }
}

fn parse_since(text: &str) -> Result<jiff::Timestamp, String> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(time);
    }
    let ago = parse_long_duration(text)?;
    jiff::Timestamp::now().checked_sub(ago).map_err(|err| err.to_string())
}
