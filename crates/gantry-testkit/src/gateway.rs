//! A real gateway process, and requests to it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Connection, Response, World};

/// `Gateway` is a `gantry up` process on a port of its own. It is stopped when dropped.
pub struct Gateway {
    child: Child,
    pub url: String,
    pub address: SocketAddr,
    /// The operator's token.
    pub token: String,
}

impl Gateway {
    pub fn start(world: &World) -> Gateway {
        Gateway::start_with(world, "up", &[])
    }

    pub fn start_with(world: &World, command: &str, more: &[&str]) -> Gateway {
        Gateway::start_on(world, command, "127.0.0.1:0", more)
    }

    /// Listens on a port that an earlier gateway had.
    pub fn start_at(world: &World, listen: &str) -> Gateway {
        Gateway::start_on(world, "up", listen, &[])
    }

    /// Writes standard error to the file `log`.
    pub fn start_logged(world: &World, log: &Path, more: &[&str]) -> Gateway {
        let args = [&["up", "--listen", "127.0.0.1:0", "--json"], more].concat();
        let mut command = world.command(&args);
        Gateway::spawn(command.stderr(File::create(log).unwrap()))
    }

    /// Like [`Gateway::start_logged`], with more environment variables.
    pub fn start_with_env(world: &World, log: &Path, variables: &[(&str, &str)]) -> Gateway {
        let mut command = world.command(&["up", "--listen", "127.0.0.1:0", "--json"]);
        command.envs(variables.iter().copied());
        Gateway::spawn(command.stderr(File::create(log).unwrap()))
    }

    fn start_on(world: &World, command: &str, listen: &str, more: &[&str]) -> Gateway {
        let args = [&[command, "--listen", listen, "--json"], more].concat();
        Gateway::spawn(&mut world.command(&args))
    }

    /// Limits the process to `files` open files.
    pub fn start_with_file_limit(world: &World, files: usize, log: &Path) -> Gateway {
        let plain = world.command(&["up", "--listen", "127.0.0.1:0", "--json"]);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")]);
        command.arg(plain.get_program()).args(plain.get_args()).current_dir(world.workspace()).env_clear();
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Gateway::spawn(command.stderr(File::create(log).unwrap()))
    }

    /// Spawns a `gantry up --json` command and waits until it listens.
    pub fn spawn(command: &mut Command) -> Gateway {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let announced: Value = serde_json::from_str(&line).unwrap_or_else(|err| panic!("{err}: {line:?}"));
        let url = announced["url"].as_str().unwrap().to_owned();
        let address = url.split_once("://").unwrap().1.parse().unwrap();
        let token =
            std::fs::read_to_string(announced["tokenFile"].as_str().unwrap()).unwrap().trim().to_owned();
        Gateway { child, url, address, token }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, signal);
    }

    /// Sends SIGKILL, as a power cut would end it.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the process to end and returns its exit code, or `None` after `within`.
    pub fn wait(&mut self, within: Duration) -> Option<i32> {
        let until = Instant::now() + within;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }

    /// Returns the resident memory of the process, in KB.
    pub fn resident_kb(&self) -> u64 {
        self.memory_kb("VmRSS:")
    }

    /// Returns the peak of the resident memory, in KB.
    pub fn peak_kb(&self) -> u64 {
        self.memory_kb("VmHWM:")
    }

    fn memory_kb(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim().split(' ').next().unwrap().parse().unwrap()
    }

    pub fn connection(&self) -> Connection {
        Connection::open(self.address)
    }

    /// Sends one request on a new connection, as the operator unless `headers` has `Authorization`.
    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        self.connection().ask(self, method, path, headers, body)
    }

    pub fn get(&self, path: &str) -> Response {
        self.ask("GET", path, &[], b"")
    }

    pub fn call(&self, tool: &str, input: &Value) -> Response {
        self.call_with(tool, input, &[])
    }

    pub fn call_with(&self, tool: &str, input: &Value, headers: &[(&str, &str)]) -> Response {
        self.ask("POST", &format!("/v1/tools/{tool}"), headers, input.to_string().as_bytes())
    }

    /// Creates a client token.
    pub fn client_token(&self, world: &World, name: &str, more: &[&str]) -> String {
        let ran = world.run(&[&["tokens", "add", name, "--json"], more].concat());
        assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
        ran.json()["token"].as_str().unwrap().to_owned()
    }

    /// Registers a node and returns its token.
    pub fn add_node(&self, world: &World, id: &str, more: &[&str]) -> String {
        let ran = world.run(&[&["nodes", "add", id, "--token", "--json"], more].concat());
        assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
        ran.json()["token"].as_str().unwrap().to_owned()
    }

    /// Returns one node of `GET /v1/nodes`, or null.
    pub fn node(&self, id: &str) -> Value {
        let nodes = self.get("/v1/nodes").json();
        let found = nodes["nodes"].as_array().unwrap().iter().find(|node| node["id"] == id);
        found.cloned().unwrap_or(json!(null))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        self.signal(rustix::process::Signal::TERM);
        if self.wait(Duration::from_secs(20)).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
