//! A node and a client in Python, written from `docs/protocol.md`, against the real gateway.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};

fn script(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/python")).join(name)
}

fn python(up: &Gateway, name: &str, token: &str) -> Command {
    let mut command = Command::new("python3");
    command.arg("-B").arg(script(name)).arg(format!("ws://{}/ws", up.address)).env("GANTRY_TOKEN", token);
    command
}

struct PythonNode {
    child: Child,
    input: ChildStdin,
    said: Receiver<Value>,
}

impl PythonNode {
    fn start(up: &Gateway, id: &str, token: &str) -> PythonNode {
        let mut command = python(up, "node.py", token);
        let mut child = command.arg(id).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (saying, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if saying.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        PythonNode { child, input, said }
    }

    /// The next event of this kind; others before it are passed over.
    fn wait_for(&self, event: &str) -> Value {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let said = self.said.recv_timeout(left).unwrap_or_else(|_| panic!("{event} was not said"));
            if said["event"] == event {
                return said;
            }
        }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }
}

impl Drop for PythonNode {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client(up: &Gateway, args: &[&str]) -> (bool, Value, String) {
    let output = python(up, "client.py", &up.token).args(args).output().unwrap();
    let answer = serde_json::from_slice(&output.stdout).unwrap_or_else(|err| panic!("{err}: {output:?}"));
    (output.status.success(), answer, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn python_node_joins_answers_and_reconnects() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "snake", &[]);
    let mut node = PythonNode::start(&up, "snake", &token);
    node.wait_for("joined");
    let shown = up.get("/v1/tools/snake__Echo").json();
    assert_eq!(shown["inputSchema"]["required"], json!(["text"]));
    let hello = up.call("snake__Echo", &json!({"text": "grüße \u{1F40D}"}));
    assert_eq!((hello.status, hello.json()), (200, json!({"text": "grüße \u{1F40D}", "by": "python"})));
    assert_eq!(up.call("snake__Echo", &json!({})).status, 400);
    node.wait_for("acknowledged");
    let long = "x".repeat(200_000);
    assert_eq!(up.call("snake__Echo", &json!({"text": long})).json()["text"], json!(long));

    let late = up.call_with("snake__Wait", &json!({"ms": 60_000}), &[("Gantry-Deadline-Ms", "300")]);
    assert_eq!(late.status, 504);
    node.wait_for("cancelled");
    let mut leaving = up.connection();
    leaving.begin(&up, "POST", "/v1/tools/snake__Wait", &[], br#"{"ms": 60000}"#);
    node.wait_for("began");
    drop(leaving);
    node.wait_for("cancelled");

    let mut calling = up.connection();
    calling.begin(&up, "POST", "/v1/tools/snake__Wait", &[], br#"{"ms": 1500}"#);
    let call = node.wait_for("began")["call"].clone();
    node.tell("cut");
    node.wait_for("lost");
    let joined = node.wait_for("joined");
    assert!(joined["wanted"].as_array().unwrap().contains(&call), "{joined}");
    let answer = calling.read().unwrap();
    assert_eq!((answer.status, answer.json()), (200, json!({"waited": 1500})));
    assert_eq!(node.wait_for("acknowledged")["call"], call);
    let began_again = node.said.try_iter().any(|said| said["event"] == "began");
    assert!(!began_again, "it ran once");

    assert_eq!(world.run(&["nodes", "revoke", "snake"]).code, 0);
    assert!(node.wait_for("lost")["reason"].as_str().unwrap().contains("revoked"));
    assert_eq!(node.wait_for("refused")["code"], "unauthorized");
    eventually("it gives up", Duration::from_secs(2), || node.child.try_wait().unwrap().is_some());
}

#[test]
fn python_client_calls_cancels_and_receives_progress() {
    let world = World::new();
    world.write("a.txt", "one\n");
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "snake", &[]);
    let node = PythonNode::start(&up, "snake", &token);
    node.wait_for("joined");
    let (ok, read, _) = client(&up, &["Read", r#"{"path": "a.txt"}"#]);
    assert_eq!((ok, &read["json"]["content"]), (true, &json!("1\tone")));
    let (ok, waited, reported) = client(&up, &["snake__Wait", r#"{"ms": 500}"#]);
    assert_eq!((ok, &waited["json"]["waited"]), (true, &json!(500)));
    assert!(reported.contains("call.progress"), "{reported}");
    let code = |(ok, answer, _): (bool, Value, String)| (ok, answer["error"]["code"].clone());
    assert_eq!(code(client(&up, &["Raed", "{}"])), (false, json!("unknown_tool")));
    assert_eq!(code(client(&up, &["snake__Wait", r#"{"ms": 60000}"#, "300"])), (false, json!("deadline")));
    assert_eq!(
        code(client(&up, &["snake__Wait", r#"{"ms": 60000}"#, "30000", "300"])),
        (false, json!("cancelled"))
    );
}
