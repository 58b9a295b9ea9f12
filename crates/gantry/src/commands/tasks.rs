//! `gantry tasks` lists, creates and runs tasks.

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_flow::relative_text;
use gantry_protocol::{
    NewTask, TaskAddParams, TaskChanged, TaskChanges, TaskConfirm, TaskDue, TaskHistory, TaskInfo, TaskList,
    TaskParams, TaskPriority, TaskStatus, TasksListParams, method,
};
use serde::de::DeserializeOwned;

use crate::client::{Client, Target};
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry tasks                                          list open tasks\n  \
    gantry tasks add \"Pay the rent\" --due 2026-12-01      a task for yourself\n  \
    gantry tasks add \"Summarise the news\" --schedule 1d   a task that the agent runs every day\n  \
    gantry tasks add \"Prices\" --watch https://example.org/prices\n  \
    gantry tasks confirm 3f2a91c0                         allow a task that an agent created")]
pub(crate) struct TasksArgs {
    #[command(subcommand)]
    action: Option<TasksAction>,
}

#[derive(Debug, Subcommand)]
enum TasksAction {
    /// List tasks by priority and due date
    List(ListArgs),
    /// Show a task with its last result
    Show(IdArgs),
    /// Create a task
    Add(Box<AddArgs>),
    /// Complete a task and its subtasks
    Done(IdArgs),
    /// Change a task
    Edit(Box<EditArgs>),
    /// Start a run now, or look at the watched page now
    Run(IdArgs),
    /// Cancel a task, its subtasks and its run
    Cancel(IdArgs),
    /// Show a task that an agent created, and allow it to run in the background
    Confirm {
        /// The task's id, a unique beginning of it, or its title
        id: String,
        /// The content hash of the notice; a task that has changed since is not allowed
        #[arg(long, value_name = "HASH")]
        seen: Option<String>,
    },
    /// List the runs of a task, newest first
    History(IdArgs),
}

#[derive(Debug, Args)]
struct IdArgs {
    /// The task's id, a unique beginning of it, or its title
    id: String,
}

#[derive(Debug, Default, Args)]
struct ListArgs {
    /// Only this scope
    #[arg(long)]
    scope: Option<String>,
    /// Only this status: open, in_progress, completed, failed or cancelled
    #[arg(long)]
    status: Option<String>,
    /// Only tasks that are due: today, week or overdue
    #[arg(long)]
    due: Option<String>,
    /// Only tasks of this assignee
    #[arg(long)]
    assignee: Option<String>,
    /// The most tasks to list
    #[arg(long)]
    limit: Option<u32>,
}

#[derive(Debug, Args)]
struct AddArgs {
    /// What is to be done, in a few words
    title: String,
    /// Everything that whoever does it has to know
    #[arg(long)]
    description: Option<String>,
    /// urgent, high, medium or low
    #[arg(long)]
    priority: Option<String>,
    /// YYYY-MM-DD
    #[arg(long, value_name = "DATE")]
    due: Option<String>,
    #[arg(long, help = "global, user:owner, agent:NAME or a configured scope")]
    scope: Option<String>,
    /// May be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// The task that this one is a part of
    #[arg(long, value_name = "ID")]
    parent: Option<String>,
    /// A cron expression, "every 5 minutes", 30m, 1h or 1d
    #[arg(long)]
    schedule: Option<String>,
    /// Watch this page and run when it changes
    #[arg(long, value_name = "URL")]
    watch: Option<String>,
    /// Minutes between two looks at the page
    #[arg(long, value_name = "MINUTES")]
    interval: Option<u32>,
    /// Run this stored pipeline
    #[arg(long, value_name = "ID")]
    pipeline: Option<String>,
    /// user, agent, or the name of an agent
    #[arg(long)]
    assignee: Option<String>,
    /// The agent that does it in the background
    #[arg(long)]
    agent: Option<String>,
}

