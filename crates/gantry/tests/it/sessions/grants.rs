//! Questions that show what a call would do, and grants that answer later questions.

use std::time::Duration;

use gantry_model::testing::{Heard, Turn};
use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};

use super::{Model, call};

/// A supervised agent in the sandbox. It makes the calls that its user lists as JSON.
struct Stage {
    model: Model,
    world: World,
    up: Gateway,
}

impl Stage {
    fn new() -> Stage {
        let model = Model::deciding(turn);
        let world = model.world("autonomy = \"supervised\"\nflow = \"off\"\n[shell]\nisolated = true");
        let up = Gateway::start(&world);
        Stage { model, world, up }
    }

    fn restarted(self) -> Stage {
        let Stage { model, world, mut up } = self;
        up.signal(rustix::process::Signal::TERM);
        assert_eq!(up.wait(Duration::from_secs(30)), Some(0));
        let up = Gateway::start(&world);
        Stage { model, world, up }
    }

    fn send(&self, session: &str, tool: &str, input: &Value) -> String {
        let message = json!({"message": json!([[tool, input]]).to_string()});
        super::post(&self.up, session, &message, &[]).json()["reply"].as_str().unwrap_or_default().to_owned()
    }

    /// Makes a call that is asked about. Returns the question and the model's answer.
    fn asked(&self, session: &str, tool: &str, input: &Value, answer: &[&str]) -> (Value, String) {
        std::thread::scope(|scope| {
            let sent = scope.spawn(|| self.send(session, tool, input));
            let questions = || self.up.get(&format!("/v1/sessions/{session}")).json()["questions"].clone();
            eventually("a question", Duration::from_secs(30), || questions()[0].is_object());
            let question = questions()[0].clone();
            let answered = self.world.run(&[&["sessions", "answer", session], answer].concat());
            assert_eq!(answered.code, 0, "{answered:?}");
            (question, sent.join().unwrap())
        })
    }

    /// Makes a call that nobody is asked about. Returns the rule that allowed it.
    fn granted(&self, session: &str, tool: &str, input: &Value) -> String {
        assert_eq!(self.send(session, tool, input), "done");
        let lines = self.world.run(&["audit", "--json", "--limit", "500"]).json();
        let begun = lines.as_array().unwrap().iter().filter(|line| line["phase"] == "begin");
        begun.max_by_key(|line| line["seq"].as_u64()).unwrap()["rule"].as_str().unwrap().to_owned()
    }

    fn grants(&self) -> Vec<Value> {
        self.world.run(&["grants", "--json"]).json()["grants"].as_array().unwrap().clone()
    }
}

/// Makes the calls of the last user message, one after the other.
fn turn(heard: &Heard) -> Turn {
    let messages = heard.body["messages"].as_array().unwrap();
    let last = messages.iter().rposition(|message| message["role"] == "user").unwrap();
    let text = match &messages[last]["content"] {
        Value::String(text) => text.clone(),
        parts => parts[0]["text"].as_str().unwrap_or_default().to_owned(),
    };
    let calls = text.find("[[").and_then(|start| {
        serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>().next()?.ok()
    });
    let made = messages[last..].iter().filter(|message| message["role"] == "tool").count();
    match calls.unwrap_or_default().get(made) {
        Some(next) => call(next[0].as_str().unwrap(), next[1].clone()),
        None => Turn::text("done"),
    }
}

fn labels(question: &Value) -> Vec<&str> {
    question["offers"].as_array().unwrap().iter().map(|offer| offer["label"].as_str().unwrap()).collect()
}

#[test]
fn prefix_grant_covers_later_commands_and_no_trick() {
    let stage = Stage::new();
    let run = |line: &str| json!({"command": line});
    let (question, _) = stage.asked("main", "Bash", &run("cargo test"), &["always", "--offer", "2"]);
    assert_eq!(question["rule"], "supervised-agent");
    let action = json!({"kind": "command", "command": "cargo test", "machine": "local", "sandboxed": true});
    assert_eq!(question["action"], action);
    assert_eq!(
        labels(&question),
        ["this session: this exact command", "this session: commands that start with \"cargo test\""]
    );
    let id = stage.grants()[0]["id"].as_str().unwrap().to_owned();
    let named = format!("supervised-agent (grant {id})");
    assert_eq!(stage.granted("main", "Bash", &run("cargo test -q --workspace; cargo test 2>&1")), named);
    let trick = run("cargo test; touch tricked");
    let (question, _) = stage.asked("main", "Bash", &trick, &["no"]);
    assert_eq!(question["action"]["command"], "cargo test; touch tricked");
    assert!(!stage.world.workspace().join("tricked").exists());
    // The grant is for this session.
    stage.asked("agent:main:other", "Bash", &run("cargo test"), &["no"]);
    stage.model.check();
}

