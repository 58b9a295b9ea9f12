// The WebSocket protocol of Gantry: docs/protocol.md describes it.
// Written by `cargo xtask docs` from the types of gantry-protocol. Change those instead.

/** Requests, by method. */
export interface Methods {
  "connect": { params: ConnectParams; result: ConnectResult };
  "tool.call": { params: CallParams; result: CallResult };
  "tools.list": { params: ToolsListParams; result: ToolList };
  "tools.get": { params: ToolsGetParams; result: ToolInfo };
  "results.read": { params: ResultParams; result: ResultPage };
  "agents.list": { params: Empty; result: AgentList };
  "sessions.list": { params: SessionsListParams; result: SessionList };
  "sessions.status": { params: SessionParams; result: SessionStatus };
  "sessions.history": { params: HistoryParams; result: History };
  "sessions.send": { params: MessageParams; result: SendResult };
  "sessions.listen": { params: SessionParams; result: ListenResult };
  "sessions.answer": { params: AnswerParams; result: AnswerResult };
  "sessions.rename": { params: SessionRename; result: SessionRename };
  "sessions.search": { params: SessionSearch; result: SessionMatches };
  "inbox.list": { params: Empty; result: InboxList };
  "inbox.listen": { params: Empty; result: InboxList };
  "grants.list": { params: GrantsListParams; result: GrantList };
  "grants.revoke": { params: GrantParams; result: GrantInfo };
  "cron.list": { params: CronListParams; result: CronJobList };
  "cron.show": { params: CronParams; result: CronJob };
  "cron.status": { params: CronStatusParams; result: CronStatus };
  "cron.add": { params: CronJobInput; result: CronJob };
  "cron.update": { params: CronUpdateParams; result: CronJob };
  "cron.remove": { params: CronParams; result: CronRemoved };
  "cron.run": { params: CronParams; result: CronQueued };
  "cron.pause": { params: CronParams; result: CronJob };
  "cron.resume": { params: CronParams; result: CronJob };
  "cron.confirm": { params: CronConfirm; result: CronJob };
  "cron.history": { params: CronHistoryParams; result: CronHistory };
  "cron.cancel": { params: CronParams; result: CronCancelled };
  "outbox.list": { params: OutboxListParams; result: OutboxList };
  "outbox.show": { params: OutboxParams; result: OutboxMessage };
  "outbox.resend": { params: OutboxParams; result: OutboxMessage };
  "outbox.arrived": { params: OutboxParams; result: OutboxMessage };
  "outbox.drop": { params: OutboxParams; result: OutboxMessage };
  "pipelines.list": { params: Empty; result: PipelineList };
  "pipelines.get": { params: PipelineId; result: PipelineInfo };
  "pipelines.add": { params: PipelineAdd; result: PipelineInfo };
  "pipelines.remove": { params: PipelineId; result: PipelineInfo };
  "pipelines.run": { params: PipelineRunParams; result: PipelineRunState };
  "pipelines.runs": { params: PipelineRunsParams; result: PipelineRunList };
  "pipelines.status": { params: PipelineStatusParams; result: PipelineRunState };
  "pipelines.cancel": { params: PipelineRunId; result: PipelineRunState };
  "pipelines.retry": { params: PipelineRunId; result: PipelineRunState };
  "runs.listen": { params: Empty; result: Empty };
  "plans.list": { params: Empty; result: PlanList };
  "plans.answer": { params: PlanAnswer; result: PlanDecision };
  "processes.list": { params: Empty; result: CapturedProcessList };
  "processes.get": { params: CapturedProcessId; result: CapturedProcess };
  "processes.promote": { params: ProcessPromote; result: PromotedProcess };
  "processes.remove": { params: CapturedProcessId; result: CapturedProcess };
  "tasks.list": { params: TasksListParams; result: TaskList };
  "tasks.show": { params: TaskParams; result: TaskInfo };
  "tasks.add": { params: TaskAddParams; result: TaskChanged };
  "tasks.edit": { params: TaskChanges; result: TaskChanged };
  "tasks.run": { params: TaskParams; result: TaskChanged };
  "tasks.cancel": { params: TaskParams; result: TaskChanged };
  "tasks.confirm": { params: TaskConfirm; result: TaskChanged };
  "tasks.history": { params: TaskParams; result: TaskHistory };
  "approval.ask": { params: ApprovalAsk; result: ApprovalAnswer };
  "node.tools": { params: NodeTools; result: Empty };
  "process.ended": { params: ProcessEnd; result: ProcessEndTaken };
  "connection.ask": { params: ConnectionAsk; result: ApprovalAnswer };
  "logs.get": { params: LogsParams; result: LogsResult };
  "bulk.open": { params: Empty; result: Empty };
  "gateway.key": { params: GatewayKey; result: Empty };
  "transfer.open": { params: TransferOpen; result: TransferOpened };
  "transfer.manifest": { params: TransferManifest; result: ManifestPage };
  "transfer.prepare": { params: TransferPrepare; result: TransferPrepared };
  "transfer.make": { params: TransferMake; result: Empty };
  "transfer.have": { params: TransferHave; result: TransferHas };
  "transfer.send": { params: TransferSend; result: TransferDone };
  "transfer.receive": { params: TransferReceive; result: TransferDone };
  "transfer.finish": { params: TransferOver; result: Empty };
  "transfer.abandon": { params: TransferOver; result: Empty };
  "transfer.parts": { params: Empty; result: TransferParts };
  "gateway.status": { params: Empty; result: GatewayStatus };
  "markdown.render": { params: MarkdownParams; result: MarkdownDocuments };
  "ansi.render": { params: AnsiParams; result: AnsiLines };
  "diff.render": { params: DiffParams; result: DiffRows };
  "graph.layout": { params: GraphParams; result: GraphLayout };
  "page.link": { params: Empty; result: PageLink };
  "page.sessions": { params: Empty; result: PageSessionList };
  "page.revoke": { params: PageRevoke; result: PageRevoked };
  "gateway.doctor": { params: Empty; result: DoctorReport };
  "audit.search": { params: AuditSearch; result: AuditPage };
  "audit.verify": { params: Empty; result: AuditVerified };
  "usage.report": { params: UsageParams; result: UsageReport };
  "config.get": { params: Empty; result: ConfigShown };
  "config.schema": { params: Empty; result: ConfigSchema };
  "config.check": { params: ConfigChange; result: ConfigChanged };
  "config.set": { params: ConfigChange; result: ConfigChanged };
  "config.reload": { params: Empty; result: Empty };
  "secrets.list": { params: Empty; result: SecretList };
  "secrets.set": { params: SecretSet; result: SecretStored };
  "secrets.remove": { params: SecretName; result: SecretName };
  "apis.list": { params: Empty; result: ApiList };
  "apis.get": { params: ApiId; result: ApiProfile };
  "apis.save": { params: ApiSave; result: ApiId };
  "apis.remove": { params: ApiId; result: ApiId };
  "mcp.servers": { params: Empty; result: McpServerList };
  "mcp.review": { params: McpReview; result: McpReviewed };
  "mcp.accept": { params: McpAccept; result: McpAccepted };
  "policy.explain": { params: PolicyExplain; result: PolicyExplained };
  "transfers.list": { params: Empty; result: TransferList };
  "transfers.listen": { params: Empty; result: TransferList };
  "transfers.cancel": { params: TransferId; result: TransferId };
  "uploads.begin": { params: UploadBegin; result: UploadState };
  "uploads.finish": { params: UploadId; result: UploadDone };
  "uploads.cancel": { params: UploadId; result: UploadId };
  "downloads.link": { params: DownloadFile; result: DownloadLink };
  "ports.list": { params: Empty; result: PortList };
  "ports.forward": { params: PortForward; result: PortForwarded };
  "nodes.list": { params: Empty; result: NodeList };
  "nodes.listen": { params: Empty; result: NodeList };
  "nodes.add": { params: NodeTags; result: Invitation };
  "nodes.renew": { params: NodeId; result: Invitation };
  "nodes.tag": { params: NodeTags; result: NodeTags };
  "nodes.rename": { params: NodeRename; result: NodeRenamed };
  "nodes.revoke": { params: NodeId; result: NodeId };
  "nodes.forget": { params: NodeId; result: NodeId };
  "nodes.processes": { params: NodeProcesses; result: ProcessList };
  "join.invite": { params: JoinInvite; result: JoinOffer };
  "join.rotateKey": { params: KeyRotate; result: KeyRotation };
  "tokens.list": { params: Empty; result: TokenList };
  "tokens.add": { params: TokenAdd; result: TokenAdded };
  "tokens.revoke": { params: TokenName; result: TokenName };
}

/** Events, by name. */
export interface Events {
  "tool.ack": ToolAck;
  "call.progress": CallProgress;
  "tools.changed": Empty;
  "session.event": SessionEventData;
  "transfers.changed": TransferList;
  "nodes.changed": NodeList;
  "inbox.changed": InboxList;
  "run.event": RunEventData;
  "process.ended": ProcessEnded;
  "missed": Missed;
}

/** A message that an event answers. */
export interface Addressee {
  id: string;
  from: string;
  /** The value that `sessions.send` passed. */
  replyTo?: unknown;
}

export interface AgentInfo {
  id: string;
  /** The balanced model when null. */
  model: string | null;
  /** `supervised`, `guided` or `autonomous`. */
  autonomy: string;
  workspace: string;
  /** The key of its main session. */
  sessionKey: string;
}

/** `result` of `agents.list`. */
export interface AgentList {
  agents: AgentInfo[];
}

/** `result` of `ansi.render`. */
export interface AnsiLines {
  lines: AnsiRun[][];
  /** The style at the end, for the text that follows. */
  style: AnsiStyle;
}

/** `params` of `ansi.render`: output of a command, at most 4 MB. */
export interface AnsiParams {
  text: string;
  /** The style in which the text before this one ended. */
  style?: AnsiStyle;
}

/** A piece of a line in one style. */
export interface AnsiRun {
  text: string;
  color?: string | null;
  background?: string | null;
  bold?: boolean;
  dim?: boolean;
  italic?: boolean;
  underline?: boolean;
  strike?: boolean;
  inverse?: boolean;
}

/** Colors are `0` to `255`, or `#rrggbb`; missing for the default color. */
export interface AnsiStyle {
  color?: string | null;
  background?: string | null;
  bold?: boolean;
  dim?: boolean;
  italic?: boolean;
  underline?: boolean;
  strike?: boolean;
  inverse?: boolean;
}

/** `params` of `sessions.answer`, and the body of `POST /v1/sessions/{key}/answers`. */
export interface AnswerParams {
  /** Needed over the WebSocket; over HTTP the path has it. */
  sessionKey?: string | null;
  /** The question's id. It may be left out while only one question is open. */
  question?: string | null;
  /** `yes`, `no` or `always` for an approval; else the answer to the agent's question. */
  answer?: string | null;
  /** The answers to several questions at once. */
  answers?: string[] | null;
  /** For `always`: the key of one of the question's offers. */
  offer?: string | null;
  /** For `always` without an offer: the calls that it covers; the same call when left out. */
  scope?: GrantScope | null;
  /** For `always` without an offer: the sessions in which it counts; this one when left out. */
  reach?: GrantReach | null;
  /** For `always`: the duration of the grant; the configured one when left out. */
  hours?: number | null;
}

