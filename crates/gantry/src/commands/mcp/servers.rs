//! `gantry mcp list`, `show`, `test` and `remove`: the servers whose tools are used here.

use std::time::Instant;

use anyhow::Result;
use clap::Args;
use gantry_mcp::client::{Place, ServerError, ServerSpec, Servers, Standing, State, shown_name, unchecked};
use gantry_store::{Database, ServerRecords};
use gantry_tool::{Masker, Refusal, RefusalCode, Registry, RegistryError, nearest};
use serde_json::{Value, json};

use crate::client::runtime;
use crate::config::Config;
use crate::exit::{Exit, Refused, UsageError};
use crate::live_config;
use crate::local;
use crate::output::{Output, printable};
use crate::places::Places;

#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// The server
    pub(crate) name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry mcp show files\n  \
    gantry mcp show files read_file --json         one tool, as it was accepted and as it is offered")]
pub(crate) struct ShowArgs {
    /// The server
    name: String,
    /// One of its tools
    tool: Option<String>,
}

/// The servers of a configuration, by themselves: for commands that call no tool.
pub(super) fn open(places: &Places, config: &Config) -> Result<Servers> {
    places.data.create()?;
    live_config::open_mcp_servers(places, config, local::processes(&places.data)?, Registry::default())
}

pub(super) fn load(places: &Places) -> Result<Config> {
    let mut config = places.layers.load()?;
    config.resolve_paths(|path| places.resolve(path));
    Ok(config)
}

/// Ids of the machines that may join here, which no server can be called by.
pub(super) fn nodes(places: &Places) -> Result<Vec<String>> {
    runtime()?.block_on(async {
        let Some(database) = Database::open_existing(&places.data).await? else { return Ok(Vec::new()) };
        let nodes = database.list_nodes().await;
        database.close().await;
        Ok(nodes?.into_iter().map(|node| node.id).collect())
    })
}

/// A name that is configured, or what may have been meant.
pub(super) fn known(config: &Config, name: &str) -> Result<()> {
    if config.mcp_servers.contains_key(name) {
        return Ok(());
    }
    let near = nearest(name, config.mcp_servers.keys().map(String::as_str));
    let hint = match near.first() {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => "`gantry mcp add` adds one".to_owned(),
    };
    Err(UsageError(format!("there is no MCP server \"{name}\"; {hint}")).into())
}

/// A server that cannot be used is not reachable; the words name it.
pub(super) fn told(err: ServerError) -> anyhow::Error {
    let refusal = Refusal::new(RefusalCode::Unavailable, err.to_string());
    Refused(match err.hint().filter(|hint| !hint.contains("mcp test")) {
        Some(hint) => refusal.with_hint(hint),
        None => refusal,
    })
    .into()
}

