//! `gantry agents` lists the agents that a gateway runs.

use anyhow::Result;
use gantry_protocol::{AgentList, Empty, method};

use crate::client::{Client, Target};
use crate::environment::Environment;
use crate::exit::Exit;
use crate::output::Output;
use crate::table::Table;

pub(crate) fn run(environment: &Environment, output: &Output) -> Result<Exit> {
    let address = Target::gateway(environment, output)?;
    let listed: AgentList = Client::once(&address, output, method::AGENTS_LIST, &Empty {})?;
    if output.json {
        output.value(&listed.agents);
        return Ok(Exit::Success);
    }
    let mut table = Table::new(["agent", "model", "autonomy", "workspace"]);
    for agent in &listed.agents {
        let model = agent.model.as_deref().unwrap_or("balanced");
        table.row([&agent.id, model, &agent.autonomy, &agent.workspace].map(str::to_owned));
    }
    output.table(&table);
    Ok(Exit::Success)
}
