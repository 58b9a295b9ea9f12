//! `gantry cron` manages scheduled jobs and their runs.

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_flow::relative_text;
use gantry_protocol::{
    CronCancelled, CronConfirm, CronDate, CronHistory, CronHistoryParams, CronJob, CronJobInput, CronJobList,
    CronListParams, CronParams, CronQueued, CronRemoved, CronRun, CronScheduleInput, CronSpecInput,
    CronStatus, CronStatusParams, CronUpdateParams, method,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::{Address, Client, Target};
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

/// Characters of an id in lists. A unique beginning names a job or a run.
const SHOWN_ID: usize = 32;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry cron                                          list jobs, nearest run first\n  \
    gantry cron add Report --cron '0 9 * * 1-5' --task 'Summarize yesterday'\n  \
    gantry cron add Tea --at 'in 5 minutes' --event 'The tea is ready'\n  \
    gantry cron edit 3f2a --every 2h                     change when it runs\n  \
    gantry cron run 3f2a                                 start it now\n  \
    gantry cron history 3f2a                             its runs, newest first")]
pub(crate) struct CronArgs {
    #[command(subcommand)]
    action: Option<CronAction>,
}

#[derive(Debug, Subcommand)]
enum CronAction {
    /// List the jobs, nearest next run first
    List {
        /// Only the jobs of this agent
        #[arg(long, value_name = "AGENT")]
        agent: Option<String>,
        /// Leave out disabled jobs
        #[arg(long)]
        enabled: bool,
    },
    /// Show a job
    Show {
        /// The job's id, a unique beginning of it, or its name
        id: String,
    },
    /// Add a job
    Add {
        /// A name for people
        name: String,
        #[command(flatten)]
        job: JobArgs,
    },
    /// Change a job; what is left out stays
    Edit {
        /// The job's id, a unique beginning of it, or its name
        id: String,
        /// A new name
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        job: JobArgs,
    },
    /// Remove a job with its history, and stop its runs
    Remove {
        /// The job's id, a unique beginning of it, or its name
        id: String,
    },
    /// Start a job now; its schedule stays as it is
    Run {
        /// The job's id, a unique beginning of it, or its name
        id: String,
    },
    /// Pause a job until it is resumed
    Pause {
        /// The job's id, a unique beginning of it, or its name
        id: String,
    },
    /// Resume a paused or disabled job
    Resume {
        /// The job's id, a unique beginning of it, or its name
        id: String,
    },
    /// Allow a job that an agent added, and show what it does
    Confirm {
        /// The job's id, a unique beginning of it, or its name
        id: String,
        /// The content hash of the notice; a job that has changed since is not allowed
        #[arg(long, value_name = "HASH")]
        seen: Option<String>,
    },
    /// Show past and current runs, newest first
    History {
        /// Only the runs of this job
        id: Option<String>,
        /// The number of rows
        #[arg(long, value_name = "COUNT", default_value_t = 20)]
        limit: u32,
    },
    /// Stop a run
    Cancel {
        /// The run's id, or a unique beginning of it
        run: String,
    },
    /// Show how many jobs there are, and when the next one runs
    Status,
}

#[derive(Debug, Default, Args)]
struct JobArgs {
    /// Run once: "2026-03-05 09:00", "in 2 hours", "tomorrow at 9am"
    #[arg(long, value_name = "DATE", group = "when")]
    at: Option<String>,
    /// Run at an interval: 30m, 2h, 1d
    #[arg(long, value_name = "INTERVAL", group = "when")]
    every: Option<String>,
    /// Run by a cron expression with five fields
    #[arg(long, value_name = "EXPRESSION", group = "when")]
    cron: Option<String>,
    /// The time zone of --cron, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", requires = "cron", conflicts_with_all = ["at", "every"])]
    tz: Option<String>,
    /// Run this task in a session of its own
    #[arg(long, value_name = "TEXT", group = "what")]
    task: Option<String>,
    /// Put this message into the agent's main session
    #[arg(long, value_name = "TEXT", group = "what")]
    event: Option<String>,
    /// The agent that runs it
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// What the job is for
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// The model of a task
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// How much a task's model thinks: off, on, low, medium, high, or a number of tokens
    #[arg(long, value_name = "LEVEL")]
    thinking: Option<String>,
    /// The time limit of a task's run, in seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u32>,
    /// Where a task's answer goes: session, or a configured webhook
    #[arg(long, value_name = "CHANNEL")]
    channel: Option<String>,
    /// The receiver in that channel
    #[arg(long, value_name = "RECEIVER")]
    to: Option<String>,
    /// Send no answer
    #[arg(long)]
    silent: bool,
    /// A failed delivery does not make the run an error
    #[arg(long)]
    best_effort: bool,
    /// Times at which the gateway was not running: last or none
    #[arg(long, value_name = "RULE")]
    catch_up: Option<String>,
    /// When the previous run has not ended: skip or queue
    #[arg(long, value_name = "RULE")]
    overlap: Option<String>,
    /// Start each run later by a fixed part of this
    #[arg(long, value_name = "SECONDS")]
    jitter: Option<u32>,
    /// What a run gets from the one before: none or summary
    #[arg(long, value_name = "RULE")]
    carry: Option<String>,
    /// Delete the job after a successful run (with --at)
    #[arg(long)]
    delete_after_run: bool,
    /// Add the job without starting it
    #[arg(long)]
    disabled: bool,
}

impl JobArgs {
    fn input(self, name: Option<String>) -> Result<CronJobInput> {
        let schedule = match (&self.at, &self.every, &self.cron) {
            (Some(at), ..) => Some(CronScheduleInput {
                kind: "at".into(),
                at: Some(CronDate::Text(at.clone())),
                ..CronScheduleInput::default()
            }),
            (_, Some(every), _) => Some(CronScheduleInput {
                kind: "every".into(),
                every_ms: Some(gantry_flow::parse_interval(every).map_err(UsageError)?),
                ..CronScheduleInput::default()
            }),
            (_, _, Some(expr)) => Some(CronScheduleInput {
                kind: "cron".into(),
                expr: Some(expr.clone()),
                tz: self.tz.clone(),
                ..CronScheduleInput::default()
            }),
            (None, None, None) => None,
        };
        let has_task_options = self.model.is_some()
            || self.thinking.is_some()
            || self.timeout.is_some()
            || self.channel.is_some()
            || self.to.is_some()
            || self.silent
            || self.best_effort;
        let spec = match (self.task, self.event) {
            (_, Some(text)) => Some(CronSpecInput {
                mode: "systemEvent".into(),
                text: Some(text),
                ..CronSpecInput::default()
            }),
            (None, None) if !has_task_options => None,
            (message, None) => Some(CronSpecInput {
                mode: "task".into(),
                message,
                deliver: self.silent.then_some(false),
                channel: self.channel,
                to: self.to,
                model: self.model,
                thinking: self.thinking,
                timeout_seconds: self.timeout,
                best_effort_deliver: self.best_effort.then_some(true),
                ..CronSpecInput::default()
            }),
        };
        Ok(CronJobInput {
            name,
            schedule,
            spec,
            agent_id: self.agent,
            description: self.description,
            enabled: self.disabled.then_some(false),
            delete_after_run: self.delete_after_run.then_some(true),
            catch_up: self.catch_up,
            overlap: self.overlap,
            jitter_seconds: self.jitter,
            carry: self.carry,
        })
    }
}

pub(crate) fn run(environment: &Environment, output: &Output, args: CronArgs) -> Result<Exit> {
    let gateway = Gateway { address: Target::gateway(environment, output)?, output };
    let none = CronAction::List { agent: None, enabled: false };
    match args.action.unwrap_or(none) {
        CronAction::List { agent, enabled } => {
            let params = CronListParams {
                agent_id: agent,
                include_disabled: Some(!enabled),
                limit: Some(500),
                offset: None,
            };
            list(output, &gateway.ask(method::CRON_LIST, &params)?);
        }
        CronAction::Show { id } => show(output, &gateway.job(method::CRON_SHOW, id)?),
        CronAction::Add { name, job } => {
            show(output, &gateway.ask(method::CRON_ADD, &job.input(Some(name))?)?);
        }
        CronAction::Edit { id, name, job } => {
            let patch = job.input(name)?;
            show(output, &gateway.ask(method::CRON_UPDATE, &CronUpdateParams { id, patch })?);
        }
        CronAction::Remove { id } => {
            let removed: CronRemoved = gateway.ask(method::CRON_REMOVE, &CronParams { id: id.clone() })?;
            gateway.done(&removed, &format!("The job {id} is removed."));
        }
        CronAction::Run { id } => {
            let queued: CronQueued = gateway.ask(method::CRON_RUN, &CronParams { id })?;
            gateway.done(&queued, &format!("{}.", queued.summary));
        }
        CronAction::Pause { id } => {
            let job = gateway.job(method::CRON_PAUSE, id)?;
            gateway.done(
                &job,
                &format!("{:?} is paused; `gantry cron resume {}` continues it.", job.name, job.id),
            );
        }
        CronAction::Resume { id } => show(output, &gateway.job(method::CRON_RESUME, id)?),
        CronAction::Confirm { id, seen } => {
            let job = gateway.job(method::CRON_SHOW, id)?;
            // Only what is shown here or in the notice is allowed.
            let seen = Some(seen.unwrap_or(job.content_hash));
            show(output, &gateway.ask(method::CRON_CONFIRM, &CronConfirm { id: job.id, seen })?);
        }
        CronAction::History { id, limit } => {
            let params = CronHistoryParams { job_id: id, limit: Some(limit), offset: None };
            history(output, &gateway.ask(method::CRON_HISTORY, &params)?);
        }
        CronAction::Cancel { run } => {
            let cancelled: CronCancelled = gateway.ask(method::CRON_CANCEL, &CronParams { id: run })?;
            gateway.done(&cancelled, &format!("{}: {}.", cancelled.run_id, cancelled.text));
        }
        CronAction::Status => {
            status(output, &gateway.ask(method::CRON_STATUS, &CronStatusParams::default())?)
        }
    }
    Ok(Exit::Success)
}

struct Gateway<'a> {
    address: Address,
    output: &'a Output,
}

