//! Serves one MCP client with a gateway's tools, over a link. After a lost connection the next request reconnects.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use gantry_link::{Event, Link, LinkError, Request, ServeFuture, Service};
use gantry_mcp::{Backend, CallRequest, OfferedTools, Purpose, Selection, Who};
use gantry_protocol::{
    ApprovalAnswer, ApprovalAsk, AskedAction, CallParams, CallProgress, StreamFrame, ToolInfo, ToolList,
    ToolsListParams, event, method, raw,
};
use gantry_tool::{
    Approval, Approver, Consent, Effect, NodeState, Outcome, Progress, ProgressSink, Refusal, RefusalCode,
    Registry, RemoteTool, Tool, ToolError, Toolset, View,
};
use tokio::sync::watch;

use super::ServeArgs;
use crate::client::{ANSWER_LIMIT, Address, CALL_OFF_GRACE, open, outcome};
use crate::environment::Environment;
use crate::exit::Refused;

#[derive(Clone)]
pub(super) struct Through(Arc<Inner>);

struct Inner {
    address: Address,
    agent: Option<String>,
    workspace: Option<String>,
    selection: Selection,
    listener: Arc<Listener>,
    link: tokio::sync::Mutex<Option<Link>>,
    /// The gateway's list of tools, with the number of the change it belongs to.
    known: tokio::sync::Mutex<Option<(u64, ListedTools)>>,
}

/// `ListedTools` holds the tools that the token and the agent may use, as the gateway listed them last.
#[derive(Clone)]
struct ListedTools {
    registry: Registry,
    /// Whether the token or the agent names its tools.
    listed: bool,
}

/// Receivers of a running call's progress and approval questions.
struct CallHandlers {
    progress: Option<ProgressSink>,
    approver: Option<Approver>,
}

/// Receives the gateway's events and approval questions.
struct Listener {
    changes: watch::Sender<u64>,
    /// By the number of the request.
    calls: Mutex<HashMap<String, CallHandlers>>,
}

impl Through {
    pub(super) async fn open(
        address: Address,
        environment: &Environment,
        args: &ServeArgs,
        selection: Selection,
    ) -> Result<Through> {
        let own = (address.is_ours && args.agent.is_none()).then(std::path::PathBuf::new);
        let workspace = args
            .workspace
            .clone()
            .or(own)
            .map(|path| environment.resolve(&environment.current_dir.join(path)));
        let workspace =
            workspace.map(|path| path.to_str().map(str::to_owned).context("the workspace is not UTF-8"));
        let listener = Listener { changes: watch::Sender::new(0), calls: Mutex::default() };
        let through = Through(Arc::new(Inner {
            address,
            agent: args.agent.clone(),
            workspace: workspace.transpose()?,
            selection,
            listener: Arc::new(listener),
            link: tokio::sync::Mutex::default(),
            known: tokio::sync::Mutex::default(),
        }));
        // An unreachable gateway or an unknown agent fails here, not with the first call.
        through.listed_tools().await.map_err(Refused)?;
        Ok(through)
    }

    async fn link(&self) -> Result<Link, Refusal> {
        let mut current = self.0.link.lock().await;
        if let Some(link) = current.as_ref().filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        let (link, ..) = open(&self.0.address, self.0.listener.clone()).await?;
        // The list of tools may have changed.
        self.0.listener.changes.send_modify(|changes| *changes += 1);
        *current = Some(link.clone());
        Ok(link)
    }

    async fn listed_tools(&self) -> Result<ListedTools, Refusal> {
        let link = self.link().await?;
        let mut known = self.0.known.lock().await;
        let now = *self.0.listener.changes.borrow();
        if let Some((_, tools)) = known.as_ref().filter(|(then, _)| *then == now) {
            return Ok(tools.clone());
        }
        let params = ToolsListParams {
            agent: self.0.agent.clone(),
            mcp: Some("gantry".to_owned()),
            follow: true,
            toolset: None,
        };
        let answer = link.request_within(method::TOOLS_LIST, raw(&params), ANSWER_LIMIT).await;
        let answer = answer.map_err(|err| match err {
            LinkError::Remote(error) => Refusal::from_wire(error),
            LinkError::Closed(reason) => Refusal::new(RefusalCode::Unavailable, reason.to_string()),
        })?;
        let listed: ToolList = serde_json::from_str(answer.get()).map_err(|err| {
            Refusal::new(RefusalCode::Unavailable, format!("invalid list of tools from the gateway: {err}"))
        })?;
        let registry = Registry::default();
        for tool in listed.tools.iter().filter_map(mirrored) {
            registry.replace(tool);
        }
        for (node, online) in listed.tools.iter().flat_map(states) {
            registry.set_node_state(node, NodeState { online, tags: Vec::new() });
        }
        let tools = ListedTools { registry, listed: listed.listed == Some(true) };
        *known = Some((now, tools.clone()));
        Ok(tools)
    }

    /// Describes the parts of the selection that match no tool now.
    pub(super) async fn missing(&self) -> Vec<String> {
        match self.listed_tools().await {
            Ok(tools) => self.0.selection.unmatched(&tools.registry),
            Err(_) => Vec::new(),
        }
    }

    async fn view(&self, purpose: Purpose) -> Result<View, Refusal> {
        let tools = self.listed_tools().await?;
        let selection = self.0.selection.clone().for_listed(tools.listed);
        let scope = match purpose {
            Purpose::Tool => selection.scope(),
            Purpose::Resource => selection.resource_scope(),
        };
        let scope = scope.map_err(|err| Refusal::new(RefusalCode::InvalidInput, err.to_string()))?;
        Ok(tools.registry.view(&scope))
    }

