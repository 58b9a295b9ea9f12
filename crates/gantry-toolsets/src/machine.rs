//! The machine whose files and processes the tools work on, and how its operator has set it up.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_files::{FileError, Files, PartRecords, PathTest, Scope};
use gantry_net::NetworkPolicy;
use gantry_process::{Network, ProcessError, Processes, Sandbox, env};
use gantry_tool::{Call, Message, ResultStore, SensitivePaths, ToolError};

use crate::web::Web;

/// What every tool is made with.
pub struct Machine {
    parts: MachineParts,
    /// Asked by the scopes of calls that must avoid sensitive paths.
    is_sensitive: PathTest,
}

pub struct MachineParts {
    pub files: Files,
    pub processes: Processes,
    pub results: Arc<dyn ResultStore>,
    /// The environment of the gantry process; commands get filtered parts of it.
    pub variables: Vec<(OsString, OsString)>,
    /// Directories and files that are Gantry's own; closed to tools and to sandboxed commands.
    pub closed: Vec<PathBuf>,
    pub sensitive: SensitivePaths,
    /// Where private temporary directories are made.
    pub temp_dir: PathBuf,
    pub shell: ShellSettings,
    pub isolation: Isolation,
    /// In place of the common one, by agent.
    pub agent_isolation: BTreeMap<String, Isolation>,
    /// The process ends with this call: nothing can go on in the background.
    pub one_shot: bool,
    /// What the web tools work with.
    pub web: Web,
    /// No tool reaches beyond the call's workspace, whoever calls: paths are contained, and every shell is confined by the
    /// kernel, or refused where it cannot be.
    pub contain: bool,
}

/// What every program may read: itself, its libraries, its configuration.
pub(crate) const SYSTEM_READABLE: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/run/systemd/resolve"];

#[derive(Debug, Clone, Default)]
pub struct ShellSettings {
    pub sandbox: SandboxMode,
    /// Directories in which allow-listed programs are looked for, before the system's own.
    pub path: Vec<PathBuf>,
    /// Program names allowed beside the built-in list.
    pub allow: Vec<String>,
    /// Readable to confined commands beside the system's directories.
    pub readable: Vec<PathBuf>,
    /// Writable to confined commands beside the workspace.
    pub caches: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SandboxMode {
    /// A command that cannot be confined is refused.
    #[default]
    Required,
    /// The operator has decided to run commands unconfined.
    Off,
}

#[derive(Debug, Clone, Default)]
pub struct Isolation {
    pub level: IsolationLevel,
    /// Given to commands of sandboxed agents.
    pub variables: Vec<(String, String)>,
    /// Whom the web tools reach. Commands start without sockets unless it is everybody.
    pub network: NetworkPolicy,
}

impl Isolation {
    /// What this one and another one both allow.
    fn within(self, other: &Isolation) -> Isolation {
        let network = self.reachable().within(&other.reachable());
        let stricter = if other.level > self.level { other.clone() } else { self };
        Isolation { network, ..stricter }
    }

    /// Behind an air gap nobody is reached, whatever is written beside it.
    fn reachable(&self) -> NetworkPolicy {
        match self.level {
            IsolationLevel::AirGapped => NetworkPolicy::DenyAll,
            IsolationLevel::Shared | IsolationLevel::Scoped | IsolationLevel::Sandboxed => {
                self.network.clone()
            }
        }
    }
}

/// The stricter is the greater.
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

    /// The environment of an assistant's command: an allow-list, by the isolation of the calling agent.
    pub(crate) fn listed_variables(&self, call: &Call) -> env::Variables {
        let isolation = self.isolation(call);
        let level = match isolation.level {
            IsolationLevel::Shared => env::Isolation::Shared,
            IsolationLevel::Scoped => env::Isolation::Scoped,
            IsolationLevel::Sandboxed => env::Isolation::Sandboxed,
            IsolationLevel::AirGapped => env::Isolation::AirGapped,
        };
        let configured: Vec<(OsString, OsString)> =
            isolation.variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        self.at_home(call, env::assistant(self.variables(), level, &configured))
    }

    /// The environment of a free shell: everything but Gantry's own and model keys. Agents in a sandbox or behind an air
    /// gap get no more from one shell than from another.
    pub(crate) fn shell_variables(&self, call: &Call) -> env::Variables {
        match self.isolation(call).level {
            IsolationLevel::Shared | IsolationLevel::Scoped => {
                self.at_home(call, env::inherited(self.variables()))
            }
            IsolationLevel::Sandboxed | IsolationLevel::AirGapped => self.listed_variables(call),
        }
    }

