//! The isolated shells of Gantry's own agents. Each agent session has one network, whose only exit
//! is an egress proxy in this process, and one private temporary directory.
//!
//! A session's network is created for its first command. It is dropped after ten minutes without
//! commands, or when another session needs its place. Background commands keep it.

mod egress_host;
mod judge;
mod ports;
mod shell_session;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use gantry_files::{Changed, ScanLimits, changed_since};
use gantry_net::{ClientOptions, EgressOptions, EgressProxy, NetworkPolicy};
use gantry_process::{PrivateTmp, Processes};
use gantry_tool::{AuditSink, Call, Label, Live, Masker, ToolError};
use tokio_util::sync::CancellationToken;

use crate::machine::MachineSettings;

pub use egress_host::{EgressHost, EgressHostError};
use judge::SessionJudge;
pub use ports::{AgentNetwork, AgentPort};
pub(crate) use shell_session::ShellUse;
use shell_session::{Ledger, Outlet, SessionKey, ShellSession};

/// How many sessions have a network at once.
pub const MAX_SHELL_SESSIONS: usize = 64;
/// A session without commands loses its network after this time.
pub const IDLE_LIMIT: Duration = Duration::from_secs(600);
/// How often a session checks whether it is idle.
const IDLE_CHECK: Duration = Duration::from_secs(30);

/// `EgressSettings` are the operator's settings for the connections of isolated commands.
#[derive(Debug, Clone, Default)]
pub struct EgressSettings {
    /// Hosts that commands may reach in addition to the preset.
    pub allow: Vec<EgressHost>,
    /// The same settings as those of the web tools: private hosts, the operator's own proxy.
    pub network: ClientOptions,
}

type SessionList = Mutex<Vec<Arc<ShellSession>>>;

/// `AgentShells` holds the sessions of one machine.
pub(crate) struct AgentShells {
    processes: Processes,
    temp_dir: PathBuf,
    settings: Live<MachineSettings>,
    audit: Arc<dyn AuditSink>,
    masker: Masker,
    closed_ports: Mutex<Vec<u16>>,
    /// Whether namespaces can be made, or why not.
    namespaces: OnceLock<Result<(), String>>,
    /// The least recently used session is first.
    sessions: Arc<SessionList>,
    /// Held while a session is created, so that parallel calls create it once.
    creating: tokio::sync::Mutex<()>,
}

impl AgentShells {
    pub(crate) fn new(
        processes: Processes,
        temp_dir: PathBuf,
        settings: Live<MachineSettings>,
        audit: Arc<dyn AuditSink>,
        masker: Masker,
    ) -> AgentShells {
        AgentShells {
            processes,
            temp_dir,
            settings,
            audit,
            masker,
            closed_ports: Mutex::default(),
            namespaces: OnceLock::new(),
            sessions: Arc::default(),
            creating: tokio::sync::Mutex::default(),
        }
    }

    /// Checks once whether namespaces can be made. The first call blocks for a few milliseconds.
    pub(crate) fn namespaces(&self) -> Result<(), &str> {
        let checked = self.namespaces.get_or_init(|| self.processes.check_namespaces());
        checked.as_ref().copied().map_err(String::as_str)
    }

    /// Closes a port of this machine to commands, such as the gateway's own. It applies to sessions
    /// that start later.
    pub(crate) fn close_port(&self, port: u16) {
        self.closed_ports.lock().unwrap_or_else(PoisonError::into_inner).push(port);
    }

    /// Returns the shell of the call's session, and creates the session if it is new.
    pub(crate) async fn enter(
        &self,
        call: &Arc<Call>,
        tool: &'static str,
        policy: NetworkPolicy,
    ) -> Result<ShellUse, ToolError> {
        let key = SessionKey::of(call, policy);
        if let Some(entered) = self.enter_known(&key, call, tool) {
            return Ok(entered);
        }
        let _creating = self.creating.lock().await;
        if let Some(entered) = self.enter_known(&key, call, tool) {
            return Ok(entered);
        }
        self.make_room()?;
        let session = self.create(key, call, tool).await?;
        let entered = ShellUse::new(&session, call, tool);
        self.sessions().push(session);
        Ok(entered)
    }

    /// Takes the present labels of a session. Once it holds both, its open connections end, and commands
    /// that still run are judged by them.
    pub(crate) fn set_labels(&self, session: &str, labels: &[Label]) {
        for known in self.sessions().iter().filter(|known| known.key.is_of(session)) {
            if known.ledger.set_labels(labels) {
                known.close_tunnels();
            }
        }
    }

