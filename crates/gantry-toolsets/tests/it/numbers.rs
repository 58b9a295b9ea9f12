//! Numbers that a schema accepts but a tool's own type cannot hold.

use gantry_toolsets::testing::Bench;
use serde_json::{Value, json};

/// 2^64: an integer for JSON Schema, but too large for the tools' types.
const HUGE: f64 = 18_446_744_073_709_551_616.0;

#[tokio::test]
async fn number_too_large_for_its_type_is_reported_with_its_field() {
    let bench = Bench::new();
    bench.write("f", "text");
    for (tool, field, mut input) in [
        ("Read", "offset", json!({"path": "f"})),
        ("Read", "limit", json!({"path": "f"})),
        ("Process", "offset", json!({"action": "list"})),
        ("Process", "limit", json!({"action": "list"})),
        ("Process", "waitMs", json!({"action": "list"})),
        ("Bash", "timeout", json!({"command": "true"})),
        ("tool::file_read", "maxBytes", json!({"path": "f"})),
        ("tool::shell_exec", "timeout", json!({"argv": ["ls"]})),
        ("read", "offset", json!({"path": "f"})),
        ("read", "limit", json!({"path": "f"})),
        ("write", "start_line", json!({"path": "f", "data": "x"})),
        ("exec", "timeout", json!({"command": "true"})),
        ("bash", "timeout_ms", json!({"command": "true"})),
        ("http_request", "timeout_ms", json!({"url": "http://127.0.0.1:1/"})),
        ("result_read", "offset", json!({"handle": "res_1"})),
    ] {
        input[field] = json!(HUGE);
        let error: Value = bench.call(tool, input.clone()).await.unwrap_err();
        assert_eq!(error["error"]["code"], "invalid_input", "{tool} {input}: {error}");
        let violation = &error["error"]["violations"][0];
        assert_eq!(violation["path"], field, "{tool} {input}: {error}");
    }
    assert_eq!(bench.read("f"), "text");
}

#[tokio::test]
async fn fraction_in_a_number_field_is_rounded() {
    let bench = Bench::new();
    bench.write("f", "1\n2\n3\n");
    let answer = bench.call("Read", json!({"path": "f", "limit": 1.6})).await.unwrap();
    assert_eq!(answer["lines"], 2, "{answer}");
    let answer = bench.call("Bash", json!({"command": "echo x", "timeout": 15_000.5})).await.unwrap();
    assert_eq!(answer["exitCode"], 0, "{answer}");
    // The seed of this tool says integer.
    let error = bench.call("read", json!({"path": "f", "limit": 1.5})).await.unwrap_err();
    assert_eq!(error["error"]["code"], "invalid_input", "{error}");
}
