//! `Bench` is a test fixture for tools: a real machine in a temporary directory behind a real gate.
//! JSON in, JSON out.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests prepare their own files"
)]

pub mod web_server;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_apis::Apis;
use gantry_files::{Files, FilesOptions};
use gantry_net::{Client, ClientOptions};
use gantry_process::workers::{Workers, WorkersOptions};
use gantry_process::{Processes, ProcessesOptions};
use gantry_store::{DataDir, Depth, KeptResults, Memories, Objects, Secrets};
use gantry_tool::testing::MemoryAudit;
use gantry_tool::{
    Call, Gate, GateParts, GateSettings, Masker, Policy, Principal, Registry, SensitivePaths, Surface,
};
use serde_json::Value;

pub mod site;

use crate::{
    Endpoint, Machine, MachineParts, MachineSettings, Native, NodeLogs, NodeServices, ToolFuture,
    Transferred, WorkerSetup, gateway_tools,
};

/// The configuration that `gsv__ConfigGet` shows on a bench, already masked.
pub const MASKED_CONFIG: &str =
    r#"{"session": {"dmScope": "main"}, "list": [1, 2], "apiKeys": {"openai": "[masked]"}}"#;

pub struct Bench {
    pub folder: tempfile::TempDir,
    pub gate: Gate,
    pub audit: Arc<MemoryAudit>,
    pub results: Arc<KeptResults>,
    pub native: Arc<Native>,
    pub processes: Processes,
}