/** `result` of `sessions.answer`. */
export interface AnswerResult {
  sessionKey: string;
  /** The effect of the answer, for people. */
  told: string;
}

/** `params` of `apis.get` and `apis.remove`; `result` of `apis.save` and `apis.remove`. */
export interface ApiId {
  id: string;
}

/** A profile of an API; one with problems has no effect. */
export interface ApiInfo {
  id: string;
  name?: string | null;
  baseUrl?: string | null;
  /** The agent that made it. */
  madeBy?: string | null;
  problems?: ApiProblem[];
}

/** `result` of `apis.list`. */
export interface ApiList {
  apis: ApiInfo[];
}

export interface ApiProblem {
  path: string;
  message: string;
}

/** `result` of `apis.get`. `docs/apis.md` describes the fields of a profile. */
export interface ApiProfile {
  id: string;
  profile: unknown;
}

/** `params` of `apis.save`. */
export interface ApiSave {
  profile: unknown;
  /** A profile with the same id is replaced. */
  replace?: boolean;
}

/** The result of `approval.ask`. */
export interface ApprovalAnswer {
  allow: boolean;
  /** The reason for a denial. */
  reason?: string | null;
}

/** `params` of `approval.ask`. Any result other than `{"allow": true}` denies the call. */
export interface ApprovalAsk {
  /** The id of the client's request, as text. */
  call: string;
  tool: string;
  rule: string;
  reason: string;
  input: unknown;
  fingerprint: string;
  /** What the call would do. Gateways of earlier versions do not send it. */
  action?: AskedAction | null;
}

/** The answer to a question whether a call may run. */
export type ApprovalDecision = 
  | { answer: "yes"; }
  | { answer: "no"; }
  | { answer: "always"; scope: GrantScope; until: number; reach?: GrantReach; grant?: string | null; }
  | { answer: "expired"; };

/** What a call would do. Secrets are masked, and long texts are shortened. `notShown` counts the characters that a shortened text does not show. A yes allows them too. */
export type AskedAction = 
  | { kind: "command"; command: string; machine: string; directory?: string | null; escalation?: string | null; sandboxed?: boolean; notShown?: number; }
  | { kind: "file_change"; machine: string; paths: string[]; change: ChangeKind; text?: string; notShown?: number; }
  | { kind: "file_read"; machine: string; path: string; }
  | { kind: "web_request"; method: string; url: string; host: string; sent?: string | null; notShown?: number; }
  | { kind: "connection"; host: string; port: number; command?: string | null; }
  | { kind: "message"; to: string; text: string; notShown?: number; }
  | { kind: "service_change"; service: string; what: string; text?: string; notShown?: number; }
  | { kind: "schedule"; what: string; when: string; text: string; notShown?: number; }
  | { kind: "other"; tool: string; input: unknown; notShown?: number; }
  | { kind: "unknown"; };

/** `result` of `audit.search`. */
export interface AuditPage {
  /** The newest first. `docs/security.md` describes the fields of a line. */
  lines: unknown[];
  /** There may be earlier lines, and this is the `before` of their page. */
  previous?: number | null;
}

export interface AuditProblem {
  /** The name of a full file; empty for the current one. */
  file: string;
  /** 0 for a problem of the whole log. */
  line: number;
  problem: string;
}

/** `params` of `audit.search`. A missing field matches everything. */
export interface AuditSearch {
  /** Part of the tool's name. */
  tool?: string | null;
  /** Part of the principal, such as `agent:` or `operator`. */
  principal?: string | null;
  agent?: string | null;
  status?: string | null;
  /** The id of a call. */
  call?: string | null;
  /** A text anywhere in the line. Upper and lower case are the same for `a` to `z`. */
  text?: string | null;
  /** In milliseconds since 1970, inclusive. */
  since?: number | null;
  /** In milliseconds since 1970, exclusive. */
  until?: number | null;
  /** Only lines before this number: the `previous` of the page before. */
  before?: number | null;
  /** 100 when left out; at most 1,000. */
  limit?: number | null;
}

/** `result` of `audit.verify`. */
export interface AuditVerified {
  intact: boolean;
  lines: number;
  files: number;
  problems: AuditProblem[];
  /** Problems that are not described. */
  furtherProblems: number;
}

/** A tool call without a model. */
export interface BackgroundCall {
  tool: string;
  input: unknown;
}

/** The limits of a session that the gateway started for a schedule, a task or a pipeline. */
export interface BackgroundLimits {
  /** Minutes until an unanswered question counts as a no. */
  approvalMinutes: number;
  /** The session makes this one call and asks no model. */
  call?: BackgroundCall | null;
}

/** `params` of a client's `tool.call`. */
export interface CallParams {
  tool: string;
  /** Absent means `{}`. */
  input?: unknown;
  /** Calls as this agent. */
  agent?: string | null;
  /** For the operator only: where relative paths start on the gateway's machine. */
  workspace?: string | null;
  /** Calls for the MCP client of this name. Its policy applies, and results are shortened. */
  mcp?: string | null;
  /** The caller answers `approval.ask`. */
  asks?: boolean;
}

/** `data` of `call.progress`. From a node, `call` is the `callId`. To a client, it is the id of its request. */
export interface CallProgress {
  call: string;
  done: number;
  total?: number | null;
  /** The unit of `done`, such as `bytes`, or the current action. */
  message: string;
}

/** `result` of `tool.call`: the answer of the tool, or its own error. A refusal by the gate is the response's `error`. */
export interface CallResult {
  /** The resolved name of the tool. */
  tool: string;
  /** The answer is the tool's own error, in its toolset's shape. */
  isError?: boolean;
  /** Either this or `text`. */
  json?: unknown;
  text?: string | null;
  warnings?: string[];
}

/** The caller for whom the gateway calls a node. The node's own gate applies its policy to it. */
export interface Caller {
  /** `operator`, `client:NAME`, `mcp:NAME`, `agent:ID` or `scheduler`. */
  principal: string;
  agent: string;
  /** `supervised`, `guided` or `autonomous`. */
  autonomy: string;
  /** `cli`, `http`, `websocket`, `mcp` or `agent`. */
  surface: string;
  /** The agent's session. Its commands on a node share one network. */
  session?: string | null;
  /** The labels of what the agent has read: `untrusted`, `private`. */
  labels?: string[];
  /** The gateway's gate let the command leave the sandbox. */
  escalated?: boolean;
  /** The gateway answers `connection.ask` for this call. */
  asks?: boolean;
}

/** A process: `result` of `processes.get`, and an item of `processes.list`. */
export interface CapturedProcess {
  id: string;
  agent: string;
  name: string;
  description: string;
  steps: ProcessStep[];
  parameters: PipelineParameter[];
  /** The session whose calls were recorded. */
  sessionKey: string;
  created: number;
  /** The pipeline that it was promoted to. */
  pipelineId?: string | null;
}

/** Names a process. A unique beginning of its id is enough. */
export interface CapturedProcessId {
  id: string;
}

/** `result` of `processes.list`, newest first. */
export interface CapturedProcessList {
  processes: CapturedProcess[];
}

/** What happens to a file. */
export type ChangeKind = "delete" | "create" | "change" | "replace" | "copy";

/** What a choice answers. */
export type ChatAnswer = 
  | { is: "yes"; }
  | { is: "no"; }
  | { is: "offer"; number: number; }
  | { is: "text"; text: string; };

export interface ChatChoice {
  label: string;
  answer: ChatAnswer;
}

/** What a message to a chat has besides its text. */
export interface ChatDetails {
  /** The provider's id of the message that it answers. */
  replyTo?: string | null;
  /** The question that it asks. */
  question?: ChatQuestion | null;
  /** The key of the earlier message whose text it replaces. */
  edits?: string | null;
  /** The text is sent as a file with this name. */
  file?: string | null;
  /** It waits until the owner allows it. */
  held?: boolean;
}

/** A question in a chat, which the owner answers there. */
export interface ChatQuestion {
  /** Names the question in buttons. */
  handle: string;
  kind: ChatQuestionKind;
  /** The session that asks. For a held message, empty. */
  sessionKey: string;
  /** The id of the question, or of the held message. */
  question: string;
  /** The answers that can be chosen, in order. */
  choices: ChatChoice[];
}

export type ChatQuestionKind = "approval" | "asked" | "held_message";

/** The highest amount that may be spent on an account and the accounts below it. */
export interface ChildBudget {
  account: string;
  /** In billionths of a US dollar. */
  limit: number;
  /** Models without a known price count as free. */
  allows_unpriced?: boolean;
}

/** Who started a child session, and the limits it works within. */
export interface ChildLimits {
  /** Its name, for people. */
  name: string;
  /** The session that started it, or the principal if no session did. */
  parent: string;
  /** The first session of the family. The child's questions are asked there. */
  root: string;
  /** The call of the parent that waits for the child. */
  step: string;
  /** The id of its first message. */
  message: string;
  /** 1 for a child of a session that is not a child itself. */
  depth: number;
  /** The child is stopped at this time. */
  deadline: number;
  role?: string | null;
  /** The configured agent that it was started from. */
  template?: string | null;
  /** Agents whose rules and tool limits also apply to it. */
  alsoAs?: string[];
  model?: string | null;
  thinking?: ThinkingMode | null;
  /** `low`, `medium` or `high`. */
  effort?: string | null;
  /** Replaces its agent's prompt. */
  prompt?: string | null;
  /** It may call the tools that every entry allows. */
  tools: ChildTools[];
  /** The tools that its model is offered, if they are listed. */
  shown?: string[] | null;
  /** `supervised`, `guided` or `autonomous`. */
  autonomy: string;
  workspace: string;
  /** The highest number of requests to its model. */
  maxTurns?: number | null;
  /** The longest answer of its model, in tokens. */
  maxTokens?: number | null;
  /** The account that is charged, below the account of its parent's run. */
  account: string;
  /** Its own budget and those of the sessions above it. */
  budgets?: ChildBudget[];
  /** It does not see its parent's memory. */
  isolatedMemory: boolean;
  /** A session above it is autonomous, so calls that need an approval are denied. */
  unattended?: boolean;
  /** No call waits for it: the gateway started it. */
  background?: BackgroundLimits | null;
}

/** The name and key of a child session that asks. */
export interface ChildName {
  name: string;
  sessionKey: string;
}

/** Names, globs, toolsets, effects and properties of tools. */
export interface ChildTools {
  /** All tools when left out. */
  allow?: string[] | null;
  deny?: string[];
}

