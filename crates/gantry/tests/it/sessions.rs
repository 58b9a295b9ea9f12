//! Agents in a real gateway, with a scripted server in place of a model.

use std::process::Stdio;
use std::time::Duration;

use gantry_model::testing::{Heard, KEY, Say, Script, ScriptedServer, Turn};
use gantry_testkit::peers::{Client, runtime};
use gantry_testkit::{Gateway, Process, Response, World, eventually};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

mod border;
mod border_attacks;
mod budgets;
mod children;
mod escalation;
mod flow;
mod following;
mod google_flow;
mod grants;
mod idempotency;
mod installs;
mod isolated;
mod kills;
mod live_agents;
mod node_questions;
mod openai;
mod ports;
mod real_model;
mod slow_listeners;
mod terminal;
mod wire;

/// Nothing that runs on this machine takes part.
const NOBODY: &str = "[models]\n";

pub(crate) struct Model {
    _runtime: Runtime,
    server: ScriptedServer,
}

impl Model {
    pub(crate) fn deciding(decide: impl Fn(&Heard) -> Turn + Send + Sync + 'static) -> Model {
        Model::of(Script::default(), decide)
    }

    fn of(script: Script, decide: impl Fn(&Heard) -> Turn + Send + Sync + 'static) -> Model {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(ScriptedServer::deciding(script, decide));
        Model { _runtime: runtime, server }
    }

    /// A world whose agents speak with this model.
    pub(crate) fn world(&self, agent: &str) -> World {
        let world = World::new();
        world.configure(&format!(
            "{NOBODY}[models.providers.lab]\nbaseUrl = \"{}\"\nkey = \"{KEY}\"\n\
             [models.providers.lab.models.scripted-1]\ncontextWindow = 100000\n[agents.main]\n{agent}\n",
            self.server.base_url()
        ));
        world
    }

    /// The number of requests that the model got.
    pub(crate) fn asked(&self) -> usize {
        self.server.requests().len()
    }

    pub(crate) fn base_url(&self) -> String {
        self.server.base_url().to_string()
    }

    pub(crate) fn check(&self) {
        assert_eq!(self.server.violations(), [""; 0]);
    }
}

/// A second machine of the owner's, named `far`.
pub(crate) struct Far {
    _node: Process,
    pub(crate) world: World,
}

impl Far {
    pub(crate) fn join(gateway: &World, up: &Gateway) -> Far {
        Far::join_configured(gateway, up, "")
    }

    pub(crate) fn join_configured(gateway: &World, up: &Gateway, config: &str) -> Far {
        let world = World::new();
        world.configure(config);
        let token = up.add_node(gateway, "far", &[]);
        let mut command = world.command(&["node", "--gateway", &up.url, "--id", "far"]);
        command.env("GANTRY_TOKEN", token).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let far = Far { _node: Process::spawn(&mut command), world };
        eventually("the node is there", Duration::from_secs(20), || up.node("far")["online"] == true);
        far
    }
}

