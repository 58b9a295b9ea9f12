#![allow(clippy::disallowed_methods, reason = "tests prepare their own files")]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use gantry_process::sandbox_support;
use gantry_tool::{Call, Principal, Surface};
use serde_json::{Value, json};

use crate::testing::{Bench, set_variable};
use crate::{MachineParts, SandboxMode};
use gantry_net::NetworkPolicy;

fn reply(stdout: &str, stderr: &str, exit_code: i32) -> Value {
    json!({"stdout": stdout, "stderr": stderr, "exitCode": exit_code, "timedOut": false, "signal": null, "truncated": false})
}

async fn exec(bench: &Bench, argv: &[&str]) -> Result<Value, Value> {
    assert_eq!(sandbox_support().reason, None, "these tests need Landlock");
    bench.call("tool::shell_exec", json!({"argv": argv})).await
}

fn script(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// Puts a secret into the home directory, which is next to the workspace.
fn with_secret(parts: &mut MachineParts) {
    let home = parts.temp_dir.parent().unwrap().join("home");
    std::fs::create_dir_all(home.join(".ssh")).unwrap();
    std::fs::write(home.join(".ssh/id"), "secret").unwrap();
}

#[tokio::test]
async fn programs_run_without_a_shell() {
    let bench = Bench::new();
    bench.write("my-project/a b.txt", "hello\n");
    assert_eq!(
        exec(&bench, &["echo", "a  b", "$HOME", "*", "&&", "|"]).await,
        Ok(reply("a  b $HOME * && |\n", "", 0))
    );
    assert_eq!(exec(&bench, &["cat", "my-project/a b.txt"]).await, Ok(reply("hello\n", "", 0)));
    assert_eq!(exec(&bench, &["git", "init", "-q", "my-project"]).await, Ok(reply("", "", 0)));
    let status = json!({"argv": ["git", "status", "--short"], "cwd": "my-project"});
    assert_eq!(bench.call("tool::shell_exec", status).await, Ok(reply("?? \"a b.txt\"\n", "", 0)));
    assert_eq!(exec(&bench, &["grep", "-q", "x", "my-project/a b.txt"]).await, Ok(reply("", "", 1)));
    let killed = exec(&bench, &["python3", "-c", "import os; os.kill(os.getpid(), 9)"]).await;
    let mut expected = reply("", "", 137);
    expected["signal"] = json!("SIGKILL");
    assert_eq!(killed, Ok(expected));
}

#[tokio::test]
async fn only_allow_listed_bare_names_run() {
    assert_eq!(super::ALLOWED.len(), 40);
    let bench = Bench::with(|parts| parts.settings.shell.allow = vec!["true".into(), "/bin/false".into()]);
    for path in ["git", "bin/git", "rm"] {
        script(&bench.workspace().join(path), "echo planted");
    }
    for (argv, error) in [
        (vec!["gitt"], "command not allowed: gitt (allowed: git, "),
        (vec!["rm", "-rf", "/"], "command not allowed: rm (allowed: "),
        (vec!["bash", "-c", "id"], "command not allowed: bash (allowed: "),
        (vec![""], "command not allowed:  (allowed: "),
        (vec!["git "], "command not allowed: git  (allowed: git, "),
        (vec!["./git"], "argv[0] must be a bare name, not a path: ./git (allowed: git, "),
        (vec!["/usr/bin/git"], "argv[0] must be a bare name, not a path: /usr/bin/git (allowed: git, "),
        (vec!["/bin/false"], "argv[0] must be a bare name, not a path: /bin/false (allowed: "),
    ] {
        let error_text = exec(&bench, &argv).await.unwrap_err()["error"].as_str().unwrap().to_owned();
        assert!(error_text.starts_with(error), "{error_text}");
        for name in super::ALLOWED.iter().chain(&["true"]) {
            assert!(error_text.contains(&format!(" {name}")), "{name} in {error_text}");
        }
    }
    assert_eq!(
        exec(&bench, &[]).await,
        Err(
            json!({"error": "argv must not be empty (the first element is the program, as in [\"ls\", \"-l\"])"})
        )
    );
    assert_eq!(exec(&bench, &["true"]).await, Ok(reply("", "", 0)));
    let invalid = exec(&bench, &["echo", "a\0b"]).await;
    assert_eq!(invalid, Err(json!({"error": "an argument contains a NUL byte"})));
}

#[tokio::test]
async fn programs_in_writable_directories_are_ignored() {
    let bench = Bench::with(|parts| {
        let root = parts.temp_dir.parent().unwrap().to_owned();
        parts.settings.shell.path = ["workspace", "workspace/bin", "tmp", "cache", "alias", "tools"]
            .map(|name| root.join(name))
            .into();
        parts.settings.shell.caches = vec![root.join("cache")];
        parts.settings.shell.allow = vec!["own".into(), "planted".into()];
        set_variable(parts, "PATH", format!("{0}/workspace:{0}/tmp:/usr/bin:/bin", root.display()));
        for folder in ["workspace", "workspace/bin", "tmp", "cache"] {
            for name in ["echo", "own", "planted"] {
                script(&root.join(folder).join(name), "echo planted");
            }
        }
        symlink(root.join("workspace/bin"), root.join("alias")).unwrap();
        script(&root.join("tools/own"), "echo own");
        symlink(root.join("workspace/bin/planted"), root.join("tools/planted")).unwrap();
    });
    assert_eq!(exec(&bench, &["echo", "real"]).await, Ok(reply("real\n", "", 0)));
    assert_eq!(exec(&bench, &["own"]).await, Ok(reply("own\n", "", 0)));
    let error = exec(&bench, &["planted"]).await.unwrap_err();
    assert!(error["error"].as_str().unwrap().starts_with("command not found: planted is not in "), "{error}");
    // It is not found through its directory, the working directory or PATH either.
    let inside = json!({"argv": ["planted"], "cwd": "bin"});
    assert_eq!(bench.call("tool::shell_exec", inside).await, Err(error));
}

#[tokio::test]
async fn sandbox_allows_reading_the_system_and_writing_the_workspace_only() {
    let bench = Bench::with(with_secret);
    let root = bench.folder.path().canonicalize().unwrap();
    let home = root.join("home").to_str().unwrap().to_owned();
    let passwd = exec(&bench, &["cat", "/etc/passwd"]).await.unwrap();
    assert_eq!(
        (&passwd["exitCode"], passwd["stdout"].as_str().unwrap().starts_with("root:")),
        (&json!(0), true)
    );
    std::fs::write(bench.data().join("token"), "secret").unwrap();
    for denied in [format!("{home}/.ssh/id"), bench.data().join("token").to_str().unwrap().to_owned()] {
        let read = exec(&bench, &["cat", &denied]).await.unwrap();
        assert_eq!((&read["exitCode"], &read["stdout"]), (&json!(1), &json!("")), "{denied}");
        assert!(read["stderr"].as_str().unwrap().contains("Permission denied"), "{read}");
        for argv in [
            vec!["sed", "-i", "s/secret/x/", &denied],
            vec!["cp", "/etc/passwd", &denied],
            vec!["mv", &denied, "here"],
        ] {
            assert_ne!(exec(&bench, &argv).await.unwrap()["exitCode"], 0, "{argv:?}");
        }
        assert_eq!(std::fs::read_to_string(&denied).unwrap(), "secret");
    }
    let outside = root.join("outside");
    for path in
        [outside.to_str().unwrap(), "/usr/gantry-test", "/etc/gantry-test", "/tmp/gantry-test", "../outside"]
    {
        assert_ne!(exec(&bench, &["touch", path]).await.unwrap()["exitCode"], 0, "{path}");
        assert!(!bench.workspace().join(path).exists(), "{path}");
    }
    assert_eq!(exec(&bench, &["mkdir", "-p", "made/here"]).await, Ok(reply("", "", 0)));
    assert!(bench.workspace().join("made/here").is_dir());
}

#[tokio::test]
async fn configured_paths_can_be_read_and_written() {
    let bench = Bench::with(|parts| {
        with_secret(parts);
        let root = parts.temp_dir.parent().unwrap().to_owned();
        std::fs::create_dir(root.join("cache")).unwrap();
        parts.settings.shell.readable = vec![root.join("home/.ssh")];
        parts.settings.shell.caches = vec![root.join("cache")];
    });
    let root = bench.folder.path().canonicalize().unwrap();
    let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
    assert_eq!(exec(&bench, &["cat", &path("home/.ssh/id")]).await, Ok(reply("secret", "", 0)));
    assert_ne!(exec(&bench, &["cp", "/etc/passwd", &path("home/.ssh/id")]).await.unwrap()["exitCode"], 0);
    assert_eq!(exec(&bench, &["touch", &path("cache/new")]).await, Ok(reply("", "", 0)));
}

#[tokio::test]
async fn data_directory_inside_the_workspace_stays_closed() {
    let bench = Bench::new();
    std::fs::write(bench.data().join("token"), "secret").unwrap();
    let root = bench.data().parent().unwrap().to_owned();
    let call = || Call::new(Principal::Operator, Surface::Cli, root.clone());
    let run =
        async |argv: &[&str]| bench.call_as(call(), "tool::shell_exec", json!({"argv": argv})).await.unwrap();
    let read = run(&["cat", "data/token"]).await;
    assert_eq!((&read["exitCode"], &read["stdout"]), (&json!(1), &json!("")));
    assert_eq!(run(&["touch", "workspace/x"]).await, reply("", "", 0));
    let cwd = json!({"argv": ["ls"], "cwd": "data"});
    let refused = bench.call_as(call(), "tool::shell_exec", cwd).await.unwrap_err();
    assert_eq!(refused["error"]["code"], "denied");
}

#[tokio::test]
async fn environment_has_only_allowed_variables_and_a_private_tmpdir() {
    let bench = Bench::with(|parts| {
        let names = [
            "PATH",
            "HOME",
            "USER",
            "LANG",
            "TERM",
            "NODE_ENV",
            "SHELL",
            "GANTRY_TOKEN",
            "LD_PRELOAD",
            "EDITOR",
        ];
        parts.variables = names.map(|name| (name.into(), format!("/{name}").into())).into();
    });
    let shown = exec(&bench, &["env"]).await.unwrap();
    let mut lines: Vec<&str> = shown["stdout"].as_str().unwrap().lines().collect();
    let at = lines.iter().position(|line| line.starts_with("TMPDIR=")).unwrap();
    let private = lines.remove(at).strip_prefix("TMPDIR=").unwrap();
    let root = bench.folder.path().canonicalize().unwrap();
    assert_eq!(Path::new(private).parent(), Some(&*root.join("tmp")));
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["HOME=/HOME", "LANG=/LANG", "NODE_ENV=/NODE_ENV", "PATH=/PATH", "TERM=/TERM", "USER=/USER"]
    );
    let code = "import os, tempfile; open(os.environ['TMPDIR'] + '/a', 'w').write('x'); os.mkdir(tempfile.gettempdir() + '/d')";
    assert_eq!(exec(&bench, &["python3", "-c", code]).await, Ok(reply("", "", 0)));
    assert_eq!(std::fs::read_dir(root.join("tmp")).unwrap().count(), 0, "private directories are removed");
}

