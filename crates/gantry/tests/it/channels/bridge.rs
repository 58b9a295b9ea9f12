//! The bridge of `tests/python/bridge.py` and the owner, a member and a stranger who use it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_model::testing::{Heard, Turn};
use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};

use crate::sessions::{Model, call, results};

const PATIENCE: Duration = Duration::from_secs(30);

/// A running bridge: what it printed, and its standard input.
struct Bridge {
    child: Child,
    input: ChildStdin,
    printed: Arc<Mutex<Vec<Value>>>,
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Bridge {
    fn start(up: &Gateway, token: &str) -> Bridge {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut command = Command::new(root.join("target/mcp/venv-chat/bin/python"));
        let url = format!("{}/ws", up.url.replace("http", "ws"));
        command.arg(root.join("tests/python/bridge.py")).args([&url, "lines"]).env("GANTRY_TOKEN", token);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the Python environment; `cargo xtask setup` installs it");
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let printed: Arc<Mutex<Vec<Value>>> = Arc::default();
        let seen = printed.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                seen.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        let bridge = Bridge { child, input, printed };
        bridge.wait("the bridge", |printed| printed["connected"] == "lines");
        bridge
    }

    /// Waits for a printed line, and returns it.
    fn wait(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let mut found = Value::Null;
        eventually(what, PATIENCE, || {
            found = self.printed.lock().unwrap().iter().find(|line| is_it(line)).cloned().unwrap_or_default();
            !found.is_null()
        });
        found
    }

    /// Waits for a message to a chat that contains a text.
    fn message(&self, chat: &str, text: &str) -> Value {
        self.wait(&format!("{text:?} to {chat}"), |line| {
            line["send"]["peer"]["id"] == chat
                && line["send"]["text"].as_str().is_some_and(|sent| sent.contains(text))
        })
    }

    fn texts(&self, chat: &str) -> Vec<String> {
        let printed = self.printed.lock().unwrap();
        let to_chat = printed.iter().filter(|line| line["send"]["peer"]["id"] == chat);
        to_chat.map(|line| line["send"]["text"].as_str().unwrap().to_owned()).collect()
    }

    /// Gives the bridge a line, and returns the gateway's answer.
    fn give(&mut self, line: &Value) -> Value {
        let answers = |printed: &[Value]| printed.iter().filter(|line| !line["answer"].is_null()).count();
        let before = answers(&self.printed.lock().unwrap());
        writeln!(self.input, "{line}").unwrap();
        eventually("the answer", PATIENCE, || answers(&self.printed.lock().unwrap()) > before);
        let printed = self.printed.lock().unwrap();
        printed.iter().rev().find(|line| !line["answer"].is_null()).unwrap()["answer"].clone()
    }

    fn says(&mut self, id: &str, person: &str, kind: &str, chat: &str, text: &str) -> Value {
        self.give(&json!({"inbound": {
            "id": id, "from": {"id": person, "name": person}, "peer": {"kind": kind, "id": chat}, "text": text,
            "addressed": true,
        }}))
    }

    fn presses(
        &mut self,
        id: &str,
        person: &str,
        kind: &str,
        chat: &str,
        message: &str,
        handle: &str,
    ) -> String {
        let pressed = self.give(&json!({"press": {
            "id": id, "from": {"id": person}, "peer": {"kind": kind, "id": chat}, "messageId": message, "handle": handle,
        }}));
        pressed["text"].as_str().unwrap_or_else(|| panic!("{pressed}")).to_owned()
    }
}

const CHANNEL: &str =
    "[channels.bridge.lines]\ntokenName = \"lines\"\n[channels.bridge.lines.groups.room]\nallow = [\"*\"]";

fn start(model: &Model, agent: &str) -> (World, Gateway, Bridge) {
    let world = model.world(&format!("{agent}\n{CHANNEL}"));
    let up = Gateway::start(&world);
    let added = world.run(&["tokens", "add", "lines", "--read-only", "--json"]);
    let token: Value = serde_json::from_str(&added.stdout).unwrap_or_else(|_| panic!("{added:?}"));
    let bridge = Bridge::start(&up, token["token"].as_str().unwrap());
    (world, up, bridge)
}

/// Links the person `ann` as the owner, in her chat `d1`.
fn link(world: &World, bridge: &mut Bridge) {
    let link = world.run(&["channels", "link", "bridge:lines", "--json"]);
    let link: Value = serde_json::from_str(&link.stdout).unwrap_or_else(|_| panic!("{link:?}"));
    assert_eq!(bridge.says("link", "ann", "dm", "d1", link["code"].as_str().unwrap())["status"], "accepted");
    bridge.message("d1", "This account is linked");
}

fn answering(heard: &Heard) -> Turn {
    let messages = heard.body["messages"].as_array().unwrap();
    let last = messages.last().unwrap()["content"].to_string();
    Turn::text(format!("heard {last}"))
}

#[test]
fn strangers_reach_nothing_until_they_are_admitted() {
    let model = Model::deciding(answering);
    let (world, _up, mut bridge) = start(&model, "");
    assert_eq!(bridge.says("1", "eve", "dm", "d9", "read my files")["status"], "accepted");
    let told = bridge.message("d9", "Your code is");
    assert_eq!(bridge.says("2", "eve", "dm", "d9", "again")["status"], "ignored", "told once");
    assert_eq!(bridge.says("3", "eve", "group", "elsewhere", "hello")["status"], "ignored");
    let text = told["send"]["text"].as_str().unwrap();
    let code = text.split("code is ").nth(1).unwrap().split('.').next().unwrap();
    assert!(world.run(&["channels", "people"]).stdout.contains(code));
    let wrong = world.run(&["channels", "pair", "approve", "AAAAAAAA"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    let admitted = world.run(&["channels", "pair", "approve", code]);
    assert_eq!(admitted.code, 0, "{admitted:?}");
    bridge.message("d9", "You are admitted");
    assert_eq!(bridge.says("4", "eve", "dm", "d9", "hello now")["status"], "accepted");
    bridge.message("d9", "hello now");
    assert!(
        !bridge.texts("d9").iter().any(|text| text.contains("read my files")),
        "what a stranger wrote is gone"
    );
    // A member has a session of her own.
    let sessions = world.run(&["sessions", "--json"]).stdout;
    assert!(
        sessions.contains("agent:main:bridge:lines:dm:eve") && !sessions.contains("agent:main:main"),
        "{sessions}"
    );
    model.check();
}

#[test]
fn owner_links_an_account_and_approves_with_a_button() {
    let decide = |heard: &Heard| match results(heard) {
        0 => call("Bash", json!({"command": "echo one >> notes"})),
        _ => Turn::text("done it"),
    };
    let model = Model::deciding(decide);
    let (world, _up, mut bridge) = start(&model, "autonomy = \"supervised\"");
    link(&world, &mut bridge);
    assert_eq!(bridge.says("1", "ann", "dm", "d1", "please write")["status"], "accepted");
    assert_eq!(bridge.says("1", "ann", "dm", "d1", "please write")["status"], "duplicate");
    let asked = bridge.message("d1", "echo one");
    let buttons = asked["send"]["buttons"].as_array().unwrap();
    assert_eq!(
        (buttons[0]["label"].as_str(), buttons[1]["label"].as_str()),
        (Some("Allow once"), Some("Deny"))
    );
    let (id, yes) = (asked["messageId"].as_str().unwrap(), buttons[0]["handle"].as_str().unwrap());
    // A bystander, another chat, and an invented handle do not answer it.
    assert_eq!(bridge.presses("p1", "eve", "dm", "d1", id, yes), "Only the owner can answer this.");
    assert!(bridge.presses("p2", "eve", "group", "room", id, yes).contains("Only the owner"));
    assert!(bridge.presses("p3", "ann", "dm", "d2", id, yes).contains("not open"));
    assert!(bridge.presses("p4", "ann", "dm", "d1", id, "q:00:0").contains("not open"));
    assert!(!world.workspace().join("notes").exists(), "nothing ran yet");
    assert_eq!(bridge.presses("p5", "ann", "dm", "d1", id, yes), "Allowed.");
    bridge.message("d1", "done it");
    assert_eq!(std::fs::read_to_string(world.workspace().join("notes")).unwrap(), "one\n");
    let marked = bridge.message("d1", "Allowed by operator via bridge:lines:ann");
    assert_eq!(marked["send"]["edits"].as_str(), Some(id));
    assert!(bridge.presses("p6", "ann", "dm", "d1", id, yes).contains("no question is open"));
    assert_eq!(bridge.texts("d1").iter().filter(|text| text.contains("done it")).count(), 1);
    model.check();
}

#[test]
fn groups_answer_when_addressed_and_never_approve() {
    let decide = |heard: &Heard| match results(heard) {
        0 => call("Bash", json!({"command": "echo group >> notes"})),
        _ => Turn::text("group answer"),
    };
    let model = Model::deciding(decide);
    let (world, _up, mut bridge) = start(&model, "autonomy = \"supervised\"");
    link(&world, &mut bridge);
    assert_eq!(bridge.says("g1", "bob", "group", "room", "write please")["status"], "accepted");
    bridge.message("room", "I need my owner's answer");
    let asked = bridge.message("d1", "echo group");
    let handle = asked["send"]["buttons"][1]["handle"].as_str().unwrap();
    assert!(
        !bridge.texts("room").iter().any(|text| text.contains("echo group")),
        "the group does not see the call"
    );
    assert_eq!(bridge.says("g2", "ann", "group", "room", "/approve")["status"], "accepted");
    bridge.message("room", "Please write this in our chat of two.");
    assert_eq!(bridge.presses("p1", "ann", "dm", "d1", "m", handle), "Denied.");
    // The run has read what others wrote and what a command printed, so the owner decides about its answer.
    bridge.message("room", "This answer waits for its owner.");
    assert!(!bridge.texts("room").iter().any(|text| text.contains("group answer")));
    let held = bridge.message("d1", "Send this answer to the group room");
    let send = held["send"]["buttons"][0]["handle"].as_str().unwrap();
    assert_eq!(bridge.presses("p2", "ann", "dm", "d1", "m", send), "It is sent.");
    bridge.message("room", "group answer");
    assert!(!world.workspace().join("notes").exists());
    model.check();
}

/// The number of messages that a chat got with this text.
fn count(bridge: &Bridge, chat: &str, text: &str) -> usize {
    bridge.texts(chat).iter().filter(|sent| sent.contains(text)).count()
}

#[test]
fn old_quoted_and_older_answers_do_not_approve() {
    let decide = |heard: &Heard| match results(heard) {
        0 => call("Bash", json!({"command": "echo one >> notes"})),
        _ => Turn::text("done it"),
    };
    let model = Model::deciding(decide);
    let (world, _up, mut bridge) = start(&model, "autonomy = \"supervised\"");
    link(&world, &mut bridge);
    assert_eq!(bridge.says("1", "ann", "dm", "d1", "please write")["status"], "accepted");
    bridge.message("d1", "echo one");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let said = |id: &str, text: &str, more: Value| {
        let mut said = json!({"id": id, "from": {"id": "ann"}, "peer": {"kind": "dm", "id": "d1"}, "text": text, "addressed": true});
        said.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "inbound": said })
    };
    // Written long ago, before the question, or about something else.
    let before = now as i64 - 60_000;
    bridge.give(&said("2", "yes", json!({"at": now as i64 - 3 * 3_600_000})));
    bridge.give(&said("3", "/approve", json!({"at": now as i64 - 3 * 3_600_000})));
    bridge.message("d1", "This command arrived too late");
    bridge.give(&said("4", "yes", json!({"at": before})));
    bridge.give(&said("5", "yes", json!({"quoted": "Shall I order lunch?"})));
    bridge.give(&said("6", "/stop", json!({})));
    bridge.message("d1", "Closed without an answer");
    bridge.give(&said("7", "1", json!({})));
    bridge.message("d1", "That question is not open any more");
    assert!(!world.workspace().join("notes").exists(), "nothing ran");
    // A reply to the question itself counts.
    assert_eq!(bridge.says("8", "ann", "dm", "d1", "/new")["status"], "accepted");
    assert_eq!(bridge.says("9", "ann", "dm", "d1", "please write again")["status"], "accepted");
    eventually("it is asked again", PATIENCE, || count(&bridge, "d1", "echo one") > 2);
    // The question is open a moment after its message arrived.
    let mut tries = 0;
    eventually("the command ran", PATIENCE, || {
        tries += 1;
        bridge.give(&said(
            &format!("10-{tries}"),
            "yes",
            json!({"quoted": "Run on local? $ echo one >> notes"}),
        ));
        std::thread::sleep(Duration::from_millis(300));
        world.workspace().join("notes").exists()
    });
    model.check();
}

#[test]
fn the_owner_sees_the_whole_of_a_held_answer() {
    let long: String = (0..3_000).map(|number| format!("word{number} ")).collect();
    let answer = long.clone();
    let decide = move |heard: &Heard| match results(heard) {
        0 => call("Bash", json!({"command": "cat secret.txt"})),
        _ => Turn::text(answer.clone()),
    };
    let model = Model::deciding(decide);
    let (world, _up, mut bridge) = start(&model, "autonomy = \"guided\"");
    world.write("secret.txt", "private");
    link(&world, &mut bridge);
    assert_eq!(bridge.says("g1", "bob", "group", "room", "read it")["status"], "accepted");
    let held = bridge.message("d1", "Send this answer to");
    assert!(held["send"]["text"].as_str().unwrap().contains("follows as a file"), "{held}");
    let file = bridge.wait("the file", |line| {
        line["send"]["peer"]["id"] == "d1" && line["send"]["file"]["name"] == "question.md"
    });
    let shown = decoded(file["send"]["file"]["content"].as_str().unwrap());
    assert!(shown.contains("word0 ") && shown.contains("word2999"), "the end is missing");
    assert!(!bridge.texts("room").iter().any(|text| text.contains("word1")), "nothing was sent yet");
    model.check();
}

/// Decodes base64 with Python.
fn decoded(text: &str) -> String {
    let script = "import base64,sys; sys.stdout.buffer.write(base64.b64decode(sys.stdin.read()))";
    let mut command = Command::new("python3");
    let mut child =
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn messages_reach_no_thread_that_nobody_wrote_in_and_changed_settings_reconnect_the_bridge() {
    let model = Model::deciding(answering);
    let (world, _up, mut bridge) = start(&model, "");
    link(&world, &mut bridge);
    let to =
        json!({"channel": "bridge", "account": "lines", "kind": "dm", "chat": "d1", "thread": "elsewhere"});
    let input = json!({"text": "hello", "channel": "bridge", "to": to.to_string()}).to_string();
    let denied = world.run(&["call", "gsv__Message", &input]);
    assert!(denied.stdout.contains("may not get messages"), "{denied:?}");
    let changed = world.run(&["config", "set", "channels.bridge.lines.staleMinutes", "5"]);
    assert_eq!(changed.code, 0, "{changed:?}");
    eventually("the bridge is disconnected", PATIENCE, || bridge.child.try_wait().unwrap().is_some());
    model.check();
}
