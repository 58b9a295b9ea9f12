#![allow(clippy::disallowed_methods, reason = "tests prepare their own files")]

use serde_json::{Value, json};

use crate::testing::Bench;

/// Reads `content` with the given parameters; the reply is compared without `path`.
async fn check(content: impl AsRef<[u8]>, mut input: Value, mut expected: Value) {
    let bench = Bench::new();
    let path = bench.write("file.txt", content).to_str().unwrap().to_owned();
    input["path"] = json!(path);
    expected["path"] = json!(path);
    assert_eq!(bench.call("read", input.clone()).await, Ok(expected), "{input}");
}

/// The expected reply without its path.
fn reply(content: &str, total: u64, read: u64, offset: u64, limit: Option<u64>) -> Value {
    json!({"content": content, "total_lines": total, "lines_read": read, "offset": offset, "limit": limit})
}

fn lines(range: std::ops::RangeInclusive<u64>) -> String {
    range.map(|number| format!("line {number}\n")).collect()
}

#[tokio::test]
async fn seed_examples_return_the_documented_replies() {
    let file = lines(1..=150);
    check(&file, json!({}), reply(&file, 150, 150, 1, None)).await;
    let numbered: String = (1..=150).map(|number| format!("{number}\tline {number}\n")).collect();
    check(&file, json!({"line_numbers": true}), reply(&numbered, 150, 150, 1, None)).await;
    check(&file, json!({"limit": 10}), reply(&lines(1..=10), 150, 10, 1, Some(10))).await;
    check(&file, json!({"offset": 50, "limit": 50}), reply(&lines(50..=99), 150, 50, 50, Some(50))).await;
    check(&file, json!({"offset": 100}), reply(&lines(100..=150), 150, 51, 100, None)).await;
    let last: String = (51..=150).map(|number| format!("{number}\tline {number}\n")).collect();
    check(&file, json!({"offset": -100, "line_numbers": true}), reply(&last, 150, 100, 51, None)).await;
    check(&file, json!({"offset": 1000, "limit": 100}), reply("", 150, 0, 1000, Some(100))).await;
}

#[tokio::test]
async fn offsets_and_limits_work_at_their_edges() {
    let cases = [
        (json!({"offset": 0}), reply("a\nb\nc", 3, 3, 1, None)),
        (json!({"offset": 1, "limit": null}), reply("a\nb\nc", 3, 3, 1, None)),
        (json!({"offset": 3}), reply("c", 3, 1, 3, None)),
        (json!({"offset": 4}), reply("", 3, 0, 4, None)),
        (json!({"offset": -1}), reply("c", 3, 1, 3, None)),
        (json!({"offset": -3}), reply("a\nb\nc", 3, 3, 1, None)),
        (json!({"offset": -4}), reply("a\nb\nc", 3, 3, 1, None)),
        (json!({"offset": i64::MIN}), reply("a\nb\nc", 3, 3, 1, None)),
        (json!({"offset": i64::MAX}), reply("", 3, 0, i64::MAX as u64, None)),
        (json!({"limit": 0}), reply("", 3, 0, 1, Some(0))),
        (json!({"limit": 3}), reply("a\nb\nc", 3, 3, 1, Some(3))),
        (json!({"limit": u64::MAX}), reply("a\nb\nc", 3, 3, 1, Some(u64::MAX))),
        (json!({"offset": -2, "limit": 1}), reply("b\n", 3, 1, 2, Some(1))),
    ];
    for (input, expected) in cases {
        check("a\nb\nc", input, expected).await;
    }
    check("", json!({"offset": -5}), reply("", 0, 0, 1, None)).await;
    check("", json!({"line_numbers": true}), reply("", 0, 0, 1, None)).await;
}

#[tokio::test]
async fn content_keeps_line_endings() {
    check("a\r\nb\r\n", json!({"limit": 1}), reply("a\r\n", 2, 1, 1, Some(1))).await;
    check("a\r\nb\n", json!({"line_numbers": true}), reply("1\ta\r\n2\tb\n", 2, 2, 1, None)).await;
    let utf16: Vec<u8> = "\u{feff}zwölf\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    check(utf16, json!({}), reply("zwölf\n", 1, 1, 1, None)).await;
}

#[tokio::test]
async fn reply_over_ten_mebibytes_is_truncated_with_next_offset() {
    const MIB: usize = 1024 * 1024;
    let line = format!("{}\n", "x".repeat(MIB - 1));
    let bench = Bench::new();
    let path = bench.write("big", line.repeat(10)).to_str().unwrap().to_owned();
    let whole = bench.call("read", json!({"path": path})).await.unwrap();
    assert_eq!((&whole["lines_read"], whole.get("truncated")), (&json!(10), None));
    bench.write("big", line.repeat(11));
    let part = bench.call("read", json!({"path": path})).await.unwrap();
    assert_eq!(
        (&part["lines_read"], &part["truncated"], &part["next_offset"], &part["total_lines"]),
        (&json!(10), &json!(true), &json!(11), &json!(11))
    );
    // Line numbers count against the limit too.
    let numbered = bench.call("read", json!({"path": path, "line_numbers": true})).await.unwrap();
    assert_eq!((&numbered["lines_read"], &numbered["next_offset"]), (&json!(9), &json!(10)));
    bench.write("big", "x".repeat(10 * MIB + 1));
    let cut = bench.call("read", json!({"path": path})).await.unwrap();
    assert_eq!(
        (&cut["truncated"], &cut["line_cut"], cut.get("next_offset")),
        (&json!(true), &json!(true), None)
    );
    assert_eq!(cut["content"].as_str().unwrap().len(), 10 * MIB);
}

#[tokio::test]
async fn errors_have_the_path_and_no_success_field() {
    let bench = Bench::new();
    assert_eq!(
        bench.call("read", json!({"path": "/path/to/file.txt"})).await,
        Err(json!({"error": "File not found: /path/to/file.txt", "path": "/path/to/file.txt"}))
    );
    bench.write("b.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    let path = bench.workspace().join("b.png");
    assert_eq!(
        bench.call("read", json!({"path": "b.png"})).await,
        Err(json!({"error": format!("binary file (image/png): {}", path.display()), "path": "b.png"}))
    );
    assert_eq!(
        bench.call("read", json!({"path": "."})).await,
        Err(
            json!({"error": "not a regular file but a directory: . (list the directory instead)", "path": "."})
        )
    );
    let refused = bench.call("read", json!({"path": bench.data().join("audit")})).await.unwrap_err();
    assert_eq!(refused["error"]["code"], "denied", "{refused}");
    let invalid = bench.call("read", json!({"file": "x", "limit": -1})).await.unwrap_err();
    assert_eq!(invalid["error"]["code"], "invalid_input");
}

#[tokio::test]
async fn sensitive_files_need_approval_also_through_links() {
    let bench = Bench::new();
    let key = bench.write("keys/id_rsa", "secret");
    std::os::unix::fs::symlink(key, bench.workspace().join("innocent")).unwrap();
    let refused =
        bench.call_as(bench.agent_call("a"), "read", json!({"path": "innocent"})).await.unwrap_err();
    assert_eq!(refused["error"]["code"], "approval_needed", "{refused}");
    assert!(bench.call("read", json!({"path": "innocent"})).await.is_ok());
}
