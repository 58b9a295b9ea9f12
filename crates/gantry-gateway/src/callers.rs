//! Makes a call from an identity: its principal, agent, visible tools and workspace.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use gantry_domain::Identity;
use gantry_mcp::RESULT_READ;
use gantry_store::DatabaseError;
use gantry_tool::{Autonomy, Call, Principal, Refusal, RefusalCode, Surface, ToolScope, nearest};
use tokio_util::sync::CancellationToken;

use crate::gateway::Gateway;

pub(crate) const MAIN_AGENT: &str = "main";

/// The settings of an agent that calls need.
#[derive(Debug, Clone, Default)]
pub struct Agent {
    pub autonomy: Autonomy,
    pub scope: ToolScope,
    /// An absolute path; the gateway's workspace when left out.
    pub workspace: Option<PathBuf>,
    /// The node that runs tools called by their bare names.
    pub node: Option<String>,
}

/// The caller's choices for a call.
#[derive(Debug, Default)]
pub(crate) struct Wanted<'a> {
    pub(crate) agent: Option<&'a str>,
    /// Only the operator may choose a workspace.
    pub(crate) workspace: Option<&'a str>,
    /// The name that an MCP client gives itself.
    pub(crate) mcp: Option<&'a str>,
}

impl Gateway {
    /// Makes a call by an identity, or as an agent it may act as. The call is cancelled when the gateway or the token ends.
    pub(crate) fn call(
        &self,
        identity: &Identity,
        wanted: &Wanted<'_>,
        surface: Surface,
    ) -> Result<Call, Refusal> {
        self.call_until(self.auth.ending_of_call(identity), identity, wanted, surface)
    }

    /// Makes a call like [`Gateway::call`], for a surface that cancels its calls itself.
    pub(crate) fn call_until(
        &self,
        cancel: CancellationToken,
        identity: &Identity,
        wanted: &Wanted<'_>,
        surface: Surface,
    ) -> Result<Call, Refusal> {
        let acts = acting(identity, wanted.agent)?;
        let id = acts.unwrap_or(MAIN_AGENT);
        let agents = self.agents();
        let agent = find_agent(&agents, id)?;
        let principal = match (identity, wanted.agent, wanted.mcp) {
            (_, Some(id), _) => Principal::Agent { id: id.to_owned() },
            (Identity::Operator | Identity::Page(_), None, None) => Principal::Operator,
            (Identity::Client(token), None, None) => Principal::Client { token: token.owner() },
            (Identity::Operator | Identity::Page(_), None, Some(client)) => {
                Principal::Mcp { client: client.replace('/', "-") }
            }
            // A client's own name is not verified; its token is.
            (Identity::Client(token), None, Some(client)) => {
                Principal::Mcp { client: format!("{}/{client}", token.owner()) }
            }
        };
        let workspace = match wanted.workspace {
            None => agent.workspace.clone().unwrap_or_else(|| self.workspace.clone()),
            Some(path) => identity.chosen_workspace(path)?,
        };
        let mut call = Call::until(cancel, principal, surface, workspace);
        id.clone_into(&mut call.agent);
        call.acts_for_no_agent = acts.is_none();
        if let Identity::Client(token) = identity {
            call.token = Some(token.owner());
        }
        call.autonomy = agent.autonomy;
        call.scope = self.scope(identity, agent, surface)?;
        call.default_node.clone_from(&agent.node);
        Ok(call)
    }

    /// Returns the cancellation of work that a client token started, or `None` if the token is no longer valid.
    pub async fn ending_of_token(&self, owner: &str) -> Result<Option<CancellationToken>, DatabaseError> {
        let good = async || {
            let tokens = self.database.list_client_tokens().await?;
            let found = tokens.into_iter().find(|token| token.owner() == owner && token.revoked.is_none());
            let identity = found.map(|token| Identity::Client(Arc::new(token)));
            Ok::<_, DatabaseError>(identity.filter(|identity| !identity.is_expired()))
        };
        let Some(identity) = good().await? else { return Ok(None) };
        let ending = self.auth.ending_of_call(&identity);
        // Checked again, because a revocation before the registration above cancels nothing.
        Ok(good().await?.map(|_| ending))
    }

    fn scope(&self, identity: &Identity, agent: &Agent, surface: Surface) -> Result<ToolScope, Refusal> {
        // Results may be shortened there, so the tool that reads the rest is included.
        let reads_on = |scope: ToolScope| match surface {
            Surface::Mcp => scope.including(RESULT_READ),
            _ => scope,
        };
        let Identity::Client(token) = identity else { return Ok(reads_on(agent.scope.clone())) };
        let own = ToolScope::new(token.tools.as_deref(), &[]).map_err(|err| {
            Refusal::new(
                RefusalCode::Denied,
                format!("the token \"{}\" has an invalid scope: {err}", token.name),
            )
        })?;
        let own = reads_on(own.within(agent.scope.clone()));
        Ok(if token.read_only { own.read_only() } else { own })
    }
}

fn find_agent<'a>(agents: &'a BTreeMap<String, Agent>, id: &str) -> Result<&'a Agent, Refusal> {
    agents.get(id).ok_or_else(|| {
        let shown: String = id.chars().take(64).collect();
        let refusal = Refusal::new(RefusalCode::InvalidInput, format!("unknown agent \"{shown}\""));
        match nearest(&shown, agents.keys().map(String::as_str)).first() {
            Some(near) => refusal.with_hint(format!("did you mean \"{near}\"?")),
            None => refusal.with_hint("configure agents as [agents.NAME] in gantry.toml"),
        }
    })
}

/// Returns the agent that an identity acts as: the named one, else its only one. `None` for a token without agents; then
/// the limits of `main` apply, but not its memory.
fn acting<'a>(identity: &'a Identity, named: Option<&'a str>) -> Result<Option<&'a str>, Refusal> {
    let Identity::Client(token) = identity else { return Ok(Some(named.unwrap_or(MAIN_AGENT))) };
    match (named, token.agents.as_slice()) {
        (Some(id), _) => identity.check_agent(id).map(|()| Some(id)),
        (None, []) => Ok(None),
        (None, _) if identity.may_act_as(MAIN_AGENT) => Ok(Some(MAIN_AGENT)),
        (None, [only]) => Ok(Some(only)),
        (None, several) => {
            let message =
                format!("the token \"{}\" may act as {}; choose one of them", token.name, several.join(", "));
            Err(Refusal::new(RefusalCode::Denied, message)
                .with_hint("set the header Gantry-Agent, or \"agent\" over WebSocket"))
        }
    }
}
