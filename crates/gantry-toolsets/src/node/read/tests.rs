use crate::testing::Bench;
use gantry_files::tag;
use serde_json::{Value, json};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde";

/// Reads a file with this content. Checks path and tag, and returns the rest of the answer.
async fn read(content: &[u8], mut input: Value) -> Value {
    let bench = Bench::new();
    let path = bench.write("f.txt", content);
    input["path"] = json!("f.txt");
    let mut answer = bench.call("Read", input).await.unwrap();
    let object = answer.as_object_mut().unwrap();
    assert_eq!(object.shift_remove("path"), Some(json!(path)));
    assert_eq!(object.shift_remove("tag"), Some(json!(tag::of_bytes(content))));
    answer
}

fn page(content: &str, lines: u64, total: u64, next: Option<u64>) -> Value {
    let mut page = json!({"content": content, "lines": lines, "totalLines": total, "truncated": false});
    if let Some(next) = next {
        page["nextOffset"] = json!(next);
    }
    page
}

#[tokio::test]
async fn lines_are_numbered_from_the_offset() {
    let file = b"one\ntwo\r\n\nfour";
    assert_eq!(read(file, json!({})).await, page("1\tone\n2\ttwo\n3\t\n4\tfour", 4, 4, None));
    assert_eq!(read(file, json!({"offset": 1, "limit": 2})).await, page("2\ttwo\n3\t", 2, 4, Some(3)));
    assert_eq!(read(file, json!({"offset": 3, "limit": 1})).await, page("4\tfour", 1, 4, None));
    assert_eq!(read(file, json!({"offset": 3, "limit": 99})).await, page("4\tfour", 1, 4, None));
    assert_eq!(read(file, json!({"limit": 0})).await, page("", 0, 4, Some(0)));
    for past in [4, 5, 9_007_199_254_740_991_u64] {
        assert_eq!(read(file, json!({"offset": past})).await, page("", 0, 4, None), "{past}");
    }
    assert_eq!(read(b"", json!({})).await, page("", 0, 0, None));
    assert_eq!(read(b"\n", json!({})).await, page("1\t", 1, 1, None));
}

#[tokio::test]
async fn byte_order_marks_are_decoded() {
    let utf16: Vec<u8> =
        [0xFEFF].into_iter().chain("ä\nb".encode_utf16()).flat_map(u16::to_be_bytes).collect();
    assert_eq!(read(&utf16, json!({})).await, page("1\tä\n2\tb", 2, 2, None));
    assert_eq!(read(b"\xEF\xBB\xBFa\nb\n", json!({})).await, page("1\ta\n2\tb", 2, 2, None));
}

#[tokio::test]
async fn text_over_ten_megabytes_is_truncated() {
    const LIMIT: usize = 10 * 1024 * 1024;
    let line = format!("{}\n", "x".repeat(1023));
    let whole = line.repeat(LIMIT / 1024);
    let exact = read(whole.as_bytes(), json!({})).await;
    assert_eq!(
        (&exact["lines"], &exact["truncated"], exact.get("nextOffset")),
        (&json!(10240), &json!(false), None)
    );
    let beyond = read((whole + "y\n").as_bytes(), json!({})).await;
    assert_eq!(
        (&beyond["lines"], &beyond["truncated"], &beyond["nextOffset"], &beyond["totalLines"]),
        (&json!(10240), &json!(true), &json!(10240), &json!(10241))
    );
    let one_line = read("z".repeat(LIMIT + 1).as_bytes(), json!({})).await;
    assert_eq!((&one_line["truncated"], &one_line["cutLine"]), (&json!(true), &json!(1)));
    assert_eq!(one_line["content"].as_str().unwrap().len(), LIMIT + 2);
}

#[tokio::test]
async fn image_is_returned_as_content_blocks() {
    let bench = Bench::new();
    bench.write("pics/photo.png", PNG);
    let answer = bench.call("Read", json!({"path": "pics/photo.png", "offset": 7, "limit": 0})).await;
    let data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1Pe";
    assert_eq!(
        answer,
        Ok(json!({"content": [
            {"type": "text", "text": format!("Image file: photo.png (image/png, {} bytes)", PNG.len())},
            {"type": "image", "data": data, "mimeType": "image/png"},
        ]}))
    );
}

