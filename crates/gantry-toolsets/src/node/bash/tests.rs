use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Input, time_limit, yield_time};
use crate::SandboxMode;
use crate::testing::{Bench, set_variable};

async fn bash(bench: &Bench, input: Value) -> Value {
    bench.call("Bash", input).await.unwrap()
}

/// Waits until no process has the marker in its command line.
async fn gone(marker: &str) {
    let runs = || {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        lines.map(|line| String::from_utf8_lossy(&line).into_owned()).any(|line| line.contains(marker))
    };
    let begun = Instant::now();
    while runs() {
        assert!(begun.elapsed() < Duration::from_secs(5), "{marker} still runs");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn completed_command_returns_every_field() {
    let bench = Bench::new();
    let mut answer = bash(&bench, json!({"command": "echo out; echo err >&2; echo end"})).await;
    let object = answer.as_object_mut().unwrap();
    let number = |value: Option<Value>| value.unwrap().as_u64().unwrap();
    let (started, ended) = (number(object.shift_remove("startedAt")), number(object.shift_remove("endedAt")));
    let duration = number(object.shift_remove("durationMs"));
    assert!(started > 1_700_000_000_000 && ended >= started && duration < 10_000);
    let id = object.shift_remove("sessionId").unwrap();
    assert!(uuid::Uuid::try_parse(id.as_str().unwrap()).is_ok());
    assert_eq!(
        answer,
        json!({
            "status": "completed", "exitCode": 0, "signal": null, "timedOut": false, "output": "out\nerr\nend\n",
            "tail": "out\nerr\nend\n", "truncated": false, "workdir": bench.workspace(),
        })
    );
}

#[tokio::test]
async fn exit_status_is_returned_and_is_not_an_error() {
    let bench = Bench::new();
    for (command, expected) in [
        ("exit 0", json!(["completed", 0, null, false])),
        ("exit 3", json!(["failed", 3, null, false])),
        ("kill -TERM $$", json!(["failed", null, "SIGTERM", false])),
        ("kill -KILL $$", json!(["failed", null, "SIGKILL", false])),
        ("command-that-is-not-there", json!(["failed", 127, null, false])),
    ] {
        let answer = bash(&bench, json!({"command": command})).await;
        let shown = json!([answer["status"], answer["exitCode"], answer["signal"], answer["timedOut"]]);
        assert_eq!(shown, expected, "{command}: {answer}");
    }
}

#[tokio::test]
async fn timeout_kills_the_command_and_its_children() {
    let bench = Bench::new();
    let marker = format!("97{}", std::process::id());
    let command = format!("echo begun; sleep {marker} & sleep {marker}");
    let answer = bash(&bench, json!({"command": command, "timeout": 700})).await;
    let shown =
        json!([answer["status"], answer["exitCode"], answer["signal"], answer["timedOut"], answer["output"]]);
    assert_eq!(shown, json!(["failed", null, "SIGTERM", true, "begun\n"]), "{answer}");
    gone(&marker).await;

    let deaf = "trap '' TERM; while :; do sleep 0.05; done";
    let answer = bash(&bench, json!({"command": deaf, "timeout": 700})).await;
    assert_eq!(json!([answer["signal"], answer["timedOut"]]), json!(["SIGKILL", true]));
    let polite = "trap 'exit 0' TERM; while :; do sleep 0.05; done";
    let answer = bash(&bench, json!({"command": polite, "timeout": 700})).await;
    assert_eq!(json!([answer["status"], answer["exitCode"], answer["timedOut"]]), json!(["failed", 0, true]));
}

#[test]
fn default_timeout_depends_on_background() {
    let limit = |input: Value| {
        let mut whole = json!({"command": "x"});
        whole.as_object_mut().unwrap().extend(input.as_object().unwrap().clone());
        time_limit(&serde_json::from_value::<Input>(whole).unwrap()).map(|limit| limit.as_millis())
    };
    assert_eq!(limit(json!({})), Some(300_000));
    assert_eq!(limit(json!({"yieldMs": 10})), Some(300_000));
    assert_eq!(limit(json!({"background": true})), None);
    assert_eq!(limit(json!({"background": true, "timeout": 5})), Some(5));
    assert_eq!(limit(json!({"timeout": 0})), None);
    assert_eq!(limit(json!({"timeout": 9_007_199_254_740_991_u64})), Some(9_007_199_254_740_991));
}

#[test]
fn yield_time_is_clamped() {
    let cases =
        [(-5.0, 10), (0.0, 10), (9.9, 10), (10.0, 10), (11.0, 11), (120_000.0, 120_000), (1e300, 120_000)];
    for (asked, expected) in cases {
        assert_eq!(yield_time(asked).as_millis(), expected, "{asked}");
    }
}

#[tokio::test]
async fn longest_and_missing_timeout_work() {
    let bench = Bench::new();
    for timeout in [0, 9_007_199_254_740_991_u64] {
        let answer = bash(&bench, json!({"command": "sleep 0.05", "timeout": timeout})).await;
        assert_eq!(answer["status"], "completed", "{timeout}");
    }
}

#[tokio::test]
async fn empty_commands_and_invalid_directories_are_errors() {
    let bench = Bench::new();
    bench.write("file", "");
    for (input, expected) in [
        (json!({"command": ""}), "command must not be empty"),
        (json!({"command": " \n\t"}), "command must not be empty"),
        (json!({"command": "ls", "workdir": "missing"}), "no such file or directory: missing"),
        (json!({"command": "ls", "workdir": "file"}), "not a directory: file"),
        (json!({"command": "a\0b"}), "invalid command: an argument contains a NUL byte"),
    ] {
        assert_eq!(bench.call("Bash", input).await, Err(json!({"error": expected})));
    }
    for input in [json!({}), json!({"command": "x", "timeout": -1}), json!({"command": "x", "cwd": "."})] {
        let error = bench.call("Bash", input).await.unwrap_err();
        assert_eq!(error["error"]["code"], "invalid_input");
    }
}

#[tokio::test]
async fn working_directory_is_resolved() {
    let bench = Bench::new();
    let sub = bench.write("sub/f", "").parent().unwrap().to_owned();
    std::os::unix::fs::symlink("sub", bench.workspace().join("link")).unwrap();
    for workdir in [json!("sub"), json!(sub), json!("link")] {
        let answer = bash(&bench, json!({"command": "pwd -P", "workdir": workdir})).await;
        assert_eq!(
            (&answer["output"], &answer["workdir"]),
            (&json!(format!("{}\n", sub.display())), &json!(sub))
        );
    }
}

#[tokio::test]
async fn login_shell_of_the_user_runs_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let shell = folder.path().join("myshell");
    std::fs::write(&shell, "#!/bin/sh\nprintf '[%s]' \"$@\"\n").unwrap();
    std::fs::set_permissions(&shell, PermissionsExt::from_mode(0o755)).unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "").unwrap();

    let bench = Bench::with(|parts| set_variable(parts, "SHELL", &shell));
    assert_eq!(bash(&bench, json!({"command": "a b"})).await["output"], "[-lc][a b]");
    for unusable in [OsString::from("sh"), "bin/sh".into(), plain.into(), "/missing/sh".into(), "".into()] {
        let bench = Bench::with(|parts| set_variable(parts, "SHELL", &unusable));
        let answer = bash(&bench, json!({"command": "echo $0"})).await;
        assert_eq!(answer["output"], "/bin/sh\n", "{unusable:?}");
    }
    let bench = Bench::with(|parts| parts.variables.retain(|(name, _)| name != "SHELL"));
    assert_eq!(bash(&bench, json!({"command": "echo $0"})).await["output"], "/bin/sh\n");
}

