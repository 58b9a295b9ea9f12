//! Tests that background commands keep running, and keep their owners, across a restart.
#![expect(clippy::disallowed_methods, reason = "tests prepare their own files")]

use std::time::Duration;

use gantry_tool::Call;
use serde_json::{Value, json};

use super::CommandNote;
use crate::testing::Bench;

async fn act(bench: &Bench, call: Call, action: &str, id: &Value, more: Value) -> Result<Value, Value> {
    let mut input = json!({"action": action, "sessionId": id});
    for (name, value) in more.as_object().unwrap() {
        input[name] = value.clone();
    }
    bench.call_as(call, "Process", input).await
}

#[tokio::test]
async fn session_keeps_running_and_keeps_its_owner() {
    let bench = Bench::surviving().await;
    let script = "echo begun; while read -r line; do echo \"got $line\"; done; echo over; exit 4";
    let input = json!({"command": script, "background": true});
    let started = bench.call_as(bench.agent_call("a"), "Bash", input).await.unwrap();
    let id = started["sessionId"].clone();
    let polled = act(&bench, bench.agent_call("a"), "poll", &id, json!({"waitMs": 10_000})).await.unwrap();
    assert_eq!(polled["tail"], "begun\n");

    let bench = bench.restart().await;
    let listed = bench.call_as(bench.agent_call("a"), "Process", json!({"action": "list"})).await.unwrap();
    let expected = json!([{
        "sessionId": id, "status": "running", "command": script, "pid": started["pid"],
        "workdir": bench.workspace(), "startedAt": started["startedAt"],
    }]);
    assert_eq!(listed["sessions"], expected);
    // Other agents still cannot see it.
    let others = bench.call_as(bench.agent_call("b"), "Process", json!({"action": "list"})).await.unwrap();
    assert_eq!(others["sessions"], json!([]));
    for action in ["poll", "log", "write", "submit", "close", "kill"] {
        let refused = act(&bench, bench.agent_call("b"), action, &id, json!({})).await.unwrap_err();
        assert!(refused["error"].as_str().unwrap().starts_with("session not found"), "{action}: {refused}");
    }
    let own = || bench.agent_call("a");
    let sent = act(&bench, own(), "submit", &id, json!({"data": "one"})).await.unwrap();
    assert_eq!(sent, json!({"sessionId": id, "bytesWritten": 4}));
    act(&bench, own(), "close", &id, json!({})).await.unwrap();

    let mut answer =
        act(&bench, bench.operator_call(), "poll", &id, json!({"waitMs": 10_000})).await.unwrap();
    while answer["running"] == true {
        answer = act(&bench, bench.operator_call(), "poll", &id, json!({"waitMs": 10_000})).await.unwrap();
    }
    assert_eq!(
        json!([answer["output"], answer["exitCode"], answer["startedAt"]]),
        json!(["begun\ngot one\nover\n", 4, started["startedAt"]])
    );
    // An ended session is unchanged after another restart.
    let bench = bench.restart().await;
    let again = act(&bench, bench.agent_call("a"), "poll", &id, json!({})).await.unwrap();
    assert_eq!(again, answer);
    let log = act(&bench, bench.agent_call("a"), "log", &id, json!({"offset": 1})).await.unwrap();
    assert_eq!((&log["lines"], &log["totalLines"]), (&json!(["got one", "over"]), &json!(3)));
}

#[tokio::test]
async fn yielded_command_survives_and_its_end_is_reported() {
    let bench = Bench::surviving().await;
    let input = json!({"command": "read -r line; echo \"$line\"; exit 2", "yieldMs": 50});
    let id = bench.call_as(bench.agent_call("a"), "Bash", input).await.unwrap()["sessionId"].clone();
    let bench = bench.restart().await;
    let mut ends = bench.processes.exit_reports();
    act(&bench, bench.agent_call("a"), "submit", &id, json!({"data": "end"})).await.unwrap();
    let end = tokio::time::timeout(Duration::from_secs(10), ends.next()).await.unwrap().unwrap();
    assert_eq!(
        (end.id.to_string().as_str(), end.tail.as_str(), end.ended.exit.code),
        (id.as_str().unwrap(), "end\n", Some(2))
    );
    let note = CommandNote::parse(&end.note).unwrap();
    assert_eq!((note.principal.as_str(), note.agent.as_str()), ("agent:a", "a"));
    assert_eq!((note.workdir, note.offline), (bench.workspace(), false));
}

/// A command that ended before it yielded was returned to its caller, so it is not reported again.
#[tokio::test]
async fn foreground_command_leaves_no_report() {
    let bench = Bench::surviving().await;
    for input in [json!({"command": "echo x"}), json!({"command": "echo x", "yieldMs": 60_000})] {
        assert_eq!(bench.call("Bash", input).await.unwrap()["output"], "x\n");
    }
    let folders = std::fs::read_dir(bench.data().join("processes/sessions")).unwrap().flatten();
    assert_eq!(folders.filter(|entry| entry.path().is_dir()).count(), 0);
    let mut ends = bench.processes.exit_reports();
    assert!(tokio::time::timeout(Duration::from_millis(200), ends.next()).await.is_err());
}
