//! `gantry processes` lists, shows, promotes and removes captured processes.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_protocol::{
    CapturedProcess, CapturedProcessId, CapturedProcessList, Empty, ProcessPromote, PromotedProcess, method,
};

use super::pipelines::{assignments, counted, time};
use crate::client::{Client, Target};
use crate::environment::Environment;
use crate::exit::Exit;
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry processes                                 list the processes, newest first\n  \
    gantry processes show 3f2a                       show the recorded calls and parameters\n  \
    gantry processes promote 3f2a --param topic=rust   make a pipeline of a process")]
pub(crate) struct ProcessesArgs {
    #[command(subcommand)]
    action: Option<ProcessesAction>,
}

#[derive(Debug, Subcommand)]
enum ProcessesAction {
    /// List the processes, newest first
    List,
    /// Show the recorded calls and the parameters of a process
    Show {
        /// The process, or the beginning of its id
        id: String,
    },
    /// Make a pipeline of a process
    Promote {
        /// The process, or the beginning of its id
        id: String,
        /// New default of a parameter; the value is JSON or text
        #[arg(long = "param", value_name = "NAME=VALUE")]
        param: Vec<String>,
    },
    /// Remove a process; its pipeline stays
    Remove {
        /// The process, or the beginning of its id
        id: String,
    },
}

pub(crate) fn run(environment: &Environment, output: &Output, args: ProcessesArgs) -> Result<Exit> {
    let address = Target::gateway(environment, output)?;
    match args.action.unwrap_or(ProcessesAction::List) {
        ProcessesAction::List => {
            let listed: CapturedProcessList =
                Client::once(&address, output, method::PROCESSES_LIST, &Empty {})?;
            list(output, &listed);
        }
        ProcessesAction::Show { id } => {
            let process: CapturedProcess =
                Client::once(&address, output, method::PROCESSES_GET, &CapturedProcessId { id })?;
            show(output, &process);
        }
        ProcessesAction::Promote { id, param } => {
            let parameter_values: BTreeMap<_, _> = assignments(&param)?;
            let params = ProcessPromote { id, parameter_values };
            let promoted: PromotedProcess =
                Client::once(&address, output, method::PROCESSES_PROMOTE, &params)?;
            match output.json {
                true => output.value(&promoted),
                false => output.done(&format!(
                    "The pipeline {} has {}. Run it with `gantry pipelines run {}`.",
                    promoted.pipeline_id,
                    counted(promoted.steps, "step"),
                    promoted.pipeline_id
                )),
            }
        }
        ProcessesAction::Remove { id } => {
            let removed: CapturedProcess =
                Client::once(&address, output, method::PROCESSES_REMOVE, &CapturedProcessId { id })?;
            match output.json {
                true => output.value(&removed),
                false => output.done(&format!("The process {} ({}) is removed.", removed.id, removed.name)),
            }
        }
    }
    Ok(Exit::Success)
}

fn list(output: &Output, listed: &CapturedProcessList) {
    if output.json {
        return output.value(listed);
    }
    if listed.processes.is_empty() {
        output.done("There are no processes. An agent stores one with capture_process.");
    }
    for process in &listed.processes {
        let promoted = process.pipeline_id.as_ref().map_or(String::new(), |id| format!(" · pipeline {id}"));
        let facts = format!(
            "{} · {} · {}{promoted}",
            counted(process.steps.len(), "step"),
            counted(process.parameters.len(), "parameter"),
            time(process.created)
        );
        let id = output.bold(&process.id);
        output.line(&format!("{id}  {}  {}  {}", process.agent, process.name, output.dim(&facts)));
    }
}

fn show(output: &Output, process: &CapturedProcess) {
    if output.json {
        return output.value(process);
    }
    output.line(&format!("{}  {}", output.bold(&process.id), process.name));
    if !process.description.is_empty() {
        output.line(&format!("  {}", process.description));
    }
    for step in &process.steps {
        let after: Vec<String> = step.depends_on.iter().map(usize::to_string).collect();
        let after = if after.is_empty() { String::new() } else { format!("  after {}", after.join(", ")) };
        output.line(&format!("  {}. {}{}", step.order, step.tool, output.dim(&after)));
        output.line(&output.dim(&format!("     {}", step.input)));
    }
    for parameter in &process.parameters {
        let default =
            parameter.default.as_ref().map_or("needs a value".to_owned(), |value| format!("= {value}"));
        output.line(&format!("  {} ({}) {default}", parameter.name, parameter.kind));
    }
}
