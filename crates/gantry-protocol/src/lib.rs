//! The wire between clients, gateway and nodes, versions 1 and 2: data only, no I/O. `docs/protocol.md` describes it.

mod admin;
mod administration;
mod asked_action;
mod channels;
mod child_limits;
mod close;
mod connect;
mod cron;
mod error;
mod events;
mod files;
mod frame;
mod grants;
mod inbox;
mod join;
mod methods;
mod names;
mod nodes;
mod outbox;
mod outside_tools;
mod page_sessions;
mod pipelines;
mod ports;
mod rendering;
mod runs;
mod sessions;
mod stream;
mod tasks;
mod text;
mod tokens;
mod tools;
mod transfer;
mod values;

pub use admin::{
    Empty, GatewayStatus, Health, HealthStatus, HttpError, HttpProblem, ModelPrice, ModelReport,
    ModelsReport, ProviderReport,
};
pub use administration::{
    AuditPage, AuditProblem, AuditSearch, AuditVerified, ConfigChange, ConfigChanged, ConfigSchema,
    ConfigShown, DoctorFinding, DoctorReport, PolicyDecision, PolicyExplain, PolicyExplained,
    PolicyRuleChecked, PolicyTouch, SecretInfo, SecretList, SecretName, SecretSet, SecretStored, UsageParams,
    UsageReport, UsageRow, UsageSpent, UsageSum,
};
pub use asked_action::{AskedAction, ChangeKind};
pub use channels::{
    BridgeAccepted, BridgeButton, BridgeFile, BridgeInbound, BridgePeer, BridgePerson, BridgePress,
    BridgePressed, BridgeSend, BridgeSent, ChannelInfo, ChannelLink, ChannelList, ChannelPairParams,
    ChannelParams, ChannelPeople, ChannelPerson, ChannelRoleParams, ChannelTest,
};
pub use child_limits::{
    BackgroundCall, BackgroundLimits, ChildBudget, ChildLimits, ChildTools, ThinkingMode,
};
pub use close::{CloseReason, MAX_CLOSE_REASON_BYTES};
pub use connect::{
    ConnectParams, ConnectResult, NodeHello, NodeTools, ProtocolRange, Role, ServerInfo, WireAnnotations,
    WireTool, current_platform, is_valid_platform, is_valid_version,
};
pub use cron::{
    CronCancelled, CronConfirm, CronDate, CronHistory, CronHistoryParams, CronInstant, CronJob, CronJobInput,
    CronJobList, CronJobState, CronListParams, CronParams, CronPause, CronQueued, CronRemoved, CronRun,
    CronScheduleInput, CronSpecInput, CronStatus, CronStatusParams, CronUpdateParams,
};
pub use error::{ErrorCode, WireError};
pub use events::{Missed, ProcessEnded, SessionEvent, SessionEventData};
pub use files::{
    DownloadFile, DownloadLink, TransferId, TransferInfo, TransferList, UploadBegin, UploadDone, UploadId,
    UploadState,
};
pub use frame::{Frame, FrameError, RawJson, raw, raw_null};
pub use grants::{GrantInfo, GrantList, GrantOffer, GrantParams, GrantReach, GrantScope, GrantsListParams};
pub use inbox::{InboxItem, InboxList, InboxSubject};
pub use join::{GatewayKey, JoinInvite, JoinOffer, JoinRequest, Joined, KeyRotate, KeyRotation};
pub use methods::{
    ApprovalAnswer, ApprovalAsk, CallParams, CallProgress, CallResult, Caller, ConnectionAsk, LogsParams,
    LogsResult, NodeCallParams, ProcessEnd, ToolAck, event, method,
};
pub use names::{NameError, check_node_id};
pub use nodes::{
    Invitation, NodeId, NodeInfo, NodeList, NodeProcesses, NodeRename, NodeRenamed, NodeTags,
    ProcessEndTaken, ProcessList, ProcessRecord,
};
pub use outbox::{
    ChatAnswer, ChatChoice, ChatDetails, ChatQuestion, ChatQuestionKind, OutboxBody, OutboxList,
    OutboxListParams, OutboxMessage, OutboxParams, OutboxState,
};
pub use outside_tools::{
    ApiId, ApiInfo, ApiList, ApiProblem, ApiProfile, ApiSave, McpAccept, McpAccepted, McpReview, McpReviewed,
    McpServer, McpServerList, McpTool,
};
pub use page_sessions::{
    ALL_PAGE_SESSIONS, PageLink, PageLogin, PageLoginResult, PageRevoke, PageRevoked, PageSessionInfo,
    PageSessionList,
};
pub use pipelines::{
    CapturedProcess, CapturedProcessId, CapturedProcessList, ModificationAction, OnFailure, ParameterSource,
    PipelineAdd, PipelineDefinition, PipelineId, PipelineInfo, PipelineList, PipelineOutcome,
    PipelineParameter, PipelineRunId, PipelineRunInfo, PipelineRunList, PipelineRunParams, PipelineRunState,
    PipelineRunsParams, PipelineStatus, PipelineStatusParams, PipelineStep, PlanAnswer, PlanDecision,
    PlanInfo, PlanList, PlannedStep, ProcessPromote, ProcessStep, PromotedProcess, StepModification,
    StepOutcome, StepStatus,
};
pub use ports::{PortForward, PortForwarded, PortList, SessionPort};
pub use rendering::{
    AnsiLines, AnsiParams, AnsiRun, AnsiStyle, DiffParams, DiffRow, DiffRowKind, DiffRows, GraphEdge,
    GraphLayout, GraphLine, GraphNode, GraphParams, GraphPlace, MarkdownAlign, MarkdownBlock,
    MarkdownDocument, MarkdownDocuments, MarkdownInline, MarkdownItem, MarkdownParams,
};
pub use runs::{RunEvent, RunEventData, RunKind};
pub use sessions::{
    Addressee, AgentInfo, AgentList, AnswerParams, AnswerResult, ApprovalDecision, ChildName, History,
    HistoryBlock, HistoryCallResult, HistoryEntry, HistoryEvent, HistoryMessage, HistoryParams, HistoryReply,
    ListenResult, Listened, MAX_PICTURE_BYTES, MAX_PICTURES, MessageParams, Picture, Question, RunEnd,
    SendResult, SessionInfo, SessionList, SessionMatch, SessionMatches, SessionParams, SessionRename,
    SessionSearch, SessionStatus, SessionsListParams, TokenUsage, UnfinishedReply, UserAsked, UserQuestion,
    is_picture_type,
};
pub use stream::{
    HEADER_BYTES, MAX_PAYLOAD_BYTES, MAX_UNACKNOWLEDGED_BYTES, StreamError, StreamFrame, StreamKind,
};
pub use tasks::{
    NewTask, TaskAddParams, TaskChanged, TaskChanges, TaskConfirm, TaskDue, TaskHistory, TaskInfo, TaskKind,
    TaskList, TaskParams, TaskPriority, TaskRunInfo, TaskStatus, TasksListParams,
};
pub use text::{JsonText, cancel_text, event_text, node_call_text, request_text, response_text};
pub use tokens::{TokenAdd, TokenAdded, TokenInfo, TokenList, TokenName};
pub use tools::{ResultPage, ResultParams, ToolInfo, ToolList, ToolsGetParams, ToolsListParams};
pub use transfer::{
    ManifestPage, SentKind, TransferDone, TransferHas, TransferHave, TransferMake, TransferManifest,
    TransferOpen, TransferOpened, TransferOver, TransferParts, TransferPrepare, TransferPrepared,
    TransferReceive, TransferSend, WireEntry, WireEntryKind,
};
pub use values::{MAX_VALUES, VALUE_BYTES, count_values};

/// The newest supported version. Version 2 has codes in close frames, version 1 has sentences.
pub const PROTOCOL_VERSION: u32 = 2;

/// The oldest supported version.
pub const OLDEST_PROTOCOL_VERSION: u32 = 1;

/// The largest text frame before `connect` has succeeded.
pub const MAX_CONNECT_BYTES: usize = 64 * 1024;

/// The most calls that a node may list in `connect`, so that their ids fit together with its tools.
pub const MAX_LISTED_CALLS: usize = 1024;

/// The largest text frame after `connect`. Results may contain whole files and images.
pub const MAX_FRAME_BYTES: usize = 64 * 1024 * 1024;
