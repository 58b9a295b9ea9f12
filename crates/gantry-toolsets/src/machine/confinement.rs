//! What a command can reach: its files, and its network.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_net::{NetworkPolicy, PresetKind, Url, preset};
use gantry_process::{Command, Network, Processes, Sandbox, SessionId, env};
use gantry_tool::{Call, Crossing, Label, ToolError};

use super::{IsolationLevel, Machine, SYSTEM_READABLE, SandboxMode, ShellUse};

/// `Confinement` is what one command can reach. An agent's session keeps its network while it exists.
pub(crate) struct Confinement {
    pub(super) sandbox: Sandbox,
    shell: Option<ShellUse>,
    /// The command's temporary directory, if it has its own.
    tmp: Option<PathBuf>,
    /// The directory for package caches, if the command cannot write the user's.
    cache: Option<PathBuf>,
}

/// The variables that move the caches of package managers into a directory of the agent.
const CACHES: &[(&str, &str)] = &[
    ("CARGO_HOME", "cargo"),
    ("XDG_CACHE_HOME", "cache"),
    ("npm_config_cache", "npm"),
    ("PNPM_HOME", "pnpm"),
    ("GOMODCACHE", "go"),
];

impl Confinement {
    /// Returns the environment of the command. Proxies of the machine's own environment do not
    /// reach an isolated command.
    pub(crate) fn variables(&self, mut variables: env::Variables) -> env::Variables {
        if let Some(shell) = &self.shell {
            shell.set_proxy(&mut variables);
        }
        if let Some(tmp) = &self.tmp {
            variables.retain(|(name, _)| !["TMPDIR", "TMP", "TEMP"].iter().any(|known| name == known));
            variables.push((OsString::from("TMPDIR"), tmp.into()));
        }
        if let Some(cache) = &self.cache {
            variables.retain(|(name, _)| !CACHES.iter().any(|(known, _)| name == known));
            let moved = CACHES.iter().map(|(name, folder)| (OsString::from(name), cache.join(folder).into()));
            variables.extend(moved);
        }
        variables
    }

    /// Names the command line, for questions about its connections.
    pub(crate) fn name_command(&self, command: &str) {
        if let Some(shell) = &self.shell {
            shell.name_command(command);
        }
    }

    pub(crate) fn apply(&self, command: &mut Command) {
        command.sandbox = self.sandbox.clone();
        command.network = self.shell.as_ref().and_then(ShellUse::network);
    }

    /// Keeps the session's network while a background command runs.
    pub(crate) fn keep_while_running(self, processes: &Processes, id: SessionId) {
        if let Some(shell) = self.shell {
            shell.keep_while_running(processes, id);
        }
    }
}

impl Machine {
    /// Closes a port of this machine to isolated commands, such as the gateway's own.
    pub fn close_port(&self, port: u16) {
        self.shells.close_port(port);
    }

    /// Returns why agents' shells cannot be isolated although they should be. Blocks for a few
    /// milliseconds.
    pub fn isolation_problem(&self) -> Option<String> {
        let reason = self.settings().shell.isolated.then(|| self.shells.namespaces().err()).flatten()?;
        Some(format!(
            "shell.isolated is true, but this system allows no namespaces: {reason}; agents' commands run in the \
             older sandbox, without network"
        ))
    }

    /// Returns how a request to an address crosses the border. A request that the client refuses
    /// anyway crosses nothing, so that nobody is asked in vain.
    pub(crate) fn web_crossing(&self, call: &Call, address: &str) -> Vec<Crossing> {
        let Ok(url) = Url::parse(address.trim()) else { return Vec::new() };
        let policy = self.reachable(call);
        let Ok(host) = self.settings().web.client.permitted_host(&url, &policy) else { return Vec::new() };
        if preset(&host) == Some(PresetKind::PullOnly) {
            return Vec::new();
        }
        let is_listed = self.settings().web.client.names_host(&host)
            || self.settings().egress.allow.iter().any(|listed| listed.matches_host(&host));
        let known = matches!(policy, NetworkPolicy::AllowList(_)) || is_listed || preset(&host).is_some();
        vec![Crossing::Host { host, known }]
    }

