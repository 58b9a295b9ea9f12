//! `gantry logs`: the newest lines of a node's log.

use anyhow::Result;
use clap::Args;
use gantry_tool::{Answer, Reply};
use serde_json::{Value, json};

use crate::client::Target;
use crate::commands::ask::Asking;
use crate::exit::Exit;
use crate::output::Output;
use crate::places::Places;

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

pub(crate) fn run(places: Places, output: &Output, args: &LogsArgs) -> Result<Exit> {
    // Logs are elsewhere: without a gateway there is nobody to ask.
    Target::gateway(&places, output)?;
    let asking = Asking::open(places, output, None)?;
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
    for line in result["lines"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        output.line(line);
    }
    if result["truncated"] == true {
        output.note("there are older lines; --lines shows more");
    }
    Ok(Exit::Success)
}
