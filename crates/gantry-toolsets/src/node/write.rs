//! `Write` creates or replaces a whole file atomically.

use std::sync::Arc;

use gantry_files::WriteOptions;
use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, Capability, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::paths;
use crate::asked::{self, Shown};
use crate::blocking::blocking;
use crate::machine::file_error;
use crate::{Ctx, Machine};

/// Create or replace a whole file as UTF-8, with parent directories. To change part of a file, use
/// `Edit`.
///
/// Readers see the old content or the new, never a part. The content is written as given, whatever
/// the old encoding; `Edit` keeps the encoding.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Absolute, or relative to the workspace.
    path: String,
    /// The whole new content.
    content: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Output {
    /// The real absolute path, links followed.
    path: String,
    /// The number of bytes written.
    bytes: u64,
    /// Identifies this content of the file; pass it to `Edit` to refuse the edit if the file has
    /// changed.
    tag: String,
}

pub(super) const NAME: &str = "Write";

/// The part of the input that a question shows.
#[derive(Debug, Deserialize)]
struct Asked {
    path: String,
    content: String,
}

async fn described(machine: Arc<Machine>, asked: AskedCall, input: Asked) -> Option<AskedAction> {
    let Asked { path, content } = input;
    let shown = Shown::Content(content.clone());
    asked::file_change(&machine, asked, path, shown, Machine::free, |_| Some(content)).await
}

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    let own = machine.clone();
    Tool::new(NAME, Toolset::Node, machine, run)
        .idempotent()
        .capabilities(&[Capability::FilesystemWrite])
        .writes_path("path", machine.free_paths())
        .asks_as(move |asked, input| described(own.clone(), asked, input))
        .offered_to_clients()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Output, ToolError> {
    blocking(&ctx, move |ctx, _| {
        let scope = ctx.state.free(&ctx.call)?;
        let options = WriteOptions { make_parents: true, only_new: false };
        let written = scope.replace(&input.path, &[input.content.as_bytes()], options).map_err(file_error)?;
        Ok(Output { path: paths::text(&written.path), bytes: written.bytes, tag: written.tag })
    })
    .await
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests prepare their own files")]
mod tests {
    use crate::testing::Bench;
    use gantry_files::tag;
    use serde_json::json;

    #[tokio::test]
    async fn file_and_parents_are_created_and_bytes_counted() {
        let bench = Bench::new();
        let path = bench.workspace().join("a/b/ü.txt");
        for content in ["héllo\n", "", "second"] {
            let written = bench.call("Write", json!({"path": "a/b/ü.txt", "content": content})).await;
            let tag = tag::of_bytes(content.as_bytes());
            assert_eq!(written, Ok(json!({"path": path, "bytes": content.len(), "tag": tag})));
            assert_eq!(bench.read("a/b/ü.txt"), content);
        }
        let absolute = bench.workspace().join("absolute");
        let written = bench.call("Write", json!({"path": absolute, "content": "x"})).await.unwrap();
        assert_eq!(written["path"], json!(absolute));
    }

    #[tokio::test]
    async fn link_is_followed_and_the_real_path_returned() {
        let bench = Bench::new();
        let target = bench.write("target", "old");
        std::os::unix::fs::symlink(&target, bench.workspace().join("link")).unwrap();
        let written = bench.call("Write", json!({"path": "link", "content": "new"})).await.unwrap();
        assert_eq!((&written["path"], bench.read("target").as_str()), (&json!(target), "new"));
    }

    #[tokio::test]
    async fn invalid_targets_are_errors() {
        let bench = Bench::new();
        bench.write("file", "");
        std::fs::create_dir(bench.workspace().join("dir")).unwrap();
        for (path, expected) in [
            ("", "path is empty"),
            ("dir", "not a regular file but a directory: dir (list the directory instead)"),
            ("new/", "not a regular file but a directory: new/ (list the directory instead)"),
            ("file/below", "not a directory: file/below"),
        ] {
            let error = bench.call("Write", json!({"path": path, "content": "x"})).await;
            assert_eq!(error, Err(json!({"error": expected})), "{path}");
        }
        assert!(!bench.workspace().join("new").exists());
    }

    #[tokio::test]
    async fn data_directory_is_denied_and_sensitive_paths_need_approval() {
        let bench = Bench::new();
        std::os::unix::fs::symlink(bench.data(), bench.workspace().join("door")).unwrap();
        for path in [bench.data().join("x"), bench.workspace().join("door/x")] {
            let error = bench.call("Write", json!({"path": path, "content": "x"})).await.unwrap_err();
            assert_eq!(error["error"]["code"], "denied", "{error}");
        }
        assert!(!bench.data().join("x").exists());
        let input = json!({"path": ".ssh/authorized_keys", "content": "x"});
        let error = bench.call_as(bench.agent_call("a"), "Write", input).await.unwrap_err();
        assert_eq!(error["error"]["code"], "approval_needed");
        assert!(!bench.workspace().join(".ssh").exists());
    }
}
