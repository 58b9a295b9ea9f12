//! The test bench: one gateway, and nodes that reach it through a wire that can be cut.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_files::{Files, FilesOptions};
use gantry_gateway::{Gateway, GatewayParts, Hosts, Nodes, Serving, serve};
use gantry_net::{GatewayUrl, Trust};
use gantry_node::{Node, NodeHome, NodeLog, NodeOptions, NodeState, Pace, Phase, Token, TokenSource};
use gantry_process::{Processes, ProcessesOptions};
use gantry_store::{DataDir, Database, KeptResults, Objects};
use gantry_tool::testing::MemoryAudit;
use gantry_tool::{
    Call, Gate, GateParts, GateSettings, Policy, Principal, Registry, Rule, SensitivePaths, Surface,
    ToolError,
};
use gantry_toolsets::{
    Endpoint, LOCAL_NODE, Machine, MachineParts, MachineSettings, NodeServices, PartsFolder, Transferred,
    node_tools, transfer_service,
};
use gantry_transfer::TransferService;
use gantry_transfers::{Transfers, TransfersDomain, TransfersParts};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Nodes that may join.
const KNOWN: [&str; 4] = ["a", "b", "reader", "away"];

pub(crate) struct Fleet {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) wire: Arc<Wire>,
    pub(crate) objects: Objects,
    pub(crate) database: Database,
    pub(crate) transfers: Arc<Transfers>,
    pub(crate) gateway: Arc<Gateway>,
    nodes: Arc<Nodes>,
    tokens: BTreeMap<&'static str, String>,
    serving: tokio::sync::Mutex<Option<Serving>>,
    members: Members,
    idle_limit: Duration,
    rules: Vec<Rule>,
}

impl Fleet {
    /// Starts a gateway and connects these nodes.
    pub(crate) async fn start(names: &[&str]) -> Fleet {
        Fleet::start_with(names, Duration::from_secs(60)).await
    }

    pub(crate) async fn start_with(names: &[&str], idle_limit: Duration) -> Fleet {
        Fleet::start_ruled(names, idle_limit, Vec::new()).await
    }

    /// Starts a gateway with rules that its nodes do not have.
    pub(crate) async fn start_ruled(names: &[&str], idle_limit: Duration, rules: Vec<Rule>) -> Fleet {
        let folder = tempfile::tempdir().unwrap();
        let wire = Wire::start().await;
        let mut fleet = Fleet::gateway(folder, wire, idle_limit, rules, None).await;
        for name in names {
            fleet.add_node(name, None).await;
        }
        fleet
    }

    /// Starts a gateway with its storage in a bucket, and no nodes.
    pub(crate) async fn start_on(objects: Objects) -> Fleet {
        let folder = tempfile::tempdir().unwrap();
        Fleet::gateway(folder, Wire::start().await, Duration::from_secs(60), Vec::new(), Some(objects)).await
    }

