//! Tests of the whole tool through the gate: its effects on a folder and its result texts.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use gantry_files::{Files, FilesOptions};
use gantry_tool::Label;
use serde_json::{Value, json};

use super::{LIMITS, Limits, NamePattern, find};
use crate::testing::Bench;

fn bench(files: &[(&str, &str)]) -> Bench {
    let bench = Bench::new();
    for (path, content) in files {
        bench.write(path, content);
    }
    bench
}

/// Calls with `directory` set to the workspace.
async fn call(bench: &Bench, mut input: Value) -> Result<String, String> {
    if input.get("directory").is_none() {
        input["directory"] = json!(bench.workspace());
    }
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let root = bench.workspace().display().to_string();
    let answer = bench.call("batch_files", input).await;
    answer.map(text).map_err(text).map(|t| t.replace(&root, "WS")).map_err(|t| t.replace(&root, "WS"))
}

/// Every file of the workspace with its content.
fn tree(bench: &Bench) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut todo = vec![bench.workspace()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                todo.push(path);
            } else {
                let name = path.strip_prefix(bench.workspace()).unwrap().display().to_string();
                files.insert(name, std::fs::read_to_string(&path).unwrap_or_default());
            }
        }
    }
    files
}

fn names(bench: &Bench) -> Vec<String> {
    tree(bench).into_keys().collect()
}

#[tokio::test]
async fn rename_substitutes_wildcard_matches_in_every_subdirectory() {
    let bench = bench(&[("a-1.txt", "a"), ("sub/b-2.txt", "b"), ("sub/c.rs", "c"), (".git/d-3.txt", "d")]);
    let input = json!({"pattern": "*-?.txt", "operation": "rename", "rename_to": "$2_$1.md"});
    let mut dry = input.clone();
    dry["dry_run"] = json!(true);
    let before = tree(&bench);
    let steps = "2 files in WS:\n  a-1.txt -> 1_a.md\n  sub/b-2.txt -> sub/2_b.md";
    assert_eq!(call(&bench, dry).await, Ok(format!("Would rename (dry run) {steps}")));
    assert_eq!(tree(&bench), before);
    assert_eq!(call(&bench, input.clone()).await, Ok(format!("Renamed {steps}")));
    assert_eq!(names(&bench), [".git/d-3.txt", "1_a.md", "sub/2_b.md", "sub/c.rs"]);
    assert_eq!(bench.read("1_a.md"), "a");
    assert_eq!(call(&bench, input).await, Ok("Renamed 0 files in WS".into()));
}

#[tokio::test]
async fn relative_directory_starts_at_the_workspace() {
    let bench = bench(&[("sub/a.txt", "a"), ("b.txt", "b")]);
    let input = json!({"pattern": "*.txt", "directory": "sub", "operation": "rename", "rename_to": "$1-$$"});
    assert_eq!(call(&bench, input).await, Ok("Renamed 1 file in WS/sub:\n  a.txt -> a-$".into()));
    assert_eq!(names(&bench), ["b.txt", "sub/a-$"]);
}

