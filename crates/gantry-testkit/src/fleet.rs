//! A real gateway and real nodes. Each is a process with its own data directory and workspace.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::http::{self, Response};
use crate::{Process, Ran, SOON, World, eventually};

/// `Fleet` is a gateway with the `local` node of its own machine.
pub struct Fleet {
    pub world: World,
    pub address: SocketAddr,
    pub token: String,
    /// A shell command that runs in the gateway's own mount namespace before it starts.
    pub mounts: Option<String>,
    running: Option<Process>,
    mark: String,
}

impl Fleet {
    pub fn start() -> Fleet {
        Fleet::start_with(|_| None)
    }

    /// Starts the gateway in a mount namespace that the returned shell command sets up.
    pub fn start_with(mounts: impl FnOnce(&World) -> Option<String>) -> Fleet {
        let world = World::new();
        let mounts = mounts(&world);
        let mark = format!("mark-{}", world.folder.path().file_name().unwrap().to_string_lossy());
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut fleet = Fleet { world, address, token: String::new(), mounts, running: None, mark };
        fleet.start_gateway();
        fleet
    }

    /// Starts the gateway on the port it had before, so that nodes find it again.
    pub fn start_gateway(&mut self) {
        assert!(self.running.is_none());
        let command = self.world.command(&["up", "--listen", &self.address.to_string(), "--json"]);
        let mut command = with_mounts(command, self.mounts.as_deref());
        let log = self.world.folder.path().join("gateway.stderr");
        command.env("TEST_MARK", &self.mark).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(append(&log));
        let mut process = Process::spawn(&mut command);
        let mut line = String::new();
        BufReader::new(process.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.running = Some(process);
        let up: Value = serde_json::from_str(&line)
            .unwrap_or_else(|err| panic!("{err} in {line:?}: {}", std::fs::read_to_string(&log).unwrap()));
        let url = up["url"].as_str().unwrap();
        self.address = url.strip_prefix("http://").unwrap().trim_end_matches('/').parse().unwrap();
        let token = self.inside(Path::new(up["tokenFile"].as_str().unwrap()));
        self.token = std::fs::read_to_string(token).unwrap().trim().to_owned();
    }

    /// Returns a path as the gateway sees it, through its mounts.
    pub fn inside(&self, path: &Path) -> PathBuf {
        self.running.as_ref().unwrap().inside(path)
    }

    pub fn kill_gateway(&mut self) {
        self.running.take().unwrap().kill();
    }

    /// Sends SIGTERM and does not wait.
    pub fn begin_stop(&self) {
        self.running.as_ref().unwrap().signal(Signal::TERM);
    }

    pub fn wait_stopped(&mut self, within: Duration) -> ExitStatus {
        self.running.take().unwrap().wait(within)
    }

    /// Registers a node and returns its machine. The node is not started.
    pub fn add(&self, id: &str, tags: &[&str]) -> Machine {
        let mut args = vec!["--json", "nodes", "add", id, "--token"];
        tags.iter().for_each(|tag| args.extend(["--tag", tag]));
        let added = self.world.run(&args);
        assert_eq!(added.code, 0, "{}", added.stderr);
        let token = added.json()["token"].as_str().unwrap().to_owned();
        Machine {
            id: id.to_owned(),
            world: World::new(),
            token,
            gateway: self.address,
            more: Vec::new(),
            mounts: None,
            running: None,
            mark: self.mark.clone(),
        }
    }

    /// Registers and starts a node, and waits until it is online.
    pub fn join(&self, id: &str) -> Machine {
        let mut machine = self.add(id, &[]);
        machine.start();
        self.wait_online(id);
        machine
    }

    pub fn node(&self, id: &str) -> Value {
        let nodes = self.get("/v1/nodes").json();
        let nodes = nodes["nodes"].as_array().unwrap();
        nodes.iter().find(|node| node["id"] == id).cloned().unwrap_or(Value::Null)
    }

    pub fn is_online(&self, id: &str) -> bool {
        self.node(id)["online"] == true
    }

    pub fn wait_online(&self, id: &str) -> Duration {
        eventually(&format!("{id} is online"), Duration::from_secs(90), || self.is_online(id))
    }

    pub fn get(&self, path: &str) -> Response {
        http::request(self.address, &self.token, "GET", path, &[], b"").unwrap()
    }

    pub fn call(&self, tool: &str, input: &Value) -> Response {
        self.try_call(tool, input, &[]).unwrap()
    }

    pub fn try_call(&self, tool: &str, input: &Value, headers: &[(&str, &str)]) -> std::io::Result<Response> {
        let path = format!("/v1/tools/{tool}");
        http::request(self.address, &self.token, "POST", &path, headers, input.to_string().as_bytes())
    }

    /// Runs a command on the gateway's machine.
    pub fn run(&self, args: &[&str]) -> Ran {
        self.world.run(args)
    }

    /// Lists the processes that this fleet or its children started and that still run.
    pub fn processes(&self) -> Vec<(u32, String)> {
        marked(&self.mark)
    }
}

/// `Machine` is the machine of one node.
pub struct Machine {
    pub id: String,
    pub world: World,
    pub token: String,
    /// The address that the node dials: the gateway, or a proxy in front of it.
    pub gateway: SocketAddr,
    /// More arguments for the node.
    pub more: Vec<String>,
    /// Like [`Fleet::mounts`].
    pub mounts: Option<String>,
    running: Option<Process>,
    mark: String,
}

impl Machine {
    pub fn start(&mut self) {
        assert!(self.running.is_none());
        self.running = Some(Process::spawn(&mut self.command()));
    }

