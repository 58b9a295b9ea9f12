//! Requests and events after `connect`: names, parameters, results.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::asked_action::AskedAction;
use crate::frame::RawJson;

/// Names of requests. `docs/protocol.md` lists the senders of each.
pub mod method {
    pub const CONNECT: &str = "connect";
    /// Client → gateway, and gateway → node.
    pub const TOOL_CALL: &str = "tool.call";
    pub const TOOLS_LIST: &str = "tools.list";
    pub const TOOLS_GET: &str = "tools.get";
    pub const RESULTS_READ: &str = "results.read";
    /// Client → gateway: agents and their sessions.
    pub const AGENTS_LIST: &str = "agents.list";
    pub const SESSIONS_LIST: &str = "sessions.list";
    pub const SESSIONS_STATUS: &str = "sessions.status";
    pub const SESSIONS_HISTORY: &str = "sessions.history";
    pub const SESSIONS_SEND: &str = "sessions.send";
    pub const SESSIONS_LISTEN: &str = "sessions.listen";
    pub const SESSIONS_ANSWER: &str = "sessions.answer";
    pub const SESSIONS_RENAME: &str = "sessions.rename";
    pub const SESSIONS_SEARCH: &str = "sessions.search";
    /// Client → gateway: everything that waits for a person.
    pub const INBOX_LIST: &str = "inbox.list";
    pub const INBOX_LISTEN: &str = "inbox.listen";
    pub const GRANTS_LIST: &str = "grants.list";
    pub const GRANTS_REVOKE: &str = "grants.revoke";
    pub const CRON_LIST: &str = "cron.list";
    pub const CRON_SHOW: &str = "cron.show";
    pub const CRON_STATUS: &str = "cron.status";
    pub const CRON_ADD: &str = "cron.add";
    pub const CRON_UPDATE: &str = "cron.update";
    pub const CRON_REMOVE: &str = "cron.remove";
    pub const CRON_RUN: &str = "cron.run";
    pub const CRON_PAUSE: &str = "cron.pause";
    pub const CRON_RESUME: &str = "cron.resume";
    pub const CRON_CONFIRM: &str = "cron.confirm";
    pub const CRON_HISTORY: &str = "cron.history";
    pub const CRON_CANCEL: &str = "cron.cancel";
    pub const OUTBOX_LIST: &str = "outbox.list";
    pub const OUTBOX_SHOW: &str = "outbox.show";
    pub const OUTBOX_RESEND: &str = "outbox.resend";
    pub const OUTBOX_ARRIVED: &str = "outbox.arrived";
    pub const OUTBOX_DROP: &str = "outbox.drop";
    pub const TASKS_LIST: &str = "tasks.list";
    pub const TASKS_SHOW: &str = "tasks.show";
    pub const TASKS_ADD: &str = "tasks.add";
    pub const TASKS_EDIT: &str = "tasks.edit";
    pub const TASKS_RUN: &str = "tasks.run";
    pub const TASKS_CANCEL: &str = "tasks.cancel";
    pub const TASKS_CONFIRM: &str = "tasks.confirm";
    pub const TASKS_HISTORY: &str = "tasks.history";
    /// Client → gateway: pipelines, their runs, plans that wait for an answer, and captured processes.
    pub const PIPELINES_LIST: &str = "pipelines.list";
    pub const PIPELINES_GET: &str = "pipelines.get";
    pub const PIPELINES_ADD: &str = "pipelines.add";
    pub const PIPELINES_REMOVE: &str = "pipelines.remove";
    pub const PIPELINES_RUN: &str = "pipelines.run";
    pub const PIPELINES_RUNS: &str = "pipelines.runs";
    pub const PIPELINES_STATUS: &str = "pipelines.status";
    pub const PIPELINES_CANCEL: &str = "pipelines.cancel";
    pub const PIPELINES_RETRY: &str = "pipelines.retry";
    /// Client → gateway: follow runs of schedules, tasks and pipelines.
    pub const RUNS_LISTEN: &str = "runs.listen";
    pub const PLANS_LIST: &str = "plans.list";
    pub const PLANS_ANSWER: &str = "plans.answer";
    pub const PROCESSES_LIST: &str = "processes.list";
    pub const PROCESSES_GET: &str = "processes.get";
    pub const PROCESSES_PROMOTE: &str = "processes.promote";
    pub const PROCESSES_REMOVE: &str = "processes.remove";
    /// Gateway → client: asks whether a call of that client may run.
    pub const APPROVAL_ASK: &str = "approval.ask";
    /// Node → gateway.
    pub const NODE_TOOLS: &str = "node.tools";
    pub const PROCESS_ENDED: &str = "process.ended";
    pub const CONNECTION_ASK: &str = "connection.ask";
    /// Gateway → node.
    pub const LOGS_GET: &str = "logs.get";
    pub const BULK_OPEN: &str = "bulk.open";
    /// Announces the gateway's next TLS key.
    pub const GATEWAY_KEY: &str = "gateway.key";
    pub const TRANSFER_OPEN: &str = "transfer.open";
    pub const TRANSFER_MANIFEST: &str = "transfer.manifest";
    pub const TRANSFER_PREPARE: &str = "transfer.prepare";
    pub const TRANSFER_MAKE: &str = "transfer.make";
    pub const TRANSFER_HAVE: &str = "transfer.have";
    pub const TRANSFER_SEND: &str = "transfer.send";
    pub const TRANSFER_RECEIVE: &str = "transfer.receive";
    pub const TRANSFER_FINISH: &str = "transfer.finish";
    pub const TRANSFER_ABANDON: &str = "transfer.abandon";
    pub const TRANSFER_PARTS: &str = "transfer.parts";
    /// Client → gateway, for the operator only.
    pub const GATEWAY_STATUS: &str = "gateway.status";
    /// Client → gateway: texts as data that a client can draw.
    pub const MARKDOWN_RENDER: &str = "markdown.render";
    pub const ANSI_RENDER: &str = "ansi.render";
    pub const DIFF_RENDER: &str = "diff.render";
    pub const GRAPH_LAYOUT: &str = "graph.layout";
    /// Client → gateway, for the operator only: logins of the web page.
    pub const PAGE_LINK: &str = "page.link";
    pub const PAGE_SESSIONS: &str = "page.sessions";
    pub const PAGE_REVOKE: &str = "page.revoke";
    pub const GATEWAY_DOCTOR: &str = "gateway.doctor";
    pub const AUDIT_SEARCH: &str = "audit.search";
    pub const AUDIT_VERIFY: &str = "audit.verify";
    pub const USAGE_REPORT: &str = "usage.report";
    pub const CONFIG_GET: &str = "config.get";
    pub const CONFIG_SCHEMA: &str = "config.schema";
    pub const CONFIG_CHECK: &str = "config.check";
    pub const CONFIG_SET: &str = "config.set";
    pub const CONFIG_RELOAD: &str = "config.reload";
    pub const SECRETS_LIST: &str = "secrets.list";
    pub const SECRETS_SET: &str = "secrets.set";
    pub const SECRETS_REMOVE: &str = "secrets.remove";
    pub const APIS_LIST: &str = "apis.list";
    pub const APIS_GET: &str = "apis.get";
    pub const APIS_SAVE: &str = "apis.save";
    pub const APIS_REMOVE: &str = "apis.remove";
    pub const MCP_SERVERS: &str = "mcp.servers";
    pub const MCP_REVIEW: &str = "mcp.review";
    pub const MCP_ACCEPT: &str = "mcp.accept";
    pub const POLICY_EXPLAIN: &str = "policy.explain";
    pub const TRANSFERS_LIST: &str = "transfers.list";
    pub const TRANSFERS_LISTEN: &str = "transfers.listen";
    pub const TRANSFERS_CANCEL: &str = "transfers.cancel";
    pub const UPLOADS_BEGIN: &str = "uploads.begin";
    pub const UPLOADS_FINISH: &str = "uploads.finish";
    pub const UPLOADS_CANCEL: &str = "uploads.cancel";
    pub const DOWNLOADS_LINK: &str = "downloads.link";
    pub const PORTS_LIST: &str = "ports.list";
    pub const PORTS_FORWARD: &str = "ports.forward";
    pub const NODES_LIST: &str = "nodes.list";
    pub const NODES_LISTEN: &str = "nodes.listen";
    pub const NODES_ADD: &str = "nodes.add";
    pub const NODES_RENEW: &str = "nodes.renew";
    pub const NODES_TAG: &str = "nodes.tag";
    pub const NODES_RENAME: &str = "nodes.rename";
    pub const NODES_REVOKE: &str = "nodes.revoke";
    pub const NODES_FORGET: &str = "nodes.forget";
    pub const NODES_PROCESSES: &str = "nodes.processes";
    pub const JOIN_INVITE: &str = "join.invite";
    pub const JOIN_ROTATE_KEY: &str = "join.rotateKey";
    pub const TOKENS_LIST: &str = "tokens.list";
    pub const TOKENS_ADD: &str = "tokens.add";
    pub const TOKENS_REVOKE: &str = "tokens.revoke";
}