pub(super) fn list(places: &Places, output: &Output) -> Result<Exit> {
    let config = load(places)?;
    let servers = open(places, &config)?;
    let nodes = nodes(places)?;
    let mut rows = Vec::new();
    for name in servers.names() {
        let (spec, standings) = (servers.spec(&name), servers.standings(&name));
        let place = spec.map(|spec| place(&config, &spec)).unwrap_or_default();
        match standings {
            _ if nodes.contains(&name) => {
                let error = RegistryError::IsNode(name.clone()).to_string();
                rows.push(json!({"name": name, "place": place, "error": error}));
            }
            Ok(standings) => rows.push(json!({
                "name": name, "place": place, "ready": count(&standings, "ready"), "new": count(&standings, "new"),
                "changed": count(&standings, "changed"), "unusable": count(&standings, "unusable"),
                "gone": count(&standings, "gone"), "notChosen": count(&standings, "notChosen"),
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
        part("changed", "held: changed"),
        part("unusable", "held: unusable"),
        part("new", "not accepted"),
        part("gone", "gone"),
        part("notChosen", "not chosen"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() {
        "no tools are known; `gantry mcp accept` lists them".to_owned()
    } else {
        parts.join(", ")
    }
}

fn count(standings: &[Standing], state: &str) -> usize {
    standings.iter().filter(|standing| standing.state.name() == state).count()
}

/// Without what may be a secret: references stay references.
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

pub(super) fn show(places: &Places, output: &Output, args: &ShowArgs) -> Result<Exit> {
    let config = load(places)?;
    known(&config, &args.name)?;
    let servers = open(places, &config)?;
    let record = servers.record(&args.name).map_err(told)?;
    let spec = servers.spec(&args.name).map_err(told)?;
    let mut standings = servers.standings(&args.name).map_err(told)?;
    if let Some(tool) = &args.tool {
        standings.retain(|standing| standing.name == *tool);
        if standings.is_empty() {
            return Err(UsageError(format!("{} has no tool \"{tool}\"", args.name)).into());
        }
    }
    if output.json {
        output.value(&json!({
            "name": args.name, "place": place(&config, &spec), "about": record.about, "listed": record.listed,
            "loggedIn": record.login.is_some(), "tools": standings.iter().map(row).collect::<Vec<_>>(),
        }));
        return Ok(Exit::Success);
    }
    output.line(&format!("{}  {}", output.bold(&args.name), output.dim(&printable(&place(&config, &spec)))));
    if let Some(about) = &record.about {
        output.line(&output.dim(&printable(&about_line(about))));
    }
    show_all(output, standings.iter());
    Ok(Exit::Success)
}

fn row(standing: &Standing) -> Value {
    let reason = match &standing.state {
        State::Unusable(reason) => Some(reason),
        _ => None,
    };
    json!({
        "name": standing.name, "state": standing.state.name(), "reason": reason, "unchecked": notes(standing),
        "accepted": standing.accepted, "offered": standing.offered,
    })
}

pub(super) fn about_line(about: &Value) -> String {
    let text = |field: &str| about[field].as_str().unwrap_or("?").to_owned();
    format!("{} {}, MCP {}", text("name"), text("version"), text("protocolVersion"))
}

/// What is not checked of it.
pub(super) fn notes(standing: &Standing) -> Vec<String> {
    standing.accepted.as_ref().or(standing.offered.as_ref()).map(unchecked).unwrap_or_default()
}

/// A tool on one line: how it stands, and what it says it does.
fn described(output: &Output, standing: &Standing, width: usize) -> String {
    let definition = standing.accepted.as_ref().or(standing.offered.as_ref());
    let words = definition.and_then(|tool| tool["description"].as_str()).unwrap_or_default();
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = shortened(&words, DESCRIPTION_CHARS);
    let state = match &standing.state {
        State::Ready => output.green("ready"),
        State::Unusable(reason) => output.red(&printable(&format!("held: {reason}"))),
        State::Changed => output.yellow("held: changed"),
        State::New => output.yellow("not accepted"),
        State::Gone => output.dim("gone"),
        State::NotChosen => output.dim("not chosen"),
    };
    let notes: String = notes(standing).iter().map(|note| format!("\n    {}", output.yellow(note))).collect();
    let name = format!("{:width$}", shown_name(&standing.name));
    format!("  {}  {state}  {}{notes}", output.bold(&name), printable(&words))
}

/// The tools of a server, a line each, with their descriptions in one column.
pub(super) fn show_all<'a>(output: &Output, standings: impl Iterator<Item = &'a Standing> + Clone) {
    let width =
        standings.clone().map(|standing| shown_name(&standing.name).chars().count()).max().unwrap_or(0);
    standings.for_each(|standing| output.page(&described(output, standing, width)));
}

/// Of what a tool says it does, in a list.
const DESCRIPTION_CHARS: usize = 100;

/// At most so many characters, cut between two words.
fn shortened(text: &str, chars: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(chars) else { return text.to_owned() };
    let cut = text[..end].rfind(' ').unwrap_or(end);
    format!("{}…", text[..cut].trim_end_matches([' ', ',', ';', ':']))
}

pub(super) fn test(places: &Places, output: &Output, name: &str) -> Result<Exit> {
    let config = load(places)?;
    known(&config, name)?;
    let servers = open(places, &config)?;
    let begun = Instant::now();
    let listed = runtime()?.block_on(async {
        let listed = servers.list(name).await;
        servers.stop().await;
        listed
    });
    let standings = listed.map_err(told)?;
    let took = begun.elapsed().as_millis();
    let record = servers.record(name).map_err(told)?;
    if output.json {
        output.value(&json!({
            "name": name, "ok": true, "milliseconds": took, "about": record.about,
            "tools": standings.iter().map(row).collect::<Vec<_>>(),
        }));
        return Ok(Exit::Success);
    }
    let about = record.about.as_ref().map(about_line).unwrap_or_default();
    output.line(&format!(
        "{} answers: {}, {} tools, {took} ms",
        output.bold(name),
        printable(&about),
        standings.len()
    ));
    show_all(output, standings.iter());
    Ok(Exit::Success)
}

pub(super) fn remove(places: &Places, output: &Output, name: &str) -> Result<Exit> {
    let config = load(places)?;
    known(&config, name)?;
    let servers = open(places, &config)?;
    if let Some(login) = servers.login(name).map_err(told)? {
        login.forget()?;
    }
    let removed = places.layers.remove(&format!("mcpServers.{name}"))?;
    ServerRecords::new(&places.data).remove(name)?;
    if !removed {
        let message =
            format!("{name} is not in {}, so it cannot be taken out there", places.layers.file.display());
        return Err(UsageError(message).into());
    }
    output.done(&format!("{name} is removed"));
    Ok(Exit::Success)
}
