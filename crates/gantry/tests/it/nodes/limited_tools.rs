//! A node with limited tools advertises only those and rejects all others.

use gantry_testkit::Fleet;
use serde_json::{Value, json};

fn names(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn node_with_limited_tools_rejects_others() {
    let fleet = Fleet::start();
    let mut reader = fleet.add("reader", &[]);
    reader.more = vec!["--tools".into(), "Read,Glob".into()];
    reader.world.write("a.txt", "one\n");
    reader.start();
    fleet.wait_online("reader");
    let info = fleet.node("reader");
    assert_eq!(names(&info["toolCapabilities"]), ["Glob", "Read"]);
    let host = info["hostCapabilities"].to_string();
    assert!(!host.contains("exec") && !host.contains("write"), "{host}");
    assert_eq!(fleet.call("reader__Read", &json!({"path": "a.txt"})).status, 200);
    for (tool, input) in
        [("Bash", json!({"command": "true"})), ("Write", json!({"path": "b", "content": ""}))]
    {
        let refused = fleet.call(&format!("reader__{tool}"), &input);
        assert_eq!(refused.status, 404, "{refused:?}");
        let mut chosen = input.clone();
        chosen["node"] = json!("reader");
        let refused = fleet.call(tool, &chosen);
        assert!(refused.status == 400 && refused.text().contains("has no tool"), "{refused:?}");
    }
    let all = fleet.call("Bash", &json!({"command": "true", "node": "*"})).json();
    assert_eq!(all["results"].as_array().unwrap().len(), 1, "only this machine has Bash: {all}");
    let mut odd = fleet.add("odd", &[]);
    odd.more = vec!["--tools".into(), "Raed".into()];
    let refused = odd.command().output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(odd.output().contains("did you mean Read"), "{}", odd.output());
}

#[test]
fn contained_node_rejects_paths_outside_its_workspace() {
    let fleet = Fleet::start();
    let mut jailed = fleet.add("jailed", &[]);
    jailed.more = vec!["--contain".into()];
    jailed.world.write("inside.txt", "in\n");
    let outside = jailed.world.folder.path().join("outside.txt");
    std::fs::write(&outside, "out\n").unwrap();
    std::os::unix::fs::symlink(&outside, jailed.path("link.txt")).unwrap();
    jailed.start();
    fleet.wait_online("jailed");
    assert_eq!(fleet.call("jailed__Read", &json!({"path": "inside.txt"})).status, 200);
    for path in [outside.to_str().unwrap(), "../outside.txt", "link.txt", "/etc/passwd"] {
        for (tool, input) in [
            ("Read", json!({ "path": path })),
            ("Write", json!({"path": path, "content": "changed"})),
            ("Edit", json!({"path": path, "oldString": "out", "newString": "changed"})),
        ] {
            let refused = fleet.call(&format!("jailed__{tool}"), &input);
            assert_eq!(refused.status, 422, "{tool} {path}: {refused:?}");
        }
    }
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "out\n");
    let offered = fleet.node("jailed")["toolCapabilities"].clone();
    if names(&offered).contains(&"Bash") {
        let command = json!({"command": format!("echo changed > {}; cat inside.txt", outside.display())});
        let ran = fleet.call("jailed__Bash", &command);
        assert!(ran.text().contains("in"), "{ran:?}");
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "out\n", "{ran:?}");
    } else {
        assert_eq!(fleet.call("jailed__Bash", &json!({"command": "true"})).status, 404);
    }
}