#[tokio::test]
async fn rename_with_one_bad_target_changes_nothing() {
    let bench = bench(&[("a.txt", "a"), ("b.txt", "b"), ("b.md", "old"), ("sub/c.txt", "c"), ("d.txt", "d")]);
    symlink("nowhere", bench.workspace().join("d.md")).unwrap();
    let before = tree(&bench);
    let head = "nothing was changed, because not every target can be used:";
    for (pattern, rename_to, problems) in [
        ("*.txt", "$1.md", "\n  b.txt: WS/b.md already exists\n  d.txt: WS/d.md already exists"),
        (
            "?.txt",
            "same",
            "\n  a.txt and b.txt would both become WS/same\n  b.txt and d.txt would both become WS/same",
        ),
        ("a.txt", "b.txt", "\n  a.txt: WS/b.txt already exists"),
        ("a.*", "../$1", "\n  a.txt: the new name \"../txt\" contains a slash"),
        ("a.*", "..", "\n  a.txt: the new name \"..\" is not a file name"),
        ("a.*", "", "\n  a.txt: the new name \"\" is empty"),
        ("a.*", "x\0", "\n  a.txt: the new name \"x\\0\" contains a NUL character"),
        ("a.*", "sub", "\n  a.txt: WS/sub already exists"),
    ] {
        let input = json!({"pattern": pattern, "operation": "rename", "rename_to": rename_to});
        assert_eq!(call(&bench, input).await, Err(format!("{head}{problems}")), "{pattern} {rename_to}");
        assert_eq!(tree(&bench), before);
    }
    let long = "x".repeat(256);
    let input = json!({"pattern": "a.*", "operation": "rename", "rename_to": long});
    assert!(call(&bench, input).await.unwrap_err().ends_with("is longer than 255 bytes"));
    let input = json!({"pattern": "a.*", "operation": "rename", "rename_to": &long[1..]});
    call(&bench, input).await.unwrap();
}

#[tokio::test]
async fn unchanged_name_is_counted_as_in_place() {
    let bench = bench(&[("a.txt", "a"), ("b.TXT", "b")]);
    let input = json!({"pattern": "*.*", "operation": "rename", "rename_to": "$1.txt"});
    let expected = "Renamed 1 file in WS:\n  b.TXT -> b.txt\nAlready in place: 1 file";
    assert_eq!(call(&bench, input).await, Ok(expected.into()));
}

#[tokio::test]
async fn move_creates_the_destination_and_keeps_names() {
    let bench = bench(&[("a.txt", "a"), ("sub/b.txt", "b"), ("all/here/c.txt", "c"), ("d.rs", "d")]);
    let destination = bench.workspace().join("all/here");
    let input = json!({"pattern": "*.txt", "operation": "move", "destination": destination});
    let expected = "Moved 2 files from WS to WS/all/here:\n  a.txt -> all/here/a.txt\n  sub/b.txt -> all/here/b.txt\nAlready in place: 1 file";
    assert_eq!(call(&bench, input).await, Ok(expected.into()));
    assert_eq!(names(&bench), ["all/here/a.txt", "all/here/b.txt", "all/here/c.txt", "d.rs"]);
    let input = json!({"pattern": "d*", "operation": "move", "destination": "new/deep"});
    let mut dry = input.clone();
    dry["dry_run"] = json!(true);
    call(&bench, dry).await.unwrap();
    assert!(!bench.workspace().join("new").exists());
    call(&bench, input).await.unwrap();
    assert_eq!(bench.read("new/deep/d.rs"), "d");
}

#[tokio::test]
async fn move_never_overwrites_and_rejects_colliding_targets() {
    let bench =
        bench(&[("one/a.txt", "1"), ("two/a.txt", "2"), ("to/b.txt", "old"), ("b.txt", "new"), ("file", "")]);
    let before = tree(&bench);
    let head = "nothing was changed, because not every target can be used:";
    let input = json!({"pattern": "a.txt", "operation": "move", "destination": "fresh"});
    let expected = format!("{head}\n  one/a.txt and two/a.txt would both become WS/fresh/a.txt");
    assert_eq!(call(&bench, input).await, Err(expected));
    let input = json!({"pattern": "b.txt", "operation": "move", "destination": "to"});
    assert_eq!(call(&bench, input).await, Err(format!("{head}\n  b.txt: WS/to/b.txt already exists")));
    let input = json!({"pattern": "b.txt", "operation": "move", "destination": "file"});
    assert_eq!(call(&bench, input).await, Err("not a directory: WS/file".into()));
    assert_eq!(tree(&bench), before);
    assert!(!bench.workspace().join("fresh").exists());
}

