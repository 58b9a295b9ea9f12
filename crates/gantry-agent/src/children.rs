//! Starts child sessions, waits for them, and stops them when their callers no longer wait.
//!
//! The key and the first message of a child derive from the call that started it. A call that is repeated after a
//! restart therefore finds its child and waits for it.

use std::sync::Arc;

use gantry_protocol::SessionEvent;
use gantry_store::{ACCOUNT_SEPARATOR, Parentage};
use gantry_tool::{Autonomy, Call, FLOW_RULE, Label, Property, ToolScope, nearest};
use serde_json::json;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::agent::FlowRule;
use crate::child::{AccountBudget, Child, Payer, ToolLimits};
use crate::driver::{Command, Status};
use crate::entry::Incoming;
use crate::key::{MAIN, SessionKey};
use crate::role::{self, Role, Spec};
use crate::sessions::{MAX_MESSAGE_BYTES, SessionError, Sessions, now_ms};

/// The highest depth of a child.
pub const MAX_DEPTH: u32 = 5;
/// The highest number of running children of one parent.
pub const MAX_CHILDREN: u64 = 20;
/// The highest number of running children of one root session.
pub const MAX_FAMILY: usize = 100;

const MAX_NAME_CHARS: usize = 64;
/// The names of tiers. If no model has the tier, the parent's model is used.
const TIERS: [&str; 6] = ["fast", "balanced", "deep", "haiku", "sonnet", "opus"];
const DEFAULT_TIER: &str = "balanced";

/// A running child. Dropping the handle before the child ends stops the child.
pub struct ChildHandle {
    sessions: Sessions,
    pub key: SessionKey,
    pub child: Child,
    incoming: Incoming,
    events: broadcast::Receiver<Arc<SessionEvent>>,
    settled: Option<SessionEvent>,
    has_ended: bool,
}

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildEnd {
    /// Its answer, or the reason why there is none.
    pub outcome: Result<String, String>,
    /// The labels of its conversation.
    pub labels: Vec<Label>,
    /// The host that all its private content came from, if there is exactly one.
    pub private_from: Option<String>,
}

/// What a child inherits from the caller that starts it.
struct Parent {
    /// The caller's session, or the principal if it has none.
    key: String,
    /// The caller's own limits, if it is a child.
    above: Option<Box<Child>>,
    payer: Payer,
}

impl Sessions {
    /// Starts child number `index` of a call, or finds it if it was started before.
    pub async fn start_child(
        &self,
        call: &Call,
        index: usize,
        spec: &Spec,
    ) -> Result<ChildHandle, SessionError> {
        check_text("name", &spec.name, MAX_NAME_CHARS)?;
        check_text("task", &spec.task, MAX_MESSAGE_BYTES / 2)?;
        for (what, text) in [("context", &spec.context), ("system prompt", &spec.system_prompt)] {
            text.as_ref().map_or(Ok(()), |text| check_text(what, text, MAX_MESSAGE_BYTES / 2))?;
        }
        let role = spec.role.as_deref().map(|name| self.role(name)).transpose()?;
        let mut resolved = role::resolve(spec, role.as_ref());
        if let Some(listed) = &spec.tools {
            self.check_tools(call, listed)?;
        }
        resolved.model = self.model_for(&call.agent, resolved.model).await?;
        let text = match &spec.context {
            Some(context) => format!("<context>\n{context}\n</context>\n\n{}", spec.task),
            None => spec.task.clone(),
        };
        let (key, mut child, incoming) = self.prepare_child(call, index, &spec.name, text).await?;
        child.role.clone_from(&spec.role);
        child.tools.extend(resolved.tools);
        child.shown = resolved.shown;
        (child.model, child.thinking) = (resolved.model, resolved.thinking);
        (child.effort, child.prompt) = (resolved.effort, resolved.prompt);
        (child.max_turns, child.max_tokens) = (spec.max_turns, spec.max_tokens);
        child.isolated_memory |= spec.isolated_memory;
        if let Some(limit) = spec.max_budget {
            child.budgets.push(AccountBudget {
                account: child.account.clone(),
                limit,
                allows_unpriced: false,
            });
        }
        self.start(key, child, incoming).await
    }

