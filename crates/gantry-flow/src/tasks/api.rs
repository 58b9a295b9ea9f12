//! Who may see and change tasks over HTTP and the protocol, and the answers to them.

use gantry_domain::Identity;
use gantry_protocol::{
    TaskAddParams, TaskChanged, TaskChanges, TaskHistory, TaskInfo, TaskList, TaskRunInfo, TaskStatus,
    TasksListParams,
};
use gantry_store::TaskRunRow;
use gantry_tool::{Refusal, RefusalCode};

use super::actions::{Actor, MAX_RUNS_LISTED, TaskError};
use super::definition::Task;
use super::texts;
use crate::access::check_operator;
use crate::domain::Flow;
use crate::pipelines::api::check_change;

const MAIN: &str = "main";
const AGENT_SCOPE: &str = "agent:";
const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1_000;
const NANOS: f64 = 1e9;

type Answer<T> = Result<T, Refusal>;

pub(crate) async fn list(flow: &Flow, identity: &Identity, params: TasksListParams) -> Answer<TaskList> {
    let limit = params.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    // A token for some agents sees the tasks of these agents, so the limit applies to what is left.
    let sees_all = identity.is_operator();
    let asked = if sees_all { limit } else { MAX_LIMIT };
    let (tasks, total) = flow.list_tasks(person(identity, MAIN), &params, asked).await.map_err(refusal)?;
    let mut tasks: Vec<TaskInfo> =
        tasks.iter().filter(|task| identity.may_act_as(&task.row.agent)).map(Task::info).collect();
    let total = if sees_all { total } else { tasks.len() as u64 };
    tasks.truncate(limit as usize);
    Ok(TaskList { tasks, total })
}

pub(crate) async fn show(flow: &Flow, identity: &Identity, id: &str) -> Answer<TaskInfo> {
    Ok(find(flow, identity, id).await?.info())
}

pub(crate) async fn add(flow: &Flow, identity: &Identity, params: TaskAddParams) -> Answer<TaskChanged> {
    let agent = params.agent.as_deref().unwrap_or(MAIN);
    check_change(identity, agent)?;
    let worker = params.task.assignee.as_deref().filter(|name| !["user", "agent", "nodyn"].contains(name));
    if let Some(worker) = worker {
        identity.check_agent(worker)?;
    }
    let mut new = params.task;
    if let Some(parent) = &new.parent_task_id {
        let parent = find(flow, identity, parent).await?;
        new.scope.get_or_insert_with(|| parent.row.scope.clone());
        new.parent_task_id = Some(parent.row.id);
    }
    if let Some(owner) = new.scope.as_deref().and_then(|scope| scope.strip_prefix(AGENT_SCOPE)) {
        identity.check_agent(owner)?;
    }
    let name = name(identity);
    let actor = Actor::Person { name: &name, agent };
    let task = flow.create_task(actor, new).await.map_err(refusal)?.info();
    let message = texts::created(&task, &flow.parts.zone);
    Ok(TaskChanged { task, message })
}

pub(crate) async fn edit(flow: &Flow, identity: &Identity, changes: TaskChanges) -> Answer<TaskChanged> {
    let task = changeable(flow, identity, &changes.task_id).await?;
    let worker = changes.assignee.as_deref().filter(|name| !["user", "agent", "nodyn"].contains(name));
    if let Some(worker) = worker {
        identity.check_agent(worker)?;
    }
    let name = name(identity);
    let actor = Actor::Person { name: &name, agent: &task.row.agent };
    let is_completed = changes.status == Some(TaskStatus::Completed);
    let changed = flow.update_task(actor, TaskChanges { task_id: task.row.id.clone(), ..changes }).await;
    let what = if is_completed { "Task completed" } else { "Task updated" };
    changed_to(what, &changed.map_err(refusal)?)
}

pub(crate) async fn run(flow: &Flow, identity: &Identity, id: &str) -> Answer<TaskChanged> {
    let task = changeable(flow, identity, id).await?;
    let name = name(identity);
    let actor = Actor::Person { name: &name, agent: &task.row.agent };
    let started = flow.run_task(actor, &task.row.id).await.map_err(refusal)?;
    changed_to("Task started", &started)
}

pub(crate) async fn cancel(flow: &Flow, identity: &Identity, id: &str) -> Answer<TaskChanged> {
    let changes =
        TaskChanges { task_id: id.to_owned(), status: Some(TaskStatus::Cancelled), ..TaskChanges::default() };
    let mut changed = edit(flow, identity, changes).await?;
    changed.message = format!("Task cancelled: {}", texts::line(&changed.task));
    Ok(changed)
}

/// Allows the unattended runs of a task with the content that the person saw.
pub(crate) async fn confirm(
    flow: &Flow,
    identity: &Identity,
    id: &str,
    seen: Option<&str>,
) -> Answer<TaskChanged> {
    check_operator(identity, "confirm a task")?;
    let name = name(identity);
    let actor = Actor::Person { name: &name, agent: MAIN };
    let task = flow.confirm_task(actor, id, seen, &name).await.map_err(refusal)?;
    changed_to("Task confirmed", &task)
}

pub(crate) async fn history(flow: &Flow, identity: &Identity, id: &str) -> Answer<TaskHistory> {
    let task = find(flow, identity, id).await?;
    let runs = flow.parts.database.task_runs(&task.row.id, MAX_RUNS_LISTED).await;
    let runs = runs.map_err(|err| refusal(err.into()))?;
    Ok(TaskHistory { runs: runs.into_iter().map(run_info).collect() })
}

fn changed_to(what: &str, task: &Task) -> Answer<TaskChanged> {
    let task = task.info();
    Ok(TaskChanged { message: format!("{what}: {}", texts::line(&task)), task })
}

fn run_info(run: TaskRunRow) -> TaskRunInfo {
    TaskRunInfo {
        id: run.id,
        task_id: run.task,
        state: run.state,
        session_key: run.session,
        queued_at_ms: run.queued,
        started_at_ms: run.started,
        ended_at_ms: run.ended,
        result: run.result,
        error: run.error,
        cost_usd: run.cost as f64 / NANOS,
    }
}

fn name(identity: &Identity) -> String {
    match identity {
        Identity::Operator | Identity::Page(_) => gantry_agent::OPERATOR.to_owned(),
        Identity::Client(token) => format!("client:{}", token.name),
    }
}

fn person<'a>(identity: &Identity, agent: &'a str) -> Actor<'a> {
    let name = if identity.is_operator() { gantry_agent::OPERATOR } else { "client" };
    Actor::Person { name, agent }
}

/// Returns a task that the caller may see. Others' tasks are not found.
async fn find(flow: &Flow, identity: &Identity, id: &str) -> Answer<Task> {
    flow.pick_task(id, |row| identity.may_act_as(&row.agent)).await.map_err(refusal)
}

async fn changeable(flow: &Flow, identity: &Identity, id: &str) -> Answer<Task> {
    let task = find(flow, identity, id).await?;
    check_change(identity, &task.row.agent)?;
    Ok(task)
}

fn refusal(err: TaskError) -> Refusal {
    let code = match &err {
        TaskError::Invalid(_) | TaskError::NotFound(_) => RefusalCode::InvalidInput,
        TaskError::Denied(_) => RefusalCode::Denied,
        TaskError::Failed(_) => RefusalCode::Unavailable,
    };
    Refusal::new(code, err.to_string())
}