/** The reason in a close frame, such as `{"code":"node_renamed","newId":"desk"}`. */
export type CloseReason = 
  | { code: "done"; }
  | { code: "stopping"; }
  | { code: "node_stopping"; }
  | { code: "refused"; error: ErrorCode; }
  | { code: "replaced"; }
  | { code: "node_renamed"; newId: string; }
  | { code: "node_forgotten"; }
  | { code: "node_token_renewed"; }
  | { code: "node_token_revoked"; }
  | { code: "token_revoked"; }
  | { code: "token_expired"; }
  | { code: "page_session_ended"; }
  | { code: "tools_missing"; }
  | { code: "main_closed"; }
  | { code: "silent"; }
  | { code: "bad_frames"; }
  | { code: "no_room"; }
  | { code: "too_slow"; }
  | { code: "too_large"; };

/** `params` of `config.check` and `config.set`. */
export interface ConfigChange {
  /** With dots between levels, such as `shell.sandbox`. */
  key: string;
  /** The new value; null removes the key, so that its default applies. */
  value: unknown;
  /** The hash that the change is based on. If the file has changed since, the change is `conflict`. */
  hash?: string | null;
}

/** `result` of `config.check` and `config.set`. The violations of an invalid change are in the error's `details`. */
export interface ConfigChanged {
  /** Of the file after the change; of the file as it is after a check. */
  hash: string;
  /** The change counts after a restart of the gateway. */
  needsRestart: boolean;
}

/** `result` of `config.schema`. */
export interface ConfigSchema {
  schema: unknown;
}

/** `result` of `config.get`. */
export interface ConfigShown {
  file: string;
  /** Of the file. A change names the hash that it is based on. */
  hash: string;
  /** The values in effect; secrets are masked. */
  values: unknown;
  /** The keys that are set in the file. */
  set: string[];
  warnings: string[];
}

/** `params` of `connect`. */
export interface ConnectParams {
  protocol: ProtocolRange;
  role: Role;
  /** The id of a node, or any name for a client. */
  id: string;
  version: string;
  /** `linux-x64` form. */
  platform: string;
  /** Left out by the web page, which has a `pageKey`. */
  token?: string;
  /** The key of a page session. It counts only with the cookie of the same session. */
  pageKey?: string | null;
  /** For role `node` only. */
  node?: NodeHello | null;
}

/** `result` of `connect`. */
export interface ConnectResult {
  protocol: number;
  server: ServerInfo;
  /** Those of the node's `calls` whose caller still waits. The node ends and forgets the others. */
  wanted: string[];
  /** For clients: the directory where relative paths start on the gateway's machine. */
  workspace?: string | null;
}

/** `params` of `connection.ask`: a command of a running call wants to connect to a host. The result is that of `approval.ask`. */
export interface ConnectionAsk {
  /** The `callId` of the gateway's `tool.call`. */
  call: string;
  host: string;
  port: number;
}

/** `result` of `cron.cancel`. */
export interface CronCancelled {
  runId: string;
  text: string;
}

/** `params` of `cron.confirm`. */
export interface CronConfirm {
  /** The job's id, a unique beginning of it, or its name. */
  id: string;
  /** The `contentHash` of what the person read. A job with other content is not allowed. */
  seen?: string | null;
}

/** A date as text, or as milliseconds since 1970. */
export type CronDate = number | string;

/** `result` of `cron.history`, the newest first. */
export interface CronHistory {
  runs: CronRun[];
  /** The number of rows that match. */
  count: number;
}

/** `params` of `cron.history`. */
export interface CronHistoryParams {
  /** Only this job. */
  jobId?: string | null;
  /** 1 to 2,000; 200 when left out. */
  limit?: number | null;
  offset?: number | null;
}

/** An instant of a job. */
export interface CronInstant {
  atMs: number;
  /** In the job's time zone. */
  local: string;
  utc: string;
}

/** A scheduled job. */
export interface CronJob {
  id: string;
  agentId: string;
  name: string;
  description?: string | null;
  enabled: boolean;
  deleteAfterRun?: boolean;
  createdAtMs: number;
  updatedAtMs: number;
  /** `{kind:"at", atMs}`, `{kind:"every", everyMs, anchorMs}` or `{kind:"cron", expr, tz}`. */
  schedule: unknown;
  /** `{mode:"systemEvent", text}` or `{mode:"task", message, deliver, …}`. */
  spec: unknown;
  catchUp: string;
  overlap: string;
  jitterSeconds: number;
  carry: string;
  state: CronJobState;
  /** The next three runs. */
  nextRuns: CronInstant[];
  scheduleHuman: string;
  nextRunHuman?: string | null;
  lastRunHuman?: string | null;
  /** The person who allowed it. A job that an agent added does not run before. */
  confirmedBy?: string | null;
  createdBy: string;
  /** Identifies what the job does. `cron.confirm` takes it as `seen`. */
  contentHash: string;
  /** What the reader should know about this answer. */
  notes?: string[];
}

/** A job to add, or the fields of a job to change. */
export interface CronJobInput {
  /** A name for people. Required to add a job. */
  name?: string | null;
  /** When it runs. Required to add a job. */
  schedule?: CronScheduleInput | null;
  /** What it does. Required to add a job. */
  spec?: CronSpecInput | null;
  /** The agent that runs it. */
  agentId?: string | null;
  description?: string | null;
  /** Whether it is active (default true). */
  enabled?: boolean | null;
  /** Delete the job after a successful run, for "at". */
  deleteAfterRun?: boolean | null;
  /** What happens to times at which the gateway was not running: "last" runs the last one once if it is not too late (default), "none" runs nothing. */
  catchUp?: string | null;
  /** What happens when the previous run has not ended: "skip" (default) or "queue". */
  overlap?: string | null;
  /** Starts each run later by a fixed part of this, 0 to 3,600 seconds (default 0). */
  jitterSeconds?: number | null;
  /** "summary" gives each run the last run's answer; "none" is the default. */
  carry?: string | null;
}

/** `result` of `cron.list`. The nearest next run comes first. */
export interface CronJobList {
  jobs: CronJob[];
  /** The number of jobs that match. */
  count: number;
  timezone: string;
  currentTime: string;
}

/** The state of a job. */
export interface CronJobState {
  nextRunAtMs?: number | null;
  /** The start of the run in progress. */
  runningAtMs?: number | null;
  lastRunAtMs?: number | null;
  lastStatus?: string | null;
  lastError?: string | null;
  lastDurationMs?: number | null;
  /** Errors in a row. */
  consecutiveErrors: number;
  /** Runs in a row that were skipped because a run takes longer than the interval. */
  skippedInARow: number;
  /** Why the job does not run until somebody resumes it. */
  paused?: CronPause | null;
}

/** `params` of `cron.list`. */
export interface CronListParams {
  /** Only the jobs of this agent. */
  agentId?: string | null;
  /** True when left out. */
  includeDisabled?: boolean | null;
  /** 1 to 500; 200 when left out. */
  limit?: number | null;
  offset?: number | null;
}

/** `params` of methods that name one job, or one run for `cron.cancel`. */
export interface CronParams {
  /** The id, or a unique beginning of it. */
  id: string;
}

/** Why a job was paused. */
export interface CronPause {
  reason: string;
  at: number;
  /** The errors in a row that led to it. */
  count: number;
}

/** A run that was started by hand: a result of `cron.run`. */
export interface CronQueued {
  jobId: string;
  runId: string;
  /** `queued`. */
  status: string;
  summary: string;
}

/** `result` of `cron.remove`. */
export interface CronRemoved {
  removed: boolean;
}

/** One occurrence of a job, with its run if it had one. */
export interface CronRun {
  jobId: string;
  runId?: string | null;
  /** `due`, `catchup` or `manual`. */
  kind: string;
  scheduledAtMs: number;
  /** When the scheduler recorded it. */
  admittedAtMs: number;
  /** The last instant that the row covers, if it covers several missed ones. */
  throughMs?: number | null;
  startedAtMs?: number | null;
  endedAtMs?: number | null;
  /** `queued`, `running`, `parked`, `ok`, `error`, `skipped`, `missed`, `interrupted` or `cancelled`. */
  status: string;
  error?: string | null;
  summary?: string | null;
  durationMs?: number | null;
  sessionKey?: string | null;
  costUsd?: number | null;
  /** `none`, `queued`, `sent`, `failed` or `unknown`. */
  delivery: string;
}

/** When a job is due. `kind` decides which fields count. */
export interface CronScheduleInput {
  /** "at" (once), "every" (interval) or "cron" (expression). */
  kind?: string;
  /** For "at": "2026-03-05 09:00", "2026-03-05T09:00:00+01:00", "in 2 hours", "today at 17:30", "tomorrow at 9am". Without a zone it is in the user's time zone. */
  at?: CronDate | null;
  /** For "at": a relative time, such as "in 30 minutes". */
  in?: string | null;
  /** For "at": milliseconds since 1970. */
  atMs?: number | null;
  /** For "every": the interval in minutes, at least 1. Give one of the every fields. */
  everyMinutes?: number | null;
  everyHours?: number | null;
  everyDays?: number | null;
  everySeconds?: number | null;
  everyMs?: number | null;
  /** For "every": the first run, as for "at". Intervals are counted from it; from now when left out. */
  anchor?: CronDate | null;
  anchorMs?: number | null;
  /** For "cron": five fields (minute, hour, day of month, month, weekday), such as "0 9 * * 1-5". */
  expr?: string | null;
  /** For "cron": an IANA time zone, such as "Europe/Berlin"; the user's when left out. */
  tz?: string | null;
}

/** What a job does. `mode` decides which fields count. */
export interface CronSpecInput {
  /** "systemEvent": put `text` into the agent's main session. "task": run `message` in a session of its own. */
  mode?: string;
  /** For "systemEvent": the message to the agent. */
  text?: string | null;
  /** For "task": the task. The session knows nothing but this text. */
  message?: string | null;
  /** For "task": send the answer to the user (default true). */
  deliver?: boolean | null;
  /** For "task": where the answer goes: "session", or the name of a configured webhook. */
  channel?: string | null;
  /** For "task": the receiver in that channel, such as a session's key. */
  to?: string | null;
  /** For "task": the model; the agent's own when left out. */
  model?: string | null;
  /** For "task": off, on, low, medium, high, or a number of tokens. */
  thinking?: string | null;
  /** For "task": the time limit of a run, 1 to 86,400 seconds (default 1,800). */
  timeoutSeconds?: number | null;
  /** For "task": a failed delivery does not make the run an error. */
  bestEffortDeliver?: boolean | null;
}

/** `result` of `cron.status`. */
export interface CronStatus {
  /** Whether jobs run at all. */
  enabled: boolean;
  count: number;
  dueCount: number;
  runningCount: number;
  nextRunAtMs?: number | null;
  maxJobs: number;
  maxConcurrentRuns: number;
  currentTime: string;
  timezone: string;
}

/** `params` of `cron.status`. */
export interface CronStatusParams {
  /** Only the jobs of this agent. */
  agentId?: string | null;
}

/** `params` of `cron.update`. */
export interface CronUpdateParams {
  /** The job's id, or a unique beginning of it. */
  id: string;
  patch: CronJobInput;
}

/** `params` of `diff.render`: two texts, or a patch. At most 4 MB in all. */
export interface DiffParams {
  before?: string | null;
  after?: string | null;
  /** A unified diff, in place of `before` and `after`. */
  patch?: string | null;
  /** Lines that are shown around a change; 3 when left out. */
  context?: number | null;
  /** The first row; 0 when left out. */
  offset?: number;
}

