//! A tool call that a command makes for its user, through the gateway if one runs, else in-process.

use anyhow::Result;
use gantry_protocol::{CallParams, raw};
use gantry_tool::Outcome;
use serde_json::Value;

use crate::client::{Address, Client, Target, runtime};
use crate::environment::Environment;
use crate::local::Local;
use crate::output::Output;

pub(crate) struct Asking {
    place: Place,
    agent: Option<String>,
}

enum Place {
    InProcess(Box<Local>),
    Gateway(Box<Address>),
}

impl Asking {
    pub(crate) fn open(environment: Environment, output: &Output, agent: Option<&str>) -> Result<Asking> {
        let place = match Target::find(&environment, output, false)? {
            Target::Gateway(address) => Place::Gateway(Box::new(address)),
            Target::InProcess => Place::InProcess(Box::new(Local::open(environment)?)),
        };
        Ok(Asking { place, agent: agent.map(str::to_owned) })
    }

    pub(crate) fn call(&self, output: &Output, tool: &str, input: Value) -> Result<Outcome> {
        match &self.place {
            Place::InProcess(local) => {
                let call = local.call(self.agent.as_deref(), None)?;
                let outcome = runtime()?.block_on(local.gate.dispatch(call, tool, input));
                local.gate.flush()?;
                Ok(outcome)
            }
            Place::Gateway(address) => {
                let params = CallParams {
                    tool: tool.to_owned(),
                    input: Some(raw(&input)),
                    agent: self.agent.clone(),
                    workspace: None,
                    mcp: None,
                    asks: false,
                };
                Ok(runtime()?.block_on(Client::call_once(address, output, &params, None)))
            }
        }
    }
}