    async fn gateway(
        folder: tempfile::TempDir,
        wire: Arc<Wire>,
        idle_limit: Duration,
        rules: Vec<Rule>,
        objects: Option<Objects>,
    ) -> Fleet {
        let data = DataDir::new(folder.path().join("gateway"));
        data.create().unwrap();
        let database = Database::open(&data).await.unwrap();
        let mut tokens = BTreeMap::new();
        for name in KNOWN {
            // A restarted gateway knows the nodes already.
            if let Ok(token) = database.add_node(name, &[], 1).await {
                tokens.insert(name, token.expose().to_owned());
            }
        }
        let registry = Registry::default();
        let nodes = Nodes::open(registry.clone(), database.clone()).await.unwrap();
        let workspace = folder_of(&folder, "local");
        let machine = machine(folder.path(), "local");
        for tool in node_tools(&machine) {
            registry.register(tool.on_node(LOCAL_NODE)).unwrap();
        }
        let gate = Arc::new(gate(registry, rules.clone(), vec![data.root().to_owned()]));
        let objects = objects.unwrap_or_else(|| Objects::folder(&data));
        let transfers = Transfers::new(TransfersParts {
            nodes: nodes.clone(),
            gate: gate.clone(),
            database: database.clone(),
            objects: objects.clone(),
            data: data.clone(),
            local: Some(
                transfer_service(&machine, &gate, Some(LOCAL_NODE), workspace.clone(), &parts(data.root()))
                    .unwrap(),
            ),
            idle_limit,
        });
        nodes.set_transfers(&transfers);
        let gateway = Gateway::new(GatewayParts {
            status: None,
            public_url: None,
            domains: Vec::new(),
            gate,
            nodes: nodes.clone(),
            database: database.clone(),
            results: Arc::new(KeptResults::new(data.results())),
            operator_token: "operator".into(),
            agents: BTreeMap::new(),
            hosts: Hosts::new(Vec::new()),
            workspace,
            version: "0".into(),
            protected: None,
            mcp_idle: Duration::from_secs(1800),
        })
        .unwrap();
        let serving =
            serve(gateway.clone(), "127.0.0.1:0".parse().unwrap(), None, gantry_gateway::MAX_CONNECTIONS)
                .await
                .unwrap();
        wire.connect_to(serving.address);
        let serving = tokio::sync::Mutex::new(Some(serving));
        Fleet {
            folder,
            wire,
            objects,
            database,
            transfers,
            gateway,
            nodes,
            tokens,
            serving,
            members: Members::default(),
            idle_limit,
            rules,
        }
    }

    /// Resumes unfinished transfers, as a gateway does when it starts.
    pub(crate) async fn resume(&self) -> Result<usize, gantry_store::DatabaseError> {
        self.transfers.unfinished().await?.resume(&*self.gateway).await
    }

    /// Stops the gateway gracefully.
    pub(crate) async fn stop_serving(&self) {
        let serving = self.serving.lock().await.take().unwrap();
        serving.stop(Duration::from_secs(5)).await;
    }

    /// Starts a gateway on the data of a stopped one.
    pub(crate) async fn restart_gateway(mut self) -> Fleet {
        let rules = std::mem::take(&mut self.rules);
        self.database.close().await;
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        let members = std::mem::take(&mut self.members);
        let fleet = Fleet::gateway(folder, self.wire.clone(), self.idle_limit, rules, None).await;
        Fleet { members, ..fleet }
    }

    /// Renames a node. It keeps its token.
    pub(crate) async fn rename(&mut self, name: &str, new_name: &'static str) {
        self.nodes.rename(name, new_name).await.unwrap();
        let token = self.tokens.remove(name).unwrap();
        self.tokens.insert(new_name, token);
    }

    /// Connects a node, with only these tools if any are named.
    pub(crate) async fn add_node(&mut self, name: &str, tools: Option<&[&str]>) {
        self.start_process(name, name, tools).await;
    }

    /// Starts another process of a node with its own data directory. Returns the token that stops it.
    pub(crate) async fn start_process(
        &mut self,
        name: &str,
        process: &str,
        tools: Option<&[&str]>,
    ) -> CancellationToken {
        self.start_changed(name, process, tools, |_| {}).await
    }

    /// Adds a node whose transfer service `change` makes dishonest.
    pub(crate) async fn add_hostile(&mut self, name: &str, change: impl FnOnce(&TransferService)) {
        self.start_changed(name, name, None, change).await;
    }

