//! `gsv__DeleteFile` deletes a file of the agent's workspace.

use std::sync::Arc;

use gantry_protocol::ChangeKind;
use gantry_store::Depth;
use gantry_tool::{Effect, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::asked;

use super::workspace::WorkspacePath;
use super::{Ctx, Done, Native, done, object_error};

/// Delete a file of your workspace permanently. Shared skills cannot be deleted, only your own copy
/// of one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Path of the file, relative to the workspace root.
    path: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Output {
    /// The path as given.
    path: String,
    /// Always true.
    deleted: bool,
}

pub(super) const NAME: &str = "gsv__DeleteFile";

/// The part of the input that a question shows.
#[derive(Debug, Deserialize)]
struct Asked {
    path: String,
}

pub(super) fn tool(native: &Arc<Native>) -> Tool {
    Tool::new(NAME, Toolset::Native, native, run)
        .effects(&[Effect::WritesFiles])
        .asks_as(|_, input: Asked| {
            std::future::ready(asked::stored_change(&input.path, ChangeKind::Delete, String::new()))
        })
        .works_without_machine()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Done<Output>, ToolError> {
    let objects = ctx.state.objects();
    let path = WorkspacePath::file(&ctx.call, &input.path)?;
    let shown = path.shown();
    if objects.delete(&path.key()).await.map_err(object_error)? {
        return Ok(done(Output { path: shown.to_owned(), deleted: true }));
    }
    if path.find(objects).await?.is_some() {
        return Err(ToolError::failed(format!(
            "{shown} is a skill that all agents share; you have no copy of your own to delete"
        )));
    }
    let below = objects.list(&format!("{}/", path.key()), Depth::One).await.map_err(object_error)?;
    if !below.is_empty() {
        return Err(ToolError::failed(format!(
            "cannot delete {shown}: it is a directory; delete its files one by one"
        )));
    }
    Err(ToolError::failed(format!("no such file in the workspace: {shown}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::Bench;

    #[tokio::test]
    async fn only_own_files_are_deleted() {
        let bench = Bench::new();
        for key in
            ["agents/a/dir/f", "agents/a/skills/x/S.md", "skills/x/S.md", "skills/y/S.md", "agents/b/f"]
        {
            bench.put_object(key, "text").await;
        }
        let delete = |path: &'static str| {
            bench.call_as(bench.agent_call("a"), "gsv__DeleteFile", json!({"path": path}))
        };
        for (path, error) in [
            ("f", "no such file in the workspace: f"),
            ("dir", "cannot delete dir: it is a directory; delete its files one by one"),
            (
                "skills/y/S.md",
                "skills/y/S.md is a skill that all agents share; you have no copy of your own to delete",
            ),
        ] {
            assert_eq!(delete(path).await, Err(json!({"ok": false, "error": error})));
        }
        for path in ["/", "dir/", "../b/f"] {
            assert_eq!(delete(path).await.unwrap_err()["ok"], false, "{path}");
        }
        for path in ["dir/f", "skills/x/S.md"] {
            assert_eq!(
                delete(path).await,
                Ok(json!({"ok": true, "result": {"path": path, "deleted": true}}))
            );
        }
        let again = delete("skills/x/S.md").await.unwrap_err();
        assert!(again["error"].as_str().unwrap().contains("all agents share"), "{again}");
        assert_eq!(bench.object_keys().await, ["agents/b/f", "skills/x/S.md", "skills/y/S.md"]);
    }
}
