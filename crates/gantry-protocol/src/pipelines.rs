//! Pipelines, plans and captured processes: parameters and results of `pipelines.*`, `plans.*` and `processes.*`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A step of a pipeline: a task for an agent, or one tool call without a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PipelineStep {
    /// A unique name: letters, digits, `-` and `_`.
    pub id: String,
    /// What the agent of this step has to do. `{{name}}` is a value of the context, `{{params.name}}` a parameter,
    /// `{{step.result}}` the result of a step in input_from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The steps whose results this step gets. It starts when they have ended. Steps without input_from start at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_from: Vec<String>,
    /// The step is stopped after this time (default 600000, at most 7200000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 7_200_000))]
    pub timeout_ms: Option<u64>,
    /// The role of the step's agent, such as researcher. Only with task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// fast, balanced, deep, or provider/model. Only with task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The tool to call, in place of task. This costs no tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The input of the tool. Its texts may have the same templates as a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
}

/// What happens when a step fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// Running steps finish, and no other step starts.
    #[default]
    Stop,
    /// The other steps run. Steps that need the failed one get its error.
    Continue,
    /// As `continue`, and the owner gets a notice.
    Notify,
}

/// Where the value of a parameter comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParameterSource {
    /// Whoever starts the run.
    UserInput,
    /// The default is a number of days before or after the day of the run.
    RelativeDate,
    /// The context of the run, or the default.
    Context,
}

/// A parameter of a pipeline. Templates name it `{{params.NAME}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PipelineParameter {
    pub name: String,
    /// `string`, `number`, `boolean`, `date`, `object` or `array`.
    #[serde(rename = "type")]
    pub kind: String,
    pub source: ParameterSource,
    /// The value if the run is given none. Without a default the run must be given a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

/// A pipeline, as a file or a request describes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PipelineDefinition {
    #[serde(default)]
    pub name: String,
    pub steps: Vec<PipelineStep>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<PipelineParameter>,
    #[serde(default)]
    pub on_failure: OnFailure,
}

/// A change of a stored pipeline for one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepModification {
    pub step_id: String,
    pub action: ModificationAction,
    /// The new task, for update_task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModificationAction {
    Remove,
    UpdateTask,
}

/// The state of a run. All but `running` are final, until a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PipelineStatus {
    Running,
    Completed,
    Failed,
    /// The run could not continue: its agent, a tool, a role or a model does not exist any more.
    Rejected,
    /// Somebody cancelled it.
    Interrupted,
}

/// The state of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StepStatus {
    Pending,
    Running,
    /// It waits for a person's answer.
    Waiting,
    Completed,
    Failed,
    Skipped,
}

/// How a step ended, or its present state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepOutcome {
    pub step_id: String,
    pub status: StepStatus,
    /// Its answer. A long one is cut, with a note.
    pub result: Option<String>,
    pub duration_ms: i64,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub cost_usd: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_reason: Option<String>,
    /// The session that did the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
}

/// How a run ended, or its present state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineOutcome {
    pub pipeline_id: String,
    pub run_id: String,
    pub name: String,
    pub status: PipelineStatus,
    /// Why it did not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub steps: Vec<StepOutcome>,
    pub total_duration_ms: i64,
    pub total_cost_usd: f64,
}

/// `result` of `pipelines.get`, and an item of `pipelines.list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineInfo {
    pub id: String,
    pub agent: String,
    pub definition: PipelineDefinition,
    /// `person`, `plan` or `process`.
    pub source: String,
    pub created_by: String,
    pub created: i64,
    /// What a run would cost, by earlier runs or by a fixed table.
    pub estimated_cost_usd: f64,
}

/// `result` of `pipelines.list`, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PipelineList {
    pub pipelines: Vec<PipelineInfo>,
}

/// `params` of `pipelines.add`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PipelineAdd {
    /// The agent that does the work; `main` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    pub definition: PipelineDefinition,
}