impl Gateway<'_> {
    fn ask<P: Serialize, R: DeserializeOwned>(&self, method: &str, params: &P) -> Result<R> {
        Client::once(&self.address, self.output, method, params)
    }

    fn job(&self, method: &str, id: String) -> Result<CronJob> {
        self.ask(method, &CronParams { id })
    }

    fn done<T: Serialize>(&self, value: &T, text: &str) {
        match self.output.json {
            true => self.output.value(value),
            false => self.output.done(text),
        }
    }
}

fn list(output: &Output, listed: &CronJobList) {
    if output.json {
        return output.value(listed);
    }
    if listed.jobs.is_empty() {
        output.done("There are no scheduled jobs.");
    }
    let now = now();
    let width = listed.jobs.iter().map(|job| job.name.chars().count()).max().unwrap_or(0).min(40);
    for job in &listed.jobs {
        let next = job.state.next_run_at_ms.map_or_else(String::new, |next| relative_text(next, now));
        let id: String = job.id.chars().take(SHOWN_ID).collect();
        let facts = format!("{} · {}{}", job.agent_id, job.schedule_human, last(job, now));
        let line = format!(
            "{}  {:<width$}  {:<14}  {}",
            output.bold(&id),
            job.name,
            condition(output, job).unwrap_or(next),
            output.dim(&facts)
        );
        output.prose(&line, id.len() + 2);
    }
}

