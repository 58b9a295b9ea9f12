#![allow(clippy::disallowed_methods, reason = "tests prepare their own files")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use gantry_process::sandbox_support;
use gantry_tool::{Answer, Reply, ToolScope};
use serde_json::{Value, json};

use crate::MachineParts;
use crate::testing::Bench;
use gantry_net::NetworkPolicy;

/// Creates the bench's home with the given start file for bash and zsh.
fn with_home(parts: &mut MachineParts, start_file: Option<&str>) -> PathBuf {
    let home = parts.temp_dir.parent().unwrap().join("home");
    for name in [".bashrc", ".zshrc"] {
        if let Some(text) = start_file {
            std::fs::write(home.join(name), text).unwrap();
        }
    }
    parts.variables.retain(|(name, _)| name != "ZDOTDIR");
    home
}

fn bench(start_file: Option<&str>) -> Bench {
    Bench::with(|parts| {
        with_home(parts, start_file);
    })
}

fn ended(command: &str, stdout: &str, stderr: &str, exit_code: i32) -> Value {
    json!({"success": exit_code == 0, "command": command, "stdout": stdout, "stderr": stderr, "exit_code": exit_code,
        "timed_out": false, "shell": "bash", "cwd": null})
}

#[tokio::test]
async fn seed_examples_return_the_documented_replies() {
    let bench = bench(None);
    bench.write("file.txt", "a pattern\nno\npattern\n");
    for (command, stdout, code) in [
        ("echo Hello World", "Hello World\n", 0),
        ("exit 1", "", 1),
        ("cat file.txt | grep pattern | wc -l", "2\n", 0),
        ("echo one; exit 300", "one\n", 44),
    ] {
        let reply = bench.call("exec", json!({"command": command})).await;
        assert_eq!(reply, Ok(ended(command, stdout, "", code)));
    }
    let reply = bench.call("exec", json!({"command": "nonexistent-command"})).await.unwrap();
    assert_eq!((&reply["success"], &reply["exit_code"]), (&json!(false), &json!(127)));
    assert!(
        reply["stderr"].as_str().unwrap().ends_with("nonexistent-command: command not found\n"),
        "{reply}"
    );
}

#[tokio::test]
async fn timeout_keeps_partial_output_and_kills_all_processes() {
    let bench = bench(None);
    let marker = bench.workspace().join("late");
    let command = format!("echo out; echo err >&2; (sleep 3; touch {}) & sleep 60", marker.display());
    let began = Instant::now();
    let reply = bench.call("exec", json!({"command": command, "timeout": 1})).await;
    assert_eq!(
        reply,
        Ok(json!({"success": false, "error": "Command timed out after 1 seconds", "command": command,
            "stdout": "out\n", "stderr": "err\n", "exit_code": -1, "timed_out": true}))
    );
    assert!(began.elapsed() < Duration::from_secs(3));
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(!marker.exists());
    for timeout in [json!(0), json!(-1), json!("1")] {
        let invalid = bench.call("exec", json!({"command": "true", "timeout": timeout})).await.unwrap_err();
        assert_eq!(invalid["error"]["code"], "invalid_input");
    }
    assert!(bench.call("exec", json!({"command": "true", "timeout": u64::MAX})).await.is_ok());
    let schema = bench.gate.registry().find("exec").unwrap().input_schema().clone();
    assert_eq!(schema["properties"]["timeout"]["default"], 30);
    assert_eq!(schema["properties"]["shell"]["default"], "bash");
    assert_eq!(schema["properties"]["source_rc"]["default"], true);
}

