//! `Grep` searches file contents with a regular expression.

use std::sync::Arc;

use gantry_files::{SearchError, WalkOptions};
use gantry_tool::{Capability, Label, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::paths;
use super::skipped::Skipped;
use crate::blocking::blocking;
use crate::machine::file_error;
use crate::optional_path::absent_when_empty;
use crate::whole_secrets::cut_end;
use crate::{Ctx, Machine};

/// Search file contents line by line with a regular expression. Returns the first 100 matching
/// lines, each cut at 200 characters. Includes hidden and ignored files, but not binary files or
/// `.git`.
///
/// Matches are in path order. A file is binary if it is not UTF-8 or has NUL characters. Links are
/// followed, except those in /proc. `path` is absolute or relative to the workspace; `include` is
/// matched against the file name, not the path.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Rust regular expression: no look-around or back-references; `(?i)` ignores case.
    pattern: String,
    /// File or directory to search. Default: the workspace.
    #[serde(default, deserialize_with = "absent_when_empty")]
    path: Option<String>,
    /// Glob for file names, such as `*.{rs,ts}`.
    #[serde(default, deserialize_with = "absent_when_empty")]
    include: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The pattern as given.
    pattern: String,
    /// The real absolute path of the searched directory or file.
    base_path: String,
    /// Matches in path order, then by line.
    matches: Vec<Match>,
    /// The number of matches; absent if `truncated` is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<usize>,
    /// True if there are more than the 100 returned matches; then `count` is absent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<Skipped>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Match {
    /// Absolute path of the file.
    path: String,
    /// Line number, counted from 1.
    line: u64,
    /// The line without its ending, at most its first 200 characters.
    content: String,
}

