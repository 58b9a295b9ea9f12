//! A real gateway process, and those who speak to it: over plain TCP, as a client, as a node.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::run::World;
pub(crate) use raw_http::{Connection, Response};

mod attack;
mod closed_addresses;
mod documented;
mod http;
mod idempotency;
mod load;
mod lying_peers;
mod memory_pressure;
mod nodes;
pub(crate) mod peers;
mod python;
mod raw_http;
mod reconnect;
mod request_validation;
mod sockets;
mod stopping;
mod surface_parity;
mod tls;
mod tokens;
mod unusual_nodes;

/// `gantry up` on a port of its own; stopped when dropped.
pub(crate) struct Up {
    child: Child,
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    /// The operator's.
    pub(crate) token: String,
}

impl Up {
    pub(crate) fn start(world: &World) -> Up {
        Up::start_with(world, "up", &[])
    }

    pub(crate) fn start_with(world: &World, command: &str, more: &[&str]) -> Up {
        Up::start_on(world, command, "127.0.0.1:0", more)
    }

    /// On a port that a gateway had before.
    pub(crate) fn start_at(world: &World, listen: &str) -> Up {
        Up::start_on(world, "up", listen, &[])
    }

    /// What it says on standard error goes to a file.
    pub(crate) fn start_telling(world: &World, log: &std::path::Path, more: &[&str]) -> Up {
        let args = [&["up", "--listen", "127.0.0.1:0", "--json"], more].concat();
        let mut command = world.command(&args);
        Up::started(command.stderr(std::fs::File::create(log).unwrap()))
    }

    /// As [`Up::start_telling`], with more variables in its environment.
    pub(crate) fn start_among(world: &World, log: &std::path::Path, variables: &[(&str, &str)]) -> Up {
        let mut command = world.command(&["up", "--listen", "127.0.0.1:0", "--json"]);
        command.envs(variables.iter().copied());
        Up::started(command.stderr(std::fs::File::create(log).unwrap()))
    }

    fn start_on(world: &World, command: &str, listen: &str, more: &[&str]) -> Up {
        let args = [&[command, "--listen", listen, "--json"], more].concat();
        Up::started(&mut world.command(&args))
    }

    /// With no more than so many open files.
    pub(crate) fn start_with_files(world: &World, files: usize, log: &std::path::Path) -> Up {
        let plain = world.command(&["up", "--listen", "127.0.0.1:0", "--json"]);
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")]);
        command.arg(plain.get_program()).args(plain.get_args()).current_dir(world.workspace()).env_clear();
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Up::started(command.stderr(std::fs::File::create(log).unwrap()))
    }

    fn started(command: &mut std::process::Command) -> Up {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|err| panic!("{err}: {line:?}"));
        let url = told["url"].as_str().unwrap().to_owned();
        let address = url.split_once("://").unwrap().1.parse().unwrap();
        let token = std::fs::read_to_string(told["tokenFile"].as_str().unwrap()).unwrap().trim().to_owned();
        Up { child, url, address, token }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, signal);
    }

    /// As a power cut: nothing is said to anybody.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the end of a gateway that was told to stop.
    pub(crate) fn wait(&mut self, within: Duration) -> Option<i32> {
        let until = Instant::now() + within;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }

    /// Resident memory of the gateway's process, in KB.
    pub(crate) fn resident_kb(&self) -> u64 {
        self.memory_kb("VmRSS:")
    }

    /// The most that was resident at any time.
    pub(crate) fn peak_kb(&self) -> u64 {
        self.memory_kb("VmHWM:")
    }

    fn memory_kb(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim().split(' ').next().unwrap().parse().unwrap()
    }

    pub(crate) fn connection(&self) -> Connection {
        Connection::open(self.address)
    }

    /// One request on a connection of its own; by the operator, unless `Authorization` is given.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        self.connection().ask(self, method, path, headers, body)
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.ask("GET", path, &[], b"")
    }

    pub(crate) fn call(&self, tool: &str, input: &Value) -> Response {
        self.call_with(tool, input, &[])
    }

    pub(crate) fn call_with(&self, tool: &str, input: &Value, headers: &[(&str, &str)]) -> Response {
        self.ask("POST", &format!("/v1/tools/{tool}"), headers, input.to_string().as_bytes())
    }

    /// Makes a client's token as the operator does.
    pub(crate) fn client_token(&self, world: &World, name: &str, more: &[&str]) -> String {
        let ran = world.run(&[&["tokens", "add", name, "--json"], more].concat());
        assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
        ran.json()["token"].as_str().unwrap().to_owned()
    }

    /// Lets a node join, and gives its token.
    pub(crate) fn add_node(&self, world: &World, id: &str, more: &[&str]) -> String {
        let ran = world.run(&[&["nodes", "add", id, "--json"], more].concat());
        assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
        ran.json()["token"].as_str().unwrap().to_owned()
    }

    /// One node as `GET /v1/nodes` shows it.
    pub(crate) fn node(&self, id: &str) -> Value {
        let nodes = self.get("/v1/nodes").json();
        let found = nodes["nodes"].as_array().unwrap().iter().find(|node| node["id"] == id);
        found.cloned().unwrap_or(json!(null))
    }
}

impl Drop for Up {
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

/// Waits for something that should be so soon.
pub(crate) fn eventually(what: &str, within: Duration, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + within;
    while !is_so() {
        assert!(Instant::now() < until, "not within {within:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether long suites run whole.
pub(crate) fn soak() -> bool {
    std::env::var_os("GANTRY_SOAK").is_some_and(|value| value == "1")
}

/// Numbers that look random and can be had again: printed, and set by `GANTRY_SEED`.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new() -> Dice {
        let given = std::env::var("GANTRY_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| std::process::id().into());
        println!("GANTRY_SEED={seed}");
        Dice(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}
