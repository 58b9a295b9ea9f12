//! Patches as people and models send them. `patch_oracle` compares generated ones with GNU `patch`.

use gantry_files::{
    diff::unified,
    patch::{AppliedHunk, PatchError, PatchKind, apply},
};
use gantry_testkit::scaled;
use proptest::prelude::*;

fn check(original: &str, patch: &str, expected: &str) {
    match apply(original.as_bytes(), patch, 0) {
        Ok(patched) => assert_eq!(String::from_utf8_lossy(&patched.bytes()), expected),
        Err(error) => panic!("refused: {error}"),
    }
}

fn refused(original: &str, patch: &str) -> PatchError {
    apply(original.as_bytes(), patch, 0).expect_err("must be refused")
}

#[test]
fn documented_example_applies() {
    let patch = "@@ -1,3 +1,3 @@\n-const version = \"1.0.0\";\n+const version = \"1.1.0\";\n";
    check("const version = \"1.0.0\";\n", patch, "const version = \"1.1.0\";\n");
    check(
        "// head\nconst version = \"1.0.0\";\nlet x;\n",
        patch,
        "// head\nconst version = \"1.1.0\";\nlet x;\n",
    );
}

#[test]
fn file_line_endings_are_kept() {
    check("a\r\nb\r\nc\r\n", "@@ -1,3 +1,4 @@\n a\n-b\n+B\n+BB\n c\n", "a\r\nB\r\nBB\r\nc\r\n");
    check("a\nb\nc\n", "@@ -1,3 +1,3 @@\r\n a\r\n-b\r\n+B\r\n c\r\n", "a\nB\nc\n");
    check("a\r\nb\r\n", "@@ -1,0 +2 @@\n+x\n", "a\r\nx\r\nb\r\n");
    check("a\nb\r\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n", "a\nB\r\nc\n");
}

#[test]
fn hunks_are_searched_outward_with_the_previous_offset() {
    // At equal distance, the lower line comes first.
    check("x\na\nx\n", "@@ -2 +2 @@\n-x\n+y\n", "x\na\ny\n");
    check("x\nx\na\na\nx\n", "@@ -3 +3 @@\n-x\n+y\n", "x\ny\na\na\nx\n");
    // The first hunk is two lines further down, so the second is expected there too.
    check("p\np\nA\nx\nq\nx\n", "@@ -1 +1 @@\n-A\n+B\n@@ -4 +4 @@\n-x\n+y\n", "p\np\nB\nx\nq\ny\n");
    let patched = apply(b"p\np\nA\n", "@@ -1 +1 @@\n-A\n+B\n", 0).unwrap();
    assert_eq!(patched.hunks, [AppliedHunk { offset: 2, fuzz: 0, adapted: false }]);
    let fuzzy = "@@ -1,3 +1,3 @@\n other\n-b\n+B\n c\n";
    assert!(matches!(refused("a\nb\nc\n", fuzzy), PatchError::Rejected(_)));
    let patched = apply(b"a\nb\nc\n", fuzzy, 1).unwrap();
    assert_eq!((patched.bytes().as_slice(), patched.hunks[0].fuzz), (b"a\nB\nc\n".as_slice(), 1));
}

#[test]
fn creation_and_deletion_follow_the_headers() {
    let create = "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n";
    let patched = apply(b"", create, 0).unwrap();
    assert_eq!((patched.kind, patched.bytes().as_slice()), (PatchKind::Create, b"one\ntwo\n".as_slice()));
    assert!(matches!(refused("x\n", create), PatchError::Exists));

    let delete = "--- a/old.txt\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-one\n-two\n";
    let patched = apply(b"one\ntwo\n", delete, 0).unwrap();
    assert_eq!((patched.kind, patched.bytes().len()), (PatchKind::Delete, 0));
    assert!(matches!(refused("one\ntwo\nthree\n", delete), PatchError::Remains { lines: 1 }));
}

#[test]
fn patches_as_models_write_them_apply() {
    let file = "fn a() {\n    one();\n}\n\nfn b() {\n    two();\n}\n";
    let changed = "fn a() {\n    one();\n}\n\nfn b() {\n    three();\n}\n";
    // This patch has a code fence, prose around it and wrong counts.
    check(
        file,
        "Here it is:\n```diff\n@@ -5,9 +5,9 @@\n fn b() {\n-    two();\n+    three();\n }\n```\nDone.\n",
        changed,
    );
    // These headers have no numbers.
    check(file, "@@\n fn b() {\n-    two();\n+    three();\n", changed);
    check(file, "@@ ... @@\n-    two();\n+    three();\n", changed);
    check(file, "--- a/x.rs\n+++ b/x.rs\n@@ fn b() {\n-    two();\n+    three();\n", changed);
    // This hunk has context on one side, far from the end of the file.
    check(file, "@@ -1,2 +1,2 @@\n fn a() {\n-    one();\n+    uno();\n", &file.replace("one", "uno"));
    // A blank context line has lost its space, and blank lines follow the patch.
    check(file, "@@ -3,3 +3,3 @@\n }\n\n-fn b() {\n+fn c() {\n\n\n", &file.replace("fn b", "fn c"));
    // The last line of the patch has no newline.
    check(file, "@@ -6 +6 @@\n-    two();\n+    three();", changed);
    // These are the lines that git adds.
    check(
        file,
        "diff --git a/x b/x\nindex 123..456 100644\n--- a/x\n+++ b/x\n@@ -6 +6 @@\n-    two();\n+    three();\n-- \n2.47.3\n\n",
        changed,
    );
}

