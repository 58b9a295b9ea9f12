//! `gantry mcp list`, `show`, `test` and `remove` manage the MCP servers used here.

use std::time::Instant;

use anyhow::Result;
use clap::Args;
use gantry_mcp::client::{Place, ServerError, ServerSpec, Servers, State, ToolStatus, shown_name, unchecked};
use gantry_store::{Database, ServerRecords};
use gantry_tool::{Masker, Refusal, RefusalCode, Registry, RegistryError, nearest};
use serde_json::{Value, json};

use crate::client::runtime;
use crate::config::Config;
use crate::environment::Environment;
use crate::exit::{Exit, Refused, UsageError};
use crate::live_config;
use crate::local;
use crate::output::{Output, printable};

#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// Server's name
    pub(crate) name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry mcp show files\n  \
    gantry mcp show files read_file --json         show one tool's accepted and offered definitions")]
pub(crate) struct ShowArgs {
    /// Server's name
    name: String,
    /// Tool to show [default: all]
    tool: Option<String>,
}

/// Opens the configured servers with an empty registry, for commands that call no tool.
pub(super) fn open(environment: &Environment, config: &Config) -> Result<Servers> {
    environment.data.create()?;
    live_config::open_mcp_servers(
        environment,
        config,
        local::processes(&environment.data)?,
        Registry::default(),
    )
}

pub(super) fn load(environment: &Environment) -> Result<Config> {
    let mut config = environment.layers.load()?;
    config.resolve_paths(|path| environment.resolve(path));
    Ok(config)
}

/// Returns the ids of the nodes, which servers cannot use as names.
pub(super) fn nodes(environment: &Environment) -> Result<Vec<String>> {
    runtime()?.block_on(async {
        let Some(database) = Database::open_existing(&environment.data).await? else { return Ok(Vec::new()) };
        let nodes = database.list_nodes().await;
        database.close().await;
        Ok(nodes?.into_iter().map(|node| node.id).collect())
    })
}

/// Fails if the name is not configured, with a suggestion.
pub(super) fn check_known(config: &Config, name: &str) -> Result<()> {
    if config.mcp_servers.contains_key(name) {
        return Ok(());
    }
    let near = nearest(name, config.mcp_servers.keys().map(String::as_str));
    let hint = match near.first() {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => "add it with `gantry mcp add`".to_owned(),
    };
    Err(UsageError(format!("unknown MCP server \"{name}\"; {hint}")).into())
}

/// Reports a server that cannot be used, with the exit code for an unreachable server.
pub(super) fn unreachable(err: ServerError) -> anyhow::Error {
    let refusal = Refusal::new(RefusalCode::Unavailable, err.to_string());
    Refused(match err.fix() {
        Some(hint) => refusal.with_hint(hint),
        None => refusal,
    })
    .into()
}

pub(super) fn list(environment: &Environment, output: &Output) -> Result<Exit> {
    let config = load(environment)?;
    let servers = open(environment, &config)?;
    let nodes = nodes(environment)?;
    let mut rows = Vec::new();
    for name in servers.names() {
        let (spec, statuses) = (servers.spec(&name), servers.statuses(&name));
        let place = spec.map(|spec| place(&config, &spec)).unwrap_or_default();
        match statuses {
            _ if nodes.contains(&name) => {
                let error = RegistryError::IsNode(name.clone()).to_string();
                rows.push(json!({"name": name, "place": place, "error": error}));
            }
            Ok(statuses) => rows.push(json!({
                "name": name, "place": place, "ready": count(&statuses, "ready"), "new": count(&statuses, "new"),
                "changed": count(&statuses, "changed"), "unusable": count(&statuses, "unusable"),
                "gone": count(&statuses, "gone"), "notChosen": count(&statuses, "notChosen"),
            })),
            Err(err) => rows.push(json!({"name": name, "place": place, "error": err.to_string()})),
        }
    }
    if output.json {
        output.value(&json!(rows));
        return Ok(Exit::Success);
    }
    if rows.is_empty() {
        output.done("no MCP servers are configured; `gantry mcp add NAME -- COMMAND` adds one");
    }
    for row in &rows {
        let text = |field: &str| printable(row[field].as_str().unwrap_or_default());
        let state = match row["error"].as_str() {
            Some(error) => output.red(&printable(error)),
            None => summary(row),
        };
        output.line(&format!("{}  {}  {}", output.bold(&text("name")), output.dim(&text("place")), state));
    }
    Ok(Exit::Success)
}

