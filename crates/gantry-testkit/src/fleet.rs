//! A real gateway and real nodes, each a process with a data directory and a workspace of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::http::{self, Response};
use crate::run::{Ran, World};

/// For what should take a moment, on a machine that is busy with other tests.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Waits for a condition, and says which one never came.
pub(crate) fn eventually(what: &str, within: Duration, mut is_so: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < within, "not within {within:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    began.elapsed()
}

/// One program that is ended with the test.
struct Running {
    child: Child,
}

impl Running {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn inside(&self, path: &Path) -> PathBuf {
        let root = format!("/proc/{}/root", self.child.id());
        Path::new(&root).join(path.strip_prefix("/").unwrap())
    }

    fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn terminate(&self) {
        let _ = kill_process(self.pid(), Signal::TERM);
    }

    fn wait(&mut self, within: Duration) -> ExitStatus {
        let mut ended = None;
        eventually("the process ends", within, || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The gateway, with the `local` node of its own machine.
pub(crate) struct Fleet {
    pub(crate) world: World,
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    /// Shell words that arrange its mounts before it starts, seen by nobody else.
    pub(crate) mounts: Option<String>,
    running: Option<Running>,
    mark: String,
}

impl Fleet {
    pub(crate) fn start() -> Fleet {
        Fleet::start_with(|_| None)
    }

    /// With mounts of its own.
    pub(crate) fn start_with(mounts: impl FnOnce(&World) -> Option<String>) -> Fleet {
        let world = World::new();
        let mounts = mounts(&world);
        let mark = format!("mark-{}", world.folder.path().file_name().unwrap().to_string_lossy());
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut fleet = Fleet { world, address, token: String::new(), mounts, running: None, mark };
        fleet.start_gateway();
        fleet
    }

    /// On the port it had before, so that nodes find it again.
    pub(crate) fn start_gateway(&mut self) {
        assert!(self.running.is_none());
        let command = self.world.command(&["up", "--listen", &self.address.to_string(), "--json"]);
        let mut command = mounted(command, self.mounts.as_deref());
        let said = self.world.folder.path().join("gateway.stderr");
        command
            .env("TEST_MARK", &self.mark)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(append(&said));
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.running = Some(Running { child });
        let up: Value = serde_json::from_str(&line)
            .unwrap_or_else(|err| panic!("{err} in {line:?}: {}", std::fs::read_to_string(&said).unwrap()));
        let url = up["url"].as_str().unwrap();
        self.address = url.strip_prefix("http://").unwrap().trim_end_matches('/').parse().unwrap();
        let token = self.inside(Path::new(up["tokenFile"].as_str().unwrap()));
        self.token = std::fs::read_to_string(token).unwrap().trim().to_owned();
    }

    /// A path as the gateway sees it, through its mounts.
    pub(crate) fn inside(&self, path: &Path) -> PathBuf {
        self.running.as_ref().unwrap().inside(path)
    }

    pub(crate) fn kill_gateway(&mut self) {
        self.running.take().unwrap().kill();
    }

    /// SIGTERM; the rest is up to the gateway.
    pub(crate) fn begin_stop(&self) {
        self.running.as_ref().unwrap().terminate();
    }

    pub(crate) fn wait_stopped(&mut self, within: Duration) -> ExitStatus {
        self.running.take().unwrap().wait(within)
    }

    /// A machine that may join, with this workspace folder inside; it is not started.
    pub(crate) fn add(&self, id: &str, tags: &[&str]) -> Machine {
        let mut args = vec!["--json", "nodes", "add", id];
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

    /// A machine that has joined.
    pub(crate) fn join(&self, id: &str) -> Machine {
        let mut machine = self.add(id, &[]);
        machine.start();
        self.wait_online(id);
        machine
    }

    pub(crate) fn node(&self, id: &str) -> Value {
        let nodes = self.get("/v1/nodes").json();
        let nodes = nodes["nodes"].as_array().unwrap();
        nodes.iter().find(|node| node["id"] == id).cloned().unwrap_or(Value::Null)
    }

    pub(crate) fn is_online(&self, id: &str) -> bool {
        self.node(id)["online"] == true
    }

    pub(crate) fn wait_online(&self, id: &str) -> Duration {
        eventually(&format!("{id} is online"), Duration::from_secs(90), || self.is_online(id))
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        http::ask(self.address, &self.token, "GET", path, &[], b"").unwrap()
    }

    pub(crate) fn call(&self, tool: &str, input: &Value) -> Response {
        self.try_call(tool, input, &[]).unwrap()
    }

    pub(crate) fn try_call(
        &self,
        tool: &str,
        input: &Value,
        headers: &[(&str, &str)],
    ) -> std::io::Result<Response> {
        let path = format!("/v1/tools/{tool}");
        http::ask(self.address, &self.token, "POST", &path, headers, input.to_string().as_bytes())
    }

    /// Through the command line on the gateway's machine.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.world.run(args)
    }

    /// Every process that was started here, or by what was started here, and is still there.
    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        marked(&self.mark)
    }
}

/// A node's machine.
pub(crate) struct Machine {
    pub(crate) id: String,
    pub(crate) world: World,
    pub(crate) token: String,
    /// Where it dials; something may stand between it and the gateway.
    pub(crate) gateway: SocketAddr,
    /// More arguments for the node.
    pub(crate) more: Vec<String>,
    /// As for the gateway.
    pub(crate) mounts: Option<String>,
    running: Option<Running>,
    mark: String,
}

impl Machine {
    pub(crate) fn start(&mut self) {
        assert!(self.running.is_none());
        let child = self.command().spawn().unwrap();
        self.running = Some(Running { child });
    }

    pub(crate) fn command(&self) -> Command {
        let (url, workspace) = (format!("http://{}", self.gateway), self.world.workspace());
        let mut command = self.world.command(&["--gateway", &url, "node", "--id", &self.id, "--workspace"]);
        command.arg(workspace).args(&self.more).env("GANTRY_TOKEN", &self.token).env("TEST_MARK", &self.mark);
        let mut command = mounted(command, self.mounts.as_deref());
        command.stdin(Stdio::null()).stdout(append(&self.said())).stderr(append(&self.said()));
        command
    }

    /// A path as the node sees it, through its mounts.
    pub(crate) fn inside(&self, path: &Path) -> PathBuf {
        self.running.as_ref().unwrap().inside(path)
    }

    fn said(&self) -> PathBuf {
        self.world.folder.path().join("said")
    }

    /// What the node printed, for messages of failed tests.
    pub(crate) fn words(&self) -> String {
        std::fs::read_to_string(self.said()).unwrap_or_default()
    }

    pub(crate) fn kill(&mut self) {
        self.running.take().unwrap().kill();
    }

    pub(crate) fn begin_stop(&self) {
        self.running.as_ref().unwrap().terminate();
    }

    pub(crate) fn wait_stopped(&mut self, within: Duration) -> ExitStatus {
        self.running.take().unwrap().wait(within)
    }

    /// `gantry node stop`, on the node's machine.
    pub(crate) fn stop_and_kill(&mut self) -> Ran {
        let waiting = self.running.take();
        let ran = std::thread::scope(|scope| {
            // Its parent has to take note of its end, as a shell would.
            let reaping = waiting.map(|mut running| scope.spawn(move || running.wait(SOON)));
            let ran = self.world.run(&["node", "stop", "--kill", "--id", &self.id]);
            reaping.map(|reaping| reaping.join().unwrap());
            ran
        });
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.world.workspace().join(name)
    }
}

/// What is left in the background ends with the test, whatever its outcome.
impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.running.take());
        let _ = self.world.command(&["node", "stop", "--kill", "--id", &self.id]).output();
    }
}

/// The same program where these mounts are made first.
pub(crate) fn mounted(command: Command, mounts: Option<&str>) -> Command {
    let Some(mounts) = mounts else { return command };
    let mut outer = Command::new("unshare");
    outer.args(["--map-root-user", "--mount", "sh", "-ec", &format!("{mounts}; exec \"$0\" \"$@\"")]);
    outer.arg(command.get_program()).args(command.get_args()).env_clear();
    outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    outer.current_dir(command.get_current_dir().unwrap());
    outer
}

fn append(path: &Path) -> std::fs::File {
    std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap()
}

/// Processes with the mark in their environment or on their command line.
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