export interface DiffRow {
  kind: DiffRowKind;
  /** The number of the line before the change. */
  before?: number | null;
  /** The number of the line after the change. */
  after?: number | null;
  /** Without the line's end. Of a `gap` and a `file`, what is shown in its place. */
  text: string;
}

export type DiffRowKind = "same" | "added" | "removed" | "gap" | "file";

/** `result` of `diff.render`. */
export interface DiffRows {
  /** At most 2,000. */
  rows: DiffRow[];
  /** Rows in all. */
  total: number;
  added: number;
  removed: number;
  /** The first of the rows that follow. */
  nextOffset?: number | null;
}

export interface DoctorFinding {
  /** `ok`, `warning` or `error`. */
  level: string;
  message: string;
  fix?: string | null;
}

/** `result` of `gateway.doctor`. */
export interface DoctorReport {
  /** By feature area. */
  findings: { [key: string]: DoctorFinding[] };
}

/** `params` of `downloads.link`: a file in an agent's storage. */
export interface DownloadFile {
  /** `main` when left out. */
  agent?: string | null;
  path: string;
  /** Where the download begins; 0 when left out. An interrupted one continues there. */
  offset?: number;
  /** The version that an interrupted download began with. Another one is `conflict`. */
  etag?: string | null;
}

/** `result` of `downloads.link`. */
export interface DownloadLink {
  /** Works for one request within 60 seconds, without further authentication. */
  url: string;
  name: string;
  /** Of the whole file. */
  size: number;
  etag: string;
}

/** Parameters or a result without fields. */
export type Empty = Record<string, never>;

/** The reason why a request failed. HTTP uses the same codes. */
export type ErrorCode = "unsupported_protocol" | "unauthorized" | "unknown_method" | "bad_params" | "not_found" | "conflict" | "too_large" | "too_many" | "unknown_tool" | "invalid_input" | "denied" | "approval_needed" | "unaudited" | "unavailable" | "deadline" | "cancelled" | "internal" | "bad_frame" | "not_connected" | "forbidden" | "prefix_mismatch" | "failed";

/** `params` of `gateway.key`, by which a gateway announces its next key to a node. */
export interface GatewayKey {
  /** The public key in use, as DER in base64. */
  current: string;
  /** The next key, as `sha256//BASE64`. */
  next: string;
  /** The signature of the key in use, in base64. */
  signature: string;
}

/** `result` of `gateway.status`. */
export interface GatewayStatus {
  /** The models that agents have. */
  models?: ModelsReport | null;
  /** Changed keys of the configuration file that need a restart of the gateway. */
  needsRestart: string[];
}

/** A grant. */
export interface GrantInfo {
  id: string;
  agent: string;
  /** The session in which it was given. */
  sessionKey: string;
  reach: GrantReach;
  scope: GrantScope;
  /** What it allows, for people. */
  label: string;
  tool: string;
  /** The rule that asked. */
  rule: string;
  /** The call that was asked about, for people. */
  asked: string;
  /** Who gave it. */
  by: string;
  created: number;
  expires: number;
}

/** `result` of `grants.list`: the grants that count now. The newest comes first. */
export interface GrantList {
  grants: GrantInfo[];
}

/** A grant that a question suggests. */
export interface GrantOffer {
  /** Names the offer in an answer. */
  key: string;
  /** What it allows, for people. */
  label: string;
  scope: GrantScope;
  reach: GrantReach;
  /** How long it counts. */
  hours: number;
}

/** `params` of `grants.revoke`. */
export interface GrantParams {
  id: string;
}

/** The sessions in which a grant counts. */
export type GrantReach = "session" | "agent";

/** The calls that a grant covers. */
export type GrantScope = 
  | "call"
  | "tool"
  | { prefix: string[]; }
  | { host: string; }
  | { path: string; }
  | { recipient: string; };

/** `params` of `grants.list`. */
export interface GrantsListParams {
  /** Only the grants of this agent. */
  agent?: string | null;
}

export interface GraphEdge {
  from: string;
  to: string;
}

/** `result` of `graph.layout`: a picture from left to right. */
export interface GraphLayout {
  width: number;
  height: number;
  /** In the order of the request. */
  nodes: GraphPlace[];
  /** In the order of the request. An edge is drawn through its points. */
  edges: GraphLine[];
}

export interface GraphLine {
  from: string;
  to: string;
  /** Pairs of x and y. */
  points: number[][];
}

export interface GraphNode {
  id: string;
  /** 160 when left out; at most 1,000. */
  width?: number | null;
  /** 48 when left out; at most 1,000. */
  height?: number | null;
}

/** `params` of `graph.layout`: at most 500 nodes and 2,000 edges. */
export interface GraphParams {
  nodes: GraphNode[];
  edges: GraphEdge[];
}

export interface GraphPlace {
  id: string;
  /** The left edge. */
  x: number;
  /** The upper edge. */
  y: number;
  width: number;
  height: number;
  /** The number of the column. */
  layer: number;
}

/** The answer of `GET /health`. */
export interface Health {
  status: HealthStatus;
  version: string;
}

export type HealthStatus = "ok" | "stopping";

/** `result` of `sessions.history`. */
export interface History {
  sessionKey: string;
  events: HistoryEvent[];
  /** The first event of the next page, if there is one. */
  next: number | null;
  /** With `before`: there are earlier events, and this is the `before` of their page. */
  previous?: number | null;
}

/** A part of a model's reply or of a call's result. */
export type HistoryBlock = 
  | { type: "text"; text: string; }
  | { type: "tool_use"; id: string; name: string; input: unknown; }
  | { type: "other"; };

export interface HistoryCallResult {
  is_error: boolean;
  content: HistoryBlock[];
}

/** The part of a journal entry that clients show. It is separate from the agent's `Entry`, which is the storage format: a client reads fewer fields, and has to accept kinds that a newer gateway wrote. */
export type HistoryEntry = 
  | { kind: "message_in"; from: string; text: string; }
  | { kind: "notice"; from: string; text: string; }
  | { kind: "replied"; reply: HistoryReply; }
  | { kind: "call_ended"; result: HistoryCallResult; }
  | { kind: "call_interrupted"; call: string; }
  | Question & { kind: "approval_asked"; }
  | { kind: "approval_answered"; answer: ApprovalDecision; by: string; }
  | UserAsked & { kind: "user_asked"; }
  | { kind: "user_answered"; answers: string[]; by: string; }
  | { kind: "compacted"; }
  | { kind: "reset"; why: string; }
  | { kind: "run_ended"; end: RunEnd; }
  | { kind: "other"; };

/** An entry of a session's journal. [`HistoryEvent::entry`] reads its data. */
export interface HistoryEvent {
  seq: number;
  at: number;
  kind: string;
  data: unknown;
}

export interface HistoryMessage {
  content: HistoryBlock[];
}

/** `params` of `sessions.history`. */
export interface HistoryParams {
  sessionKey: string;
  /** The number of the first event; 0 when left out. */
  from?: number | null;
  /** In place of `from`: the last events before this number. A large number means the end. */
  before?: number | null;
  limit?: number | null;
}

export interface HistoryReply {
  message: HistoryMessage;
}

export interface HttpError {
  code: string;
  message: string;
  hint?: string | null;
}

/** The body of an HTTP error for a request that did not reach a tool. */
export interface HttpProblem {
  error: HttpError;
}

export type InboxItem = { agent: string; sessionKey?: string | null; label?: string | null; labels?: string[]; } & (
  | { kind: "approval"; question: Question; }
  | { kind: "question"; asked: UserAsked; }
  | { kind: "plan"; plan: PlanInfo; });

/** `result` of `inbox.list`, and data of `inbox.changed`: the oldest item first. */
export interface InboxList {
  items: InboxItem[];
}

/** `result` of `nodes.add` and `nodes.renew`. The token is shown only once. */
export interface Invitation {
  id: string;
  token: string;
  /** The public URL of the gateway, if it is configured. */
  publicUrl?: string | null;
}

/** `params` of `join.invite`. */
export interface JoinInvite {
  id: string;
  tags?: string[];
  /** Lets a node that has connected before join again. Its token is invalid from then on. */
  renew?: boolean;
  /** The addresses for the code, such as the local end of a tunnel, in place of those that the gateway knows. */
  addresses?: string[];
}

/** `result` of `join.invite`. The code is shown only once. */
export interface JoinOffer {
  id: string;
  code: string;
  /** Milliseconds since 1970. */
  expires: number;
  /** Where the machine looks for the gateway, in this order. */
  addresses: string[];
  /** The gateway's key, as `sha256//BASE64`, unless a trusted authority proves who the gateway is. */
  key?: string | null;
  /** Where a machine of the platform `platform` can download this program, with the code in the header `gantry-join`. */
  program?: string | null;
  /** Whether `program` is recognised by `key` and not by an authority. */
  pinned: boolean;
  platform: string;
}

/** The body of `POST /join`. */
export interface JoinRequest {
  id: string;
  /** The token of the join code, in base64url. */
  code: string;
  /** The token that the node will use. The machine makes it, so that a repeated request is harmless. */
  nodeToken: string;
}

/** The answer of `POST /join`. */
export interface Joined {
  id: string;
  /** The version of the gateway. */
  version: string;
}

/** `params` of `join.rotateKey`. */
export interface KeyRotate {
  /** Uses the next key at once. Nodes that do not know it yet have to join again. */
  now?: boolean;
}

/** `result` of `join.rotateKey`. */
export interface KeyRotation {
  /** The new key, as `sha256//BASE64`. */
  key: string;
  /** Whether the gateway uses the new key now. */
  inUse: boolean;
  /** Nodes that accepted the new key. */
  adopted: string[];
  /** Nodes that do not know the new key yet. */
  waiting: string[];
}

/** `result` of `sessions.listen`. */
export type ListenResult = Listened | SessionParams;

/** The state of a session when a client begins to listen. Every later event is new. */
export interface Listened {
  sessionKey: string;
  agent: string;
  model: string;
  workspace: string;
  /** The run in progress. */
  running: string | null;
  /** Messages that wait for a run. */
  queued: number;
  /** Messages in the conversation. */
  messages: number;
  /** Events in the journal. */
  events: number;
  compactions: number;
  runs: number;
  usage: TokenUsage;
  /** Any of `untrusted` and `private`. */
  labels: string[];
  /** Calls that wait for an approval. */
  questions: Question[];
  /** The agent's open questions to its user. */
  asks: UserAsked[];
  /** The limits of a child session. */
  child?: ChildLimits | null;
  /** The number of entries in the journal: `sessions.history` has all of them. Earlier gateways send 0. */
  seq: number;
  /** What the model has written of a reply that is not in the journal yet. */
  unfinished?: UnfinishedReply | null;
}

/** `params` of `logs.get`. */
export interface LogsParams {
  lines: number;
}

export interface LogsResult {
  lines: string[];
  /** There are older lines. */
  truncated: boolean;
}

export interface ManifestPage {
  /** Parents come before their children. Names are in byte order. */
  entries: WireEntry[];
  /** Whether this is the last page. */
  last: boolean;
}