impl Default for Bench {
    fn default() -> Self {
        Bench::new()
    }
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(|_| {})
    }

    /// Creates a bench whose machine is changed before its tools are created.
    pub fn with(change: impl FnOnce(&mut MachineParts)) -> Bench {
        let folder = folder();
        let processes = Processes::new(processes_options(&folder));
        Bench::over(folder, processes, change)
    }

    /// Creates a bench that runs `bash`, `read_file` and `write_file` in worker processes.
    pub fn with_workers(change: impl FnOnce(&mut WorkersOptions)) -> Bench {
        Bench::with(|parts| use_workers(parts, change))
    }

    /// Creates a bench without workers and one with them, for tests of what both must do.
    pub fn without_and_with_workers() -> [Bench; 2] {
        Bench::changed_without_and_with_workers(|_| {})
    }

    /// Like [`Bench::without_and_with_workers`], with the machines changed as in [`Bench::with`].
    pub fn changed_without_and_with_workers(change: impl Fn(&mut MachineParts)) -> [Bench; 2] {
        let workers = Bench::with(|parts| {
            change(parts);
            use_workers(parts, |_| {});
        });
        [Bench::with(change), workers]
    }

    /// Creates a bench whose background commands outlive it; see [`Bench::restart`].
    pub async fn surviving() -> Bench {
        let folder = folder();
        let processes = Processes::recover(processes_options(&folder)).await.unwrap();
        Bench::over(folder, processes, |_| {})
    }

    /// Returns the same machine after a restart of its gantry process.
    pub async fn restart(self) -> Bench {
        self.restart_with(|_| {}).await
    }

    /// Like [`Bench::restart`], with the machine changed as in [`Bench::with`].
    pub async fn restart_with(self, change: impl FnOnce(&mut MachineParts)) -> Bench {
        let Bench { folder, gate, processes, .. } = self;
        drop((gate, processes));
        let processes = Processes::recover(processes_options(&folder)).await.unwrap();
        Bench::over(folder, processes, change)
    }

    fn over(
        folder: tempfile::TempDir,
        processes: Processes,
        change: impl FnOnce(&mut MachineParts),
    ) -> Bench {
        let root = folder.path().canonicalize().unwrap();
        let data = root.join("data");
        let closed = vec![data.clone()];
        let results = Arc::new(KeptResults::new(data.join("results")));
        let files = FilesOptions { closed: closed.clone(), pending_dir: Some(data.join("pending")) };
        let audit = Arc::new(MemoryAudit::default());
        let mut parts = MachineParts {
            files: Files::new(files).unwrap(),
            processes: processes.clone(),
            results: results.clone(),
            variables: variables(&root),
            closed: closed.clone(),
            settings: MachineSettings { web: web(&data), ..MachineSettings::default() },
            temp_dir: root.join("tmp"),
            agent_caches: Some(root.join("caches")),
            one_shot: false,
            audit: audit.clone(),
            contain: false,
            workers: None,
        };
        change(&mut parts);
        let masker = parts.settings.web.masker.clone();
        let registry = Registry::default();
        let objects = Objects::folder(&DataDir::new(data.clone()));
        let memories = Memories::new(DataDir::new(data));
        let native = Arc::new(Native::new(objects, serde_json::from_str(MASKED_CONFIG).unwrap(), memories));
        let own = crate::all(&Arc::new(Machine::new(parts)), &native);
        for tool in own.into_iter().chain(gateway_tools(native.objects(), None)) {
            registry.register(tool).unwrap();
        }
        let policy = Policy::new(Vec::new(), SensitivePaths::default(), closed);
        let gate = Gate::new(GateParts {
            registry,
            settings: GateSettings::of(policy),
            masker,
            ..GateParts::new(audit.clone(), results.clone())
        });
        Bench { folder, gate, audit, results, native, processes }
    }

    /// Connects the tools to a gateway with these nodes.
    pub fn connect(&self, nodes: Arc<dyn NodeServices>) {
        for tool in gateway_tools(self.native.objects(), Some(nodes)) {
            self.gate.registry().replace(tool);
        }
    }

    /// The real path of the workspace of every call.
    pub fn workspace(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("workspace")
    }

    /// Gantry's own directory, which no tool may enter.
    pub fn data(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("data")
    }

    /// The secrets of the data directory, as the operator's commands use them.
    pub fn secrets(&self) -> Secrets {
        Secrets::new(&DataDir::new(self.data()), None)
    }

    pub fn apis(&self) -> Apis {
        Apis::new(&DataDir::new(self.data()))
    }

    /// Writes a file in the workspace and creates its parents.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.workspace().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Reads a file in the workspace as text.
    pub fn read(&self, path: impl AsRef<Path>) -> String {
        std::fs::read_to_string(self.workspace().join(path)).unwrap()
    }

    /// Stores an object.
    pub async fn put_object(&self, key: &str, content: impl Into<Vec<u8>>) {
        self.native.objects().put(key, content.into(), "text/plain").await.unwrap();
    }

    /// Returns an object as text.
    pub async fn object(&self, key: &str) -> Option<String> {
        let object = self.native.objects().get(key, u64::MAX).await.unwrap()?;
        Some(String::from_utf8(object.bytes.to_vec()).unwrap())
    }

    /// Returns every key of the object store.
    pub async fn object_keys(&self) -> Vec<String> {
        let listing = self.native.objects().list("", Depth::All).await.unwrap();
        listing.objects.into_iter().map(|object| object.key).collect()
    }

    pub fn operator_call(&self) -> Call {
        Call::new(Principal::Operator, Surface::Cli, self.workspace())
    }

    /// Returns a call of a guided agent.
    pub fn agent_call(&self, id: &str) -> Call {
        let mut call = Call::new(Principal::Agent { id: id.into() }, Surface::Cli, self.workspace());
        call.autonomy = gantry_tool::Autonomy::Guided;
        call
    }

    /// Calls a tool as the operator. An error is `Err` with the shape that a user would see.
    pub async fn call(&self, name: &str, input: Value) -> Result<Value, Value> {
        self.call_as(self.operator_call(), name, input).await
    }

    pub async fn call_as(&self, call: Call, name: &str, input: Value) -> Result<Value, Value> {
        gantry_tool::testing::call_as(&self.gate, call, name, input).await
    }
}

/// A gateway with fixed answers that repeats its arguments in them.
#[derive(Debug, Default)]
pub struct ScriptedNodes;

