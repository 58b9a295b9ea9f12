//! Administration of a gateway, for the operator: audit log, usage, configuration, secrets, policy and checks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `params` of `audit.search`. A missing field matches everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuditSearch {
    /// Part of the tool's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Part of the principal, such as `agent:` or `operator`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The id of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// A text anywhere in the line. Upper and lower case are the same for `a` to `z`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// In milliseconds since 1970, inclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
    /// In milliseconds since 1970, exclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
    /// Only lines before this number: the `previous` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// 100 when left out; at most 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// `result` of `audit.search`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditPage {
    /// The newest first. `docs/security.md` describes the fields of a line.
    pub lines: Vec<Value>,
    /// There may be earlier lines, and this is the `before` of their page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<u64>,
}

/// `result` of `audit.verify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditVerified {
    pub intact: bool,
    pub lines: u64,
    pub files: usize,
    pub problems: Vec<AuditProblem>,
    /// Problems that are not described.
    pub further_problems: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditProblem {
    /// The name of a full file; empty for the current one.
    pub file: String,
    /// 0 for a problem of the whole log.
    pub line: u64,
    pub problem: String,
}

/// `params` of `usage.report`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UsageParams {
    /// The first day, such as `2026-01-31`, in the user's time zone; 30 days ago when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The last day; today when left out. At most 400 days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// `result` of `usage.report`. Every sum of `rows` is over the same answers of models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageReport {
    pub from: String,
    pub to: String,
    pub timezone: String,
    pub rows: Vec<UsageRow>,
    pub total: UsageSum,
    /// What counted against the budgets, by day and agent. It has the requests that failed, too.
    pub spent: Vec<UsageSpent>,
    /// The budgets, for people.
    pub budgets: Vec<String>,
}

/// The answers of one model in one session on one day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageRow {
    pub day: String,
    pub agent: String,
    pub session_key: String,
    /// As `provider/model`.
    pub model: String,
    #[serde(flatten)]
    pub sum: UsageSum,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageSum {
    pub requests: u64,
    /// Without tokens from the cache.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    /// At the prices of now. Answers without a known price are not in it.
    pub cost_usd: f64,
    /// Answers whose price is not known.
    pub unpriced: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageSpent {
    pub day: String,
    pub agent: String,
    pub usd: f64,
}

/// `result` of `config.get`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigShown {
    pub file: String,
    /// Of the file. A change names the hash that it is based on.
    pub hash: String,
    /// The values in effect; secrets are masked.
    pub values: Value,
    /// The keys that are set in the file.
    pub set: Vec<String>,
    pub warnings: Vec<String>,
}

/// `result` of `config.schema`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigSchema {
    pub schema: Value,
}

/// `params` of `config.check` and `config.set`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigChange {
    /// With dots between levels, such as `shell.sandbox`.
    pub key: String,
    /// The new value; null removes the key, so that its default applies.
    pub value: Value,
    /// The hash that the change is based on. If the file has changed since, the change is `conflict`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

/// `result` of `config.check` and `config.set`. The violations of an invalid change are in the error's `details`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigChanged {
    /// Of the file after the change; of the file as it is after a check.
    pub hash: String,
    /// The change counts after a restart of the gateway.
    pub needs_restart: bool,
}

/// `result` of `secrets.list`. Values are never shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretList {
    pub secrets: Vec<SecretInfo>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretInfo {
    pub name: String,
    /// The hosts to which it may be sent.
    pub hosts: Vec<String>,
    pub created: i64,
    pub changed: i64,
}

/// `params` of `secrets.set`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretSet {
    pub name: String,
    pub hosts: Vec<String>,
    pub value: String,
}

/// `result` of `secrets.set`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretStored {
    pub name: String,
    /// There was a secret of this name.
    pub replaced: bool,
}

/// `params` and `result` of `secrets.remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretName {
    pub name: String,
}

/// `params` of `policy.explain`: what would be decided on a call. Nothing runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyExplain {
    pub tool: String,
    /// `{}` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// A call by this agent; by the operator when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// `result` of `policy.explain`; a call of several nodes has several decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyExplained {
    pub decisions: Vec<PolicyDecision>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyDecision {
    pub tool: String,
    /// `allow`, `ask` or `deny`.
    pub decision: String,
    /// The rule that decides.
    pub rule: String,
    pub reason: String,
    pub touches: Vec<PolicyTouch>,
    pub rules: Vec<PolicyRuleChecked>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyTouch {
    pub path: String,
    /// `read` or `write`.
    pub access: String,
    pub sensitive: bool,
    /// Closed to every tool.
    pub closed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyRuleChecked {
    pub rule: String,
    /// Why the rule does not match; missing if it matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<String>,
}

/// `result` of `gateway.doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorReport {
    /// By feature area.
    pub findings: BTreeMap<String, Vec<DoctorFinding>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorFinding {
    /// `ok`, `warning` or `error`.
    pub level: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}
