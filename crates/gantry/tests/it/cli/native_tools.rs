//! Native tools in-process: an agent's workspace persists between runs of the program.

use std::time::Duration;

use gantry_testkit::{Gateway, World, eventually};
use serde_json::json;

use crate::sessions::Far;

#[test]
fn workspace_persists_and_belongs_to_its_agent() {
    let world = World::new();
    world.configure("[agents.a]\nautonomy = \"guided\"\n[agents.b]\nautonomy = \"guided\"\n");
    let call = |agent: &str, tool: &str, input: serde_json::Value| {
        world.run(&["call", "--agent", agent, tool, &input.to_string()])
    };
    let written = call("a", "gsv__WriteFile", json!({"path": "memory/x.md", "content": "one two"}));
    assert_eq!(
        written.json(),
        json!({"ok": true, "result": {"path": "memory/x.md", "size": 7, "written": true}})
    );
    call("a", "gsv__EditFile", json!({"path": "memory/x.md", "oldString": "two", "newString": "2"}));
    assert_eq!(
        call("a", "gsv__ReadFile", json!({"path": "memory/x.md"})).json()["result"]["content"],
        "one 2"
    );
    let foreign = call("b", "gsv__ReadFile", json!({"path": "memory/x.md"}));
    assert_eq!((foreign.code, &foreign.json()["ok"]), (1, &json!(false)));
    assert_eq!(call("b", "gsv__ReadFile", json!({"path": "../a/memory/x.md"})).code, 1);
    let kept = world.data().join("objects/data/agents/a/memory/x.md");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "one 2");
    for (tool, input) in [
        ("gsv__LogsGet", json!({})),
        ("gsv__Transfer", json!({"source": "gsv:memory/x.md", "destination": "box:x"})),
    ] {
        let ran = call("a", tool, input);
        assert_eq!((ran.code, &ran.json()["ok"]), (1, &json!(false)));
        assert!(ran.stdout.contains("gantry up"), "{}", ran.stdout);
    }
}

#[test]
fn local_node_has_a_log() {
    let world = World::new();
    world.configure("");
    let up = Gateway::start(&world);
    let logs = |input: serde_json::Value| world.run(&["call", "gsv__LogsGet", &input.to_string()]).json();
    let answer = logs(json!({}));
    assert_eq!((&answer["ok"], &answer["result"]["nodeId"]), (&json!(true), &json!("local")), "{answer}");
    let first = answer["result"]["lines"][0].as_str().unwrap();
    assert!(first.contains(r#""event":"started""#) && first.contains(&up.url), "{first}");
    // A second machine has its own log, so one is to be named; and the gateway says that it came.
    let far = Far::join(&world, &up);
    let several = logs(json!({}));
    assert!(several["error"].as_str().unwrap().contains("(local, far)"), "{several}");
    assert_eq!(logs(json!({"nodeId": "far"}))["result"]["nodeId"], "far");
    let has = |event: &str| logs(json!({"nodeId": "local"})).to_string().contains(event);
    eventually("the node is in the log", Duration::from_secs(20), || has("node_connected"));
    drop(far);
    eventually("its end is in the log", Duration::from_secs(60), || has("node_disconnected"));
}

#[test]
fn directory_removal_counts_its_content() {
    let world = World::new();
    world.configure("");
    for path in ["d/a", "d/b", "d/sub/deep/c", "d2", "skills/x/own.md"] {
        assert_eq!(world.run_with_input(&["workspace", "put", "-", path], "text").code, 0, "{path}");
    }
    let shared = world.data().join("objects/data/skills/x");
    std::fs::create_dir_all(&shared).unwrap();
    std::fs::write(shared.join("SKILL.md"), "all").unwrap();
    let refused = world.run(&["workspace", "rm", "d"]);
    assert!(refused.code == 1 && refused.stderr.contains("rm -r"), "{refused:?}");
    let gone = world.run(&["workspace", "rm", "-r", "d/"]);
    assert!(gone.code == 0 && gone.stderr.contains("Deleted 3 files in d"), "{gone:?}");
    assert_eq!(world.run(&["workspace", "ls", "d"]).code, 1);
    assert_eq!(world.run(&["workspace", "cat", "d2"]).stdout, "text");
    let skills = world.run(&["workspace", "rm", "-r", "skills", "--json"]);
    assert_eq!(skills.json(), json!({"path": "skills", "deleted": 1, "kept": 1}), "{skills:?}");
    assert!(shared.join("SKILL.md").exists());
    let one = world.run(&["workspace", "rm", "-r", "d2"]);
    assert!(one.code == 0 && one.stderr.contains("Deleted 1 file"), "{one:?}");
    assert_eq!(world.run(&["workspace", "rm", "-r", "nothing"]).code, 1);
    assert_eq!(world.run(&["workspace", "rm", "-r", "/"]).code, 2);
}

#[test]
fn bucket_keys_are_masked_and_invalid_storage_is_rejected() {
    let world = World::new();
    world.configure(
        "[storage]\nkind = \"s3\"\nbucket = \"b\"\nendpoint = \"http://127.0.0.1:9\"\naccessKeyId = \"AK-secret-id\"\nsecretAccessKey = \"SK-secret-key\"\n",
    );
    for args in [
        &["config", "show"][..],
        &["config", "get", "storage.secretAccessKey"],
        &["config", "get", "storage.accessKeyId"],
        &["call", "gsv__ConfigGet", "{}"],
        &["call", "gsv__ConfigGet", r#"{"path": "storage.secretAccessKey"}"#],
        &["call", "gsv__ConfigGet", r#"{"path": "storage.accessKeyId"}"#],
    ] {
        let ran = world.run(args);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(
            ran.stdout.contains("[masked]") && !ran.stdout.contains("secret-"),
            "{args:?}: {}",
            ran.stdout
        );
    }
    for (text, key) in [
        ("kind = \"s3\"", "storage.bucket"),
        ("kind = \"s3\"\nbucket = \"b\"\naccessKeyId = \"a\"", "storage.secretAccessKey"),
        ("endpoint = \"https://u:p@host\"", "storage.endpoint"),
        ("endpoint = \"ftp://host\"", "storage.endpoint"),
        ("kind = \"tape\"", "storage.kind"),
        ("bucket = \"Upper\"", "storage.bucket"),
        ("bucket = \"a..b\"", "storage.bucket"),
        ("bucket = \"..\"", "storage.bucket"),
        ("bucket = \"a/b\"", "storage.bucket"),
        ("buckets = 1", "bucket"),
    ] {
        world.configure(&format!("[storage]\n{text}\n"));
        let ran = world.run(&["call", "gsv__ReadFile"]);
        assert!(ran.code == 2 && ran.stderr.contains(key), "{text}: {} {}", ran.code, ran.stderr);
    }
}