#[derive(Debug, Args)]
struct EditArgs {
    /// The task's id, a unique beginning of it, or its title
    id: String,
    /// The new title
    #[arg(long)]
    title: Option<String>,
    /// The new description
    #[arg(long)]
    description: Option<String>,
    /// urgent, high, medium or low
    #[arg(long)]
    priority: Option<String>,
    /// YYYY-MM-DD; an empty text removes it
    #[arg(long, value_name = "DATE")]
    due: Option<String>,
    /// open, in_progress, completed, failed or cancelled
    #[arg(long)]
    status: Option<String>,
    /// Replaces all tags; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// user, agent, or the name of an agent
    #[arg(long)]
    assignee: Option<String>,
    /// The new schedule: a cron expression, "every 5 minutes", 30m, 1h or 1d
    #[arg(long)]
    schedule: Option<String>,
    /// The new page to watch
    #[arg(long, value_name = "URL")]
    watch: Option<String>,
    /// Minutes between two looks at the page
    #[arg(long, value_name = "MINUTES")]
    interval: Option<u32>,
}

pub(crate) fn run(environment: &Environment, output: &Output, args: TasksArgs) -> Result<Exit> {
    let address = Target::gateway(environment, output)?;
    let change = |name: &str, id: String| -> Result<TaskChanged> {
        Client::once(&address, output, name, &TaskParams { id })
    };
    let edit = |changes: TaskChanges| -> Result<TaskChanged> {
        Client::once(&address, output, method::TASKS_EDIT, &changes)
    };
    match args.action.unwrap_or_else(|| TasksAction::List(ListArgs::default())) {
        TasksAction::List(list) => {
            let listed: TaskList = Client::once(&address, output, method::TASKS_LIST, &list_params(list)?)?;
            print_list(output, &listed);
        }
        TasksAction::Show(IdArgs { id }) => {
            let task: TaskInfo = Client::once(&address, output, method::TASKS_SHOW, &TaskParams { id })?;
            show(output, &task);
        }
        TasksAction::Add(add) => {
            let params = add_params(*add)?;
            changed(output, &Client::once(&address, output, method::TASKS_ADD, &params)?);
        }
        TasksAction::Edit(args) => changed(output, &edit(edit_params(*args)?)?),
        TasksAction::Done(IdArgs { id }) => {
            let status = Some(TaskStatus::Completed);
            changed(output, &edit(TaskChanges { task_id: id, status, ..TaskChanges::default() })?);
        }
        TasksAction::Run(IdArgs { id }) => changed(output, &change(method::TASKS_RUN, id)?),
        TasksAction::Cancel(IdArgs { id }) => changed(output, &change(method::TASKS_CANCEL, id)?),
        TasksAction::Confirm { id, seen } => {
            let task: TaskInfo = Client::once(&address, output, method::TASKS_SHOW, &TaskParams { id })?;
            if !output.json {
                show(output, &task);
            }
            // Only what is shown here or in the notice is allowed.
            let params = TaskConfirm { id: task.id, seen: Some(seen.unwrap_or(task.content_hash)) };
            changed(output, &Client::once(&address, output, method::TASKS_CONFIRM, &params)?);
        }
        TasksAction::History(IdArgs { id }) => {
            let history: TaskHistory =
                Client::once(&address, output, method::TASKS_HISTORY, &TaskParams { id })?;
            print_history(output, &history);
        }
    }
    Ok(Exit::Success)
}

/// Reads a word of a fixed set, such as a status.
fn word<T: DeserializeOwned>(name: &str, text: Option<String>) -> Result<Option<T>, UsageError> {
    let Some(text) = text else { return Ok(None) };
    let read = serde_json::from_value(serde_json::Value::String(text.to_lowercase()));
    read.map(Some).map_err(|err| UsageError(format!("--{name}: {err}")))
}

fn list_params(args: ListArgs) -> Result<TasksListParams, UsageError> {
    Ok(TasksListParams {
        scope: args.scope,
        status: word::<TaskStatus>("status", args.status)?,
        due: word::<TaskDue>("due", args.due)?,
        assignee: args.assignee,
        limit: args.limit,
    })
}

fn add_params(args: AddArgs) -> Result<TaskAddParams, UsageError> {
    let task = NewTask {
        title: args.title,
        description: args.description,
        priority: word::<TaskPriority>("priority", args.priority)?,
        due_date: args.due,
        scope: args.scope,
        tags: Some(args.tags).filter(|tags| !tags.is_empty()),
        parent_task_id: args.parent,
        schedule: args.schedule,
        watch_url: args.watch,
        watch_interval_minutes: args.interval,
        pipeline_id: args.pipeline,
        params: None,
        assignee: args.assignee,
    };
    Ok(TaskAddParams { agent: args.agent, task })
}

