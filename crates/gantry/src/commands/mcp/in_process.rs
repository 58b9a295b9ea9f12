//! Serves one MCP client from the gate of this process.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use gantry_mcp::{Backend, CallRequest, OfferedTools, Purpose, RESULT_READ, Selection, Who};
use gantry_tool::{Autonomy, Call, Outcome, Principal, Refusal, Surface, ToolScope};
use tokio::sync::watch;

use crate::local::Local;

#[derive(Clone)]
pub(super) struct InProcess(Arc<Inner>);

struct Inner {
    local: Arc<Local>,
    /// `None` if the calls are the client's own.
    agent: Option<String>,
    selection: Selection,
    // Every call needs the following. Nothing of it changes while the process runs, so it is computed once.
    workspace: PathBuf,
    autonomy: Autonomy,
    default_node: Option<String>,
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
        let Call { workspace, autonomy, default_node, scope, .. } =
            local.call(agent.as_deref(), workspace)?;
        let selection = selection.for_listed(scope.is_listed());
        // Results may be shortened, so `result_read` is offered even if the agent's list does not name it.
        let agent_scope = scope.including(RESULT_READ);
        let tools = selection.scope()?.within(agent_scope.clone());
        let resources = selection.resource_scope()?.within(agent_scope);
        let inner = Inner { local, agent, selection, workspace, autonomy, default_node, tools, resources };
        Ok(InProcess(Arc::new(inner)))
    }

    fn principal(&self, who: &Who) -> Principal {
        match &self.0.agent {
            Some(id) => Principal::Agent { id: id.clone() },
            None => Principal::Mcp { client: who.client.clone() },
        }
    }
}

impl Backend for InProcess {
    async fn offered_tools(&self, _: &Who) -> Result<OfferedTools, Refusal> {
        let tools = self.0.local.gate.registry().view(&self.0.tools);
        Ok(OfferedTools { tools, names: self.0.selection.names() })
    }

    async fn call(&self, who: &Who, request: CallRequest) -> Outcome {
        let inner = &*self.0;
        let mut call =
            Call::until(request.cancel, self.principal(who), Surface::Mcp, inner.workspace.clone());
        call.autonomy = inner.autonomy;
        call.default_node.clone_from(&inner.default_node);
        call.scope = match request.purpose {
            Purpose::Tool => inner.tools.clone(),
            Purpose::Resource => inner.resources.clone(),
        };
        (call.progress, call.approver) = (request.progress, request.approver);
        Box::pin(inner.local.gate.dispatch(call, &request.tool, request.input)).await
    }

    fn settle(&self) {
        self.0.local.gate.settle();
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.local.gate.registry().changes()
    }
}
