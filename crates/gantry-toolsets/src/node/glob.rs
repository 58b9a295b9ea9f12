//! `Glob` finds files by pattern, newest first.

use std::sync::Arc;

use gantry_files::{GlobError, WalkOptions};
use gantry_tool::{Capability, Label, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::paths;
use super::skipped::Skipped;
use crate::blocking::blocking;
use crate::machine::file_error;
use crate::optional_path::absent_when_empty;
use crate::{Ctx, Machine};

/// Find files by glob pattern, newest first, at most 10,000. Includes hidden and ignored files, but
/// not `.git`.
///
/// `*` and `?` stay within a directory, `**` crosses directories, `{a,b}` matches either and
/// `[abc]` one of a set. Links are followed, except those in /proc. `path` is absolute or relative
/// to the workspace.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Relative to `path`, such as `src/**/*.{rs,ts}`.
    pattern: String,
    /// Directory to search. Default: the workspace.
    #[serde(default, deserialize_with = "absent_when_empty")]
    path: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The pattern as given.
    pattern: String,
    /// The real absolute path of the directory that was searched.
    base_path: String,
    /// Absolute paths of files, newest first, then by path.
    matches: Vec<String>,
    /// The number of paths in `matches`.
    count: usize,
    /// True if more than 10,000 files matched; then these are the newest.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    /// The number of all matching files, if not all are returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_matches: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<Skipped>,
}

