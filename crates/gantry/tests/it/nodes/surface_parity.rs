//! A tool gives the same answer on a node over every surface as in-process.

use std::time::{Duration, SystemTime};

use gantry_testkit::{Fleet, Machine, Socket, World};
use serde_json::{Value, json};

/// Three answers there are to a call.
#[derive(Debug, PartialEq)]
enum Answer {
    Success(Value),
    ToolError(Value),
    Refused(Value),
}

impl Answer {
    fn value(&self) -> &Value {
        match self {
            Answer::Success(value) | Answer::ToolError(value) | Answer::Refused(value) => value,
        }
    }
}

type Calling<'a> = dyn Fn(&str, &Value) -> Answer + 'a;

/// A way to call tools, on a machine of its own.
struct Way<'a> {
    name: &'static str,
    workspace: String,
    /// The session id, for the calls that follow.
    keeps_ids: bool,
    call: Box<Calling<'a>>,
}

impl Way<'_> {
    /// Without what has to differ.
    fn call(&self, tool: &str, input: &Value) -> Answer {
        let mut answer = (self.call)(tool, input);
        match &mut answer {
            Answer::Success(value) | Answer::ToolError(value) | Answer::Refused(value) => {
                self.even_out(value)
            }
        }
        answer
    }

    fn even_out(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                *text = text.replace(&self.workspace, "WORKSPACE");
                for node in ["local", "one", "two", "three"] {
                    *text = text.replace(&format!("{node}__"), "NODE__");
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.even_out(item)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    match name.as_str() {
                        "sessionId" if !self.keeps_ids => *field = json!("SESSION"),
                        "pid" | "startedAt" | "endedAt" | "durationMs" | "runtimeMs" => *field = json!(0),
                        _ => self.even_out(field),
                    }
                }
            }
            _ => {}
        }
    }
}

fn exit_answer(code: i32, stdout: &str) -> Answer {
    let value = serde_json::from_str(stdout).unwrap_or_else(|err| panic!("{err} in {stdout:?}"));
    match code {
        0 => Answer::Success(value),
        1 => Answer::ToolError(value),
        _ => Answer::Refused(value),
    }
}

fn through_http<'a>(fleet: &'a Fleet, node: &'a str, workspace: String) -> Way<'a> {
    let call = move |tool: &str, input: &Value| {
        let response = fleet.call(&format!("{node}__{tool}"), input);
        match response.status {
            200 => Answer::Success(response.json()),
            422 => Answer::ToolError(response.json()),
            _ => Answer::Refused(response.json()),
        }
    };
    Way { name: "HTTP", workspace, keeps_ids: false, call: Box::new(call) }
}

fn through_websocket<'a>(socket: &'a Socket, node: &'a str, workspace: String) -> Way<'a> {
    let call = move |tool: &str, input: &Value| {
        let response = socket.call(&format!("{node}__{tool}"), input);
        match response["ok"].as_bool().unwrap() {
            true if response["result"]["isError"] == true => {
                Answer::ToolError(response["result"]["json"].clone())
            }
            true => Answer::Success(response["result"]["json"].clone()),
            false => {
                // The same object as over HTTP, with the details one level down.
                let error = &response["error"];
                let mut flat = json!({"code": error["code"], "message": error["message"]});
                for (name, value) in error["details"].as_object().into_iter().flatten() {
                    flat[name] = value.clone();
                }
                Answer::Refused(json!({ "error": flat }))
            }
        }
    };
    Way { name: "WebSocket", workspace, keeps_ids: false, call: Box::new(call) }
}

fn through_command_line<'a>(fleet: &'a Fleet, node: &'a str, workspace: String) -> Way<'a> {
    let call = move |tool: &str, input: &Value| {
        let ran = fleet.run(&["call", &format!("{node}__{tool}"), &input.to_string()]);
        exit_answer(ran.code, &ran.stdout)
    };
    Way { name: "command line", workspace, keeps_ids: false, call: Box::new(call) }
}

fn in_process(world: &World) -> Way<'_> {
    let call = move |tool: &str, input: &Value| {
        let ran = world.run(&["call", "--local", &format!("local__{tool}"), &input.to_string()]);
        exit_answer(ran.code, &ran.stdout)
    };
    Way {
        name: "in-process",
        workspace: world.workspace().display().to_string(),
        keeps_ids: false,
        call: Box::new(call),
    }
}

