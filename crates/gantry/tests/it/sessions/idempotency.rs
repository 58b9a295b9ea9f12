//! `Idempotency-Key` on `/v1/chat/completions`: a run has its effect once, and every repetition gets its answer.

use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_model::testing::Turn;
use gantry_testkit::{Gateway, Proxy, Response, World, eventually};
use serde_json::{Value, json};

use super::openai::said;
use super::{Model, call, results};
use crate::mcp::clients::installed;

const PATH: &str = "/v1/chat/completions";

/// An agent that leaves a line in `notes` each time it runs the command of its first message.
fn model() -> Model {
    Model::deciding(|heard| match (heard.body["messages"].to_string(), results(heard)) {
        (said, 0) if said.contains("slowly") => {
            call("Bash", json!({"command": "echo ran >> notes; sleep 1; echo slow"}))
        }
        (said, 0) if said.contains("forever") => {
            call("Bash", json!({"command": "echo ran >> notes; sleep 60"}))
        }
        (_, 0) => call("Bash", json!({"command": "echo ran >> notes; date +%N"})),
        _ => Turn { piece: Some(4), ..Turn::text(format!("it said {}", heard.last_text())) },
    })
}

fn body(text: &str, stream: bool) -> String {
    json!({"model": "main", "messages": [{"role": "user", "content": text}], "stream": stream}).to_string()
}

fn ask(up: &Gateway, key: &str, text: &str, stream: bool) -> Response {
    up.ask("POST", PATH, &[("Idempotency-Key", key)], body(text, stream).as_bytes())
}

fn runs(world: &World) -> usize {
    std::fs::read_to_string(world.workspace().join("notes")).unwrap_or_default().lines().count()
}

/// The id of an answer, whole or streamed.
fn id(answer: &Response) -> String {
    let text = answer.text();
    text.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default().to_owned()
}

#[test]
fn repeated_completion_gets_the_first_answer_and_runs_nothing() {
    let model = model();
    let world = model.world("autonomy = \"guided\"");
    let mut up = Gateway::start(&world);
    let mut expected = 0;
    for (key, stream) in [("whole", false), ("streamed", true)] {
        let first = ask(&up, key, "run it", stream);
        expected += 1;
        let (text, _) = said(&first, stream);
        assert!(text.contains("it said") && first.header("idempotency-replayed").is_none(), "{text}");
        assert_eq!(runs(&world), expected);
        for restarts in [false, true] {
            if restarts {
                drop(up);
                up = Gateway::start(&world);
            }
            let again = ask(&up, key, "run it", stream);
            assert_eq!(said(&again, stream).0, text);
            assert_eq!(id(&again), id(&first));
            assert_eq!(again.header("idempotency-replayed"), Some("true"));
            for same in ["gantry-session", "content-type"] {
                assert!(first.header(same).is_some());
                assert_eq!(again.header(same), first.header(same), "{same}");
            }
        }
        for other in [body("run it again", stream), body("run it", !stream)] {
            let refused = up.ask("POST", PATH, &[("Idempotency-Key", key)], other.as_bytes());
            assert_eq!((refused.status, refused.code().as_str()), (422, "conflict"), "{}", refused.text());
        }
        let session = [("Idempotency-Key", key), ("Gantry-Session", "named")];
        assert_eq!(up.ask("POST", PATH, &session, body("run it", stream).as_bytes()).status, 422);
        assert_eq!(up.call_with("local__Bash", &json!({"command": "true"}), &session[..1]).status, 422);
        assert_eq!(runs(&world), expected, "no repetition ran");
        let token = format!("Bearer {}", up.client_token(&world, key, &["--agents", "main"]));
        let theirs = [("Idempotency-Key", key), ("Authorization", token.as_str())];
        let other_caller = up.ask("POST", PATH, &theirs, body("run it", stream).as_bytes());
        expected += 1;
        assert_ne!(said(&other_caller, stream).0, text);
        assert_eq!(runs(&world), expected, "another principal's key is another key");
    }
    model.check();
}