export type MarkdownAlign = "none" | "left" | "center" | "right";

/** A block of a document. Nothing else occurs: tags of HTML are text, pictures are links. */
export type MarkdownBlock = 
  | { block: "paragraph"; content: MarkdownInline[]; }
  | { block: "heading"; level: number; content: MarkdownInline[]; }
  | { block: "code"; language: string; text: string; }
  | { block: "quote"; blocks: MarkdownBlock[]; }
  | { block: "list"; start?: number | null; items: MarkdownItem[]; }
  | { block: "table"; align: MarkdownAlign[]; header: MarkdownInline[][]; rows: MarkdownInline[][][]; }
  | { block: "rule"; };

export interface MarkdownDocument {
  blocks: MarkdownBlock[];
  /** The first blocks that do not change when more text follows. */
  settledBlocks: number;
  /** Where the text of the other blocks begins, in UTF-16 units. */
  settled: number;
}

/** `result` of `markdown.render`, in the order of the texts. */
export interface MarkdownDocuments {
  documents: MarkdownDocument[];
}

export type MarkdownInline = 
  | { inline: "text"; text: string; }
  | { inline: "code"; text: string; }
  | { inline: "emphasis"; content: MarkdownInline[]; }
  | { inline: "strong"; content: MarkdownInline[]; }
  | { inline: "strike"; content: MarkdownInline[]; }
  | { inline: "link"; href: string; host?: string | null; content: MarkdownInline[]; }
  | { inline: "break"; };

export interface MarkdownItem {
  /** Whether the item of a list of tasks is done. */
  done?: boolean | null;
  blocks: MarkdownBlock[];
}

/** `params` of `markdown.render`: at most 1,000 texts, 8 MB in all. */
export interface MarkdownParams {
  texts: string[];
}

/** `params` of `mcp.accept`. */
export interface McpAccept {
  name: string;
  /** All new and changed tools when left out. */
  tool?: string | null;
  /** From `mcp.review`. If the tools have changed since, nothing is accepted. */
  seen: string;
}

/** `result` of `mcp.accept`. */
export interface McpAccepted {
  name: string;
  /** The accepted tools. */
  accepted: string[];
}

/** `params` of `mcp.review`. */
export interface McpReview {
  name: string;
}

/** `result` of `mcp.review`: the tools that the server offers now. */
export interface McpReviewed {
  name: string;
  tools: McpTool[];
  /** Identifies what is shown. `mcp.accept` takes it. */
  seen: string;
}

export interface McpServer {
  name: string;
  /** As the server offered them last. */
  tools: McpTool[];
  /** How its program is confined, for people. */
  confinement?: string | null;
  problem?: string | null;
}

/** `result` of `mcp.servers`. */
export interface McpServerList {
  servers: McpServer[];
  /** For people. */
  problems: string[];
}

export interface McpTool {
  name: string;
  /** `ready`, `new`, `changed`, `unusable`, `gone` or `notChosen`. Agents and clients are offered ready ones only. */
  state: string;
  /** Why it is unusable. */
  reason?: string | null;
  /** What would be accepted, as a difference for people. Only `mcp.review` has it. */
  difference?: string | null;
}

/** `params` of `sessions.send`, and the body of `POST /v1/sessions/{key}/messages`. */
export interface MessageParams {
  /** Needed over the WebSocket; over HTTP the path has it. */
  sessionKey?: string | null;
  message: string;
  /** A message with the id of an earlier one is a repetition and does not run again. */
  id?: string | null;
  /** Stored, and returned with the answer. */
  replyTo?: unknown;
  /** The new working directory of the conversation. Only the operator may set it. */
  workspace?: string | null;
  /** What the message contains: `untrusted` for text that others wrote, `private`. */
  labels?: string[];
  /** Pictures for the model, at most [`MAX_PICTURES`]. */
  pictures?: Picture[];
}

/** `data` of the event `missed`. */
export interface Missed {
  events: number;
}

/** US dollars for a million tokens. */
export interface ModelPrice {
  input: number;
  output: number;
  cacheRead: number;
  cacheWrite: number;
}

export interface ModelReport {
  /** As `provider/model`. */
  name: string;
  provider: string;
  model: string;
  baseUrl: string | null;
  hasKey: boolean;
  found: boolean;
  /** The tiers of the model, and `fallback`. */
  is: string[];
  contextWindow: number;
  maxOutput: number;
  price: ModelPrice | null;
  pricesAsOf: string;
}

export interface ModelsReport {
  providers: ProviderReport[];
  models: ModelReport[];
  /** Limits on spending, for people. */
  budgets: string[];
  warnings: string[];
}

export type ModificationAction = "remove" | "update_task";

/** The fields of a new task. `tasks.add` and `task_create` take them. */
export interface NewTask {
  /** What is to be done, in a few words. At most 200 characters. */
  title: string;
  /** Everything that whoever does it has to know. At most 20,000 characters. */
  description?: string | null;
  /** Default medium. */
  priority?: TaskPriority | null;
  /** YYYY-MM-DD. */
  due_date?: string | null;
  /** global, user:owner (default), agent:NAME, or a configured scope. */
  scope?: string | null;
  /** At most 20 words. */
  tags?: string[] | null;
  /** The task that this one is a part of: its id, or a unique beginning of it. */
  parent_task_id?: string | null;
  /** Runs it at these times: a cron expression with five fields, "every 5 minutes", "30m", "1h" or "1d". */
  schedule?: string | null;
  /** Watches this page and runs when its readable text changes. The run sees the changes and has read-only tools. */
  watch_url?: string | null;
  /** Minutes between two looks at the page: 60 by default, at least 5. */
  watch_interval_minutes?: number | null;
  /** Runs this stored pipeline: at once, or at the times of schedule. */
  pipeline_id?: string | null;
  /** Values of the pipeline's parameters. */
  params?: Record<string, never> | null;
  /** user, agent (yourself), or the name of an agent. An agent starts at once, in the background. */
  assignee?: string | null;
}

export interface NodeHello {
  /** Changes with every start of the node's process. A new instance has forgotten all calls. */
  instance: string;
  /** A second socket of a connected node, for streams only. */
  bulk?: boolean;
  /** The capabilities of each tool. The schemas follow with `node.tools`. */
  tools?: { [key: string]: string[] };
  hostCapabilities?: string[];
  /** Calls of this instance that are running, or whose result was not acknowledged. */
  calls?: string[];
}

/** `params` of `nodes.renew`, `nodes.revoke` and `nodes.forget`; `result` of the last two. */
export interface NodeId {
  id: string;
}

/** A node as `nodes.list` and `GET /v1/nodes` show it. */
export interface NodeInfo {
  id: string;
  online: boolean;
  revoked: boolean;
  tags: string[];
  clientPlatform: string | null;
  clientVersion: string | null;
  firstSeen: number | null;
  lastSeen: number | null;
  hostCapabilities: string[];
  /** By tool. */
  toolCapabilities: { [key: string]: string[] };
  /** The number of running calls. */
  inFlight: number;
  /** The time of the last ping and its answer, in milliseconds. */
  latencyMs?: number | null;
}

/** `result` of `nodes.list`. */
export interface NodeList {
  nodes: NodeInfo[];
}

/** `params` of `nodes.processes`. */
export interface NodeProcesses {
  id: string;
  /** 50 when left out, at most 1,000. */
  limit?: number | null;
}

/** `params` of `nodes.rename`. */
export interface NodeRename {
  id: string;
  newId: string;
}

/** `result` of `nodes.rename`. */
export interface NodeRenamed {
  id: string;
  /** Names of policy rules that name the old id, and do not apply to the new one. */
  rules: string[];
}

/** `params` of `nodes.add` and `nodes.tag`. */
export interface NodeTags {
  id: string;
  /** The tags of the node. They replace the previous ones. */
  tags: string[];
}

/** `params` of `node.tools`. A node can be called once this has been answered. */
export interface NodeTools {
  tools: WireTool[];
}

/** What happens when a step fails. */
export type OnFailure = "stop" | "continue" | "notify";

/** `result` of `outbox.list`. Messages that need a person come first, then the newest. */
export interface OutboxList {
  messages: OutboxMessage[];
  /** The number of messages that match. */
  total: number;
}

/** `params` of `outbox.list`. */
export interface OutboxListParams {
  /** Only messages in this state. */
  state?: OutboxState | null;
  /** 1 to 500; 100 when left out. */
  limit?: number | null;
  offset?: number | null;
}

/** A message in the outbox. */
export interface OutboxMessage {
  id: string;
  /** A message is stored once per key. */
  dedupe: string;
  /** `session`, the name of a webhook, or a chat account such as `telegram:default`. */
  channel: string;
  /** The receiver in that channel: a session's key, a chat's address as JSON, or empty for a webhook. */
  target: string;
  /** The agent whose work it is about. */
  agent: string;
  title: string;
  text: string;
  /** What it comes from, such as `cron:JOB`. */
  from: string;
  /** The labels of the conversation that the text comes from. */
  labels?: string[];
  /** For chats only. */
  chat?: ChatDetails | null;
  state: OutboxState;
  attempts: number;
  /** The time of the next attempt, while it waits. */
  nextAt?: number | null;
  created: number;
  updated: number;
  expires: number;
  /** Why the last attempt failed. */
  error?: string | null;
  /** The receiver's id of the message, if it has one. */
  providerId?: string | null;
}

/** `params` of `outbox.show`, `outbox.resend`, `outbox.arrived` and `outbox.drop`. */
export interface OutboxParams {
  /** The message's id, or a unique beginning of it. */
  id: string;
}

/** The state of a message in the outbox. */
export type OutboxState = "sent" | "held" | "queued" | "sending" | "failed" | "unknown" | "expired" | "dropped";

/** `result` of `page.link`. The page is opened at `/#login=CODE`. */
export interface PageLink {
  /** Valid for one login. */
  code: string;
  /** When the code expires, in milliseconds since 1970. */
  expires: number;
  /** The configured URL at which other machines reach the gateway. */
  publicUrl?: string | null;
}

/** The body of `POST /login`. */
export interface PageLogin {
  code: string;
}

/** The answer of `POST /login`. The cookie of the session is in the answer's header. */
export interface PageLoginResult {
  /** Sent with every request: as the header `Gantry-Page-Key`, or as `pageKey` in `connect`. */
  key: string;
  /** The id of the session. */
  session: string;
}

/** `params` of `page.revoke`. */
export interface PageRevoke {
  /** The id of a session or its unique beginning, or `all`. */
  id: string;
}

/** `result` of `page.revoke`. */
export interface PageRevoked {
  /** The revoked sessions. */
  ids: string[];
}

export interface PageSessionInfo {
  id: string;
  /** The browser's name for itself. */
  browser: string;
  /** The address that logged in. */
  address: string;
  created: number;
  lastUsed: number;
  /** This session sent the request. */
  current: boolean;
}

/** `result` of `page.sessions`, the last used first. */
export interface PageSessionList {
  sessions: PageSessionInfo[];
}

