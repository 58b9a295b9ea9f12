//! `gsv__WriteFile` creates or replaces a file of the agent's workspace.

use std::sync::Arc;

use gantry_protocol::{AskedAction, ChangeKind};
use gantry_tool::{AskedCall, Effect, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::asked;

use super::workspace::WorkspacePath;
use super::{Ctx, Done, MAX_FILE_BYTES, Native, done, object_error};

/// Write a file of your workspace: create it, or replace its content. Directories are created as
/// needed. A file below `skills/` becomes your own copy; the shared one stays unchanged.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Path of the file, relative to the workspace root.
    path: String,
    /// The whole text.
    content: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Output {
    /// The path as given.
    path: String,
    /// Bytes written.
    size: usize,
    /// Always true.
    written: bool,
}

pub(super) const NAME: &str = "gsv__WriteFile";

/// The part of the input that a question shows.
#[derive(Debug, Deserialize)]
struct Asked {
    path: String,
    content: String,
}

async fn described(native: Arc<Native>, asked: AskedCall, input: Asked) -> Option<AskedAction> {
    let (change, text) = match super::stored_text(&native, &asked, &input.path).await {
        Some(Some(present)) => {
            (ChangeKind::Change, asked::difference(&asked, &input.path, &present, &input.content))
        }
        Some(None) => (ChangeKind::Create, input.content),
        None => (ChangeKind::Replace, input.content),
    };
    asked::stored_change(&input.path, change, text)
}

pub(super) fn tool(native: &Arc<Native>) -> Tool {
    let own = native.clone();
    Tool::new(NAME, Toolset::Native, native, run)
        .idempotent()
        .effects(&[Effect::WritesFiles])
        .writes_object("path")
        .asks_as(move |asked, input| described(own.clone(), asked, input))
        .works_without_machine()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Done<Output>, ToolError> {
    let path = WorkspacePath::written_file(&ctx.call, &input.path)?;
    path.check_not_shared_folder(ctx.state.objects()).await?;
    let size = input.content.len();
    if size as u64 > MAX_FILE_BYTES {
        let text = format!("{} would have {size} bytes, at most {MAX_FILE_BYTES} are allowed", path.shown());
        return Err(
            ToolError::failed(text).with_hint("use gsv__Transfer to copy a file of any size from a node")
        );
    }
    let key = path.key();
    let put = ctx.state.objects().put(&key, input.content, content_type(path.shown()));
    put.await.map_err(object_error)?;
    Ok(done(Output { path: path.shown().to_owned(), size, written: true }))
}

/// Returns the content type for a written text: by its extension, else plain text.
pub(super) fn content_type(path: &str) -> &'static str {
    match gantry_store::content_type(path) {
        known @ ("text/markdown" | "application/json" | "text/yaml") => known,
        _ => "text/plain",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::Bench;

    #[tokio::test]
    async fn file_is_written_to_the_calling_agents_workspace() {
        let bench = Bench::new();
        bench.put_object("skills/x/SKILL.md", "global").await;
        for (path, content) in
            [("notes/ü.md", "one"), ("notes/ü.md", "zwei ü"), ("skills/x/SKILL.md", "mine")]
        {
            let input = json!({"path": path, "content": content});
            let answer = bench.call_as(bench.agent_call("a"), "gsv__WriteFile", input).await;
            let result = json!({"path": path, "size": content.len(), "written": true});
            assert_eq!(answer, Ok(json!({"ok": true, "result": result})));
        }
        assert_eq!(bench.object("agents/a/notes/ü.md").await.as_deref(), Some("zwei ü"));
        assert_eq!(bench.object("agents/a/skills/x/SKILL.md").await.as_deref(), Some("mine"));
        assert_eq!(bench.object("skills/x/SKILL.md").await.as_deref(), Some("global"));
    }

    #[tokio::test]
    async fn every_written_file_can_be_read() {
        let bench = Bench::new();
        let write = |size: usize| {
            let input = json!({"path": "big", "content": "a".repeat(size)});
            bench.call_as(bench.agent_call("a"), "gsv__WriteFile", input)
        };
        write(11 << 20).await.unwrap();
        let read = bench.call_as(bench.agent_call("a"), "gsv__ReadFile", json!({"path": "big"})).await;
        assert_eq!(read.unwrap()["result"]["size"], 11 << 20);
        let error = write((32 << 20) + 1).await.unwrap_err();
        assert!(error["error"].as_str().unwrap().contains("gsv__Transfer"), "{error}");
    }

    #[tokio::test]
    async fn invalid_paths_are_rejected_and_nothing_is_written() {
        let bench = Bench::new();
        bench.put_object("agents/main/dir/file", "x").await;
        for path in ["", "/", "dir/", "../x", "/abs", "a//b", "a\\b", "a\u{0}b", "dir", "dir/file/below"] {
            let error =
                bench.call("gsv__WriteFile", json!({"path": path, "content": "y"})).await.unwrap_err();
            assert_eq!(error["ok"], false, "{path:?}: {error}");
        }
        bench.put_object("skills/sum/SKILL.md", "for all").await;
        let input = json!({"path": "skills/sum", "content": "y"});
        let error = bench.call("gsv__WriteFile", input).await.unwrap_err();
        assert!(
            error["error"].as_str().unwrap().contains("not a file but a directory: skills/sum"),
            "{error}"
        );
        assert_eq!(bench.object_keys().await, ["agents/main/dir/file", "skills/sum/SKILL.md"]);
    }

    #[test]
    fn content_types_follow_the_seed() {
        for (path, expected) in [
            ("a.md", "text/markdown"),
            ("a.json", "application/json"),
            ("a.yaml", "text/yaml"),
            ("a.yml", "text/yaml"),
            ("a.html", "text/plain"),
            ("a", "text/plain"),
        ] {
            assert_eq!(super::content_type(path), expected, "{path}");
        }
    }
}
