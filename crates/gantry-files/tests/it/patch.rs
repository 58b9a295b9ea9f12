//! Patches against the examples people send, and against GNU `patch` and `git apply`.

use gantry_files::patch::{PatchError, PatchKind, apply};

fn check(original: &str, patch: &str, expected: &str) {
    match apply(original.as_bytes(), patch, 0) {
        Ok(patched) => assert_eq!(String::from_utf8_lossy(&patched.bytes), expected),
        Err(error) => panic!("refused: {error}"),
    }
}

fn refused(original: &str, patch: &str) -> PatchError {
    apply(original.as_bytes(), patch, 0).expect_err("must be refused")
}

#[test]
fn the_example_of_the_tools_documentation_applies() {
    let patch = "@@ -1,3 +1,3 @@\n-const version = \"1.0.0\";\n+const version = \"1.1.0\";\n";
    check("const version = \"1.0.0\";\n", patch, "const version = \"1.1.0\";\n");
    check(
        "// head\nconst version = \"1.0.0\";\nlet x;\n",
        patch,
        "// head\nconst version = \"1.1.0\";\nlet x;\n",
    );
}

#[test]
fn line_endings_of_the_file_are_kept() {
    check("a\r\nb\r\nc\r\n", "@@ -1,3 +1,4 @@\n a\n-b\n+B\n+BB\n c\n", "a\r\nB\r\nBB\r\nc\r\n");
    check("a\nb\nc\n", "@@ -1,3 +1,3 @@\r\n a\r\n-b\r\n+B\r\n c\r\n", "a\nB\nc\n");
    check("a\nb\r\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n", "a\nB\r\nc\n");
}

#[test]
fn creation_and_deletion_follow_the_headers() {
    let create = "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n";
    let patched = apply(b"", create, 0).unwrap();
    assert_eq!((patched.kind, patched.bytes.as_slice()), (PatchKind::Create, b"one\ntwo\n".as_slice()));
    assert!(matches!(refused("x\n", create), PatchError::Exists));

    let delete = "--- a/old.txt\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-one\n-two\n";
    let patched = apply(b"one\ntwo\n", delete, 0).unwrap();
    assert_eq!((patched.kind, patched.bytes.len()), (PatchKind::Delete, 0));
    assert!(matches!(refused("one\ntwo\nthree\n", delete), PatchError::Remains { lines: 1 }));
}