    async fn start_changed(
        &mut self,
        name: &str,
        process: &str,
        tools: Option<&[&str]>,
        change: impl FnOnce(&TransferService),
    ) -> CancellationToken {
        let token = self.tokens[name].clone();
        let workspace = folder_of(&self.folder, name);
        let machine = machine(self.folder.path(), name);
        let registry = Registry::default();
        for tool in node_tools(&machine) {
            if tools.is_none_or(|tools| tools.contains(&tool.name())) {
                registry.register(tool).unwrap();
            }
        }
        let data = self.folder.path().join(format!("{process}-data"));
        let gate = gate(registry, Vec::new(), vec![data.clone()]);
        let transfers = transfer_service(&machine, &gate, None, workspace.clone(), &parts(&data)).unwrap();
        change(&transfers);
        let home = NodeHome::new(&data, name).unwrap();
        std::fs::create_dir_all(home.logs()).unwrap();
        let log = NodeLog::open(&home.logs(), name).unwrap();
        let pace = Pace {
            first: Duration::from_millis(10),
            slowest: Duration::from_millis(40),
            steady: Duration::from_secs(60),
        };
        let options = NodeOptions {
            gateway: GatewayUrl::parse(&format!("http://{}", self.wire.address)).unwrap(),
            trust: Trust::System,
            others: Vec::new(),
            keys: gantry_net::KnownKeys::default(),
            token: TokenSource::Given(Token::new(&token).unwrap()),
            workspace,
            max_calls: 16,
            pace,
        };
        let (gate, processes) = (Arc::new(gate), processes(&data));
        let node = Node { home, options, gate, processes, log, transfers: Some(transfers) };
        let stop = CancellationToken::new();
        tokio::spawn(gantry_node::run(node, stop.clone(), CancellationToken::new()));
        self.members.0.push(stop.clone());
        self.wait_for_process(name, process).await;
        stop
    }

    /// Waits until a node is connected.
    pub(crate) async fn wait_for(&self, name: &str) {
        self.wait_for_process(name, name).await;
    }

