//! The machine that the tools work on: its files, its processes and the operator's settings.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_files::{FileError, Files, PartRecords, PathTest, Scope};
use gantry_net::NetworkPolicy;
use gantry_process::{Network, ProcessError, Processes, Sandbox, env};
use gantry_tool::{Call, Message, ResultStore, SensitivePaths, ToolError};

use crate::web::Web;

/// `Machine` is the state that every tool of a machine shares.
pub struct Machine {
    parts: MachineParts,
    /// Checked by the scopes of calls that must avoid sensitive paths.
    is_sensitive: PathTest,
}

pub struct MachineParts {
    pub files: Files,
    pub processes: Processes,
    pub results: Arc<dyn ResultStore>,
    /// The environment of the gantry process; commands get filtered parts of it.
    pub variables: Vec<(OsString, OsString)>,
    /// Gantry's own directories and files, closed to tools and to sandboxed commands.
    pub closed: Vec<PathBuf>,
    pub sensitive: SensitivePaths,
    /// The directory for private temporary directories.
    pub temp_dir: PathBuf,
    pub shell: ShellSettings,
    pub isolation: Isolation,
    /// The isolation of each agent that does not use the default.
    pub agent_isolation: BTreeMap<String, Isolation>,
    /// The process ends with this call, so no command can run in the background.
    pub one_shot: bool,
    /// Clients and settings of the web tools.
    pub web: Web,
    /// Confines every caller to the workspace: paths are contained, and the kernel confines every
    /// shell. Where it cannot, shells are refused.
    pub contain: bool,
}

/// The directories that every program may read: programs, libraries and configuration.
pub(crate) const SYSTEM_READABLE: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/run/systemd/resolve"];

