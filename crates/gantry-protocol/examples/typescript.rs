//! Prints the protocol as TypeScript types: `docs/protocol.d.ts`, which `cargo xtask docs` writes.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::collections::BTreeMap;
use std::fmt::Write;

use gantry_protocol as wire;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

const LEAD: &str = "// The WebSocket protocol of Gantry: docs/protocol.md describes it.\n\
    // Written by `cargo xtask docs` from the types of gantry-protocol. Change those instead.\n";

/// A request: its name, its `params` and its `result`.
struct Method {
    name: &'static str,
    params: Schema,
    result: Schema,
}

fn main() {
    print!("{}", render());
}

fn render() -> String {
    let mut types = Types::default();
    let methods = methods(&mut types);
    let events = events(&mut types);
    types.give::<wire::CloseReason>();
    types.give::<wire::WireError>();
    types.give::<wire::HistoryEntry>();
    types.give::<wire::Health>();
    types.give::<wire::JoinRequest>();
    types.give::<wire::Joined>();
    types.give::<wire::HttpProblem>();
    types.take::<wire::PageLogin>();
    types.give::<wire::PageLoginResult>();
    let mut page = LEAD.to_owned();
    page.push_str("\n/** Requests, by method. */\nexport interface Methods {\n");
    for Method { name, params, result } in &methods {
        let _ = writeln!(
            page,
            "  {name:?}: {{ params: {}; result: {} }};",
            type_of(params.as_value()),
            type_of(result.as_value())
        );
    }
    page.push_str("}\n\n/** Events, by name. */\nexport interface Events {\n");
    for (name, data) in &events {
        let _ = writeln!(page, "  {name:?}: {};", type_of(data.as_value()));
    }
    page.push_str("}\n");
    for (name, schema) in types.definitions() {
        declare(&mut page, &name, &schema);
    }
    page
}

/// What is read is described as it may be sent, what is answered as it is written.
struct Types {
    taken: SchemaGenerator,
    given: SchemaGenerator,
}

impl Default for Types {
    fn default() -> Types {
        let settings = SchemaSettings::draft2020_12;
        Types {
            taken: settings().for_deserialize().into_generator(),
            given: settings().for_serialize().into_generator(),
        }
    }
}

impl Types {
    fn take<T: JsonSchema>(&mut self) -> Schema {
        self.taken.subschema_for::<T>()
    }

    fn give<T: JsonSchema>(&mut self) -> Schema {
        self.given.subschema_for::<T>()
    }

    /// Where a type goes both ways, the written form counts: it names every field that is always there.
    fn definitions(mut self) -> BTreeMap<String, Value> {
        let mut all: BTreeMap<String, Value> = self.taken.take_definitions(true).into_iter().collect();
        all.extend(self.given.take_definitions(true));
        all
    }
}