#[tokio::test]
async fn move_works_across_devices_both_ways() {
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let device = |path: &Path| std::os::unix::fs::MetadataExt::dev(&path.metadata().unwrap());
    let bench = bench(&[("a.sh", "run"), ("b.sh", "walk")]);
    assert_ne!(device(elsewhere.path()), device(&bench.workspace()), "/dev/shm is another file system");
    std::fs::set_permissions(bench.workspace().join("a.sh"), PermissionsExt::from_mode(0o751)).unwrap();
    let there = elsewhere.path().join("deep");
    let input = json!({"pattern": "*.sh", "operation": "move", "destination": there});
    call(&bench, input).await.unwrap();
    assert_eq!(names(&bench), Vec::<String>::new());
    assert_eq!(std::fs::read_to_string(there.join("a.sh")).unwrap(), "run");
    assert_eq!(there.join("a.sh").metadata().unwrap().permissions().mode() & 0o7777, 0o751);
    let input = json!({"pattern": "*.sh", "directory": there, "operation": "move", "destination": "back"});
    call(&bench, input).await.unwrap();
    assert_eq!(names(&bench), ["back/a.sh", "back/b.sh"]);
    assert_eq!(std::fs::read_dir(&there).unwrap().count(), 0);
}

#[tokio::test]
async fn transform_replaces_literally_and_keeps_endings_and_encoding() {
    let bench = bench(&[
        ("a.txt", "one $1 one\r\ntwo\r\n"),
        ("sub/b.txt", "no such text"),
        ("c.md", "one"),
        ("end.txt", "one"),
    ]);
    bench.write("wide.txt", b"\xff\xfeo\0n\0e\0\n\0");
    bench.write("mark.txt", "\u{feff}one\n");
    let input = json!({"pattern": "*.txt", "operation": "transform", "find": "one", "replace": "$1\\n$&"});
    let expected = "Changed 4 files in WS (5 replacements):\n  a.txt: 2\n  end.txt: 1\n  mark.txt: 1\n  wide.txt: 1\nWithout the text: 1 file";
    assert_eq!(call(&bench, input).await, Ok(expected.into()));
    assert_eq!(bench.read("a.txt"), "$1\\n$& $1 $1\\n$&\r\ntwo\r\n");
    assert_eq!(bench.read("end.txt"), "$1\\n$&");
    assert_eq!(bench.read("mark.txt"), "\u{feff}$1\\n$&\n");
    assert_eq!(bench.read("c.md"), "one");
    let wide: Vec<u8> = "\u{feff}$1\\n$&\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(std::fs::read(bench.workspace().join("wide.txt")).unwrap(), wide);
}

#[tokio::test]
async fn line_breaks_match_either_ending_and_take_the_files_own() {
    let bench = bench(&[("crlf", "a\r\nb\r\nc"), ("lf", "a\nb\nc")]);
    let input = json!({"pattern": "*", "operation": "transform", "find": "a\nb\n", "replace": "x\ny\nz\n"});
    call(&bench, input).await.unwrap();
    assert_eq!((bench.read("crlf"), bench.read("lf")), ("x\r\ny\r\nz\r\nc".into(), "x\ny\nz\nc".into()));
}

#[tokio::test]
async fn dry_transform_returns_a_diff_that_patch_accepts() {
    let bench = bench(&[("a.txt", "one\ntwo\nthree\n"), ("sub/b.txt", "two")]);
    let input =
        json!({"pattern": "*.txt", "operation": "transform", "find": "two", "replace": "2", "dry_run": true});
    let before = tree(&bench);
    let answer = call(&bench, input).await.unwrap();
    let expected = "Would change (dry run) 2 files in WS (2 replacements):\n  a.txt: 1\n  sub/b.txt: 1\n\n\
        --- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n\
        --- a/sub/b.txt\n+++ b/sub/b.txt\n@@ -1 +1 @@\n-two\n\\ No newline at end of file\n+2\n\\ No newline at end of file\n";
    assert_eq!(answer, expected);
    assert_eq!(tree(&bench), before);
    std::fs::write(bench.folder.path().join("diff"), answer.split_once("\n\n").unwrap().1).unwrap();
    let patch = std::process::Command::new("patch")
        .args(["-p1", "-i", "../diff"])
        .current_dir(bench.workspace())
        .output()
        .expect("patch is installed");
    assert!(patch.status.success(), "{patch:?}");
    assert_eq!((bench.read("a.txt"), bench.read("sub/b.txt")), ("one\n2\nthree\n".into(), "2".into()));
}

