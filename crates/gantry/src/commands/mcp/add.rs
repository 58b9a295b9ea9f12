//! `gantry mcp add`: tries a server, shows its tools, writes it down and accepts the tools as they are.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use gantry_mcp::client::{ServerError, State, ToolStatus, shown_name};
use gantry_store::ServerRecords;
use gantry_tool::nearest;
use serde_json::{Map, Value, json};

use super::servers::{known, load, nodes, notes, open, show_all, told};
use crate::client::runtime;
use crate::config::McpServerConfig;
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

/// How long a server may be silent before whoever waits is told so.
const SAY_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry mcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes\n  \
    gantry mcp add github --env GITHUB_TOKEN=secret:GITHUB -- github-mcp-server stdio\n  \
    gantry mcp add docs --url https://mcp.example.com/mcp --header 'Authorization: Bearer secret:DOCS'\n  \
    gantry mcp add notes --url https://mcp.example.com/mcp      then `gantry mcp login notes`, if it asks for it\n\n\
    The tools are called NAME__TOOL, through the gate like any other: gantry call files__read_file '{…}'.\n\
    They are accepted as they are now; one that changes later is held until `gantry mcp accept`.")]
pub(crate) struct AddArgs {
    /// What its tools' names begin with
    name: String,
    /// The server's address, if it is no program
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    url: Option<String>,
    /// A variable for the program: NAME from the environment, or NAME=secret:SECRET; may be repeated
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// A header for each request, with secret:NAME where a secret belongs; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Only these of its tools
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Option<Vec<String>>,
    /// Where the program starts [default: the home directory]
    #[arg(long, value_name = "DIR")]
    cwd: Option<std::path::PathBuf>,
    /// How long one call may take, in seconds [default: 300]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Believe what it says of its tools, such as that they only read
    #[arg(long)]
    trust_annotations: bool,
    /// Do not confine the program: let it reach Gantry's own files, and list and fill the directories above them, such as ~
    #[arg(long)]
    unconfined: bool,
    /// Write it down without trying it; its tools are not accepted then
    #[arg(long)]
    untested: bool,
    /// Take the place of a server with the same name
    #[arg(long)]
    replace: bool,
    /// The program and its arguments, after --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn run(environment: Environment, output: &Output, args: AddArgs) -> Result<Exit> {
    let mut config = load(&environment)?;
    if !args.replace && known(&config, &args.name).is_ok() {
        let message = format!("there is an MCP server \"{}\" already; --replace takes its place", args.name);
        return Err(UsageError(message).into());
    }
    let server = configured(&environment, &args)?;
    let wrong: Vec<String> = server.violations(&args.name).iter().map(ToString::to_string).collect();
    if !wrong.is_empty() {
        return Err(UsageError(wrong.join("\n")).into());
    }
    if nodes(&environment)?.contains(&args.name) {
        let message =
            format!("\"{}\" is the name of a node, and nodes and MCP servers share their names", args.name);
        return Err(UsageError(format!("{message}; choose another")).into());
    }
    let section = serde_json::to_value(&server)?;
    config.mcp_servers.insert(args.name.clone(), server);
    let fields = section.as_object().cloned().unwrap_or_default();
    if args.untested {
        return written(&environment, output, &args.name, &fields);
    }
    let records = ServerRecords::new(&environment.data);
    let before = args.replace.then(|| records.read(&args.name).ok()).flatten();
    if args.replace {
        // Another program under the same name has nothing that was accepted.
        records.remove(&args.name)?;
    }
    // Where nothing is added, what was there stays as it was accepted.
    let undo = || match &before {
        Some(before) => records.change(&args.name, |record| *record = before.clone()),
        None => records.remove(&args.name).map(drop),
    };
    let servers = open(&environment, &config)?;
    let listed = runtime()?.block_on(async {
        let mut listing = std::pin::pin!(servers.list(&args.name));
        let listed = tokio::select! {
            listed = &mut listing => listed,
            () = tokio::time::sleep(SAY_AFTER) => {
                let waiting = format!("{} has not answered yet; it has a minute at most", args.name);
                output.running_notes().warning(&waiting);
                listing.await
            }
        };
        servers.stop().await;
        listed
    });
    match listed {
        Ok(statuses) => {
            if let Err(err) = offers_all(&args, &statuses) {
                undo()?;
                return Err(err.into());
            }
        }
        Err(err @ ServerError::Login { .. }) => {
            write(&environment, &args.name, &fields)?;
            output.warning(&format!("{err}; run `gantry mcp login {}`", args.name));
            return Ok(Exit::Denied);
        }
        Err(err) => {
            undo()?;
            let exit = Exit::report(output, &told(err));
            output.warning("nothing was added; --untested adds it all the same");
            return Ok(exit);
        }
    }
    write(&environment, &args.name, &fields)?;
    servers.accept(&args.name, None, jiff::Timestamp::now().as_millisecond()).map_err(told)?;
    let statuses = servers.statuses(&args.name).map_err(told)?;
    if output.json {
        let held: Vec<Value> = statuses
            .iter()
            .filter_map(|status| match &status.state {
                State::Unusable(reason) => Some(json!({"name": status.name, "reason": reason})),
                _ => None,
            })
            .collect();
        let ready = statuses.iter().filter(|status| status.state == State::Ready);
        let ready: Vec<&str> = ready.map(|status| status.name.as_str()).collect();
        let confinement = servers.confinement(&args.name);
        let unchecked: Vec<Value> = statuses
            .iter()
            .flat_map(|status| {
                notes(status).into_iter().map(|note| json!({"name": status.name, "reason": note}))
            })
            .collect();
        output.value(&json!({
            "name": args.name, "tools": ready, "held": held, "unchecked": unchecked, "confinement": confinement,
        }));
        return Ok(Exit::Success);
    }
    show_all(output, statuses.iter());
    output.done(&format!("{} is added; its tools are {}__…", args.name, args.name));
    if let Some(confinement) = servers.confinement(&args.name) {
        output.done(&format!("{confinement}; --replace --unconfined lifts that"));
    }
    Ok(Exit::Success)
}

