//! `gantry logs`: the newest lines of a node's log.

use anyhow::Result;
use gantry_tool::{Answer, Reply};
use serde_json::{Value, json};

use crate::cli::LogsArgs;
use crate::commands::ask::Asking;
use crate::exit::Exit;
use crate::output::Output;
use crate::places::Places;

pub(crate) fn run(places: Places, output: &Output, args: &LogsArgs) -> Result<Exit> {
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
        output.line(&crate::output::printable(line));
    }
    if result["truncated"] == true {
        output.note("there are older lines; --lines shows more");
    }
    Ok(Exit::Success)
}
