//! Calls made as an agent: its tools, its policy, and the closed data directory.

use gantry_testkit::World;
use serde_json::json;

const AGENTS: &str = r#"
[agents.file-assistant]
model = "some-model"
tools = ["read", "write"]
autonomy = "guided"

[agents.full]
tools = "all"
autonomy = "autonomous"

[agents.watched]
tools = "all"
autonomy = "supervised"

[agents.offline]
autonomy = "autonomous"
isolation = { level = "air-gapped" }
"#;

fn world() -> World {
    let world = World::new();
    world.configure(AGENTS);
    world
}

#[test]
fn agent_sees_only_its_tools() {
    let world = world();
    let list = world.run(&["tools", "--agent", "file-assistant", "--json"]).json();
    assert_eq!(list.as_array().unwrap().len(), 2);
    let denied = world.run(&["call", "exec", r#"{"command": "touch x"}"#, "--agent", "file-assistant"]);
    assert_eq!((denied.code, &denied.json()["error"]["code"]), (2, &json!("unknown_tool")));
    let written = world.run(&["call", "write", r#"{"path": "x", "data": "y"}"#, "--agent", "file-assistant"]);
    assert_eq!(written.code, 0, "{}", written.stdout);
    let all = world.run(&["call", "exec", r#"{"command": "echo hi"}"#, "--agent", "full"]);
    assert_eq!((all.code, &all.json()["stdout"]), (0, &json!("hi\n")));
    let unknown = world.run(&["call", "read", "--agent", "fulll"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.stderr.contains("did you mean \"full\"?"), "{}", unknown.stderr);
}

#[test]
fn supervised_agent_needs_approval_to_write() {
    let world = world();
    let ran = world.run(&["call", "write", r#"{"path": "x", "data": "y"}"#, "--agent", "watched"]);
    assert_eq!((ran.code, &ran.json()["error"]["code"]), (3, &json!("approval_needed")));
    assert!(!world.workspace().join("x").exists());
    world.write("a.txt", "a");
    assert_eq!(world.run(&["call", "read", r#"{"path": "a.txt"}"#, "--agent", "watched"]).code, 0);
}

#[test]
fn sensitive_paths_are_denied_to_every_tool() {
    let world = world();
    let key = world.write(".ssh/id_ed25519", "private");
    world.write("link", "");
    std::fs::remove_file(world.workspace().join("link")).unwrap();
    std::os::unix::fs::symlink(&key, world.workspace().join("link")).unwrap();
    for (tool, input) in [
        ("Read", json!({"path": ".ssh/id_ed25519"})),
        ("Read", json!({"path": "link"})),
        ("read", json!({"path": key})),
        ("read_file", json!({"path": key})),
        ("tool::file_read", json!({"path": "link"})),
        ("write", json!({"path": key, "data": "x"})),
        ("Edit", json!({"path": key, "oldString": "private", "newString": "x"})),
        ("tool::apply_patch", json!({"path": ".ssh/id_ed25519", "patch": "@@ -1 +1 @@\n-private\n+x\n"})),
        (
            "batch_files",
            json!({"directory": world.workspace().join(".ssh"), "pattern": "*", "operation": "transform", "find": "p", "replace": "q"}),
        ),
    ] {
        let ran = world.run(&["call", tool, &input.to_string(), "--agent", "full"]);
        assert_eq!(ran.code, 3, "{tool} {input}: {}", ran.stdout);
        assert!(ran.stdout.contains("sensitive-paths"), "{tool}: {}", ran.stdout);
    }
    let found = world.run(&["call", "Grep", r#"{"pattern": "private"}"#, "--agent", "full"]).json();
    assert_eq!(found["count"], 0, "a walk leaves sensitive files out: {found}");
    let found = world.run(&["call", "Grep", r#"{"pattern": "private"}"#]).json();
    assert_eq!(found["count"], 2, "the operator may, by name and by link: {found}");
    assert_eq!(std::fs::read_to_string(key).unwrap(), "private");
}

#[test]
fn data_directory_is_closed_to_tools_and_agent_shells() {
    let world = world();
    assert_eq!(world.run(&["call", "Bash", r#"{"command": "true"}"#]).code, 0, "makes the key");
    let key = world.data().join("audit.key");
    assert!(key.exists());
    std::os::unix::fs::symlink(world.data(), world.workspace().join("inside")).unwrap();
    for agent in [&[][..], &["--agent", "full"]] {
        for path in [
            key.to_str().unwrap().to_owned(),
            "inside/audit.key".into(),
            format!("/proc/self/root{}", key.display()),
        ] {
            for (tool, input) in [
                ("Read", json!({"path": path})),
                ("read", json!({"path": path})),
                ("Write", json!({"path": path, "content": "x"})),
            ] {
                let input = input.to_string();
                let ran = world.run(&[&["call", tool, &input][..], agent].concat());
                assert_ne!(ran.code, 0, "{tool} {path}: {}", ran.stdout);
            }
        }
    }
    for tool in ["Bash", "bash", "exec"] {
        let script = format!(
            "(cat {key} || cat inside/audit.key || ls {data}; touch {data}/x) 2>&1; true",
            key = key.display(),
            data = world.data().display()
        );
        let ran = world.run(&["call", tool, &json!({ "command": script }).to_string(), "--agent", "full"]);
        assert!(!world.data().join("x").exists(), "{tool}: {}", ran.stdout);
        assert!(
            !ran.stdout.contains("audit.log") && ran.stdout.contains("No such file"),
            "{tool}: {}",
            ran.stdout
        );
    }
}

/// Who reads it acts as that client, which may do more.
#[test]
fn agent_cannot_read_the_mcp_client_token() {
    let world = world();
    let home = world.folder.path().canonicalize().unwrap();
    for file in [".claude.json", ".claude/settings.json", ".config/opencode/opencode.json"] {
        let file = home.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "gtc_top_secret").unwrap();
        for tool in ["Read", "read", "read_file"] {
            let input = json!({"path": file}).to_string();
            let ran = world.run(&["call", tool, &input, "--agent", "full"]);
            assert!(ran.code == 3 && !ran.stdout.contains("top_secret"), "{tool}: {}", ran.stdout);
            assert_eq!(world.run(&["call", tool, &input]).code, 0, "the operator reads what is theirs");
        }
        let input = json!({"command": format!("cat {}", file.display())}).to_string();
        for tool in ["Bash", "bash", "exec"] {
            let ran = world.run(&["call", tool, &input, "--agent", "full"]);
            assert!(!ran.stdout.contains("top_secret"), "{tool}: {}", ran.stdout);
        }
    }
}

#[test]
fn air_gapped_agent_has_no_sockets_and_three_variables() {
    let world = world();
    for tool in ["bash", "Bash", "exec"] {
        let input = r#"{"command": "/usr/bin/env"}"#;
        let variables =
            [("GIT_DIR", "x"), ("TMPDIR", "/tmp"), ("BASH_ENV", "/nonexistent"), ("GITHUB_TOKEN", "t")];
        let ran = world.run_with(&["call", tool, input, "--agent", "offline"], &variables);
        let text = ran.stdout.replace("\\n", "\n").replace("\":\"", "\":\"\n");
        let mut names: Vec<&str> =
            text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
        // What shells set by themselves.
        names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_", "TERM"].contains(name));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names, ["HOME", "PATH", "TMPDIR"], "{tool}: {}", ran.stdout);
    }
    let socket = r#"{"command": "python3 -c 'import socket; socket.socket()'"}"#;
    let ran = world.run(&["call", "bash", socket, "--agent", "offline"]);
    assert!(ran.code == 1 && ran.stdout.contains("PermissionError"), "{}", ran.stdout);
    assert_eq!(world.run(&["call", "bash", socket, "--agent", "full"]).code, 0);
}

#[test]
fn commands_do_not_inherit_gantry_variables_or_model_keys() {
    let world = world();
    let variables = [("ANTHROPIC_API_KEY", "sk-ant-1234567890"), ("MY_SECRET_TOKEN", "hunter2hunter2")];
    for tool in ["Bash", "exec", "bash"] {
        let ran = world.run_with(&["call", tool, r#"{"command": "env"}"#], &variables);
        assert_eq!(ran.code, 0, "{}", ran.stdout);
        assert!(
            !ran.stdout.contains("GANTRY_") && !ran.stdout.contains("sk-ant-1234567890"),
            "{tool}: {}",
            ran.stdout
        );
        assert!(!ran.stdout.contains("hunter2hunter2"), "{tool}: known secrets are masked: {}", ran.stdout);
    }
}