/// Names a pipeline. A unique beginning of its id is enough.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PipelineId {
    pub id: String,
}

/// `params` of `pipelines.run`. The result is the run's present state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PipelineRunParams {
    pub pipeline_id: String,
    /// Values for `{{name}}`, which every agent's step also sees.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, Value>,
    /// Values for `{{params.name}}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modifications: Vec<StepModification>,
}

/// `params` of `pipelines.status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PipelineStatusParams {
    pub run_id: String,
    /// Waits at most this long for the end of the run; at most 120000.
    #[serde(default)]
    pub wait_ms: u64,
}

/// Names a run. A unique beginning of its id is enough.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PipelineRunId {
    pub run_id: String,
}

/// `result` of `pipelines.status`, `pipelines.run`, `pipelines.cancel` and `pipelines.retry`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineRunState {
    pub outcome: PipelineOutcome,
    pub agent: String,
    /// The steps as this run has them.
    pub definition: PipelineDefinition,
    pub started: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<i64>,
}

/// `params` of `pipelines.runs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PipelineRunsParams {
    /// Only runs of this pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline_id: Option<String>,
    /// 1 to 1000; 50 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineRunInfo {
    pub run_id: String,
    pub pipeline_id: String,
    pub name: String,
    pub agent: String,
    pub status: PipelineStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub started: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<i64>,
}

/// `result` of `pipelines.runs`, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PipelineRunList {
    pub runs: Vec<PipelineRunInfo>,
}

/// A plan that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanInfo {
    pub approval_id: String,
    pub agent: String,
    /// The plan, for people.
    pub text: String,
    pub created_by: String,
    pub created: i64,
}

/// `result` of `plans.list`, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanList {
    pub plans: Vec<PlanInfo>,
}

/// `params` of `plans.answer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanAnswer {
    pub approval_id: String,
    /// `proceed`, `cancel`, or what to change.
    pub answer: String,
}

/// The answer to a plan: the result of `plan_task` and of `plans.answer`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanDecision {
    pub approved: bool,
    /// Nobody has answered yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pending: bool,
    /// Names the plan while it waits for an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// The pipeline that runs the agent's phases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<PlannedStep>>,
    /// The phases that the user does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_steps: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_cost_usd: Option<f64>,
    /// What the person answered in place of yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
}

/// A step of an approved plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedStep {
    pub id: String,
    pub task: String,
}

/// A recorded call of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessStep {
    /// 1 for the first.
    pub order: usize,
    pub tool: String,
    /// The input with `{{params.NAME}}` and `{{step-N.result}}` in place of values that change.
    pub input: Value,
    pub description: String,
    /// The orders of the calls whose results this call used.
    pub depends_on: Vec<usize>,
}

/// A process: `result` of `processes.get`, and an item of `processes.list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapturedProcess {
    pub id: String,
    pub agent: String,
    pub name: String,
    pub description: String,
    pub steps: Vec<ProcessStep>,
    pub parameters: Vec<PipelineParameter>,
    /// The session whose calls were recorded.
    pub session_key: String,
    pub created: i64,
    /// The pipeline that it was promoted to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_id: Option<String>,
}

/// `result` of `processes.list`, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapturedProcessList {
    pub processes: Vec<CapturedProcess>,
}

/// Names a process. A unique beginning of its id is enough.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CapturedProcessId {
    pub id: String,
}

/// `params` of `processes.promote`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProcessPromote {
    pub id: String,
    /// Defaults of parameters, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameter_values: BTreeMap<String, Value>,
}

/// The result of `promote_process` and of `processes.promote`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PromotedProcess {
    pub pipeline_id: String,
    pub name: String,
    /// The number of steps.
    pub steps: usize,
    /// The names of the parameters.
    pub parameters: Vec<String>,
    pub estimated_cost: String,
    /// How to run it.
    pub next: String,
}