fn edit_params(args: EditArgs) -> Result<TaskChanges, UsageError> {
    Ok(TaskChanges {
        task_id: args.id,
        status: word::<TaskStatus>("status", args.status)?,
        priority: word::<TaskPriority>("priority", args.priority)?,
        due_date: args.due,
        title: args.title,
        description: args.description,
        tags: Some(args.tags).filter(|tags| !tags.is_empty()),
        assignee: args.assignee,
        schedule: args.schedule,
        watch_url: args.watch,
        watch_interval_minutes: args.interval,
    })
}

fn changed(output: &Output, changed: &TaskChanged) {
    match output.json {
        true => output.value(changed),
        false => output.done(&changed.message),
    }
}

fn print_list(output: &Output, listed: &TaskList) {
    if output.json {
        return output.value(listed);
    }
    if listed.tasks.is_empty() {
        output.done("There are no tasks.");
    }
    for task in &listed.tasks {
        let id = output.bold(short(&task.id));
        output.line(&format!(
            "{id}  {:<7} {}  {}",
            task.priority.name(),
            task.title,
            output.dim(&facts(task))
        ));
    }
    let more = listed.total.saturating_sub(listed.tasks.len() as u64);
    if more > 0 {
        output.line(&output.dim(&format!("… and {more} more")));
    }
}

fn facts(task: &TaskInfo) -> String {
    let state = if task.running { "running" } else { task.status.name() };
    let now = jiff::Timestamp::now().as_millisecond();
    let mut facts = vec![state.to_owned(), task.scope.clone()];
    facts.extend(task.assignee.as_ref().map(|assignee| format!("@{assignee}")));
    facts.extend(task.due_date.as_ref().map(|due| format!("due {due}")));
    facts.extend(task.schedule.clone());
    facts.extend(task.watch_url.as_ref().map(|url| format!("watches {url}")));
    facts.extend(task.pipeline_id.as_ref().map(|id| format!("pipeline {id}")));
    facts.extend(task.next_run_at_ms.map(|at| format!("next run {}", relative_text(at, now))));
    if task.unattended && !task.confirmed {
        facts.push("waits for `gantry tasks confirm`".to_owned());
    }
    facts.join(" · ")
}

fn show(output: &Output, task: &TaskInfo) {
    if output.json {
        return output.value(task);
    }
    output.line(&format!("{}  {}", output.bold(short(&task.id)), task.title));
    output.line(&format!("  {} · {} · {}", task.kind.name(), task.priority.name(), facts(task)));
    for (name, value) in [
        ("description", task.description.clone()),
        ("tags", Some(task.tags.join(", ")).filter(|tags| !tags.is_empty())),
        ("part of", task.parent_task_id.as_deref().map(|id| short(id).to_owned())),
        ("agent", task.unattended.then(|| task.agent.clone())),
        ("created by", Some(task.created_by.clone())),
        ("last run", task.last_status.clone()),
        ("result", task.last_result.clone()),
    ] {
        if let Some(value) = value {
            output.line(&format!("  {name:<12}{value}"));
        }
    }
}

fn print_history(output: &Output, history: &TaskHistory) {
    if output.json {
        return output.value(history);
    }
    if history.runs.is_empty() {
        output.done("The task has no runs.");
    }
    let now = jiff::Timestamp::now().as_millisecond();
    for run in &history.runs {
        let text =
            run.result.as_ref().or(run.error.as_ref()).and_then(|text| text.lines().next()).unwrap_or("");
        let mut facts = vec![relative_text(run.queued_at_ms, now)];
        if run.cost_usd > 0.0 {
            facts.push(format!("${:.4}", run.cost_usd));
        }
        if !run.session_key.is_empty() {
            facts.push(run.session_key.clone());
        }
        let facts = facts.join(" · ");
        output.line(&format!(
            "{}  {:<9} {text}  {}",
            output.bold(short(&run.id)),
            run.state,
            output.dim(&facts)
        ));
    }
}

fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}
