//! `tool::file_list` lists a directory of the workspace, flat or recursively.

use std::sync::Arc;
use std::time::SystemTime;

use gantry_files::{EntryKind, ListOptions, MAX_ENTRIES};
use gantry_tool::{Capability, Label, Tool, ToolError, Toolset};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::blocking::blocking;
use crate::machine::file_error;
use crate::{Ctx, Machine};

/// List a directory in the workspace with sizes and times, sorted by path. At most 10,000 entries
/// are returned. Links out of the workspace are listed as links and never followed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Path of the directory, relative to the workspace root; `.` is the root itself.
    path: String,
    /// Also list subdirectories (default false).
    #[serde(default)]
    recursive: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The directory's real absolute path.
    path: String,
    entries: Vec<Entry>,
    /// `entries` is incomplete.
    truncated: bool,
    /// The number of all entries, if `entries` is incomplete.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<usize>,
    /// Directories that could not be entered: unreadable, too deep, or closed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_entered: Vec<String>,
    /// The number of entries left out because they may hold keys or credentials.
    #[serde(skip_serializing_if = "is_zero")]
    skipped_sensitive: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Entry {
    /// The entry's name; with `recursive`, its path relative to the listed directory.
    name: String,
    #[serde(rename = "type")]
    kind: Kind,
    /// Size in bytes.
    size: u64,
    /// Last modification, ISO 8601 in UTC.
    modified: String,
}

/// The type of an entry. A link has the type of its target if that lies in the workspace.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    File,
    Directory,
    Symlink,
    Other,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

pub(super) const NAME: &str = "tool::file_list";

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    Tool::new(NAME, Toolset::Guarded, machine, run)
        .read_only()
        .capabilities(&[Capability::FilesystemList])
        .labels(&[Label::Private])
        .reads_path("path", machine.contained_paths())
}

async fn run(ctx: Ctx, input: Input) -> Result<Output, ToolError> {
    blocking(&ctx, move |ctx, cancelled| {
        let options = ListOptions { recursive: input.recursive, limit: MAX_ENTRIES };
        let scope = ctx.state.contained(&ctx.call)?;
        let listing = scope.list(&input.path, options, cancelled).map_err(file_error)?;
        Ok(Output {
            skipped_sensitive: listing.left_out,
            path: listing.path.to_string_lossy().into_owned(),
            total: (listing.total > listing.entries.len()).then_some(listing.total),
            entries: listing.entries.into_iter().map(entry).collect(),
            truncated: listing.truncated,
            not_entered: listing.not_entered,
        })
    })
    .await
}

fn entry(entry: gantry_files::Entry) -> Entry {
    let kind = match entry.kind {
        EntryKind::File => Kind::File,
        EntryKind::Directory => Kind::Directory,
        EntryKind::Symlink => Kind::Symlink,
        EntryKind::Other => Kind::Other,
    };
    Entry { name: entry.path, kind, size: entry.meta.size, modified: iso(entry.meta.modified()) }
}

/// Formats a time. A time outside the calendar's range is shown as the start of 1970.
fn iso(time: SystemTime) -> String {
    Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests prepare their own files")]

    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::{Value, json};

    use crate::testing::Bench;

    fn stamp(path: &Path) {
        let file = std::fs::File::open(path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_millis(1_700_000_000_500)).unwrap();
    }

    fn entry(name: &str, kind: &str, size: u64) -> Value {
        json!({"name": name, "type": kind, "size": size, "modified": "2023-11-14T22:13:20.5Z"})
    }

    #[tokio::test]
    async fn entries_are_listed_flat_or_recursively_in_path_order() {
        let bench = Bench::new();
        stamp(&bench.write("src/b.rs", "12345"));
        stamp(&bench.write("src/a/deep.rs", "1"));
        stamp(&bench.write("src/a.rs", ""));
        symlink("b.rs", bench.workspace().join("src/link")).unwrap();
        symlink("/etc", bench.workspace().join("src/out")).unwrap();
        stamp(&bench.workspace().join("src/a"));
        let check = async |input: Value, expected: &[Value]| {
            let mut reply = bench.call("tool::file_list", input).await.unwrap();
            // Directory sizes and link times depend on the file system.
            for entry in reply["entries"].as_array_mut().unwrap() {
                if entry["type"] == "directory" {
                    entry["size"] = json!(0);
                }
                if entry["type"] == "symlink" {
                    entry["modified"] = json!("2023-11-14T22:13:20.5Z");
                }
            }
            let path = bench.workspace().join("src");
            assert_eq!(reply, json!({"path": path, "entries": expected, "truncated": false}));
        };
        let (a, deep) = (entry("a", "directory", 0), entry("a/deep.rs", "file", 1));
        let (a_rs, b_rs) = (entry("a.rs", "file", 0), entry("b.rs", "file", 5));
        let links = [entry("link", "file", 5), entry("out", "symlink", 4)];
        let [link, out] = links;
        let flat = [a.clone(), a_rs.clone(), b_rs.clone(), link.clone(), out.clone()];
        check(json!({"path": "src"}), &flat).await;
        check(json!({"path": "src/", "recursive": false}), &flat).await;
        check(json!({"path": "src", "recursive": true}), &[a, a_rs, deep, b_rs, link, out]).await;
    }

    #[tokio::test]
    async fn listing_over_ten_thousand_entries_is_truncated() {
        let bench = Bench::new();
        for number in 0..10_000 {
            bench.write(&format!("many/{number:05}"), "");
        }
        let all = bench.call("tool::file_list", json!({"path": "many"})).await.unwrap();
        assert_eq!((all["entries"].as_array().unwrap().len(), &all["truncated"]), (10_000, &json!(false)));
        bench.write("many/10000", "");
        let cut = bench.call("tool::file_list", json!({"path": "many"})).await.unwrap();
        assert_eq!((cut["entries"].as_array().unwrap().len(), &cut["truncated"]), (10_000, &json!(true)));
        assert_eq!(cut["total"], 10_001);
    }

    #[tokio::test]
    async fn agents_do_not_see_sensitive_entries() {
        let bench = Bench::new();
        bench.write(".env", "");
        bench.write("deep/.ssh/id_rsa", "");
        symlink(".env", bench.workspace().join("notes")).unwrap();
        bench.write("deep/main.rs", "");
        let input = json!({"path": ".", "recursive": true});
        let names = |reply: &Value| -> Vec<String> {
            let entries = reply["entries"].as_array().unwrap().iter();
            entries.map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
        };
        let seen = bench.call_as(bench.agent_call("a"), "tool::file_list", input.clone()).await.unwrap();
        assert_eq!(
            (names(&seen), &seen["skippedSensitive"]),
            (vec!["deep".to_owned(), "deep/main.rs".into()], &json!(4))
        );
        let all = bench.call("tool::file_list", input).await.unwrap();
        assert_eq!((names(&all).len(), all.get("skippedSensitive")), (6, None));
    }

    #[tokio::test]
    async fn errors_state_the_cause() {
        let bench = Bench::new();
        bench.write("f", "");
        for (path, error) in [
            ("missing", "no such file or directory: missing"),
            ("f", "not a directory: f"),
            ("..", "path is outside the workspace: .. (use a path inside the workspace root)"),
        ] {
            assert_eq!(
                bench.call("tool::file_list", json!({"path": path})).await,
                Err(json!({"error": error}))
            );
        }
        let invalid = bench.call("tool::file_list", json!({"recursive": true})).await.unwrap_err();
        assert_eq!(invalid["error"]["code"], "invalid_input");
    }
}