#[tokio::test]
async fn command_that_starts_with_a_sign_is_not_an_option() {
    let bench = Bench::with(|parts| set_variable(parts, "SHELL", "/bin/sh"));
    let answer = bash(&bench, json!({"command": "-x 2>/dev/null || echo ran"})).await;
    assert_eq!(answer["output"], "ran\n");
}

#[tokio::test]
async fn gantry_variables_and_provider_keys_are_not_inherited() {
    let bench = Bench::with(|parts| {
        set_variable(parts, "GANTRY_TOKEN", "t");
        set_variable(parts, "ANTHROPIC_API_KEY", "k");
        set_variable(parts, "KEPT", "yes");
    });
    let answer = bash(&bench, json!({"command": "echo \"$KEPT-$GANTRY_TOKEN-$ANTHROPIC_API_KEY\""})).await;
    assert_eq!(answer["output"], "yes--\n");
}

#[tokio::test]
async fn foreground_standard_input_is_empty() {
    let bench = Bench::new();
    assert_eq!(bash(&bench, json!({"command": "cat; echo end"})).await["output"], "end\n");
}

#[tokio::test]
async fn output_keeps_its_tail_and_the_log_keeps_everything() {
    let bench = Bench::new();
    let print = |count: usize| json!({"command": format!("printf 'first\\n'; head -c {} /dev/zero | tr '\\0' x", count - 6)});
    let exact = bash(&bench, print(200_000)).await;
    assert_eq!((&exact["truncated"], exact["output"].as_str().unwrap().len()), (&json!(false), 200_000));
    assert_eq!(exact["tail"], json!("x".repeat(4_000)));
    let beyond = bash(&bench, print(200_001)).await;
    assert_eq!((&beyond["truncated"], beyond["output"].as_str().unwrap().len()), (&json!(true), 200_000));
    assert!(beyond["output"].as_str().unwrap().starts_with("irst\nxxx"));

    let id = &beyond["sessionId"];
    let log = bench.call("Process", json!({"action": "log", "sessionId": id, "limit": 1})).await;
    assert_eq!(
        log,
        Ok(
            json!({"sessionId": id, "lines": ["first"], "offset": 0, "totalLines": 2, "totalChars": 200_001, "nextOffset": 1})
        )
    );
    for action in ["poll", "write", "submit", "kill", "close"] {
        let error = bench.call("Process", json!({"action": action, "sessionId": id})).await.unwrap_err();
        let text = format!("session is not backgrounded: {}", id.as_str().unwrap());
        assert!(error["error"].as_str().unwrap().starts_with(&text), "{error}");
    }
    let listed = bench.call("Process", json!({"action": "list"})).await;
    assert_eq!(listed, Ok(json!({"sessions": []})));
}

