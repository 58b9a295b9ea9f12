//! `Call` holds everything about one call: principal, agent, surface, workspace, deadline, approvals.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::gate::approval::Approver;
use crate::policy::{ImpliedQuestion, Policy};
use crate::registry::ToolScope;
use crate::tool::Label;

pub(crate) mod user_asking;

use user_asking::UserAsker;

/// The caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    /// The person whose machine this is.
    Operator,
    /// A client token made by the operator.
    Client { token: String },
    /// An MCP client.
    Mcp { client: String },
    /// An agent, acting by itself.
    Agent { id: String },
    /// Cron and tasks.
    Scheduler,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PrincipalKind {
    Operator,
    Client,
    Mcp,
    Agent,
    Scheduler,
}

impl Principal {
    pub fn kind(&self) -> PrincipalKind {
        match self {
            Principal::Operator => PrincipalKind::Operator,
            Principal::Client { .. } => PrincipalKind::Client,
            Principal::Mcp { .. } => PrincipalKind::Mcp,
            Principal::Agent { .. } => PrincipalKind::Agent,
            Principal::Scheduler => PrincipalKind::Scheduler,
        }
    }

    pub fn is_operator(&self) -> bool {
        *self == Principal::Operator
    }

    /// Whether Gantry itself started the call: one of its agents, or a schedule.
    pub fn is_own_agent(&self) -> bool {
        matches!(self, Principal::Agent { .. } | Principal::Scheduler)
    }
}

impl Principal {
    /// The name in logs and on the wire, such as `client:ci`.
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Principal::Operator => "operator".into(),
            Principal::Client { token } => format!("client:{token}").into(),
            Principal::Mcp { client } => format!("mcp:{client}").into(),
            Principal::Agent { id } => format!("agent:{id}").into(),
            Principal::Scheduler => "scheduler".into(),
        }
    }
}

impl std::fmt::Display for Principal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("unknown principal {0:?}")]
pub struct UnknownPrincipal(String);

/// Parses the displayed name.
impl std::str::FromStr for Principal {
    type Err = UnknownPrincipal;

    fn from_str(text: &str) -> Result<Principal, UnknownPrincipal> {
        let named = text.split_once(':').filter(|(_, name)| !name.is_empty());
        match (text, named) {
            ("operator", _) => Ok(Principal::Operator),
            ("scheduler", _) => Ok(Principal::Scheduler),
            (_, Some(("client", token))) => Ok(Principal::Client { token: token.to_owned() }),
            (_, Some(("mcp", client))) => Ok(Principal::Mcp { client: client.to_owned() }),
            (_, Some(("agent", id))) => Ok(Principal::Agent { id: id.to_owned() }),
            _ => Err(UnknownPrincipal(text.chars().take(64).collect())),
        }
    }
}

/// The way in. Model-facing surfaces get bounded results, the others get everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Surface {
    Cli,
    Http,
    Websocket,
    Mcp,
    Agent,
}

impl Surface {
    pub const ALL: [Surface; 5] =
        [Surface::Cli, Surface::Http, Surface::Websocket, Surface::Mcp, Surface::Agent];

    pub fn name(self) -> &'static str {
        match self {
            Surface::Cli => "cli",
            Surface::Http => "http",
            Surface::Websocket => "websocket",
            Surface::Mcp => "mcp",
            Surface::Agent => "agent",
        }
    }

    pub fn from_name(name: &str) -> Option<Surface> {
        Surface::ALL.into_iter().find(|surface| surface.name() == name)
    }

    pub fn is_model_facing(self) -> bool {
        matches!(self, Surface::Mcp | Surface::Agent)
    }
}

/// How much an agent may do before a human is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Autonomy {
    /// Asks for destructive and open-world calls, and at the border.
    Supervised,
    /// Asks at the border: unknown hosts, writes outside the workspace, sensitive paths, leaving the sandbox.
    #[default]
    Guided,
    /// Never asks: what would be asked is denied.
    Autonomous,
}

impl Autonomy {
    pub fn name(self) -> &'static str {
        match self {
            Autonomy::Supervised => "supervised",
            Autonomy::Guided => "guided",
            Autonomy::Autonomous => "autonomous",
        }
    }

    pub fn from_name(name: &str) -> Option<Autonomy> {
        [Autonomy::Supervised, Autonomy::Guided, Autonomy::Autonomous]
            .into_iter()
            .find(|autonomy| autonomy.name() == name)
    }
}

