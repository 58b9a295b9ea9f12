//! `gantry pipelines` manages pipelines and their runs, and answers plans that wait for a person.

mod follow;
mod graph;

use std::collections::BTreeMap;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use gantry_protocol::{
    Empty, OnFailure, PipelineAdd, PipelineDefinition, PipelineId, PipelineInfo, PipelineList, PipelineRunId,
    PipelineRunList, PipelineRunParams, PipelineRunState, PipelineRunsParams, PipelineStatus,
    PipelineStatusParams, PlanAnswer, PlanDecision, PlanList, StepStatus, method,
};
use serde::Serialize;
use serde_json::Value;

use crate::client::{Address, Client, Target};
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry pipelines add report.json              store a pipeline: {\"name\", \"steps\": [{\"id\", \"task\"} …]}\n  \
    gantry pipelines run 3f2a --param topic=rust    run a pipeline and wait for its end\n  \
    gantry pipelines show 3f2a                    draw a pipeline or a run\n  \
    gantry pipelines retry 91c0                   run the failed steps of a run again\n  \
    gantry pipelines plans                        list plans that wait for your answer")]
pub(crate) struct PipelinesArgs {
    #[command(subcommand)]
    action: Option<PipelinesAction>,
}

#[derive(Debug, Subcommand)]
enum PipelinesAction {
    /// List the stored pipelines, newest first
    List,
    /// Draw the steps of a pipeline, or of a run with its states
    Show {
        /// The pipeline or run: its id, a unique beginning of it, or the name of a pipeline
        id: String,
    },
    /// Store a pipeline from a JSON file
    Add {
        /// The file, or - for standard input
        file: String,
        /// The agent that does the work
        #[arg(long, default_value = "main")]
        agent: String,
    },
    /// Run a pipeline and wait for its end
    Run {
        /// The pipeline: its id, a unique beginning of it, or its name
        id: String,
        /// Value of {{params.NAME}}; JSON or text
        #[arg(long = "param", value_name = "NAME=VALUE")]
        param: Vec<String>,
        /// Value of {{NAME}}, which every task also sees; JSON or text
        #[arg(long = "context", value_name = "NAME=VALUE")]
        context: Vec<String>,
        /// What happens when a step fails
        #[arg(long, value_enum)]
        on_failure: Option<FailureRule>,
        /// Return at once; `gantry pipelines show RUN` shows the state
        #[arg(long)]
        detach: bool,
    },
    /// List runs, newest first
    Runs {
        /// Only runs of this pipeline
        pipeline: Option<String>,
        /// The most runs to list
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// Cancel a run and stop its steps
    Cancel {
        /// The run, or the beginning of its id
        run: String,
    },
    /// Run the failed and skipped steps of a run again
    Retry {
        /// The run, or the beginning of its id
        run: String,
        /// Return at once
        #[arg(long)]
        detach: bool,
    },
    /// Remove a pipeline; its runs stay
    Remove {
        /// The pipeline: its id, a unique beginning of it, or its name
        id: String,
    },
    /// List plans that wait for an answer
    Plans,
    /// Answer a plan: proceed, cancel, or what to change
    Answer {
        /// The plan's approval id, or its beginning
        id: String,
        /// The answer
        answer: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FailureRule {
    Stop,
    Continue,
    Notify,
}

pub(crate) fn run(environment: &Environment, output: &Output, args: PipelinesArgs) -> Result<Exit> {
    let address = Target::gateway(environment, output)?;
    match args.action.unwrap_or(PipelinesAction::List) {
        PipelinesAction::List => {
            list(output, &Client::once(&address, output, method::PIPELINES_LIST, &Empty {})?);
        }
        PipelinesAction::Show { id } => return show(output, &address, id),
        PipelinesAction::Add { file, agent } => add(environment, output, &address, &file, agent)?,
        PipelinesAction::Run { id, param, context, on_failure, detach } => {
            let params = PipelineRunParams {
                pipeline_id: id,
                context: assignments(&context)?,
                params: assignments(&param)?,
                on_failure: on_failure.map(failure_rule),
                modifications: Vec::new(),
            };
            return start(output, &address, method::PIPELINES_RUN, &params, detach);
        }
        PipelinesAction::Runs { pipeline, limit } => {
            let params = PipelineRunsParams { pipeline_id: pipeline, limit: Some(limit) };
            list_runs(output, &Client::once(&address, output, method::PIPELINES_RUNS, &params)?);
        }
        PipelinesAction::Cancel { run } => {
            let params = PipelineRunId { run_id: run };
            let state: PipelineRunState = Client::once(&address, output, method::PIPELINES_CANCEL, &params)?;
            match output.json {
                true => output.value(&state),
                false => output.done(&format!("The run {} is being cancelled.", state.outcome.run_id)),
            }
        }
        PipelinesAction::Retry { run, detach } => {
            let params = PipelineRunId { run_id: run };
            return start(output, &address, method::PIPELINES_RETRY, &params, detach);
        }
        PipelinesAction::Remove { id } => {
            let removed: PipelineInfo =
                Client::once(&address, output, method::PIPELINES_REMOVE, &PipelineId { id })?;
            match output.json {
                true => output.value(&removed),
                false => {
                    let name = &removed.definition.name;
                    output.done(&format!("The pipeline {} ({name}) is removed.", removed.id));
                }
            }
        }
        PipelinesAction::Plans => {
            list_plans(output, &Client::once(&address, output, method::PLANS_LIST, &Empty {})?);
        }
        PipelinesAction::Answer { id, answer } => {
            let params = PlanAnswer { approval_id: id, answer };
            let decision: PlanDecision = Client::once(&address, output, method::PLANS_ANSWER, &params)?;
            match (output.json, &decision.pipeline_id) {
                (true, _) => output.value(&decision),
                (false, Some(id)) => output.done(&format!("The plan is approved. Its pipeline is {id}.")),
                (false, None) if decision.approved => output.done("The plan is approved."),
                (false, None) => output.done("The plan is not approved. The agent gets your answer."),
            }
        }
    }
    Ok(Exit::Success)
}

fn failure_rule(rule: FailureRule) -> OnFailure {
    match rule {
        FailureRule::Stop => OnFailure::Stop,
        FailureRule::Continue => OnFailure::Continue,
        FailureRule::Notify => OnFailure::Notify,
    }
}

/// Parses `NAME=VALUE`. A value that is not JSON is a text.
pub(super) fn assignments(written: &[String]) -> Result<BTreeMap<String, Value>> {
    let parse = |text: &String| {
        let (name, value) =
            text.split_once('=').ok_or_else(|| UsageError(format!("expected NAME=VALUE, found {text:?}")))?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        Ok((name.to_owned(), value))
    };
    written.iter().map(parse).collect()
}

fn add(
    environment: &Environment,
    output: &Output,
    address: &Address,
    file: &str,
    agent: String,
) -> Result<()> {
    let definition: PipelineDefinition =
        serde_json::from_value(super::apis::read_json(environment, file)?)
            .map_err(|err| UsageError(format!("{file} is not a pipeline: {err}")))?;
    let params = PipelineAdd { agent: Some(agent), definition };
    let added: PipelineInfo = Client::once(address, output, method::PIPELINES_ADD, &params)?;
    match output.json {
        true => output.value(&added),
        false => {
            let cost = dollars(added.estimated_cost_usd);
            output.done(&format!(
                "The pipeline {} is stored. A run costs about {cost}. Run it with `gantry pipelines run {}`.",
                added.id, added.id
            ));
        }
    }
    Ok(())
}

/// Shows a run if there is one with this id, else a pipeline.
fn show(output: &Output, address: &Address, id: String) -> Result<Exit> {
    let params = PipelineStatusParams { run_id: id.clone(), wait_ms: 0 };
    let state: Result<PipelineRunState> = Client::once(address, output, method::PIPELINES_STATUS, &params);
    if let Ok(state) = state {
        if output.json {
            output.value(&state);
        } else {
            show_run(output, &state);
        }
        return Ok(Exit::Success);
    }
    let pipeline: PipelineInfo = Client::once(address, output, method::PIPELINES_GET, &PipelineId { id })?;
    if output.json {
        output.value(&pipeline);
        return Ok(Exit::Success);
    }
    let cost = dollars(pipeline.estimated_cost_usd);
    output.line(&format!("{}  {}", output.bold(&pipeline.id), pipeline.definition.name));
    let facts = format!(
        "agent {} · from a {} · {} · about {cost}",
        pipeline.agent,
        pipeline.source,
        time(pipeline.created)
    );
    output.line(&output.dim(&format!("  {facts}")));
    for parameter in &pipeline.definition.parameters {
        let default =
            parameter.default.as_ref().map_or("needs a value".to_owned(), |value| format!("= {value}"));
        output.line(&format!("  {} ({}) {default}", parameter.name, parameter.kind));
    }
    for line in graph::draw(&pipeline.definition, |_| None) {
        output.line(&line);
    }
    Ok(Exit::Success)
}

fn show_run(output: &Output, state: &PipelineRunState) {
    let outcome = &state.outcome;
    let status = coloured_status(output, outcome.status);
    output.line(&format!("{}  {}  {status}", output.bold(&outcome.run_id), outcome.name));
    let facts = format!(
        "agent {} · {} · {} · {}",
        state.agent,
        time(state.started),
        duration(outcome.total_duration_ms),
        dollars(outcome.total_cost_usd)
    );
    output.line(&output.dim(&format!("  {facts}")));
    if let Some(reason) = &outcome.reason {
        output.line(&format!("  {reason}"));
    }
    let mark = |id: &str| {
        let step = outcome.steps.iter().find(|step| step.step_id == id)?;
        let word = step_word(step.status);
        Some(match step.status {
            StepStatus::Completed => output.green(word),
            StepStatus::Failed => output.red(word),
            StepStatus::Waiting => output.yellow(word),
            StepStatus::Running => output.bold(word),
            StepStatus::Pending | StepStatus::Skipped => output.dim(word),
        })
    };
    for line in graph::draw(&state.definition, mark) {
        output.line(&line);
    }
    for step in &outcome.steps {
        let text = step.error.as_ref().or(step.skip_reason.as_ref()).or(step.result.as_ref());
        let Some(text) = text else { continue };
        let first: String = text.lines().next().unwrap_or_default().chars().take(120).collect();
        let took = output.dim(&duration(step.duration_ms));
        output.line(&format!("  {}  {took}  {first}", output.bold(&step.step_id)));
        if let (StepStatus::Waiting, Some(key)) = (step.status, &step.session_key) {
            output.line(&format!("    answer it: gantry sessions questions {key}"));
        }
    }
}

/// Starts a run. Without `detach` it waits for the end.
fn start(
    output: &Output,
    address: &Address,
    method: &str,
    params: &impl Serialize,
    detach: bool,
) -> Result<Exit> {
    let state: PipelineRunState = match detach {
        true => Client::once(address, output, method, params)?,
        false => follow::start_and_follow(output, address, method, params)?,
    };
    match (output.json, detach) {
        (true, _) => output.value(&state),
        (false, true) => output.done(&format!("The run {} has started.", state.outcome.run_id)),
        (false, false) => show_run(output, &state),
    }
    Ok(match state.outcome.status {
        PipelineStatus::Completed | PipelineStatus::Running => Exit::Success,
        PipelineStatus::Failed | PipelineStatus::Rejected | PipelineStatus::Interrupted => Exit::Failure,
    })
}

fn list(output: &Output, listed: &PipelineList) {
    if output.json {
        return output.value(listed);
    }
    if listed.pipelines.is_empty() {
        output.done("There are no pipelines. `gantry pipelines add FILE` stores one.");
    }
    for pipeline in &listed.pipelines {
        let steps = counted(pipeline.definition.steps.len(), "step");
        let facts = format!("{steps} · from a {} · {}", pipeline.source, time(pipeline.created));
        let id = output.bold(&pipeline.id);
        let name = &pipeline.definition.name;
        output.line(&format!("{id}  {}  {name}  {}", pipeline.agent, output.dim(&facts)));
    }
}

fn list_runs(output: &Output, listed: &PipelineRunList) {
    if output.json {
        return output.value(listed);
    }
    if listed.runs.is_empty() {
        output.done("There are no runs.");
    }
    for run in &listed.runs {
        let took = run.ended.map_or(String::new(), |ended| format!(" · {}", duration(ended - run.started)));
        let facts = format!("{}{took}", time(run.started));
        let status = coloured_status(output, run.status);
        let id = output.bold(&run.run_id);
        output.line(&format!("{id}  {}  {}  {status}  {}", run.agent, run.name, output.dim(&facts)));
    }
}

fn list_plans(output: &Output, listed: &PlanList) {
    if output.json {
        return output.value(listed);
    }
    if listed.plans.is_empty() {
        output.done("No plan waits for an answer.");
    }
    for plan in &listed.plans {
        let facts = format!("{} · from {}", time(plan.created), plan.created_by);
        output.line(&format!("{}  {}  {}", output.bold(&plan.approval_id), plan.agent, output.dim(&facts)));
        for line in plan.text.lines() {
            output.line(&format!("  {line}"));
        }
        output.line(&format!("  answer it: gantry pipelines answer {} proceed", plan.approval_id));
    }
}

fn coloured_status(output: &Output, status: PipelineStatus) -> String {
    match status {
        PipelineStatus::Running => output.bold("running"),
        PipelineStatus::Completed => output.green("completed"),
        PipelineStatus::Failed => output.red("failed"),
        PipelineStatus::Rejected => output.red("rejected"),
        PipelineStatus::Interrupted => output.yellow("interrupted"),
    }
}

fn step_word(status: StepStatus) -> &'static str {
    match status {
        StepStatus::Pending => "pending",
        StepStatus::Running => "running",
        StepStatus::Waiting => "waiting for an answer",
        StepStatus::Completed => "completed",
        StepStatus::Failed => "failed",
        StepStatus::Skipped => "skipped",
    }
}

fn duration(ms: i64) -> String {
    match ms {
        ..1_000 => format!("{} ms", ms.max(0)),
        1_000..60_000 => format!("{:.1} s", ms as f64 / 1000.0),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000),
    }
}

fn dollars(amount: f64) -> String {
    // The sum of nothing is -0.
    let amount = amount + 0.0;
    if amount == 0.0 || amount >= 0.1 { format!("${amount:.2}") } else { format!("${amount:.4}") }
}

/// A number with its noun.
pub(super) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

pub(super) fn time(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or(String::new(), |time| format!("{time:.0}"))
}