fn configured(environment: &Environment, args: &AddArgs) -> Result<McpServerConfig> {
    let mut command = args.command.iter().cloned();
    let mut headers = std::collections::BTreeMap::new();
    for header in &args.headers {
        let (name, value) = header
            .split_once(':')
            .ok_or_else(|| UsageError(format!("--header wants 'NAME: VALUE', not {header:?}")))?;
        headers.insert(name.trim().to_owned(), value.trim().to_owned());
    }
    Ok(McpServerConfig {
        command: command.next(),
        args: command.collect(),
        env: args.env.clone(),
        cwd: args.cwd.as_ref().map(|cwd| environment.resolve(&environment.current_dir.join(cwd))),
        confine: args.unconfined.then_some(false),
        url: args.url.clone(),
        headers,
        tools: args.only.clone(),
        timeout_seconds: args.timeout,
        idle_seconds: None,
        trust_annotations: args.trust_annotations,
    })
}

/// Whether the server offers everything that was chosen of it.
fn offers_all(args: &AddArgs, statuses: &[ToolStatus]) -> Result<(), UsageError> {
    let offered: Vec<&str> = statuses.iter().map(|status| status.name.as_str()).collect();
    let missing = args.only.iter().flatten().find(|tool| !offered.contains(&tool.as_str()));
    let Some(missing) = missing else { return Ok(()) };
    let hint = match nearest(missing, offered).first() {
        Some(near) => format!("did you mean \"{}\"?", shown_name(near)),
        None => "without --only all are added".to_owned(),
    };
    Err(UsageError(format!("{} offers no tool \"{missing}\"; {hint}; nothing was added", args.name)))
}

fn write(environment: &Environment, name: &str, fields: &Map<String, Value>) -> Result<()> {
    Ok(environment.layers.write_section(&format!("mcpServers.{name}"), fields)?)
}

fn written(
    environment: &Environment,
    output: &Output,
    name: &str,
    fields: &Map<String, Value>,
) -> Result<Exit> {
    write(environment, name, fields)?;
    output.done(&format!("{name} is added; `gantry mcp accept {name}` shows its tools and accepts them"));
    Ok(Exit::Success)
}
