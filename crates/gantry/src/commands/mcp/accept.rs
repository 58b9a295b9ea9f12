//! `gantry mcp accept` shows a server's new and changed tools and accepts them.

use std::io::{BufRead, IsTerminal};

use anyhow::{Context, Result};
use clap::Args;
use gantry_mcp::client::{Servers, State, ToolStatus, difference, shown_name};
use serde_json::{Value, json};

use super::servers::{check_known, load, open, unreachable};
use crate::client::runtime;
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry mcp accept files                      review and accept all new and changed tools\n  \
    gantry mcp accept files read_file            review and accept one tool\n  \
    gantry mcp accept files --print              show the differences only")]
pub(crate) struct AcceptArgs {
    /// Server's name
    name: String,
    /// Tool to accept [default: all]
    tool: Option<String>,
    /// Show what would be accepted, and accept nothing
    #[arg(long)]
    print: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

pub(super) fn run(environment: &Environment, output: &Output, args: &AcceptArgs) -> Result<Exit> {
    let config = load(environment)?;
    check_known(&config, &args.name)?;
    let servers = open(environment, &config)?;
    let listed = runtime()?.block_on(async {
        let listed = servers.list(&args.name).await;
        servers.stop().await;
        listed
    });
    let statuses = listed.map_err(unreachable)?;
    accept(output, &servers, args, &statuses)
}

/// Shows the changes, asks for confirmation and accepts them. The server was just listed.
fn accept(output: &Output, servers: &Servers, args: &AcceptArgs, statuses: &[ToolStatus]) -> Result<Exit> {
    let selected: Vec<&ToolStatus> =
        statuses.iter().filter(|status| args.tool.as_ref().is_none_or(|tool| *tool == status.name)).collect();
    if let (true, Some(tool)) = (selected.is_empty(), &args.tool) {
        return Err(UsageError(format!("{} does not offer a tool \"{tool}\"", args.name)).into());
    }
    let open: Vec<&ToolStatus> = selected
        .iter()
        .copied()
        .filter(|status| matches!(status.state, State::New | State::Changed | State::Gone))
        .collect();
    for status in &selected {
        if let State::Unusable(reason) = &status.state {
            output.warning(&format!("{}__{} stays blocked: {reason}", args.name, shown_name(&status.name)));
        }
    }
    if open.is_empty() {
        if output.json {
            output.value(&json!({"name": args.name, "accepted": []}));
        } else {
            output.done("Nothing to accept.");
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
        output.done("Nothing was accepted.");
        return Ok(Exit::Failure);
    }
    let now = jiff::Timestamp::now().as_millisecond();
    let accepted = servers.accept(&args.name, args.tool.as_deref(), now).map_err(unreachable)?;
    if output.json {
        output.value(&json!({"name": args.name, "accepted": accepted}));
    } else {
        output.done(&format!("Accepted {}.", accepted.join(", ")));
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
            State::Gone => "is no longer offered",
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
        let message = format!(
            "cannot ask whether to accept {count} tools of {server}: standard input is not a terminal; use --yes"
        );
        return Err(UsageError(message).into());
    }
    crate::output::question(&format!("Accept {count} tools of {server} as they are? [y/N] "));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
