//! `McpServer` answers the requests of the Model Context Protocol over a [`Backend`].
#![expect(deprecated, reason = "logging is part of every revision that is served")]

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use gantry_domain::BusyPoll;
use gantry_tool::{Outcome, Refusal, may_be_hashed};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, ErrorCode, GetPromptRequestParams,
    GetPromptResponse, Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, LoggingLevel, LoggingMessageNotificationParam, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, SetLevelRequestParams,
    SubscriptionFilter,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::approval::{Approvals, Instead};
use crate::backend::{Backend, CallRequest, OfferedTools, Purpose, Who};
use crate::progress::{Reports, reports};
use crate::resources::{self, Reading};
use crate::results::result;
use crate::{prompts, tools};

const INSTRUCTIONS: &str = "Tools on the user's machines. Relative paths start in the workspace. A result that was too long \
    has a resultHandle: read the rest with result_read. A refusal names its rule: do not try to bypass it.";

/// The methods that the server answers.
const METHODS: [&str; 7] = [
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
];

/// Methods of protocol revisions up to 2025-11-25.
const OLDER_METHODS: [&str; 2] = ["initialize", "logging/setLevel"];

/// Characters of an unknown method that an error shows.
const SHOWN_METHOD_CHARS: usize = 64;

/// `McpServer` serves one client, or one request in protocol revisions without sessions.
pub struct McpServer<B> {
    backend: B,
    version: Arc<str>,
    shared: Arc<Shared>,
    /// The lowest severity of log messages that the client wants.
    level: Arc<AtomicU8>,
    /// Whether a task reports changes of the tool list. A session has at most one, however often
    /// its client sends `notifications/initialized`.
    reports_changes: AtomicBool,
    /// Fires when the session ends.
    over: Arc<DropGuard>,
}

struct Shared {
    approvals: Arc<Approvals>,
    calls: TaskTracker,
    busy_poll: BusyPoll,
    /// Fires to cancel every call.
    ending: CancellationToken,
    /// Fires when the client has sent its last message. Answers are still sent.
    left: CancellationToken,
}

impl Shared {
    fn new(settle: impl Fn() + Send + Sync + 'static) -> Shared {
        let calls = TaskTracker::new();
        let busy_poll = BusyPoll::new(calls.clone(), settle);
        let (ending, left) = (CancellationToken::new(), CancellationToken::new());
        Shared { approvals: Arc::default(), calls, busy_poll, ending, left }
    }
}

impl<B: Backend> McpServer<B> {
    pub fn new(backend: B, version: &str) -> McpServer<B> {
        let settling = backend.clone();
        McpServer::begin(backend, version.into(), Arc::new(Shared::new(move || settling.settle())))
    }

    /// Returns the same server for another client.
    pub(crate) fn another(&self) -> McpServer<B> {
        McpServer::begin(self.backend.clone(), self.version.clone(), self.shared.clone())
    }

    fn begin(backend: B, version: Arc<str>, shared: Arc<Shared>) -> McpServer<B> {
        McpServer {
            backend,
            version,
            shared,
            level: Arc::new(AtomicU8::new(severity(LoggingLevel::Warning))),
            reports_changes: AtomicBool::new(false),
            over: Arc::new(CancellationToken::new().drop_guard()),
        }
    }

    /// Returns the token that cancels every call.
    pub(crate) fn calls(&self) -> CancellationToken {
        self.shared.ending.clone()
    }

    /// Polls between the calls of a client that sends one call after another, until the server ends.
    pub(crate) fn busy_poll(&self) -> impl Future<Output = ()> + Send + use<B> {
        let shared = self.shared.clone();
        async move { shared.busy_poll.run(shared.ending.clone()).await }
    }

    /// Returns the token to fire when the only client of this server has sent its last message.
    pub(crate) fn left(&self) -> CancellationToken {
        self.shared.left.clone()
    }

    /// Cancels every call and waits until all have ended, with the processes that they started.
    pub(crate) fn ender(&self) -> impl Future<Output = ()> + Send + use<B> {
        let shared = self.shared.clone();
        async move {
            shared.ending.cancel();
            shared.calls.close();
            shared.calls.wait().await;
        }
    }

    async fn offered_tools(&self, who: &Who) -> Result<OfferedTools, ErrorData> {
        self.backend.offered_tools(who).await.map_err(|refusal| refused(&refusal))
    }