fn summary(row: &Value) -> String {
    let part = |state: &str, word: &str| {
        let count = row[state].as_u64().unwrap_or(0);
        (count > 0).then(|| format!("{count} {word}"))
    };
    let parts: Vec<String> = [
        part("ready", "ready"),
        part("changed", "blocked: changed"),
        part("unusable", "blocked: unusable"),
        part("new", "not accepted"),
        part("gone", "gone"),
        part("notChosen", "not chosen"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() {
        "no tools are known yet; `gantry mcp accept` lists them".to_owned()
    } else {
        parts.join(", ")
    }
}

fn count(statuses: &[ToolStatus], state: &str) -> usize {
    statuses.iter().filter(|status| status.state.name() == state).count()
}

/// Describes where a server runs, with secrets masked. References such as secret:NAME stay.
fn place(config: &Config, spec: &ServerSpec) -> String {
    let mut place = match &spec.place {
        Place::Program(program) => {
            std::iter::once(&program.program).chain(&program.args).cloned().collect::<Vec<_>>().join(" ")
        }
        Place::Address(address) => address.url.to_string(),
    };
    Masker::new(config.secrets()).mask_text(&mut place);
    place
}

pub(super) fn show(environment: &Environment, output: &Output, args: &ShowArgs) -> Result<Exit> {
    let config = load(environment)?;
    check_known(&config, &args.name)?;
    let servers = open(environment, &config)?;
    let record = servers.record(&args.name).map_err(unreachable)?;
    let spec = servers.spec(&args.name).map_err(unreachable)?;
    let mut statuses = servers.statuses(&args.name).map_err(unreachable)?;
    if let Some(tool) = &args.tool {
        statuses.retain(|status| status.name == *tool);
        if statuses.is_empty() {
            return Err(UsageError(format!("unknown tool \"{tool}\" of {}", args.name)).into());
        }
    }
    if output.json {
        output.value(&json!({
            "name": args.name, "place": place(&config, &spec), "about": record.about, "listed": record.listed,
            "loggedIn": record.login.is_some(), "tools": statuses.iter().map(row).collect::<Vec<_>>(),
        }));
        return Ok(Exit::Success);
    }
    output.line(&format!("{}  {}", output.bold(&args.name), output.dim(&printable(&place(&config, &spec)))));
    if let Some(about) = &record.about {
        output.line(&output.dim(&printable(&about_line(about))));
    }
    show_all(output, statuses.iter());
    Ok(Exit::Success)
}

fn row(status: &ToolStatus) -> Value {
    let reason = match &status.state {
        State::Unusable(reason) => Some(reason),
        _ => None,
    };
    json!({
        "name": status.name, "state": status.state.name(), "reason": reason, "unchecked": notes(status),
        "accepted": status.accepted, "offered": status.offered,
    })
}

pub(super) fn about_line(about: &Value) -> String {
    let text = |field: &str| about[field].as_str().unwrap_or("?").to_owned();
    format!("{} {}, MCP {}", text("name"), text("version"), text("protocolVersion"))
}

/// Returns which parts of a tool's schema are not checked.
pub(super) fn notes(status: &ToolStatus) -> Vec<String> {
    status.accepted.as_ref().or(status.offered.as_ref()).map(unchecked).unwrap_or_default()
}

/// Describes a tool in one line: name, status and description.
fn described(output: &Output, status: &ToolStatus, width: usize) -> String {
    let definition = status.accepted.as_ref().or(status.offered.as_ref());
    let words = definition.and_then(|tool| tool["description"].as_str()).unwrap_or_default();
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = shortened(&words, DESCRIPTION_CHARS);
    let state = match &status.state {
        State::Ready => output.green("ready"),
        State::Unusable(reason) => output.red(&printable(&format!("blocked: {reason}"))),
        State::Changed => output.yellow("blocked: changed"),
        State::New => output.yellow("not accepted"),
        State::Gone => output.dim("gone"),
        State::NotChosen => output.dim("not chosen"),
    };
    let notes: String = notes(status).iter().map(|note| format!("\n    {}", output.yellow(note))).collect();
    let name = format!("{:width$}", shown_name(&status.name));
    format!("  {}  {state}  {}{notes}", output.bold(&name), printable(&words))
}

/// Prints the tools of a server, one per line, with the descriptions in one column.
pub(super) fn show_all<'a>(output: &Output, statuses: impl Iterator<Item = &'a ToolStatus> + Clone) {
    let width = statuses.clone().map(|status| shown_name(&status.name).chars().count()).max().unwrap_or(0);
    statuses.for_each(|status| output.page(&described(output, status, width)));
}

/// Characters of a tool's description in a list.
const DESCRIPTION_CHARS: usize = 100;

/// Shortens a text to this many characters, cut between two words.
fn shortened(text: &str, chars: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(chars) else { return text.to_owned() };
    let cut = text[..end].rfind(' ').unwrap_or(end);
    format!("{}…", text[..cut].trim_end_matches([' ', ',', ';', ':']))
}

pub(super) fn test(environment: &Environment, output: &Output, name: &str) -> Result<Exit> {
    let config = load(environment)?;
    check_known(&config, name)?;
    let servers = open(environment, &config)?;
    let begun = Instant::now();
    let listed = runtime()?.block_on(async {
        let listed = servers.list(name).await;
        servers.stop().await;
        listed
    });
    let statuses = listed.map_err(unreachable)?;
    let took = begun.elapsed().as_millis();
    let record = servers.record(name).map_err(unreachable)?;
    if output.json {
        output.value(&json!({
            "name": name, "ok": true, "milliseconds": took, "about": record.about,
            "tools": statuses.iter().map(row).collect::<Vec<_>>(),
        }));
        return Ok(Exit::Success);
    }
    let about = record.about.as_ref().map(about_line).unwrap_or_default();
    output.line(&format!(
        "{} answers: {}, {} tools, {took} ms",
        output.bold(name),
        printable(&about),
        statuses.len()
    ));
    show_all(output, statuses.iter());
    Ok(Exit::Success)
}

pub(super) fn remove(environment: &Environment, output: &Output, name: &str) -> Result<Exit> {
    let config = load(environment)?;
    check_known(&config, name)?;
    let servers = open(environment, &config)?;
    if let Some(login) = servers.login(name).map_err(unreachable)? {
        login.forget()?;
    }
    let removed = environment.layers.remove(&format!("mcpServers.{name}"))?;
    ServerRecords::new(&environment.data).remove(name)?;
    if !removed {
        let message = format!("cannot remove {name}: it is not in {}", environment.layers.file.display());
        return Err(UsageError(message).into());
    }
    output.done(&format!("Removed {name}."));
    Ok(Exit::Success)
}
