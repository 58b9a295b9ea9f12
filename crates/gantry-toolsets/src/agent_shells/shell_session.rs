//! `ShellSession` is the network and the temporary directory of one agent session. Its `Ledger`
//! says which calls and commands use them.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use gantry_net::{NetworkPolicy, proxy_environment};
use gantry_process::{PrivateTmp, Processes, SessionId, SessionNetwork, Waited, env};
use gantry_tool::{Call, Label};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long one wait for the end of a background command takes.
const WAIT: Duration = Duration::from_secs(3600);

/// Git runs this in place of ssh, which has no way out of the network.
const SSH_HINT: &str = "sh -c 'echo \"ssh is closed in the sandbox; use https, for example: \
    git remote set-url origin https://HOST/PATH\" >&2; exit 128'";

/// Commands share a network if they belong to the same session and may reach the same hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionKey {
    name: String,
    pub(super) policy: NetworkPolicy,
}

impl SessionKey {
    /// Whether the commands belong to this session.
    pub(super) fn is_of(&self, session: &str) -> bool {
        self.name.strip_prefix("session ") == Some(session)
    }

    /// A call without a session uses the network of its agent.
    pub(super) fn of(call: &Call, policy: NetworkPolicy) -> SessionKey {
        let name = match &call.session {
            Some(session) => format!("session {session}"),
            None => format!("agent {}", call.agent),
        };
        SessionKey { name, policy }
    }

    /// The key of the session, or the agent of commands outside a session.
    pub(super) fn shown(&self) -> &str {
        self.name.strip_prefix("session ").unwrap_or(&self.name)
    }
}

/// `Outlet` is a network, and the address of the proxy in it.
pub(super) struct Outlet {
    pub(super) network: Arc<SessionNetwork>,
    pub(super) address: SocketAddr,
}

pub(super) struct ShellSession {
    pub(super) key: SessionKey,
    /// `None` if the session may reach no host.
    pub(super) outlet: Option<Outlet>,
    /// `None` only while it is dropped.
    tmp: Option<PrivateTmp>,
    pub(super) ledger: Arc<Ledger>,
    /// Stops the proxy.
    pub(super) stop: CancellationToken,
    /// Ends the open connections. The proxy then serves new ones.
    tunnels: Mutex<CancellationToken>,
}

impl ShellSession {
    pub(super) fn new(key: SessionKey, tmp: PrivateTmp, ledger: Arc<Ledger>) -> ShellSession {
        let stop = CancellationToken::new();
        let tunnels = Mutex::new(stop.child_token());
        ShellSession { key, outlet: None, tmp: Some(tmp), ledger, stop, tunnels }
    }