    /// A contained command can reach neither the user's home nor the common temporary directory, so it gets the
    /// workspace for both.
    fn at_home(&self, call: &Call, mut variables: env::Variables) -> env::Variables {
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

    /// Absolute paths as they are, relative ones from the call's workspace; unless everything is contained in it.
    pub(crate) fn free(&self, call: &Call) -> Result<Scope, ToolError> {
        if self.parts.contain {
            return self.contained(call);
        }
        let scope = self.parts.files.free(&call.workspace).map_err(file_error)?;
        Ok(self.refusing(call, scope))
    }

    /// Nothing outside the call's workspace.
    pub(crate) fn contained(&self, call: &Call) -> Result<Scope, ToolError> {
        let scope = self.parts.files.contained(&call.workspace).map_err(file_error)?;
        Ok(self.refusing(call, scope))
    }

    /// Nothing outside a directory that a call may touch.
    pub(crate) fn beneath(&self, call: &Call, root: &Path) -> Result<Scope, FileError> {
        Ok(self.refusing(call, self.parts.files.contained(root)?))
    }

    /// Policy has looked at the paths a call names; between its look and the use a link may have been swapped.
    fn refusing(&self, call: &Call, scope: Scope) -> Scope {
        if call.avoid_sensitive { scope.refusing(Arc::clone(&self.is_sensitive)) } else { scope }
    }

    /// Where a path of the input leads, for policy to judge; as written when the engine cannot tell, since running the
    /// call will say why.
    pub(crate) fn touched_free(&self, call: &Call, path: impl AsRef<Path>) -> PathBuf {
        touched(self.free(call), call, path.as_ref())
    }

    /// As [`Machine::touched_free`], for tools that stay in the workspace.
    pub(crate) fn touched_contained(&self, call: &Call, path: impl AsRef<Path>) -> PathBuf {
        touched(self.contained(call), call, path.as_ref())
    }

    /// [`Machine::touched_free`], for tools to declare paths with.
    pub(crate) fn free_paths(self: &Arc<Self>) -> impl Fn(&Call, &str) -> PathBuf + Send + Sync + 'static {
        let own = self.clone();
        move |call, path| own.touched_free(call, path)
    }

    /// [`Machine::touched_contained`], for tools to declare paths with.
    pub(crate) fn contained_paths(
        self: &Arc<Self>,
    ) -> impl Fn(&Call, &str) -> PathBuf + Send + Sync + 'static {
        let own = self.clone();
        move |call, path| own.touched_contained(call, path)
    }

    /// Of the agent, and of those whose rules bind the call too: what all of them allow.
    pub(crate) fn isolation(&self, call: &Call) -> Isolation {
        let of = |agent| self.parts.agent_isolation.get(agent).unwrap_or(&self.parts.isolation);
        let own = of(&call.agent).clone();
        call.policy_agents.iter().map(of).fold(own, |isolation, other| isolation.within(other))
    }

    /// Sockets of commands cannot be limited to some hosts: they have all or none.
    pub(crate) fn network(&self, call: &Call) -> Network {
        match self.reachable(call) {
            NetworkPolicy::AllowAll => Network::Allowed,
            NetworkPolicy::AllowList(_) | NetworkPolicy::DenyAll => Network::Denied,
        }
    }

    /// Whom the web tools may reach for this call.
    pub(crate) fn reachable(&self, call: &Call) -> NetworkPolicy {
        self.isolation(call).reachable()
    }

    pub(crate) fn web(&self) -> &Web {
        &self.parts.web
    }

    /// The confinement of a free shell: none for the operator on an open network, else all but what is Gantry's own
    /// and, for a call that has to avoid them, the sensitive places of the home directory. On a contained machine, the
    /// workspace and the system's programs for everybody.
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
            // One that holds the workspace cannot be closed: the operator has put the agent there.
            closed.extend(places.filter(|place| !workspace.iter().any(|root| root.starts_with(place))));
        }
        Sandbox::Except { closed, read_only: self.start_files(), network }
    }

    fn home(&self) -> Option<&Path> {
        self.variable("HOME").map(Path::new).filter(|home| home.is_absolute())
    }

    /// `None` also for one that is not there, or not to be reached: no shell can read what is in it.
    fn real_home(&self) -> Option<PathBuf> {
        self.home().and_then(|home| gantry_process::existing(&[home.to_owned()]).pop())
    }

    /// What the operator's next login shell would run, whether it is there or not, since it could be made.
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

/// A failure of the file engine in a tool's words.
pub(crate) fn file_error(err: FileError) -> ToolError {
    let message = Message { hint: err.hint().map(str::to_owned), ..Message::new(err.to_string()) };
    match err {
        FileError::Cancelled => ToolError::Cancelled,
        FileError::Closed { .. } | FileError::Sensitive { .. } => ToolError::Denied(message),
        _ => ToolError::Failed(message),
    }
}