fn methods(types: &mut Types) -> Vec<Method> {
    macro_rules! methods {
        ($($name:ident: $params:ty => $result:ty,)*) => {
            vec![$(Method {
                name: wire::method::$name,
                params: types.take::<$params>(),
                result: types.give::<$result>(),
            },)*]
        };
    }
    methods! {
        CONNECT: wire::ConnectParams => wire::ConnectResult,
        TOOL_CALL: wire::CallParams => wire::CallResult<Value>,
        TOOLS_LIST: wire::ToolsListParams => wire::ToolList,
        TOOLS_GET: wire::ToolsGetParams => wire::ToolInfo,
        RESULTS_READ: wire::ResultParams => wire::ResultPage,
        AGENTS_LIST: wire::Empty => wire::AgentList,
        SESSIONS_LIST: wire::SessionsListParams => wire::SessionList,
        SESSIONS_STATUS: wire::SessionParams => wire::SessionStatus,
        SESSIONS_HISTORY: wire::HistoryParams => wire::History,
        SESSIONS_SEND: wire::MessageParams => wire::SendResult,
        SESSIONS_LISTEN: wire::SessionParams => wire::ListenResult,
        SESSIONS_ANSWER: wire::AnswerParams => wire::AnswerResult,
        SESSIONS_RENAME: wire::SessionRename => wire::SessionRename,
        SESSIONS_SEARCH: wire::SessionSearch => wire::SessionMatches,
        INBOX_LIST: wire::Empty => wire::InboxList,
        INBOX_LISTEN: wire::Empty => wire::InboxList,
        GRANTS_LIST: wire::GrantsListParams => wire::GrantList,
        GRANTS_REVOKE: wire::GrantParams => wire::GrantInfo,
        CRON_LIST: wire::CronListParams => wire::CronJobList,
        CRON_SHOW: wire::CronParams => wire::CronJob,
        CRON_STATUS: wire::CronStatusParams => wire::CronStatus,
        CRON_ADD: wire::CronJobInput => wire::CronJob,
        CRON_UPDATE: wire::CronUpdateParams => wire::CronJob,
        CRON_REMOVE: wire::CronParams => wire::CronRemoved,
        CRON_RUN: wire::CronParams => wire::CronQueued,
        CRON_PAUSE: wire::CronParams => wire::CronJob,
        CRON_RESUME: wire::CronParams => wire::CronJob,
        CRON_CONFIRM: wire::CronConfirm => wire::CronJob,
        CRON_HISTORY: wire::CronHistoryParams => wire::CronHistory,
        CRON_CANCEL: wire::CronParams => wire::CronCancelled,
        OUTBOX_LIST: wire::OutboxListParams => wire::OutboxList,
        OUTBOX_SHOW: wire::OutboxParams => wire::OutboxMessage,
        OUTBOX_RESEND: wire::OutboxParams => wire::OutboxMessage,
        OUTBOX_ARRIVED: wire::OutboxParams => wire::OutboxMessage,
        OUTBOX_DROP: wire::OutboxParams => wire::OutboxMessage,
        PIPELINES_LIST: wire::Empty => wire::PipelineList,
        PIPELINES_GET: wire::PipelineId => wire::PipelineInfo,
        PIPELINES_ADD: wire::PipelineAdd => wire::PipelineInfo,
        PIPELINES_REMOVE: wire::PipelineId => wire::PipelineInfo,
        PIPELINES_RUN: wire::PipelineRunParams => wire::PipelineRunState,
        PIPELINES_RUNS: wire::PipelineRunsParams => wire::PipelineRunList,
        PIPELINES_STATUS: wire::PipelineStatusParams => wire::PipelineRunState,
        PIPELINES_CANCEL: wire::PipelineRunId => wire::PipelineRunState,
        PIPELINES_RETRY: wire::PipelineRunId => wire::PipelineRunState,
        RUNS_LISTEN: wire::Empty => wire::Empty,
        PLANS_LIST: wire::Empty => wire::PlanList,
        PLANS_ANSWER: wire::PlanAnswer => wire::PlanDecision,
        PROCESSES_LIST: wire::Empty => wire::CapturedProcessList,
        PROCESSES_GET: wire::CapturedProcessId => wire::CapturedProcess,
        PROCESSES_PROMOTE: wire::ProcessPromote => wire::PromotedProcess,
        PROCESSES_REMOVE: wire::CapturedProcessId => wire::CapturedProcess,
        TASKS_LIST: wire::TasksListParams => wire::TaskList,
        TASKS_SHOW: wire::TaskParams => wire::TaskInfo,
        TASKS_ADD: wire::TaskAddParams => wire::TaskChanged,
        TASKS_EDIT: wire::TaskChanges => wire::TaskChanged,
        TASKS_RUN: wire::TaskParams => wire::TaskChanged,
        TASKS_CANCEL: wire::TaskParams => wire::TaskChanged,
        TASKS_CONFIRM: wire::TaskConfirm => wire::TaskChanged,
        TASKS_HISTORY: wire::TaskParams => wire::TaskHistory,
        APPROVAL_ASK: wire::ApprovalAsk => wire::ApprovalAnswer,
        NODE_TOOLS: wire::NodeTools => wire::Empty,
        PROCESS_ENDED: wire::ProcessEnd => wire::ProcessEndTaken,
        CONNECTION_ASK: wire::ConnectionAsk => wire::ApprovalAnswer,
        LOGS_GET: wire::LogsParams => wire::LogsResult,
        BULK_OPEN: wire::Empty => wire::Empty,
        GATEWAY_KEY: wire::GatewayKey => wire::Empty,
        TRANSFER_OPEN: wire::TransferOpen => wire::TransferOpened,
        TRANSFER_MANIFEST: wire::TransferManifest => wire::ManifestPage,
        TRANSFER_PREPARE: wire::TransferPrepare => wire::TransferPrepared,
        TRANSFER_MAKE: wire::TransferMake => wire::Empty,
        TRANSFER_HAVE: wire::TransferHave => wire::TransferHas,
        TRANSFER_SEND: wire::TransferSend => wire::TransferDone,
        TRANSFER_RECEIVE: wire::TransferReceive => wire::TransferDone,
        TRANSFER_FINISH: wire::TransferOver => wire::Empty,
        TRANSFER_ABANDON: wire::TransferOver => wire::Empty,
        TRANSFER_PARTS: wire::Empty => wire::TransferParts,
        GATEWAY_STATUS: wire::Empty => wire::GatewayStatus,
        MARKDOWN_RENDER: wire::MarkdownParams => wire::MarkdownDocuments,
        ANSI_RENDER: wire::AnsiParams => wire::AnsiLines,
        DIFF_RENDER: wire::DiffParams => wire::DiffRows,
        GRAPH_LAYOUT: wire::GraphParams => wire::GraphLayout,
        PAGE_LINK: wire::Empty => wire::PageLink,
        PAGE_SESSIONS: wire::Empty => wire::PageSessionList,
        PAGE_REVOKE: wire::PageRevoke => wire::PageRevoked,
        GATEWAY_DOCTOR: wire::Empty => wire::DoctorReport,
        AUDIT_SEARCH: wire::AuditSearch => wire::AuditPage,
        AUDIT_VERIFY: wire::Empty => wire::AuditVerified,
        USAGE_REPORT: wire::UsageParams => wire::UsageReport,
        CONFIG_GET: wire::Empty => wire::ConfigShown,
        CONFIG_SCHEMA: wire::Empty => wire::ConfigSchema,
        CONFIG_CHECK: wire::ConfigChange => wire::ConfigChanged,
        CONFIG_SET: wire::ConfigChange => wire::ConfigChanged,
        CONFIG_RELOAD: wire::Empty => wire::Empty,
        SECRETS_LIST: wire::Empty => wire::SecretList,
        SECRETS_SET: wire::SecretSet => wire::SecretStored,
        SECRETS_REMOVE: wire::SecretName => wire::SecretName,
        APIS_LIST: wire::Empty => wire::ApiList,
        APIS_GET: wire::ApiId => wire::ApiProfile,
        APIS_SAVE: wire::ApiSave => wire::ApiId,
        APIS_REMOVE: wire::ApiId => wire::ApiId,
        MCP_SERVERS: wire::Empty => wire::McpServerList,
        MCP_REVIEW: wire::McpReview => wire::McpReviewed,
        MCP_ACCEPT: wire::McpAccept => wire::McpAccepted,
        POLICY_EXPLAIN: wire::PolicyExplain => wire::PolicyExplained,
        TRANSFERS_LIST: wire::Empty => wire::TransferList,
        TRANSFERS_LISTEN: wire::Empty => wire::TransferList,
        TRANSFERS_CANCEL: wire::TransferId => wire::TransferId,
        UPLOADS_BEGIN: wire::UploadBegin => wire::UploadState,
        UPLOADS_FINISH: wire::UploadId => wire::UploadDone,
        UPLOADS_CANCEL: wire::UploadId => wire::UploadId,
        DOWNLOADS_LINK: wire::DownloadFile => wire::DownloadLink,
        PORTS_LIST: wire::Empty => wire::PortList,
        PORTS_FORWARD: wire::PortForward => wire::PortForwarded,
        NODES_LIST: wire::Empty => wire::NodeList,
        NODES_LISTEN: wire::Empty => wire::NodeList,
        NODES_ADD: wire::NodeTags => wire::Invitation,
        NODES_RENEW: wire::NodeId => wire::Invitation,
        NODES_TAG: wire::NodeTags => wire::NodeTags,
        NODES_RENAME: wire::NodeRename => wire::NodeRenamed,
        NODES_REVOKE: wire::NodeId => wire::NodeId,
        NODES_FORGET: wire::NodeId => wire::NodeId,
        NODES_PROCESSES: wire::NodeProcesses => wire::ProcessList,
        JOIN_INVITE: wire::JoinInvite => wire::JoinOffer,
        JOIN_ROTATE_KEY: wire::KeyRotate => wire::KeyRotation,
        TOKENS_LIST: wire::Empty => wire::TokenList,
        TOKENS_ADD: wire::TokenAdd => wire::TokenAdded,
        TOKENS_REVOKE: wire::TokenName => wire::TokenName,
    }
}