/** Where the value of a parameter comes from. */
export type ParameterSource = "user_input" | "relative_date" | "context";

/** A picture in a message. */
export interface Picture {
  /** `image/png`, `image/jpeg`, `image/gif` or `image/webp`. */
  mediaType: string;
  /** In base64. The pictures of a message have at most [`MAX_PICTURE_BYTES`] together. */
  data: string;
}

/** `params` of `pipelines.add`. */
export interface PipelineAdd {
  /** The agent that does the work; `main` when absent. */
  agent?: string | null;
  definition: PipelineDefinition;
}

/** A pipeline, as a file or a request describes it. */
export interface PipelineDefinition {
  name: string;
  steps: PipelineStep[];
  parameters?: PipelineParameter[];
  on_failure: OnFailure;
}

/** Names a pipeline. A unique beginning of its id is enough. */
export interface PipelineId {
  id: string;
}

/** `result` of `pipelines.get`, and an item of `pipelines.list`. */
export interface PipelineInfo {
  id: string;
  agent: string;
  definition: PipelineDefinition;
  /** `person`, `plan` or `process`. */
  source: string;
  createdBy: string;
  created: number;
  /** What a run would cost, by earlier runs or by a fixed table. */
  estimatedCostUsd: number;
}

/** `result` of `pipelines.list`, newest first. */
export interface PipelineList {
  pipelines: PipelineInfo[];
}

/** How a run ended, or its present state. */
export interface PipelineOutcome {
  pipelineId: string;
  runId: string;
  name: string;
  status: PipelineStatus;
  /** Why it did not complete. */
  reason?: string | null;
  steps: StepOutcome[];
  totalDurationMs: number;
  totalCostUsd: number;
}

/** A parameter of a pipeline. Templates name it `{{params.NAME}}`. */
export interface PipelineParameter {
  name: string;
  /** `string`, `number`, `boolean`, `date`, `object` or `array`. */
  type: string;
  source: ParameterSource;
  /** The value if the run is given none. Without a default the run must be given a value. */
  default?: unknown;
}

/** Names a run. A unique beginning of its id is enough. */
export interface PipelineRunId {
  runId: string;
}

/** A run in a list. */
export interface PipelineRunInfo {
  runId: string;
  pipelineId: string;
  name: string;
  agent: string;
  status: PipelineStatus;
  reason?: string | null;
  started: number;
  ended?: number | null;
}

/** `result` of `pipelines.runs`, newest first. */
export interface PipelineRunList {
  runs: PipelineRunInfo[];
}

/** `params` of `pipelines.run`. The result is the run's present state. */
export interface PipelineRunParams {
  pipelineId: string;
  /** Values for `{{name}}`, which every agent's step also sees. */
  context?: Record<string, never>;
  /** Values for `{{params.name}}`. */
  params?: Record<string, never>;
  onFailure?: OnFailure | null;
  modifications?: StepModification[];
}

/** `result` of `pipelines.status`, `pipelines.run`, `pipelines.cancel` and `pipelines.retry`. */
export interface PipelineRunState {
  outcome: PipelineOutcome;
  agent: string;
  /** The steps as this run has them. */
  definition: PipelineDefinition;
  started: number;
  ended?: number | null;
}

/** `params` of `pipelines.runs`. */
export interface PipelineRunsParams {
  /** Only runs of this pipeline. */
  pipelineId?: string | null;
  /** 1 to 1000; 50 when absent. */
  limit?: number | null;
}

/** The state of a run. All but `running` are final, until a retry. */
export type PipelineStatus = "running" | "completed" | "failed" | "rejected" | "interrupted";

/** `params` of `pipelines.status`. */
export interface PipelineStatusParams {
  runId: string;
  /** Waits at most this long for the end of the run; at most 120000. */
  waitMs?: number;
}

/** A step of a pipeline: a task for an agent, or one tool call without a model. */
export interface PipelineStep {
  /** A unique name: letters, digits, `-` and `_`. */
  id: string;
  /** What the agent of this step has to do. `{{name}}` is a value of the context, `{{params.name}}` a parameter, `{{step.result}}` the result of a step in input_from. */
  task?: string | null;
  /** The steps whose results this step gets. It starts when they have ended. Steps without input_from start at once. */
  input_from?: string[];
  /** The step is stopped after this time (default 600000, at most 7200000). */
  timeout_ms?: number | null;
  /** The role of the step's agent, such as researcher. Only with task. */
  role?: string | null;
  /** fast, balanced, deep, or provider/model. Only with task. */
  model?: string | null;
  /** The tool to call, in place of task. This costs no tokens. */
  tool?: string | null;
  /** The input of the tool. Its texts may have the same templates as a task. */
  input?: unknown;
}

/** `params` of `plans.answer`. */
export interface PlanAnswer {
  approvalId: string;
  /** `proceed`, `cancel`, or what to change. */
  answer: string;
}

/** The answer to a plan: the result of `plan_task` and of `plans.answer`. */
export interface PlanDecision {
  approved: boolean;
  /** Nobody has answered yet. */
  pending?: boolean;
  /** Names the plan while it waits for an answer. */
  approval_id?: string | null;
  /** The pipeline that runs the agent's phases. */
  pipeline_id?: string | null;
  steps?: PlannedStep[] | null;
  /** The phases that the user does. */
  user_steps?: string[] | null;
  estimated_cost_usd?: number | null;
  /** What the person answered in place of yes. */
  feedback?: string | null;
}

/** A plan that waits for a person. */
export interface PlanInfo {
  approvalId: string;
  agent: string;
  /** The plan, for people. */
  text: string;
  createdBy: string;
  created: number;
}

/** `result` of `plans.list`, newest first. */
export interface PlanList {
  plans: PlanInfo[];
}

/** A step of an approved plan. */
export interface PlannedStep {
  id: string;
  task: string;
}

export interface PolicyDecision {
  tool: string;
  /** `allow`, `ask` or `deny`. */
  decision: string;
  /** The rule that decides. */
  rule: string;
  reason: string;
  touches: PolicyTouch[];
  rules: PolicyRuleChecked[];
}

/** `params` of `policy.explain`: what would be decided on a call. Nothing runs. */
export interface PolicyExplain {
  tool: string;
  /** `{}` when left out. */
  input?: unknown;
  /** A call by this agent; by the operator when left out. */
  agent?: string | null;
}

/** `result` of `policy.explain`; a call of several nodes has several decisions. */
export interface PolicyExplained {
  decisions: PolicyDecision[];
}

export interface PolicyRuleChecked {
  rule: string;
  /** Why the rule does not match; missing if it matches. */
  mismatch?: string | null;
}

export interface PolicyTouch {
  path: string;
  /** `read` or `write`. */
  access: string;
  sensitive: boolean;
  /** Closed to every tool. */
  closed: boolean;
}

/** `params` of `ports.forward`. The forward ends with the client's connection. */
export interface PortForward {
  port: number;
  /** May be left out if one session listens on the port. */
  session?: string | null;
  /** An address of the gateway's loopback. Port 0 picks a free one. The default is the same port. */
  listen?: string | null;
}

/** `result` of `ports.forward`. */
export interface PortForwarded {
  session: string;
  port: number;
  listen: string;
}

/** `result` of `ports.list`. */
export interface PortList {
  ports: SessionPort[];
}

/** `params` of `process.ended`: a background process has ended. Sent until it is answered. Repeats have the same `eventId`. */
export interface ProcessEnd {
  eventId: string;
  sessionId: string;
  command: string;
  principal: string;
  agent: string;
  exitCode: number | null;
  signal: string | null;
  timedOut: boolean;
  startedAt: number;
  endedAt: number;
  /** The last characters of the output. */
  tail: string;
}

/** `result` of `process.ended`: whether this is the first report of the event. */
export interface ProcessEndTaken {
  new: boolean;
}

/** `data` of the event `process.ended`. */
export interface ProcessEnded {
  eventId: string;
  sessionId: string;
  command: string;
  principal: string;
  agent: string;
  exitCode: number | null;
  signal: string | null;
  timedOut: boolean;
  startedAt: number;
  endedAt: number;
  /** The last characters of the output. */
  tail: string;
  nodeId: string;
}

/** `result` of `nodes.processes`, newest first. */
export interface ProcessList {
  processes: ProcessRecord[];
}

/** `params` of `processes.promote`. */
export interface ProcessPromote {
  id: string;
  /** Defaults of parameters, by name. */
  parameterValues?: Record<string, never>;
}

/** The end of a background process, as the gateway keeps it. */
export interface ProcessRecord {
  node: string;
  eventId: string;
  recorded: number;
  event: ProcessEnd;
}

/** A recorded call of a process. */
export interface ProcessStep {
  /** 1 for the first. */
  order: number;
  tool: string;
  /** The input with `{{params.NAME}}` and `{{step-N.result}}` in place of values that change. */
  input: unknown;
  description: string;
  /** The orders of the calls whose results this call used. */
  depends_on: number[];
}

/** The result of `promote_process` and of `processes.promote`. */
export interface PromotedProcess {
  pipeline_id: string;
  name: string;
  /** The number of steps. */
  steps: number;
  /** The names of the parameters. */
  parameters: string[];
  estimated_cost: string;
  /** How to run it. */
  next: string;
}

export interface ProtocolRange {
  min: number;
  max: number;
}

export interface ProviderReport {
  name: string;
  baseUrl: string;
  /** Whether the provider was found on this machine and is not configured. */
  found: boolean;
  lacksKey: boolean;
}

/** A question whether a call may run. */
export interface Question {
  id: string;
  call: string;
  tool: string;
  rule: string;
  reason: string;
  /** The call's input. Secrets are masked and long values are shortened. */
  input: unknown;
  /** Identifies the call, including its whole input, and the rule that asks. */
  fingerprint: string;
  /** Identifies the call independently of the rule that asks. */
  exact?: string;
  /** What the call would do. Questions of earlier versions have none. */
  action?: AskedAction | null;
  /** Grants that would also cover later calls. */
  offers?: GrantOffer[];
  /** At this time the answer becomes no. */
  expires: number;
  /** The child session that asks, if a child asks. */
  child?: ChildName | null;
}

/** `result` of `results.read`. */
export interface ResultPage {
  text: string;
  totalCharacters: number;
  nextOffset: number | null;
  matches: number | null;
}

/** `params` of `results.read`. */
export interface ResultParams {
  handle: string;
  offset?: number;
  /** In characters. */
  limit: number;
  /** A regular expression; then `offset` counts matches. */
  grep?: string | null;
}

export type Role = "client" | "node" | "channel";

/** How a run ended. `Other` is an end that a newer gateway wrote. */
export type RunEnd = 
  | { end: "final"; text: string; }
  | { end: "stopped"; by: string; }
  | { end: "failed"; error: string; }
  | { end: "other"; };

/** Something that happened to a run. Events are not stored; the histories of runs have the facts. */
export type RunEvent = 
  | { event: "started"; sessionKey?: string | null; resumed: boolean; }
  | { event: "step_started"; step: string; sessionKey?: string | null; }
  | { event: "step_ended"; step: string; status: StepStatus; durationMs: number; error?: string | null; done: number; total: number; }
  | { event: "waiting"; sessionKey: string; step?: string | null; }
  | { event: "continued"; sessionKey: string; step?: string | null; }
  | { event: "ended"; status: string; error?: string | null; durationMs: number; }
  | { event: "unknown"; };