    /// Ends the open connections, because they were allowed under other conditions.
    pub(super) fn close_tunnels(&self) {
        let next = self.stop.child_token();
        let mut tunnels = self.tunnels.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *tunnels, next).cancel();
    }

    pub(super) fn tunnels(&self) -> CancellationToken {
        self.tunnels.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ShellSession {
    fn drop(&mut self) {
        self.stop.cancel();
        // Removing the temporary files may take a while.
        match (self.tmp.take(), tokio::runtime::Handle::try_current()) {
            (Some(tmp), Ok(runtime)) => drop(runtime.spawn_blocking(move || drop(tmp))),
            (tmp, _) => drop(tmp),
        }
    }
}

/// `Ledger` counts the session's commands and remembers its calls.
#[derive(Debug)]
pub(super) struct Ledger(Mutex<Entries>);

#[derive(Debug)]
struct Entries {
    commands: usize,
    /// When the last command ended.
    idle_since: Instant,
    /// Running calls; the most recent one is last.
    running: Vec<Attributed>,
    /// The most recent call, which may have ended.
    last: Attributed,
    /// Commands of the session may have read or downloaded untrusted content.
    tainted: bool,
    /// A command connected to a host, and it or another one still runs.
    connected: bool,
    /// A background command connected while no call ran that could report it.
    unreported: bool,
    /// Commands whose changed files nobody has looked for since they ended.
    watches: Vec<Watch>,
    next_watch: u64,
    /// The session holds both labels, also if no command ran since.
    labelled: bool,
}

/// `Watch` is a command whose changed files have to be found.
#[derive(Debug, Clone)]
struct Watch {
    id: u64,
    workspace: PathBuf,
    since: SystemTime,
    ended: bool,
}

/// `Attributed` is the call that a connection belongs to.
#[derive(Debug, Clone)]
pub(super) struct Attributed {
    pub(super) call: Arc<Call>,
    pub(super) tool: &'static str,
    /// The command line, if the tool has named it.
    pub(super) command: Option<String>,
    pub(super) is_running: bool,
    /// The session has read both untrusted and private content since the call began.
    session_labelled: bool,
}

impl Attributed {
    /// Reports whether the call's caller has read both untrusted and private content.
    pub(super) fn is_labelled(&self) -> bool {
        self.session_labelled || self.call.has_both_labels()
    }
}

impl Ledger {
    pub(super) fn new(call: &Arc<Call>, tool: &'static str) -> Ledger {
        let last =
            Attributed { call: ended(call), tool, command: None, is_running: false, session_labelled: false };
        Ledger(Mutex::new(Entries {
            commands: 0,
            idle_since: Instant::now(),
            running: Vec::new(),
            last,
            tainted: false,
            connected: false,
            unreported: false,
            watches: Vec::new(),
            next_watch: 0,
            labelled: false,
        }))
    }

    pub(super) fn is_idle(&self, since: Duration) -> bool {
        let entries = self.lock();
        let is_settled = !entries.tainted || entries.watches.is_empty();
        entries.commands == 0 && is_settled && entries.idle_since.elapsed() >= since
    }

    /// Notes that a command connected to a host: results and changed files may hold what it sent.
    pub(super) fn connected(&self) {
        let mut entries = self.lock();
        (entries.tainted, entries.connected) = (true, true);
        entries.unreported |= entries.running.is_empty();
        entries.running.iter().for_each(|running| running.call.findings.add(Label::Untrusted));
    }

    /// Takes the labels of the session, which counts for running commands too. Returns whether it holds both only now.
    pub(super) fn set_labels(&self, labels: &[Label]) -> bool {
        let mut entries = self.lock();
        entries.tainted |= labels.contains(&Label::Untrusted) && entries.commands > 0;
        let labelled = Label::BOTH.iter().all(|label| labels.contains(label));
        !std::mem::replace(&mut entries.labelled, labelled) && labelled
    }

    /// Returns the workspaces in which commands may have written untrusted content, each with the
    /// earliest start of such a command. Commands that have ended are not returned again.
    pub(super) fn take_changes(&self) -> Vec<(PathBuf, SystemTime)> {
        let mut entries = self.lock();
        let watches = entries.watches.clone();
        entries.watches.retain(|watch| !watch.ended);
        if !entries.tainted {
            return Vec::new();
        }
        watches.into_iter().map(|watch| (watch.workspace, watch.since)).collect()
    }

    /// Returns the session's most recent running call, or the last one that ended.
    pub(super) fn current(&self) -> Attributed {
        let entries = self.lock();
        let current = entries.running.last().unwrap_or(&entries.last).clone();
        Attributed { session_labelled: entries.labelled, ..current }
    }

    pub(super) fn is_running(&self, call: &Call) -> bool {
        self.lock().running.iter().any(|running| running.call.id == call.id)
    }

    pub(super) fn begin(&self, call: &Arc<Call>, tool: &'static str) -> u64 {
        let mut entries = self.lock();
        entries.last =
            Attributed { call: ended(call), tool, command: None, is_running: false, session_labelled: false };
        let running =
            Attributed { call: call.clone(), tool, command: None, is_running: true, session_labelled: false };
        entries.running.push(running);
        entries.commands += 1;
        // The run knows what earlier commands connected to. Only a background command, or a connection that no
        // result has reported yet, counts for this command too.
        let is_alone = entries.commands == 1;
        if is_alone && !entries.unreported && entries.watches.is_empty() {
            (entries.tainted, entries.connected) = (false, false);
        }
        entries.tainted |= call.labels.contains(&Label::Untrusted);
        if entries.connected {
            call.findings.add(Label::Untrusted);
        }
        entries.unreported = false;
        let id = entries.next_watch;
        entries.next_watch += 1;
        let (workspace, since) = (call.workspace.clone(), SystemTime::now());
        entries.watches.push(Watch { id, workspace, since, ended: false });
        id
    }

    /// Remembers the command line of a running call, for questions about its connections.
    pub(super) fn name_command(&self, call: &Call, command: &str) {
        let mut entries = self.lock();
        for running in entries.running.iter_mut().filter(|running| running.call.id == call.id) {
            running.command = Some(command.to_owned());
        }
    }

    pub(super) fn end_call(&self, call: &Call) {
        let mut entries = self.lock();
        if let Some(position) = entries.running.iter().position(|running| running.call.id == call.id) {
            entries.running.remove(position);
        }
    }

    /// Ends a command. With `watch`, nothing of it runs any more.
    fn end_command(&self, watch: Option<u64>) {
        let mut entries = self.lock();
        entries.commands = entries.commands.saturating_sub(1);
        entries.idle_since = Instant::now();
        let Some(id) = watch else { return };
        if entries.tainted {
            entries.watches.iter_mut().filter(|watch| watch.id == id).for_each(|watch| watch.ended = true);
        } else {
            entries.watches.retain(|watch| watch.id != id);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what stays known of a call after its end. Nobody can be asked through it.
fn ended(call: &Call) -> Arc<Call> {
    let mut known = Call::new(call.principal.clone(), call.surface, call.workspace.clone());
    known.id.clone_from(&call.id);
    known.agent.clone_from(&call.agent);
    known.session.clone_from(&call.session);
    known.labels.clone_from(&call.labels);
    known.policy.clone_from(&call.policy);
    known.policy_agents.clone_from(&call.policy_agents);
    known.autonomy = call.autonomy;
    Arc::new(known)
}

/// `ShellUse` is a command of a call in its session. The session stays while it exists.
pub(crate) struct ShellUse {
    command: CommandUse,
    call: Arc<Call>,
}

struct CommandUse {
    session: Arc<ShellSession>,
    /// `None` after a background command has taken it over.
    watch: Option<u64>,
}

impl ShellUse {
    /// Names the command line, for questions about its connections.
    pub(crate) fn name_command(&self, command: &str) {
        self.command.session.ledger.name_command(&self.call, command);
    }

    pub(super) fn new(session: &Arc<ShellSession>, call: &Arc<Call>, tool: &'static str) -> ShellUse {
        let watch = Some(session.ledger.begin(call, tool));
        ShellUse { command: CommandUse { session: session.clone(), watch }, call: call.clone() }
    }

    pub(crate) fn network(&self) -> Option<Arc<SessionNetwork>> {
        self.command.session.outlet.as_ref().map(|outlet| outlet.network.clone())
    }

    pub(crate) fn tmp(&self) -> Option<&Path> {
        self.command.session.tmp.as_ref().map(PrivateTmp::path)
    }

    /// Replaces the variables that say how to reach the network.
    pub(crate) fn set_proxy(&self, variables: &mut env::Variables) {
        variables.retain(|(name, _)| !name.to_str().is_some_and(is_about_proxies));
        let Some(outlet) = &self.command.session.outlet else { return };
        let proxy = proxy_environment(outlet.address).into_iter();
        let ssh = [("GIT_SSH_COMMAND", SSH_HINT), ("GIT_SSH_VARIANT", "ssh")];
        let ssh = ssh.map(|(name, value)| (name.to_owned(), value.to_owned()));
        variables.extend(proxy.chain(ssh).map(|(name, value)| (OsString::from(name), OsString::from(value))));
    }

    /// Keeps the session while a background command runs, after the call has ended.
    pub(crate) fn keep_while_running(mut self, processes: &Processes, id: SessionId) {
        let (session, watch) = (self.command.session.clone(), self.command.watch.take());
        let (processes, command) = (processes.clone(), CommandUse { session, watch });
        command.session.ledger.lock().commands += 1;
        tokio::spawn(async move {
            while let Ok(Waited::Running(_)) = processes.wait(id, WAIT).await {}
            drop(command);
        });
    }
}

impl Drop for ShellUse {
    fn drop(&mut self) {
        self.command.session.ledger.end_call(&self.call);
    }
}

impl Drop for CommandUse {
    fn drop(&mut self) {
        self.session.ledger.end_command(self.watch);
    }
}

/// Reports whether a variable would lead clients to another proxy, or past it.
fn is_about_proxies(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    upper.ends_with("_PROXY")
        || upper.starts_with("GIT_CONFIG_")
        || upper.starts_with("NPM_CONFIG_") && upper.ends_with("PROXY")
        || ["GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_PROXY_COMMAND"].contains(&upper.as_str())
}
