//! The machine that the tools work on: its files, its processes and the operator's settings.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_files::{FileError, Files, PartRecords, Scope, WriteOptions};
use gantry_net::{Client, NetworkPolicy};
use gantry_process::workers::Workers;
use gantry_process::{ProcessError, Processes, env};
use gantry_tool::{AuditSink, Call, Live, Masker, Message, ResultStore, SensitivePaths, ToolError};

use crate::agent_shells::{AgentShells, EgressSettings, ShellUse};
use crate::web::Web;

pub(crate) use confinement::Confinement;
pub(crate) use file_access::{FileAccess, FileScopes};

mod agent_ports;
mod confinement;
mod file_access;
mod sandbox_hint;

/// `Machine` is the state that every tool of a machine shares.
pub struct Machine {
    parts: MachineParts,
    settings: Live<MachineSettings>,
    masker: Masker,
    shells: AgentShells,
    scopes: FileScopes,
}

/// The operator's settings, which a changed configuration replaces.
#[derive(Debug, Clone, Default)]
pub struct MachineSettings {
    pub sensitive: SensitivePaths,
    pub shell: ShellSettings,
    pub isolation: Isolation,
    /// The isolation of each agent that does not use the default.
    pub agent_isolation: BTreeMap<String, Isolation>,
    /// Clients and settings of the web tools.
    pub web: Web,
    /// Settings for the connections of isolated commands.
    pub egress: EgressSettings,
}

pub struct MachineParts {
    pub files: Files,
    pub processes: Processes,
    pub results: Arc<dyn ResultStore>,
    /// The environment of the gantry process; commands get filtered parts of it.
    pub variables: Vec<(OsString, OsString)>,
    /// Gantry's own directories and files, closed to tools and to sandboxed commands.
    pub closed: Vec<PathBuf>,
    pub settings: MachineSettings,
    /// The directory for private temporary directories.
    pub temp_dir: PathBuf,
    /// The directory for the package caches of agents, one directory each.
    pub agent_caches: Option<PathBuf>,
    /// The process ends with this call, so no command can run in the background.
    pub one_shot: bool,
    /// Records the connections of isolated commands.
    pub audit: Arc<dyn AuditSink>,
    /// Confines every caller to the workspace: paths are contained, and the kernel confines every
    /// shell. Where it cannot, shells are refused.
    pub contain: bool,
    /// The processes that run `bash`, `read_file` and `write_file`; `None` runs them in this one.
    pub workers: Option<Workers>,
}

/// The directories that every program may read: programs, libraries and configuration.
pub(crate) const SYSTEM_READABLE: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/run/systemd/resolve"];

#[derive(Debug, Clone, Default)]
pub struct ShellSettings {
    pub sandbox: SandboxMode,
    /// Commands of Gantry's own agents run with their own mounts and network.
    pub isolated: bool,
    /// Directories that are searched for allow-listed programs, before the system's own.
    pub path: Vec<PathBuf>,
    /// Program names that are allowed in addition to the built-in list.
    pub allow: Vec<String>,
    /// Paths that confined commands may read in addition to the system's directories.
    pub readable: Vec<PathBuf>,
    /// Paths that confined commands may write in addition to the workspace.
    pub caches: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SandboxMode {
    /// A command that cannot be confined is refused.
    #[default]
    Required,
    /// The operator runs commands unconfined.
    Off,
}

#[derive(Debug, Clone, Default)]
pub struct Isolation {
    pub level: IsolationLevel,
    /// Variables that are passed to commands of sandboxed agents.
    pub variables: Vec<(String, String)>,
    /// The hosts that web tools and isolated commands may reach. Other commands have no sockets unless
    /// this is `AllowAll`.
    pub network: NetworkPolicy,
}

impl Isolation {
    /// Returns an isolation that allows only what both allow.
    fn within(self, other: &Isolation) -> Isolation {
        let network = self.reachable().within(&other.reachable());
        let stricter = if other.level > self.level { other.clone() } else { self };
        Isolation { network, ..stricter }
    }

    /// Returns the network policy in effect: an air gap denies all hosts, whatever `network` says.
    fn reachable(&self) -> NetworkPolicy {
        match self.level {
            IsolationLevel::AirGapped => NetworkPolicy::DenyAll,
            IsolationLevel::Shared | IsolationLevel::Scoped | IsolationLevel::Sandboxed => {
                self.network.clone()
            }
        }
    }
}

/// A stricter level compares as greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum IsolationLevel {
    #[default]
    Shared,
    Scoped,
    Sandboxed,
    AirGapped,
}