#[tokio::test]
async fn network_policy_is_applied() {
    let code = ["python3", "-c", "import socket; socket.socket(); print('open')"];
    let open = Bench::new();
    assert_eq!(exec(&open, &code).await, Ok(reply("open\n", "", 0)));
    let shut = Bench::with(|parts| parts.settings.isolation.network = NetworkPolicy::DenyAll);
    let denied = exec(&shut, &code).await.unwrap();
    assert_eq!(
        (&denied["exitCode"], &denied["stdout"], &denied["network"]),
        (&json!(1), &json!(""), &json!("denied"))
    );
    assert!(denied["stderr"].as_str().unwrap().contains("PermissionError"), "{denied}");
}

#[tokio::test]
async fn output_is_truncated_at_its_limits_between_characters() {
    let bench = Bench::new();
    let code = |out: usize, err: usize| {
        format!("import sys; sys.stdout.write('x' * {out}); sys.stderr.write('y' * {err})")
    };
    for (out, err, truncated) in
        [(102_400, 51_200, false), (102_401, 0, true), (0, 51_201, true), (5_000_000, 5_000_000, true)]
    {
        let reply = exec(&bench, &["python3", "-c", &code(out, err)]).await.unwrap();
        let length = |name: &str| reply[name].as_str().unwrap().len();
        assert_eq!((length("stdout"), length("stderr")), (out.min(102_400), err.min(51_200)));
        assert_eq!((&reply["truncated"], &reply["exitCode"]), (&json!(truncated), &json!(0)));
    }
    let wide = exec(
        &bench,
        &["python3", "-c", "import sys; sys.stdout.buffer.write(b'x' + '\\u20ac'.encode() * 50000)"],
    )
    .await;
    let wide = wide.unwrap()["stdout"].as_str().unwrap().to_owned();
    assert_eq!((wide.len(), wide.ends_with('€')), (1 + 34_133 * 3, true));
}

