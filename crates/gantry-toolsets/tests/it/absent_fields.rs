//! Models often send null, or `""` for a path, instead of leaving a field out. Both mean that the
//! field is absent.

use gantry_toolsets::testing::Bench;
use serde_json::{Value, json};

#[tokio::test]
async fn null_means_absent_for_every_optional_field() {
    let bench = Bench::new();
    for tool in bench.gate.registry().entries() {
        let schema = tool.input_schema();
        let required =
            |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
        let fields = schema["properties"].as_object().unwrap();
        let nulls: serde_json::Map<String, Value> =
            fields.keys().filter(|name| !required(name)).map(|name| (name.clone(), Value::Null)).collect();
        // The tool may then report a missing required field, but never a null optional one.
        let answer = bench.call_as(bench.operator_call(), tool.name(), Value::Object(nulls.clone())).await;
        let text = answer.unwrap_or_else(|error| error).to_string();
        for name in nulls.keys() {
            assert!(
                !text.contains(&format!("\"path\":\"{name}\"")),
                "{} rejects null for {name}: {text}",
                tool.name()
            );
        }
    }
}

#[tokio::test]
async fn empty_optional_paths_mean_the_workspace() {
    let bench = Bench::new();
    bench.write("a.txt", "needle\n");
    for (tool, input, found) in [
        ("Glob", json!({"pattern": "*.txt", "path": ""}), "a.txt"),
        ("Grep", json!({"pattern": "needle", "path": "", "include": ""}), "a.txt"),
        ("Bash", json!({"command": "ls", "workdir": "", "background": null, "timeout": null}), "a.txt"),
        ("exec", json!({"command": "ls", "cwd": ""}), "a.txt"),
        ("tool::shell_exec", json!({"argv": ["ls"], "cwd": ""}), "a.txt"),
        ("gsv__ReadFile", json!({"path": ""}), "directories"),
        ("Read", json!({"path": "a.txt", "offset": null, "limit": null}), "needle"),
    ] {
        let answer = bench.call(tool, input).await;
        assert!(answer.as_ref().is_ok_and(|value| value.to_string().contains(found)), "{tool}: {answer:?}");
    }
    let missing = bench.call("Read", json!({"path": ""})).await;
    assert!(missing.is_err(), "a required path must not be empty: {missing:?}");
}