    /// Starts a child from a configured agent, or finds it if it was started before.
    pub async fn start_from_template(
        &self,
        call: &Call,
        template: &str,
        message: String,
    ) -> Result<ChildHandle, SessionError> {
        check_text("message", &message, MAX_MESSAGE_BYTES / 2)?;
        let agents = self.agents();
        let Some(agent) = agents.get(template) else {
            let near =
                nearest(template, agents.keys().map(String::as_str)).first().map(|&near| near.to_owned());
            let agent = template.chars().take(MAX_NAME_CHARS).collect();
            return Err(SessionError::UnknownAgent { agent, near });
        };
        let model = agent.model.clone();
        let (key, mut child, incoming) = self.prepare_child(call, 0, template, message).await?;
        child.template = Some(template.to_owned());
        child.model = model;
        // Such children may start children the same way, up to the highest depth.
        child.tools.push(ToolLimits::without(Property::StartsUnboundedChildren));
        if *template != call.agent && !child.policy_agents.iter().any(|known| known == template) {
            child.policy_agents.push(template.to_owned());
        }
        self.start(key, child, incoming).await
    }

    pub(crate) fn role(&self, name: &str) -> Result<Role, SessionError> {
        let settings = self.shared().settings();
        let roles = &settings.roles;
        roles.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = roles.keys().map(String::as_str).collect();
            let near = nearest(name, known.iter().copied());
            let shown: String = name.chars().take(MAX_NAME_CHARS).collect();
            let hint = match near.first() {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("known roles: {}", known.join(", ")),
            };
            SessionError::Refused(format!("unknown role {shown:?}; {hint}"))
        })
    }

    /// Rejects unknown tool names, which would silently leave the child without a tool.
    fn check_tools(&self, call: &Call, listed: &[String]) -> Result<(), SessionError> {
        let view = self.shared().parts.gate.registry().view(&call.scope);
        for name in listed {
            let one = ToolScope::new(Some(std::slice::from_ref(name)), &[]);
            let one = one.map_err(|err| SessionError::Refused(err.to_string()))?;
            if !view.entries().iter().any(|tool| one.allows(tool)) {
                return Err(SessionError::Refused(view.unknown(name).to_string()));
            }
        }
        Ok(())
    }

    /// Returns the child's model. A tier without a model falls back to the parent's model; an unknown name is an error.
    pub(crate) async fn model_for(
        &self,
        agent: &str,
        wanted: Option<String>,
    ) -> Result<Option<String>, SessionError> {
        let name = wanted.as_deref().unwrap_or(DEFAULT_TIER);
        match self.shared().parts.model.facts(Some(name)).await {
            Ok(_) => Ok(Some(name.to_owned())),
            Err(_) if TIERS.contains(&name) => {
                Ok(self.agents().get(agent).and_then(|agent| agent.model.clone()))
            }
            Err(why) => Err(SessionError::Refused(why)),
        }
    }

    async fn parent(&self, call: &Call) -> Result<Parent, SessionError> {
        let Some(session) = &call.session else {
            let payer = Payer { account: call.id.clone(), budgets: Vec::new() };
            return Ok(Parent { key: call.principal.to_string(), above: None, payer });
        };
        let key = self.key(session, None)?;
        let Status { child, payer, .. } = self.own_status(&key).await?;
        Ok(Parent { key: key.key, above: child, payer })
    }

    /// Returns the account for a message that a call sends: the account of the caller's run, if a session makes the call.
    pub async fn payer(&self, call: &Call) -> Result<Option<Payer>, SessionError> {
        match call.session {
            Some(_) => Ok(Some(self.parent(call).await?.payer)),
            None => Ok(None),
        }
    }

    /// Builds a child with the inherited limits, its key and its first message.
    async fn prepare_child(
        &self,
        call: &Call,
        index: usize,
        name: &str,
        text: String,
    ) -> Result<(SessionKey, Child, Incoming), SessionError> {
        let parent = self.parent(call).await?;
        let above = parent.above.as_deref();
        let depth = above.map_or(0, |above| above.depth).saturating_add(1);
        if depth > MAX_DEPTH {
            return Err(SessionError::Refused(format!(
                "child agents can be nested at most {MAX_DEPTH} deep"
            )));
        }
        let step = call.step.clone().unwrap_or_else(|| call.id.clone());
        let id = blake3::hash(format!("{step}\n{index}").as_bytes()).to_hex()[..16].to_owned();
        let key = self.key(&format!("agent:{}:child:{id}", call.agent), None)?;
        let now = now_ms();
        let limit = i64::try_from(self.shared().settings().child_limit.as_millis()).unwrap_or(i64::MAX);
        let child = Child {
            name: name.to_owned(),
            root: above.map_or_else(|| parent.key.clone(), |above| above.root.clone()),
            step,
            message: format!("begun-{id}"),
            depth,
            deadline: now.saturating_add(limit),
            role: None,
            template: None,
            policy_agents: above.map(|above| above.policy_agents.clone()).unwrap_or_default(),
            model: None,
            thinking: None,
            effort: None,
            prompt: None,
            tools: above.map(|above| above.tools.clone()).unwrap_or_default(),
            shown: None,
            autonomy: call.autonomy,
            workspace: call.workspace.clone(),
            max_turns: None,
            max_tokens: None,
            account: format!("{}{ACCOUNT_SEPARATOR}{id}", parent.payer.account),
            budgets: parent.payer.budgets.clone(),
            isolated_memory: above.is_some_and(|above| above.isolated_memory),
            unattended: call.autonomy == Autonomy::Autonomous || above.is_some_and(|above| above.unattended),
            parent: parent.key.clone(),
            background: None,
        };
        let incoming = Incoming {
            id: child.message.clone(),
            text,
            images: Vec::new(),
            at: now,
            reply_to: json!({"session": parent.key.clone()}),
            from: parent.key,
            labels: call.labels.clone(),
            payer: None,
        };
        Ok((key, child, incoming))
    }

    async fn start(
        &self,
        key: SessionKey,
        child: Child,
        incoming: Incoming,
    ) -> Result<ChildHandle, SessionError> {
        let events = self.listen(&key);
        // One start at a time, so that the counts below are exact.
        let _guard = self.shared().starting_child.lock().await;
        let journal = &self.shared().parts.journal;
        let is_known = journal.load(&key.key).await?.is_some_and(|session| session.row.next_seq > 0);
        if !is_known {
            if journal.children_at_work(&child.parent).await? >= MAX_CHILDREN {
                let message =
                    format!("{MAX_CHILDREN} children are already running; wait until one has ended");
                return Err(SessionError::Refused(message));
            }
            if journal.family_at_work(&child.root).await?.len() >= MAX_FAMILY {
                let message = format!(
                    "{MAX_FAMILY} children are already running for {}; wait until one has ended",
                    child.root
                );
                return Err(SessionError::Refused(message));
            }
            let parentage = Parentage { parent: &child.parent, root: &child.root, label: &child.name };
            journal.adopt(&key.key, &key.agent, parentage, now_ms()).await?;
        }
        let (own, first) = (Box::new(child.clone()), incoming.clone());
        let settled =
            self.ask(&key, |done| Command::StartChild { child: own, incoming: first, done }).await?;
        // A child that was started before keeps its deadline.
        let child = match self.own_status(&key).await?.child {
            Some(known) => *known,
            None => child,
        };
        Ok(ChildHandle { sessions: self.clone(), key, child, incoming, events, settled, has_ended: false })
    }

    /// Returns the session for messages to an agent: the main session of a configured agent, or an existing session.
    pub async fn inbox(&self, agent: &str) -> Result<SessionKey, SessionError> {
        if self.agents().contains_key(agent) {
            return self.key(MAIN, Some(agent));
        }
        let key = self.key(agent, None)?;
        self.known(&key).await?;
        Ok(key)
    }

    /// Checks that an agent may write to a session: it exists, or is the main session of a configured agent. Only
    /// people, and tools that count children, may create other sessions.
    pub async fn open_to_agents(&self, key: &SessionKey) -> Result<(), SessionError> {
        if self.key(MAIN, Some(&key.agent))? == *key {
            return Ok(());
        }
        self.known(key).await
    }

    /// Checks that a call may write to an agent. The caller's agent and all its policy agents have to allow it.
    pub fn may_write(&self, call: &Call, to: &SessionKey) -> Result<(), SessionError> {
        if call.session.is_none() || to.agent == call.agent {
            return Ok(());
        }
        let settings = self.shared().settings();
        let is_off = |name: &String| settings.agent(name).is_some_and(|agent| agent.flow == FlowRule::Off);
        let holds_both = [Label::Untrusted, Label::Private].iter().all(|label| call.labels.contains(label));
        if holds_both && is_off(&to.agent) && !is_off(&call.agent) {
            let message = format!(
                "the conversation contains untrusted text and private data, and the agent {} has network access \
                 without approval (rule {})",
                to.agent, FLOW_RULE
            );
            return Err(SessionError::Denied(message));
        }
        let binding = std::iter::once(&call.agent).chain(&call.policy_agents);
        for name in binding {
            let Some(listed) = settings.agent(name).and_then(|agent| agent.messages.as_ref()) else {
                continue;
            };
            if *name != to.agent && !listed.contains(&to.agent) {
                let allowed = if listed.is_empty() {
                    "no other agent".to_owned()
                } else {
                    format!("only {}", listed.join(", "))
                };
                let message = format!(
                    "the agent {name} may not write to {}: agents.{name}.messages allows {allowed}",
                    to.agent
                );
                return Err(SessionError::Refused(message));
            }
        }
        Ok(())
    }

    /// Returns the running children of a session, and their children.
    pub(crate) async fn family(&self, key: &SessionKey) -> Result<Vec<SessionKey>, SessionError> {
        let working = self.shared().parts.journal.family_at_work(&key.key).await?;
        Ok(working.into_iter().map(|(key, agent)| SessionKey { key, agent }).collect())
    }

    pub(crate) async fn stop_child(&self, key: &SessionKey, by: &str) {
        let by = by.to_owned();
        // Fails if the gateway is stopping. The child then resumes after the restart.
        let _ = self.ask(key, |done| Command::Stop { by, done }).await;
    }
}