    pub(crate) async fn wait_for_process(&self, name: &str, process: &str) {
        for _ in 0..1000 {
            if self.state(name, process).is_some_and(|state| state.phase == Phase::Connected) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the node {name} does not connect");
    }

    /// Reads the state file of a process of a node.
    pub(crate) fn state(&self, name: &str, process: &str) -> Option<NodeState> {
        NodeState::read(&NodeHome::new(&self.folder.path().join(format!("{process}-data")), name).unwrap())
    }

    /// Returns a path in the workspace of a node.
    pub(crate) fn at(&self, node: &str, path: &str) -> PathBuf {
        self.folder.path().join(node).join(path)
    }

    pub(crate) fn write(&self, node: &str, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(node, path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Returns the mode of a file, with special bits.
    pub(crate) fn mode(&self, node: &str, path: &str) -> u32 {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(self.at(node, path)).unwrap().permissions().mode() & 0o7777
    }

    pub(crate) fn call(&self) -> Call {
        Call::new(Principal::Operator, Surface::Cli, "/".into())
    }

    pub(crate) async fn transfer(&self, source: &str, destination: &str) -> Result<Transferred, ToolError> {
        self.transfer_as(self.call(), source, destination).await
    }

    pub(crate) async fn transfer_as(
        &self,
        call: Call,
        source: &str,
        destination: &str,
    ) -> Result<Transferred, ToolError> {
        let (source, destination) = (Endpoint::parse(source).unwrap(), Endpoint::parse(destination).unwrap());
        TransfersDomain(self.transfers.clone()).transfer(Arc::new(call), source, destination).await
    }

    /// Lists the staged files of the gateway.
    pub(crate) fn staged(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join("gateway/staging")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Lists everything below a node's workspace, with part files.
    pub(crate) fn names(&self, node: &str) -> Vec<String> {
        let root = self.folder.path().join(node);
        let mut names = Vec::new();
        let mut todo = vec![root.clone()];
        while let Some(folder) = todo.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                names.push(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
                if path.is_dir() && !path.is_symlink() {
                    todo.push(path);
                }
            }
        }
        names.sort();
        names
    }
}

/// Stops the nodes with the fleet.
#[derive(Default)]
struct Members(Vec<CancellationToken>);

impl Drop for Members {
    fn drop(&mut self) {
        self.0.iter().for_each(CancellationToken::cancel);
    }
}

fn folder_of(folder: &tempfile::TempDir, name: &str) -> PathBuf {
    let path = folder.path().canonicalize().unwrap().join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn machine(folder: &Path, name: &str) -> Arc<Machine> {
    let data = folder.join(format!("{name}-data"));
    let files = FilesOptions { closed: vec![data.clone()], pending_dir: None };
    Arc::new(Machine::new(MachineParts {
        files: Files::new(files).unwrap(),
        processes: processes(&data),
        results: Arc::new(KeptResults::new(data.join("results"))),
        variables: Vec::new(),
        closed: vec![data],
        settings: MachineSettings::default(),
        temp_dir: folder.to_owned(),
        agent_caches: None,
        one_shot: false,
        audit: Arc::new(MemoryAudit::default()),
        workers: None,
        contain: false,
    }))
}

fn parts(data: &Path) -> PartsFolder {
    PartsFolder { root: data.join("parts"), owner: "gateway".into() }
}

/// These nodes run no commands.
fn processes(data: &Path) -> Processes {
    let options = ProcessesOptions::new("/bin/true".into(), data.join("processes"));
    Processes::new(ProcessesOptions { spare_keeper: false, ..options })
}

fn gate(registry: Registry, rules: Vec<Rule>, closed: Vec<PathBuf>) -> Gate {
    let policy = Policy::new(rules, SensitivePaths::default(), closed);
    let results = Arc::new(gantry_tool::testing::MemoryResults::default());
    Gate::new(GateParts {
        registry,
        settings: GateSettings::of(policy),
        ..GateParts::new(Arc::new(MemoryAudit::default()), results)
    })
}

/// A proxy between the nodes and the gateway.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    to: Mutex<Option<SocketAddr>>,
    cut: Mutex<CancellationToken>,
    /// Rejects all connections while this is set.
    down: std::sync::atomic::AtomicBool,
    /// Delays each block by so many milliseconds.
    delay: std::sync::atomic::AtomicU64,
}

impl Wire {
    async fn start() -> Arc<Wire> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let wire = Arc::new(Wire {
            address: listener.local_addr().unwrap(),
            to: Mutex::default(),
            cut: Mutex::default(),
            down: false.into(),
            delay: 0.into(),
        });
        let own = wire.clone();
        tokio::spawn(async move {
            while let Ok((here, _)) = listener.accept().await {
                let (wire, cut) = (own.clone(), own.cut.lock().unwrap().clone());
                if own.down.load(std::sync::atomic::Ordering::SeqCst) {
                    continue;
                }
                tokio::spawn(async move {
                    let to = wire.to.lock().unwrap().unwrap();
                    let Ok(there) = TcpStream::connect(to).await else { return };
                    let (here_in, here_out) = here.into_split();
                    let (there_in, there_out) = there.into_split();
                    tokio::select! {
                        () = copy_bytes(&wire, here_in, there_out) => {}
                        () = copy_bytes(&wire, there_in, here_out) => {}
                        () = cut.cancelled() => {}
                    }
                });
            }
        });
        wire
    }

    fn connect_to(&self, address: SocketAddr) {
        *self.to.lock().unwrap() = Some(address);
    }

    /// Closes every connection. New ones are accepted.
    pub(crate) fn cut(&self) {
        let cut = std::mem::take(&mut *self.cut.lock().unwrap());
        cut.cancel();
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, std::sync::atomic::Ordering::SeqCst);
        if down {
            self.cut();
        }
    }

    pub(crate) fn slow_down(&self, delay: Duration) {
        self.delay.store(delay.as_millis() as u64, std::sync::atomic::Ordering::SeqCst);
    }
}

async fn copy_bytes(
    wire: &Wire,
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut block = vec![0; 256 * 1024];
    loop {
        let Ok(count @ 1..) = from.read(&mut block).await else { return };
        let delay = wire.delay.load(std::sync::atomic::Ordering::SeqCst);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        if to.write_all(&block[..count]).await.is_err() {
            return;
        }
    }
}