#[test]
fn final_newline_follows_the_patch_if_marked_else_the_file() {
    check("a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n", "a\nc\n");
    check("a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ No newline at end of file\n", "a\nc");
    check("a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n", "a\nc");
    check("a\nb", "@@ -1,2 +1,3 @@\n a\n b\n+c\n", "a\nb\nc");
    check("a\r\nb", "@@ -1,2 +1,3 @@\n a\n b\n+c\n", "a\r\nb\r\nc");
}

#[test]
fn inapplicable_patches_are_rejected_with_a_reason() {
    let message = |original: &str, patch: &str| refused(original, patch).to_string();
    assert_eq!(
        message("a\nb\nc\n", "@@ -1,3 +1,3 @@\n a\n-x\n+y\n c\n"),
        "hunk 1 (@@ -1,3 +1,3 @@) does not fit; nothing was changed\nexpected:\n  a\n  x\n  c\nfound at line 1:\n  a\n  b\n  c",
    );
    assert!(matches!(refused("a\n", "nothing here"), PatchError::NoHunks));
    assert!(matches!(
        refused("a\n", "*** Begin Patch\n*** Update File: a\n-a\n+b\n"),
        PatchError::OtherFormat
    ));
    assert!(matches!(
        refused("a\n", "diff --git a/x b/x\nGIT binary patch\nliteral 3\n"),
        PatchError::Binary
    ));
    assert!(matches!(refused("a\n", "Binary files a/x and b/x differ\n"), PatchError::Binary));
    assert!(matches!(refused("b\n", "@@ -1 +1 @@\n-a\n+b\n"), PatchError::AlreadyApplied));
    assert!(
        matches!(refused("a\nx\na\n", "@@\n-a\n+b\n"), PatchError::Ambiguous { lines, .. } if lines == [1, 3])
    );
    assert!(matches!(refused("a\n", "@@\n+b\n"), PatchError::NoPlace { .. }));
    assert!(matches!(refused("a\n", "@@ -1 +1 @@\n a\n"), PatchError::Malformed { line: 1, .. }));
    assert!(matches!(refused("a\n", "@@ -1,2 +1,2 @@\n a\nb\n+c\n"), PatchError::Malformed { line: 3, .. }));
    assert!(matches!(refused("a\n", "@@ -99999999999 +1 @@\n-a\n"), PatchError::Malformed { line: 1, .. }));
    let two = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n";
    assert!(matches!(refused("a\n", two), PatchError::SeveralFiles { .. }));
    let overlapping = "@@ -1,2 +1,2 @@\n-a\n-b\n+A\n+B\n@@ -2 +2 @@\n-b\n+C\n";
    assert!(matches!(refused("a\nb\nc\n", overlapping), PatchError::Overlapping { hunk: 2, .. }));
    assert!(matches!(apply(b"a\n", "@@ -1 +1 @@\n-a\n+b\n", 3), Err(PatchError::Fuzz)));
}

#[test]
fn repeated_lines_cannot_slow_the_search() {
    let file = "\n".repeat(2_000_000);
    let patch = format!("@@ -1,3000 +1,3000 @@\n{}-x\n+y\n{}", " \n".repeat(1500), " \n".repeat(1500));
    assert!(matches!(refused(&file, &patch), PatchError::TooCostly));
}

/// Generates text of few different lines, with any endings.
fn text() -> impl Strategy<Value = String> {
    let line =
        prop_oneof![Just("a"), Just("b"), Just(""), Just("-- x"), Just("++ y"), Just("@@ z"), Just("ü\r")];
    let ending = prop_oneof![4 => Just("\n"), 1 => Just("\r\n")];
    (prop::collection::vec((line, ending), 0..40), any::<bool>()).prop_map(|(lines, whole)| {
        let mut text: String = lines.into_iter().flat_map(|(line, ending)| [line, ending]).collect();
        if !whole {
            text.truncate(text.trim_end_matches('\n').len());
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(scaled(5_000, 500) as u32))]

    #[test]
    fn own_diffs_apply(old in text(), new in text(), context in 0usize..5) {
        // Without context an added line says nothing about the file's endings, so it follows them.
        let plain = |text: String| if context == 0 { text.replace('\r', "") } else { text };
        let (old, new) = (plain(old), plain(new));
        let diff = unified(&old, &new, "f", context);
        if old == new {
            prop_assert_eq!(diff, "");
        } else {
            let patched = apply(old.as_bytes(), &diff, 0);
            prop_assert_eq!(patched.map(|patched| String::from_utf8(patched.bytes()).unwrap()).map_err(|error| error.to_string()), Ok(new), "{}", diff);
        }
    }

    #[test]
    fn no_patch_panics(file in prop::collection::vec(any::<u8>(), 0..200), patch in r"((@@|---|\+\+\+|```|diff --git)?[ -+@,0-9\\\r\t]{0,6}\PC{0,3}\n?){0,20}", fuzz in 0u8..4) {
        let _ = apply(&file, &patch, fuzz);
    }

    #[test]
    fn no_damaged_patch_panics_or_half_applies(old in text(), new in text(), at in any::<prop::sample::Index>(), with in "[-+ @\\\\\n0-9]{0,3}", fuzz in 0u8..3) {
        let mut diff = unified(&old, &new, "f", 3);
        let places: Vec<usize> = diff.char_indices().map(|(index, _)| index).collect();
        if let Some(index) = places.get(at.index(places.len().max(1))) {
            diff.insert_str(*index, &with);
        }
        let _ = apply(old.as_bytes(), &diff, fuzz);
        let _ = apply(new.as_bytes(), &diff, fuzz);
    }
}
