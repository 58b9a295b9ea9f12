//! Describes tasks in words.

use gantry_protocol::{TaskDue, TaskInfo, TaskKind};
use jiff::tz::TimeZone;

use crate::time::{local_text, utc_text};

/// How many characters of an id are shown.
const SHORT_ID: usize = 8;

pub(crate) fn short_id(id: &str) -> &str {
    id.get(..SHORT_ID).unwrap_or(id)
}

/// Returns one line about a task: `[HIGH] 3f2a91c0 Title @agent (scope) — due 2026-11-20 [open]`.
pub(crate) fn line(task: &TaskInfo) -> String {
    let mut text = format!("[{}] {} {}", task.priority.name().to_uppercase(), short_id(&task.id), task.title);
    if let Some(assignee) = &task.assignee {
        text.push_str(&format!(" @{assignee}"));
    }
    text.push_str(&format!(" ({})", task.scope));
    if let Some(due) = &task.due_date {
        text.push_str(&format!(" — due {due}"));
    }
    let state = if task.running { "running" } else { task.status.name() };
    text.push_str(&format!(" [{state}]"));
    if task.unattended && !task.confirmed {
        text.push_str(" [waits for the owner's yes]");
    }
    text
}

/// Describes a new task: its kind, the line, and when it runs.
pub(crate) fn created(task: &TaskInfo, zone: &TimeZone) -> String {
    let what = match task.kind {
        TaskKind::Manual => "Task created",
        TaskKind::Scheduled => "Scheduled task created",
        TaskKind::Watch => "Watch task created",
        TaskKind::Pipeline => "Pipeline task created",
    };
    let mut text = format!("{what}: {}", line(task));
    if let (Some(url), Some(every)) = (&task.watch_url, task.watch_interval_minutes) {
        text.push_str(&format!("\nWatches {url} every {}.", minutes(every)));
    }
    if let Some(schedule) = &task.schedule {
        text.push_str(&format!("\nSchedule: {schedule}."));
    }
    if let Some(at) = task.next_run_at_ms {
        text.push_str(&format!("\nNext run: {} ({}).", local_text(at, zone), utc_text(at)));
    }
    if task.unattended && !task.confirmed {
        text.push_str(&format!(
            "\nIt runs after the owner allows it with `gantry tasks confirm {}`.",
            short_id(&task.id)
        ));
    }
    text
}

fn minutes(count: u32) -> String {
    if count == 1 { "minute".to_owned() } else { format!("{count} minutes") }
}

/// Describes a list. The last line says how many are missing.
pub(crate) fn list(tasks: &[TaskInfo], total: u64, due: Option<TaskDue>) -> String {
    if tasks.is_empty() {
        return match due {
            Some(TaskDue::Overdue) => "No overdue tasks.",
            Some(TaskDue::Today) => "No tasks due today.",
            Some(TaskDue::Week) => "No tasks due within a week.",
            None => "No tasks.",
        }
        .to_owned();
    }
    let mut lines: Vec<String> = tasks.iter().map(line).collect();
    let more = total.saturating_sub(tasks.len() as u64);
    if more > 0 {
        lines.push(format!("... and {more} more"));
    }
    lines.join("\n")
}

/// Describes when and as what a task runs, for the person who allows it.
pub(crate) fn unattended_work(task: &TaskInfo) -> String {
    let what = match (task.kind, &task.watch_url) {
        (TaskKind::Watch, Some(url)) => {
            let every = minutes(task.watch_interval_minutes.unwrap_or_default());
            format!("look at {url} every {every}, and start a run when the page changes")
        }
        _ => format!("run {}", unattended_time(task)),
    };
    format!("the agent {} wants to {what}, while nobody is present: \"{}\"", task.agent, task.title)
}

/// Describes when a task runs, after the words "run unattended".
pub(crate) fn unattended_time(task: &TaskInfo) -> String {
    let pipeline = task.pipeline_id.as_deref().unwrap_or("?");
    match (task.kind, &task.schedule, &task.watch_url) {
        (TaskKind::Watch, _, Some(url)) => {
            let every = minutes(task.watch_interval_minutes.unwrap_or_default());
            format!("when the page {url} changes, which is looked at every {every}")
        }
        (TaskKind::Pipeline, Some(schedule), _) => {
            format!("the pipeline {pipeline} by the schedule \"{schedule}\" until it is cancelled")
        }
        (TaskKind::Pipeline, None, _) => format!("the pipeline {pipeline} once"),
        (_, Some(schedule), _) => format!("by the schedule \"{schedule}\" until it is cancelled"),
        _ => "once, in the background".to_owned(),
    }
}
