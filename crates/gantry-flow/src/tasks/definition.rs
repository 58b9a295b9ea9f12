//! What a task is, and the check of a caller's fields. Everything wrong is reported at once.

use gantry_agent::Authority;
use gantry_net::Url;
use gantry_protocol::{NewTask, TaskInfo, TaskKind, TaskPriority, TaskStatus};
use gantry_store::TaskRow;
use gantry_tool::nearest;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::config::is_scope;
use crate::access::{content_hash, name_problem, text_problem};
use crate::time::Schedule;

pub(crate) const DEFAULT_SCOPE: &str = "user:owner";
const MAX_TITLE: usize = 200;
const MAX_DESCRIPTION: usize = 20_000;
const MAX_TAGS: usize = 20;
const MAX_TAG: usize = 64;
const MAX_URL: usize = 2_000;
pub(crate) const DEFAULT_INTERVAL_MINUTES: u32 = 60;
const MIN_INTERVAL_MINUTES: u32 = 5;
const MAX_INTERVAL_MINUTES: u32 = 60 * 24 * 30;
/// The name of the person whom the gateway works for.
pub(crate) const USER: &str = "user";

/// The part of a task that is stored as JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Definition {
    pub(crate) description: Option<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) schedule: Option<WrittenSchedule>,
    pub(crate) watch_url: Option<String>,
    pub(crate) watch_interval_minutes: Option<u32>,
    pub(crate) pipeline_id: Option<String>,
    pub(crate) params: Option<Map<String, Value>>,
}

/// A schedule, and the text that it was read from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WrittenSchedule {
    pub(crate) text: String,
    pub(crate) schedule: Schedule,
}

/// A stored task in typed form.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Task {
    pub(crate) row: TaskRow,
    pub(crate) kind: TaskKind,
    pub(crate) status: TaskStatus,
    pub(crate) priority: TaskPriority,
    pub(crate) definition: Definition,
    pub(crate) authority: Authority,
}

impl Task {
    pub(crate) fn read(row: TaskRow) -> Result<Task, serde_json::Error> {
        let definition = serde_json::from_str(&row.definition)?;
        let authority = serde_json::from_str(&row.authority)?;
        let kind = TaskKind::ALL.into_iter().find(|kind| kind.name() == row.kind);
        let status = TaskStatus::ALL.into_iter().find(|status| status.name() == row.status);
        let priority =
            usize::try_from(row.priority).ok().and_then(|rank| TaskPriority::ALL.get(rank).copied());
        Ok(Task {
            kind: kind.unwrap_or(TaskKind::Manual),
            status: status.unwrap_or(TaskStatus::Failed),
            priority: priority.unwrap_or_default(),
            definition,
            authority,
            row,
        })
    }

    /// Whether the task runs without a person.
    pub(crate) fn is_unattended(&self) -> bool {
        is_unattended(self.kind, self.row.assignee.as_deref())
    }

    /// Whether the task runs once.
    pub(crate) fn is_one_shot(&self) -> bool {
        self.kind != TaskKind::Watch && self.definition.schedule.is_none()
    }

    /// Returns the first run of a confirmed task: at once if it runs once, watches, or an agent is its assignee.
    pub(crate) fn first_run(&self, now: i64) -> Option<i64> {
        if !self.is_unattended() || self.status.is_final() {
            return None;
        }
        let is_assigned = self.row.assignee.as_deref().is_some_and(|assignee| assignee != USER);
        match &self.definition.schedule {
            Some(written) if !is_assigned => written.schedule.next_after(now),
            _ => Some(now),
        }
    }

    /// Returns the time of the run after one at `now`.
    pub(crate) fn next_run(&self, now: i64) -> Option<i64> {
        match (self.kind, &self.definition.schedule) {
            (TaskKind::Watch, _) => Some(now.saturating_add(self.interval_ms())),
            (_, Some(written)) => written.schedule.next_after(now),
            (_, None) => None,
        }
    }

    /// Returns the next run after the schedule or the page was changed.
    pub(crate) fn next_after_change(&self, now: i64) -> Option<i64> {
        match &self.definition.schedule {
            Some(written) => written.schedule.next_after(now),
            None => self.first_run(now),
        }
    }

    /// Identifies what the task does, so that a person allows what they read.
    pub(crate) fn content_hash(&self) -> String {
        let content = (&self.row.title, &self.definition, &self.row.assignee, &self.authority.agent);
        content_hash(&content)
    }

    pub(crate) fn interval_ms(&self) -> i64 {
        let minutes = self.definition.watch_interval_minutes.unwrap_or(DEFAULT_INTERVAL_MINUTES);
        i64::from(minutes) * crate::time::MINUTE_MS
    }

