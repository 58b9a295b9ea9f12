//! Tasks: things to do, for people and for agents in the background. Parameters and results of `tasks.*`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What starts the work of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskKind {
    /// Somebody does it; or an agent, once.
    Manual,
    /// An agent does it at the times of a schedule.
    Scheduled,
    /// An agent reads what changed on a page.
    Watch,
    /// A stored pipeline runs.
    Pipeline,
}

impl TaskKind {
    pub const ALL: [TaskKind; 4] =
        [TaskKind::Manual, TaskKind::Scheduled, TaskKind::Watch, TaskKind::Pipeline];

    pub fn name(self) -> &'static str {
        match self {
            TaskKind::Manual => "manual",
            TaskKind::Scheduled => "scheduled",
            TaskKind::Watch => "watch",
            TaskKind::Pipeline => "pipeline",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    Open,
    InProgress,
    Completed,
    Failed,
    Cancelled,
}

impl TaskStatus {
    pub const ALL: [TaskStatus; 5] = [
        TaskStatus::Open,
        TaskStatus::InProgress,
        TaskStatus::Completed,
        TaskStatus::Failed,
        TaskStatus::Cancelled,
    ];

    pub fn name(self) -> &'static str {
        match self {
            TaskStatus::Open => "open",
            TaskStatus::InProgress => "in_progress",
            TaskStatus::Completed => "completed",
            TaskStatus::Failed => "failed",
            TaskStatus::Cancelled => "cancelled",
        }
    }

    /// Whether nothing more happens to the task by itself.
    pub fn is_final(self) -> bool {
        !matches!(self, TaskStatus::Open | TaskStatus::InProgress)
    }
}

/// The most urgent first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskPriority {
    Urgent,
    High,
    #[default]
    Medium,
    Low,
}

impl TaskPriority {
    pub const ALL: [TaskPriority; 4] =
        [TaskPriority::Urgent, TaskPriority::High, TaskPriority::Medium, TaskPriority::Low];

    pub fn name(self) -> &'static str {
        match self {
            TaskPriority::Urgent => "urgent",
            TaskPriority::High => "high",
            TaskPriority::Medium => "medium",
            TaskPriority::Low => "low",
        }
    }
}

/// A range of due dates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskDue {
    Today,
    /// Today and the six days after it.
    Week,
    /// Before today.
    Overdue,
}

/// A task, with the state of its work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskInfo {
    pub id: String,
    pub title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub kind: TaskKind,
    pub status: TaskStatus,
    pub priority: TaskPriority,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_date: Option<String>,
    pub scope: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_task_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// The agent whose rights its runs have.
    pub agent: String,
    /// The schedule as it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_interval_minutes: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_id: Option<String>,
    /// It runs without a person.
    pub unattended: bool,
    /// A person allowed its unattended runs, or it has none.
    pub confirmed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run_at_ms: Option<i64>,
    /// A run of it is queued, running or waits for an answer.
    pub running: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_at_ms: Option<i64>,
    /// `ok`, `error`, `cancelled`, or `unchanged` after a check of a watched page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_result: Option<String>,
    pub created_by: String,
    /// Identifies what the task does. `tasks.confirm` takes it as `seen`.
    #[serde(default)]
    pub content_hash: String,
    pub created_at_ms: i64,
    pub updated_at_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at_ms: Option<i64>,
}

/// `params` of `tasks.list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TasksListParams {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Without it: tasks that are neither completed nor cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<TaskStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<TaskDue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// 1 to 1,000; 100 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// `result` of `tasks.list`, by priority and then by due date.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskList {
    pub tasks: Vec<TaskInfo>,
    /// The number of tasks that match.
    pub total: u64,
}

/// The fields of a new task. `tasks.add` and `task_create` take them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTask {
    /// What is to be done, in a few words. At most 200 characters.
    pub title: String,
    /// Everything that whoever does it has to know. At most 20,000 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Default medium.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<TaskPriority>,
    /// YYYY-MM-DD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_date: Option<String>,
    /// global, user:owner (default), agent:NAME, or a configured scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// At most 20 words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// The task that this one is a part of: its id, or a unique beginning of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_task_id: Option<String>,
    /// Runs it at these times: a cron expression with five fields, "every 5 minutes", "30m", "1h" or "1d".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Watches this page and runs when its readable text changes. The run sees the changes and has read-only tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_url: Option<String>,
    /// Minutes between two looks at the page: 60 by default, at least 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_interval_minutes: Option<u32>,
    /// Runs this stored pipeline: at once, or at the times of schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_id: Option<String>,
    /// Values of the pipeline's parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<serde_json::Map<String, Value>>,
    /// user, agent (yourself), or the name of an agent. An agent starts at once, in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
}

/// The changes of a task. `tasks.edit` and `task_update` take them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskChanges {
    /// The task's id, a unique beginning of it, or its title.
    pub task_id: String,
    /// completed also completes all subtasks; cancelled also cancels them and stops a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<TaskStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<TaskPriority>,
    /// YYYY-MM-DD; an empty text removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_date: Option<String>,
    /// The new title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The new description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Replaces all tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// user, agent (yourself), or the name of an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// The new schedule of a task that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// The new page of a task that watches one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_url: Option<String>,
    /// Minutes between two looks at the page: at least 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_interval_minutes: Option<u32>,
}

/// `params` of `tasks.add`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskAddParams {
    /// The agent that does it in the background: `main` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    pub task: NewTask,
}

/// `params` of `tasks.confirm`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskConfirm {
    /// The task's id, a unique beginning of it, or its title.
    pub id: String,
    /// The `contentHash` of what the person read. A task with other content is not allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
}

/// `params` of `tasks.show`, `tasks.run`, `tasks.cancel` and `tasks.history`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskParams {
    /// The task's id, a unique beginning of it, or its title.
    pub id: String,
}

/// `result` of the methods that change a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskChanged {
    pub task: TaskInfo,
    /// What happened, for people.
    pub message: String,
}

/// A run of a task in the background.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskRunInfo {
    pub id: String,
    pub task_id: String,
    /// `queued`, `running`, `parked` (waits for an answer), `ok`, `error`, `cancelled`, and without a run `skipped` or `missed`.
    pub state: String,
    pub session_key: String,
    pub queued_at_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub cost_usd: f64,
}

/// `result` of `tasks.history`, the newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskHistory {
    pub runs: Vec<TaskRunInfo>,
}
