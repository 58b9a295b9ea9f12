//! Scheduled jobs and their runs. Parameters and results of `cron.*`, and parts of the tool `gsv__Cron`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A date as text, or as milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CronDate {
    Number(i64),
    Text(String),
}

/// When a job is due. `kind` decides which fields count.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CronScheduleInput {
    /// "at" (once), "every" (interval) or "cron" (expression).
    pub kind: String,
    /// For "at": "2026-03-05 09:00", "2026-03-05T09:00:00+01:00", "in 2 hours", "today at 17:30", "tomorrow at 9am". Without a
    /// zone it is in the user's time zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<CronDate>,
    /// For "at": a relative time, such as "in 30 minutes".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#in: Option<String>,
    /// For "at": milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<i64>,
    /// For "every": the interval in minutes, at least 1. Give one of the every fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_minutes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_hours: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_days: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<i64>,
    /// For "every": the first run, as for "at". Intervals are counted from it; from now when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<CronDate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor_ms: Option<i64>,
    /// For "cron": five fields (minute, hour, day of month, month, weekday), such as "0 9 * * 1-5".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expr: Option<String>,
    /// For "cron": an IANA time zone, such as "Europe/Berlin"; the user's when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tz: Option<String>,
}

/// What a job does. `mode` decides which fields count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CronSpecInput {
    /// "systemEvent": put `text` into the agent's main session. "task": run `message` in a session of its own.
    pub mode: String,
    /// For "systemEvent": the message to the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// For "task": the task. The session knows nothing but this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// For "task": send the answer to the user (default true).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliver: Option<bool>,
    /// For "task": where the answer goes: "session", or the name of a configured webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// For "task": the receiver in that channel, such as a session's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// For "task": the model; the agent's own when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// For "task": off, on, low, medium, high, or a number of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// For "task": the time limit of a run, 1 to 86,400 seconds (default 1,800).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// For "task": a failed delivery does not make the run an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_effort_deliver: Option<bool>,
}

/// A job to add, or the fields of a job to change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CronJobInput {
    /// A name for people. Required to add a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it runs. Required to add a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<CronScheduleInput>,
    /// What it does. Required to add a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<CronSpecInput>,
    /// The agent that runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether it is active (default true).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Delete the job after a successful run, for "at".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_after_run: Option<bool>,
    /// What happens to times at which the gateway was not running: "last" runs the last one once if it is not too late (default),
    /// "none" runs nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<String>,
    /// What happens when the previous run has not ended: "skip" (default) or "queue".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<String>,
    /// Starts each run later by a fixed part of this, 0 to 3,600 seconds (default 0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_seconds: Option<u32>,
    /// "summary" gives each run the last run's answer; "none" is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carry: Option<String>,
}

/// An instant of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronInstant {
    pub at_ms: i64,
    /// In the job's time zone.
    pub local: String,
    pub utc: String,
}

/// The state of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronJobState {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run_at_ms: Option<i64>,
    /// The start of the run in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_at_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_at_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_duration_ms: Option<i64>,
    /// Errors in a row.
    pub consecutive_errors: i64,
    /// Runs in a row that were skipped because a run takes longer than the interval.
    pub skipped_in_a_row: i64,
    /// Why the job does not run until somebody resumes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<CronPause>,
}

/// Why a job was paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronPause {
    pub reason: String,
    pub at: i64,
    /// The errors in a row that led to it.
    pub count: i64,
}

/// A scheduled job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronJob {
    pub id: String,
    pub agent_id: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub enabled: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delete_after_run: bool,
    pub created_at_ms: i64,
    pub updated_at_ms: i64,
    /// `{kind:"at", atMs}`, `{kind:"every", everyMs, anchorMs}` or `{kind:"cron", expr, tz}`.
    pub schedule: Value,
    /// `{mode:"systemEvent", text}` or `{mode:"task", message, deliver, …}`.
    pub spec: Value,
    pub catch_up: String,
    pub overlap: String,
    pub jitter_seconds: u32,
    pub carry: String,
    pub state: CronJobState,
    /// The next three runs.
    pub next_runs: Vec<CronInstant>,
    pub schedule_human: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run_human: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_human: Option<String>,
    /// The person who allowed it. A job that an agent added does not run before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_by: Option<String>,
    pub created_by: String,
    /// Identifies what the job does. `cron.confirm` takes it as `seen`.
    #[serde(default)]
    pub content_hash: String,
    /// What the reader should know about this answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One occurrence of a job, with its run if it had one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronRun {
    pub job_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// `due`, `catchup` or `manual`.
    pub kind: String,
    pub scheduled_at_ms: i64,
    /// When the scheduler recorded it.
    pub admitted_at_ms: i64,
    /// The last instant that the row covers, if it covers several missed ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at_ms: Option<i64>,
    /// `queued`, `running`, `parked`, `ok`, `error`, `skipped`, `missed`, `interrupted` or `cancelled`.
    pub status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// `none`, `queued`, `sent`, `failed` or `unknown`.
    pub delivery: String,
}

/// `params` of `cron.list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CronListParams {
    /// Only the jobs of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// True when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_disabled: Option<bool>,
    /// 1 to 500; 200 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u32>,
}

/// `result` of `cron.list`. The nearest next run comes first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronJobList {
    pub jobs: Vec<CronJob>,
    /// The number of jobs that match.
    pub count: u64,
    pub timezone: String,
    pub current_time: String,
}

/// `params` of `cron.status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CronStatusParams {
    /// Only the jobs of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

/// `result` of `cron.status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronStatus {
    /// Whether jobs run at all.
    pub enabled: bool,
    pub count: u64,
    pub due_count: u64,
    pub running_count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run_at_ms: Option<i64>,
    pub max_jobs: u64,
    pub max_concurrent_runs: u64,
    pub current_time: String,
    pub timezone: String,
}

/// `params` of `cron.confirm`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CronConfirm {
    /// The job's id, a unique beginning of it, or its name.
    pub id: String,
    /// The `contentHash` of what the person read. A job with other content is not allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
}

/// `params` of methods that name one job, or one run for `cron.cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CronParams {
    /// The id, or a unique beginning of it.
    pub id: String,
}

/// `params` of `cron.update`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CronUpdateParams {
    /// The job's id, or a unique beginning of it.
    pub id: String,
    pub patch: CronJobInput,
}

/// `params` of `cron.history`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CronHistoryParams {
    /// Only this job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// 1 to 2,000; 200 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u32>,
}

/// `result` of `cron.history`, the newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronHistory {
    pub runs: Vec<CronRun>,
    /// The number of rows that match.
    pub count: u64,
}

/// `result` of `cron.remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CronRemoved {
    pub removed: bool,
}

/// A run that was started by hand: a result of `cron.run`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronQueued {
    pub job_id: String,
    pub run_id: String,
    /// `queued`.
    pub status: String,
    pub summary: String,
}

/// `result` of `cron.cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronCancelled {
    pub run_id: String,
    pub text: String,
}