#[derive(Debug, Clone, Default)]
pub struct ShellSettings {
    pub sandbox: SandboxMode,
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
    /// The hosts that web tools may reach. Commands have no sockets unless this is `AllowAll`.
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
        let sensitive = parts.sensitive.clone();
        Machine { parts, is_sensitive: Arc::new(move |path: &Path| sensitive.contains(path)) }
    }

    pub(crate) fn processes(&self) -> &Processes {
        &self.parts.processes
    }

    pub(crate) fn results(&self) -> &dyn ResultStore {
        &*self.parts.results
    }

    pub(crate) fn sensitive(&self) -> &SensitivePaths {
        &self.parts.sensitive
    }

    pub(crate) fn shell(&self) -> &ShellSettings {
        &self.parts.shell
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
        if self.parts.contain {
            return self.contained(call);
        }
        let scope = self.parts.files.free(&call.workspace).map_err(file_error)?;
        Ok(self.refusing(call, scope))
    }

    /// Returns a scope of the call's workspace only.
    pub(crate) fn contained(&self, call: &Call) -> Result<Scope, ToolError> {
        let scope = self.parts.files.contained(&call.workspace).map_err(file_error)?;
        Ok(self.refusing(call, scope))
    }

    /// Returns a scope of one directory only, which the call may touch.
    pub(crate) fn beneath(&self, call: &Call, root: &Path) -> Result<Scope, FileError> {
        Ok(self.refusing(call, self.parts.files.contained(root)?))
    }

    /// Makes the scope refuse sensitive paths, because a link may have been swapped after the
    /// policy decision.
    fn refusing(&self, call: &Call, scope: Scope) -> Scope {
        if call.avoid_sensitive { scope.refusing(Arc::clone(&self.is_sensitive)) } else { scope }
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
        let of = |agent| self.parts.agent_isolation.get(agent).unwrap_or(&self.parts.isolation);
        let own = of(&call.agent).clone();
        call.policy_agents.iter().map(of).fold(own, |isolation, other| isolation.within(other))
    }

    /// Decides about the sockets of commands. They cannot be limited to some hosts, so they have
    /// all or none.
    pub(crate) fn network(&self, call: &Call) -> Network {
        match self.reachable(call) {
            NetworkPolicy::AllowAll => Network::Allowed,
            NetworkPolicy::AllowList(_) | NetworkPolicy::DenyAll => Network::Denied,
        }
    }

    /// Returns the hosts that web tools may reach for this call.
    pub(crate) fn reachable(&self, call: &Call) -> NetworkPolicy {
        self.isolation(call).reachable()
    }

    pub(crate) fn web(&self) -> &Web {
        &self.parts.web
    }

    /// Returns the confinement of an ordinary shell. The operator on an open network has none.
    /// Others cannot reach Gantry's own paths and, if the call must avoid them, sensitive paths of
    /// the home directory. On a contained machine, everyone has only the workspace and the system's
    /// programs.
    pub(crate) fn shell_sandbox(&self, call: &Call) -> Sandbox {
        let network = self.network(call);
        if self.parts.contain {
            let system = SYSTEM_READABLE.iter().map(PathBuf::from);
            let workspace = std::iter::once(call.workspace.clone());
            let write: Vec<PathBuf> = workspace.chain(self.parts.shell.caches.iter().cloned()).collect();
            return Sandbox::OnlyExcept {
                read: system.chain(self.parts.shell.readable.iter().cloned()).collect(),
                read_only: self.start_files(),
                write,
                closed: self.parts.closed.clone(),
                network,
            };
        }
        let open = network == Network::Allowed;
        if open && (call.principal.is_operator() || self.parts.shell.sandbox == SandboxMode::Off) {
            return Sandbox::None;
        }
        let mut closed = self.parts.closed.clone();
        if call.avoid_sensitive
            && let Some(home) = self.home()
        {
            let workspace = gantry_process::existing(std::slice::from_ref(&call.workspace));
            let places = gantry_process::existing(&self.parts.sensitive.in_home(home)).into_iter();
            // A sensitive directory that contains the workspace stays open, because the operator
            // chose that workspace.
            closed.extend(places.filter(|place| !workspace.iter().any(|root| root.starts_with(place))));
        }
        Sandbox::Except { closed, read_only: self.start_files(), network }
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
mod tests {
    use serde_json::json;

    use gantry_tool::{Call, Principal};

    use crate::testing::{Bench, set_variable};

    #[tokio::test]
    async fn shell_of_an_agent_cannot_read_keys_in_the_home_directory() {
        let bench = Bench::new();
        let home = bench.workspace().parent().unwrap().join("home");
        for folder in [".ssh", "notes"] {
            std::fs::create_dir(home.join(folder)).unwrap();
            std::fs::write(home.join(folder).join("file"), format!("text of {folder}")).unwrap();
        }
        std::fs::write(home.join(".netrc"), "text of .netrc").unwrap();
        let script =
            format!("cd {}; cat notes/file; cat .s*/file .ss\"h\"/file; cat .ne\"trc\"", home.display());
        let answer = bench.call_as(bench.agent_call("a"), "Bash", json!({"command": script})).await;
        let output = format!("{answer:?}");
        assert!(output.contains("text of notes") && !output.contains("text of ."), "{output}");
    }

    /// The operator's next login shell, which is not confined, would run these files.
    #[tokio::test]
    async fn confined_shell_cannot_write_start_files() {
        let bench = Bench::new();
        let home = bench.workspace().parent().unwrap().join("home");
        std::fs::write(home.join(".profile"), "echo from the profile\n").unwrap();
        let script = "cd; echo x >> .profile; echo x > t-$$; rm .profile; echo x > ../workspace/t; mv -f ../workspace/t .profile; echo x > .bash_profile; cat .profile";
        let client = Call { principal: Principal::Client { token: "c".to_owned() }, ..bench.agent_call("a") };
        for call in [bench.agent_call("a"), client] {
            let output = format!("{:?}", bench.call_as(call, "Bash", json!({"command": script})).await);
            assert!(output.contains("from the profile"), "{output}");
            let left: Vec<_> =
                std::fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(left, [".profile"]);
            assert_eq!(std::fs::read_to_string(home.join(".profile")).unwrap(), "echo from the profile\n");
        }
        // The start files of git and fish are in subdirectories, which may be missing.
        std::fs::create_dir_all(home.join(".config/other")).unwrap();
        let script = "cd ~/.config; echo x > other/t && echo made; mkdir git zsh; echo x > bash_completion; mkdir -p fish/conf.d; mv other git; mkdir -p ../.config/git; git config --global alias.x y";
        let output =
            format!("{:?}", bench.call_as(bench.agent_call("a"), "Bash", json!({"command": script})).await);
        assert!(output.contains("made"), "{output}");
        let left: Vec<_> = std::fs::read_dir(home.join(".config"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["other"], "{output}");
        std::fs::remove_dir_all(home.join(".config")).unwrap();
        // A client may add known hosts, but may not write files that ssh or its server runs or
        // trusts.
        std::fs::create_dir(home.join(".ssh")).unwrap();
        std::fs::write(home.join(".ssh/known_hosts"), "").unwrap();
        std::fs::write(home.join(".ssh/config"), "").unwrap();
        let client = Call { principal: Principal::Client { token: "c".to_owned() }, ..bench.agent_call("a") };
        let script = "cd ~/.ssh; echo host >> known_hosts; for name in rc environment config authorized_keys; do echo x > $name; done";
        let output = format!("{:?}", bench.call_as(client, "Bash", json!({"command": script})).await);
        let left = |name: &str| std::fs::read_to_string(home.join(".ssh").join(name)).unwrap_or_default();
        assert_eq!((&*left("known_hosts"), &*left("config")), ("host\n", ""), "{output}");
        assert_eq!(std::fs::read_dir(home.join(".ssh")).unwrap().count(), 2, "{output}");
        std::fs::remove_dir_all(home.join(".ssh")).unwrap();
        // The same holds if the workspace is the home directory itself, and for `tool::shell_exec`.
        let mut call = bench.agent_call("a");
        call.workspace = home.clone();
        let input = json!({"argv": ["python3", "-c", "open('.profile', 'a').write('x')"]});
        let output = format!("{:?}", bench.call_as(call, "tool::shell_exec", input).await);
        assert!(output.contains("PermissionError"), "{output}");
    }

    #[tokio::test]
    async fn start_files_are_found_where_the_environment_points() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["config/git", "config/other", "zsh/plugins"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        let bench = Bench::with(|parts| {
            set_variable(parts, "XDG_CONFIG_HOME", root.join("config"));
            set_variable(parts, "ZDOTDIR", root.join("zsh"));
            set_variable(parts, "BASH_ENV", root.join("config/other/env"));
        });
        let script = format!(
            "cd {}; echo x > zsh/plugins/t && echo made; echo x > config/other/env; echo x > config/git/config; mkdir config/fish; echo x > zsh/.zshrc",
            root.display()
        );
        let output =
            format!("{:?}", bench.call_as(bench.agent_call("a"), "Bash", json!({"command": script})).await);
        assert!(output.contains("made"), "{output}");
        for name in ["config/git/config", "config/fish", "config/other/env", "zsh/.zshrc"] {
            assert!(!root.join(name).exists(), "{name}: {output}");
        }
    }

    /// File rules cannot close the sockets of outside servers, such as docker or an ssh agent.
    #[tokio::test]
    async fn command_confined_to_the_workspace_cannot_use_unix_sockets() {
        let contained = Bench::with(|parts| parts.contain = true);
        let path = contained.workspace().parent().unwrap().join("home/server");
        let _server = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let code = format!(
            "import socket; socket.socketpair(); socket.socket(); print('tried'); socket.socket(socket.AF_UNIX).connect('{}')",
            path.display()
        );
        let shell = json!({"command": format!("/usr/bin/python3 -c \"{code}\"")});
        let program = json!({"argv": ["python3", "-c", code]});
        for (tool, input) in
            [("Bash", &shell), ("exec", &shell), ("bash", &shell), ("tool::shell_exec", &program)]
        {
            let output = format!("{:?}", contained.call(tool, input.clone()).await);
            assert!(
                output.contains("tried") && output.contains("Operation not permitted"),
                "{tool}: {output}"
            );
        }
        // An agent's ordinary shell keeps Unix sockets: people use docker and ssh from it.
        let bench = Bench::new();
        let output = format!("{:?}", bench.call_as(bench.agent_call("a"), "Bash", shell).await);
        assert!(output.contains("tried") && !output.contains("rror"), "{output}");
    }

    /// Everything that a contained machine must refuse to every caller.
    #[tokio::test]
    async fn contained_machine_keeps_every_tool_in_the_workspace() {
        let bench = Bench::with(|parts| {
            parts.contain = true;
            parts.shell.sandbox = crate::SandboxMode::Off;
        });
        let outside = bench.workspace().parent().unwrap().join("home/outside.txt");
        std::fs::write(&outside, "text outside").unwrap();
        std::os::unix::fs::symlink(&outside, bench.workspace().join("link")).unwrap();
        let inside = bench.write("inside.txt", "text inside\n");
        let (path, home) = (outside.to_str().unwrap(), outside.parent().unwrap());
        for (tool, input) in [
            ("Read", json!({"path": path})),
            ("Read", json!({"path": "link"})),
            ("Read", json!({"path": "../home/outside.txt"})),
            ("Write", json!({"path": path, "content": "x"})),
            ("Edit", json!({"path": path, "oldString": "text", "newString": "x"})),
            ("Glob", json!({"pattern": "*", "path": home})),
            ("Grep", json!({"pattern": "text", "path": path})),
            ("Bash", json!({"command": "true", "workdir": home})),
            ("read", json!({"path": path})),
            ("write", json!({"path": path, "data": "x"})),
            ("exec", json!({"command": "true", "cwd": home})),
            ("read_file", json!({"path": path})),
            ("write_file", json!({"path": path, "content": "x"})),
            (
                "batch_files",
                json!({"pattern": "*", "directory": home, "operation": "rename", "rename_to": "x"}),
            ),
            (
                "batch_files",
                json!({"pattern": "*", "directory": ".", "operation": "move", "destination": home}),
            ),
        ] {
            let refused = format!("{:?}", bench.call(tool, input.clone()).await.expect_err(tool));
            assert!(refused.contains("path is outside the workspace"), "{tool} {input}: {refused}");
        }
        let read = bench.call("read_file", json!({"path": inside})).await;
        assert!(format!("{read:?}").contains("text inside"), "{read:?}");
        let script = format!(
            "cat inside.txt; cat {path}; cat link; echo new > made; echo x > {path}; touch {0}/new; echo x > /tmp/x-{1}; cd; pwd",
            home.display(),
            std::process::id()
        );
        for (tool, input) in [
            ("Bash", json!({"command": script})),
            ("Bash", json!({"command": script, "yieldMs": 60_000})),
            ("exec", json!({"command": script})),
            ("bash", json!({"command": script})),
        ] {
            let output = format!("{:?}", bench.call(tool, input).await);
            assert!(output.contains("text inside") && !output.contains("text outside"), "{tool}: {output}");
            assert!(output.contains(bench.workspace().to_str().unwrap()), "{tool}: {output}");
            assert_eq!(bench.read("made"), "new\n");
            std::fs::remove_file(bench.workspace().join("made")).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "text outside");
        assert!(!home.join("new").exists());
        assert!(!std::path::Path::new(&format!("/tmp/x-{}", std::process::id())).exists());
    }
}
