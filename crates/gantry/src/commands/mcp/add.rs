//! `gantry mcp add` tests a server, shows its tools, adds it to the configuration and accepts the tools.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use gantry_mcp::client::{ServerError, State, ToolStatus, shown_name};
use gantry_store::ServerRecords;
use gantry_tool::nearest;
use serde_json::{Map, Value, json};

use super::servers::{check_known, load, nodes, notes, open, show_all, unreachable};
use crate::client::runtime;
use crate::config::McpServerConfig;
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

/// The command reports that it is waiting after this time.
const NOTICE_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry mcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes\n  \
    gantry mcp add github --env GITHUB_TOKEN=secret:GITHUB -- github-mcp-server stdio\n  \
    gantry mcp add docs --url https://mcp.example.com/mcp --header 'Authorization: Bearer secret:DOCS'\n  \
    gantry mcp add notes --url https://mcp.example.com/mcp      then `gantry mcp login notes` if it needs a login\n\n\
    The tools are named NAME__TOOL: gantry call files__read_file '{…}'. Policy and audit log cover them like other tools.\n\
    Their current definitions are accepted. A tool that changes later is blocked until `gantry mcp accept`.")]
pub(crate) struct AddArgs {
    /// Server's name, and the prefix of its tools' names
    name: String,
    /// URL of the server, instead of a program
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    url: Option<String>,
    /// Variable for the program: NAME from the environment, or NAME=secret:SECRET; may be repeated
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// Header for each request, with secret:NAME for a secret; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Use only these of its tools
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Option<Vec<String>>,
    /// Working directory of the program [default: the home directory]
    #[arg(long, value_name = "DIR")]
    cwd: Option<std::path::PathBuf>,
    /// Timeout of one call, in seconds [default: 300]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Trust the server's annotations, such as that a tool is read-only
    #[arg(long)]
    trust_annotations: bool,
    /// Do not confine the program: it can read Gantry's own files, and list and change the directories above them
    #[arg(long)]
    unconfined: bool,
    /// Add the server without testing it and without accepting its tools
    #[arg(long)]
    untested: bool,
    /// Replace a server with the same name
    #[arg(long)]
    replace: bool,
    /// Program and its arguments, after --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn run(environment: Environment, output: &Output, args: AddArgs) -> Result<Exit> {
    let mut config = load(&environment)?;
    if !args.replace && check_known(&config, &args.name).is_ok() {
        let message = format!("an MCP server \"{}\" already exists", args.name);
        return Err(UsageError(message).with_hint("replace it with --replace").into());
    }
    let server = configured(&environment, &args)?;
    let wrong: Vec<String> = server.violations(&args.name).iter().map(ToString::to_string).collect();
    if !wrong.is_empty() {
        return Err(UsageError(wrong.join("\n")).into());
    }
    if nodes(&environment)?.contains(&args.name) {
        let message =
            format!("\"{}\" is the name of a node, and a server cannot have the same name", args.name);
        return Err(UsageError(format!("{message}; choose another name")).into());
    }
    let section = serde_json::to_value(&server)?;
    config.mcp_servers.insert(args.name.clone(), server);
    let fields = section.as_object().cloned().unwrap_or_default();
    if args.untested {
        return add_untested(&environment, output, &args.name, &fields);
    }
    let records = ServerRecords::new(&environment.data);
    let before = args.replace.then(|| records.read(&args.name).ok()).flatten();
    if args.replace {
        // Tools that were accepted of the old program must not be accepted of the new one.
        records.remove(&args.name)?;
    }
    // If nothing is added, the old record is restored.
    let undo = || match &before {
        Some(before) => records.change(&args.name, |record| *record = before.clone()),
        None => records.remove(&args.name).map(drop),
    };
    let servers = open(&environment, &config)?;
    let listed = runtime()?.block_on(async {
        let mut listing = std::pin::pin!(servers.list(&args.name));
        let listed = tokio::select! {
            listed = &mut listing => listed,
            () = tokio::time::sleep(NOTICE_AFTER) => {
                let waiting = format!("waiting for {}; the timeout is one minute", args.name);
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
            output.warning(&format!("{err}\nhint: run `gantry mcp login {}`", args.name));
            return Ok(Exit::Denied);
        }
        Err(err) => {
            undo()?;
            let exit = Exit::report(output, &unreachable(err));
            output.warning("nothing was added; use --untested to add the server anyway");
            return Ok(exit);
        }
    }
    write(&environment, &args.name, &fields)?;
    servers.accept(&args.name, None, jiff::Timestamp::now().as_millisecond()).map_err(unreachable)?;
    let statuses = servers.statuses(&args.name).map_err(unreachable)?;
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
    output.done(&format!("Added {}; its tools are named {}__…", args.name, args.name));
    if let Some(confinement) = servers.confinement(&args.name) {
        output.done(&format!("{confinement}; use --replace --unconfined to allow it"));
    }
    Ok(Exit::Success)
}

fn configured(environment: &Environment, args: &AddArgs) -> Result<McpServerConfig> {
    let mut command = args.command.iter().cloned();
    let mut headers = std::collections::BTreeMap::new();
    for header in &args.headers {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            UsageError(format!("--header must have the form 'NAME: VALUE', not {header:?}"))
        })?;
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

/// Checks that the server offers every tool named with `--only`.
fn offers_all(args: &AddArgs, statuses: &[ToolStatus]) -> Result<(), UsageError> {
    let offered: Vec<&str> = statuses.iter().map(|status| status.name.as_str()).collect();
    let missing = args.only.iter().flatten().find(|tool| !offered.contains(&tool.as_str()));
    let Some(missing) = missing else { return Ok(()) };
    let hint = match nearest(missing, offered).first() {
        Some(near) => format!("did you mean \"{}\"?", shown_name(near)),
        None => "leave out --only to add all tools".to_owned(),
    };
    Err(UsageError(format!("nothing was added: {} does not offer a tool \"{missing}\"; {hint}", args.name)))
}

fn write(environment: &Environment, name: &str, fields: &Map<String, Value>) -> Result<()> {
    Ok(environment.layers.write_section(&format!("mcpServers.{name}"), fields)?)
}

fn add_untested(
    environment: &Environment,
    output: &Output,
    name: &str,
    fields: &Map<String, Value>,
) -> Result<Exit> {
    write(environment, name, fields)?;
    output.done(&format!("Added {name}. Review and accept its tools with `gantry mcp accept {name}`."));
    Ok(Exit::Success)
}
