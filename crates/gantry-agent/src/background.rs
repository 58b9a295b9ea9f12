//! Background sessions, which the gateway starts for schedules, tasks and pipelines. Nobody types in them.
//!
//! The key and the first message of a background session are fixed by its starter. Starting it again after a restart
//! finds it, so its work never runs twice. It runs on without its [`BackgroundRun`].

use std::path::PathBuf;
use std::sync::Arc;

use gantry_model::{Effort, Thinking};
use gantry_protocol::SessionEvent;
use gantry_tool::{Autonomy, Call, Effect, Label, Tool, View};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::agent::Agent;
use crate::child::{AccountBudget, Child, ToolLimits};
use crate::driver::{Command, Status};
use crate::entry::Incoming;
use crate::key::SessionKey;
use crate::role::{self, Spec};
use crate::sessions::{MAX_MESSAGE_BYTES, SessionError, Sessions, now_ms};

/// The rights of whoever created a schedule, a task or a pipeline. They are stored with it, and its sessions get no more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Authority {
    /// The agent that does the work.
    pub agent: String,
    pub autonomy: Autonomy,
    pub workspace: PathBuf,
    /// It may call the tools that every entry allows.
    #[serde(default)]
    pub tools: Vec<ToolLimits>,
    /// Agents whose rules also apply.
    #[serde(default)]
    pub policy_agents: Vec<String>,
    #[serde(default)]
    pub isolated_memory: bool,
    /// Calls that need an approval are denied.
    #[serde(default)]
    pub unattended: bool,
    /// The labels of the conversation in which it was created.
    #[serde(default)]
    pub labels: Vec<Label>,
    /// The session or principal that created it.
    pub created_by: String,
    /// An agent created it. Work that an agent creates needs a person's yes before it runs unattended.
    #[serde(default)]
    pub by_agent: bool,
}

/// The part of a session's limits that only background sessions have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Background {
    /// Minutes until an unanswered question counts as a no.
    pub approval_minutes: u32,
    /// The session makes this one call and asks no model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<FixedCall>,
}

/// A tool call without a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FixedCall {
    pub tool: String,
    pub input: Value,
}

/// What a background session does.
#[derive(Debug, Clone, PartialEq)]
pub enum BackgroundWork {
    /// One turn of the agent.
    Message(String),
    /// One tool call without a model. Its result is the answer.
    Call(FixedCall),
}

/// A background session to start.
#[derive(Debug, Clone)]
pub struct BackgroundSpec {
    /// The end of its key after `agent:NAME:`, such as `cron:RUN`. Starting the same one again finds it.
    pub conversation: String,
    /// Its name in lists.
    pub label: String,
    pub work: BackgroundWork,
    pub authority: Authority,
    /// Labels of its input, in addition to those of `authority`.
    pub labels: Vec<Label>,
    /// A role sets model, prompt and tools.
    pub role: Option<String>,
    /// The agent's own model when `None`.
    pub model: Option<String>,
    pub thinking: Option<Thinking>,
    pub effort: Option<Effort>,
    /// Further limits of its tools.
    pub tools: Vec<ToolLimits>,
    pub max_turns: Option<u32>,
    /// The account that its costs are charged to.
    pub account: String,
    pub budgets: Vec<AccountBudget>,
    /// Minutes until an unanswered question counts as a no.
    pub approval_minutes: u32,
}

/// A background session in progress. Dropping this does not stop the session.
pub struct BackgroundRun {
    sessions: Sessions,
    pub key: SessionKey,
    message: String,
    events: broadcast::Receiver<Arc<SessionEvent>>,
    settled: Option<SessionEvent>,
    is_waiting: bool,
}

/// A change of a background session.
#[derive(Debug, Clone, PartialEq)]
pub enum BackgroundChange {
    /// It waits for a person's answer.
    Waiting,
    /// It was answered and works again.
    Working,
    Ended(BackgroundEnd),
}

/// How a background session ended.
#[derive(Debug, Clone, PartialEq)]
pub struct BackgroundEnd {
    /// Its answer, or the reason why there is none.
    pub outcome: Result<String, String>,
    /// Somebody stopped it.
    pub stopped: bool,
    /// The labels of its conversation.
    pub labels: Vec<Label>,
    /// The host that all its private content came from, if there is exactly one.
    pub private_from: Option<String>,
    pub tokens_in: u64,
    pub tokens_out: u64,
}

