//! `gantry mcp accept`: shows what a server offers that was not accepted before, and what has changed, and accepts it.

use std::io::{BufRead, IsTerminal};

use anyhow::{Context, Result};
use clap::Args;
use gantry_mcp::client::{Servers, State, ToolStatus, difference, shown_name};
use serde_json::{Value, json};

use super::servers::{known, load, open, told};
use crate::client::runtime;
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry mcp accept files                      show what is new or changed, ask, accept\n  \
    gantry mcp accept files read_file            one tool\n  \
    gantry mcp accept files --print              only show it")]
pub(crate) struct AcceptArgs {
    /// The server
    name: String,
    /// One of its tools [default: all]
    tool: Option<String>,
    /// Only show what would be accepted
    #[arg(long)]
    print: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(super) fn run(environment: &Environment, output: &Output, args: &AcceptArgs) -> Result<Exit> {
    let config = load(environment)?;
    known(&config, &args.name)?;
    let servers = open(environment, &config)?;
    let listed = runtime()?.block_on(async {
        let listed = servers.list(&args.name).await;
        servers.stop().await;
        listed
    });
    let statuses = listed.map_err(told)?;
    accept(output, &servers, args, &statuses)
}

/// Shows, asks and accepts, for a server that was just listed.
fn accept(output: &Output, servers: &Servers, args: &AcceptArgs, statuses: &[ToolStatus]) -> Result<Exit> {
    let meant: Vec<&ToolStatus> =
        statuses.iter().filter(|status| args.tool.as_ref().is_none_or(|tool| *tool == status.name)).collect();
    if let (true, Some(tool)) = (meant.is_empty(), &args.tool) {
        return Err(UsageError(format!("{} offers no tool \"{tool}\"", args.name)).into());
    }
    let open: Vec<&ToolStatus> = meant
        .iter()
        .copied()
        .filter(|status| matches!(status.state, State::New | State::Changed | State::Gone))
        .collect();
    for status in &meant {
        if let State::Unusable(reason) = &status.state {
            output.warning(&format!("{}__{} stays held: {reason}", args.name, shown_name(&status.name)));
        }
    }
    if open.is_empty() {
        if output.json {
            output.value(&json!({"name": args.name, "accepted": []}));
        } else {
            output.done("there is nothing to accept");
        }
        return Ok(Exit::Success);
    }
    if !output.json || args.print {
        show(output, &args.name, &open);
    }
    if args.print {
        return Ok(Exit::Success);
    }
    if !args.yes && !agreed(&args.name, open.len())? {
        output.done("nothing was accepted");
        return Ok(Exit::Failure);
    }
    let now = jiff::Timestamp::now().as_millisecond();
    let accepted = servers.accept(&args.name, args.tool.as_deref(), now).map_err(told)?;
    if output.json {
        output.value(&json!({"name": args.name, "accepted": accepted}));
    } else {
        output.done(&format!("accepted: {}", accepted.join(", ")));
    }
    Ok(Exit::Success)
}

fn show(output: &Output, server: &str, open: &[&ToolStatus]) {
    if output.json {
        let rows: Vec<Value> = open
            .iter()
            .map(|status| json!({"name": status.name, "state": status.state.name(), "difference": changes(status)}))
            .collect();
        return output.value(&json!({"name": server, "open": rows}));
    }
    for status in open {
        let heading = match status.state {
            State::New => "is new",
            State::Gone => "is not offered any more",
            _ => "has changed",
        };
        output.line(&output.bold(&format!("{server}__{} {heading}", shown_name(&status.name))));
        output.page(changes(status).trim_end());
    }
}

fn changes(status: &ToolStatus) -> String {
    let nothing = Value::Null;
    difference(status.accepted.as_ref().unwrap_or(&nothing), status.offered.as_ref().unwrap_or(&nothing))
}

fn agreed(server: &str, count: usize) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        let message =
            format!("nobody can be asked whether {count} tools of {server} are accepted; say --yes");
        return Err(UsageError(message).into());
    }
    crate::output::question(&format!("Accept {count} tools of {server} as they are? [y/N] "));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