#[tokio::test]
async fn timeout_kills_the_program_and_its_children() {
    let bench = Bench::new();
    let code = "import subprocess, sys, time\nsubprocess.Popen(['sleep', '60'])\nprint('begun', flush=True)\ntime.sleep(60)";
    let began = Instant::now();
    let input = json!({"argv": ["python3", "-c", code], "timeout": 4_000});
    let ended = bench.call("tool::shell_exec", input).await.unwrap();
    let expected = json!({"stdout": "begun\n", "stderr": "", "exitCode": 143, "timedOut": true, "signal": "SIGTERM", "truncated": false});
    assert_eq!(ended, expected);
    // Both would run for 60 s, and the child holds the output open.
    assert!(began.elapsed() < Duration::from_secs(40));
    for timeout in [0, u64::MAX] {
        let input = json!({"argv": ["echo", "x"], "timeout": timeout});
        assert_eq!(bench.call("tool::shell_exec", input).await, Ok(reply("x\n", "", 0)));
    }
    let schema = bench.gate.registry().find("tool::shell_exec").unwrap().input_schema().clone();
    assert_eq!(schema["properties"]["timeout"]["default"], 120_000);
}

#[tokio::test]
async fn cancelled_call_kills_its_program_and_cleans_up() {
    let bench = Bench::new();
    let mut call = bench.operator_call();
    call.deadline = Some(Instant::now() + Duration::from_millis(500));
    let code = "import time, os\ntime.sleep(5)\nopen('late', 'w')";
    let ended = bench.call_as(call, "tool::shell_exec", json!({"argv": ["python3", "-c", code]})).await;
    assert_eq!(ended.unwrap_err()["error"]["code"], "deadline");
    let root = bench.folder.path().canonicalize().unwrap();
    assert_eq!(std::fs::read_dir(root.join("tmp")).unwrap().count(), 0);
}