/// One call on its way through the gate.
#[derive(Debug, Clone)]
pub struct Call {
    pub id: String,
    pub principal: Principal,
    /// Whose view, policy and workspace apply.
    pub agent: String,
    /// The agent's limits apply, but the caller is not that agent and has no access to what it keeps.
    pub acts_for_no_agent: bool,
    /// The conversation in which an agent makes the call.
    pub session: Option<String>,
    /// The name of the call in its session. A call that is repeated after a restart keeps it.
    pub step: Option<String>,
    /// The client token of the caller. Work that the call starts ends with this token.
    pub token: Option<String>,
    /// Further agents whose policy rules apply.
    pub policy_agents: Vec<String>,
    /// The agent whose memories the call sees, if it is not `agent`.
    pub memory_owner: Option<String>,
    pub autonomy: Autonomy,
    pub surface: Surface,
    /// An absolute path. Relative paths of the input start here.
    pub workspace: PathBuf,
    pub scope: ToolScope,
    /// The node that a bare tool name means: the agent's `node` setting.
    pub default_node: Option<String>,
    pub deadline: Option<Instant>,
    /// Fires when the caller gives up or the deadline passes.
    pub cancel: CancellationToken,
    /// Receives progress reports, if the caller wants them.
    pub progress: Option<ProgressSink>,
    /// Asks for approval when policy requires it. Without an approver such a call is refused.
    pub approver: Option<Approver>,
    /// Asks only about connections of commands. On a node it asks the gateway; elsewhere `approver` asks.
    pub egress_approver: Option<Approver>,
    /// Asks the user, for tools that have to know something.
    pub asker: Option<UserAsker>,
    /// Labels of the content that the caller has read. Data that the call stores gets the same labels.
    pub labels: Vec<Label>,
    /// Set if the caller's run, with what the call itself reads, holds untrusted and private content: the sources of both,
    /// as a clause. Border crossings then need a person.
    pub holds_both: Option<String>,
    /// The host that all private content of the run came from. A request to it alone is not a leak.
    pub private_from: Option<String>,
    /// Labels and warnings that the tool adds while it runs.
    pub findings: Findings,
    /// The caller's own limit on the result, in characters. On model-facing surfaces the gate applies
    /// the smaller of this and the configured limit.
    pub max_result_chars: Option<usize>,
    /// The gateway's gate has applied the agent's autonomy. A node does not ask again.
    pub autonomy_judged: bool,
    /// Set by the gate: the command runs outside the sandbox. On a node, the gateway's gate has set it.
    pub escalated: bool,
    /// Set by the gate. Walks skip sensitive paths, because policy would not allow them one by one.
    pub avoid_sensitive: bool,
    /// Set by the gate for agents: the call was judged as one that writes in the workspace only, so the file engine refuses
    /// other places. A link may have been swapped after the decision.
    pub writes_inside: bool,
    /// Set by the gate: the questions that were approved.
    pub approved: Vec<ImpliedQuestion>,
    /// Set by the gate, for tools that find out only while they run which calls they imply, or where their commands connect.
    pub policy: Option<Policy>,
}

impl Call {
    pub fn new(principal: Principal, surface: Surface, workspace: PathBuf) -> Call {
        Call::until(CancellationToken::new(), principal, surface, workspace)
    }

    /// A call that is cancelled by this token.
    pub fn until(
        cancel: CancellationToken,
        principal: Principal,
        surface: Surface,
        workspace: PathBuf,
    ) -> Call {
        let agent = match &principal {
            Principal::Agent { id } => id.clone(),
            _ => "main".to_owned(),
        };
        Call {
            id: Uuid::now_v7().to_string(),
            principal,
            agent,
            acts_for_no_agent: false,
            session: None,
            step: None,
            token: None,
            policy_agents: Vec::new(),
            memory_owner: None,
            autonomy: Autonomy::default(),
            surface,
            workspace,
            scope: ToolScope::default(),
            default_node: None,
            deadline: None,
            cancel,
            progress: None,
            approver: None,
            egress_approver: None,
            asker: None,
            labels: Vec::new(),
            holds_both: None,
            private_from: None,
            findings: Findings::default(),
            max_result_chars: None,
            autonomy_judged: false,
            escalated: false,
            avoid_sensitive: false,
            writes_inside: false,
            approved: Vec::new(),
            policy: None,
        }
    }
}