fn last(job: &CronJob, now: i64) -> String {
    match (&job.state.last_status, job.state.last_run_at_ms) {
        (Some(status), Some(at)) => format!(" · last {status} {}", relative_text(at, now)),
        (Some(status), None) => format!(" · {status}"),
        _ => String::new(),
    }
}

/// Why the job does not run, or that it runs.
fn condition(output: &Output, job: &CronJob) -> Option<String> {
    match () {
        () if job.state.running_at_ms.is_some() => Some(output.green("running")),
        () if job.confirmed_by.is_none() => Some(output.yellow("needs confirm")),
        () if job.state.paused.is_some() => Some(output.yellow("paused")),
        () if !job.enabled => Some(output.dim("disabled")),
        () => None,
    }
}

fn show(output: &Output, job: &CronJob) {
    if output.json {
        return output.value(job);
    }
    let now = now();
    output.line(&format!("{}  {}", output.bold(&job.id), job.name));
    let line = |name: &str, text: &str| output.line(&format!("  {name:<12}{text}"));
    if let Some(description) = &job.description {
        line("about", description);
    }
    line("agent", &job.agent_id);
    line("schedule", &job.schedule_human);
    for (place, next) in job.next_runs.iter().enumerate() {
        let name = if place == 0 { "next" } else { "" };
        line(name, &format!("{} · {} · {}", next.local, next.utc, relative_text(next.at_ms, now)));
    }
    let text = job.spec.get("message").or_else(|| job.spec.get("text")).and_then(|text| text.as_str());
    line(job.spec["mode"].as_str().unwrap_or("does"), text.unwrap_or_default());
    for (name, value) in options(job) {
        line(name, &value);
    }
    if let Some(condition) = condition(output, job) {
        line("state", &condition);
    }
    if let Some(pause) = &job.state.paused {
        line("paused", &format!("{}, {}", pause.reason, relative_text(pause.at, now)));
    }
    if let Some(last) = &job.last_run_human {
        line("last run", &format!("{last}: {}", job.state.last_status.as_deref().unwrap_or_default()));
    }
    if let Some(error) = &job.state.last_error {
        line("last error", error);
    }
    if job.state.skipped_in_a_row > 0 {
        let count = job.state.skipped_in_a_row;
        line("skipped", &format!("{count} in a row, because a run takes longer than the interval"));
    }
    for note in &job.notes {
        output.note(note);
    }
}