impl Machine {
    pub fn new(parts: MachineParts) -> Machine {
        let settings = Live::new(parts.settings.clone());
        let masker = parts.settings.web.masker.clone();
        let present = settings.clone();
        let is_sensitive = Arc::new(move |path: &Path| present.get().sensitive.contains(path));
        let scopes = FileScopes::new(parts.files.clone(), is_sensitive);
        let shells = AgentShells::new(
            parts.processes.clone(),
            parts.temp_dir.clone(),
            settings.clone(),
            parts.audit.clone(),
            masker.clone(),
        );
        Machine { parts, settings, masker, shells, scopes }
    }

    /// Replaces the settings for calls that come later. The stores of credentials stay as they are.
    pub fn configure(&self, settings: MachineSettings) {
        let Web { secrets, apis, tokens, .. } = self.settings.get().web.clone();
        let web = Web { secrets, apis, tokens, masker: self.masker.clone(), ..settings.web };
        self.settings.set(MachineSettings { web, ..settings });
    }

    pub(crate) fn settings(&self) -> Arc<MachineSettings> {
        self.settings.get()
    }

    /// Masks text that tools store themselves; the gate masks their answers.
    pub(crate) fn masker(&self) -> &Masker {
        &self.masker
    }

    pub(crate) fn processes(&self) -> &Processes {
        &self.parts.processes
    }

    pub(crate) fn results(&self) -> &dyn ResultStore {
        &*self.parts.results
    }

    pub(crate) fn closed(&self) -> &[PathBuf] {
        &self.parts.closed
    }

    pub(crate) fn temp_dir(&self) -> &Path {
        &self.parts.temp_dir
    }