#[tokio::test]
async fn cwd_env_and_shell_are_applied() {
    let bench = bench(None);
    std::fs::create_dir(bench.workspace().join("project")).unwrap();
    let project = bench.workspace().join("project").to_str().unwrap().to_owned();
    for cwd in ["project", &project] {
        let reply = bench.call("exec", json!({"command": "pwd", "cwd": cwd})).await.unwrap();
        assert_eq!((&reply["stdout"], &reply["cwd"]), (&json!(format!("{project}\n")), &json!(cwd)));
    }
    let env = json!({"NODE_ENV": "production", "DEBUG": "true", "USER": "other"});
    let reply = bench
        .call("exec", json!({"command": "echo $NODE_ENV $DEBUG $USER; echo $PATH | wc -c", "env": env}))
        .await;
    let stdout = reply.unwrap()["stdout"].as_str().unwrap().to_owned();
    assert!(stdout.starts_with("production true other\n") && !stdout.ends_with("\n1\n"), "{stdout}");
    for (shell, version) in
        [("zsh", "$ZSH_VERSION"), ("bash", "$BASH_VERSION"), ("/bin/bash", "$BASH_VERSION")]
    {
        let command = format!("test -n \"{version}\" && echo it is");
        let reply = bench.call("exec", json!({"command": command, "shell": shell})).await.unwrap();
        assert_eq!((&reply["stdout"], &reply["shell"]), (&json!("it is\n"), &json!(shell)), "{reply}");
    }
    let reply = bench
        .call("exec", json!({"command": "echo ok", "shell": "sh", "env": null, "cwd": null}))
        .await
        .unwrap();
    assert_eq!((&reply["stdout"], &reply["shell"]), (&json!("ok\n"), &json!("sh")));
}

#[tokio::test]
async fn timeout_in_the_start_file_prevents_the_command() {
    for (shell, file) in [("bash", ".bashrc"), ("zsh", ".zshrc")] {
        let bench = Bench::new();
        std::fs::write(bench.workspace().with_file_name("home").join(file), "sleep 20\n").unwrap();
        let input = json!({"command": "touch ran", "shell": shell, "timeout": 1});
        let done = bench.call("exec", input).await.unwrap();
        assert_eq!(done["timed_out"], true, "{shell}");
        assert!(!bench.workspace().join("ran").exists(), "{shell}: the command ran after the timeout");
    }
}

#[tokio::test]
async fn start_file_is_sourced_without_its_output() {
    let bench = bench(Some(
        "echo noise; echo noise >&2; export FROM_RC=yes; greet() { echo hello; }\nset -- x; false\n",
    ));
    for shell in ["bash", "zsh"] {
        let command = "greet; echo $FROM_RC; env | grep -c __gantry; set | grep -c ^__gantry; exit 7";
        let reply = bench.call("exec", json!({"command": command, "shell": shell})).await.unwrap();
        let parts = [&reply["stdout"], &reply["stderr"], &reply["exit_code"]];
        assert_eq!(parts, [&json!("hello\nyes\n0\n0\n"), &json!(""), &json!(7)], "{shell}");
        let clean = json!({"command": "echo \"[$FROM_RC]\"", "shell": shell, "source_rc": false});
        assert_eq!(bench.call("exec", clean).await.unwrap()["stdout"], "[]\n", "{shell}");
    }
    let sh = bench.call("exec", json!({"command": "echo \"[$FROM_RC]\"", "shell": "sh"})).await.unwrap();
    assert_eq!(sh["stdout"], "[]\n");
}

#[tokio::test]
async fn missing_or_failing_start_file_does_not_fail_the_command() {
    for start_file in
        [None, Some("exit 3"), Some("return 4"), Some("if ; then ("), Some("set -e; false"), Some("set -u")]
    {
        let bench = bench(start_file);
        for shell in ["bash", "zsh"] {
            let command = "echo out\necho err >&2\n# a comment\ncat <<END\ntext\nEND\n(exit 5)";
            let reply = bench.call("exec", json!({"command": command, "shell": shell})).await.unwrap();
            let parts = [&reply["stdout"], &reply["stderr"], &reply["exit_code"]];
            assert_eq!(parts, [&json!("out\ntext\n"), &json!("err\n"), &json!(5)], "{shell} {start_file:?}");
        }
    }
}

#[tokio::test]
async fn command_that_cannot_start_is_an_error() {
    let bench = bench(None);
    let plain = bench.write("plain", "");
    let cases = [
        (
            json!({"shell": "no-such-shell"}),
            "No such file or directory",
            Some("the shell is not in PATH: no-such-shell"),
        ),
        (json!({"shell": "./sh"}), "No such file or directory", Some("the shell is not in PATH: ./sh")),
        (json!({"shell": "/no/such"}), "No such file or directory", None),
        (json!({"shell": plain}), "Permission denied", None),
        (
            json!({"cwd": "missing"}),
            "No such file or directory",
            Some("the working directory does not exist: missing"),
        ),
        (json!({"cwd": "plain"}), "not a directory: plain", None),
        (
            json!({"env": {"A=B": "x"}}),
            "an environment variable has an empty or invalid name, or contains a NUL byte",
            None,
        ),
    ];
    for (extra, reason, hint) in cases {
        let mut input = json!({"command": "true"});
        input.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let mut expected = json!({"success": false, "error": format!("Failed to execute command: {reason}"),
            "command": "true", "exit_code": -1, "timed_out": false});
        if let Some(hint) = hint {
            expected["hint"] = json!(hint);
        }
        assert_eq!(bench.call("exec", input).await, Err(expected));
    }
    let closed = bench.call("exec", json!({"command": "true", "cwd": bench.data()})).await.unwrap_err();
    assert_eq!(closed["error"]["code"], "denied");
}