/// Names of events.
pub mod event {
    /// Gateway → node: these results have arrived, and the node may forget them.
    pub const TOOL_ACK: &str = "tool.ack";
    /// Node → gateway → client: the progress of a call.
    pub const CALL_PROGRESS: &str = "call.progress";
    /// Gateway → client: tools or nodes were added, removed or changed.
    pub const TOOLS_CHANGED: &str = "tools.changed";
    /// Gateway → client: an event of a session that it listens to.
    pub const SESSION_EVENT: &str = "session.event";
    /// Gateway → client: the transfers, for clients that listen to them.
    pub const TRANSFERS_CHANGED: &str = "transfers.changed";
    /// Gateway → client: the nodes and their state, for clients that listen to them.
    pub const NODES_CHANGED: &str = "nodes.changed";
    /// Gateway → client: the items of the inbox, for clients that listen to it.
    pub const INBOX_CHANGED: &str = "inbox.changed";
    /// Gateway → client: an event of a run, for clients that follow runs.
    pub const RUN_EVENT: &str = "run.event";
    /// Gateway → client: a background process on a node has ended.
    pub const PROCESS_ENDED: &str = "process.ended";
    /// Gateway → client: events were not delivered because the client was slow.
    pub const MISSED: &str = "missed";
}

/// `params` of a client's `tool.call`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallParams {
    pub tool: String,
    /// Absent means `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub input: Option<RawJson>,
    /// Calls as this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// For the operator only: where relative paths start on the gateway's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Calls for the MCP client of this name. Its policy applies, and results are shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<String>,
    /// The caller answers `approval.ask`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks: bool,
}

