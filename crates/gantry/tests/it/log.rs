//! The log of the gateway and the node: text on standard error, JSON in the data directory.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::Duration;

use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);

fn file(world: &World) -> PathBuf {
    world.data().join("gateway-log/node.log")
}

fn lines(world: &World) -> Vec<Value> {
    let text = std::fs::read_to_string(file(world)).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn events(world: &World) -> Vec<String> {
    lines(world).iter().map(|line| line["event"].as_str().unwrap().to_owned()).collect()
}

fn stderr_of(world: &World, more: &[&str]) -> (Gateway, impl Fn() -> String) {
    let path = world.folder.path().join("stderr");
    let up = Gateway::start_logged(world, &path, more);
    (up, move || std::fs::read_to_string(&path).unwrap())
}

fn read(up: &Gateway) -> String {
    let read = up.call("local__Read", &json!({"path": "a.txt"}));
    assert_eq!(read.status, 200, "{}", read.text());
    read.header("gantry-call-id").unwrap().to_owned()
}

#[test]
fn calls_are_logged_at_debug_with_id_tool_principal_and_duration() {
    let world = World::new();
    world.write("a.txt", "text");
    let (up, stderr) = stderr_of(&world, &["--log-level", "debug"]);
    let call = read(&up);
    eventually("the call is on standard error", SOON, || stderr().contains(&call));
    let text = stderr();
    let line = text.lines().find(|line| line.contains(&call)).unwrap();
    assert!(line.contains("  debug  call_ended  ") && line.contains("tool=local__Read"), "{line}");
    assert!(!text.contains('\u{1b}'), "a file has no colours: {text}");
    let lines = lines(&world);
    let line = lines.iter().find(|line| line["call"] == call).unwrap();
    assert_eq!(
        (&line["event"], &line["level"], &line["principal"], &line["status"]),
        (&json!("call_ended"), &json!("debug"), &json!("operator"), &json!("success"))
    );
    assert!(line["durationMs"].is_f64() && line.get("input").is_none(), "{line}");
}

#[test]
fn call_that_succeeds_writes_nothing_at_the_default_level() {
    let world = World::new();
    world.write("a.txt", "text");
    let (up, stderr) = stderr_of(&world, &[]);
    let before = (events(&world), stderr());
    assert!(before.0.contains(&"started".to_owned()), "{before:?}");
    (0..20).for_each(|_| drop(read(&up)));
    // Lines are written in order, so a refusal that is there shows that nothing came before it.
    let refused = up.call("local__Nope", &json!({}));
    let call = refused.header("gantry-call-id").unwrap();
    eventually("the refusal is logged", SOON, || events(&world).len() > before.0.len());
    let lines = lines(&world);
    assert_eq!(lines.len(), before.0.len() + 1, "{lines:?}");
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["event"], &last["level"], &last["call"], &last["code"]),
        (&json!("call_refused"), &json!("warning"), &json!(call), &json!("unknown_tool"))
    );
    let said = stderr().strip_prefix(&before.1).unwrap().to_owned();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("  warning  call_refused  ") && said.contains(call), "{said}");
}

#[test]
fn quiet_keeps_warnings_off_standard_error_and_color_is_a_choice() {
    let world = World::new();
    let (mut up, stderr) = stderr_of(&world, &["--quiet"]);
    up.call("local__Nope", &json!({}));
    eventually("it is in the file", SOON, || events(&world).contains(&"call_refused".to_owned()));
    assert_eq!(stderr(), "");
    up.signal(rustix::process::Signal::TERM);
    assert_eq!(up.wait(SOON), Some(0));
    let (up, stderr) = stderr_of(&world, &["--color", "always"]);
    up.call("local__Nope", &json!({}));
    eventually("the level is yellow", SOON, || stderr().contains("\u{1b}[33mwarning\u{1b}[0m"));
}