    pub fn command(&self) -> Command {
        let (url, workspace) = (format!("http://{}", self.gateway), self.world.workspace());
        let mut command = self.world.command(&["--gateway", &url, "node", "--id", &self.id, "--workspace"]);
        command.arg(workspace).args(&self.more).env("GANTRY_TOKEN", &self.token).env("TEST_MARK", &self.mark);
        let mut command = with_mounts(command, self.mounts.as_deref());
        command.stdin(Stdio::null()).stdout(append(&self.log())).stderr(append(&self.log()));
        command
    }

    /// Returns a path as the node sees it, through its mounts.
    pub fn inside(&self, path: &Path) -> PathBuf {
        self.running.as_ref().unwrap().inside(path)
    }

    fn log(&self) -> PathBuf {
        self.world.folder.path().join("node.out")
    }

    /// Returns what the node printed, for messages of failed tests.
    pub fn output(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    pub fn kill(&mut self) {
        self.running.take().unwrap().kill();
    }

    pub fn begin_stop(&self) {
        self.running.as_ref().unwrap().signal(Signal::TERM);
    }

    pub fn wait_stopped(&mut self, within: Duration) -> ExitStatus {
        self.running.take().unwrap().wait(within)
    }

    /// Runs `gantry node stop --kill` on the node's machine.
    pub fn stop_and_kill(&mut self) -> Ran {
        let waiting = self.running.take();
        let ran = std::thread::scope(|scope| {
            // Its parent must reap it, as a shell would.
            let reaping = waiting.map(|mut running| scope.spawn(move || running.wait(SOON)));
            let ran = self.world.run(&["node", "stop", "--kill", "--id", &self.id]);
            reaping.map(|reaping| reaping.join().unwrap());
            ran
        });
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.world.workspace().join(name)
    }
}

/// Ends the node's background processes too, whether the test passed or not.
impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.running.take());
        let _ = self.world.command(&["node", "stop", "--kill", "--id", &self.id]).output();
    }
}

/// Runs the command in a mount namespace of its own, after the shell command `mounts`.
pub fn with_mounts(command: Command, mounts: Option<&str>) -> Command {
    let Some(mounts) = mounts else { return command };
    let mut outer = Command::new("unshare");
    outer.args(["--map-root-user", "--mount", "sh", "-ec", &format!("{mounts}; exec \"$0\" \"$@\"")]);
    outer.arg(command.get_program()).args(command.get_args()).env_clear();
    outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    outer.current_dir(command.get_current_dir().unwrap());
    outer
}

fn append(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).unwrap()
}

/// Lists processes with the mark in their environment or arguments.
fn marked(mark: &str) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let text = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let (environment, line) = (text("environ"), text("cmdline"));
        // A process that has ended and waits to be reaped has neither.
        let has = |bytes: &[u8]| bytes.windows(mark.len()).any(|window| window == mark.as_bytes());
        if pid != std::process::id() && (has(&environment) || has(&line)) {
            found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}
