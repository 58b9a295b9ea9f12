//! `gantry mcp` serves tools to an MCP client on standard input and output. Only the protocol is written there.

mod accept;
mod add;
mod choice;
mod clients;
mod goose;
mod in_process;
mod install;
mod login;
mod servers;
mod through;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_mcp::{Backend, McpServer, Selection, serve_stdio};

use crate::client::{Target, runtime};
use crate::commands::interrupted;
use crate::environment::Environment;
use crate::exit::{Exit, Refused, UsageError, is_usage_error};
use crate::local::{Lifetime, Local};
use crate::output::Output;
use in_process::InProcess;
use through::Through;

/// Time limit for the shutdown, because a blocked read of standard input cannot be cancelled.
const LEAVE_WITHIN: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry mcp                                       serve files, search, commands and web tools\n  \
    gantry mcp --read-only                           serve read-only tools\n  \
    gantry mcp --toolset guarded                     serve another toolset\n  \
    gantry mcp --tools Read,Grep --workspace ~/src   serve two tools, in another directory\n  \
    gantry mcp install claude                        set up Claude Code\n  \
    gantry mcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes\n  \
    gantry mcp list                                  list the MCP servers used here\n\n\
    If a gateway runs on this data directory, or --gateway names one, calls go through it and its nodes' tools are offered.")]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    pub(crate) action: Option<McpAction>,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum McpAction {
    /// Configure an MCP client to start `gantry mcp`
    Install(install::InstallArgs),
    /// Add an MCP server: test it, show its tools and accept them
    Add(add::AddArgs),
    /// List the MCP servers used here
    List,
    /// Show one server and the status of each of its tools
    Show(servers::ShowArgs),
    /// Connect to a server and list its tools
    Test(servers::NameArgs),
    /// Accept a server's new and changed tools
    Accept(accept::AcceptArgs),
    /// Log in to a server with a browser
    Login(login::LoginArgs),
    /// Remove a server and its records
    Remove(servers::NameArgs),
}

/// Options for serving tools.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Offer these toolsets [default: one tool of each kind]
    #[arg(long, value_name = "SET", value_delimiter = ',')]
    pub(crate) toolset: Vec<String>,
    /// Offer these tools, given as names or globs
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) tools: Vec<String>,
    /// Offer only read-only tools
    #[arg(long)]
    pub(crate) read_only: bool,
    /// List each node's tools separately, as {node}__{Tool}
    #[arg(long)]
    pub(crate) namespaced: bool,
    /// Call as this agent, with its tools, policy and workspace
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// Directory that relative paths start in [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Run in this process, even if a gateway is running or configured
    #[arg(long)]
    pub(crate) local: bool,
}

pub(crate) fn run(environment: Environment, output: &Output, args: McpArgs) -> Result<Exit> {
    match args.action {
        Some(McpAction::Install(install)) => install::run(&environment, output, &install, &args.serve),
        Some(action) => manage(environment, output, action),
        // Errors go to standard error, because standard output belongs to the client.
        None => Ok(serve(environment, output, args.serve).unwrap_or_else(|err| {
            let refused = err.downcast_ref::<Refused>().map(|Refused(refusal)| refusal);
            output.error(&refused.map_or_else(|| format!("{err:#}"), ToString::to_string));
            match refused {
                Some(refusal) => refusal.code.into(),
                None if is_usage_error(&err) => Exit::Usage,
                None => Exit::Failure,
            }
        })),
    }
}

/// Runs a command that manages the MCP servers of this data directory.
fn manage(environment: Environment, output: &Output, action: McpAction) -> Result<Exit> {
    if environment.gateway.is_some() {
        let message =
            "MCP servers are configured on the gateway's machine; run this command there, without --gateway";
        return Err(UsageError(message.into()).into());
    }
    match action {
        McpAction::Add(args) => add::run(environment, output, args),
        McpAction::List => servers::list(&environment, output),
        McpAction::Show(args) => servers::show(&environment, output, &args),
        McpAction::Test(args) => servers::test(&environment, output, &args.name),
        McpAction::Accept(args) => accept::run(&environment, output, &args),
        McpAction::Login(args) => login::run(&environment, output, args),
        McpAction::Remove(args) => servers::remove(&environment, output, &args.name),
        McpAction::Install(_) => Ok(Exit::Usage),
    }
}

fn serve(environment: Environment, output: &Output, args: ServeArgs) -> Result<Exit> {
    let selection = selection(&args)?;
    let runtime = runtime()?;
    let served = match Target::find(&environment, output, args.local)? {
        Target::Gateway(address) => runtime.block_on(async {
            let through = Through::open(address, &environment, &args, selection).await?;
            // Missing tools are only a warning, because a node that offers them may connect later.
            through.missing().await.iter().for_each(|missing| output.warning(missing));
            serve_client(through).await
        }),
        Target::InProcess => {
            let _entered = runtime.enter();
            let local = Local::open_for(environment, Lifetime::Conversation)?;
            local.config.warnings().iter().for_each(|warning| output.warning(warning));
            let local = Arc::new(local);
            choice::here(output, &selection, local.gate.registry())?;
            let in_process = InProcess::new(local.clone(), args.agent, args.workspace, selection)?;
            runtime.block_on(async {
                let following = local.clone();
                let following = tokio::spawn(async move { following.servers.follow().await });
                let result = serve_client(in_process).await;
                following.abort();
                local.servers.stop().await;
                local.processes.shutdown().await;
                if let Err(err) = local.gate.flush() {
                    output.warning(&err.to_string());
                }
                result
            })
        }
    };
    runtime.shutdown_timeout(LEAVE_WITHIN);
    served
}

async fn serve_client(backend: impl Backend) -> Result<Exit> {
    serve_stdio(McpServer::new(backend, env!("CARGO_PKG_VERSION")), interrupted()).await?;
    Ok(Exit::Success)
}

fn selection(args: &ServeArgs) -> Result<Selection> {
    let selection = Selection::new(&args.toolset, &args.tools).map_err(|err| UsageError(err.to_string()))?;
    let selection = if args.read_only { selection.read_only() } else { selection };
    Ok(if args.namespaced { selection.namespaced() } else { selection })
}
