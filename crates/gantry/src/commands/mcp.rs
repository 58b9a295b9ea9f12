//! `gantry mcp`: the tools for an MCP client, on standard input and output. Nothing but the protocol is written there.

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
use crate::exit::{Exit, Refused, UsageError};
use crate::local::{Lifetime, Local};
use crate::output::Output;
use in_process::InProcess;
use through::Through;

/// Standard input may be in the middle of a read that nothing can end.
const LEAVE_WITHIN: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry mcp                                       files, search, commands and the web, in the current directory\n  \
    gantry mcp --read-only                           nothing that changes anything\n  \
    gantry mcp --toolset guarded                     another set of tools\n  \
    gantry mcp --tools Read,Grep --workspace ~/src   two tools, elsewhere\n  \
    gantry mcp install claude                        set up Claude Code\n  \
    gantry mcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes\n  \
    gantry mcp list                                  the servers whose tools are used here\n\n\
    Through the gateway if one runs on this data directory or is named; its nodes' tools are then offered too.")]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    pub(crate) action: Option<McpAction>,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum McpAction {
    /// Write the configuration of an MCP client, so that it starts `gantry mcp`
    Install(install::InstallArgs),
    /// Use the tools of an MCP server: try it, show its tools, and accept them as they are
    Add(add::AddArgs),
    /// The servers whose tools are used here
    List,
    /// One server, with its tools and how they stand
    Show(servers::ShowArgs),
    /// Start a server and list its tools
    Test(servers::NameArgs),
    /// Accept the tools of a server as they are offered now
    Accept(accept::AcceptArgs),
    /// Log in at a server that wants it, with a browser
    Login(login::LoginArgs),
    /// Use a server no longer, and forget what is known of it
    Remove(servers::NameArgs),
}

/// Which tools, as whom and where.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Offer these toolsets whole [default: a few tools, one of each]
    #[arg(long, value_name = "SET", value_delimiter = ',')]
    pub(crate) toolset: Vec<String>,
    /// Offer these tools, by name or glob
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) tools: Vec<String>,
    /// Only tools that change nothing
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Show each node's tools by themselves, as {node}__{Tool}
    #[arg(long)]
    pub(crate) namespaced: bool,
    /// Call as this agent: its tools, its policy, its workspace
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// Where relative paths start [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Run in this process, whatever gateway is configured
    #[arg(long)]
    pub(crate) local: bool,
}

pub(crate) fn run(environment: Environment, output: &Output, args: McpArgs) -> Result<Exit> {
    match args.action {
        Some(McpAction::Install(install)) => install::run(&environment, output, &install, &args.serve),
        Some(action) => manage(environment, output, action),
        // Whatever goes wrong is told on standard error: the other one is the client's.
        None => Ok(serve(environment, output, args.serve).unwrap_or_else(|err| {
            let refused = err.downcast_ref::<Refused>().map(|Refused(refusal)| refusal);
            output.error(&refused.map_or_else(|| format!("{err:#}"), ToString::to_string));
            match refused {
                Some(refusal) => refusal.code.into(),
                None if err.is::<UsageError>() => Exit::Usage,
                None => Exit::Failure,
            }
        })),
    }
}

/// What is done with servers is done in the data directory here.
fn manage(environment: Environment, output: &Output, action: McpAction) -> Result<Exit> {
    if environment.gateway.is_some() {
        let message = "MCP servers are configured in a data directory; run this on the gateway's own machine, without \
                       --gateway";
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
            // Nodes come and go, and what was chosen may come with one.
            through.missing().await.iter().for_each(|missing| output.warning(missing));
            converse(through).await
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
                let conversed = converse(in_process).await;
                following.abort();
                local.servers.stop().await;
                local.processes.shutdown().await;
                if let Err(err) = local.gate.flush() {
                    output.warning(&err.to_string());
                }
                conversed
            })
        }
    };
    runtime.shutdown_timeout(LEAVE_WITHIN);
    served
}

async fn converse(backend: impl Backend) -> Result<Exit> {
    serve_stdio(McpServer::new(backend, env!("CARGO_PKG_VERSION")), interrupted()).await?;
    Ok(Exit::Success)
}

fn selection(args: &ServeArgs) -> Result<Selection> {
    let selection = Selection::new(&args.toolset, &args.tools).map_err(|err| UsageError(err.to_string()))?;
    let selection = if args.read_only { selection.read_only() } else { selection };
    Ok(if args.namespaced { selection.namespaced() } else { selection })
}