    pub(crate) fn info(&self) -> TaskInfo {
        let (row, definition) = (self.row.clone(), self.definition.clone());
        let is_watch = self.kind == TaskKind::Watch;
        TaskInfo {
            unattended: self.is_unattended(),
            confirmed: row.confirmed_by.is_some() || !self.is_unattended(),
            created_by: self.authority.created_by.clone(),
            content_hash: self.content_hash(),
            id: row.id,
            title: row.title,
            description: definition.description,
            kind: self.kind,
            status: self.status,
            priority: self.priority,
            due_date: row.due,
            scope: row.scope,
            tags: definition.tags,
            parent_task_id: row.parent,
            assignee: row.assignee,
            agent: row.agent,
            schedule: definition.schedule.map(|written| written.text),
            watch_url: definition.watch_url,
            watch_interval_minutes: definition.watch_interval_minutes.filter(|_| is_watch),
            pipeline_id: definition.pipeline_id,
            next_run_at_ms: row.next_at,
            running: row.running,
            last_run_at_ms: row.last_run_at,
            last_status: row.last_status,
            last_result: row.last_result,
            created_at_ms: row.created,
            updated_at_ms: row.updated,
            completed_at_ms: row.completed,
        }
    }
}

pub(crate) fn is_unattended(kind: TaskKind, assignee: Option<&str>) -> bool {
    kind != TaskKind::Manual || assignee.is_some_and(|assignee| assignee != USER)
}

/// What a new task is checked against.
pub(crate) struct Known<'a> {
    /// Scopes that the caller may use.
    pub(crate) scopes: &'a [String],
    pub(crate) agents: &'a [String],
    /// The agent that `agent` and `nodyn` mean.
    pub(crate) own_agent: &'a str,
    /// The user's time zone.
    pub(crate) zone: &'a str,
    pub(crate) now: i64,
}

/// The checked fields of a new task.
#[derive(Debug, PartialEq)]
pub(crate) struct Checked {
    pub(crate) kind: TaskKind,
    pub(crate) title: String,
    pub(crate) scope: String,
    pub(crate) due: Option<String>,
    pub(crate) assignee: Option<String>,
    pub(crate) definition: Definition,
}

