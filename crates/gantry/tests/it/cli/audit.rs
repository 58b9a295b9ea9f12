//! The audit log through the command line: complete, masked, verified.

use gantry_testkit::World;
use serde_json::{Value, json};

#[test]
fn every_call_is_recorded() {
    let world = World::new();
    world.configure("[[policy.rules]]\nname = \"no-exec\"\ntool = \"exec\"\ndecision = \"deny\"\n");
    world.run(&["call", "write", r#"{"path": "a", "data": "x"}"#]);
    world.run(&["call", "read", r#"{"path": "missing"}"#]);
    world.run(&["call", "exec", r#"{"command": "true"}"#]);
    world.run(&["call", "raed"]);
    world.run(&["call", "read", r#"{"x": 1}"#]);
    let lines = world.run(&["audit", "--json"]).json();
    let seen: Vec<(&str, &str)> = lines
        .as_array()
        .unwrap()
        .iter()
        .map(|line| (line["phase"].as_str().unwrap(), line["status"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(
        seen,
        [
            ("begin", ""),
            ("end", "success"),
            ("begin", ""),
            ("end", "failure"),
            ("refused", "denied"),
            ("refused", "unknown_tool"),
            ("refused", "invalid_input"),
        ]
    );
    let denied = world.run(&["audit", "--status", "denied", "--json"]).json();
    assert_eq!((denied.as_array().unwrap().len(), &denied[0]["rule"]), (1, &json!("no-exec")));
    assert_eq!(
        world.run(&["audit", "--tool", "read", "--limit", "1", "--json"]).json().as_array().unwrap().len(),
        1
    );
    let ran = world.run(&["audit", "verify"]);
    assert!(ran.code == 0 && ran.stdout.contains("intact"), "{}", ran.stdout);
}

#[test]
fn tampering_is_detected() {
    let world = World::new();
    for _ in 0..3 {
        world.run(&["call", "write", r#"{"path": "a", "data": "x"}"#]);
    }
    let log = world.data().join("audit.log");
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, text.replacen("\"write\"", "\"read\"", 1)).unwrap();
    let ran = world.run(&["audit", "verify"]);
    assert!(ran.code == 1 && ran.stdout.contains("line 1:"), "{}", ran.stdout);
    let cut: String = text.lines().take(4).map(|line| format!("{line}\n")).collect();
    std::fs::write(&log, cut).unwrap();
    let ran = world.run(&["audit", "verify"]);
    assert!(ran.code == 1 && ran.stdout.contains("cut"), "{}", ran.stdout);
}

#[test]
fn full_log_is_rotated_and_read_across_files() {
    use gantry_tool::{AuditRecord, AuditSink, Durability, Phase};
    let world = World::new();
    world.run(&["call", "write", r#"{"path": "a", "data": "x"}"#]);
    let path = world.data().join("audit.log");
    let long = AuditRecord {
        call: "long".into(),
        phase: Phase::Refused,
        principal: "operator".into(),
        agent: "main".into(),
        surface: "cli".into(),
        tool: "long".into(),
        input: None,
        rule: None,
        status: None,
        error: Some("x".repeat(1 << 20)),
        duration_ms: None,
    };
    gantry_store::AuditLog::open(&path).unwrap().append(long, Durability::Now).unwrap();
    world.configure("[audit]\nmaxFileMegabytes = 1\n");
    world.run(&["call", "write", r#"{"path": "a", "data": "x"}"#]);
    let full = world.data().join("audit-000000000003.log");
    assert!(full.exists() && std::fs::metadata(&path).unwrap().len() < 10_000);
    let found = world.run(&["audit", "verify", "--json"]).json();
    assert_eq!(
        (&found["intact"], &found["lines"], &found["files"]),
        (&json!(true), &json!(5), &json!(2)),
        "{found}"
    );
    let listed = world.run(&["audit", "--json"]).json();
    let numbers: Vec<u64> =
        listed.as_array().unwrap().iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    let text = std::fs::read_to_string(&full).unwrap();
    std::fs::write(&full, text.replacen("\"write\"", "\"read\"", 1)).unwrap();
    let ran = world.run(&["audit", "verify"]);
    assert!(
        ran.code == 1 && ran.stdout.contains("audit-000000000003.log line 1:"),
        "{} {}",
        ran.stdout,
        ran.stderr
    );
}

#[test]
fn trailing_bytes_are_reported() {
    let world = World::new();
    world.run(&["call", "write", r#"{"path": "a", "data": "x"}"#]);
    let log = world.data().join("audit.log");
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, format!("{text}garbage")).unwrap();
    let ran = world.run(&["audit", "verify"]);
    assert!(ran.code == 1 && ran.stdout.contains("7 bytes"), "{}", ran.stdout);
    std::fs::write(&log, format!("{text}{{\"seq\":3,\"at\":\"20")).unwrap();
    let ran = world.run(&["audit", "verify"]);
    assert!(ran.code == 0 && ran.stderr.contains("incomplete"), "{} {}", ran.stdout, ran.stderr);
}

#[test]
fn secrets_and_long_inputs_are_not_recorded() {
    let world = World::new();
    let secret = "s3cr3t-v4lu3-in-env";
    let input =
        json!({"command": format!("echo {secret}"), "env": {"API_TOKEN": "another-secret"}}).to_string();
    world.run_with(&["call", "exec", &input], &[("SERVICE_TOKEN", secret)]);
    world.run(&["call", "write", &json!({"path": "a", "data": "z".repeat(50_000)}).to_string()]);
    let log = std::fs::read_to_string(world.data().join("audit.log")).unwrap();
    assert!(!log.contains(secret) && !log.contains("another-secret") && log.len() < 5_000, "{log}");
}

#[test]
fn unwritable_log_rejects_the_call() {
    let world = World::new();
    world.configure("");
    std::os::unix::fs::symlink("/dev/full", world.data().join("audit.log")).unwrap();
    let ran = world.run(&["call", "write", r#"{"path": "a", "data": "x"}"#]);
    assert_eq!((ran.code, &ran.json()["error"]["code"]), (3, &json!("unaudited")), "{}", ran.stdout);
    assert!(!world.workspace().join("a").exists());
}

/// By default the kernel ends a process that writes beyond its limit.
#[test]
fn file_size_limit_is_an_error_and_does_not_kill_the_process() {
    let world = World::new();
    let mut command = std::process::Command::new("bash");
    let script = r#"ulimit -f 0; exec "$0" call write '{"path": "a", "data": "x"}'"#;
    command.args(["-c", script, env!("CARGO_BIN_EXE_gantry")]).current_dir(world.workspace());
    let output = command.env("GANTRY_DATA_DIR", world.data()).output().unwrap();
    assert!(output.status.code().is_some_and(|code| code != 0), "{output:?}");
}

/// The line "about to" is on disk before the effect: a trace of the system calls shows the order.
#[test]
fn record_is_synced_before_the_effect() {
    let world = World::new();
    let trace = world.folder.path().join("trace");
    let gantry = env!("CARGO_BIN_EXE_gantry");
    let mut command = std::process::Command::new("strace");
    command
        .args(["-f", "-y", "-e", "trace=fdatasync,fsync,renameat,renameat2,rename", "-o"])
        .arg(&trace)
        .arg(gantry);
    command.args(["call", "Write", r#"{"path": "a.txt", "content": "x"}"#]).current_dir(world.workspace());
    let status =
        command.env("GANTRY_DATA_DIR", world.data()).stdout(std::process::Stdio::null()).status().unwrap();
    assert!(status.success());
    let trace = std::fs::read_to_string(trace).unwrap();
    let at = |what: &dyn Fn(&str) -> bool| trace.lines().position(what).unwrap_or_else(|| panic!("{trace}"));
    let audit_synced = at(&|line| line.contains("sync(") && line.contains("audit.log"));
    let file_synced = at(&|line| line.contains("sync(") && line.contains("/workspace"));
    let renamed = at(&|line| line.contains("rename") && line.contains("\"a.txt\""));
    let lines: Vec<&str> = trace.lines().collect();
    let folder_synced =
        lines.iter().rposition(|line| line.contains("sync(") && line.contains("/workspace>")).unwrap();
    assert!(audit_synced < file_synced && file_synced < renamed && renamed < folder_synced, "{trace}");
}

#[test]
fn concurrent_processes_append_to_one_chain() {
    let world = World::new();
    std::thread::scope(|scope| {
        for n in 0..6 {
            let world = &world;
            scope.spawn(move || {
                for turn in 0..4 {
                    let input = json!({"path": format!("f{n}-{turn}"), "data": "x"}).to_string();
                    assert_eq!(world.run(&["call", "write", &input]).code, 0);
                }
            });
        }
    });
    let found = world.run(&["audit", "verify", "--json"]).json();
    assert_eq!((&found["intact"], &found["lines"]), (&Value::Bool(true), &json!(48)), "{found}");
}

#[test]
fn huge_rejected_call_does_not_block_the_next() {
    let world = World::new();
    let input = json!({"argv": vec!["x".repeat(400); 4_000], "nonsense": 1}).to_string();
    assert_eq!(world.run_with_input(&["call", "tool::shell_exec", "-"], &input).code, 2);
    assert_eq!(world.run(&["call", "write", r#"{"path": "a", "data": "x"}"#]).code, 0);
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
    assert!(std::fs::metadata(world.data().join("audit.log")).unwrap().len() < 20_000);
}
