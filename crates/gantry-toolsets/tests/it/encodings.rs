//! The toolsets share the rules for encodings. Reads decode text with a byte-order mark, whole-file
//! writes write UTF-8 exactly as given, and partial edits keep the encoding of the file.

use gantry_toolsets::testing::Bench;
use serde_json::json;

/// Little-endian UTF-16 with its byte-order mark.
fn utf16(text: &str) -> Vec<u8> {
    "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
}

fn marked_utf8(text: &str) -> Vec<u8> {
    format!("\u{feff}{text}").into_bytes()
}

#[tokio::test]
async fn whole_file_writes_are_utf_8_with_exact_sizes() {
    let content = "grün\r\nnot at the end";
    for old in [utf16("old\r\n"), marked_utf8("old\n"), b"old \xff".to_vec()] {
        let bench = Bench::new();
        let path = bench.workspace().join("file");
        let size = content.len();
        for (tool, field, size_field) in [
            ("Write", "content", "bytes"),
            ("tool::file_write", "content", "size"),
            ("write", "data", "bytes_written"),
            ("write_file", "content", "text"),
        ] {
            bench.write("file", &old);
            let answer = bench.call(tool, json!({"path": path, field: content})).await.unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), content.as_bytes(), "{tool}");
            let text = format!("Wrote {size} bytes to {}", path.display());
            assert!(answer[size_field] == size || answer == json!(text), "{tool}: {answer}");
        }
    }
}

#[tokio::test]
async fn partial_edits_keep_the_encoding() {
    let bench = Bench::new();
    let path = bench.workspace().join("file");
    for (encoding, encode) in [("UTF-16", utf16 as fn(&str) -> Vec<u8>), ("marked UTF-8", marked_utf8)] {
        for (tool, input) in [
            ("Edit", json!({"path": path, "oldString": "two", "newString": "zwölf"})),
            ("write", json!({"path": path, "data": "zwölf", "start_line": 2, "end_line": 2})),
            ("tool::apply_patch", json!({"path": path, "patch": "@@ -2 +2 @@\n-two\n+zwölf\n"})),
            (
                "batch_files",
                json!({"pattern": "file", "directory": ".", "operation": "transform", "find": "two", "replace": "zwölf"}),
            ),
        ] {
            bench.write("file", encode("one\r\ntwo\r\nthree"));
            bench.call(tool, input).await.unwrap();
            let expected = encode("one\r\nzwölf\r\nthree");
            assert_eq!(std::fs::read(&path).unwrap(), expected, "{tool} {encoding}");
        }
    }
}

#[tokio::test]
async fn every_reader_decodes_text_with_a_byte_order_mark() {
    let bench = Bench::new();
    let path = bench.workspace().join("file");
    for encode in [utf16 as fn(&str) -> Vec<u8>, marked_utf8] {
        bench.write("file", encode("zwölf\n"));
        for (tool, expected) in [("Read", "1\tzwölf"), ("tool::file_read", "zwölf\n"), ("read", "zwölf\n")]
        {
            let answer = bench.call(tool, json!({"path": path})).await.unwrap();
            assert_eq!(answer["content"], expected, "{tool}");
        }
        assert_eq!(bench.call("read_file", json!({"path": path})).await, Ok(json!("zwölf\n")));
    }
}