pub(super) const NAME: &str = "Glob";

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    Tool::new(NAME, Toolset::Node, machine, run)
        .read_only()
        .capabilities(&[Capability::FilesystemList])
        .labels(&[Label::Private])
        .reads_below("path", machine.free_paths())
        .offered_to_clients()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Output, ToolError> {
    blocking(&ctx, move |ctx, cancelled| {
        let scope = ctx.state.free(&ctx.call)?;
        let base = scope.open_dir(input.path.as_deref().unwrap_or(".")).map_err(file_error)?;
        let globbed = scope.glob(&base, &input.pattern, &WalkOptions { threads: 0, cancelled });
        let globbed = globbed.map_err(|err| match err {
            GlobError::Cancelled => ToolError::Cancelled,
            GlobError::Base { .. } => ToolError::failed(err.to_string()),
            err => ToolError::input(err.to_string()),
        })?;
        Ok(Output {
            pattern: input.pattern,
            base_path: paths::text(&base.path),
            count: globbed.matches.len(),
            total_matches: globbed.truncated.then_some(globbed.total),
            matches: globbed.matches.iter().map(|path| paths::text(path)).collect(),
            truncated: globbed.truncated,
            skipped: Skipped::of(globbed.skipped),
        })
    })
    .await
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests prepare their own files")]
mod tests {
    use crate::testing::Bench;
    use serde_json::{Value, json};
    use std::time::{Duration, SystemTime};

    /// Sets how long ago a file was modified.
    fn age(bench: &Bench, path: &str, seconds: u64) {
        let file = std::fs::File::options().write(true).open(bench.workspace().join(path)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    }

    /// Returns the matches of a pattern, relative to the workspace.
    async fn matches(bench: &Bench, pattern: &str) -> Vec<String> {
        let answer = bench.call("Glob", json!({"pattern": pattern})).await.unwrap();
        let paths = answer["matches"].as_array().unwrap();
        assert_eq!(answer["count"], json!(paths.len()));
        let root = format!("{}/", bench.workspace().display());
        paths.iter().map(|path| path.as_str().unwrap().strip_prefix(&root).unwrap().to_owned()).collect()
    }

    #[tokio::test]
    async fn matches_are_sorted_newest_first_then_by_path() {
        let bench = Bench::new();
        for (path, seconds) in [("old.md", 50), ("b/new.md", 10), ("z.md", 30), ("a.md", 30), ("x.rs", 1)] {
            bench.write(path, "");
            age(&bench, path, seconds);
        }
        let same = std::fs::metadata(bench.workspace().join("z.md")).unwrap().modified().unwrap();
        let file = std::fs::File::options().write(true).open(bench.workspace().join("a.md")).unwrap();
        file.set_modified(same).unwrap();
        let root = bench.workspace();
        let answer = bench.call("Glob", json!({"pattern": "**/*.md"})).await;
        let expected: Vec<_> =
            ["b/new.md", "a.md", "z.md", "old.md"].iter().map(|path| root.join(path)).collect();
        assert_eq!(
            answer,
            Ok(json!({"pattern": "**/*.md", "basePath": root, "matches": expected, "count": 4}))
        );
    }

    #[tokio::test]
    async fn hidden_and_ignored_files_match_but_not_git_or_directories() {
        let bench = Bench::new();
        for (seconds, path) in
            [".gitignore", "a.rs", "b.ts", "c.py", ".hidden.rs", "ignored/d.rs", ".git/e.rs"]
                .iter()
                .enumerate()
        {
            bench.write(path, "ignored");
            age(&bench, path, seconds as u64 * 10);
        }
        std::fs::create_dir(bench.workspace().join("dir.rs")).unwrap();
        std::os::unix::fs::symlink("missing", bench.workspace().join("broken.rs")).unwrap();
        std::os::unix::fs::symlink(".", bench.workspace().join("loop")).unwrap();
        assert_eq!(matches(&bench, "**/*.{rs,ts}").await, ["a.rs", "b.ts", ".hidden.rs", "ignored/d.rs"]);
        assert_eq!(matches(&bench, "*.rs").await, ["a.rs", ".hidden.rs"]);
        assert_eq!(matches(&bench, "nothing/*").await, Vec::<String>::new());
    }

    #[tokio::test]
    async fn base_path_is_resolved_and_must_be_a_directory() {
        let bench = Bench::new();
        let file = bench.write("sub/f.txt", "");
        std::os::unix::fs::symlink("sub", bench.workspace().join("link")).unwrap();
        for path in [json!("sub"), json!("link"), json!(bench.workspace().join("sub"))] {
            let answer = bench.call("Glob", json!({"pattern": "*", "path": path})).await.unwrap();
            let expected: (Value, Value) = (json!(bench.workspace().join("sub")), json!([file]));
            assert_eq!((answer["basePath"].clone(), answer["matches"].clone()), expected);
        }
        for (path, expected) in
            [("missing", "no such file or directory: missing"), ("sub/f.txt", "not a directory: sub/f.txt")]
        {
            let error = bench.call("Glob", json!({"pattern": "*", "path": path})).await;
            assert_eq!(error, Err(json!({"error": expected})));
        }
        for pattern in ["", "[", "../*"] {
            let error = bench.call("Glob", json!({"pattern": pattern})).await.unwrap_err();
            assert!(error["error"].is_string(), "{pattern}: {error}");
        }
    }

    #[tokio::test]
    async fn more_than_ten_thousand_matches_are_truncated() {
        let bench = Bench::new();
        for index in 0..10_000 {
            bench.write(&format!("d{}/f{index}", index % 100), "");
        }
        let answer = bench.call("Glob", json!({"pattern": "**"})).await.unwrap();
        assert_eq!((&answer["count"], answer.get("truncated")), (&json!(10_000), None));
        bench.write("one-more", "");
        let answer = bench.call("Glob", json!({"pattern": "**"})).await.unwrap();
        assert_eq!(
            (&answer["count"], &answer["truncated"], &answer["totalMatches"]),
            (&json!(10_000), &json!(true), &json!(10_001))
        );
    }

    #[tokio::test]
    async fn sensitive_files_are_hidden_from_agents_and_the_data_directory_from_everyone() {
        let bench = Bench::new();
        let plain = bench.write("a.txt", "");
        let key = bench.write(".ssh/id_rsa", "");
        std::os::unix::fs::symlink(&key, bench.workspace().join("link")).unwrap();
        let input = json!({"pattern": "**"});
        let answer = bench.call_as(bench.agent_call("a"), "Glob", input.clone()).await.unwrap();
        assert_eq!((&answer["matches"], &answer["skipped"]), (&json!([plain]), &json!({"sensitive": 2})));
        assert_eq!(bench.call("Glob", input).await.unwrap()["count"], 3);

        std::fs::write(bench.data().join("secret"), "").unwrap();
        let root = bench.data().parent().unwrap().to_owned();
        let answer = bench.call("Glob", json!({"pattern": "**/secret", "path": root})).await.unwrap();
        assert_eq!(answer["count"], 0);
        let error = bench.call("Glob", json!({"pattern": "*", "path": bench.data()})).await.unwrap_err();
        assert_eq!(error["error"]["code"], "denied");
    }
}