fn events(types: &mut Types) -> Vec<(&'static str, Schema)> {
    vec![
        (wire::event::TOOL_ACK, types.give::<wire::ToolAck>()),
        (wire::event::CALL_PROGRESS, types.give::<wire::CallProgress>()),
        (wire::event::TOOLS_CHANGED, types.give::<wire::Empty>()),
        (wire::event::SESSION_EVENT, types.give::<wire::SessionEventData>()),
        (wire::event::TRANSFERS_CHANGED, types.give::<wire::TransferList>()),
        (wire::event::NODES_CHANGED, types.give::<wire::NodeList>()),
        (wire::event::INBOX_CHANGED, types.give::<wire::InboxList>()),
        (wire::event::RUN_EVENT, types.give::<wire::RunEventData>()),
        (wire::event::PROCESS_ENDED, types.give::<wire::ProcessEnded>()),
        (wire::event::MISSED, types.give::<wire::Missed>()),
    ]
}

fn declare(page: &mut String, name: &str, schema: &Value) {
    page.push('\n');
    comment(page, "", schema);
    let _ = match schema.get("properties").filter(|_| schema.get("oneOf").is_none()) {
        Some(_) => writeln!(page, "export interface {name} {}", object(schema, "\n")),
        None => writeln!(page, "export type {name} = {};", type_of(schema)),
    };
}

