//! Gantry as an MCP server, over standard input and output and over HTTP at the gateway; and as a client of others.

mod abandoned;
mod agent_programs;
pub(crate) mod clients;
mod hostile;
pub(crate) mod http;
mod install;
mod reference;
mod remote;
pub(crate) mod servers;
mod stdio;
mod through;
mod tool_list;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use gantry_testkit::World;
use serde_json::{Value, json};

/// Longer than anything here should take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client that starts `gantry mcp`, and hears everything it says.
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
    next: u64,
    /// What was said between answers.
    pub(crate) heard: Vec<Value>,
}

impl Client {
    pub(crate) fn start(world: &World, args: &[&str]) -> Client {
        let args = [&["mcp"], args].concat();
        let mut command = world.command(&args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (reported, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if reported.send(line).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Client { child, stdin, lines, next: 1, heard: Vec::new() }
    }

    /// Started and introduced, in a revision of the protocol that has an introduction.
    pub(crate) fn introduced(world: &World, args: &[&str], revision: &str, capabilities: &Value) -> Client {
        let mut client = Client::start(world, args);
        let info = json!({"name": "test/client", "version": "1"});
        let params = json!({"protocolVersion": revision, "capabilities": capabilities, "clientInfo": info});
        let answer = client.ask("initialize", &params);
        assert_eq!(answer["result"]["protocolVersion"], revision, "{answer}");
        client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    pub(crate) fn new(world: &World, args: &[&str]) -> Client {
        Client::introduced(world, args, "2025-11-25", &json!({}))
    }

    pub(crate) fn say(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{message}\n").as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Sends a request, and gives its number.
    pub(crate) fn send(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// The next thing that is said. Every line on standard output must be the protocol's.
    pub(crate) fn hear(&mut self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|err| panic!("{err}: {:?}", self.heard));
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|err| panic!("{err}: {line:?}"));
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        message
    }

    pub(crate) fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.hear();
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.heard.push(message);
        }
    }

    /// Waits for a message of that method, a request or a notification.
    pub(crate) fn hear_of(&mut self, method: &str) -> Value {
        if let Some(at) = self.heard.iter().position(|message| message["method"] == method) {
            return self.heard.remove(at);
        }
        loop {
            let message = self.hear();
            if message["method"] == method {
                return message;
            }
            self.heard.push(message);
        }
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
        answer.get("result").cloned().unwrap_or(answer)
    }

    pub(crate) fn tool_names(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", &json!({}));
        names(&answer["result"]["tools"])
    }

    /// Goes away, and tells how the server ended.
    pub(crate) fn leave(mut self) -> Option<i32> {
        drop(self.stdin.take());
        let until = std::time::Instant::now() + PATIENCE;
        while std::time::Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let until = std::time::Instant::now() + Duration::from_millis(300);
        while matches!(self.child.try_wait(), Ok(None)) && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn names(tools: &Value) -> Vec<String> {
    let names = tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
    names.collect()
}

/// What a model pays for a list of tools, as everybody counts it.
pub(crate) fn tokens(tools: &Value) -> usize {
    tools.to_string().len() / 4
}

pub(crate) const DEFAULT_TOOLS: [&str; 10] = [
    "Bash",
    "Edit",
    "Glob",
    "Grep",
    "Process",
    "Read",
    "Write",
    "tool__web_fetch",
    "tool__web_search",
    "result_read",
];