/// The same files with the same times.
fn furnish(world: &World) {
    let png = [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, b'I', b'H', b'D', b'R'];
    let many: String = (1..=150).map(|line| format!("needle {line}\r\n")).collect();
    let files: [(&str, &[u8]); 6] = [
        ("a.txt", b"one\ntwo\nthree\n"),
        ("deep/er/b.txt", "zwei\nno final newline \u{e4}".as_bytes()),
        ("many.txt", many.as_bytes()),
        ("empty.txt", b""),
        ("binary.bin", &[0, 159, 146, 150, 0]),
        ("photo.png", &png),
    ];
    for (number, (name, content)) in files.into_iter().enumerate() {
        let path = world.write(name, "");
        std::fs::write(&path, content).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + number as u64);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    }
}

/// In this order on every machine.
fn cases() -> Vec<(&'static str, Value)> {
    vec![
        ("Read", json!({"path": "a.txt"})),
        ("Read", json!({"path": "deep/er/b.txt"})),
        ("Read", json!({"path": "many.txt", "offset": 100, "limit": 3})),
        ("Read", json!({"path": "a.txt", "offset": 99})),
        ("Read", json!({"path": "empty.txt"})),
        ("Read", json!({"path": "photo.png"})),
        ("Read", json!({"path": "binary.bin"})),
        ("Read", json!({"path": "missing.txt"})),
        ("Read", json!({"path": "deep"})),
        ("Read", json!({"path": "a.txt/below"})),
        ("Read", json!({})),
        ("Read", json!({"pathh": "a.txt", "offset": "one"})),
        ("Read", json!([1])),
        ("Write", json!({"path": "new/file.txt", "content": "fresh \u{1f600}\n"})),
        ("Write", json!({"path": "a.txt", "content": "one\ntwo\ntwo\n"})),
        ("Write", json!({"path": "deep", "content": "x"})),
        ("Write", json!({"path": "a.txt/below", "content": "x"})),
        ("Write", json!({"path": "/proc/nothing-here", "content": "x"})),
        ("Edit", json!({"path": "a.txt", "oldString": "one", "newString": "1"})),
        ("Edit", json!({"path": "a.txt", "oldString": "two", "newString": "2"})),
        ("Edit", json!({"path": "a.txt", "oldString": "two", "newString": "2", "replaceAll": true})),
        ("Edit", json!({"path": "a.txt", "oldString": "twelve", "newString": "12"})),
        ("Edit", json!({"path": "a.txt", "oldString": "", "newString": "12"})),
        ("Edit", json!({"path": "a.txt", "oldString": "2", "newString": "3", "tag": "stale"})),
        ("Edit", json!({"path": "missing.txt", "oldString": "a", "newString": "b"})),
        ("Edit", json!({"path": "many.txt", "oldString": "needle 7\nneedle 8\n", "newString": "7\n8\n"})),
        ("Read", json!({"path": "a.txt"})),
        ("Glob", json!({"pattern": "**/*.txt"})),
        ("Glob", json!({"pattern": "*.{png,bin}"})),
        ("Glob", json!({"pattern": "nothing-*"})),
        ("Glob", json!({"pattern": "[a"})),
        ("Glob", json!({"pattern": "*", "path": "missing"})),
        ("Grep", json!({"pattern": "needle 1\\d\\b"})),
        ("Grep", json!({"pattern": "needle"})),
        ("Grep", json!({"pattern": "zwei", "include": "*.{txt,md}"})),
        ("Grep", json!({"pattern": "(", "path": "."})),
        ("Grep", json!({"pattern": "x", "path": "missing"})),
        ("Bash", json!({"command": "echo out; echo err >&2; pwd; exit 3"})),
        ("Bash", json!({"command": "pwd", "workdir": "deep/er"})),
        ("Bash", json!({"command": "true", "workdir": "missing"})),
        ("Bash", json!({"command": "sleep 30", "timeout": 100})),
        ("Bash", json!({"command": "kill -SEGV $$"})),
        ("Bash", json!({"command": "cat; echo end"})),
        ("Bash", json!({"command": "  "})),
        ("Bash", json!({"command": "echo quick", "yieldMs": 20_000})),
        ("Bash", json!({"command": "head -c 300000 /dev/zero | tr '\\0' x"})),
        ("Bash", json!({"command": "env | grep -c GANTRY"})),
        ("Process", json!({"action": "list"})),
        ("Process", json!({"action": "poll", "sessionId": "no-such-session"})),
        ("Process", json!({"action": "log"})),
        ("Process", json!({"action": "dance"})),
    ]
}

fn workspace(machine: &Machine) -> String {
    machine.world.workspace().display().to_string()
}

