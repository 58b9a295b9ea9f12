use std::time::{Duration, Instant};

use gantry_process::{Processes, ProcessesOptions};
use gantry_tool::Call;
use serde_json::{Value, json};

use crate::SandboxMode;
use crate::testing::{Bench, keeper};

/// Starts a session as the operator and returns its id.
async fn session(bench: &Bench, command: &str) -> Value {
    session_as(bench, bench.operator_call(), command).await
}

async fn session_as(bench: &Bench, call: Call, command: &str) -> Value {
    let input = json!({"command": command, "background": true});
    bench.call_as(call, "Bash", input).await.unwrap()["sessionId"].clone()
}

async fn act(bench: &Bench, action: &str, id: &Value, more: Value) -> Result<Value, Value> {
    let mut input = json!({"action": action, "sessionId": id});
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    bench.call("Process", input).await
}

/// Polls until the session has ended.
async fn end(bench: &Bench, id: &Value) -> Value {
    let begun = Instant::now();
    loop {
        let answer = act(bench, "poll", id, json!({"waitMs": 5_000})).await.unwrap();
        if answer["running"] == false {
            return answer;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{answer}");
    }
}

/// Removes a field, so that the rest can be compared as a whole.
fn take(answer: &mut Value, name: &str) -> Value {
    answer.as_object_mut().unwrap().shift_remove(name).unwrap_or_else(|| panic!("no {name}"))
}

#[tokio::test]
async fn poll_returns_running_and_ended_sessions() {
    let bench = Bench::new();
    let id = session(&bench, "echo begun; read line; echo got $line; exit 4").await;
    let mut answer = act(&bench, "poll", &id, json!({"waitMs": 10_000})).await.unwrap();
    assert!(take(&mut answer, "pid").as_u64().unwrap() > 1);
    assert!(take(&mut answer, "startedAt").as_u64().unwrap() > 1_700_000_000_000);
    assert_eq!(
        answer,
        json!({"status": "running", "sessionId": id, "tail": "begun\n", "workdir": bench.workspace(), "running": true})
    );
    let submitted = act(&bench, "submit", &id, json!({"data": "héy"})).await;
    assert_eq!(submitted, Ok(json!({"sessionId": id, "bytesWritten": 5})));
    let mut answer = end(&bench, &id).await;
    for name in ["startedAt", "endedAt", "durationMs"] {
        assert!(take(&mut answer, name).is_u64());
    }
    assert_eq!(
        answer,
        json!({
            "status": "failed", "sessionId": id, "exitCode": 4, "signal": null, "timedOut": false,
            "output": "begun\ngot héy\n", "tail": "begun\ngot héy\n", "truncated": false,
            "workdir": bench.workspace(), "running": false,
        })
    );
}

#[tokio::test]
async fn poll_returns_as_soon_as_the_session_ends() {
    let bench = Bench::new();
    let id = session(&bench, "sleep 0.3; exit 0").await;
    let begun = Instant::now();
    let answer = end(&bench, &id).await;
    assert_eq!(json!([answer["status"], answer["running"]]), json!(["completed", false]));
    assert!(begun.elapsed() < Duration::from_secs(5));
    for (wait, valid) in [(120_000, true), (120_001, false)] {
        let answer = act(&bench, "poll", &id, json!({"waitMs": wait})).await;
        assert_eq!(answer.is_ok(), valid, "{wait}: {answer:?}");
    }
}

#[tokio::test]
async fn write_sends_to_and_close_ends_standard_input() {
    let bench = Bench::new();
    let id = session(&bench, "cat").await;
    assert_eq!(
        act(&bench, "write", &id, json!({"data": "one"})).await,
        Ok(json!({"sessionId": id, "bytesWritten": 3}))
    );
    assert_eq!(act(&bench, "write", &id, json!({})).await, Ok(json!({"sessionId": id, "bytesWritten": 0})));
    assert_eq!(act(&bench, "submit", &id, json!({})).await, Ok(json!({"sessionId": id, "bytesWritten": 1})));
    assert_eq!(act(&bench, "close", &id, json!({})).await, Ok(json!({"sessionId": id, "closed": true})));
    assert_eq!(end(&bench, &id).await["output"], "one\n");
    for action in ["write", "submit", "close"] {
        let error = act(&bench, action, &id, json!({"data": "x"})).await;
        let text = format!("session {} has ended", id.as_str().unwrap());
        assert_eq!(error, Err(json!({"error": text})), "{action}");
    }
}

#[tokio::test]
async fn writing_to_closed_standard_input_is_an_error() {
    let bench = Bench::new();
    let id = session(&bench, "sleep 60").await;
    act(&bench, "close", &id, json!({})).await.unwrap();
    for action in ["write", "submit", "close"] {
        let error = act(&bench, action, &id, json!({"data": "x"})).await;
        let text = format!("standard input of session {} is closed", id.as_str().unwrap());
        assert_eq!(error, Err(json!({"error": text})), "{action}");
    }
    act(&bench, "kill", &id, json!({})).await.unwrap();
}

#[tokio::test]
async fn log_is_read_by_line() {
    let bench = Bench::new();
    let id = session(&bench, "seq 1 250").await;
    end(&bench, &id).await;
    let page = |lines: std::ops::RangeInclusive<u32>, offset: u32, next: Option<u32>| {
        let lines: Vec<_> = lines.map(|line| line.to_string()).collect();
        let mut page =
            json!({"sessionId": id, "lines": lines, "offset": offset, "totalLines": 250, "totalChars": 892});
        if let Some(next) = next {
            page["nextOffset"] = json!(next);
        }
        Ok(page)
    };
    assert_eq!(act(&bench, "log", &id, json!({})).await, page(1..=200, 0, Some(200)));
    assert_eq!(act(&bench, "log", &id, json!({"offset": 200})).await, page(201..=250, 200, None));
    assert_eq!(act(&bench, "log", &id, json!({"offset": 9, "limit": 1})).await, page(10..=10, 9, Some(10)));
    #[expect(clippy::reversed_empty_ranges, reason = "no lines")]
    let nothing = page(1..=0, 250, None);
    assert_eq!(act(&bench, "log", &id, json!({"offset": 250})).await, nothing);
    let error = act(&bench, "log", &id, json!({"limit": 0})).await.unwrap_err();
    assert_eq!(error["error"]["code"], "invalid_input");
}

#[tokio::test]
async fn kill_ends_the_command_and_its_children() {
    let bench = Bench::new();
    let id = session(&bench, "trap '' TERM; sleep 60 & echo $!; wait").await;
    let polled = act(&bench, "poll", &id, json!({"waitMs": 10_000})).await.unwrap();
    let child = polled["tail"].as_str().unwrap().trim().to_owned();
    assert_eq!(act(&bench, "kill", &id, json!({})).await, Ok(json!({"sessionId": id, "killed": true})));
    assert!(!std::path::Path::new("/proc").join(child).exists());
    let answer = act(&bench, "poll", &id, json!({})).await.unwrap();
    assert_eq!(
        json!([answer["status"], answer["signal"], answer["exitCode"], answer["running"]]),
        json!(["failed", "SIGKILL", null, false])
    );
    assert_eq!(act(&bench, "kill", &id, json!({})).await, Ok(json!({"sessionId": id, "killed": false})));
}

#[tokio::test]
async fn incomplete_log_has_the_warnings_of_poll() {
    let bench = Bench::with(|parts| {
        let options = ProcessesOptions::new(keeper(), parts.temp_dir.join("processes"));
        parts.processes = Processes::new(ProcessesOptions { max_log_bytes: 1_000, ..options });
    });
    let id = session(&bench, "seq 1000").await;
    let polled = end(&bench, &id).await;
    let log = act(&bench, "log", &id, json!({"limit": 1})).await.unwrap();
    assert_eq!(log["warnings"], json!(["the log is missing 2893 bytes of output"]), "{log}");
    assert_eq!(log["warnings"], polled["warnings"]);
    let id = session(&bench, "seq 100").await;
    end(&bench, &id).await;
    let log = act(&bench, "log", &id, json!({})).await.unwrap();
    assert!(log["totalLines"] == 100 && log.get("warnings").is_none(), "{log}");
}

#[tokio::test]
async fn sessions_are_listed_newest_first() {
    let bench = Bench::new();
    assert_eq!(bench.call("Process", json!({"action": "list"})).await, Ok(json!({"sessions": []})));
    let ended = session(&bench, "exit 7").await;
    end(&bench, &ended).await;
    let long = format!("sleep 60; : {}", "x".repeat(600));
    let running = session(&bench, &long).await;
    let mut answer = bench.call("Process", json!({"action": "list"})).await.unwrap();
    for entry in answer["sessions"].as_array_mut().unwrap() {
        take(entry, "pid");
        take(entry, "startedAt");
    }
    for name in ["endedAt", "durationMs"] {
        take(&mut answer["sessions"][1], name);
    }
    let shown = format!("{}…", &long[..500]);
    assert_eq!(
        answer,
        json!({"sessions": [
            {"sessionId": running, "status": "running", "command": shown, "workdir": bench.workspace()},
            {"sessionId": ended, "status": "failed", "command": "exit 7", "workdir": bench.workspace(),
             "exitCode": 7, "signal": null, "timedOut": false},
        ]})
    );
    act(&bench, "kill", &running, json!({})).await.unwrap();
}

#[tokio::test]
async fn missing_and_unknown_sessions_are_errors() {
    let bench = Bench::new();
    for action in ["poll", "log", "write", "submit", "kill", "close"] {
        let error = bench.call("Process", json!({"action": action})).await;
        assert_eq!(
            error,
            Err(json!({"error": "sessionId is required for every action except \"list\""})),
            "{action}"
        );
        for id in ["nonsense", "6f1d3f0e-4d3b-4b51-9d5c-2f4a0b8a1c77"] {
            let error = act(&bench, action, &json!(id), json!({})).await.unwrap_err();
            let expected = format!("session not found: {id} (");
            assert!(error["error"].as_str().unwrap().starts_with(&expected), "{action}: {error}");
        }
    }
    let error = bench.call("Process", json!({"action": "restart"})).await.unwrap_err();
    assert_eq!(error["error"]["code"], "invalid_input");
}

#[tokio::test]
async fn sessions_are_visible_to_their_owner_and_the_operator_only() {
    let bench = Bench::with(|parts| parts.settings.shell.sandbox = SandboxMode::Off);
    let (own, other) = (bench.agent_call("a"), bench.agent_call("b"));
    let mut other_role = own.clone();
    other_role.agent = "c".into();
    let id = session_as(&bench, own.clone(), "sleep 60").await;
    for stranger in [other, other_role] {
        let listed = bench.call_as(stranger.clone(), "Process", json!({"action": "list"})).await;
        assert_eq!(listed, Ok(json!({"sessions": []})));
        for action in ["poll", "log", "write", "submit", "kill", "close"] {
            let input = json!({"action": action, "sessionId": id});
            let error = bench.call_as(stranger.clone(), "Process", input).await.unwrap_err();
            assert!(error["error"].as_str().unwrap().starts_with("session not found"), "{action}: {error}");
        }
    }
    for caller in [own.clone(), bench.operator_call()] {
        let listed = bench.call_as(caller, "Process", json!({"action": "list"})).await.unwrap();
        assert_eq!(listed["sessions"][0]["sessionId"], id);
    }
    let killed = bench.call_as(own, "Process", json!({"action": "kill", "sessionId": id})).await;
    assert_eq!(killed, Ok(json!({"sessionId": id, "killed": true})));
}

#[tokio::test]
async fn refusal_does_not_reveal_the_session_of_another_caller() {
    let bench = Bench::new();
    std::fs::create_dir(bench.workspace().join(".ssh")).unwrap();
    let input = json!({"command": "sleep 60", "background": true, "workdir": ".ssh"});
    let id = bench.call("Bash", input).await.unwrap()["sessionId"].clone();
    let input = json!({"action": "poll", "sessionId": id});
    let error = bench.call_as(bench.agent_call("a"), "Process", input).await.unwrap_err();
    assert!(error["error"].as_str().is_some_and(|text| text.starts_with("session not found")), "{error}");
    act(&bench, "kill", &id, json!({})).await.unwrap();
}

#[tokio::test]
async fn background_timeout_is_reported() {
    let bench = Bench::new();
    let input = json!({"command": "sleep 60", "background": true, "timeout": 300});
    let id = bench.call("Bash", input).await.unwrap()["sessionId"].clone();
    let answer = end(&bench, &id).await;
    assert_eq!(
        json!([answer["status"], answer["timedOut"], answer["signal"]]),
        json!(["failed", true, "SIGTERM"])
    );
}

#[tokio::test]
async fn cancelling_a_poll_does_not_end_the_session() {
    let bench = Bench::new();
    let id = session(&bench, "sleep 60").await;
    let mut call = bench.operator_call();
    call.deadline = Some(Instant::now() + Duration::from_millis(300));
    let input = json!({"action": "poll", "sessionId": id, "waitMs": 100_000});
    let begun = Instant::now();
    let error = bench.call_as(call, "Process", input).await.unwrap_err();
    assert_eq!(error["error"]["code"], "deadline");
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert_eq!(act(&bench, "kill", &id, json!({})).await, Ok(json!({"sessionId": id, "killed": true})));
}