#[tokio::test]
async fn diffs_over_a_mebibyte_are_left_out_and_counted() {
    let bench = bench(&[]);
    for number in 0..3 {
        bench.write(&format!("{number}.txt"), "a long line of text here\n".repeat(9_000));
    }
    let input = json!({"pattern": "*.txt", "operation": "transform", "find": "text", "replace": "words", "dry_run": true});
    let answer = call(&bench, input).await.unwrap();
    let note = "\n(the diffs of 1 file are left out: together they exceed 1 MiB)";
    assert!(
        answer.len() < 1_100_000 && answer.ends_with(note),
        "{} {}",
        answer.len(),
        &answer[answer.len() - 100..]
    );
}

#[tokio::test]
async fn transform_skips_and_counts_large_files_binary_files_and_links() {
    let bench = bench(&[("ok", "needle")]);
    let limit = 10 * 1024 * 1024;
    bench.write("exact", format!("needle{}", "x".repeat(limit - 6)));
    bench.write("large", format!("needle{}", "x".repeat(limit - 5)));
    bench.write("binary", b"needle\xff");
    symlink("ok", bench.workspace().join("link")).unwrap();
    symlink(bench.workspace(), bench.workspace().join("loop")).unwrap();
    let input = json!({"pattern": "*", "operation": "transform", "find": "needle", "replace": "n"});
    let expected = "Changed 2 files in WS (2 replacements):\n  exact: 1\n  ok: 1\nSkipped: 2 symbolic links, 1 file over 10 MB, 1 binary file";
    assert_eq!(call(&bench, input).await, Ok(expected.into()));
    assert!(bench.read("large").starts_with("needle"));
    assert!(bench.workspace().join("link").is_symlink());
    assert_eq!(std::fs::read(bench.workspace().join("binary")).unwrap(), b"needle\xff");
}

#[tokio::test]
async fn missing_and_unexpected_fields_are_all_reported() {
    let bench = bench(&[("a.txt", "a")]);
    for (fields, expected) in [
        (json!({"operation": "rename"}), "rename needs rename_to"),
        (json!({"operation": "move"}), "move needs destination"),
        (json!({"operation": "transform"}), "transform needs find; transform needs replace"),
        (json!({"operation": "transform", "find": "a"}), "transform needs replace"),
        (
            json!({"operation": "rename", "destination": "x", "find": "y"}),
            "rename needs rename_to; rename does not take destination; rename does not take find",
        ),
        (json!({"operation": "transform", "find": "", "replace": "a"}), "find must not be empty"),
        (json!({"operation": "transform", "find": "a", "replace": "a"}), "find and replace must differ"),
        (json!({"operation": "move", "destination": ""}), "destination must not be empty"),
        (
            json!({"operation": "rename", "rename_to": "$2"}),
            "rename_to uses $2, but pattern has only 1 wildcard",
        ),
    ] {
        let mut input = fields.clone();
        input["pattern"] = json!("*.txt");
        assert_eq!(call(&bench, input).await, Err(expected.into()), "{fields}");
    }
    for input in [
        json!({"operation": "delete", "pattern": "*"}),
        json!({"operation": "rename", "rename_to": "x"}),
        json!({"operation": "rename", "rename_to": "x", "pattern": ""}),
        json!({"operation": "rename", "rename_to": "x", "pattern": "x".repeat(256)}),
        json!({"operation": "rename", "rename_to": "x", "pattern": "*", "recursive": true}),
    ] {
        assert!(call(&bench, input.clone()).await.unwrap_err().contains("invalid_input"), "{input}");
    }
    let input = json!({"operation": "rename", "rename_to": "x", "pattern": "*", "directory": "none"});
    assert_eq!(call(&bench, input).await, Err("no such file or directory: none".into()));
    let input = json!({"operation": "rename", "rename_to": "x", "pattern": "*", "directory": "a.txt"});
    assert_eq!(call(&bench, input).await, Err("not a directory: a.txt".into()));
    assert_eq!(names(&bench), ["a.txt"]);
}