#[tokio::test]
async fn background_returns_at_once_with_a_session() {
    let bench = Bench::new();
    let begun = Instant::now();
    let mut answer =
        bash(&bench, json!({"command": "sleep 60", "background": true, "yieldMs": 50_000})).await;
    assert!(begun.elapsed() < Duration::from_secs(20));
    let id = answer["sessionId"].clone();
    let object = answer.as_object_mut().unwrap();
    for name in ["sessionId", "pid", "startedAt"] {
        let value = object.shift_remove(name).unwrap();
        assert!(value.is_string() || value.as_u64().unwrap() > 1, "{name}");
    }
    assert_eq!(answer, json!({"status": "running", "tail": "", "workdir": bench.workspace()}));
    let killed = bench.call("Process", json!({"action": "kill", "sessionId": id})).await;
    assert_eq!(killed, Ok(json!({"sessionId": id, "killed": true})));
}

#[tokio::test]
async fn yielding_returns_a_finished_command_or_backgrounds_it() {
    let bench = Bench::new();
    let fast = bash(&bench, json!({"command": "echo done", "yieldMs": 1e9})).await;
    assert_eq!(json!([fast["status"], fast["output"], fast["exitCode"]]), json!(["completed", "done\n", 0]));
    let error = bench.call("Process", json!({"action": "poll", "sessionId": fast["sessionId"]})).await;
    assert!(error.unwrap_err()["error"].as_str().unwrap().starts_with("session not found"));

    for yield_ms in [json!(-5), json!(0), json!(10.5), json!(200)] {
        let begun = Instant::now();
        let slow = bash(&bench, json!({"command": "sleep 60", "yieldMs": yield_ms})).await;
        assert_eq!(slow["status"], "running", "{yield_ms}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{yield_ms}");
        let killed = bench.call("Process", json!({"action": "kill", "sessionId": slow["sessionId"]})).await;
        assert_eq!(killed.unwrap()["killed"], true);
    }
}