/// A failure of the process engine in a tool's words.
pub(crate) fn process_error(err: ProcessError) -> ToolError {
    let message = Message { hint: err.hint().map(str::to_owned), ..Message::new(err.to_string()) };
    match err {
        ProcessError::Cancelled => ToolError::Cancelled,
        ProcessError::SandboxUnavailable { .. } => ToolError::Denied(message),
        _ => ToolError::Failed(message),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests set up their own world")]
mod tests {
    use serde_json::json;

    use gantry_tool::{Call, Principal};

    use crate::testing::{Bench, set_variable};

    #[tokio::test]
    async fn an_agents_shell_cannot_read_the_keys_in_the_home() {
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
        let told = format!("{answer:?}");
        assert!(told.contains("text of notes") && !told.contains("text of ."), "{told}");
    }

    /// The operator's next login shell, which nobody confines, would run what stands there.
    #[tokio::test]
    async fn nobodys_confined_shell_writes_start_files() {
        let bench = Bench::new();
        let home = bench.workspace().parent().unwrap().join("home");
        std::fs::write(home.join(".profile"), "echo from the profile\n").unwrap();
        let script = "cd; echo x >> .profile; echo x > t-$$; rm .profile; echo x > ../workspace/t; mv -f ../workspace/t .profile; echo x > .bash_profile; cat .profile";
        let client = Call { principal: Principal::Client { token: "c".to_owned() }, ..bench.agent_call("a") };
        for call in [bench.agent_call("a"), client] {
            let told = format!("{:?}", bench.call_as(call, "Bash", json!({"command": script})).await);
            assert!(told.contains("from the profile"), "{told}");
            let left: Vec<_> =
                std::fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(left, [".profile"]);
            assert_eq!(std::fs::read_to_string(home.join(".profile")).unwrap(), "echo from the profile\n");
        }
        // Git's and fish's are directories below another, which may be there without them.
        std::fs::create_dir_all(home.join(".config/other")).unwrap();
        let script = "cd ~/.config; echo x > other/t && echo made; mkdir git zsh; echo x > bash_completion; mkdir -p fish/conf.d; mv other git; mkdir -p ../.config/git; git config --global alias.x y";
        let told =
            format!("{:?}", bench.call_as(bench.agent_call("a"), "Bash", json!({"command": script})).await);
        assert!(told.contains("made"), "{told}");
        let left: Vec<_> = std::fs::read_dir(home.join(".config"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["other"], "{told}");
        std::fs::remove_dir_all(home.join(".config")).unwrap();
        // What ssh and its server run or believe; which hosts are known may be added to.
        std::fs::create_dir(home.join(".ssh")).unwrap();
        std::fs::write(home.join(".ssh/known_hosts"), "").unwrap();
        std::fs::write(home.join(".ssh/config"), "").unwrap();
        let client = Call { principal: Principal::Client { token: "c".to_owned() }, ..bench.agent_call("a") };
        let script = "cd ~/.ssh; echo host >> known_hosts; for name in rc environment config authorized_keys; do echo x > $name; done";
        let told = format!("{:?}", bench.call_as(client, "Bash", json!({"command": script})).await);
        let left = |name: &str| std::fs::read_to_string(home.join(".ssh").join(name)).unwrap_or_default();
        assert_eq!((&*left("known_hosts"), &*left("config")), ("host\n", ""), "{told}");
        assert_eq!(std::fs::read_dir(home.join(".ssh")).unwrap().count(), 2, "{told}");
        std::fs::remove_dir_all(home.join(".ssh")).unwrap();
        // Also where the workspace is the home itself, and for `tool::shell_exec`.
        let mut call = bench.agent_call("a");
        call.workspace = home.clone();
        let input = json!({"argv": ["python3", "-c", "open('.profile', 'a').write('x')"]});
        let told = format!("{:?}", bench.call_as(call, "tool::shell_exec", input).await);
        assert!(told.contains("PermissionError"), "{told}");
    }

    #[tokio::test]
    async fn start_files_are_found_where_the_environment_has_moved_them() {
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
        let told =
            format!("{:?}", bench.call_as(bench.agent_call("a"), "Bash", json!({"command": script})).await);
        assert!(told.contains("made"), "{told}");
        for name in ["config/git/config", "config/fish", "config/other/env", "zsh/.zshrc"] {
            assert!(!root.join(name).exists(), "{name}: {told}");
        }
    }

    /// The files of servers outside (docker's, an ssh agent's) are beyond what rules about files can close.
    #[tokio::test]
    async fn who_has_the_workspace_alone_reaches_no_socket_file() {
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
            let told = format!("{:?}", contained.call(tool, input.clone()).await);
            assert!(told.contains("tried") && told.contains("Operation not permitted"), "{tool}: {told}");
        }
        // An agent's ordinary shell keeps them: people use docker and ssh from there.
        let bench = Bench::new();
        let told = format!("{:?}", bench.call_as(bench.agent_call("a"), "Bash", shell).await);
        assert!(told.contains("tried") && !told.contains("rror"), "{told}");
    }

    /// Everything that a contained machine must refuse, whoever calls.
    #[tokio::test]
    async fn a_contained_machine_keeps_every_tool_in_the_workspace() {
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
            let told = format!("{:?}", bench.call(tool, input).await);
            assert!(told.contains("text inside") && !told.contains("text outside"), "{tool}: {told}");
            assert!(told.contains(bench.workspace().to_str().unwrap()), "{tool}: {told}");
            assert_eq!(bench.read("made"), "new\n");
            std::fs::remove_file(bench.workspace().join("made")).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "text outside");
        assert!(!home.join("new").exists());
        assert!(!std::path::Path::new(&format!("/tmp/x-{}", std::process::id())).exists());
    }
}