#[tokio::test]
async fn directories_below_level_ten_are_skipped_and_counted() {
    let bench = bench(&[("1/2/3/4/5/6/7/8/9/10/in", ""), ("1/2/3/4/5/6/7/8/9/10/11/out", "")]);
    let input = json!({"pattern": "*", "operation": "rename", "rename_to": "$1-new"});
    let expected = "Renamed 1 file in WS:\n  1/2/3/4/5/6/7/8/9/10/in -> 1/2/3/4/5/6/7/8/9/10/in-new\nSkipped: 1 directory more than 10 levels down";
    assert_eq!(call(&bench, input).await, Ok(expected.into()));
}

#[tokio::test]
async fn more_than_ten_thousand_matches_are_rejected() {
    let bench = bench(&[]);
    for number in 0..10_000 {
        std::fs::write(bench.workspace().join(format!("{number:05}.a")), "").unwrap();
    }
    let input = |dry| json!({"pattern": "*.a", "operation": "rename", "rename_to": "$1.b", "dry_run": dry});
    assert!(
        call(&bench, input(true)).await.unwrap().starts_with("Would rename (dry run) 10000 files in WS:\n")
    );
    bench.write("one-more.a", "");
    let expected = "too many files in WS; nothing was changed (at most 10000 may match, among at most 200000; narrow pattern or directory)";
    assert_eq!(call(&bench, input(false)).await, Err(expected.into()));
    assert!(bench.workspace().join("00000.a").exists());
}

/// Runs `find` on three files, two of which match, and a directory with one more. Also returns how
/// many entries it visited.
fn found(limits: Limits, stop: bool) -> (Result<usize, String>, usize) {
    let bench = bench(&[("1.a", ""), ("2.a", ""), ("3.b", ""), ("dir/4.b", "")]);
    let scope = Files::new(FilesOptions::default()).unwrap().free(&bench.workspace()).unwrap();
    let pattern = NamePattern::parse("*.a").unwrap();
    let looked = std::cell::Cell::new(0);
    let stopped = || {
        looked.set(looked.get() + 1);
        stop
    };
    let found = find(&scope, ".", &pattern, limits, &|_| false, &stopped);
    (found.map(|found| found.files.len()).map_err(|err| err.to_string()), looked.get())
}

#[test]
fn walk_stops_at_its_limits_and_when_cancelled() {
    for limits in [LIMITS, Limits { files: 2, looked_at: 5 }] {
        assert_eq!(found(limits, false), (Ok(2), 5));
    }
    for (limits, expected) in [
        (Limits { files: 1, ..LIMITS }, 2),
        (Limits { looked_at: 4, ..LIMITS }, 4),
        (Limits { looked_at: 2, ..LIMITS }, 2),
    ] {
        let (found, looked) = found(limits, false);
        let error = found.unwrap_err();
        assert!(error.starts_with("too many files in /"), "{error}");
        assert_eq!(looked, expected, "{limits:?}");
    }
    assert_eq!(found(LIMITS, true), (Err("cancelled".into()), 1));
}

