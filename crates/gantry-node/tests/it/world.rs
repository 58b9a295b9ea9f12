//! A node in this process, with tools that wait, count and report.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gantry_net::{GatewayUrl, Trust};
use gantry_node::{ExitReason, Node, NodeHome, NodeLog, NodeOptions, NodeState, Pace, Token, TokenSource};
use gantry_process::{Processes, ProcessesOptions};
use gantry_tool::testing::MemoryResults;
use gantry_tool::{Capability, Ctx, Gate, GateParts, Progress, Registry, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const TOKEN: &str = "gtn_very-secret-token";

/// Waits, then says something.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Wait {
    /// Milliseconds.
    ms: u64,
    /// How often to report progress on the way.
    #[serde(default)]
    reports: u64,
    /// Characters to answer with.
    #[serde(default)]
    chars: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Waited {
    text: String,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) started: AtomicUsize,
    pub(crate) cancelled: AtomicUsize,
    running: AtomicUsize,
    pub(crate) most_running: AtomicUsize,
}

impl Counts {
    pub(crate) async fn reach(count: &AtomicUsize, wanted: usize) {
        for _ in 0..2_000 {
            if count.load(Ordering::SeqCst) >= wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the count stays at {}, not {wanted}", count.load(Ordering::SeqCst));
    }
}

async fn wait(ctx: Ctx<Counts>, input: Wait) -> Result<Waited, ToolError> {
    let counts = &ctx.state;
    counts.started.fetch_add(1, Ordering::SeqCst);
    let running = counts.running.fetch_add(1, Ordering::SeqCst) + 1;
    counts.most_running.fetch_max(running, Ordering::SeqCst);
    for done in 1..=input.reports {
        if let Some(progress) = &ctx.call.progress {
            progress.report(Progress { done, total: Some(input.reports), message: "steps".into() });
        }
    }
    let ended = tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(input.ms)) => Ok(Waited { text: "x".repeat(input.chars) }),
        () = ctx.call.cancel.cancelled() => {
            counts.cancelled.fetch_add(1, Ordering::SeqCst);
            Err(ToolError::Cancelled)
        }
    };
    counts.running.fetch_sub(1, Ordering::SeqCst);
    ended
}

pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) home: NodeHome,
    pub(crate) log: NodeLog,
    pub(crate) counts: Arc<Counts>,
    pub(crate) stop: CancellationToken,
    pub(crate) running: JoinHandle<ExitReason>,
}

impl World {
    pub(crate) fn start(gateway: GatewayUrl) -> World {
        World::start_with(gateway, |_| {})
    }

    pub(crate) fn start_with(gateway: GatewayUrl, change: impl FnOnce(&mut NodeOptions)) -> World {
        let folder = tempfile::tempdir().unwrap();
        let home = NodeHome::new(folder.path(), "laptop").unwrap();
        let lock = home.take().unwrap();
        let log = NodeLog::open(&home.logs(), "laptop").unwrap();
        let counts = Arc::new(Counts::default());
        let registry = Registry::default();
        let capabilities = [Capability::TextSearch, Capability::FilesystemRead];
        registry
            .register(Tool::new("Wait", Toolset::Node, &counts, wait).capabilities(&capabilities))
            .unwrap();
        let second = Tool::new("Quick", Toolset::Node, &counts, wait).read_only();
        registry.register(second.capabilities(&[Capability::FilesystemRead])).unwrap();
        let parts = GateParts::new(Arc::new(log.clone()), Arc::new(MemoryResults::default()));
        let gate = Arc::new(Gate::new(GateParts { registry, ..parts }));
        let mut options = NodeOptions {
            gateway,
            trust: Trust::System,
            others: Vec::new(),
            keys: gantry_net::KnownKeys::default(),
            token: TokenSource::Given(Token::new(TOKEN).unwrap()),
            workspace: folder.path().to_owned(),
            max_calls: 4,
            pace: Pace {
                first: Duration::from_millis(20),
                slowest: Duration::from_millis(600),
                steady: Duration::from_secs(60),
            },
        };
        change(&mut options);
        let engine = ProcessesOptions::new("/nonexistent".into(), home.processes());
        let processes = Processes::new(ProcessesOptions { spare_keeper: false, ..engine });
        let node = Node { home: home.clone(), options, gate, processes, log: log.clone(), transfers: None };
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        let running = tokio::spawn(async move {
            let _lock = lock;
            gantry_node::run(node, stopping, CancellationToken::new()).await
        });
        World { folder, home, log, counts, stop, running }
    }

    pub(crate) fn state(&self) -> NodeState {
        NodeState::read(&self.home).unwrap()
    }

    pub(crate) fn started(&self) -> usize {
        self.counts.started.load(Ordering::SeqCst)
    }

    /// Everything the node has left on disk.
    pub(crate) fn everything_written(&self) -> String {
        let mut all = String::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    all.push_str(&String::from_utf8_lossy(&std::fs::read(path).unwrap()));
                }
            }
        }
        all
    }
}
