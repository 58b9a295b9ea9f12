//! `gantry agents`: the agents that a gateway runs.

use anyhow::Result;
use gantry_protocol::method;
use serde_json::json;

use crate::client::{Client, Target};
use crate::exit::Exit;
use crate::output::Output;
use crate::places::Places;

pub(crate) fn run(places: &Places, output: &Output) -> Result<Exit> {
    let address = Target::gateway(places, output)?;
    let answer = Client::once(&address, output, method::AGENTS_LIST, json!({}))?;
    if output.json {
        output.value(&answer["agents"]);
        return Ok(Exit::Success);
    }
    for agent in answer["agents"].as_array().into_iter().flatten() {
        let text = |key: &str| agent[key].as_str().unwrap_or_default().to_owned();
        let model = agent["model"].as_str().unwrap_or("balanced");
        let facts = format!("{model}  {}  {}", text("autonomy"), text("workspace"));
        output.line(&format!("{}  {facts}", output.bold(&text("id"))));
    }
    Ok(Exit::Success)
}