    async fn send(&self, who: &Who, request: CallRequest) -> Result<Outcome, Refusal> {
        let view = self.view(request.purpose).await?;
        if view.describe(&request.tool).is_none() {
            return Err(view.unknown(&request.tool));
        }
        let link = self.link().await?;
        let params = CallParams {
            tool: request.tool.clone(),
            input: Some(raw(&request.input)),
            agent: self.0.agent.clone(),
            workspace: self.0.workspace.clone(),
            mcp: Some(who.client.clone()),
            asks: request.approver.is_some(),
        };
        let mut listening = Listening { listener: &self.0.listener, number: None };
        let handlers = CallHandlers { progress: request.progress, approver: request.approver };
        let answer = link
            .request_numbered(
                method::TOOL_CALL,
                raw(&params),
                None,
                &request.cancel,
                CALL_OFF_GRACE,
                |number| {
                    listening.listen(number, handlers);
                },
            )
            .await;
        Ok(outcome(&request.tool, answer))
    }
}

impl Backend for Through {
    async fn offered_tools(&self, _: &Who) -> Result<OfferedTools, Refusal> {
        Ok(OfferedTools { tools: self.view(Purpose::Tool).await?, names: self.0.selection.names() })
    }

    async fn call(&self, who: &Who, request: CallRequest) -> Outcome {
        let tool = request.tool.clone();
        let sent = self.send(who, request).await;
        sent.unwrap_or_else(|refusal| Outcome::from_wire(&tool, Err(refusal.to_wire())))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.listener.changes.subscribe()
    }
}

/// Makes a local description of a listed tool; calls go over the link. Tools listed by their bare names are skipped,
/// because the registry derives them from the others.
fn mirrored(listed: &ToolInfo) -> Option<Tool> {
    if listed.nodes.is_some() {
        return None;
    }
    let remote = RemoteTool {
        name: listed.name.clone(),
        toolset: Toolset::from_name(&listed.toolset)?,
        description: listed.description.clone(),
        input_schema: listed.input_schema.clone(),
        output_schema: listed.output_schema.clone(),
        read_only: listed.read_only,
        destructive: listed.destructive,
        idempotent: listed.idempotent,
        open_world: listed.open_world,
        capabilities: Vec::new(),
    };
    let tool =
        Tool::remote(remote, |_, _| async { Err(ToolError::internal("only the gateway runs this tool")) });
    let effects = listed.effects.as_ref();
    let effects: Option<Vec<Effect>> =
        effects.map(|names| names.iter().filter_map(|name| Effect::from_name(name)).collect());
    let tool = match &effects {
        Some(effects) => tool.effects(effects),
        None => tool,
    };
    let is_offered = match &listed.offered_to {
        Some(audiences) => audiences.iter().any(|audience| audience == "clients"),
        // An older gateway does not report it; then clients get the node tools.
        None => tool.toolset() == Toolset::Node,
    };
    Some(if is_offered { tool.offered_to_clients() } else { tool })
}

/// Returns the nodes of a shared tool, and whether each is online.
fn states(listed: &ToolInfo) -> Vec<(&str, bool)> {
    let online = listed.online.as_deref().unwrap_or_default();
    listed.nodes.iter().flatten().map(|node| (node.as_str(), online.contains(node))).collect()
}

/// Registers the handlers of one call while it runs.
struct Listening<'a> {
    listener: &'a Listener,
    number: Option<String>,
}

impl Listening<'_> {
    fn listen(&mut self, number: u64, handlers: CallHandlers) {
        let number = number.to_string();
        self.listener.calls().insert(number.clone(), handlers);
        self.number = Some(number);
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        if let Some(number) = &self.number {
            self.listener.calls().remove(number);
        }
    }
}

impl Listener {
    fn calls(&self) -> std::sync::MutexGuard<'_, HashMap<String, CallHandlers>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn approve(&self, asked: ApprovalAsk) -> ApprovalAnswer {
        let ApprovalAsk { call, tool, rule, reason, input, fingerprint, action } = asked;
        let approver = self.calls().get(&call).and_then(|handlers| handlers.approver.clone());
        let Some(approver) = approver else {
            return ApprovalAnswer { allow: false, reason: Some("this client cannot ask a person".into()) };
        };
        // A gateway of an earlier version describes a call by its input.
        let action = action.unwrap_or_else(|| AskedAction::Other {
            tool: tool.clone(),
            input: input.clone(),
            not_shown: 0,
        });
        let whole = action.clone();
        match approver.ask(Approval { tool, rule, reason, input, fingerprint, action, whole }).await {
            Consent::Allowed | Consent::Granted(_) => ApprovalAnswer { allow: true, reason: None },
            Consent::Denied(reason) => ApprovalAnswer { allow: false, reason: Some(reason) },
        }
    }
}

impl Service for Listener {
    fn request(self: Arc<Self>, _link: Link, request: Request) -> ServeFuture {
        Box::pin(async move {
            match request.method.as_str() {
                method::APPROVAL_ASK => Ok(raw(&self.approve(request.parse()?).await)),
                _ => Err(request.unknown()),
            }
        })
    }

    fn event(&self, _link: &Link, received: Event) {
        if received.name == event::TOOLS_CHANGED {
            self.changes.send_modify(|changes| *changes += 1);
        } else if received.name == event::CALL_PROGRESS
            && let Some(CallProgress { call, done, total, message }) = received.parse()
        {
            let sink = self.calls().get(&call).and_then(|handlers| handlers.progress.clone());
            sink.inspect(|sink| sink.report(Progress { done, total, message }));
        }
    }

    fn stream(&self, _link: &Link, _frame: StreamFrame) {}
}
