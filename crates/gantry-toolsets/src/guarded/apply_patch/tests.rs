#![allow(clippy::disallowed_methods, reason = "tests prepare their own files")]

use serde_json::{Value, json};

use crate::testing::Bench;

/// Patches a file that contains `before`. Compares the reply without `patched` and `path`, and the
/// new content.
async fn check(before: &str, patch: &str, fuzz: u8, extra: Value, after: &str) {
    let bench = Bench::new();
    let path = bench.write("src/version.ts", before);
    let input = json!({"path": "src/version.ts", "patch": patch, "fuzz": fuzz});
    let mut expected = json!({"patched": true, "path": path});
    expected.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    assert_eq!(bench.call("tool::apply_patch", input).await, Ok(expected), "{patch}");
    assert_eq!(bench.read("src/version.ts"), after, "{patch}");
}

/// Returns the error of a patch that must not change the file.
async fn rejected(before: &str, patch: &str) -> String {
    let bench = Bench::new();
    bench.write("f", before);
    let reply = bench.call("tool::apply_patch", json!({"path": "f", "patch": patch})).await.unwrap_err();
    assert_eq!(bench.read("f"), before);
    reply["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn seed_example_applies_despite_wrong_counts() {
    let patch = "@@ -1,3 +1,3 @@\n-const version = \"1.0.0\";\n+const version = \"1.1.0\";\n";
    let rest = "export default version;\nconst other = 1;\n";
    let file = |version: &str| format!("const version = \"{version}\";\n{rest}");
    check(&file("1.0.0"), patch, 0, json!({}), &file("1.1.0")).await;
}

#[tokio::test]
async fn moved_hunks_are_reported() {
    let patch = "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n";
    let moved = |offset: i64, fuzz: u8| json!({"moved": [{"hunk": 1, "offset": offset, "fuzz": fuzz}]});
    check("a\nb\nc\n", patch, 0, json!({}), "a\nB\nc\n").await;
    check("x\ny\na\nb\nc\n", patch, 0, moved(2, 0), "x\ny\na\nB\nc\n").await;
    check("a\nb\nother\n", patch, 1, moved(0, 1), "a\nB\nother\n").await;
    assert!(rejected("a\nb\nother\n", patch).await.starts_with("hunk 1 "));
}

#[tokio::test]
async fn several_hunks_apply_together_or_not_at_all() {
    let file: String = (1..=20).map(|number| format!("{number}\n")).collect();
    let patch = |last: &str| format!("@@ -2,1 +2,1 @@\n-2\n+two\n@@ -18,1 +18,1 @@\n-{last}\n+eighteen\n");
    let after = file.replace("\n2\n", "\ntwo\n").replace("\n18\n", "\neighteen\n");
    check(&file, &patch("18"), 0, json!({}), &after).await;
    assert_eq!(
        rejected(&file, &patch("eleventy")).await,
        "hunk 2 (@@ -18,1 +18,1 @@) does not fit; nothing was changed\nexpected:\n  eleventy\nfound at line 18:\n  18\n\
         (read the file again and make the patch from its current content)"
    );
}

#[tokio::test]
async fn line_endings_encoding_and_final_newline_are_kept() {
    check("a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\n-b\n+B\n", 0, json!({}), "a\r\nB\r\n").await;
    let no_newline =
        "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+B\n\\ No newline at end of file\n";
    check("a\nb", no_newline, 0, json!({}), "a\nB").await;
    check("\u{feff}a\nb\n", "@@ -1,2 +1,2 @@\n-a\n+ä\n b\n", 0, json!({}), "\u{feff}ä\nb\n").await;
    let utf16 = |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_be_bytes).collect() };
    let bench = Bench::new();
    let patch = json!({"path": "f", "patch": "@@ -1,2 +1,2 @@\n-a\n+ä\n b\n"});
    for (before, after) in [
        (utf16("\u{feff}a\nb\n"), utf16("\u{feff}ä\nb\n")),
        (b"a\nb\n\xe9\n".to_vec(), "ä\nb\n".bytes().chain(*b"\xe9\n").collect()),
    ] {
        let path = bench.write("f", before);
        bench.call("tool::apply_patch", patch.clone()).await.unwrap();
        assert_eq!(std::fs::read(path).unwrap(), after);
    }
}

#[tokio::test]
async fn headers_create_and_delete_files() {
    let bench = Bench::new();
    let path = bench.workspace().join("new/deep.txt");
    let create = json!({"path": "new/deep.txt", "patch": "--- /dev/null\n+++ b/new/deep.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n"});
    let reply = bench.call("tool::apply_patch", create.clone()).await;
    assert_eq!(reply, Ok(json!({"patched": true, "path": path, "created": true})));
    assert_eq!(bench.read(&path), "one\ntwo\n");
    assert_eq!(
        bench.call("tool::apply_patch", create).await,
        Err(
            json!({"error": "the patch creates the file, but it exists and is not empty (send a patch against the current content)"})
        )
    );
    let delete = |lines: &str| json!({"path": "new/deep.txt", "patch": format!("--- a/new/deep.txt\n+++ /dev/null\n{lines}")});
    let partial = bench.call("tool::apply_patch", delete("@@ -1,1 +0,0 @@\n-one\n")).await;
    assert_eq!(
        partial,
        Err(json!({"error": "the patch deletes the file, but 1 of its lines are not in the patch"}))
    );
    let reply = bench.call("tool::apply_patch", delete("@@ -1,2 +0,0 @@\n-one\n-two\n")).await;
    assert_eq!(reply, Ok(json!({"patched": true, "path": path, "deleted": true})));
    assert!(!path.exists() && bench.workspace().join("new").exists());
    let missing = bench.call("tool::apply_patch", delete("@@ -1,2 +0,0 @@\n-one\n-two\n")).await;
    assert_eq!(missing, Err(json!({"error": "no such file or directory: new/deep.txt"})));
}

#[tokio::test]
async fn errors_state_the_cause() {
    assert!(
        rejected("a\n", "hello").await.starts_with("the patch has no hunk"),
        "{}",
        rejected("a\n", "hello").await
    );
    assert_eq!(
        rejected("B\n", "@@ -1 +1 @@\n-b\n+B\n").await,
        "the patch is already applied: the file holds its new lines, not its old ones"
    );
    let bench = Bench::new();
    for fuzz in [json!(3), json!(-1)] {
        let invalid = bench
            .call("tool::apply_patch", json!({"path": "f", "patch": "x", "fuzz": fuzz}))
            .await
            .unwrap_err();
        assert_eq!(invalid["error"]["code"], "invalid_input");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_patches_are_all_kept() {
    let bench = std::sync::Arc::new(Bench::new());
    let file: String = (1..=200).map(|number| format!("line {number}\n")).collect();
    bench.write("f", &file);
    let patches = (1..=40).map(|number| {
        let (bench, line) = (bench.clone(), number * 5);
        tokio::spawn(async move {
            let patch = format!("@@ -{line} +{line} @@\n-line {line}\n+LINE {line}\n");
            bench.call("tool::apply_patch", json!({"path": "f", "patch": patch})).await
        })
    });
    for patch in patches.collect::<Vec<_>>() {
        assert!(patch.await.unwrap().is_ok());
    }
    assert_eq!(bench.read("f").matches("LINE").count(), 40);
}