#[test]
fn log_level_is_configured_and_an_unknown_one_is_refused() {
    let world = World::new();
    let levels = ["error", "warn", "info", "debug"];
    let refused = |ran: gantry_testkit::Ran| {
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("loud"), "{}", ran.stderr);
        let missing: Vec<_> = levels.iter().filter(|level| !ran.stderr.contains(**level)).collect();
        assert!(missing.is_empty(), "{missing:?} {}", ran.stderr);
    };
    refused(world.run(&["up", "--listen", "127.0.0.1:0", "--log-level", "loud"]));
    world.configure("[log]\nlevel = \"loud\"\n");
    refused(world.run(&["up", "--listen", "127.0.0.1:0"]));
    refused(world.run(&["config", "set", "log.level", "loud"]));
    assert!(!file(&world).exists());
    world.configure("[log]\nlevel = \"error\"\n");
    let (up, stderr) = stderr_of(&world, &[]);
    up.call("local__Nope", &json!({}));
    drop(up);
    assert_eq!((events(&world), stderr()), (Vec::new(), String::new()));
}

#[test]
fn full_log_file_is_rotated_and_old_lines_stay_readable() {
    let world = World::new();
    world.configure("[log]\nmaxFileMegabytes = 1\n");
    let folder = world.data().join("gateway-log");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).unwrap();
    let old = format!("{}\n", json!({"event": "old", "text": "x".repeat(1_000)})).repeat(1_020);
    std::fs::write(file(&world), &old).unwrap();
    let up = Gateway::start(&world);
    (0..10).for_each(|_| drop(up.call("local__Nope", &json!({}))));
    let size = |name: &str| std::fs::metadata(folder.join(name)).map_or(0, |file| file.len());
    eventually("the full file is rotated", SOON, || size("node.log.1") > 1_000_000);
    assert!(size("node.log") < 100_000 && size("node.log.1") <= 1 << 20);
    let shown = world.run(&["logs", "local", "--lines", "50"]);
    assert!(shown.stdout.contains("\"old\"") && shown.stdout.contains("call_refused"), "{shown:?}");
}

#[test]
fn secrets_are_masked_and_tokens_are_not_logged() {
    let (secret, wrong) = ("hunter2-in-the-environment", "gtc_wrong-token-that-somebody-tries-here");
    let world = World::new();
    let path = world.folder.path().join("stderr");
    let up = Gateway::start_with_env(&world, &path, &[("DEPLOY_TOKEN", secret)]);
    up.call(&format!("local__{secret}"), &json!({}));
    let denied = up.ask("GET", "/v1/tools", &[("Authorization", &format!("Bearer {wrong}"))], b"");
    assert_eq!(denied.status, 401);
    eventually("both are logged", SOON, || {
        let events = events(&world);
        ["call_refused", "login_denied"].iter().all(|event| events.contains(&(*event).to_owned()))
    });
    for text in [std::fs::read_to_string(file(&world)).unwrap(), std::fs::read_to_string(&path).unwrap()] {
        assert!(text.contains("call_refused") && text.contains("login_denied"), "{text}");
        for hidden in [secret, wrong, &up.token] {
            assert!(!text.contains(hidden), "{hidden}: {text}");
        }
    }
    let denied = lines(&world).into_iter().find(|line| line["event"] == "login_denied").unwrap();
    assert_eq!(denied["address"], "127.0.0.1");
}

#[test]
fn logs_command_shows_the_gateways_own_log() {
    for command in ["up", "serve"] {
        let world = World::new();
        let mut up = Gateway::start_with(&world, command, &[]);
        for args in [&["logs"][..], &["logs", "local"]] {
            let shown = world.run(args);
            let first: Value = serde_json::from_str(shown.stdout.lines().next().unwrap()).unwrap();
            assert_eq!((&first["event"], &first["url"]), (&json!("started"), &json!(up.url)), "{shown:?}");
            assert_eq!(
                (&first["version"], &first["nodeId"]),
                (&json!(env!("CARGO_PKG_VERSION")), &json!("local"))
            );
        }
        up.signal(rustix::process::Signal::TERM);
        assert_eq!(up.wait(SOON), Some(0));
        assert_eq!(events(&world).last().unwrap(), "stopped");
    }
}
