//! A call gives the same JSON and exit code with and without a gateway.

use gantry_testkit::{Gateway, World};
use serde_json::{Value, json};

/// Fields that differ from run to run.
const PASSING: [&str; 10] = [
    "sessionId",
    "durationMs",
    "duration_ms",
    "startedAt",
    "endedAt",
    "timestamp",
    "modified",
    "lastModified",
    "mtime",
    "elapsedMs",
];

fn without_passing(value: &mut Value) {
    match value {
        Value::Object(object) => {
            PASSING.iter().for_each(|field| drop(object.shift_remove(*field)));
            object.values_mut().for_each(without_passing);
        }
        Value::Array(items) => items.iter_mut().for_each(without_passing),
        _ => {}
    }
}

/// A world as it is before every call.
fn world() -> World {
    let world = World::new();
    world.configure(
        "[[policy.rules]]\ntool = \"gsv__DeleteFile\"\ndecision = \"deny\"\nreason = \"not today\"\n",
    );
    world.write("a.txt", "one\ntwo\nthree\n");
    world.write("src/b.rs", "fn main() {}\n");
    world
}

fn calls(world: &World) -> Vec<(&'static str, Value)> {
    let a = world.workspace().join("a.txt");
    let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n-one\n+ONE\n two\n three\n";
    vec![
        ("Read", json!({"path": "a.txt", "limit": 2})),
        ("Read", json!({"path": "missing"})),
        ("local__Read", json!({"path": "src"})),
        ("Write", json!({"path": "new/c.txt", "content": "c\n"})),
        ("Edit", json!({"path": "a.txt", "oldString": "two", "newString": "2"})),
        ("Edit", json!({"path": "a.txt", "oldString": "absent", "newString": "2"})),
        ("Glob", json!({"pattern": "**/*.rs"})),
        ("Grep", json!({"pattern": "fn \\w+"})),
        ("Grep", json!({"pattern": "("})),
        ("Bash", json!({"command": "echo out; echo err >&2; exit 3"})),
        ("Bash", json!({"command": "pwd"})),
        ("Process", json!({"action": "list"})),
        ("read", json!({"path": "a.txt", "offset": -1})),
        ("write", json!({"path": "d.txt", "data": "d"})),
        ("exec", json!({"command": "echo $PWD"})),
        ("read_file", json!({"path": a})),
        ("write_file", json!({"path": world.workspace().join("e.txt"), "content": "e"})),
        ("bash", json!({"command": "echo hi; exit 4"})),
        ("batch_files", json!({"pattern": "*.txt", "directory": world.workspace(), "operation": "list"})),
        ("tool::file_read", json!({"path": "a.txt"})),
        ("tool__file_write", json!({"path": "f.txt", "content": "f"})),
        ("tool::file_list", json!({"path": "."})),
        ("tool::apply_patch", json!({"path": "a.txt", "patch": patch})),
        ("tool::shell_exec", json!({"argv": ["ls"]})),
        ("gsv__WriteFile", json!({"path": "note.md", "content": "n"})),
        ("gsv__ReadFile", json!({"path": "note.md"})),
        ("gsv__ReadFile", json!({"path": "/"})),
        ("gsv__EditFile", json!({"path": "note.md", "oldString": "n", "newString": "m"})),
        ("gsv__DeleteFile", json!({"path": "note.md"})),
        ("gsv__ConfigGet", json!({"path": "policy"})),
        ("Raed", json!({})),
        ("read", json!({"pth": 1, "limit": "x"})),
        ("result_read", json!({"handle": "res_00000000000000000000000000000000"})),
    ]
}

#[test]
fn every_local_tool_answers_the_same_through_the_gateway() {
    let (here, there) = (world(), world());
    let up = Gateway::start(&there);
    for ((tool, input), (_, their_input)) in calls(&here).into_iter().zip(calls(&there)) {
        let direct = here.run(&["call", tool, &input.to_string()]);
        let through = there.run(&["call", tool, &their_input.to_string()]);
        assert_eq!(through.code, direct.code, "{tool} {input}: {direct:?} and {through:?}");
        let shown = |world: &World, text: &str| {
            let text = text.replace(world.folder.path().canonicalize().unwrap().to_str().unwrap(), "FOLDER");
            match serde_json::from_str::<Value>(&text) {
                Ok(mut value) => {
                    without_passing(&mut value);
                    value
                }
                Err(_) => Value::String(text),
            }
        };
        let (ours, theirs) = (shown(&here, &direct.stdout), shown(&there, &through.stdout));
        assert_eq!(theirs, ours, "{tool} {input}");
    }
    for args in [&["tools", "--json"][..], &["tools", "Read", "--json"], &["tools", "read", "--json"]] {
        assert_eq!(there.run(args).json(), here.run(args).json(), "{args:?}");
    }
    assert_eq!(there.run(&["tools"]).stdout, here.run(&["tools"]).stdout);
    let late = ["call", "exec", r#"{"command": "sleep 20"}"#, "--deadline", "300ms"];
    let (direct, through) = (here.run(&late), there.run(&late));
    assert_eq!((through.code, &through.stdout), (124, &direct.stdout));
    drop(up);
}

#[test]
fn relative_paths_start_in_the_current_directory() {
    let world = world();
    let up = Gateway::start(&world);
    world.write("deep/a.txt", "another\n");
    let mut command = world.command(&["call", "read", r#"{"path": "a.txt"}"#]);
    let output = command.current_dir(world.workspace().join("deep")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("another"), "{output:?}");
    let given = world.run(&["call", "read", r#"{"path": "a.txt"}"#, "--workspace", "deep"]);
    assert!(given.stdout.contains("another"), "{}", given.stdout);
    let reported = world.run(&["call", "read", r#"{"path": "a.txt"}"#, "-v"]);
    assert!(reported.stderr.contains(&up.url), "{}", reported.stderr);
    let local = world.run(&["call", "read", r#"{"path": "a.txt"}"#, "-v", "--local"]);
    assert!(local.stderr.contains("in-process"), "{}", local.stderr);
}

#[test]
fn unreachable_gateway_is_exit_code_4() {
    let world = world();
    let ran = world.run_with(
        &["call", "read", r#"{"path": "a.txt"}"#, "--gateway", "http://127.0.0.1:9"],
        &[("GANTRY_TOKEN", "x")],
    );
    assert_eq!((ran.code, &ran.json()["error"]["code"]), (4, &json!("unavailable")));
    let up = Gateway::start(&world);
    let wrong = world.run_with(&["call", "read", r#"{"path": "a.txt"}"#], &[("GANTRY_TOKEN", "wrong")]);
    assert_eq!(wrong.code, 3, "{} {}", wrong.stdout, wrong.stderr);
    up.add_node(&world, "away", &[]);
    let without_token = world.run(&["call", "read", "--gateway", "http://127.0.0.1:9"]);
    assert_eq!(without_token.code, 2, "our token goes to our own gateway only");
}