    fn reading<'a>(&'a self, who: &'a Who, context: &RequestContext<RoleServer>) -> Reading<'a, B> {
        Reading { backend: &self.backend, who, cancel: context.ct.child_token() }
    }

    /// Returns the registered name of a tool. Only names with a hash need a lookup.
    async fn own_name(&self, who: &Who, name: &str) -> Result<String, ErrorData> {
        if !may_be_hashed(name) {
            return Ok(name.to_owned());
        }
        Ok(tools::find(&self.offered_tools(who).await?, name).unwrap_or_else(|| name.to_owned()))
    }

    /// Runs a call and reports its progress. Cancelling the request also ends the processes that the call started.
    async fn run(
        &self,
        who: &Who,
        asked: CallRequest,
        mut reports: Reports,
        context: &RequestContext<RoleServer>,
    ) -> Outcome {
        let _counted = self.shared.calls.token();
        self.shared.busy_poll.on_activity();
        let (cancel, tool) = (asked.cancel.clone(), asked.tool.clone());
        let mut calling = pin!(Box::pin(self.backend.call(who, asked)));
        loop {
            tokio::select! {
                outcome = &mut calling => {
                    self.shared.busy_poll.on_activity();
                    return outcome;
                }
                () = context.ct.cancelled(), if !cancel.is_cancelled() => cancel.cancel(),
                report = reports.next() => {
                    if let Some(param) = reports.param(&report) {
                        self.notify(context.peer.notify_progress(param)).await;
                    }
                    let data = json!({"tool": tool, "done": report.done, "total": report.total, "message": report.message});
                    self.log(context, LoggingLevel::Info, data).await;
                }
            }
        }
    }

    /// Sends a log message if the client wants this level. Since 2026-07-28 each request names its level.
    async fn log(&self, context: &RequestContext<RoleServer>, level: LoggingLevel, data: Value) {
        if self.wants(context, level) {
            let param = LoggingMessageNotificationParam::new(level, data).with_logger("gantry");
            self.notify(context.peer.notify_logging_message(param)).await;
        }
    }

    /// Sends a notification. Stops when the client has left, because answers must not wait for it.
    async fn notify<T>(&self, sending: impl Future<Output = T>) {
        tokio::select! {
            biased;
            () = self.shared.left.cancelled() => {}
            // If sending fails, sending the answer fails too and reports it.
            _ = sending => {}
        }
    }

    fn wants(&self, context: &RequestContext<RoleServer>, level: LoggingLevel) -> bool {
        match context.meta.log_level() {
            Some(wanted) => severity(level) >= severity(wanted),
            None if is_newest(context) => false,
            None => severity(level) >= self.level.load(Ordering::Relaxed),
        }
    }

    /// Waits until the tool list differs from `last`, updates `last` and returns true. Returns false when no change can follow.
    async fn changed(
        backend: &B,
        who: &Who,
        changes: &mut tokio::sync::watch::Receiver<u64>,
        last: &mut Option<blake3::Hash>,
    ) -> bool {
        loop {
            if changes.changed().await.is_err() {
                return false;
            }
            let now = fingerprint(backend, who).await;
            if now != *last {
                *last = now;
                return true;
            }
        }
    }
}

/// The hash of the tool list as a client sees it. Sessions keep it, so it is small.
async fn fingerprint<B: Backend>(backend: &B, who: &Who) -> Option<blake3::Hash> {
    let shown = backend.offered_tools(who).await.ok()?;
    Some(blake3::hash(json!(tools::list(&shown)).to_string().as_bytes()))
}

fn refused(refusal: &Refusal) -> ErrorData {
    ErrorData::invalid_request(refusal.describe(), None)
}

/// Rejects a cursor. Every list has one page, so the server never gives one out.
fn only_page(page: Option<PaginatedRequestParams>) -> Result<(), ErrorData> {
    match page.and_then(|page| page.cursor) {
        None => Ok(()),
        Some(_) => Err(ErrorData::invalid_params("unknown cursor: this list has only one page", None)),
    }
}

fn is_newest(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

fn severity(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
    }
}