#[tokio::test]
async fn working_directory_must_be_in_the_workspace() {
    let bench = Bench::new();
    symlink("/etc", bench.workspace().join("out")).unwrap();
    std::fs::create_dir(bench.workspace().join("in")).unwrap();
    symlink("in", bench.workspace().join("link")).unwrap();
    for (cwd, error) in [
        ("..", "path is outside the workspace: .. (use a path inside the workspace root)"),
        ("/etc", "path is outside the workspace: /etc (use a path inside the workspace root)"),
        ("out", "path is outside the workspace: out (use a path inside the workspace root)"),
        ("missing", "no such file or directory: missing"),
    ] {
        let reply = bench.call("tool::shell_exec", json!({"argv": ["ls"], "cwd": cwd})).await;
        assert_eq!(reply, Err(json!({"error": error})));
    }
    let touched = bench.call("tool::shell_exec", json!({"argv": ["touch", "x"], "cwd": "link"})).await;
    assert_eq!(touched, Ok(reply("", "", 0)));
    assert!(bench.workspace().join("in/x").exists());
}

#[tokio::test]
async fn operator_can_turn_the_sandbox_off() {
    let bench = Bench::with(|parts| {
        with_secret(parts);
        parts.settings.shell.sandbox = SandboxMode::Off;
    });
    let secret = bench.folder.path().join("home/.ssh/id").to_str().unwrap().to_owned();
    assert_eq!(exec(&bench, &["cat", &secret]).await, Ok(reply("secret", "", 0)));
}

#[tokio::test]
async fn git_works_without_its_global_configuration() {
    let change = |parts: &mut MachineParts, readable: bool| {
        with_secret(parts);
        let global = parts.temp_dir.parent().unwrap().join("home/.gitconfig");
        std::fs::write(&global, "[user]\nname = Somebody\n").unwrap();
        if readable {
            parts.settings.shell.readable = vec![global];
        }
    };
    for (readable, name) in [(false, ""), (true, "Somebody\n")] {
        let bench = Bench::with(|parts| change(parts, readable));
        assert_eq!(exec(&bench, &["git", "init", "-q"]).await, Ok(reply("", "", 0)));
        assert_eq!(exec(&bench, &["git", "status", "--short"]).await, Ok(reply("", "", 0)));
        let known = exec(&bench, &["git", "config", "user.name"]).await.unwrap();
        assert_eq!((&known["stdout"], &known["stderr"]), (&json!(name), &json!("")));
    }
}

#[tokio::test]
async fn command_that_cannot_be_confined_is_denied_unless_the_sandbox_is_off() {
    for (sandbox, runs) in [(SandboxMode::Required, false), (SandboxMode::Off, true)] {
        let bench = Bench::with(|parts| {
            // A path that no rule can express simulates a kernel without Landlock.
            parts.closed.push("relative".into());
            parts.settings.shell.sandbox = sandbox;
        });
        let made = exec(&bench, &["touch", "made"]).await;
        assert_eq!(bench.workspace().join("made").exists(), runs);
        match made {
            Ok(made) => assert_eq!(made, reply("", "", 0)),
            Err(refused) => assert_eq!(refused["error"]["code"], "denied", "{refused}"),
        }
    }
}

#[tokio::test]
async fn agents_need_approval_to_work_in_a_sensitive_directory() {
    let bench = Bench::new();
    std::fs::create_dir(bench.workspace().join(".ssh")).unwrap();
    symlink(".ssh", bench.workspace().join("innocent")).unwrap();
    for (name, mut input) in
        [("tool::shell_exec", json!({"argv": ["ls"]})), ("exec", json!({"command": "ls"}))]
    {
        assert!(bench.call_as(bench.agent_call("a"), name, input.clone()).await.is_ok(), "{name}");
        for cwd in [".ssh", "innocent"] {
            input["cwd"] = json!(cwd);
            let refused = bench.call_as(bench.agent_call("a"), name, input.clone()).await.unwrap_err();
            assert_eq!(refused["error"]["code"], "approval_needed", "{name} {cwd}");
        }
    }
}