/// `params` of `approval.ask`. Any result other than `{"allow": true}` denies the call.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalAsk {
    /// The id of the client's request, as text.
    pub call: String,
    pub tool: String,
    pub rule: String,
    pub reason: String,
    pub input: serde_json::Value,
    pub fingerprint: String,
    /// What the call would do. Gateways of earlier versions do not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<AskedAction>,
}

/// The result of `approval.ask`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalAnswer {
    pub allow: bool,
    /// The reason for a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `params` of `connection.ask`: a command of a running call wants to connect to a host. The result is that of
/// `approval.ask`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConnectionAsk {
    /// The `callId` of the gateway's `tool.call`.
    pub call: String,
    pub host: String,
    pub port: u16,
}

/// `params` of `tool.call` to a node. A repeated `callId` joins the running call, also after a reconnect.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeCallParams {
    pub call_id: String,
    /// The name without the node.
    pub tool: String,
    #[schemars(with = "serde_json::Value")]
    pub input: RawJson,
    pub caller: Caller,
}

/// The caller for whom the gateway calls a node. The node's own gate applies its policy to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Caller {
    /// `operator`, `client:NAME`, `mcp:NAME`, `agent:ID` or `scheduler`.
    pub principal: String,
    pub agent: String,
    /// `supervised`, `guided` or `autonomous`.
    pub autonomy: String,
    /// `cli`, `http`, `websocket`, `mcp` or `agent`.
    pub surface: String,
    /// The agent's session. Its commands on a node share one network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The labels of what the agent has read: `untrusted`, `private`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The gateway's gate let the command leave the sandbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escalated: bool,
    /// The gateway answers `connection.ask` for this call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks: bool,
}

/// `result` of `tool.call`: the answer of the tool, or its own error. A refusal by the gate is the response's `error`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallResult<J = RawJson> {
    /// The resolved name of the tool.
    pub tool: String,
    /// The answer is the tool's own error, in its toolset's shape.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Either this or `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<J>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// `data` of `tool.ack`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolAck {
    pub call_ids: Vec<String>,
}

/// `data` of `call.progress`. From a node, `call` is the `callId`. To a client, it is the id of its request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallProgress {
    pub call: String,
    pub done: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The unit of `done`, such as `bytes`, or the current action.
    #[serde(default)]
    pub message: String,
}

/// `params` of `logs.get`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogsParams {
    pub lines: usize,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct LogsResult {
    pub lines: Vec<String>,
    /// There are older lines.
    pub truncated: bool,
}

/// `params` of `process.ended`: a background process has ended. Sent until it is answered. Repeats have the same `eventId`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessEnd {
    pub event_id: String,
    pub session_id: String,
    pub command: String,
    pub principal: String,
    pub agent: String,
    pub exit_code: Option<i32>,
    pub signal: Option<String>,
    pub timed_out: bool,
    pub started_at: i64,
    pub ended_at: i64,
    /// The last characters of the output.
    pub tail: String,
}