pub(super) const NAME: &str = "Grep";

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    Tool::new(NAME, Toolset::Node, machine, run)
        .read_only()
        .capabilities(&[Capability::TextSearch])
        .labels(&[Label::Private])
        .reads_below("path", machine.free_paths())
        .offered_to_clients()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Output, ToolError> {
    blocking(&ctx, move |ctx, cancelled| {
        let scope = ctx.state.free(&ctx.call)?;
        let base = scope.open_base(input.path.as_deref().unwrap_or(".")).map_err(file_error)?;
        let options = WalkOptions { threads: 0, cancelled };
        let found = scope.search(&base, &input.pattern, input.include.as_deref(), &options);
        let found = found.map_err(|err| match err {
            SearchError::Cancelled => ToolError::Cancelled,
            SearchError::Base { .. } => ToolError::failed(err.to_string()),
            err => ToolError::input(err.to_string()),
        })?;
        let count = found.matches.len();
        let masker = ctx.state.masker();
        let matches = found.matches.into_iter().map(|found| Match {
            path: paths::text(&found.path),
            line: found.line,
            content: cut_end(masker, found.content, &found.beyond),
        });
        Ok(Output {
            pattern: input.pattern,
            base_path: paths::text(base.path()),
            matches: matches.collect(),
            count: (!found.truncated).then_some(count),
            truncated: found.truncated,
            skipped: Skipped::of(found.skipped),
        })
    })
    .await
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests prepare their own files")]
mod tests {
    use crate::testing::Bench;
    use serde_json::{Value, json};

    /// Returns matches as `path:line:content`, with paths relative to the workspace.
    fn rows(bench: &Bench, answer: &Value) -> Vec<String> {
        let root = format!("{}/", bench.workspace().display());
        let row = |found: &Value| {
            let path = found["path"].as_str().unwrap().strip_prefix(&root).unwrap().to_owned();
            format!("{path}:{}:{}", found["line"], found["content"].as_str().unwrap())
        };
        answer["matches"].as_array().unwrap().iter().map(row).collect()
    }

    #[tokio::test]
    async fn result_has_the_shape_of_the_seed() {
        let bench = Bench::new();
        let (b, a) = (bench.write("src/b.rs", "no\nfn b() {}\r\n"), bench.write("src/a.rs", "fn a() {}"));
        let answer = bench.call("Grep", json!({"pattern": r"^fn \w", "path": "src"})).await;
        assert_eq!(
            answer,
            Ok(json!({
                "pattern": r"^fn \w",
                "basePath": bench.workspace().join("src"),
                "matches": [
                    {"path": a, "line": 1, "content": "fn a() {}"},
                    {"path": b, "line": 2, "content": "fn b() {}"},
                ],
                "count": 2,
            }))
        );
        let answer = bench.call("Grep", json!({"pattern": "fn", "path": "src/b.rs"})).await;
        assert_eq!(
            answer,
            Ok(
                json!({"pattern": "fn", "basePath": b, "matches": [{"path": b, "line": 2, "content": "fn b() {}"}], "count": 1})
            )
        );
    }

    #[tokio::test]
    async fn shortened_line_shows_no_part_of_a_secret() {
        let secret = "hunter2-hunter2-hunter2";
        let bench =
            Bench::with(|parts| parts.settings.web.masker = gantry_tool::Masker::new([secret.to_owned()]));
        for before in 170..=200 {
            bench.write("f", format!("{}{secret} and more", "x".repeat(before)));
            let answer = bench.call("Grep", json!({"pattern": "xx"})).await.unwrap();
            let content = answer["matches"][0]["content"].as_str().unwrap();
            assert!(!content.contains("hunt") && content.len() <= 200, "{before}: {content}");
            assert!(content.starts_with(&"x".repeat(before)), "{before}: {content}");
        }
    }

    #[tokio::test]
    async fn more_than_a_hundred_matches_are_truncated() {
        let bench = Bench::new();
        let lines = |count: usize| "hit\n".repeat(count);
        bench.write("a", lines(60));
        bench.write("b", lines(40));
        let exact = bench.call("Grep", json!({"pattern": "hit"})).await.unwrap();
        assert_eq!((&exact["count"], exact.get("truncated")), (&json!(100), None));
        bench.write("b", lines(41));
        let beyond = bench.call("Grep", json!({"pattern": "hit"})).await.unwrap();
        assert_eq!((beyond.get("count"), &beyond["truncated"]), (None, &json!(true)));
        let rows = rows(&bench, &beyond);
        assert_eq!((rows.len(), rows[0].as_str(), rows[99].as_str()), (100, "a:1:hit", "b:40:hit"));
    }

    #[tokio::test]
    async fn lines_are_shortened_to_two_hundred_characters() {
        let bench = Bench::new();
        bench.write("f", format!("{}\n{}\n", "é".repeat(200), "ü".repeat(201)));
        let answer = bench.call("Grep", json!({"pattern": "[éü]"})).await.unwrap();
        let contents: Vec<_> =
            answer["matches"].as_array().unwrap().iter().map(|found| &found["content"]).collect();
        assert_eq!(contents, [&json!("é".repeat(200)), &json!("ü".repeat(200))]);
    }

    #[tokio::test]
    async fn include_matches_the_file_name_and_supports_braces() {
        let bench = Bench::new();
        for path in ["a.rs", "deep/b.ts", "c.md", "rs/d.txt"] {
            bench.write(path, "x");
        }
        let search = async |include: &str| {
            let answer = bench.call("Grep", json!({"pattern": "x", "include": include})).await.unwrap();
            rows(&bench, &answer)
        };
        assert_eq!(search("*.{rs,ts}").await, ["a.rs:1:x", "deep/b.ts:1:x"]);
        assert_eq!(search("*.md").await, ["c.md:1:x"]);
        assert_eq!(search("rs").await, Vec::<String>::new());
    }

    #[tokio::test]
    async fn links_are_followed_and_binaries_and_git_are_skipped() {
        let bench = Bench::new();
        bench.write(".git/config", "needle");
        bench.write(".hidden", "needle");
        bench.write("binary", b"needle\xff\xfe");
        bench.write(".gitignore", "ignored");
        bench.write("ignored/f", "needle");
        std::os::unix::fs::symlink("ignored", bench.workspace().join("link")).unwrap();
        std::os::unix::fs::symlink(".", bench.workspace().join("loop")).unwrap();
        std::os::unix::fs::symlink("missing", bench.workspace().join("broken")).unwrap();
        let answer = bench.call("Grep", json!({"pattern": "needle"})).await.unwrap();
        assert_eq!(rows(&bench, &answer), [".hidden:1:needle", "ignored/f:1:needle", "link/f:1:needle"]);
    }

    #[tokio::test]
    async fn invalid_patterns_and_paths_are_errors() {
        let bench = Bench::new();
        for (input, part) in [
            (json!({"pattern": "("}), "invalid regular expression"),
            (json!({"pattern": "x", "include": "["}), "invalid include glob `[`"),
            (json!({"pattern": "x", "include": "a/b"}), "contains a slash"),
            (json!({"pattern": "x", "path": "missing"}), "no such file or directory: missing"),
        ] {
            let error = bench.call("Grep", input.clone()).await.unwrap_err();
            assert!(error["error"].as_str().is_some_and(|text| text.contains(part)), "{input}: {error}");
        }
    }

    #[tokio::test]
    async fn sensitive_files_are_skipped_for_agents_and_the_data_directory_for_everyone() {
        let bench = Bench::new();
        bench.write("a.txt", "needle");
        bench.write(".env", "needle");
        let key = bench.write(".ssh/id_rsa", "needle");
        std::os::unix::fs::symlink(&key, bench.workspace().join("link")).unwrap();
        let input = json!({"pattern": "needle"});
        let answer = bench.call_as(bench.agent_call("a"), "Grep", input.clone()).await.unwrap();
        assert_eq!(rows(&bench, &answer), ["a.txt:1:needle"]);
        assert_eq!(answer["skipped"], json!({"sensitive": 3}));
        let error =
            bench.call_as(bench.agent_call("a"), "Grep", json!({"pattern": "n", "path": "link"})).await;
        assert_eq!(error.unwrap_err()["error"]["code"], "approval_needed");
        assert_eq!(bench.call("Grep", input).await.unwrap()["count"], 4);

        std::fs::write(bench.data().join("secret"), "needle").unwrap();
        let root = bench.data().parent().unwrap().to_owned();
        let answer =
            bench.call("Grep", json!({"pattern": "needle", "path": root, "include": "secret"})).await;
        assert_eq!(answer.unwrap()["count"], 0);
        let inside = bench.data().join("secret");
        let error = bench.call("Grep", json!({"pattern": "needle", "path": inside})).await.unwrap_err();
        assert_eq!(error["error"]["code"], "denied");
    }
}