impl Call {
    /// Asks about connections of the call's commands.
    pub fn connection_approver(&self) -> Option<&Approver> {
        self.egress_approver.as_ref().or(self.approver.as_ref())
    }

    /// Whether the caller has read untrusted content and private data.
    pub fn has_both_labels(&self) -> bool {
        [Label::Untrusted, Label::Private].iter().all(|label| self.labels.contains(label))
    }
}

/// Warnings that one call may add, and characters of each.
const MAX_WARNINGS: usize = 16;
const MAX_WARNING_CHARS: usize = 500;

/// Labels and warnings that a tool learns of while it runs. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Findings(Arc<Mutex<Learned>>);

#[derive(Debug, Default)]
struct Learned {
    labels: Vec<Label>,
    /// The host that private content came from. `labels` has `private` only if there is more of it.
    private_from: Option<String>,
    warnings: Vec<String>,
    has_run: bool,
}

impl Findings {
    pub fn add(&self, label: Label) {
        let mut found = self.lock();
        if !found.labels.contains(&label) {
            found.labels.push(label);
        }
    }

    /// Notes that the gate lets the tool run.
    pub(crate) fn note_run(&self) {
        self.lock().has_run = true;
    }

    /// Whether the tool ran. If not, the answer is the gate's own refusal, and nothing was changed.
    pub fn has_run(&self) -> bool {
        self.lock().has_run
    }

    /// Adds `private` for content that came from this host. A request back to the host does not reveal it.
    pub fn add_private_from(&self, host: &str) {
        let mut found = self.lock();
        match &found.private_from {
            None => found.private_from = Some(host.to_owned()),
            Some(known) if known == host => {}
            Some(_) => found.labels.push(Label::Private),
        }
    }

    /// The host that all private content of the call came from, if there is one.
    pub fn private_from(&self) -> Option<String> {
        let found = self.lock();
        found.private_from.clone().filter(|_| !found.labels.contains(&Label::Private))
    }

    /// Adds warnings for the caller: one line each, up to a limit.
    pub fn warn(&self, warnings: &[String]) {
        if warnings.is_empty() {
            return;
        }
        let line = |text: &String| warning_line(text);
        let mut found = self.lock();
        let room = MAX_WARNINGS.saturating_sub(found.warnings.len());
        found.warnings.extend(warnings.iter().take(room).map(line));
        if warnings.len() > room {
            found.warnings.push(format!("{} more warnings are not shown", warnings.len() - room));
        }
    }

    /// Adds a warning unless the call has it already.
    pub fn warn_once(&self, warning: &str) {
        let line = warning_line(warning);
        if !self.lock().warnings.contains(&line) {
            self.warn(&[line]);
        }
    }

    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().warnings)
    }

    fn lock(&self) -> MutexGuard<'_, Learned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These labels together with the known ones.
    pub(crate) fn with(&self, known: &[Label]) -> Vec<Label> {
        let found = self.lock();
        let mut labels = known.to_vec();
        let private = found.private_from.as_ref().map(|_| Label::Private);
        for label in found.labels.iter().copied().chain(private) {
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        labels
    }
}

fn warning_line(text: &str) -> String {
    let shown = text.chars().take(MAX_WARNING_CHARS);
    let mut line: String = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX_WARNING_CHARS).is_some() {
        line.push('…');
    }
    line
}

/// The progress of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    pub total: Option<u64>,
    /// The unit of `done`, or the current action.
    pub message: String,
}

/// Takes reports of progress. Must not block.
#[derive(Clone)]
pub struct ProgressSink(Arc<dyn Fn(Progress) + Send + Sync>);

impl ProgressSink {
    pub fn new(take: impl Fn(Progress) + Send + Sync + 'static) -> ProgressSink {
        ProgressSink(Arc::new(take))
    }

    pub fn report(&self, progress: Progress) {
        (self.0)(progress);
    }
}

impl std::fmt::Debug for ProgressSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProgressSink")
    }
}

/// The arguments of a tool's `run`: the call, and the state that the tool was made with.
pub struct Ctx<S> {
    pub call: Arc<Call>,
    pub state: Arc<S>,
}

impl<S> Clone for Ctx<S> {
    fn clone(&self) -> Self {
        Ctx { call: self.call.clone(), state: self.state.clone() }
    }
}