impl ChildHandle {
    /// Waits until the child has answered or failed. Stops it at its deadline.
    pub async fn end(mut self) -> ChildEnd {
        let left = self.child.deadline.saturating_sub(now_ms());
        let left = std::time::Duration::from_millis(u64::try_from(left).unwrap_or(0));
        let settled = match tokio::time::timeout(left, self.settle()).await {
            Ok(event) => event,
            Err(_) => {
                self.sessions.stop_child(&self.key, "the timeout").await;
                None
            }
        };
        let outcome = match settled {
            Some(SessionEvent::Final { text, .. }) => Ok(text),
            Some(SessionEvent::Stopped { by, .. }) => Err(format!("stopped by {by}")),
            Some(SessionEvent::Error { message, .. }) => Err(message),
            _ => Err(format!(
                "took longer than {} seconds and was stopped",
                self.sessions.shared().settings().child_limit.as_secs()
            )),
        };
        // A child whose journal failed may retry, and its caller would not see the answer.
        if outcome.is_err() {
            self.sessions.stop_child(&self.key, "its parent").await;
        }
        self.has_ended = true;
        // Without a status the worst labels are assumed.
        let status = self.sessions.own_status(&self.key).await;
        let (labels, private_from) = match status {
            Ok(status) => (status.labels, status.private_from),
            Err(_) => (Label::BOTH.to_vec(), None),
        };
        ChildEnd { outcome, labels, private_from }
    }

    async fn settle(&mut self) -> Option<SessionEvent> {
        loop {
            if self.settled.is_some() {
                return self.settled.take();
            }
            match self.events.recv().await {
                Ok(event) if event.settles(&self.child.message) => return Some((*event).clone()),
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => {
                    let (child, incoming) = (Box::new(self.child.clone()), self.incoming.clone());
                    let asked =
                        self.sessions.ask(&self.key, |done| Command::StartChild { child, incoming, done });
                    self.settled = asked.await.ok().flatten();
                }
                // The gateway stops: the caller is cancelled, and the next process waits again.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

impl Drop for ChildHandle {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let (sessions, key) = (self.sessions.clone(), self.key.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { sessions.stop_child(&key, "its parent").await });
        }
    }
}

fn check_text(what: &str, text: &str, limit: usize) -> Result<(), SessionError> {
    if text.trim().is_empty() || text.len() > limit {
        return Err(SessionError::Refused(format!("a child's {what} must have 1 to {limit} bytes")));
    }
    Ok(())
}