    /// Returns the caches that agents' commands write.
    pub fn caches(&self) -> Vec<PathBuf> {
        let named: Vec<PathBuf> =
            self.parts.agent_caches.iter().chain(&self.settings().shell.caches).cloned().collect();
        let real = gantry_process::existing(&named);
        named.into_iter().chain(real).collect()
    }

    /// Takes the present labels of a session, for its commands that still run.
    pub fn set_session_labels(&self, session: &str, labels: &[Label]) {
        self.shells.set_labels(session, labels);
    }

    /// Finds the files that isolated commands changed since the last call of this function, where
    /// they may hold untrusted content.
    pub async fn take_changes(&self) -> Vec<PathBuf> {
        self.shells.take_changes().await
    }

    /// Reports whether the call's commands have no network, or every connection of theirs is judged.
    pub(crate) fn judges_connections(&self, call: &Call) -> bool {
        self.wants_isolation(call) || self.network_by_policy(call) == Network::Denied
    }

    /// Reports whether the files that the call's commands change are found.
    pub(crate) fn watches_changes(&self, call: &Call) -> bool {
        self.wants_isolation(call) && self.shells.namespaces().is_ok()
    }

    /// Reports whether the operator wants the call's commands to be isolated.
    fn wants_isolation(&self, call: &Call) -> bool {
        let shell = &self.settings().shell;
        shell.isolated
            && shell.sandbox == SandboxMode::Required
            && call.principal.is_own_agent()
            && !call.escalated
    }

    /// Reports whether the call's commands run in the sandbox of agents: their own mounts, and connections that are judged.
    pub(crate) fn is_sandboxed(&self, call: &Call) -> bool {
        self.wants_isolation(call) && self.shells.namespaces().is_ok()
    }

    /// Decides about the sockets of commands. Only isolated commands can be limited to some hosts;
    /// others have all or none.
    pub(crate) fn network(&self, call: &Call) -> Network {
        match self.network_by_policy(call) {
            // Without namespaces nothing could judge the connections.
            Network::Allowed if self.wants_isolation(call) && self.shells.namespaces().is_err() => {
                Network::Denied
            }
            network => network,
        }
    }

    /// Like [`Machine::network`], for the labels of results. Another node with the same settings may
    /// have namespaces.
    pub(crate) fn network_by_policy(&self, call: &Call) -> Network {
        match self.reachable(call) {
            NetworkPolicy::AllowAll => Network::Allowed,
            NetworkPolicy::AllowList(hosts) if !hosts.is_empty() && self.wants_isolation(call) => {
                Network::Allowed
            }
            NetworkPolicy::AllowList(_) | NetworkPolicy::DenyAll => Network::Denied,
        }
    }

    /// Returns what an ordinary shell can reach. For an agent this creates the session's network.
    pub(crate) async fn confine(
        &self,
        call: &Arc<Call>,
        tool: &'static str,
    ) -> Result<Confinement, ToolError> {
        let Some(shell) = self.enter_session(call, tool).await? else {
            let sandbox = self.shell_sandbox(call);
            return Ok(Confinement { sandbox, shell: None, tmp: None, cache: None });
        };
        // A contained machine shows even less of the file system. Its workspace is also its home.
        let tmp = shell.tmp().filter(|_| !self.parts.contain).map(Path::to_owned);
        let cache = tmp.as_ref().and_then(|_| self.agent_cache(call));
        let sandbox = match &tmp {
            Some(tmp) => self.isolated_sandbox(call, [Some(tmp), cache.as_ref()]),
            None => self.shell_sandbox(call),
        };
        Ok(Confinement { sandbox, shell: Some(shell), tmp, cache })
    }

    /// Returns the network of a command that has a sandbox and a temporary directory of its own.
    pub(crate) async fn confine_network(
        &self,
        call: &Arc<Call>,
        tool: &'static str,
        sandbox: Sandbox,
    ) -> Result<Confinement, ToolError> {
        Ok(Confinement { sandbox, shell: self.enter_session(call, tool).await?, tmp: None, cache: None })
    }

    async fn enter_session(
        &self,
        call: &Arc<Call>,
        tool: &'static str,
    ) -> Result<Option<ShellUse>, ToolError> {
        if !self.wants_isolation(call) {
            return Ok(None);
        }
        if let Some(problem) = self.isolation_problem() {
            call.findings.warn_once(&problem);
            return Ok(None);
        }
        self.shells.enter(call, tool, self.session_policy(call)).await.map(Some)
    }