impl NodeServices for ScriptedNodes {
    fn logs(&self, _call: Arc<Call>, node: Option<String>, lines: usize) -> ToolFuture<'_, NodeLogs> {
        let node_id = node.unwrap_or_else(|| "only".to_owned());
        let lines = vec!["a line".to_owned(); lines];
        Box::pin(async { Ok(NodeLogs { node_id, lines, truncated: true }) })
    }

    fn transfer(
        &self,
        call: Arc<Call>,
        source: Endpoint,
        destination: Endpoint,
    ) -> ToolFuture<'_, Transferred> {
        let approved: Vec<_> =
            call.approved.iter().map(|asked| format!("{}: {}", asked.tool, asked.rule)).collect();
        let description = format!("{} {source} {destination} {}", call.agent, approved.join(", "));
        let mime = Some(description.trim_end().to_owned());
        Box::pin(async {
            Ok(Transferred {
                bytes_transferred: 42,
                mime,
                files: None,
                skipped: Vec::new(),
                skipped_count: 0,
            })
        })
    }
}

/// Makes the machine run `bash`, `read_file` and `write_file` in worker processes.
pub fn use_workers(parts: &mut MachineParts, change: impl FnOnce(&mut WorkersOptions)) {
    let data = parts.closed[0].clone();
    let setup = WorkerSetup {
        closed: parts.closed.clone(),
        pending: data.join("pending"),
        sensitive: parts.settings.sensitive.clone(),
        keeper: keeper(),
        keeper_args: Vec::new(),
        process_logs: data.join("processes"),
    };
    let setup = serde_json::to_vec(&setup).unwrap();
    let mut options = WorkersOptions::new(built("gantry-worker", "gantry-toolsets"), setup);
    change(&mut options);
    parts.workers = Some(Workers::new(options));
}

/// Lets the web tools reach the servers that a test starts on this machine.
pub fn reach_this_machine(parts: &mut MachineParts) {
    let loopback = ["127.0.0.0/8", "::1/128"].map(|range| range.parse().unwrap());
    parts.settings.web.client =
        Client::new(ClientOptions { allowed_ranges: loopback.to_vec(), ..ClientOptions::default() });
}

/// Uses the secrets and profiles of the data directory, and search providers at a closed port, so
/// that tests do not search the real web.
fn web(data: &Path) -> crate::Web {
    let data = DataDir::new(data.to_owned());
    let secrets = Secrets::new(&data, None);
    let nowhere = || "http://127.0.0.1:1".to_owned();
    let endpoints = crate::SearchEndpoints { tavily: nowhere(), brave: nowhere(), duckduckgo: nowhere() };
    let search =
        crate::SearchSettings { searxng_url: Some(nowhere()), endpoints, ..crate::SearchSettings::default() };
    crate::Web {
        masker: Masker::default().following(Arc::new(secrets.clone())),
        secrets: Some(secrets),
        apis: Some(Apis::new(&data)),
        search,
        ..crate::Web::default()
    }
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("gantry-bench-").tempdir().unwrap();
    for name in ["workspace", "tmp", "home"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    DataDir::new(folder.path().join("data")).create().unwrap();
    folder
}

fn processes_options(folder: &tempfile::TempDir) -> ProcessesOptions {
    ProcessesOptions::new(keeper(), folder.path().canonicalize().unwrap().join("data/processes"))
}

/// Sets a variable of the machine's environment.
pub fn set_variable(parts: &mut MachineParts, name: &str, value: impl Into<OsString>) {
    parts.variables.retain(|(known, _)| known != name);
    parts.variables.push((name.into(), value.into()));
}

/// Returns this process's environment with the bench's home directory and without variables that
/// point to the real home: its login files are slow and must not run in tests.
fn variables(root: &Path) -> Vec<(OsString, OsString)> {
    let of_home = ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "ZDOTDIR", "BASH_ENV", "ENV"];
    let others = std::env::vars_os().filter(|(name, _)| !of_home.iter().any(|known| name == known));
    others.chain([("HOME".into(), root.join("home").into())]).collect()
}

/// The keeper that the build of `gantry-process` leaves next to the test binaries.
pub(crate) fn keeper() -> PathBuf {
    built("gantry-keeper", "gantry-process")
}

/// A program that the build of a crate leaves next to the test binaries.
fn built(program: &str, of: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().find(|folder| folder.join(program).is_file());
    let missing = || panic!("no {program}; run `cargo build -p {of} --bins` first");
    folder.unwrap_or_else(missing).join(program)
}