/// Checks the fields of a new task. The error lists everything wrong.
pub(crate) fn check(new: &NewTask, known: &Known<'_>) -> Result<Checked, Vec<String>> {
    let mut wrong = Vec::new();
    let kind = match (&new.pipeline_id, &new.schedule, &new.watch_url) {
        (Some(_), _, _) => TaskKind::Pipeline,
        (None, Some(_), _) => TaskKind::Scheduled,
        (None, None, Some(_)) => TaskKind::Watch,
        (None, None, None) => TaskKind::Manual,
    };
    wrong.extend(title_problem(&new.title));
    wrong.extend(new.description.as_deref().and_then(description_problem));
    wrong.extend(new.due_date.as_deref().and_then(date_problem));
    let scope = new.scope.clone().unwrap_or_else(|| DEFAULT_SCOPE.to_owned());
    wrong.extend(scope_problem(&scope, known.scopes));
    wrong.extend(tags_problem(new.tags.as_deref().unwrap_or_default()));
    let assignee = new.assignee.as_deref().map(|assignee| check_assignee(assignee, known));
    let assignee = assignee.transpose().unwrap_or_else(|problem| {
        wrong.push(problem);
        None
    });
    let schedule = new.schedule.as_ref().map(|text| {
        let schedule = Schedule::parse(text, known.zone, known.now)?;
        Ok::<_, String>(WrittenSchedule { text: text.trim().to_owned(), schedule })
    });
    let schedule = schedule.transpose().unwrap_or_else(|problem| {
        wrong.push(format!("schedule: {problem}"));
        None
    });
    wrong.extend(new.watch_url.as_deref().and_then(url_problem));
    wrong.extend(new.watch_interval_minutes.and_then(interval_problem));
    if new.watch_interval_minutes.is_some() && new.watch_url.is_none() {
        wrong.push("watch_interval_minutes: needs watch_url".to_owned());
    }
    if new.params.is_some() && new.pipeline_id.is_none() {
        wrong.push("params: needs pipeline_id".to_owned());
    }
    if new.pipeline_id.as_ref().is_some_and(|id| id.trim().is_empty()) {
        wrong.push("pipeline_id: must not be empty".to_owned());
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let watch_url = new.watch_url.clone().filter(|_| kind == TaskKind::Watch);
    let interval = new.watch_interval_minutes.unwrap_or(DEFAULT_INTERVAL_MINUTES);
    Ok(Checked {
        kind,
        title: new.title.trim().to_owned(),
        scope,
        due: new.due_date.clone(),
        assignee,
        definition: Definition {
            description: new.description.clone().filter(|text| !text.trim().is_empty()),
            tags: new.tags.clone().unwrap_or_default(),
            schedule,
            watch_interval_minutes: watch_url.as_ref().map(|_| interval),
            watch_url,
            pipeline_id: new.pipeline_id.clone(),
            params: new.params.clone(),
        },
    })
}

pub(crate) fn title_problem(title: &str) -> Option<String> {
    let chars = title.trim().chars().count();
    if chars == 0 || chars > MAX_TITLE {
        return Some(format!("title: must have 1 to {MAX_TITLE} characters"));
    }
    if title.contains('\n') {
        return Some("title: must be one line; put the rest into description".to_owned());
    }
    name_problem("title", title).or_else(|| holds_parameters("title", title))
}

pub(crate) fn description_problem(text: &str) -> Option<String> {
    if text.chars().count() > MAX_DESCRIPTION {
        return Some(format!("description: may have at most {MAX_DESCRIPTION} characters"));
    }
    text_problem("description", text).or_else(|| holds_parameters("description", text))
}

/// Finds further parameters that a model wrote into a text, as escaped JSON.
fn holds_parameters(field: &str, text: &str) -> Option<String> {
    let names =
        ["schedule", "watch_url", "due_date", "priority", "pipeline_id", "assignee", "parent_task_id"];
    let found = names.into_iter().find(|name| {
        text.contains(&format!("\", \"{name}\": \"")) || text.contains(&format!("\",\"{name}\":\""))
    })?;
    Some(format!("{field}: contains the parameter {found} as text; pass it as a parameter of its own"))
}

pub(crate) fn date_problem(text: &str) -> Option<String> {
    let is_plain = text.len() == 10 && text.chars().all(|c| c.is_ascii_digit() || c == '-');
    let is_date = is_plain && text.parse::<Date>().is_ok();
    (!is_date).then(|| format!("due_date: {text:?} is not a date; write YYYY-MM-DD"))
}

fn scope_problem(scope: &str, active: &[String]) -> Option<String> {
    if active.iter().any(|known| known == scope) {
        return None;
    }
    let what = if scope == "global" || is_scope(scope) { "is not active" } else { "is not a scope" };
    Some(format!("scope: {scope:?} {what}; active scopes are {}", active.join(", ")))
}

pub(crate) fn tags_problem(tags: &[String]) -> Option<String> {
    let is_bad = |tag: &String| tag.trim().is_empty() || tag.chars().count() > MAX_TAG || tag.contains('\n');
    (tags.len() > MAX_TAGS || tags.iter().any(is_bad))
        .then(|| format!("tags: at most {MAX_TAGS}, each with 1 to {MAX_TAG} characters"))
        .or_else(|| tags.iter().find_map(|tag| name_problem("tags", tag)))
}

pub(crate) fn interval_problem(minutes: u32) -> Option<String> {
    (!(MIN_INTERVAL_MINUTES..=MAX_INTERVAL_MINUTES).contains(&minutes)).then(|| {
        format!("watch_interval_minutes: must be between {MIN_INTERVAL_MINUTES} and {MAX_INTERVAL_MINUTES}")
    })
}

pub(crate) fn url_problem(text: &str) -> Option<String> {
    let parsed = Url::parse(text.trim()).ok().filter(|url| ["http", "https"].contains(&url.scheme()));
    (parsed.is_none() || text.len() > MAX_URL).then(|| {
        format!("watch_url: {text:?} is not an http or https address of at most {MAX_URL} characters")
    })
}

/// Returns the assignee as it is stored: `user`, or the name of an agent.
pub(crate) fn check_assignee(assignee: &str, known: &Known<'_>) -> Result<String, String> {
    match assignee.trim() {
        USER => Ok(USER.to_owned()),
        "agent" | "nodyn" => Ok(known.own_agent.to_owned()),
        name if known.agents.iter().any(|agent| agent == name) => Ok(name.to_owned()),
        name => {
            let names = known.agents.iter().map(String::as_str).chain([USER, "agent"]);
            let near = nearest(name, names)
                .first()
                .map_or(String::new(), |near| format!("; did you mean {near:?}?"));
            Err(format!("assignee: unknown {name:?}; use user, agent, or the name of an agent{near}"))
        }
    }
}

#[cfg(test)]
mod tests;