    /// Lets the session's running commands ask through this call.
    pub(crate) fn attend_session(&self, call: &Arc<Call>, tool: &'static str) -> Option<ShellUse> {
        let isolated = self.wants_isolation(call) && self.shells.namespaces().is_ok();
        isolated.then(|| self.shells.attend(call, tool, self.session_policy(call))).flatten()
    }

    /// A session that may reach no host needs no proxy.
    fn session_policy(&self, call: &Call) -> NetworkPolicy {
        match self.network(call) {
            Network::Allowed => self.reachable(call),
            Network::Denied => NetworkPolicy::DenyAll,
        }
    }

    /// Returns the sandbox of an agent's shell. It writes the workspace, its temporary directory and
    /// the caches, and reads everything except Gantry's own paths and credentials.
    fn isolated_sandbox(&self, call: &Call, own: [Option<&PathBuf>; 2]) -> Sandbox {
        let settings = self.settings();
        let caches = settings.shell.caches.iter();
        let write = [&call.workspace].into_iter().chain(own.into_iter().flatten()).chain(caches);
        let write = write.cloned().collect();
        let mut covered = self.parts.closed.clone();
        covered.extend(self.credentials(call));
        Sandbox::Isolated { write, covered, read_only: self.start_files(), network: self.network(call) }
    }

    /// Returns the package cache of the calling agent. Agents do not share the user's caches, because
    /// the user's own builds trust what is in them.
    fn agent_cache(&self, call: &Call) -> Option<PathBuf> {
        // Sandboxed and air-gapped agents have exactly the variables of their level.
        let isolated_level = self.isolation(call).level >= IsolationLevel::Sandboxed;
        let directory = self.parts.agent_caches.as_ref().filter(|_| !isolated_level)?.join(&call.agent);
        match gantry_process::create_private_dir(&directory) {
            Ok(directory) => Some(directory),
            Err(err) => {
                let shown = directory.display();
                call.findings.warn_once(&format!("there is no package cache: cannot create {shown}: {err}"));
                None
            }
        }
    }

    /// Returns the sensitive paths of the home directory that are closed to the call, also missing
    /// ones. A sensitive directory that contains the workspace stays open, because the operator
    /// chose that workspace.
    fn credentials(&self, call: &Call) -> Vec<PathBuf> {
        let Some(home) = self.home().filter(|_| call.avoid_sensitive) else { return Vec::new() };
        let workspace = gantry_process::existing(std::slice::from_ref(&call.workspace));
        let contains_workspace = |path: &PathBuf| {
            let real = gantry_process::existing(std::slice::from_ref(path));
            real.iter().any(|real| workspace.iter().any(|root| root.starts_with(real)))
        };
        let paths = self.settings().sensitive.in_home(home).into_iter();
        paths.filter(|path| !contains_workspace(path)).collect()
    }

    /// Returns the confinement of an ordinary shell. The operator on an open network has none, nor
    /// has a command that was allowed to leave the sandbox.
    /// Others cannot reach Gantry's own paths and, if the call must avoid them, sensitive paths of
    /// the home directory. On a contained machine, everyone has only the workspace and the system's
    /// programs.
    pub(crate) fn shell_sandbox(&self, call: &Call) -> Sandbox {
        let network = self.network(call);
        if self.parts.contain {
            let system = SYSTEM_READABLE.iter().map(PathBuf::from);
            let workspace = std::iter::once(call.workspace.clone());
            let write: Vec<PathBuf> = workspace.chain(self.settings().shell.caches.iter().cloned()).collect();
            return Sandbox::OnlyExcept {
                read: system.chain(self.settings().shell.readable.iter().cloned()).collect(),
                read_only: self.start_files(),
                write,
                closed: self.parts.closed.clone(),
                network,
            };
        }
        let open = network == Network::Allowed;
        let has_operator_rights = call.principal.is_operator() || call.escalated;
        if open && (has_operator_rights || self.settings().shell.sandbox == SandboxMode::Off) {
            return Sandbox::None;
        }
        let mut closed = self.parts.closed.clone();
        closed.extend(gantry_process::existing(&self.credentials(call)));
        Sandbox::Except { closed, read_only: self.start_files(), network }
    }
}