/// How many results the model was given since the last message of the user.
pub(crate) fn results(heard: &Heard) -> usize {
    heard.body["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "tool").count()
}

pub(crate) fn call(name: &str, input: Value) -> Turn {
    Turn { say: vec![Say::Call { name: name.into(), input }], ..Turn::default() }
}

fn events(body: &[u8]) -> Vec<Value> {
    let text = String::from_utf8(body.to_vec()).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

pub(crate) fn post(up: &Gateway, key: &str, body: &Value, headers: &[(&str, &str)]) -> Response {
    let path = format!("/v1/sessions/{key}/messages");
    up.ask("POST", &path, headers, body.to_string().as_bytes())
}

#[test]
fn one_shot_chat_calls_a_tool_and_is_stored() {
    let model = Model::deciding(|heard| match results(heard) {
        0 => call("Read", json!({"path": "a.txt"})),
        _ => Turn::text(format!(
            "it says {}",
            if heard.last_text().contains("forty-two") { "42" } else { "?" }
        )),
    });
    let world = model.world("autonomy = \"guided\"");
    world.write("a.txt", "forty-two\n");
    // Without a gateway one is started for the message.
    let ran = world.run(&["chat", "What does a.txt say?"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "it says 42\n"), "{}", ran.stderr);

    let up = Gateway::start(&world);
    let listed = world.run(&["sessions", "list", "--json"]).json();
    assert_eq!(listed["sessions"][0]["sessionKey"], "agent:main:main", "{listed}");
    let shown = world.run(&["sessions", "show", "main"]);
    assert!(
        shown.stdout.contains("What does a.txt say?") && shown.stdout.contains("it says 42"),
        "{shown:?}"
    );
    let exported = world.run(&["sessions", "export", "main"]);
    let kinds: Vec<String> = exported
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["kind"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds.first().map(String::as_str), Some("message_in"));
    assert_eq!(kinds.last().map(String::as_str), Some("run_ended"));
    let reported = world.run(&["chat", "--json", "again"]);
    let last: Value = serde_json::from_str(reported.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(
        (last["event"].as_str(), last["text"].as_str()),
        (Some("final"), Some("it says ?")),
        "{reported:?}"
    );
    assert!(world.run(&["sessions", "reset", "main"]).stdout.contains("was reset"));
    for action in ["show", "export", "reset", "compact", "stop"] {
        let wrong = world.run(&["sessions", action, "mian"]);
        assert!(wrong.code == 2 && wrong.stderr.contains("did you mean \"agent:main:main\"?"), "{wrong:?}");
    }
    let answered = world.run(&["sessions", "answer", "mian", "yes"]);
    assert!(answered.code == 2 && answered.stderr.contains("did you mean"), "{answered:?}");
    assert_eq!(world.run(&["sessions", "--json"]).json()["total"], 1, "none of them made one");
    assert_eq!(world.run(&["agents", "--json"]).json()[0]["id"], "main");
    drop(up);
    model.check();
}

#[test]
fn http_messages_stream_events() {
    let model = Model::deciding(|heard| match results(heard) {
        0 => call("Glob", json!({"pattern": "*"})),
        _ => Turn { piece: Some(3), ..Turn::text("all is well") },
    });
    let world = model.world("autonomy = \"guided\"");
    let up = Gateway::start(&world);
    let message = json!({"message": "how is it?", "id": "m-1", "replyTo": {"chat": 7}});
    let answer = post(&up, "main", &message, &[("Accept", "text/event-stream")]);
    assert_eq!(answer.status, 200);
    let events = events(&answer.body);
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    for name in ["accepted", "run_begun", "tool_start", "tool_end", "text", "final"] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    let last = events.last().unwrap();
    assert_eq!(
        (last["text"].as_str(), &last["messages"][0]["replyTo"]),
        (Some("all is well"), &json!({"chat": 7}))
    );
    // The same message again is answered as it was, without a stream too.
    let again = post(&up, "main", &message, &[]).json();
    assert_eq!((again["status"].as_str(), again["reply"].as_str()), (Some("final"), Some("all is well")));
    let status = up.get("/v1/sessions/main").json();
    assert_eq!((&status["runs"], &status["running"]), (&json!(1), &Value::Null), "{status}");
    let history = up.get("/v1/sessions/main/events?limit=3").json();
    assert_eq!((history["events"].as_array().unwrap().len(), &history["next"]), (3, &json!(3)));
    for (path, status) in [
        ("/v1/sessions/agent:nobody:main", 400),
        ("/v1/sessions/a:b", 400),
        ("/v1/sessions/mian", 400),
        ("/v1/sessions?limit=x", 400),
        ("/v1/sessions", 200),
        ("/v1/agents", 200),
    ] {
        assert_eq!(up.get(path).status, status, "{path}");
    }
    for bad in
        [json!({}), json!({"message": ""}), json!({"message": "x", "more": 1}), json!({"message": "/stopp"})]
    {
        assert_eq!(post(&up, "main", &bad, &[]).status, 400, "{bad}");
    }
    model.check();
}

#[test]
fn token_reaches_only_sessions_of_its_agents() {
    let model = Model::deciding(|_| Turn::text("hello"));
    let world = model.world("");
    let up = Gateway::start(&world);
    let stranger = format!("Bearer {}", up.client_token(&world, "stranger", &[]));
    let reader =
        format!("Bearer {}", up.client_token(&world, "reader", &["--agents", "main", "--read-only"]));
    let friend = format!("Bearer {}", up.client_token(&world, "friend", &["--agents", "main"]));
    let say = json!({"message": "hi"});
    assert_eq!(post(&up, "main", &say, &[]).status, 200);
    let narrow = ["--agents", "main", "--tools", "Read"];
    let narrow_token = up.client_token(&world, "narrow", &narrow);
    let narrow = format!("Bearer {narrow_token}");
    let tokens = [(&stranger, 403, 403), (&reader, 403, 200), (&narrow, 403, 200), (&friend, 200, 200)];
    for (token, speaks, reads) in tokens {
        let header = [("Authorization", token.as_str())];
        assert_eq!(post(&up, "main", &say, &header).status, speaks, "{token}");
        assert_eq!(up.ask("GET", "/v1/sessions/main", &header, b"").status, reads, "{token}");
        let answer = up.ask("POST", "/v1/sessions/main/answers", &header, br#"{"answer": "yes"}"#);
        assert_eq!(answer.status, if speaks == 200 { 400 } else { 403 }, "nothing is asked: {answer:?}");
    }
    // Nor does a tool lead there.
    for (tool, input) in [
        ("gsv__SessionSend", json!({"sessionKey": "main", "message": "hi"})),
        ("gsv__SessionsList", json!({})),
    ] {
        let answer = up.call_with(tool, &input, &[("Authorization", &friend)]);
        assert_eq!(answer.status, 403, "{answer:?}");
    }
    let listed = up.ask("GET", "/v1/sessions", &[("Authorization", &stranger)], b"").json();
    assert_eq!(listed, json!({"sessions": [], "total": 0}));
    let listed = up.ask("GET", "/v1/sessions", &[("Authorization", &friend)], b"").json();
    assert_eq!(listed["total"], 1, "{listed}");
    let message = post(&up, "main", &say, &[("Authorization", &narrow)]).json()["error"]["message"].clone();
    assert!(message.as_str().unwrap().contains("is limited to some tools"), "{message}");
    let completion = json!({"model": "main", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let narrow = [("Authorization", narrow.as_str())];
    let completed = up.ask("POST", "/v1/chat/completions", &narrow, completion.as_bytes());
    assert_eq!(completed.status, 403, "{completed:?}");
    runtime().block_on(async {
        let client = Client::connect(&up, &narrow_token).await.unwrap();
        for (method, params) in [
            ("sessions.send", json!({"sessionKey": "main", "message": "hi"})),
            ("sessions.answer", json!({"sessionKey": "main", "answer": "yes"})),
        ] {
            let error = client.ask(method, params).await.unwrap_err();
            assert!(error.message.contains("is limited to some tools"), "{method}: {error:?}");
        }
        let listed = client.ask("sessions.list", json!({})).await.unwrap();
        assert_eq!(listed["total"], 1, "{listed}");
    });
    model.check();
}

#[test]
fn approval_request_survives_gateway_restart() {
    let model = Model::deciding(|heard| match results(heard) {
        0 => call("Bash", json!({"command": "echo done >> notes"})),
        _ => Turn::text("finished"),
    });
    let world = model.world("autonomy = \"supervised\"");
    let up = Gateway::start(&world);
    let asked = world.run(&["chat", "do it"]);
    assert_eq!(asked.code, 3, "{asked:?}");
    assert_eq!(asked.json()["error"]["code"], "approval_needed");
    let message = asked.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("$ echo done >> notes"), "the command is shown: {message}");
    // A second message would wait behind the question.
    let begun = std::time::Instant::now();
    let second = world.run(&["chat", "and now this"]);
    assert_eq!(second.code, 3, "{second:?}");
    assert!(second.stderr.contains("the message was not sent"), "{second:?}");
    assert!(second.stderr.contains("gantry sessions answer"), "{second:?}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let question = up.get("/v1/sessions/main").json()["questions"][0]["id"].clone();
    let listed = up.get("/v1/sessions").json()["sessions"][0].clone();
    assert_eq!((&listed["running"], &listed["waiting"]), (&json!(true), &json!(true)), "{listed}");
    assert_eq!(listed["label"], "do it", "the first words say which conversation it is");
    up.kill();
    let notes = world.workspace().join("notes");
    assert!(!notes.exists());
    let up = Gateway::start(&world);
    let status = up.get("/v1/sessions/main").json();
    assert_eq!(status["questions"][0]["id"], question, "{status}");
    let answered = world.run(&["sessions", "answer", "main", "yes"]);
    assert_eq!(answered.code, 0, "{answered:?}");
    eventually("the run ends", Duration::from_secs(20), || {
        up.get("/v1/sessions/main").json()["running"].is_null()
    });
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "done\n");
    assert!(world.run(&["sessions", "show", "main"]).stdout.contains("finished"));
    assert_eq!(up.get("/v1/sessions").json()["sessions"][0]["waiting"], false);
    assert_eq!(world.run(&["sessions", "answer", "main", "yes"]).code, 2, "nothing is asked any more");
    model.check();
}

#[test]
fn approval_also_applies_to_calls_on_nodes() {
    let model = Model::deciding(|heard| match results(heard) {
        0 => call("Bash", json!({"command": "echo done >> notes", "node": "far"})),
        _ => Turn::text("finished"),
    });
    let world = model.world("autonomy = \"supervised\"");
    let up = Gateway::start(&world);
    let far = Far::join(&world, &up);
    let asked = world.run(&["chat", "do it"]);
    assert_eq!(
        (asked.code, asked.json()["error"]["code"].as_str()),
        (3, Some("approval_needed")),
        "{asked:?}"
    );
    let notes = far.world.workspace().join("notes");
    assert!(!notes.exists(), "nothing runs before the answer");
    assert_eq!(world.run(&["sessions", "answer", "main", "yes"]).code, 0);
    eventually("the run ends", Duration::from_secs(20), || {
        up.get("/v1/sessions/main").json()["running"].is_null()
    });
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "done\n");
    model.check();
}

#[test]
fn session_send_returns_the_reply_to_its_own_message() {
    let model = Model::deciding(|heard| {
        let last = heard.last_text();
        if last.trim_start_matches('"').starts_with("[message from agent:main:main]") {
            return Turn::text("the other one says hello");
        }
        match results(heard) {
            0 if last.contains("own") => {
                call("gsv__SessionSend", json!({"sessionKey": "main", "message": "me?"}))
            }
            0 if last.contains("new") => {
                call("gsv__SessionSend", json!({"sessionKey": "agent:main:sidf", "message": "work"}))
            }
            0 if last.contains("here") => Turn::text("yes"),
            0 => call("gsv__SessionSend", json!({"sessionKey": "agent:main:side", "message": "say hello"})),
            1 => call("gsv__SessionsList", json!({"messageLimit": 5})),
            _ => Turn::text(last),
        }
    });
    let world = model.world("autonomy = \"guided\"");
    let up = Gateway::start(&world);
    post(&up, "side", &json!({"message": "are you here?"}), &[]);
    let reported = post(&up, "main", &json!({"message": "ask the other one"}), &[]).json();
    let reply = reported["reply"].as_str().unwrap_or_default();
    assert!(reply.contains("agent:main:side") && reply.contains("the other one says hello"), "{reported}");
    world.run(&["sessions", "reset", "main"]);
    let reported = post(&up, "main", &json!({"message": "your own"}), &[]).json();
    let history = up.get("/v1/sessions/main/events").json().to_string();
    assert!(history.contains("this is your own session"), "{reported}");
    // By speaking it makes none.
    world.run(&["sessions", "reset", "main"]);
    post(&up, "main", &json!({"message": "a new one"}), &[]);
    let history = up.get("/v1/sessions/main/events").json().to_string();
    assert!(history.contains("agent:main:sidf") && history.contains("agent:main:side"), "{history}");
    assert_eq!(up.get("/v1/sessions").json()["total"], 2);
    let direct =
        up.call("gsv__SessionSend", &json!({"sessionKey": "side", "message": "hi", "waitSeconds": 0})).json();
    assert_eq!(direct["result"]["status"], "accepted", "{direct}");
    let wrong = up.call("gsv__SessionSend", &json!({"sessionKey": "agent:mian:x", "message": "hi"}));
    assert_eq!(wrong.status, 422, "{wrong:?}");
    model.check();
}

#[test]
fn user_question_is_answered_after_gateway_restart() {
    let model = Model::deciding(|heard| match results(heard) {
        0 => call("ask_user", json!({"question": "Which colour?", "options": ["red", "blue"]})),
        _ => Turn::text(if heard.last_text().contains("blue") { "blue it is" } else { "?" }),
    });
    let world = model.world("autonomy = \"guided\"");
    let up = Gateway::start(&world);
    let asked = world.run(&["chat", "paint it"]);
    assert_eq!(asked.code, 3, "{asked:?}");
    assert!(asked.stderr.contains("Which colour?"), "{asked:?}");
    up.kill();
    let up = Gateway::start(&world);
    let status = up.get("/v1/sessions/main").json();
    assert_eq!(status["asks"][0]["questions"][0]["options"], json!(["red", "blue"]), "{status}");
    assert_eq!(world.run(&["sessions", "answer", "main", "red", "blue"]).code, 2, "one answer is wanted");
    assert_eq!(world.run(&["sessions", "answer", "main", "blue"]).code, 0);
    eventually("the run ends", Duration::from_secs(20), || {
        up.get("/v1/sessions/main").json()["running"].is_null()
    });
    assert!(world.run(&["sessions", "show", "main"]).stdout.contains("blue it is"));
    model.check();
}

#[test]
fn chat_completions_endpoint_runs_agents() {
    let model = Model::deciding(|heard| match results(heard) {
        0 if heard.last_text().contains("file") => call("Glob", json!({"pattern": "*"})),
        _ => Turn {
            piece: Some(2),
            ..Turn::text(if heard.last_text().contains("blue") { "you like blue" } else { "hello there" })
        },
    });
    let world = model.world("autonomy = \"guided\"");
    let up = Gateway::start(&world);
    let ask = |body: &Value, headers: &[(&str, &str)]| {
        up.ask("POST", "/v1/chat/completions", headers, body.to_string().as_bytes())
    };
    assert_eq!(up.get("/v1/models").json()["data"][0]["id"], "main");
    let reported =
        ask(&json!({"model": "main", "messages": [{"role": "user", "content": "which file?"}]}), &[]).json();
    let choice = &reported["choices"][0];
    assert_eq!(
        (choice["message"]["content"].as_str(), choice["finish_reason"].as_str()),
        (Some("hello there"), Some("stop")),
        "{reported}"
    );
    assert!(reported["usage"]["total_tokens"].as_u64().unwrap() > 0, "{reported}");
    let history = json!([{"role": "system", "content": "x"}, {"role": "user", "content": "I like blue"},
        {"role": "assistant", "content": "ok"}, {"role": "user", "content": [{"type": "text", "text": "what do I like?"}]}]);
    let reported = ask(&json!({"model": "main", "messages": history, "temperature": 0.1}), &[]).json();
    assert_eq!(reported["choices"][0]["message"]["content"], "you like blue");
    let body = json!({"model": "main", "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "which file?"}]});
    let streamed = ask(&body, &[("Gantry-Session", "kept")]);
    let text = String::from_utf8(streamed.body).unwrap();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    let chunks: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter_map(|data| serde_json::from_str(data).ok())
        .collect();
    let said: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(said, "hello there", "{text}");
    assert!(chunks.len() > 4 && chunks.last().unwrap()["usage"]["total_tokens"].is_u64(), "{text}");
    assert_eq!(up.get("/v1/sessions/kept").status, 200, "a named conversation is kept");
    for (body, status) in [
        (json!({"model": "mian", "messages": [{"role": "user", "content": "x"}]}), 404),
        (json!({"model": "main", "messages": []}), 400),
        (json!({"model": "main", "messages": [{"role": "assistant", "content": "x"}]}), 400),
        (json!({"model": "main", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}), 400),
        (json!({"model": "main", "tools": [{}], "messages": [{"role": "user", "content": "x"}]}), 400),
    ] {
        assert_eq!(ask(&body, &[]).status, status, "{body}");
    }
    model.check();
}

#[test]
fn missing_model_error_lists_ways_to_configure_one() {
    let world = World::new();
    let nobody = [("OLLAMA_HOST", "127.0.0.1:1025"), ("LLAMA_ARG_PORT", "1025")];
    let ran = world.run_with(&["chat", "hello"], &nobody);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("ANTHROPIC_API_KEY or OPENAI_API_KEY"), "{}", ran.stderr);
    for args in [&["chat", "--session", "a:b", "x"][..], &["chat", "--agent", "nobody", "x"], &["chat", "-"]]
    {
        assert_eq!(world.run_with(args, &nobody).code, 2, "{args:?}");
    }
}

#[test]
fn session_names_must_be_canonical_and_match_the_agent() {
    let model = Model::deciding(|_| Turn::text("hello"));
    let world = model.world("autonomy = \"guided\"\n[agents.other]");
    let up = Gateway::start(&world);
    let reported = post(&up, "f1Read", &json!({"message": "hi"}), &[]);
    assert!(
        reported.status == 400 && reported.json().to_string().contains("agent:main:f1read"),
        "{reported:?}"
    );
    let ran = world.run(&["chat", "--session", "Work", "hi"]);
    assert!(ran.code == 2 && ran.stderr.contains("agent:main:work"), "{ran:?}");
    let complete = |model: &str, session: &str| {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}).to_string();
        up.ask("POST", "/v1/chat/completions", &[("Gantry-Session", session)], body.as_bytes())
    };
    let refused = complete("main", "agent:other:x");
    assert!(
        refused.status == 400 && refused.json().to_string().contains("the agent \\\"other\\\""),
        "{refused:?}"
    );
    assert_eq!(complete("other", "agent:other:x").status, 200);
    assert_eq!(complete("main", "x").json()["model"], "main");
    model.check();
}

#[test]
fn agent_messages_only_permitted_agents() {
    let model = Model::deciding(|heard| {
        let text = heard.body["messages"].to_string();
        let to = if text.contains("write to boss") { "boss" } else { "friend" };
        match (text.contains("[message from"), results(heard)) {
            (true, _) => Turn::text("heard"),
            (_, 0) => {
                let key = format!("agent:{to}:main");
                call("gsv__SessionSend", json!({"sessionKey": key, "message": "hi", "waitSeconds": 20}))
            }
            (_, 1) => {
                call("tool__agent_send", json!({"agentId": "main", "targetAgentId": to, "message": "hi"}))
            }
            _ => Turn::text("done"),
        }
    });
    let world = model.world(
        "autonomy = \"guided\"\nmessages = [\"friend\"]\n[agents.friend]\nautonomy = \"guided\"\n[agents.boss]\nautonomy = \"autonomous\"",
    );
    let up = Gateway::start(&world);
    let refusals = |name: &str| {
        let message = json!({"message": format!("write to {name}")});
        assert_eq!(post(&up, &format!("agent:main:{name}"), &message, &[]).json()["status"], "final");
        let history = up.get(&format!("/v1/sessions/agent:main:{name}/events")).json().to_string();
        history.matches("may not write to boss: agents.main.messages allows only friend").count()
    };
    assert_eq!((refusals("friend"), refusals("boss")), (0, 2));
    let listed = up.get("/v1/sessions").json().to_string();
    assert!(listed.contains("agent:friend:main") && !listed.contains("agent:boss:main"), "{listed}");
    model.check();
}