/** `data` of `run.event`. */
export interface RunEventData {
  kind: RunKind;
  runId: string;
  /** The id of the job, the task or the pipeline. */
  sourceId: string;
  /** The name of the job, the title of the task, or the name of the pipeline. */
  name: string;
  agent: string;
  event: RunEvent;
}

/** What started a run. */
export type RunKind = "schedule" | "task" | "pipeline" | "other";

export interface SecretInfo {
  name: string;
  /** The hosts to which it may be sent. */
  hosts: string[];
  created: number;
  changed: number;
}

/** `result` of `secrets.list`. Values are never shown. */
export interface SecretList {
  secrets: SecretInfo[];
}

/** `params` and `result` of `secrets.remove`. */
export interface SecretName {
  name: string;
}

/** `params` of `secrets.set`. */
export interface SecretSet {
  name: string;
  hosts: string[];
  value: string;
}

/** `result` of `secrets.set`. */
export interface SecretStored {
  name: string;
  /** There was a secret of this name. */
  replaced: boolean;
}

/** `result` of `sessions.send`, and the answer of `POST /v1/sessions/{key}/messages`. */
export type SendResult = 
  | { status: "accepted"; sessionKey: string; messageId: string; }
  | { status: "command"; sessionKey: string; told: string; }
  | { status: "final"; sessionKey: string; messageId: string; runId: string | null; reply: string; }
  | { status: "stopped"; sessionKey: string; messageId: string; runId: string | null; by: string; }
  | { status: "error"; sessionKey: string; messageId: string; runId: string | null; error: string; }
  | { status: "suspended"; sessionKey: string; messageId: string; runId: string | null; error: string; };

export type SentKind = "file" | "directory";

export interface ServerInfo {
  version: string;
  /** Changes with every start of the gateway. */
  instance: string;
  /** The gateway's clock, in milliseconds since 1970. */
  now: number;
}

/** Something that happened in a session. Sessions publish these events, and server-sent events of `/v1/sessions/{key}/messages` have the same form. Events are not stored; the journal has its own entries. */
export type SessionEvent = 
  | { event: "accepted"; sessionKey: string; messageId: string; }
  | { event: "notice"; id: string; from: string; text: string; }
  | { event: "run_begun"; run: string; }
  | { event: "text"; run: string; delta: string; }
  | { event: "thinking"; run: string; delta: string; }
  | { event: "call_writing"; run: string; call: string; tool: string; }
  | { event: "call_input"; run: string; call: string; delta: string; }
  | { event: "restart"; run: string; reason: string; }
  | { event: "tool_start"; run: string; call: string; tool: string; input: unknown; }
  | { event: "tool_progress"; run: string; call: string; done: number; total: number | null; message: string; }
  | { event: "tool_end"; run: string; call: string; tool: string; isError: boolean; failed: boolean; exitCode?: number | null; result: string; }
  | { event: "approval"; run: string; question: Question; }
  | { event: "approval_answered"; run: string; question: string; answer: ApprovalDecision; by: string; }
  | { event: "asked"; run: string; asked: UserAsked; }
  | { event: "asked_answered"; run: string; question: string; answers: string[]; by: string; }
  | { event: "compacted"; replaced: number; byModel: boolean; }
  | { event: "reset"; why: string; }
  | { event: "final"; run: string; text: string; messages: Addressee[]; }
  | { event: "stopped"; run: string; by: string; messages: Addressee[]; }
  | { event: "error"; run: string | null; message: string; messages: Addressee[]; }
  | { event: "suspended"; }
  | { event: "missed"; events: number; }
  | { event: "unknown"; };

/** `data` of `session.event`. */
export interface SessionEventData {
  sessionKey: string;
  /** The number of entries in the journal when the event came. Those of `session.event` have it. */
  seq?: number | null;
  event: SessionEvent;
}

export interface SessionInfo {
  sessionKey: string;
  agent: string;
  label: string | null;
  created: number;
  lastActivity: number;
  /** The number of events in its journal. */
  events: number;
  /** A run is in progress or waits. */
  running: boolean;
  /** The run waits for a person's answer. */
  waiting: boolean;
  /** The session or principal that started it, if it is a child. */
  parent: string | null;
}

/** `result` of `sessions.list`. The most recently active session comes first. */
export interface SessionList {
  sessions: SessionInfo[];
  total: number;
}

/** A message or a title that contains the text. */
export interface SessionMatch {
  sessionKey: string;
  agent: string;
  label: string | null;
  at: number;
  /** The entry of the journal; missing if the title matches. */
  seq?: number | null;
  /** The text around the match. */
  excerpt: string;
}

/** `result` of `sessions.search`, the newest first. */
export interface SessionMatches {
  matches: SessionMatch[];
}

/** `params` of `sessions.status` and `sessions.listen`. */
export interface SessionParams {
  sessionKey: string;
}

/** A TCP port that a command listens on in the network of its session. */
export interface SessionPort {
  /** The session's key, or the agent for commands outside a session. */
  session: string;
  port: number;
  /** The listening process, if it is visible. */
  pid?: number | null;
  process?: string | null;
}

/** `params` of `sessions.rename`. */
export interface SessionRename {
  sessionKey: string;
  /** The new title, 1 to 200 characters. */
  label: string;
}

/** `params` of `sessions.search`. */
export interface SessionSearch {
  /** 2 to 200 characters. Upper and lower case are the same for `a` to `z`. */
  text: string;
  /** 50 when left out; at most 200. */
  limit?: number | null;
}

/** `result` of `sessions.status`. */
export interface SessionStatus {
  sessionKey: string;
  agent: string;
  model: string;
  workspace: string;
  /** The run in progress. */
  running: string | null;
  /** Messages that wait for a run. */
  queued: number;
  /** Messages in the conversation. */
  messages: number;
  /** Events in the journal. */
  events: number;
  compactions: number;
  runs: number;
  usage: TokenUsage;
  /** Any of `untrusted` and `private`. */
  labels: string[];
  /** Calls that wait for an approval. */
  questions: Question[];
  /** The agent's open questions to its user. */
  asks: UserAsked[];
  /** The limits of a child session. */
  child?: ChildLimits | null;
}

/** `params` of `sessions.list`. */
export interface SessionsListParams {
  limit?: number | null;
  offset?: number | null;
}

/** A change of a stored pipeline for one run. */
export interface StepModification {
  step_id: string;
  action: ModificationAction;
  /** The new task, for update_task. */
  value?: string | null;
}

/** How a step ended, or its present state. */
export interface StepOutcome {
  stepId: string;
  status: StepStatus;
  /** Its answer. A long one is cut, with a note. */
  result: string | null;
  durationMs: number;
  tokensIn: number;
  tokensOut: number;
  costUsd: number;
  error?: string | null;
  skipReason?: string | null;
  /** The session that did the work. */
  sessionKey?: string | null;
}

/** The state of a step. */
export type StepStatus = "pending" | "running" | "completed" | "failed" | "skipped" | "waiting";

/** `params` of `tasks.add`. */
export interface TaskAddParams {
  /** The agent that does it in the background: `main` when left out. */
  agent?: string | null;
  task: NewTask;
}

/** `result` of the methods that change a task. */
export interface TaskChanged {
  task: TaskInfo;
  /** What happened, for people. */
  message: string;
}

/** The changes of a task. `tasks.edit` and `task_update` take them. */
export interface TaskChanges {
  /** The task's id, a unique beginning of it, or its title. */
  task_id: string;
  /** completed also completes all subtasks; cancelled also cancels them and stops a run. */
  status?: TaskStatus | null;
  priority?: TaskPriority | null;
  /** YYYY-MM-DD; an empty text removes it. */
  due_date?: string | null;
  /** The new title. */
  title?: string | null;
  /** The new description. */
  description?: string | null;
  /** Replaces all tags. */
  tags?: string[] | null;
  /** user, agent (yourself), or the name of an agent. */
  assignee?: string | null;
  /** The new schedule of a task that has one. */
  schedule?: string | null;
  /** The new page of a task that watches one. */
  watch_url?: string | null;
  /** Minutes between two looks at the page: at least 5. */
  watch_interval_minutes?: number | null;
}

/** `params` of `tasks.confirm`. */
export interface TaskConfirm {
  /** The task's id, a unique beginning of it, or its title. */
  id: string;
  /** The `contentHash` of what the person read. A task with other content is not allowed. */
  seen?: string | null;
}

/** A range of due dates. */
export type TaskDue = "today" | "week" | "overdue";

/** `result` of `tasks.history`, the newest first. */
export interface TaskHistory {
  runs: TaskRunInfo[];
}

/** A task, with the state of its work. */
export interface TaskInfo {
  id: string;
  title: string;
  description?: string | null;
  kind: TaskKind;
  status: TaskStatus;
  priority: TaskPriority;
  dueDate?: string | null;
  scope: string;
  tags?: string[];
  parentTaskId?: string | null;
  assignee?: string | null;
  /** The agent whose rights its runs have. */
  agent: string;
  /** The schedule as it was written. */
  schedule?: string | null;
  watchUrl?: string | null;
  watchIntervalMinutes?: number | null;
  pipelineId?: string | null;
  /** It runs without a person. */
  unattended: boolean;
  /** A person allowed its unattended runs, or it has none. */
  confirmed: boolean;
  nextRunAtMs?: number | null;
  /** A run of it is queued, running or waits for an answer. */
  running: boolean;
  lastRunAtMs?: number | null;
  /** `ok`, `error`, `cancelled`, or `unchanged` after a check of a watched page. */
  lastStatus?: string | null;
  lastResult?: string | null;
  createdBy: string;
  /** Identifies what the task does. `tasks.confirm` takes it as `seen`. */
  contentHash: string;
  createdAtMs: number;
  updatedAtMs: number;
  completedAtMs?: number | null;
}

/** What starts the work of a task. */
export type TaskKind = "manual" | "scheduled" | "watch" | "pipeline";

/** `result` of `tasks.list`, by priority and then by due date. */
export interface TaskList {
  tasks: TaskInfo[];
  /** The number of tasks that match. */
  total: number;
}

/** `params` of `tasks.show`, `tasks.run`, `tasks.cancel` and `tasks.history`. */
export interface TaskParams {
  /** The task's id, a unique beginning of it, or its title. */
  id: string;
}

/** The most urgent first. */
export type TaskPriority = "urgent" | "high" | "medium" | "low";

/** A run of a task in the background. */
export interface TaskRunInfo {
  id: string;
  taskId: string;
  /** `queued`, `running`, `parked` (waits for an answer), `ok`, `error`, `cancelled`, and without a run `skipped` or `missed`. */
  state: string;
  sessionKey: string;
  queuedAtMs: number;
  startedAtMs?: number | null;
  endedAtMs?: number | null;
  result?: string | null;
  error?: string | null;
  costUsd: number;
}