    /// Finds the files that commands changed since the last call, where they may hold untrusted
    /// content. A directory means everything below it.
    pub(crate) async fn take_changes(&self) -> Vec<PathBuf> {
        let ledgers: Vec<_> = self.sessions().iter().map(|session| session.ledger.clone()).collect();
        let mut since: BTreeMap<PathBuf, SystemTime> = BTreeMap::new();
        for (workspace, started) in ledgers.iter().flat_map(|ledger| ledger.take_changes()) {
            since.entry(workspace).and_modify(|first| *first = started.min(*first)).or_insert(started);
        }
        if since.is_empty() {
            return Vec::new();
        }
        let unscanned: Vec<PathBuf> = since.keys().cloned().collect();
        let scanned = tokio::task::spawn_blocking(move || {
            let changed = |(workspace, since): (PathBuf, SystemTime)| match changed_since(
                &workspace,
                since,
                ScanLimits::default(),
            ) {
                Changed::Paths(paths) => paths,
                Changed::Everything => vec![workspace],
            };
            since.into_iter().flat_map(changed).collect()
        });
        scanned.await.unwrap_or(unscanned)
    }

    /// Notes a call that works with the session's running commands. Returns `None` if the session
    /// has no network.
    pub(crate) fn attend(
        &self,
        call: &Arc<Call>,
        tool: &'static str,
        policy: NetworkPolicy,
    ) -> Option<ShellUse> {
        self.enter_known(&SessionKey::of(call, policy), call, tool)
    }

    fn enter_known(&self, key: &SessionKey, call: &Arc<Call>, tool: &'static str) -> Option<ShellUse> {
        let mut sessions = self.sessions();
        let position = sessions.iter().position(|session| session.key == *key)?;
        // The most recently used one is last.
        let session = sessions.remove(position);
        let entered = ShellUse::new(&session, call, tool);
        sessions.push(session);
        Some(entered)
    }

    /// Drops the least recently used idle session if there are too many.
    fn make_room(&self) -> Result<(), ToolError> {
        let mut sessions = self.sessions();
        if sessions.len() < MAX_SHELL_SESSIONS {
            return Ok(());
        }
        let Some(idle) = sessions.iter().position(|session| session.ledger.is_idle(Duration::ZERO)) else {
            return Err(ToolError::failed(format!(
                "{MAX_SHELL_SESSIONS} agent sessions run commands on this machine; no other can start one"
            ))
            .with_hint("end background commands with Process, or try again later"));
        };
        let dropped = sessions.remove(idle);
        drop(sessions);
        drop(dropped);
        Ok(())
    }

    async fn create(
        &self,
        key: SessionKey,
        call: &Arc<Call>,
        tool: &'static str,
    ) -> Result<Arc<ShellSession>, ToolError> {
        let parent = self.temp_dir.clone();
        let tmp = tokio::task::spawn_blocking(move || PrivateTmp::new_in(&parent)).await;
        let tmp = tmp
            .map_err(std::io::Error::other)
            .and_then(|made| made)
            .map_err(|err| ToolError::failed(format!("cannot create a temporary directory: {err}")))?;
        let ledger = Arc::new(Ledger::new(call, tool));
        let mut session = ShellSession::new(key, tmp, ledger.clone());
        let mut serving = None;
        if session.key.policy != NetworkPolicy::DenyAll {
            let made = self.processes.create_network().await.map_err(crate::machine::process_error)?;
            session.outlet = Some(Outlet { network: Arc::new(made.network), address: made.address });
            serving = Some((self.proxy(&session.key.policy), made.listener));
        }
        let session = Arc::new(session);
        let judge = SessionJudge::new(
            session.key.policy.clone(),
            ledger,
            self.settings.clone(),
            self.audit.clone(),
            self.masker.clone(),
        );
        let (stop, sessions) = (session.stop.clone(), Arc::downgrade(&self.sessions));
        tokio::spawn(drop_when_idle(Arc::downgrade(&session), sessions, stop.clone()));
        if let Some((proxy, listener)) = serving {
            let (judge, session) = (Arc::new(judge), Arc::downgrade(&session));
            // If the listener fails, the session has no way out, and its commands report that.
            tokio::spawn(async move {
                while !stop.is_cancelled()
                    && let Some(tunnels) = session.upgrade().map(|session| session.tunnels())
                    && let Ok(listener) = listener.try_clone()
                    && proxy.serve(listener, judge.clone(), tunnels).await.is_ok()
                {}
            });
        }
        Ok(session)
    }

    fn proxy(&self, policy: &NetworkPolicy) -> EgressProxy {
        EgressProxy::new(EgressOptions {
            network: self.settings.get().egress.network.clone(),
            policy: policy.clone(),
            closed_ports: self.closed_ports.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            ..EgressOptions::default()
        })
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<Arc<ShellSession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests look at their own directories")]
mod tests;

/// Removes a session from the list after it had no commands for [`IDLE_LIMIT`].
async fn drop_when_idle(session: Weak<ShellSession>, list: Weak<SessionList>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(IDLE_CHECK) => {}
        }
        let (Some(session), Some(list)) = (session.upgrade(), list.upgrade()) else { return };
        let mut sessions = list.lock().unwrap_or_else(PoisonError::into_inner);
        // Commands enter a session under the same lock.
        if session.ledger.is_idle(IDLE_LIMIT) {
            sessions.retain(|other| !Arc::ptr_eq(other, &session));
            return;
        }
    }
}
