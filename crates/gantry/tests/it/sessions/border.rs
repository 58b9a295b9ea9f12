//! How often ordinary work is asked about with the default configuration: inside the sandbox never, at the border once.

use std::time::Duration;

use gantry_testkit::{Gateway, World};
use serde_json::{Value, json};

use super::isolated::{Internet, turn};
use super::{Model, post};

/// A gateway with the default configuration, and a coding project as its workspace.
pub(super) struct Stage {
    pub(super) model: Model,
    pub(super) world: World,
    pub(super) up: Gateway,
    pub(super) internet: Internet,
}

impl Stage {
    pub(super) fn new(agent: &str) -> Stage {
        Stage::on(Internet::start(), agent)
    }

    pub(super) fn on(internet: Internet, agent: &str) -> Stage {
        let model = Model::deciding(turn);
        let world = model.world(agent);
        let config = std::fs::read_to_string(world.data().join("gantry.toml")).unwrap();
        world.configure(&format!("{config}\n[web]\nproxy = \"http://127.0.0.1:{}\"\n", internet.port));
        world.write("Makefile", "test:\n\t@grep -q 'fn main' main.rs && echo ok > result && echo 1 passed\n");
        world.write("main.rs", "fn main() {}\n");
        world.write("notes.txt", "private notes\n");
        let authority = world.write("ca.pem", &internet.authority);
        let log = world.folder.path().join("gateway.log");
        let up = Gateway::start_with_env(&world, &log, &[("GANTRY_TLS_CA", authority.to_str().unwrap())]);
        Stage { model, world, up, internet }
    }

    /// Makes the calls in one session and answers every question with yes. Returns the questions and the results.
    pub(super) fn run(&self, session: &str, calls: &Value) -> (Vec<Value>, Vec<Value>) {
        self.run_answering(session, calls, |_| "yes")
    }