#[test]
fn repetition_waits_for_the_run_in_progress() {
    let model = model();
    let world = model.world("autonomy = \"guided\"");
    let up = Gateway::start(&world);
    for (expected, stream) in [(1, false), (2, true)] {
        let answers: Vec<Response> = std::thread::scope(|scope| {
            let asking: Vec<_> =
                (0..4).map(|_| scope.spawn(|| ask(&up, &format!("k{stream}"), "slowly", stream))).collect();
            asking.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for answer in &answers {
            assert!(said(answer, stream).0.contains("slow"), "{}", answer.text());
            assert_eq!(id(answer), id(&answers[0]));
        }
        let first = answers.iter().filter(|answer| answer.header("idempotency-replayed").is_none());
        assert_eq!(first.count(), 1);
        assert_eq!(runs(&world), expected);
    }
    model.check();
}

#[test]
fn run_with_a_key_continues_after_a_disconnect_and_a_crash() {
    let model = model();
    let world = model.world("autonomy = \"guided\"");
    let mut up = Gateway::start(&world);
    let begin = |up: &Gateway, key: &str, text: &str, stream: bool| {
        let before = runs(&world);
        let mut connection = up.connection();
        connection.begin(up, "POST", PATH, &[("Idempotency-Key", key)], body(text, stream).as_bytes());
        eventually("the command runs", Duration::from_secs(20), || runs(&world) > before);
        connection
    };
    let mut expected = 0;
    for stream in [false, true] {
        drop(begin(&up, &format!("cut{stream}"), "slowly", stream));
        expected += 1;
        let (text, _) = said(&ask(&up, &format!("cut{stream}"), "slowly", stream), stream);
        assert!(text.contains("slow"), "{text}");

        // The command has no known outcome then, and the agent learns that instead of running it again.
        let connection = begin(&up, &format!("kill{stream}"), "forever", stream);
        expected += 1;
        up.kill();
        drop(connection);
        up = Gateway::start(&world);
        let again = ask(&up, &format!("kill{stream}"), "forever", stream);
        let (text, _) = said(&again, stream);
        assert!(text.contains("it said"), "{text}");
        assert_eq!(runs(&world), expected, "{text}");
        let third = ask(&up, &format!("kill{stream}"), "forever", stream);
        assert_eq!((said(&third, stream).0, third.header("idempotency-replayed")), (text, Some("true")));
    }
    model.check();
}

#[test]
fn rejected_completion_does_not_use_up_its_key() {
    let model = model();
    let world = model.world("autonomy = \"guided\"");
    let up = Gateway::start(&world);
    let named = [("Idempotency-Key", "k"), ("Gantry-Session", "agent:other:x")];
    assert_eq!(up.ask("POST", PATH, &named, body("run it", false).as_bytes()).status, 400);
    assert_eq!(ask(&up, "k", "/status", false).status, 400);
    assert_eq!(runs(&world), 0);
    assert_eq!(said(&ask(&up, "k", "run it", false), false).1, "stop");
    assert_eq!(runs(&world), 1);
    let twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")];
    assert_eq!(up.ask("POST", PATH, &twice, body("run it", false).as_bytes()).status, 400);
    assert_eq!(runs(&world), 1);
    model.check();
}

const RETRYING: &str = r#"
import json, os, sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1], api_key=os.environ["TOKEN"], max_retries=8)
ask = dict(model="main", messages=[{"role": "user", "content": "slowly"}])
ask["extra_headers"] = {"Idempotency-Key": "from-python"}
answer = client.chat.completions.with_raw_response.create(**ask)
text = answer.parse().choices[0].message.content
print(json.dumps({"text": text, "retries": answer.retries_taken}))
"#;

/// The SDK retries by itself when the connection is lost. It does not send a key unless its user gives one.
#[test]
fn openai_python_client_retries_without_a_second_effect() {
    let model = model();
    let world = model.world("autonomy = \"guided\"");
    let up = Gateway::start(&world);
    let proxy = Proxy::to(up.address);
    let mut python = Command::new(installed("venv/bin/python"));
    python.args(["-c", RETRYING, &format!("http://{}/v1", proxy.address)]).env("TOKEN", &up.token);
    let running = python.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the command runs", Duration::from_secs(30), || runs(&world) == 1);
    proxy.cut();
    proxy.heal();
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(seen["text"].as_str().unwrap().contains("slow") && seen["retries"].as_u64() > Some(0), "{seen}");
    assert_eq!(runs(&world), 1);
    model.check();
}