#[tokio::test]
async fn signals_and_truncation_are_reported() {
    let bench = bench(None);
    let reply = bench.call("exec", json!({"command": "kill -9 $$"})).await.unwrap();
    let mut expected = ended("kill -9 $$", "", "", 137);
    expected["signal"] = json!("SIGKILL");
    assert_eq!(reply, expected);
    const LIMIT: usize = 10 * 1024 * 1024;
    for (bytes, truncated) in [(LIMIT, None), (LIMIT + 1, Some(&json!(true)))] {
        let command = format!("head -c {bytes} /dev/zero | tr '\\0' x");
        let reply = bench.call("exec", json!({"command": command})).await.unwrap();
        assert_eq!((reply["stdout"].as_str().unwrap().len(), reply.get("truncated")), (LIMIT, truncated));
    }
}

#[tokio::test]
async fn commands_see_neither_gantry_variables_nor_the_data_directory() {
    let bench = Bench::with(|parts| {
        with_home(parts, None);
        for name in ["GANTRY_TOKEN", "OPENAI_API_KEY"] {
            parts.variables.push((name.into(), "hidden".into()));
        }
    });
    let seen = bench.call("exec", json!({"command": "env | grep -c hidden"})).await.unwrap();
    assert_eq!(seen["stdout"], "0\n");
    assert_eq!(sandbox_support().reason, None, "these tests need Landlock");
    std::fs::write(bench.data().join("token"), "secret").unwrap();
    let input = json!({"command": format!("cat {}", bench.data().join("token").display())});
    assert_eq!(
        bench.call("exec", input.clone()).await.unwrap()["stdout"],
        "secret",
        "the operator's shell is not confined"
    );
    let agent = bench.call_as(bench.agent_call("a"), "exec", input).await.unwrap();
    assert_eq!((&agent["stdout"], &agent["success"]), (&json!(""), &json!(false)));
}

#[tokio::test]
async fn network_policy_applies_to_commands_and_is_reported() {
    let bench = Bench::with(|parts| {
        with_home(parts, None);
        parts.settings.isolation.network = NetworkPolicy::DenyAll;
    });
    let command = "python3 -c 'import socket; socket.socket()'";
    let reply = bench.call("exec", json!({"command": command})).await.unwrap();
    assert_eq!((&reply["success"], &reply["network"]), (&json!(false), &json!("denied")));
    assert!(reply["stderr"].as_str().unwrap().contains("PermissionError"), "{reply}");
}

#[tokio::test]
async fn registry_examples_of_the_seed_work() {
    let bench = bench(None);
    let registry = bench.gate.registry();
    for name in ["read", "write", "exec"] {
        assert!(registry.registered(name), "{name}");
        assert_eq!(registry.find(name).unwrap().name(), name);
    }
    let path = bench.write("test.txt", "hi\n").to_str().unwrap().to_owned();
    let text = json!({"path": path}).to_string();
    let outcome = bench.gate.execute(bench.operator_call(), "read", &text).await;
    let expected = json!({"content": "hi\n", "path": path, "total_lines": 1, "lines_read": 1, "offset": 1, "limit": null});
    assert_eq!(outcome.answer, Answer::Success(Reply::Json(expected)));

    let mut call = bench.operator_call();
    call.scope = ToolScope::new(Some(&["read".to_owned(), "write".to_owned()]), &[]).unwrap();
    let view = registry.view(&call.scope);
    assert!(view.registered("read") && view.registered("write") && !view.registered("exec"));
    let hidden = bench.call_as(call, "exec", json!({"command": "true"})).await.unwrap_err();
    assert_eq!(hidden["error"]["code"], "unknown_tool");
    let all = ToolScope::new(None, &[]).unwrap();
    assert!(["read", "write", "exec"].iter().all(|name| registry.view(&all).registered(name)));
}
