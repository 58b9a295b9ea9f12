//! Serves one MCP client from the gate of this process.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use gantry_mcp::{Backend, CallRequest, OfferedTools, Purpose, RESULT_READ, Selection, Who};
use gantry_tool::{Call, Outcome, Principal, Refusal, RefusalCode, Surface, ToolScope};
use tokio::sync::watch;

use crate::local::Local;

#[derive(Clone)]
pub(super) struct InProcess(Arc<Inner>);

struct Inner {
    local: Arc<Local>,
    agent: Option<String>,
    workspace: Option<PathBuf>,
    selection: Selection,
    tools: ToolScope,
    resources: ToolScope,
}

impl InProcess {
    /// Fails if the agent does not exist, so that the error is not delayed until the first call.
    pub(super) fn new(
        local: Arc<Local>,
        agent: Option<String>,
        workspace: Option<PathBuf>,
        selection: Selection,
    ) -> Result<InProcess> {
        let call = local.call(agent.as_deref(), None)?;
        let selection = selection.for_listed(call.scope.is_listed());
        let (tools, resources) = (selection.scope()?, selection.resource_scope()?);
        Ok(InProcess(Arc::new(Inner { local, agent, workspace, selection, tools, resources })))
    }

    fn call(&self, who: &Who, purpose: Purpose) -> Result<Call, Refusal> {
        let InProcess(inner) = self;
        let mut call = inner
            .local
            .call(inner.agent.as_deref(), inner.workspace.clone())
            .map_err(|err| Refusal::new(RefusalCode::InvalidInput, format!("{err:#}")))?;
        if inner.agent.is_none() {
            call.principal = Principal::Mcp { client: who.client.clone() };
        }
        call.surface = Surface::Mcp;
        let chosen = match purpose {
            Purpose::Tool => &inner.tools,
            Purpose::Resource => &inner.resources,
        };
        // Results may be shortened, so `result_read` is offered even if the agent's list does not name it.
        call.scope = chosen.clone().within(call.scope.including(RESULT_READ));
        Ok(call)
    }
}

impl Backend for InProcess {
    async fn offered_tools(&self, who: &Who) -> Result<OfferedTools, Refusal> {
        let call = self.call(who, Purpose::Tool)?;
        let tools = self.0.local.gate.registry().view(&call.scope);
        Ok(OfferedTools { tools, names: self.0.selection.names() })
    }

    async fn call(&self, who: &Who, request: CallRequest) -> Outcome {
        let mut call = match InProcess::call(self, who, request.purpose) {
            Ok(call) => call,
            Err(refusal) => return Outcome::from_wire(&request.tool, Err(refusal.to_wire())),
        };
        (call.cancel, call.progress, call.approver) = (request.cancel, request.progress, request.approver);
        Box::pin(self.0.local.gate.dispatch(call, &request.tool, request.input)).await
    }

    fn settle(&self) {
        self.0.local.gate.settle();
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.local.gate.registry().changes()
    }
}
