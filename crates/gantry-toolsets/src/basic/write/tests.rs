#![allow(clippy::disallowed_methods, reason = "tests prepare their own files")]

use serde_json::{Value, json};

use crate::testing::Bench;

/// Writes to a file that contains `before`. Compares the reply without `success` and `path`, and
/// the new content.
async fn check(before: &str, mut input: Value, expected: Value, after: &str) {
    let bench = Bench::new();
    let path = bench.write("file.txt", before).to_str().unwrap().to_owned();
    input["path"] = json!(path);
    let mut reply = bench.call("write", input.clone()).await.unwrap();
    assert_eq!(reply["success"], true);
    assert_eq!(reply["path"], json!(path));
    reply.as_object_mut().unwrap().retain(|name, _| name != "success" && name != "path");
    assert_eq!(reply, expected, "{input}");
    assert_eq!(bench.read("file.txt"), after, "{input}");
}

fn inserted(bytes: usize, lines: u64, at: u64) -> Value {
    json!({"bytes_written": bytes, "mode": "insert", "lines_affected": lines, "inserted_at": at,
        "message": format!("Data inserted at line {at}")})
}

fn replaced(bytes: usize, lines: u64, gone: u64, range: &str) -> Value {
    json!({"bytes_written": bytes, "mode": "replace", "lines_affected": lines, "lines_replaced": gone, "range": range,
        "message": format!("Replaced lines {range} ({gone} lines) with {lines} new lines")})
}

fn lines(range: std::ops::RangeInclusive<u64>) -> String {
    range.map(|number| format!("{number}\n")).collect()
}

#[tokio::test]
async fn seed_examples_return_the_documented_replies() {
    check(
        "old",
        json!({"data": "Hello\nWorld\n"}),
        json!({"bytes_written": 12, "mode": "write", "lines_affected": 2, "message": "File written successfully"}),
        "Hello\nWorld\n",
    )
    .await;
    let after = lines(1..=4) + "New line\n" + &lines(5..=30);
    check(&lines(1..=30), json!({"data": "New line\n", "start_line": 5}), inserted(9, 1, 5), &after).await;
    let data = "New content\nMultiple lines\n";
    let after = lines(1..=9) + data + &lines(21..=30);
    let input = json!({"data": data, "start_line": 10, "end_line": 20});
    check(&lines(1..=30), input, replaced(27, 2, 11, "10-20"), &after).await;
    let after = "Header\n".to_owned() + &lines(1..=3);
    check(&lines(1..=3), json!({"data": "Header\n", "start_line": 1}), inserted(7, 1, 1), &after).await;
    let after = lines(1..=3) + "Footer\n";
    check(&lines(1..=3), json!({"data": "Footer\n", "start_line": 999999}), inserted(7, 1, 4), &after).await;
    let input = json!({"data": "new_value=value\n", "start_line": 2, "end_line": 2});
    check("a\nb\nc\n", input, replaced(16, 1, 1, "2-2"), "a\nnew_value=value\nc\n").await;
}

#[tokio::test]
async fn insertion_past_the_end_pads_up_to_a_thousand_lines() {
    let pad = |count| "\n".repeat(count);
    for (line, at, after) in [
        (0, 1, "X\na\n".to_owned()),
        (2, 2, "a\nX\n".to_owned()),
        (4, 4, format!("a\n{}X\n", pad(2))),
        (1002, 1002, format!("a\n{}X\n", pad(1000))),
        (1003, 2, "a\nX\n".to_owned()),
        (u64::MAX, 2, "a\nX\n".to_owned()),
    ] {
        check("a\n", json!({"data": "X\n", "start_line": line}), inserted(2, 1, at), &after).await;
    }
}