fn comment(page: &mut String, indent: &str, schema: &Value) {
    if let Some(text) = schema.get("description").and_then(Value::as_str) {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(page, "{indent}/** {text} */");
    }
}

fn type_of(schema: &Value) -> String {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let name = reference.rsplit('/').next().unwrap_or_default().to_owned();
        // A variant that holds another type has that type's fields and its own.
        return match schema.get("properties") {
            Some(_) => format!("{name} & {}", object(schema, " ")),
            None => name,
        };
    }
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    if let Some(options) = schema.get("enum").and_then(Value::as_array) {
        return options.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
    }
    for key in ["oneOf", "anyOf"] {
        if let Some(options) = schema.get(key).and_then(Value::as_array) {
            let options: Vec<String> = options.iter().map(type_of).collect();
            let union = match options.iter().any(|option| option.starts_with('{')) {
                true => format!("\n  | {}", options.join("\n  | ")),
                false => options.join(" | "),
            };
            return match schema.get("properties") {
                Some(_) => format!("{} & ({union})", object(schema, " ")),
                None => union,
            };
        }
    }
    match schema.get("type") {
        Some(Value::String(name)) => named(name, schema),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str).map(|name| named(name, schema));
            names.collect::<Vec<_>>().join(" | ")
        }
        _ => "unknown".to_owned(),
    }
}

fn named(name: &str, schema: &Value) -> String {
    match name {
        "integer" | "number" => "number".to_owned(),
        "array" => match schema.get("items").map(type_of) {
            Some(items) if items.contains(' ') => format!("({items})[]"),
            Some(items) => format!("{items}[]"),
            None => "unknown[]".to_owned(),
        },
        "object" if schema.get("properties").is_none() => match schema.get("additionalProperties") {
            Some(values) if values.is_object() => format!("{{ [key: string]: {} }}", type_of(values)),
            _ => "Record<string, never>".to_owned(),
        },
        "object" => object(schema, " "),
        // `string`, `boolean` and `null` are the same here and there.
        other => other.to_owned(),
    }
}

/// With its comments when each field has a line of its own.
fn object(schema: &Value, between: &str) -> String {
    let none = Map::new();
    let fields = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let required = |name: &str| {
        let names = schema.get("required").and_then(Value::as_array);
        names.is_some_and(|names| names.iter().any(|required| required == name))
    };
    let mut text = format!("{{{between}");
    for (name, field) in fields {
        if between == "\n" {
            comment(&mut text, "  ", field);
            text.push_str("  ");
        }
        let mark = if required(name) { "" } else { "?" };
        let _ = write!(text, "{name}{mark}: {};{between}", type_of(field));
    }
    text + "}"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_and_event_is_there() {
        let page = render();
        let names = include_str!("../src/methods.rs").lines();
        let names = names.filter_map(|line| line.trim().strip_prefix("pub const ")?.split('"').nth(1));
        let mut count = 0;
        for name in names {
            assert!(page.contains(&format!("  {name:?}: ")), "{name}");
            count += 1;
        }
        assert!(count > 40, "{count}");
    }

    #[test]
    fn unions_have_their_tags_and_left_out_fields_are_optional() {
        let page = render();
        for part in [
            "export type CloseReason =",
            r#"{ code: "node_renamed"; newId: string; }"#,
            r#"{ event: "text"; run: string; delta: string; }"#,
            "  publicUrl?: string | null;",
            "  tools: ToolInfo[];",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
    }
}