#[test]
fn every_tool_answers_the_same_over_every_surface() {
    let fleet = Fleet::start();
    let (one, two, three) = (fleet.join("one"), fleet.join("two"), fleet.join("three"));
    let alone = World::new();
    [&one.world, &two.world, &three.world, &alone].into_iter().for_each(furnish);
    let socket = Socket::connect(fleet.address, &fleet.token);
    let expected = in_process(&alone);
    let ways = [
        through_http(&fleet, "one", workspace(&one)),
        through_websocket(&socket, "two", workspace(&two)),
        through_command_line(&fleet, "three", workspace(&three)),
    ];
    let mut differences = Vec::new();
    for (tool, input) in cases() {
        let expected = expected.call(tool, &input);
        for way in &ways {
            let answer = way.call(tool, &input);
            if answer != expected {
                differences.push(format!(
                    "{tool} {input} by {}:\n  {answer:?}\n  in-process:\n  {expected:?}",
                    way.name
                ));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    for machine in [&one, &two, &three] {
        for name in ["a.txt", "new/file.txt", "many.txt"] {
            let (here, there) =
                (std::fs::read(alone.workspace().join(name)), std::fs::read(machine.path(name)));
            assert_eq!(here.unwrap(), there.unwrap(), "{name} on {}", machine.id);
        }
    }
    assert!(socket.answered_twice().is_empty());
}

/// What a session's life looks like, step by step. One-shot calls have none, so the gateway's own machine is the measure.
fn life(mut way: Way<'_>) -> Vec<Value> {
    way.keeps_ids = true;
    let way = &way;
    let call = |tool: &str, input: Value| {
        let answer = way.call(tool, &input);
        assert!(matches!(answer, Answer::Success(_)), "{}: {tool} {input}: {answer:?}", way.name);
        answer.value().clone()
    };
    let id = |started: &Value| started["sessionId"].as_str().unwrap().to_owned();
    let mut steps = Vec::new();
    let command = "echo ready; read line; echo \"got $line\"; exit 3";
    let asking = call("Bash", json!({"command": command, "background": true}));
    let process = |action: &str, session: &str, more: Value| {
        let mut input = json!({"action": action, "sessionId": session});
        for (name, value) in more.as_object().unwrap() {
            input[name] = value.clone();
        }
        call("Process", input)
    };
    let wait = |session: &str| {
        for _ in 0..50 {
            let polled = process("poll", session, json!({"waitMs": 5_000}));
            if polled["running"] == false {
                return polled;
            }
        }
        panic!("{}: {session} does not end", way.name);
    };
    let session = id(&asking);
    steps.push(process("submit", &session, json!({"data": "an answer"})));
    steps.push(wait(&session));
    steps.push(process("log", &session, json!({})));
    steps.push(process("log", &session, json!({"offset": 1, "limit": 1})));
    let reading = call("Bash", json!({"command": "cat; echo over", "background": true}));
    let session = id(&reading);
    steps.push(process("write", &session, json!({"data": "a"})));
    steps.push(process("write", &session, json!({"data": "b\n"})));
    steps.push(process("close", &session, json!({})));
    steps.push(wait(&session));
    let lasting = call("Bash", json!({"command": "echo begun; sleep 1000", "yieldMs": 500}));
    let session = id(&lasting);
    steps.push(process("kill", &session, json!({})));
    steps.push(wait(&session));
    let listed = call("Process", json!({"action": "list"}));
    steps.extend([asking, reading, lasting, listed]);
    // How far a command came by then is a matter of luck.
    steps.iter_mut().filter(|step| step["status"] == "running").for_each(|step| step["tail"] = json!(""));
    steps.iter_mut().for_each(forget_ids);
    steps
}

fn forget_ids(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(forget_ids),
        Value::Object(fields) => {
            for (name, field) in fields {
                if name == "sessionId" {
                    *field = json!("SESSION");
                }
                forget_ids(field);
            }
        }
        _ => {}
    }
}

#[test]
fn process_sessions_behave_the_same_over_every_surface() {
    let fleet = Fleet::start();
    let (one, two, three) = (fleet.join("one"), fleet.join("two"), fleet.join("three"));
    let socket = Socket::connect(fleet.address, &fleet.token);
    let expected = life(through_http(&fleet, "local", fleet.world.workspace().display().to_string()));
    for way in [
        through_http(&fleet, "one", workspace(&one)),
        through_websocket(&socket, "two", workspace(&two)),
        through_command_line(&fleet, "three", workspace(&three)),
    ] {
        let name = way.name;
        let steps = life(way);
        assert_eq!(steps.len(), expected.len());
        for (step, expected) in steps.iter().zip(&expected) {
            assert_eq!(step, expected, "by {name}");
        }
    }
    assert_eq!(expected[1]["exitCode"], 3);
    assert_eq!(expected[2]["lines"], json!(["ready", "got an answer"]));
}