export type TaskStatus = "open" | "in_progress" | "completed" | "failed" | "cancelled";

/** `params` of `tasks.list`. */
export interface TasksListParams {
  scope?: string | null;
  /** Without it: tasks that are neither completed nor cancelled. */
  status?: TaskStatus | null;
  due?: TaskDue | null;
  assignee?: string | null;
  /** 1 to 1,000; 100 when left out. */
  limit?: number | null;
}

/** Whether a model thinks before it answers. */
export type ThinkingMode = 
  | "off"
  | "adaptive"
  | { budget: number; };

/** `params` of `tokens.add`. */
export interface TokenAdd {
  name: string;
  /** Names, globs and toolsets; left out means all. */
  tools?: string[] | null;
  /** Agents it may act as. */
  agents?: string[];
  readOnly?: boolean;
  expires?: number | null;
}

/** `result` of `tokens.add`. The token is shown only once. */
export interface TokenAdded {
  name: string;
  token: string;
  /** Names of the token's scope that match no tool. */
  warnings?: string[];
}

export interface TokenInfo {
  name: string;
  /** Names, globs and toolsets; null means all. */
  tools: string[] | null;
  agents: string[];
  readOnly: boolean;
  created: number;
  expires: number | null;
  lastUsed: number | null;
  revoked: number | null;
}

/** `result` of `tokens.list`. */
export interface TokenList {
  tokens: TokenInfo[];
}

/** `params` and `result` of `tokens.revoke`. */
export interface TokenName {
  name: string;
}

export interface TokenUsage {
  /** Excludes tokens read from the cache. */
  input_tokens: number;
  output_tokens: number;
  cache_read_tokens: number;
  cache_write_tokens: number;
}

/** `data` of `tool.ack`. */
export interface ToolAck {
  callIds: string[];
}

/** A tool in the lists of all surfaces, and `result` of `tools.get`. */
export interface ToolInfo {
  name: string;
  toolset: string;
  description: string;
  notes: string;
  readOnly: boolean;
  destructive: boolean;
  idempotent: boolean;
  openWorld: boolean;
  capabilities: string[];
  /** The effects of the tool, such as `writes_files`. Absent if they are unknown. */
  effects?: string[] | null;
  /** `clients` and `agents` see the tool by default if they are listed. Absent from gateways that do not report it. */
  offeredTo?: string[] | null;
  inputSchema: unknown;
  /** Null for tools that answer in text. */
  outputSchema: unknown;
  /** The nodes that have it, for a tool that is called with the argument `node`. */
  nodes?: string[] | null;
  /** The connected ones of `nodes`. */
  online?: string[] | null;
}

/** `result` of `tools.list`. */
export interface ToolList {
  tools: ToolInfo[];
  /** With `mcp`: whether the token or the agent names its tools. */
  listed?: boolean | null;
}

/** `params` of `tools.get`. */
export interface ToolsGetParams {
  name: string;
  agent?: string | null;
  mcp?: string | null;
}

/** `params` of `tools.list`. */
export interface ToolsListParams {
  /** Lists the tools of this agent. */
  agent?: string | null;
  toolset?: string | null;
  /** For the MCP client of this name. */
  mcp?: string | null;
  /** From now on, the gateway sends `tools.changed`. */
  follow?: boolean;
}

/** `result` of `transfer.send` and `transfer.receive`: the whole file. */
export interface TransferDone {
  bytes: number;
  /** BLAKE3 in hexadecimal. */
  hash: string;
}

export interface TransferHas {
  have: number;
  /** BLAKE3 of those bytes in hexadecimal. Absent if there are none. */
  prefixHash?: string | null;
}

/** `params` of `transfer.have`, to the destination: asks how much of a file has arrived. */
export interface TransferHave {
  transfer: string;
  entry?: string | null;
}

/** `params` and `result` of `transfers.cancel`. */
export interface TransferId {
  id: string;
}

export interface TransferInfo {
  id: string;
  agent: string;
  principal: string;
  source: string;
  destination: string;
  /** `running`, `done` or `failed`. */
  state: string;
  /** In bytes; null while it is not known. */
  size: number | null;
  bytesDone: number;
  /** The node that a running transfer waits for. */
  waitsFor?: string | null;
  error?: string | null;
  created: number;
  updated: number;
}

/** `result` of `transfers.list` and `transfers.listen`, and data of `transfers.changed`: the newest first. */
export interface TransferList {
  transfers: TransferInfo[];
}

/** `params` of `transfer.make`, to the destination: a directory or a link of a tree. */
export interface TransferMake {
  transfer: string;
  entry: string;
  /** Set for a directory. */
  mode?: number | null;
  /** Set for a link. */
  target?: string | null;
}

/** `params` of `transfer.manifest`, to the source: the next entries of an opened directory. */
export interface TransferManifest {
  transfer: string;
}

/** `params` of `transfer.open`, to the source. */
export interface TransferOpen {
  transfer: string;
  path: string;
  caller: Caller;
  /** Rules whose question was approved. Only between a gateway and its own machine, which share one policy. */
  approved?: string[];
}

export interface TransferOpened {
  kind: SentKind;
  /** Bytes of a file; 0 for a directory. */
  size: number;
  /** Permission bits, and the sticky bit of a directory. */
  mode: number;
  /** Changes when the content changes. */
  version: string;
  /** The path with links resolved. */
  path: string;
  mime?: string | null;
}

/** `params` of `transfer.finish` and `transfer.abandon`, to either end, which then forgets the transfer. `abandon` removes its parts. */
export interface TransferOver {
  transfer: string;
  /** For `abandon`: files of a directory that may have arrived in part. */
  entries?: string[];
}

/** `result` of `transfer.parts`: the transfers of which a destination has parts. */
export interface TransferParts {
  transfers: string[];
  /** Whether there are more. They are listed once some of these are gone. */
  more: boolean;
}

/** `params` of `transfer.prepare`, to the destination. */
export interface TransferPrepare {
  transfer: string;
  path: string;
  kind: SentKind;
  /** Permission bits and sticky bit of a directory that is created. An existing directory keeps its own. */
  mode?: number | null;
  caller: Caller;
  /** The resolved path of the source, if it is on the same machine. A file cannot be sent to itself or into itself. */
  source?: string | null;
  /** As in [`TransferOpen`]. */
  approved?: string[];
}

export interface TransferPrepared {
  /** The path with links resolved. */
  path: string;
}

/** `params` of `transfer.receive`, to the destination. Ready when the first credit comes over the stream; answered when the file is whole, verified, and has its final name. */
export interface TransferReceive {
  transfer: string;
  entry?: string | null;
  stream: number;
  from: number;
  mode: number;
  /** The length of the whole file, if it is known. */
  size?: number | null;
}

/** `params` of `transfer.send`, to the source. Answered when everything is sent. */
export interface TransferSend {
  transfer: string;
  entry?: string | null;
  stream: number;
  from: number;
  /** The source's own bytes before `from` must have this hash. */
  prefixHash?: string | null;
  /** The first credit of the receiver: everything before this offset may be sent. */
  credit: number;
}

/** The text and thinking of a reply so far. The next events continue them. */
export interface UnfinishedReply {
  run: string;
  text: string;
  thinking: string;
}

/** `params` of `uploads.begin`: a file of the client becomes a file in an agent's storage. */
export interface UploadBegin {
  /** `main` when left out. */
  agent?: string | null;
  /** In the agent's storage, such as `inbox/photo.png`. An existing file is replaced when the upload is finished. */
  path: string;
  size: number;
  /** An interrupted upload that continues. */
  upload?: string | null;
}

/** `result` of `uploads.finish`. */
export interface UploadDone {
  /** As the Transfer tool takes it, such as `gsv:inbox/photo.png`. */
  path: string;
  size: number;
  /** The BLAKE3 hash of the file, in hexadecimal. */
  hash: string;
}

/** `params` of `uploads.finish` and `uploads.cancel`. */
export interface UploadId {
  upload: string;
}

/** `result` of `uploads.begin`, and the answer of `PUT /v1/uploads/{id}`. */
export interface UploadState {
  upload: string;
  /** Bytes that have arrived. The next piece begins here. */
  have: number;
}

/** `params` of `usage.report`. */
export interface UsageParams {
  /** The first day, such as `2026-01-31`, in the user's time zone; 30 days ago when left out. */
  from?: string | null;
  /** The last day; today when left out. At most 400 days. */
  to?: string | null;
}

/** `result` of `usage.report`. Every sum of `rows` is over the same answers of models. */
export interface UsageReport {
  from: string;
  to: string;
  timezone: string;
  rows: UsageRow[];
  total: UsageSum;
  /** What counted against the budgets, by day and agent. It has the requests that failed, too. */
  spent: UsageSpent[];
  /** The budgets, for people. */
  budgets: string[];
}

/** The answers of one model in one session on one day. */
export interface UsageRow {
  day: string;
  agent: string;
  sessionKey: string;
  /** As `provider/model`. */
  model: string;
  requests: number;
  /** Without tokens from the cache. */
  inputTokens: number;
  outputTokens: number;
  cacheReadTokens: number;
  cacheWriteTokens: number;
  /** At the prices of now. Answers without a known price are not in it. */
  costUsd: number;
  /** Answers whose price is not known. */
  unpriced: number;
}

export interface UsageSpent {
  day: string;
  agent: string;
  usd: number;
}

export interface UsageSum {
  requests: number;
  /** Without tokens from the cache. */
  inputTokens: number;
  outputTokens: number;
  cacheReadTokens: number;
  cacheWriteTokens: number;
  /** At the prices of now. Answers without a known price are not in it. */
  costUsd: number;
  /** Answers whose price is not known. */
  unpriced: number;
}

/** Questions of the agent to its user. */
export interface UserAsked {
  id: string;
  call: string;
  questions: UserQuestion[];
  /** At this time the questions expire without an answer. */
  expires: number;
  /** The child session that asks, if a child asks. */
  child?: ChildName | null;
}

export interface UserQuestion {
  question: string;
  /** The subject of several questions. Only the first question has it. */
  heading?: string | null;
  /** A short label, for clients that show several questions side by side. */
  header?: string | null;
  /** Suggested answers. Other answers are valid too. */
  options?: string[];
}

export interface WireAnnotations {
  readOnly?: boolean;
  destructive?: boolean;
  idempotent?: boolean;
  openWorld?: boolean;
  /** The node judges each connection of agents' commands, or they have no network. Commands of a labelled session then need no approval; their connections do. */
  judgesConnections?: boolean;
}

export type WireEntry = { path: string; } & (
  | { kind: "file"; size: number; mode: number; }
  | { kind: "directory"; mode: number; }
  | { kind: "link"; target: string; }
  | { kind: "skipped"; reason: string; });

/** The `error` of a response. */
export interface WireError {
  code: ErrorCode;
  message: string;
  /** For tool calls: `hint` and `violations`. */
  details?: unknown;
  retryable: boolean;
}

/** A tool as it is described over the wire. */
export interface WireTool {
  name: string;
  description: string;
  inputSchema: unknown;
  outputSchema?: unknown;
  annotations?: WireAnnotations;
}