#[test]
fn path_grant_survives_a_restart_until_it_is_revoked() {
    let stage = Stage::new();
    let write = |name: &str, content: &str| {
        let path = stage_path(name);
        json!({"path": path, "content": content})
    };
    let (question, _) = stage.asked("main", "Write", &write("a.md", "hello\n"), &["always", "--offer", "2"]);
    let path = stage.world.workspace().canonicalize().unwrap().join(stage_path("a.md"));
    let action = &question["action"];
    assert_eq!((&action["kind"], &action["change"]), (&json!("file_change"), &json!("create")), "{action}");
    assert_eq!((&action["paths"][0], &action["text"]), (&json!(path), &json!("hello\n")), "{action}");
    let directory = path.parent().unwrap().display().to_string();
    assert_eq!(labels(&question)[1], format!("always (30 days): changes to {directory} and below it"));

    let stage = stage.restarted();
    let grants = stage.grants();
    let [grant] = grants.as_slice() else { panic!("{grants:?}") };
    assert_eq!((&grant["agent"], &grant["reach"]), (&json!("main"), &json!("agent")));
    assert_eq!(grant["scope"], json!({"path": directory}));
    let id = grant["id"].as_str().unwrap();
    let named = format!("supervised-agent (grant {id})");
    assert_eq!(stage.granted("agent:main:other", "Write", &write("b.md", "x")), named);
    stage.asked("agent:main:other", "Write", &json!({"path": "elsewhere.md", "content": "x"}), &["no"]);

    let explained = stage.world.run(&["grants", "explain", id]).stdout;
    assert!(explained.contains("all sessions of the agent main"), "{explained}");
    assert!(explained.contains(&format!("Create {}", path.display())), "{explained}");
    assert_eq!(stage.up.ask("DELETE", "/v1/grants/nope", &[], b"").status, 400);
    assert_eq!(stage.world.run(&["grants", "revoke", id]).code, 0);
    assert_eq!(stage.up.get("/v1/grants").json(), json!({"grants": []}));
    let (question, _) = stage.asked("main", "Write", &write("a.md", "hello\nworld\n"), &["no"]);
    assert_eq!(question["action"]["text"], "@@ -1 +1,2 @@\n hello\n+world\n", "{question}");
    let shown = stage.world.run(&["sessions", "show", "main"]).stdout;
    assert!(shown.contains(&format!("asks: Change {}?", path.display())), "{shown}");
    stage.model.check();
}

/// A directory that is deep enough to be offered.
fn stage_path(name: &str) -> String {
    format!("deep/er/{name}")
}

#[test]
fn whole_call_of_a_question_can_be_read() {
    let stage = Stage::new();
    let content = format!("begin\n{}evil in the middle\n{}end\n", "a\n".repeat(6_000), "b\n".repeat(6_000));
    let input = json!({"path": "long.md", "content": content});
    let questions = || stage.up.get("/v1/sessions/main").json()["questions"][0].clone();
    std::thread::scope(|scope| {
        scope.spawn(|| stage.send("main", "Write", &input));
        eventually("a question", Duration::from_secs(30), || questions().is_object());
        let question = questions();
        assert!(!question["action"]["text"].to_string().contains("evil"), "{question}");
        let reason = question["reason"].as_str().unwrap();
        assert!(reason.contains("`gantry sessions questions agent:main:main`"), "{reason}");
        let whole = stage.world.run(&["sessions", "questions", "agent:main:main"]).stdout;
        assert!(whole.contains("    evil in the middle\n") && whole.contains("Create "), "{whole}");
        assert_eq!(stage.world.run(&["sessions", "answer", "main", "no"]).code, 0);
    });
    stage.model.check();
}