    pub(crate) fn is_one_shot(&self) -> bool {
        self.parts.one_shot
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> {
        self.parts.variables.iter().cloned()
    }

    /// Returns the environment of an assistant's command: an allow-list that depends on the calling
    /// agent's isolation.
    pub(crate) fn allowed_variables(&self, call: &Call) -> env::Variables {
        let isolation = self.isolation(call);
        let level = match isolation.level {
            IsolationLevel::Shared => env::Isolation::Shared,
            IsolationLevel::Scoped => env::Isolation::Scoped,
            IsolationLevel::Sandboxed => env::Isolation::Sandboxed,
            IsolationLevel::AirGapped => env::Isolation::AirGapped,
        };
        let configured: Vec<(OsString, OsString)> =
            isolation.variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        self.with_contained_home(call, env::assistant(self.variables(), level, &configured))
    }

    /// Returns the environment of an ordinary shell: everything but Gantry's own variables and
    /// model keys. Sandboxed and air-gapped agents get the same allow-list in every shell.
    pub(crate) fn shell_variables(&self, call: &Call) -> env::Variables {
        match self.isolation(call).level {
            IsolationLevel::Shared | IsolationLevel::Scoped => {
                self.with_contained_home(call, env::inherited(self.variables()))
            }
            IsolationLevel::Sandboxed | IsolationLevel::AirGapped => self.allowed_variables(call),
        }
    }

    /// Sets HOME and TMPDIR to the workspace on a contained machine, where a command can reach
    /// neither the user's home nor the common temporary directory.
    fn with_contained_home(&self, call: &Call, mut variables: env::Variables) -> env::Variables {
        if self.parts.contain {
            for name in ["HOME", "TMPDIR"] {
                variables.retain(|(known, _)| known != name);
                variables.push((name.into(), call.workspace.clone().into()));
            }
        }
        variables
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&OsString> {
        self.parts.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub(crate) fn part_records(&self, root: &Path, owner: &str) -> Result<PartRecords, FileError> {
        self.parts.files.part_records(root, owner)
    }

    /// Returns a scope with absolute paths and paths relative to the workspace; on a contained
    /// machine, the workspace only.
    pub(crate) fn free(&self, call: &Call) -> Result<Scope, ToolError> {
        self.scopes.free(&self.file_access(call))
    }

    /// Returns what the call may reach of the file system.
    pub(crate) fn file_access(&self, call: &Call) -> FileAccess {
        FileAccess {
            workspace: call.workspace.clone(),
            contain: self.parts.contain,
            writes_inside: call.writes_inside,
            avoid_sensitive: call.avoid_sensitive,
        }
    }

    pub(crate) fn scopes(&self) -> &FileScopes {
        &self.scopes
    }

    pub(crate) fn workers(&self) -> Option<&Workers> {
        self.parts.workers.as_ref()
    }

    /// Returns a scope of the call's workspace only.
    pub(crate) fn contained(&self, call: &Call) -> Result<Scope, ToolError> {
        self.scopes.contained(&self.file_access(call))
    }

    /// Returns a scope of one directory only, which the call may touch.
    pub(crate) fn beneath(&self, call: &Call, root: &Path) -> Result<Scope, FileError> {
        Ok(self.scopes.refusing(&self.file_access(call), self.parts.files.contained(root)?))
    }

    /// Resolves a path of the input for policy. Returns it as written if it cannot be resolved; the
    /// run then reports why.
    pub(crate) fn touched_free(&self, call: &Call, path: impl AsRef<Path>) -> PathBuf {
        touched(self.free(call), call, path.as_ref())
    }

    /// Like [`Machine::touched_free`], for tools that stay in the workspace.
    pub(crate) fn touched_contained(&self, call: &Call, path: impl AsRef<Path>) -> PathBuf {
        touched(self.contained(call), call, path.as_ref())
    }

    /// Resolves a path of the call's workspace for policy, for tools of domains.
    pub fn workspace_path(&self, call: &Call, path: &str) -> PathBuf {
        self.touched_contained(call, path)
    }

    /// Reads a whole file of the call's workspace, at most `max` bytes. Blocks.
    pub fn read_workspace_file(&self, call: &Call, path: &str, max: u64) -> Result<Vec<u8>, ToolError> {
        self.contained(call)?.open(path).and_then(|file| file.read_all(max)).map_err(file_error)
    }

    /// Writes a new file in the call's workspace. An existing file is an error. Blocks.
    pub fn create_workspace_file(&self, call: &Call, path: &str, content: &[u8]) -> Result<(), ToolError> {
        let options = WriteOptions { make_parents: true, only_new: true };
        self.contained(call)?.replace(path, &[content], options).map(drop).map_err(file_error)
    }

    /// Returns [`Machine::touched_free`] as a function, for tools to declare paths with.
    pub(crate) fn free_paths(self: &Arc<Self>) -> impl Fn(&Call, &str) -> PathBuf + Send + Sync + 'static {
        let own = self.clone();
        move |call, path| own.touched_free(call, path)
    }

    /// Returns [`Machine::touched_contained`] as a function, for tools to declare paths with.
    pub(crate) fn contained_paths(
        self: &Arc<Self>,
    ) -> impl Fn(&Call, &str) -> PathBuf + Send + Sync + 'static {
        let own = self.clone();
        move |call, path| own.touched_contained(call, path)
    }

    /// Returns what the agent's isolation and those of all its policy agents allow.
    pub(crate) fn isolation(&self, call: &Call) -> Isolation {
        let settings = self.settings();
        let of = |agent| settings.agent_isolation.get(agent).unwrap_or(&settings.isolation);
        let own = of(&call.agent).clone();
        call.policy_agents.iter().map(of).fold(own, |isolation, other| isolation.within(other))
    }

    /// Returns the hosts that web tools may reach for this call.
    pub(crate) fn reachable(&self, call: &Call) -> NetworkPolicy {
        self.isolation(call).reachable()
    }

    /// Returns the hosts that web tools of an agent may reach.
    pub fn reachable_by(&self, agent: &str) -> NetworkPolicy {
        let settings = self.settings();
        settings.agent_isolation.get(agent).unwrap_or(&settings.isolation).reachable()
    }

    /// Returns the guarded client of the web tools.
    pub fn web_client(&self) -> Client {
        self.settings().web.client.clone()
    }

    fn home(&self) -> Option<&Path> {
        self.variable("HOME").map(Path::new).filter(|home| home.is_absolute())
    }

    /// Returns `None` also for a home that is missing or unreachable: no shell can read it.
    fn real_home(&self) -> Option<PathBuf> {
        self.home().and_then(|home| gantry_process::existing(&[home.to_owned()]).pop())
    }

    /// Returns the files that the operator's next login shell would run, also missing ones, which a
    /// command could create.
    pub(crate) fn start_files(&self) -> Vec<PathBuf> {
        let absolute = |name: &str| self.variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let in_home = self.real_home().map(|home| SensitivePaths::start_files(&home));
        let moved = SensitivePaths::moved_start_files(absolute);
        in_home.unwrap_or_default().into_iter().chain(moved).collect()
    }
}

fn touched(scope: Result<Scope, ToolError>, call: &Call, path: &Path) -> PathBuf {
    let resolved = scope.ok().and_then(|scope| scope.leads_to(path).ok());
    resolved.unwrap_or_else(|| call.workspace.join(path))
}

/// Converts an error of the file engine.
pub(crate) fn file_error(err: FileError) -> ToolError {
    let message = Message { hint: err.hint().map(str::to_owned), ..Message::new(err.to_string()) };
    match err {
        FileError::Cancelled => ToolError::Cancelled,
        FileError::Closed { .. } | FileError::Sensitive { .. } => ToolError::Denied(message),
        _ => ToolError::Failed(message),
    }
}

/// Converts an error of the process engine.
pub(crate) fn process_error(err: ProcessError) -> ToolError {
    let message = Message { hint: err.hint().map(str::to_owned), ..Message::new(err.to_string()) };
    match err {
        ProcessError::Cancelled => ToolError::Cancelled,
        ProcessError::SandboxUnavailable { .. } => ToolError::Denied(message),
        _ => ToolError::Failed(message),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests prepare their own files")]
mod tests;