impl<B: Backend> ServerHandler for McpServer<B> {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_prompts()
            .enable_logging()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("gantry", &*self.version).with_title("Gantry"))
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS)
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        only_page(page)?;
        let shown = self.offered_tools(&Who::of(&context)).await?;
        Ok(ListToolsResult::with_all_items(tools::list(&shown)))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let who = Who::of(&context);
        let (approver, open) = self.shared.approvals.approver(&request, &context);
        let logged = self.wants(&context, LoggingLevel::Info);
        let (progress, reports) = reports(context.meta.get_progress_token(), logged);
        let asked = CallRequest {
            tool: self.own_name(&who, &request.name).await?,
            input: Value::Object(request.arguments.unwrap_or_default()),
            purpose: Purpose::Tool,
            cancel: self.shared.ending.child_token(),
            progress,
            approver,
        };
        let outcome = self.run(&who, asked, reports, &context).await;
        let question = open.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        match question {
            None => {}
            Some(Instead::Question(question)) => return Ok(CallToolResponse::InputRequired(question)),
            Some(Instead::Forged) => {
                return Err(ErrorData::invalid_params("the requestState was not given for this call", None));
            }
        }
        for warning in &outcome.warnings {
            self.log(&context, LoggingLevel::Warning, json!({"tool": outcome.tool, "warning": warning}))
                .await;
        }
        if let gantry_tool::Answer::Refused(refusal) = &outcome.answer {
            let data =
                json!({"tool": outcome.tool, "refused": refusal.code.name(), "message": refusal.message});
            self.log(&context, LoggingLevel::Notice, data).await;
        }
        result(outcome).map(CallToolResponse::Complete)
    }

    async fn list_resources(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        only_page(page)?;
        let who = Who::of(&context);
        Ok(ListResourcesResult::with_all_items(resources::list(&self.reading(&who, &context)).await))
    }

    async fn list_resource_templates(
        &self,
        page: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        only_page(page)?;
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let who = Who::of(&context);
        let read = resources::read(&self.reading(&who, &context), &request.uri).await?;
        Ok(ReadResourceResponse::Complete(read))
    }

    async fn list_prompts(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        only_page(page)?;
        let who = Who::of(&context);
        Ok(ListPromptsResult::with_all_items(prompts::list(&self.reading(&who, &context)).await))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let who = Who::of(&context);
        let prompt = prompts::get(&self.reading(&who, &context), &request.name).await?;
        Ok(GetPromptResponse::Complete(prompt))
    }

    /// Answers a request that the SDK could not parse: its method is unknown, or its params are invalid.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method: String = request.method.chars().take(SHOWN_METHOD_CHARS).collect();
        let is_gone = is_newest(&context) && OLDER_METHODS.contains(&method.as_str());
        if !is_gone && METHODS.iter().chain(&OLDER_METHODS).any(|known| *known == method) {
            let message = format!("invalid params for {method}");
            return Err(ErrorData::invalid_params(message, None));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("unknown method {method}"), None))
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.level.store(severity(request.level), Ordering::Relaxed);
        Ok(())
    }

    /// Up to 2025-11-25: notifies the client when its tools change, until the session ends.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if self.reports_changes.swap(true, Ordering::Relaxed) {
            return;
        }
        let (backend, over) = (self.backend.clone(), self.over.token().clone());
        let who = Who {
            client: "unknown".into(),
            parts: context.extensions.get::<http::request::Parts>().cloned(),
        };
        let peer: Peer<RoleServer> = context.peer;
        let mut changes = backend.changes();
        let notifying = async move {
            let mut last = fingerprint(&backend, &who).await;
            while Self::changed(&backend, &who, &mut changes, &mut last).await {
                if peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::spawn(async move {
            tokio::select! {
                () = over.cancelled() => {}
                () = notifying => {}
            }
        });
    }

    /// Since 2026-07-28: the client subscribes to notifications.
    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::default();
        accepted.tools_list_changed = requested.tools_list_changed;
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let who = Who::of(context.request_context());
        let mut changes = self.backend.changes();
        let mut last = fingerprint(&self.backend, &who).await;
        let notifying = async {
            while Self::changed(&self.backend, &who, &mut changes, &mut last).await {
                if context.sink().notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
            std::future::pending().await
        };
        tokio::select! {
            () = context.cancelled() => {}
            () = self.shared.ending.cancelled() => {}
            () = notifying => {}
        }
        Ok(())
    }
}