#[tokio::test]
async fn image_over_ten_megabytes_is_rejected() {
    const LIMIT: usize = 10 * 1024 * 1024;
    let bench = Bench::new();
    let mut image = PNG.to_vec();
    image.resize(LIMIT, 0);
    bench.write("photo.png", &image);
    let answer = bench.call("Read", json!({"path": "photo.png"})).await.unwrap();
    assert_eq!(answer["content"][0]["text"], "Image file: photo.png (image/png, 10485760 bytes)");
    image.push(0);
    bench.write("photo.png", &image);
    let error = bench.call("Read", json!({"path": "photo.png"})).await;
    let text = "Image file too large: photo.png (image/png, 10485761 bytes) — at most 10485760 bytes (10 MB)";
    assert_eq!(error, Err(json!({"error": text})));
}

#[tokio::test]
async fn other_binaries_are_rejected_with_type_and_size() {
    let bench = Bench::new();
    let mut gzip = b"\x1f\x8b\x08\x00".to_vec();
    gzip.resize(5_242_880, 0xFE);
    bench.write("deep/archive.tar.gz", gzip);
    bench.write("blob", b"\xff\x00\xfe");
    for (path, expected) in [
        (
            "deep/archive.tar.gz",
            "Binary file: archive.tar.gz (application/gzip, 5242880 bytes) — not a text or image file",
        ),
        ("blob", "Binary file: blob (application/octet-stream, 3 bytes) — not a text or image file"),
    ] {
        assert_eq!(bench.call("Read", json!({"path": path})).await, Err(json!({"error": expected})));
    }
}

#[tokio::test]
async fn missing_files_directories_and_devices_are_errors() {
    let bench = Bench::new();
    std::fs::create_dir(bench.workspace().join("dir")).unwrap();
    for (path, expected) in [
        ("missing", "no such file or directory: missing"),
        ("dir", "not a regular file but a directory: dir (list the directory instead)"),
        ("", "path is empty"),
        ("/dev/zero", "not a regular file but a device: /dev/zero"),
    ] {
        assert_eq!(bench.call("Read", json!({"path": path})).await, Err(json!({"error": expected})));
    }
}

#[tokio::test]
async fn gate_rejects_unknown_and_invalid_fields() {
    let bench = Bench::new();
    for input in [
        json!({}),
        json!({"path": 1}),
        json!({"path": "f", "offset": -1}),
        json!({"path": "f", "limit": "1"}),
        json!({"path": "f", "offset": 1e20}),
        json!({"path": "f", "ofset": 1}),
    ] {
        let error = bench.call("Read", input.clone()).await.unwrap_err();
        assert_eq!(error["error"]["code"], "invalid_input", "{input}");
    }
}

#[tokio::test]
async fn data_directory_is_denied_and_sensitive_paths_need_approval() {
    let bench = Bench::new();
    std::fs::write(bench.data().join("key"), "secret").unwrap();
    std::os::unix::fs::symlink(bench.data(), bench.workspace().join("door")).unwrap();
    for path in [bench.data().join("key"), bench.workspace().join("door/key")] {
        let error = bench.call("Read", json!({"path": path})).await.unwrap_err();
        assert_eq!(error["error"]["code"], "denied", "{error}");
    }
    let key = bench.write(".ssh/id_rsa", "key");
    std::os::unix::fs::symlink(key, bench.workspace().join("notes")).unwrap();
    for path in [".ssh/id_rsa", "notes", ".ssh/../.ssh/id_rsa"] {
        let error = bench.call_as(bench.agent_call("a"), "Read", json!({"path": path})).await.unwrap_err();
        assert_eq!(error["error"]["code"], "approval_needed", "{path}: {error}");
    }
    assert!(bench.call("Read", json!({"path": "notes"})).await.is_ok(), "the operator may read it");
}