/// Every option of a job, also those that have their default.
fn options(job: &CronJob) -> Vec<(&'static str, String)> {
    let text = |field: &str| job.spec[field].as_str().map(str::to_owned);
    let mut options = Vec::new();
    if job.spec["mode"] == "task" {
        let delivers = job.spec["deliver"].as_bool().unwrap_or(true);
        let best_effort = job.spec["bestEffortDeliver"].as_bool().unwrap_or(false);
        let receiver = [text("channel"), text("to")].into_iter().flatten().collect::<Vec<_>>().join(" ");
        options.extend([
            ("answers to", if delivers { receiver } else { "nobody".to_owned() }),
            (
                "delivery",
                if best_effort { "best effort" } else { "a failure is an error of the run" }.to_owned(),
            ),
            ("model", text("model").unwrap_or_else(|| "the agent's".to_owned())),
            ("thinking", text("thinking").unwrap_or_else(|| "the model's".to_owned())),
        ]);
        options
            .extend(job.spec["timeoutSeconds"].as_u64().map(|seconds| ("timeout", format!("{seconds} s"))));
    }
    options.extend([
        ("catch-up", job.catch_up.clone()),
        ("overlap", job.overlap.clone()),
        ("jitter", format!("{} s", job.jitter_seconds)),
        ("carry", job.carry.clone()),
        ("created by", job.created_by.clone()),
        ("allowed by", job.confirmed_by.clone().unwrap_or_else(|| "nobody yet".to_owned())),
        ("content", job.content_hash.clone()),
    ]);
    if job.delete_after_run {
        options.push(("afterwards", "deletes itself after a successful run".to_owned()));
    }
    options
}

fn history(output: &Output, history: &CronHistory) {
    if output.json {
        return output.value(history);
    }
    if history.runs.is_empty() {
        output.done("There are no runs yet.");
    }
    let now = now();
    for run in &history.runs {
        output.line(&history_line(output, run, now));
    }
    let more = history.count.saturating_sub(history.runs.len() as u64);
    if more > 0 {
        output.note(&format!("{more} more; --limit shows them"));
    }
}

fn history_line(output: &Output, run: &CronRun, now: i64) -> String {
    let status = match run.status.as_str() {
        "ok" => output.green("ok"),
        "error" | "missed" | "interrupted" => output.red(&run.status),
        other => output.yellow(other),
    };
    let when = relative_text(run.started_at_ms.unwrap_or(run.scheduled_at_ms), now);
    let mut facts = vec![run.kind.clone()];
    if let Some(ms) = run.duration_ms {
        facts.push(format!("{}.{} s", ms / 1_000, ms % 1_000 / 100));
    }
    if let Some(cost) = run.cost_usd.filter(|cost| *cost > 0.0) {
        facts.push(format!("${cost:.4}"));
    }
    if run.delivery != "none" {
        facts.push(format!("delivery {}", run.delivery));
    }
    let id = run.run_id.as_deref().unwrap_or("-");
    let text = run.error.as_deref().or(run.summary.as_deref()).unwrap_or_default();
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(100).collect();
    format!("{}  {status}  {when}  {}  {text}", output.bold(id), output.dim(&facts.join(" · ")))
}

fn status(output: &Output, status: &CronStatus) {
    if output.json {
        return output.value(status);
    }
    let next = status.next_run_at_ms.map_or_else(
        || "no run is planned".to_owned(),
        |next| format!("the next run is {}", relative_text(next, now())),
    );
    let enabled = if status.enabled { "" } else { " Schedules are off: flow.enabled is false." };
    output.line(&format!(
        "{} of {} jobs, {} running, {} due; {next}. Now it is {} ({}).{enabled}",
        status.count,
        status.max_jobs,
        status.running_count,
        status.due_count,
        status.current_time,
        status.timezone
    ));
}

fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
