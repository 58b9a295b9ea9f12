//! `gantry logs` shows the newest log lines of a node or of the gateway.

use anyhow::{Context, Result};
use clap::Args;
use gantry_protocol::LogsResult;
use gantry_tool::{Answer, Reply};
use serde_json::{Map, Value, json};

use crate::client::Target;
use crate::commands::ask::Asking;
use crate::environment::Environment;
use crate::exit::Exit;
use crate::logging::text_line;
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry logs                                      the log of the only connected node\n  \
    gantry logs local                                the gateway's own log\n  \
    gantry logs laptop --lines 500 | jq .event")]
pub(crate) struct LogsArgs {
    /// Node id, or `local` for the gateway [default: the only connected node]
    pub(crate) node: Option<String>,
    /// Number of lines to show, at most 5000
    #[arg(short = 'n', long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub(crate) lines: u32,
}

pub(crate) fn run(environment: Environment, output: &Output, args: &LogsArgs) -> Result<Exit> {
    // Only a gateway can read logs of other machines.
    Target::gateway(&environment, output)?;
    let asking = Asking::open(environment, output, None)?;
    let mut input = json!({"lines": args.lines});
    if let Some(node) = &args.node {
        input["nodeId"] = json!(node);
    }
    let outcome = asking.call(output, "gsv__LogsGet", input)?;
    let Answer::Success(Reply::Json(answer)) = &outcome.answer else {
        return Ok(crate::commands::call::print(output, &outcome));
    };
    let result = &answer["result"];
    if output.json {
        output.value(result);
        return Ok(Exit::Success);
    }
    let logs: LogsResult =
        serde_json::from_value(result.clone()).context("the gateway's answer is invalid")?;
    for line in &logs.lines {
        output.line(&format_line(output, line));
    }
    if logs.truncated {
        output.note("older lines exist; use --lines to see more");
    }
    Ok(Exit::Success)
}

/// Formats a line of a log: as text for a person, unchanged for a program.
pub(crate) fn format_line(output: &Output, line: &str) -> String {
    match serde_json::from_str::<Map<String, Value>>(line) {
        Ok(fields) if output.is_terminal() && !output.json => {
            text_line(&fields, |text, style| output.styled(text, style))
        }
        _ => line.to_owned(),
    }
}