#[tokio::test]
async fn ranges_past_the_end_are_clamped() {
    check(
        "a\nb\nc\n",
        json!({"data": "X\n", "start_line": 2, "end_line": 9}),
        replaced(2, 1, 2, "2-3"),
        "a\nX\n",
    )
    .await;
    let mut past = replaced(2, 1, 0, "5-6");
    past["inserted_at"] = json!(5);
    check("a\nb\nc\n", json!({"data": "X\n", "start_line": 5, "end_line": 6}), past, "a\nb\nc\n\nX\n").await;
    check("a\nb\nc\n", json!({"data": "", "start_line": 1, "end_line": 2}), replaced(0, 0, 2, "1-2"), "c\n")
        .await;
    let all = json!({"data": "X", "start_line": 1, "end_line": u64::MAX});
    check("a\nb", all, replaced(1, 1, 2, "1-2"), "X").await;
}

#[tokio::test]
async fn line_endings_and_encoding_are_kept() {
    check(
        "a\r\nb\r\n",
        json!({"data": "X\nY\n", "start_line": 2}),
        inserted(4, 2, 2),
        "a\r\nX\r\nY\r\nb\r\n",
    )
    .await;
    check("a\nb\n", json!({"data": "X", "start_line": 2}), inserted(1, 1, 2), "a\nX\nb\n").await;
    let utf16 = |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
    let bench = Bench::new();
    let path = bench.write("wide", utf16("\u{feff}a\nb\n"));
    bench.call("write", json!({"path": "wide", "data": "ö\n", "start_line": 2})).await.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), utf16("\u{feff}a\nö\nb\n"));
}

#[tokio::test]
async fn missing_files_and_directories_are_created() {
    let bench = Bench::new();
    for input in [
        json!({"path": "new/deep/a", "data": "1\n"}),
        json!({"path": "new/deep/b", "data": "1\n", "start_line": 1}),
        json!({"path": "new/deep/c", "data": "1\n", "start_line": 1, "end_line": 3}),
    ] {
        bench.call("write", input.clone()).await.unwrap();
        assert_eq!(bench.read(input["path"].as_str().unwrap()), "1\n");
    }
}

#[tokio::test]
async fn errors_have_success_and_path() {
    let bench = Bench::new();
    let path = bench.write("f", "a\n").to_str().unwrap().to_owned();
    let error = |text: &str| Err(json!({"success": false, "error": text, "path": path}));
    for (lines, text) in [
        (json!({"end_line": 3}), "end_line requires start_line to be specified"),
        (json!({"start_line": null, "end_line": 3}), "end_line requires start_line to be specified"),
        (json!({"start_line": 4, "end_line": 3}), "end_line must be >= start_line"),
    ] {
        let mut input = json!({"path": path, "data": "x"});
        input.as_object_mut().unwrap().extend(lines.as_object().unwrap().clone());
        assert_eq!(bench.call("write", input).await, error(text));
        assert_eq!(bench.read("f"), "a\n");
    }
    let binary = bench.write("b", b"\xff\xd8\xff\xe0\0");
    let refused = bench.call("write", json!({"path": binary, "data": "x\n", "start_line": 1})).await;
    let text = format!("binary file (image/jpeg): {}", binary.display());
    assert_eq!(refused, Err(json!({"success": false, "error": text, "path": binary})));
    let below_a_file = bench.call("write", json!({"path": "f/x", "data": "x"})).await;
    assert_eq!(below_a_file, Err(json!({"success": false, "error": "not a directory: f/x", "path": "f/x"})));
    let closed = bench.call("write", json!({"path": bench.data().join("x"), "data": "x"})).await.unwrap_err();
    assert_eq!(closed["error"]["code"], "denied");
    assert!(!bench.data().join("x").exists());
    let invalid =
        bench.call("write", json!({"path": path, "data": "x", "start_line": -1})).await.unwrap_err();
    assert_eq!(invalid["error"]["code"], "invalid_input");
}

#[tokio::test]
async fn sensitive_targets_need_approval() {
    let bench = Bench::new();
    let input = json!({"path": "home/.ssh/authorized_keys", "data": "k"});
    let refused = bench.call_as(bench.agent_call("a"), "write", input).await.unwrap_err();
    assert_eq!(refused["error"]["code"], "approval_needed");
    assert!(!bench.workspace().join("home").exists());
}