    pub(super) fn run_answering(
        &self,
        session: &str,
        calls: &Value,
        answer: impl Fn(&Value) -> &'static str,
    ) -> (Vec<Value>, Vec<Value>) {
        let path = format!("/v1/sessions/{session}");
        std::thread::scope(|scope| {
            let message = json!({"message": calls.to_string()});
            let talking = scope.spawn(move || post(&self.up, session, &message, &[]));
            let mut questions = Vec::new();
            while !talking.is_finished() {
                let status = self.up.get(&path);
                let open = match status.status {
                    200 => status.json()["questions"].as_array().cloned().unwrap_or_default(),
                    _ => Vec::new(),
                };
                for question in open {
                    let answer = json!({"question": question["id"], "answer": answer(&question)}).to_string();
                    let answered = self.up.ask("POST", &format!("{path}/answers"), &[], answer.as_bytes());
                    assert_eq!(answered.status, 200, "{answered:?}");
                    questions.push(question);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let reported = talking.join().unwrap().json();
            assert_eq!(reported["reply"], "done", "{reported}");
            (questions, self.results(session))
        })
    }

    /// The ends of the session's calls, in order.
    fn results(&self, session: &str) -> Vec<Value> {
        let history = self.up.get(&format!("/v1/sessions/{session}/events")).json();
        let events = history["events"].as_array().unwrap().iter();
        events.filter(|event| event["kind"] == "call_ended").cloned().collect()
    }
}

pub(super) fn is_error(result: &Value) -> bool {
    result.to_string().contains("\"is_error\":true")
}

const TEST: &str = "make test";

/// The session of the field test: look, read, edit, test, fetch, run.
fn six_calls(edit: usize) -> Value {
    json!([
        ["Bash", {"command": "ls"}],
        ["Read", {"path": "main.rs"}],
        ["Edit", {"path": "main.rs", "oldString": "{}", "newString": format!("{{}} // {edit}")}],
        ["Bash", {"command": TEST}],
        ["tool__web_fetch", {"url": "https://unknown.example/"}],
        ["Bash", {"command": "cat result"}],
    ])
}

#[test]
fn ordinary_session_asks_about_the_unknown_host_only() {
    let stage = Stage::new("");
    stage.world.write("main.rs", "fn main() {}\nfn other() {}\n");
    for session in 0..2 {
        stage.world.write("main.rs", "fn main() {}\n");
        let (questions, results) = stage.run(&format!("agent:main:six-{session}"), &six_calls(session));
        let asked: Vec<String> =
            questions.iter().map(|question| format!("{} {}", question["rule"], question["tool"])).collect();
        assert_eq!(asked, [r#""border" "tool::web_fetch""#], "session {session}: {questions:?}");
        assert!(!results.iter().any(is_error), "session {session}: {results:?}");
        assert!(results[5].to_string().contains("ok"), "{results:?}");
    }
    let nine = json!([
        ["Bash", {"command": "ls -la"}],
        ["Grep", {"pattern": "main"}],
        ["Read", {"path": "main.rs"}],
        ["Bash", {"command": TEST}],
        ["Write", {"path": "lib.rs", "content": "fn lib() {}\n"}],
        ["Bash", {"command": "wc -l *.rs"}],
        ["Edit", {"path": "lib.rs", "oldString": "lib()", "newString": "library()"}],
        ["Bash", {"command": TEST}],
        ["Bash", {"command": "git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm x && git log --oneline"}],
    ]);
    let (questions, results) = stage.run("agent:main:nine", &nine);
    assert_eq!(questions, [json!(null); 0]);
    assert!(!results.iter().any(is_error), "{results:?}");
    stage.model.check();
}

#[test]
fn autonomous_session_is_denied_the_unknown_host_only() {
    let stage = Stage::new("autonomy = \"autonomous\"");
    let (questions, results) = stage.run("agent:main:alone", &six_calls(0));
    assert_eq!(questions, [json!(null); 0]);
    let denied: Vec<bool> = results.iter().map(is_error).collect();
    assert_eq!(denied, [false, false, false, false, true, false], "{results:?}");
    assert!(results[4].to_string().contains("unknown.example"), "{results:?}");
    stage.model.check();
}

#[test]
fn writes_outside_the_workspace_are_asked_whichever_tool_writes() {
    let stage = Stage::new("");
    let outside = stage.world.folder.path().join("elsewhere");
    std::fs::create_dir(&outside).unwrap();
    let at = |name: &str| outside.join(name).to_str().unwrap().to_owned();
    std::fs::write(outside.join("old.txt"), "old\n").unwrap();
    let calls = json!([
        ["Read", {"path": at("old.txt")}],
        ["Write", {"path": at("a.txt"), "content": "a"}],
        ["write_file", {"path": at("b.txt"), "content": "b"}],
        ["Edit", {"path": at("old.txt"), "oldString": "old", "newString": "new"}],
        ["Bash", {"command": format!("echo c > {} || echo refused", at("c.txt"))}],
    ]);
    let (questions, results) = stage.run("agent:main:outside", &calls);
    let rules: Vec<&str> = questions.iter().map(|question| question["rule"].as_str().unwrap()).collect();
    assert_eq!(rules, ["border"; 3], "{questions:?}");
    assert!(questions[0]["reason"].as_str().unwrap().contains("outside the workspace"), "{questions:?}");
    assert!(results[4].to_string().contains("refused"), "{results:?}");
    assert!(outside.join("b.txt").exists() && !outside.join("c.txt").exists());
    stage.model.check();
}

/// F1 of the field test: what a command downloads in one session is known as untrusted in the next one.
#[test]
fn downloaded_files_are_marked_and_others_are_not() {
    let stage = Stage::new("autonomy = \"guided\"\n[egress]\nallow = [\"allowed.example\"]");
    let ca = stage.world.workspace().join("ca.pem");
    let fetch = format!("curl -sS --cacert {} https://allowed.example/ -o page.txt", ca.display());
    let (questions, results) = stage.run("agent:main:download", &json!([["Bash", {"command": fetch}]]));
    assert_eq!(questions, [json!(null); 0]);
    assert!(results[0].to_string().contains("untrusted"), "{results:?}");
    let labels = |session: &str, path: &str| {
        let (_, results) = stage.run(session, &json!([["Read", {"path": path}]]));
        results[0]["data"]["result"]["labels"].clone()
    };
    assert_eq!(labels("agent:main:read-page", "page.txt"), json!(["private", "untrusted"]));
    assert_eq!(labels("agent:main:read-notes", "notes.txt"), json!(["private"]));
    // The next session has both labels after two reads, so the allowed host is asked about too.
    let leak = json!([
        ["Read", {"path": "page.txt"}],
        ["Read", {"path": "notes.txt"}],
        ["tool__web_fetch", {"url": "https://allowed.example/?q=notes"}],
    ]);
    let (questions, _) = stage.run("agent:main:leak", &leak);
    let rules: Vec<&str> = questions.iter().map(|question| question["rule"].as_str().unwrap()).collect();
    assert_eq!(rules, ["flow-labels"], "{questions:?}");
    stage.model.check();
}

#[test]
fn files_of_a_background_command_are_marked_before_others_read_them() {
    let stage = Stage::new("[egress]\nallow = [\"allowed.example\"]");
    let ca = stage.world.workspace().join("ca.pem");
    let watch = format!(
        "curl -sS --cacert {} https://allowed.example/ -o first.txt; touch started; \
         while [ ! -e go ]; do sleep 0.05; done; cp first.txt second.txt; touch copied; sleep 60",
        ca.display()
    );
    let start = json!([["Bash", {"command": watch, "background": true}]]);
    let (questions, _) = stage.run("agent:main:watcher", &start);
    assert_eq!(questions, [json!(null); 0]);
    let exists = |name: &str| stage.world.workspace().join(name).exists();
    gantry_testkit::eventually("the download", Duration::from_secs(20), || exists("started"));
    stage.world.write("go", "");
    gantry_testkit::eventually("the copy", Duration::from_secs(20), || exists("copied"));
    let (_, results) = stage.run("agent:main:reader", &json!([["Read", {"path": "second.txt"}]]));
    assert_eq!(results[0]["data"]["result"]["labels"], json!(["private", "untrusted"]), "{results:?}");
    stage.model.check();
}