impl Sessions {
    /// Returns the rights of a call, for work that its tool starts later.
    pub async fn authority(&self, call: &Call) -> Result<Authority, SessionError> {
        let above = match &call.session {
            Some(session) => self.own_status(&self.key(session, None)?).await?.child,
            None => None,
        };
        let above = above.as_deref();
        let is_unattended = above.is_some_and(|above| above.unattended);
        Ok(Authority {
            agent: call.agent.clone(),
            autonomy: call.autonomy,
            workspace: call.workspace.clone(),
            tools: above.map(|above| above.tools.clone()).unwrap_or_default(),
            policy_agents: call.policy_agents.clone(),
            isolated_memory: above.is_some_and(|above| above.isolated_memory),
            unattended: call.autonomy == Autonomy::Autonomous || is_unattended,
            labels: call.labels.clone(),
            created_by: call.session.clone().unwrap_or_else(|| call.principal.to_string()),
            by_agent: call.session.is_some(),
        })
    }

    /// Returns the rights of an agent for work that a person started.
    pub fn own_authority(&self, agent: &str, created_by: &str) -> Result<Authority, SessionError> {
        let key = self.key("main", Some(agent))?;
        let own = self.agents().get(&key.agent).cloned().unwrap_or_default();
        Ok(Authority {
            agent: key.agent,
            autonomy: own.autonomy,
            workspace: own.workspace,
            tools: Vec::new(),
            policy_agents: own.policy_agents,
            isolated_memory: false,
            unattended: own.autonomy == Autonomy::Autonomous,
            labels: Vec::new(),
            created_by: created_by.to_owned(),
            by_agent: false,
        })
    }

    /// Returns what is wrong with the agent, the tool, the role and the model of background work. Nothing is started.
    pub async fn background_errors(
        &self,
        authority: &Authority,
        tool: Option<&str>,
        role: Option<&str>,
        model: Option<&str>,
    ) -> Vec<String> {
        let agents = self.agents();
        let Some(agent) = agents.get(&authority.agent) else {
            return vec![format!("the agent {:?} is not configured", authority.agent)];
        };
        let mut errors = Vec::new();
        if let Some(tool) = tool {
            let view = self.background_view(agent, authority);
            if find_tool(&view, tool).is_none() {
                let unknown = view.unknown(tool);
                errors.push(match unknown.hint {
                    Some(hint) => format!("{}; {hint}", unknown.message),
                    None => unknown.message,
                });
            }
        }
        errors.extend(role.and_then(|role| self.role(role).err()).map(|error| error.to_string()));
        if model.is_some() {
            let found = self.model_for(&authority.agent, model.map(str::to_owned)).await;
            errors.extend(found.err().map(|error| error.to_string()));
        }
        errors
    }

    /// Whether a tool of background work can run commands. One that is not known counts as able to.
    pub fn runs_commands(&self, authority: &Authority, tool: &str) -> bool {
        let agents = self.agents();
        let Some(agent) = agents.get(&authority.agent) else { return true };
        let found = find_tool(&self.background_view(agent, authority), tool);
        found.is_none_or(|tool| tool.has_effect(Effect::RunsCommands))
    }

    fn background_view(&self, agent: &Agent, authority: &Authority) -> View {
        let scope = authority.tools.iter().fold(agent.scope.clone(), |scope, own| scope.within(own.scope()));
        self.gate().registry().view(&scope)
    }

    /// Starts a background session, or finds it if it was started before.
    pub async fn start_background(&self, spec: BackgroundSpec) -> Result<BackgroundRun, SessionError> {
        let authority = spec.authority.clone();
        let key = self.key(&format!("agent:{}:{}", authority.agent, spec.conversation), None)?;
        let (text, call) = match &spec.work {
            BackgroundWork::Message(text) => (text.clone(), None),
            BackgroundWork::Call(call) => (format!("Call {}.", call.tool), Some(call.clone())),
        };
        if text.trim().is_empty() || text.len() > MAX_MESSAGE_BYTES {
            let message = format!("the message must have 1 to {MAX_MESSAGE_BYTES} bytes");
            return Err(SessionError::Refused(message));
        }
        let role = spec.role.as_deref().map(|name| self.role(name)).transpose()?;
        let resolved = role::resolve(
            &Spec {
                thinking: spec.thinking,
                effort: spec.effort,
                model: spec.model.clone(),
                ..Spec::default()
            },
            role.as_ref(),
        );
        // Only a session with a model needs one.
        let model = match (&call, resolved.model.filter(|_| spec.model.is_some() || spec.role.is_some())) {
            (None, Some(wanted)) => self.model_for(&authority.agent, Some(wanted)).await?,
            _ => None,
        };
        let message = "begun".to_owned();
        let mut tools = authority.tools.clone();
        tools.extend(resolved.tools.into_iter().filter(|limits| *limits != ToolLimits::default()));
        tools.extend(spec.tools);
        let child = Child {
            name: spec.label.clone(),
            parent: authority.created_by.clone(),
            root: key.key.clone(),
            step: spec.conversation,
            message: message.clone(),
            depth: 0,
            deadline: i64::MAX,
            role: spec.role,
            template: None,
            policy_agents: authority.policy_agents.clone(),
            model,
            thinking: resolved.thinking,
            effort: resolved.effort,
            prompt: resolved.prompt,
            tools,
            shown: None,
            autonomy: authority.autonomy,
            workspace: authority.workspace.clone(),
            max_turns: spec.max_turns,
            max_tokens: None,
            account: spec.account,
            budgets: spec.budgets,
            isolated_memory: authority.isolated_memory,
            unattended: authority.unattended,
            background: Some(Background { approval_minutes: spec.approval_minutes, call }),
        };
        let mut labels = authority.labels.clone();
        labels.extend(spec.labels.iter().filter(|label| !authority.labels.contains(label)));
        let incoming = Incoming {
            id: message.clone(),
            text,
            images: Vec::new(),
            at: now_ms(),
            from: authority.created_by.clone(),
            reply_to: Value::Null,
            labels,
            payer: None,
        };
        self.shared().parts.journal.create(&key.key, &key.agent, &spec.label, now_ms()).await?;
        let events = self.listen(&key);
        let child = Box::new(child);
        let settled = self.ask(&key, |done| Command::StartChild { child, incoming, done }).await?;
        Ok(BackgroundRun { sessions: self.clone(), key, message, events, settled, is_waiting: false })
    }
}