#[tokio::test]
async fn data_directory_is_neither_a_source_nor_a_destination() {
    let bench = bench(&[("a.txt", "one")]);
    std::fs::write(bench.data().join("token.txt"), "one").unwrap();
    symlink(bench.data(), bench.workspace().join("link")).unwrap();
    let through_root = format!("/proc/self/root{}", bench.data().display());
    let spellings = [bench.data().display().to_string(), "link".into(), "../data".into(), through_root];
    for data in &spellings {
        for input in [
            json!({"directory": data, "operation": "rename", "rename_to": "x"}),
            json!({"directory": data, "operation": "move", "destination": bench.workspace()}),
            json!({"directory": data, "operation": "transform", "find": "one", "replace": "x"}),
            json!({"directory": data, "operation": "transform", "find": "one", "replace": "x", "dry_run": true}),
            json!({"operation": "move", "destination": data}),
            json!({"operation": "move", "destination": format!("{data}/new/deep")}),
        ] {
            let mut input = input;
            input["pattern"] = json!("*.txt");
            assert!(call(&bench, input.clone()).await.unwrap_err().contains("\"denied\""), "{input}");
        }
    }
    // From above, the walk skips the data directory.
    let above = bench.folder.path().canonicalize().unwrap();
    let input = json!({"pattern": "*.txt", "directory": above, "operation": "transform", "find": "one", "replace": "two"});
    call(&bench, input).await.unwrap();
    assert_eq!(bench.read("a.txt"), "two");
    assert_eq!(std::fs::read_to_string(bench.data().join("token.txt")).unwrap(), "one");
    assert!(!bench.data().join("new").exists());
}

#[tokio::test]
async fn agents_need_approval_when_a_file_or_a_new_name_is_sensitive() {
    let bench =
        bench(&[("a.txt", "one"), (".env", "one"), ("keys/server.pem", "one"), (".ssh/config", "one")]);
    let before = tree(&bench);
    for input in [
        json!({"pattern": ".env", "operation": "rename", "rename_to": "plain.txt"}),
        json!({"pattern": "*", "operation": "transform", "find": "one", "replace": "two"}),
        json!({"pattern": "*.pem", "operation": "move", "destination": "out"}),
        json!({"pattern": "config", "operation": "transform", "find": "one", "replace": "x", "dry_run": true}),
        json!({"pattern": "a.*", "operation": "rename", "rename_to": ".bashrc"}),
        json!({"pattern": "a.*", "operation": "move", "destination": ".ssh"}),
    ] {
        let mut input = input;
        input["directory"] = json!(".");
        let error = bench.call_as(bench.agent_call("a"), "batch_files", input.clone()).await.unwrap_err();
        assert_eq!(error["error"]["code"], "approval_needed", "{input}");
        let refused = bench.gate.call(bench.agent_call("a"), "batch_files", input).await;
        assert_eq!(refused.labels, [Label::Private], "the reason names a file: {refused:?}");
    }
    assert_eq!(tree(&bench), before);
    let input = json!({"pattern": "*.txt", "directory": ".", "operation": "rename", "rename_to": "$1.md"});
    let answer = bench.call_as(bench.agent_call("a"), "batch_files", input).await.unwrap();
    assert!(answer.as_str().unwrap().ends_with("a.txt -> a.md\nSkipped: 1 sensitive path"), "{answer}");
}

#[tokio::test]
async fn dry_run_declares_no_writes() {
    use gantry_tool::Access;
    let bench = bench(&[("a.txt", "one")]);
    for (dry, access) in [(true, Access::Read), (false, Access::Write)] {
        let input = json!({
            "pattern": "*.txt", "directory": bench.workspace(), "operation": "rename", "rename_to": "$1.md",
            "dry_run": dry,
        });
        let touches = bench.gate.touches(&bench.operator_call(), "batch_files", &input).await;
        // Only the directory is declared here: the agent driver asks for it in addition to policy,
        // and a second walk would be slow.
        assert_eq!(touches.len(), 1, "{touches:?}");
        assert!(touches.iter().all(|touch| touch.access == access), "{touches:?}");
    }
}