#[tokio::test]
async fn one_shot_machine_runs_nothing_in_the_background() {
    let bench = Bench::with(|parts| parts.one_shot = true);
    let error = bench.call("Bash", json!({"command": "echo x", "background": true})).await;
    let text = "this one-shot call cannot run a command in the background (start `gantry up` and call again, or leave background out)";
    assert_eq!(error, Err(json!({"error": text})));
    let answer = bash(&bench, json!({"command": "sleep 0.3; echo end", "yieldMs": 10})).await;
    assert_eq!(json!([answer["status"], answer["output"]]), json!(["completed", "end\n"]));
}

#[tokio::test]
async fn cancellation_and_deadline_kill_the_process() {
    let bench = Bench::new();
    for (index, extra) in [json!({}), json!({"yieldMs": 60_000})].into_iter().enumerate() {
        for deadline in [false, true] {
            let marker = format!("98{index}{}{}", u8::from(deadline), std::process::id());
            let mut input = json!({"command": format!("sleep {marker}; true")});
            input.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            let mut call = bench.operator_call();
            let soon = Duration::from_millis(500);
            if deadline {
                call.deadline = Some(Instant::now() + soon);
            }
            let cancel = call.cancel.clone();
            let cancelling = async {
                if !deadline {
                    tokio::time::sleep(soon).await;
                    cancel.cancel();
                }
            };
            let begun = Instant::now();
            let (answer, ()) = tokio::join!(bench.call_as(call, "Bash", input), cancelling);
            assert!(begun.elapsed() < Duration::from_secs(10));
            let code = if deadline { "deadline" } else { "cancelled" };
            assert_eq!(answer.unwrap_err()["error"]["code"], code);
            gone(&marker).await;
        }
    }
    let listed = bench.call("Process", json!({"action": "list"})).await;
    assert_eq!(listed, Ok(json!({"sessions": []})));
}

#[tokio::test]
async fn dropped_call_kills_a_command_without_a_session() {
    let bench = Bench::new();
    let marker = format!("99{}", std::process::id());
    let input = json!({"command": format!("sleep {marker}; true"), "yieldMs": 60_000});
    let calling = bench.call("Bash", input);
    assert!(tokio::time::timeout(Duration::from_millis(500), calling).await.is_err());
    gone(&marker).await;
}

#[tokio::test]
async fn shell_of_an_agent_cannot_read_the_data_directory() {
    let bench = Bench::new();
    std::fs::write(bench.data().join("key"), "secret").unwrap();
    let input = json!({"command": format!("echo here > f; cat f; cat {}/key", bench.data().display())});
    let answer = bench.call_as(bench.agent_call("a"), "Bash", input).await.unwrap();
    let output = answer["output"].as_str().unwrap();
    assert!(output.starts_with("here\n") && !output.contains("secret"), "{output}");
    let error = bench.call("Bash", json!({"command": "ls", "workdir": bench.data()})).await.unwrap_err();
    assert_eq!(error["error"]["code"], "denied");
}

#[tokio::test]
async fn policy_applies_to_the_working_directory() {
    let bench = Bench::with(|parts| parts.settings.shell.sandbox = SandboxMode::Off);
    bench.write(".ssh/config", "");
    std::os::unix::fs::symlink(".ssh", bench.workspace().join("link")).unwrap();
    let input = json!({"command": "ls", "workdir": "link"});
    let error = bench.call_as(bench.agent_call("a"), "Bash", input).await.unwrap_err();
    assert_eq!(error["error"]["code"], "approval_needed");
}

#[tokio::test]
async fn shell_without_network_reports_it() {
    let bench = Bench::with(|parts| parts.settings.isolation.network = gantry_net::NetworkPolicy::DenyAll);
    let answer = bash(&bench, json!({"command": "echo x"})).await;
    assert_eq!(json!([answer["network"], answer["output"]]), json!(["denied", "x\n"]));
}