fn find_tool(view: &View, name: &str) -> Option<Arc<Tool>> {
    let shared = || view.shared().into_iter().find(|shared| shared.name == name).map(|shared| shared.tool);
    view.find(name).or_else(shared)
}

impl BackgroundRun {
    /// Waits for the next change of the session.
    pub async fn next(&mut self) -> BackgroundChange {
        loop {
            if let Some(event) = self.settled.take() {
                return BackgroundChange::Ended(self.end(event).await);
            }
            let is_waiting = self.is_waiting_now().await;
            if is_waiting != self.is_waiting {
                self.is_waiting = is_waiting;
                return if is_waiting { BackgroundChange::Waiting } else { BackgroundChange::Working };
            }
            self.next_event().await;
        }
    }

    /// Waits until the session has ended.
    pub async fn end_of_session(&mut self) -> BackgroundEnd {
        loop {
            if let BackgroundChange::Ended(end) = self.next().await {
                return end;
            }
        }
    }

    /// Stops the session. Its end names who stopped it.
    pub async fn stop(&self, by: &str) {
        self.sessions.stop_child(&self.key, by).await;
    }

    /// Waits for an event that can change what [`BackgroundRun::next`] reports.
    async fn next_event(&mut self) {
        loop {
            match self.events.recv().await {
                Ok(event) if event.settles(&self.message) => {
                    self.settled = Some((*event).clone());
                    return;
                }
                Ok(event) => match *event {
                    SessionEvent::Approval { .. }
                    | SessionEvent::ApprovalAnswered { .. }
                    | SessionEvent::Asked { .. }
                    | SessionEvent::AskedAnswered { .. } => return,
                    _ => {}
                },
                Err(RecvError::Lagged(_)) => {
                    self.settled = self.sessions.settled(&self.key, &self.message).await;
                    return;
                }
                // The gateway stops. The next process starts the session again and waits for it.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    async fn is_waiting_now(&self) -> bool {
        let asks = |status: Status| !status.questions.is_empty() || !status.asks.is_empty();
        self.sessions.status(&self.key).await.is_ok_and(asks)
    }

    async fn end(&self, event: SessionEvent) -> BackgroundEnd {
        let stopped = matches!(event, SessionEvent::Stopped { .. });
        let outcome = match event {
            SessionEvent::Final { text, .. } => Ok(text),
            SessionEvent::Stopped { by, .. } => Err(format!("stopped by {by}")),
            SessionEvent::Error { message, .. } => Err(message),
            _ => Err("the session ended without an answer".to_owned()),
        };
        // Without a status the worst labels are assumed.
        match self.sessions.own_status(&self.key).await {
            Ok(status) => {
                let used = status.usage;
                let cached = used.cache_read_tokens.saturating_add(used.cache_write_tokens);
                BackgroundEnd {
                    outcome,
                    stopped,
                    labels: status.labels,
                    private_from: status.private_from,
                    tokens_in: used.input_tokens.saturating_add(cached),
                    tokens_out: used.output_tokens,
                }
            }
            Err(_) => BackgroundEnd {
                outcome,
                stopped,
                labels: Label::BOTH.to_vec(),
                private_from: None,
                tokens_in: 0,
                tokens_out: 0,
            },
        }
    }
}
