//! Creates, changes and starts tasks. Tools, methods and routes use it.

use gantry_agent::{Authority, SessionError};
use gantry_domain::LOCAL_OPERATOR;
use gantry_protocol::{NewTask, TaskChanges, TaskDue, TaskKind, TaskStatus, TasksListParams};
use gantry_store::{DatabaseError, TaskFilter, TaskRow, priority_rank};
use gantry_tool::{Call, Principal};
use jiff::{Span, Timestamp};

use super::confirmation::{self, Confirmation};
use super::definition::{
    Definition, Known, Task, WrittenSchedule, check, check_assignee, date_problem, description_problem,
    interval_problem, is_unattended, tags_problem, title_problem, url_problem,
};
use super::notices::{self, Notice};
use super::texts::{self, short_id};
use crate::access::{Named, pick};
use crate::domain::Flow;
use crate::time::Schedule;

/// The most runs that a history has.
pub(crate) const MAX_RUNS_LISTED: u32 = 100;

/// Who acts: an agent in a call, or a person.
#[derive(Clone, Copy)]
pub(crate) enum Actor<'a> {
    Agent(&'a Call),
    /// The person, and the agent that `agent` means.
    Person {
        name: &'a str,
        agent: &'a str,
    },
}

impl<'a> Actor<'a> {
    /// The actor of a tool call. Programs are rejected, because a tool does not know which agents a token allows.
    pub(crate) fn of(call: &'a Call) -> Result<Actor<'a>, TaskError> {
        match &call.principal {
            Principal::Agent { .. } | Principal::Scheduler => Ok(Actor::Agent(call)),
            Principal::Operator if call.session.is_some() => Ok(Actor::Agent(call)),
            Principal::Operator => Ok(Actor::Person { name: gantry_agent::OPERATOR, agent: &call.agent }),
            Principal::Client { .. } | Principal::Mcp { .. } => Err(TaskError::Denied(
                "only agents and their owner can use tasks as tools; programs use /v1/tasks with a token that names the \
                 agents"
                    .to_owned(),
            )),
        }
    }

    fn agent(&self) -> &str {
        match self {
            Actor::Agent(call) => &call.agent,
            Actor::Person { agent, .. } => agent,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    /// The caller can fix this. Everything wrong is listed.
    #[error("{}", .0.join("\n"))]
    Invalid(Vec<String>),
    #[error("Task not found: {0}")]
    NotFound(String),
    #[error("{0}")]
    Denied(String),
    #[error("{0}")]
    Failed(String),
}

impl From<DatabaseError> for TaskError {
    fn from(err: DatabaseError) -> TaskError {
        match err {
            DatabaseError::Refused(text) => TaskError::Invalid(vec![text]),
            err => TaskError::Failed(err.to_string()),
        }
    }
}

impl From<SessionError> for TaskError {
    fn from(err: SessionError) -> TaskError {
        match err {
            SessionError::Denied(reason) => TaskError::Denied(reason),
            SessionError::Stopping | SessionError::Store(_) => TaskError::Failed(err.to_string()),
            err => TaskError::Invalid(vec![err.to_string()]),
        }
    }
}

impl From<serde_json::Error> for TaskError {
    fn from(err: serde_json::Error) -> TaskError {
        TaskError::Failed(format!("a stored task does not parse: {err}"))
    }
}

/// Returns the definition with a changed schedule, page or interval, or everything that is wrong with them.
fn changed_timing(
    task: &Task,
    changes: &TaskChanges,
    known: &Known<'_>,
) -> Result<Option<Definition>, Vec<String>> {
    let TaskChanges { schedule, watch_url, watch_interval_minutes, .. } = changes;
    if schedule.is_none() && watch_url.is_none() && watch_interval_minutes.is_none() {
        return Ok(None);
    }
    let (mut definition, mut wrong) = (task.definition.clone(), Vec::new());
    if let Some(text) = schedule {
        match Schedule::parse(text, known.zone, known.now) {
            _ if definition.schedule.is_none() => {
                wrong.push("schedule: the task has no schedule; create a scheduled task instead".to_owned());
            }
            Ok(schedule) => {
                definition.schedule = Some(WrittenSchedule { text: text.trim().to_owned(), schedule });
            }
            Err(problem) => wrong.push(format!("schedule: {problem}")),
        }
    }
    if task.kind != TaskKind::Watch && (watch_url.is_some() || watch_interval_minutes.is_some()) {
        wrong.push("watch_url: the task watches no page; create a watch task instead".to_owned());
    }
    if let Some(url) = watch_url {
        wrong.extend(url_problem(url));
        definition.watch_url = Some(url.trim().to_owned());
    }
    if let Some(minutes) = watch_interval_minutes {
        wrong.extend(interval_problem(*minutes));
        definition.watch_interval_minutes = Some(*minutes);
    }
    if wrong.is_empty() { Ok(Some(definition)) } else { Err(wrong) }
}

impl Flow {
    /// Creates a task. One that an agent creates to run unattended needs a person's yes first.
    pub(crate) async fn create_task(&self, actor: Actor<'_>, new: NewTask) -> Result<Task, TaskError> {
        let now = self.parts.clock.now();
        let parent = match &new.parent_task_id {
            Some(prefix) => Some(self.find_task(actor, prefix).await),
            None => None,
        };
        let (parent, missing) = match parent {
            Some(Ok(parent)) if parent.status.is_final() => (
                None,
                Some(format!(
                    "parent_task_id: the task {prefix} is {}",
                    parent.status.name(),
                    prefix = short_id(&parent.row.id)
                )),
            ),
            Some(Ok(parent)) => (Some(parent), None),
            Some(Err(TaskError::NotFound(id))) => {
                (None, Some(format!("parent_task_id: task not found: {id}")))
            }
            Some(Err(TaskError::Invalid(wrong))) => {
                (None, Some(format!("parent_task_id: {}", wrong.join("; "))))
            }
            Some(Err(err)) => return Err(err),
            None => (None, None),
        };
        let scope = new.scope.clone().or_else(|| parent.as_ref().map(|parent| parent.row.scope.clone()));
        let mut new = NewTask { scope, ..new };
        let (scopes, agents) = (self.active_scopes(actor), self.agent_names());
        let zone = self.zone_name();
        let known = Known { scopes: &scopes, agents: &agents, own_agent: actor.agent(), zone: &zone, now };
        let missing =
            missing.into_iter().chain(self.pipeline_problem(actor, &mut new).await).collect::<Vec<_>>();
        let checked = match (check(&new, &known), missing.is_empty()) {
            (Ok(checked), true) => checked,
            (checked, _) => {
                let wrong = checked.err().into_iter().flatten().chain(missing).collect();
                return Err(TaskError::Invalid(wrong));
            }
        };
        let worker = checked.assignee.as_deref().filter(|name| *name != super::definition::USER);
        let authority = self.task_authority(actor, worker).await?;
        let row = TaskRow {
            id: self.new_task_id().await?,
            rev: 1,
            agent: authority.agent.clone(),
            parent: parent.map(|parent| parent.row.id),
            scope: checked.scope,
            kind: checked.kind.name().to_owned(),
            status: TaskStatus::Open.name().to_owned(),
            priority: priority_rank(new.priority.unwrap_or_default()),
            due: checked.due,
            assignee: checked.assignee,
            title: checked.title,
            definition: serde_json::to_string(&checked.definition)?,
            authority: serde_json::to_string(&authority)?,
            confirmed_by: None,
            created: now,
            updated: now,
            completed: None,
            next_at: None,
            errors: 0,
            last_run_at: None,
            last_status: None,
            last_result: None,
            running: false,
        };
        let mut task = Task::read(row)?;
        task.row.confirmed_by = self.confirmed_by(actor, "task_create", &task).await?;
        task.row.next_at =
            task.row.confirmed_by.as_ref().and_then(|_| task.first_run(self.parts.clock.now()));
        self.parts.database.add_task(&task.row).await?;
        self.after_change(&task).await;
        Ok(task)
    }

    /// Changes a task. A change of what an agent's unattended task does needs a person's yes again.
    pub(crate) async fn update_task(
        &self,
        actor: Actor<'_>,
        changes: TaskChanges,
    ) -> Result<Task, TaskError> {
        let before = self.find_task(actor, &changes.task_id).await?;
        let (scopes, agents, zone) = (self.active_scopes(actor), self.agent_names(), self.zone_name());
        let now = self.parts.clock.now();
        let known = Known { scopes: &scopes, agents: &agents, own_agent: actor.agent(), zone: &zone, now };
        let assignee = changes.assignee.as_deref().map(|name| check_assignee(name, &known)).transpose();
        let due = changes.due_date.as_deref().filter(|text| !text.is_empty());
        let timing = changed_timing(&before, &changes, &known);
        let wrong: Vec<String> = [
            changes.title.as_deref().and_then(title_problem),
            changes.description.as_deref().and_then(description_problem),
            due.and_then(date_problem),
            changes.tags.as_deref().and_then(tags_problem),
            assignee.as_ref().err().cloned(),
        ]
        .into_iter()
        .flatten()
        .chain(timing.as_ref().err().cloned().unwrap_or_default())
        .collect();
        if !wrong.is_empty() {
            return Err(TaskError::Invalid(wrong));
        }
        let assignee = assignee.ok().flatten();
        let mut task = before.clone();
        if let Ok(Some(definition)) = timing {
            task.definition = definition;
        }
        let changes_timing = task.definition != before.definition;
        let changes_page = task.definition.watch_url != before.definition.watch_url;
        if let Some(title) = changes.title {
            task.row.title = title.trim().to_owned();
        }
        if let Some(description) = changes.description {
            task.definition.description = Some(description).filter(|text| !text.trim().is_empty());
        }
        if let Some(tags) = changes.tags {
            task.definition.tags = tags;
        }
        if let Some(date) = changes.due_date {
            task.row.due = Some(date).filter(|date| !date.is_empty());
        }
        if let Some(priority) = changes.priority {
            (task.priority, task.row.priority) = (priority, priority_rank(priority));
        }
        if let Some(assignee) = assignee.filter(|assignee| before.row.assignee.as_ref() != Some(assignee)) {
            let worker = Some(assignee.as_str()).filter(|name| *name != super::definition::USER);
            let authority = self.task_authority(actor, worker).await?;
            task.row.agent.clone_from(&authority.agent);
            (task.authority, task.row.assignee) = (authority, Some(assignee));
        }
        if let Some(status) = changes.status {
            (task.status, task.row.status) = (status, status.name().to_owned());
            task.row.completed = status.is_final().then_some(now);
        }
        let reopened = before.status.is_final() && !task.status.is_final();
        let does_other_work = reopened
            || task.row.title != before.row.title
            || task.definition.description != before.definition.description
            || changes_timing
            || task.row.assignee != before.row.assignee;
        if does_other_work && let Actor::Agent(call) = actor {
            // The text comes from this conversation: its labels count, and the agent that wrote it limits the rights.
            let before = std::mem::take(&mut task.authority.labels);
            task.authority = self.task_authority(actor, Some(&task.row.agent)).await?;
            for label in before.iter().chain(&call.labels) {
                if !task.authority.labels.contains(label) {
                    task.authority.labels.push(*label);
                }
            }
            task.authority.by_agent = true;
        }
        if does_other_work && task.is_unattended() && !task.status.is_final() {
            task.row.confirmed_by = self.confirmed_by(actor, "task_update", &task).await?;
        }
        task.row.definition = serde_json::to_string(&task.definition)?;
        task.row.authority = serde_json::to_string(&task.authority)?;
        task.row.updated = now;
        let is_confirmed = task.row.confirmed_by.is_some();
        task.row.next_at = match (is_confirmed && !task.status.is_final(), task.row.next_at) {
            (false, _) => None,
            (true, _) if changes_timing && task.is_unattended() => task.next_after_change(now),
            (true, Some(next)) if task.row.assignee == before.row.assignee => Some(next),
            (true, _)
                if reopened
                    || task.row.assignee != before.row.assignee
                    || before.row.confirmed_by.is_none() =>
            {
                task.first_run(now)
            }
            (true, next) => next,
        };
        let changed = self.store_change(task).await?;
        if changes_page {
            // The text of the old page says nothing about the new one.
            self.parts.database.forget_watch(&changed.row.id).await?;
        }
        Ok(changed)
    }

    /// Allows the unattended runs of a task.
    ///
    /// `seen` is the content hash of what the person read. Other content is not allowed.
    pub(crate) async fn confirm_task(
        &self,
        actor: Actor<'_>,
        id: &str,
        seen: Option<&str>,
        by: &str,
    ) -> Result<Task, TaskError> {
        let mut task = self.find_task(actor, id).await?;
        if let Some(seen) = seen.filter(|seen| *seen != task.content_hash()) {
            let id = short_id(&task.row.id);
            return Err(TaskError::Denied(format!(
                "the task {id} is not what you read: its content is {} and not {}. Now {}. `gantry tasks confirm {id}` shows \
                 and allows it",
                task.content_hash(),
                seen.chars().take(16).collect::<String>(),
                texts::unattended_work(&task.info())
            )));
        }
        if !task.is_unattended() {
            return Err(TaskError::Invalid(vec![format!(
                "the task {} needs no confirmation: nothing of it runs by itself",
                short_id(&task.row.id)
            )]));
        }
        if task.row.confirmed_by.is_some() || task.status.is_final() {
            return Ok(task);
        }
        task.row.confirmed_by = Some(by.to_owned());
        task.row.next_at = task.first_run(self.parts.clock.now());
        self.store_change(task).await
    }

    /// Starts a run of a task now. It does not move the task's next time. A watched page is looked at.
    pub(crate) async fn run_task(&self, actor: Actor<'_>, id: &str) -> Result<Task, TaskError> {
        let mut task = self.find_task(actor, id).await?;
        if task.row.running {
            let message = format!("the task {} is already running", short_id(&task.row.id));
            return Err(TaskError::Invalid(vec![message]));
        }
        let id = short_id(&task.row.id);
        if task.status.is_final() {
            let message = format!("the task {id} is {}; reopen it first", task.status.name());
            return Err(TaskError::Invalid(vec![message]));
        }
        if task.is_unattended() && task.row.confirmed_by.is_none() {
            return Err(TaskError::Denied(format!(
                "the task {id} waits for a person's yes; `gantry tasks confirm {id}` shows what it does and allows it"
            )));
        }
        let now = self.parts.clock.now();
        if task.kind == TaskKind::Watch {
            task.row.next_at = Some(now);
            return self.store_change(task).await;
        }
        let run = super::worker::new_run(&task, now, None)?;
        self.parts.database.add_manual_task_run(&run, now).await?;
        task.row.running = true;
        self.tasks.wake.notify_one();
        Ok(task)
    }

    /// Returns the task with this id, a unique beginning of it, or this title, if the actor may see it.
    pub(crate) async fn find_task(&self, actor: Actor<'_>, written: &str) -> Result<Task, TaskError> {
        let visible = self.visible_scopes(actor);
        self.pick_task(written, |row| visible.as_ref().is_none_or(|scopes| scopes.contains(&row.scope))).await
    }

    /// As [`Flow::find_task`], among the tasks that `sees` allows.
    pub(crate) async fn pick_task(
        &self,
        written: &str,
        sees: impl Fn(&TaskRow) -> bool,
    ) -> Result<Task, TaskError> {
        let written = written.trim();
        let mut found = match written.is_empty() {
            true => Vec::new(),
            false => self.parts.database.find_tasks(&written.to_lowercase()).await?,
        };
        found.retain(&sees);
        if found.is_empty() && !written.is_empty() {
            found = self.parts.database.tasks_titled(written).await?;
            found.retain(&sees);
            // A title of an open task means that task, whatever was done before under this title.
            let open = found.iter().filter(|row| row.completed.is_none()).count();
            if open == 1 {
                found.truncate(1);
            }
        }
        if found.is_empty() {
            return Err(TaskError::NotFound(written.chars().take(80).collect()));
        }
        let row =
            pick("task", written, "gantry tasks", found, |row| Named { id: &row.id, name: Some(&row.title) })
                .map_err(|message| TaskError::Invalid(vec![message]))?;
        Ok(Task::read(row)?)
    }

    pub(crate) async fn list_tasks(
        &self,
        actor: Actor<'_>,
        params: &TasksListParams,
        limit: u32,
    ) -> Result<(Vec<Task>, u64), TaskError> {
        let visible = self.visible_scopes(actor);
        let scopes = match &params.scope {
            Some(scope) if !self.active_scopes(actor).contains(scope) => {
                return Err(TaskError::Invalid(vec![format!(
                    "scope: {scope:?} is not active; active scopes are {}",
                    self.active_scopes(actor).join(", ")
                )]));
            }
            Some(scope) => Some(vec![scope.clone()]),
            None => visible,
        };
        let statuses = match params.status {
            Some(status) => vec![status],
            None => vec![TaskStatus::Open, TaskStatus::InProgress, TaskStatus::Failed],
        };
        let assignee = params.assignee.as_deref().map(|name| match name {
            "agent" | "nodyn" => actor.agent().to_owned(),
            name => name.to_owned(),
        });
        let filter =
            TaskFilter { scopes, statuses, due: params.due.map(|due| self.dates(due)), assignee, limit };
        let (rows, total) = self.parts.database.list_tasks(&filter).await?;
        let tasks = rows.into_iter().map(Task::read).collect::<Result<_, _>>()?;
        Ok((tasks, total))
    }

    /// Returns the first and the last date of a range, in the user's zone.
    fn dates(&self, due: TaskDue) -> (String, String) {
        let now = Timestamp::from_millisecond(self.parts.clock.now()).unwrap_or_default();
        let today = now.to_zoned(self.parts.zone.clone()).date();
        let (first, last) = match due {
            TaskDue::Today => (today, today),
            TaskDue::Week => (today, today.saturating_add(Span::new().days(6))),
            TaskDue::Overdue => (jiff::civil::Date::ZERO, today.saturating_sub(Span::new().days(1))),
        };
        (first.to_string(), last.to_string())
    }

    /// The scopes in which the actor may create tasks.
    fn active_scopes(&self, actor: Actor<'_>) -> Vec<String> {
        let agents = match actor {
            Actor::Agent(call) => vec![call.agent.clone()],
            Actor::Person { .. } => self.agent_names(),
        };
        let fixed = ["global".to_owned(), super::definition::DEFAULT_SCOPE.to_owned()];
        let of_agents = agents.into_iter().map(|agent| format!("agent:{agent}"));
        fixed.into_iter().chain(of_agents).chain(self.tasks.config.scopes.iter().cloned()).collect()
    }

    /// The scopes that the actor sees; `None` means all.
    fn visible_scopes(&self, actor: Actor<'_>) -> Option<Vec<String>> {
        matches!(actor, Actor::Agent(_)).then(|| self.active_scopes(actor))
    }

    pub(crate) fn agent_names(&self) -> Vec<String> {
        self.parts.sessions.agents().keys().cloned().collect()
    }

    pub(crate) fn zone_name(&self) -> String {
        self.parts.zone.iana_name().unwrap_or("UTC").to_owned()
    }

    async fn new_task_id(&self) -> Result<String, TaskError> {
        for _ in 0..10 {
            let id = uuid::Uuid::new_v4().simple().to_string();
            if self.parts.database.find_tasks(short_id(&id)).await?.is_empty() {
                return Ok(id);
            }
        }
        Err(TaskError::Failed("cannot find a free id for the task".to_owned()))
    }

    /// Finds what is wrong with the pipeline of a new task.
    async fn pipeline_problem(&self, actor: Actor<'_>, new: &mut NewTask) -> Option<String> {
        let id = new.pipeline_id.clone().filter(|id| !id.trim().is_empty())?;
        let is_operator = matches!(actor, Actor::Person { name, .. } if name == LOCAL_OPERATOR);
        let may_use = |agent: &str| is_operator || agent == actor.agent();
        match self.find_pipeline(&id, may_use).await {
            Ok(row) => {
                // The whole id is stored, so that it always means this pipeline.
                new.pipeline_id = Some(row.id);
                None
            }
            Err(err) => Some(format!("pipeline_id: {err}")),
        }
    }

    /// Returns the rights of a task's runs. A task for another agent gets what both agents may do.
    async fn task_authority(&self, actor: Actor<'_>, worker: Option<&str>) -> Result<Authority, TaskError> {
        let sessions = &self.parts.sessions;
        let call = match actor {
            Actor::Person { name, agent } => {
                return Ok(sessions.own_authority(worker.unwrap_or(agent), name)?);
            }
            Actor::Agent(call) => call,
        };
        let creator = Authority { by_agent: true, ..sessions.authority(call).await? };
        let Some(worker) = worker.filter(|worker| *worker != call.agent) else { return Ok(creator) };
        let own = sessions.own_authority(worker, &creator.created_by)?;
        let mut policy_agents = own.policy_agents;
        policy_agents
            .extend(std::iter::once(creator.agent.clone()).chain(creator.policy_agents.iter().cloned()));
        Ok(Authority { agent: own.agent, workspace: own.workspace, policy_agents, ..creator })
    }

    /// Returns who allowed the unattended runs of a task. Asks the agent's person; without one, nobody did yet.
    async fn confirmed_by(
        &self,
        actor: Actor<'_>,
        tool: &str,
        task: &Task,
    ) -> Result<Option<String>, TaskError> {
        match actor {
            Actor::Person { name, .. } => Ok(Some(name.to_owned())),
            Actor::Agent(_) if !is_unattended(task.kind, task.row.assignee.as_deref()) => Ok(None),
            Actor::Agent(call) => match confirmation::ask(&self.parts.masker, call, tool, task).await {
                Confirmation::Given => Ok(Some("owner".to_owned())),
                Confirmation::Later => Ok(None),
                Confirmation::Denied(reason) => {
                    Err(TaskError::Denied(format!("the task was not stored: {reason}")))
                }
            },
        }
    }

    async fn store_change(&self, mut task: Task) -> Result<Task, TaskError> {
        let Some(ended) = self.parts.database.update_task(&task.row).await? else {
            let message =
                format!("the task {} was changed at the same time; try again", short_id(&task.row.id));
            return Err(TaskError::Invalid(vec![message]));
        };
        task.row.rev += 1;
        for id in ended {
            self.stop_runs(&id).await?;
        }
        self.after_change(&task).await;
        Ok(task)
    }

    /// Ends the queued and running runs of a task.
    async fn stop_runs(&self, task: &str) -> Result<(), TaskError> {
        let live = self.parts.database.cancel_task_runs(task, self.parts.clock.now()).await?;
        let stops = self.tasks.stops();
        live.iter().filter_map(|run| stops.get(run)).for_each(tokio_util::sync::CancellationToken::cancel);
        Ok(())
    }

    /// Wakes the worker, or asks the owner to allow the task.
    async fn after_change(&self, task: &Task) {
        let info = task.info();
        if info.unattended && !info.confirmed && !task.status.is_final() {
            let text = format!(
                "{}.{}\nAllow it with `gantry tasks confirm {id} --seen {}`, or cancel it with `gantry tasks cancel {id}`.",
                texts::unattended_work(&info),
                info.description.as_ref().map_or(String::new(), |text| format!("\n\n{text}\n")),
                info.content_hash,
                id = short_id(&info.id)
            );
            let notice = Notice {
                key: format!("task-confirm:{}:{}", info.id, task.row.rev),
                agent: info.agent.clone(),
                title: format!("A task waits for your yes: {}", info.title),
                text,
                labels: task.authority.labels.clone(),
                from: format!("task:{}", info.id),
            };
            notices::send(self, notice).await;
        }
        self.tasks.wake.notify_one();
    }
}
