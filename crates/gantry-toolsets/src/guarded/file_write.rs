//! `tool::file_write` creates or replaces a text file of the workspace.

use std::sync::Arc;

use gantry_files::WriteOptions;
use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, Capability, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::asked::{self, Shown};
use crate::blocking::blocking;
use crate::machine::file_error;
use crate::{Ctx, Machine};

/// Write a whole text file in the workspace. Missing directories are created. An existing file is
/// replaced atomically: readers see the old content or the new one. Paths that lead out of the
/// workspace, also through links, are refused. To change a part of a file, or to keep its encoding,
/// use `tool::apply_patch`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Path of the file, relative to the workspace root.
    path: String,
    /// The whole new content, written exactly as given, as UTF-8, whatever the old encoding.
    content: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Output {
    /// Always true.
    written: bool,
    /// The file's real absolute path.
    path: String,
    /// The number of bytes written.
    size: u64,
}

pub(super) const NAME: &str = "tool::file_write";

/// The part of the input that a question shows.
#[derive(Debug, Deserialize)]
struct Asked {
    path: String,
    content: String,
}

async fn described(machine: Arc<Machine>, asked: AskedCall, input: Asked) -> Option<AskedAction> {
    let Asked { path, content } = input;
    let shown = Shown::Content(content.clone());
    asked::file_change(&machine, asked, path, shown, Machine::contained, |_| Some(content)).await
}

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    let own = machine.clone();
    Tool::new(NAME, Toolset::Guarded, machine, run)
        .idempotent()
        .capabilities(&[Capability::FilesystemWrite])
        .writes_path("path", machine.contained_paths())
        .asks_as(move |asked, input| described(own.clone(), asked, input))
}

async fn run(ctx: Ctx, input: Input) -> Result<Output, ToolError> {
    blocking(&ctx, move |ctx, _| {
        let scope = ctx.state.contained(&ctx.call)?;
        let options = WriteOptions { make_parents: true, ..WriteOptions::default() };
        let written = scope.replace(&input.path, &[input.content.as_bytes()], options).map_err(file_error)?;
        Ok(Output { written: true, path: written.path.to_string_lossy().into_owned(), size: written.bytes })
    })
    .await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::Bench;

    #[tokio::test]
    async fn files_and_parents_are_created_and_files_replaced() {
        let bench = Bench::new();
        let path = bench.workspace().join("output/deep/result.json");
        for content in ["{\n  \"status\": \"success\"\n}", "", "zwölf\r\n"] {
            let reply = bench
                .call("tool::file_write", json!({"path": "output/deep/result.json", "content": content}))
                .await;
            assert_eq!(reply, Ok(json!({"written": true, "path": path, "size": content.len()})));
            assert_eq!(bench.read(&path), content);
        }
    }

    #[tokio::test]
    async fn errors_state_the_cause() {
        let bench = Bench::new();
        bench.write("f", "kept");
        for (path, error) in [
            (".", "not a regular file but a directory: . (list the directory instead)"),
            ("new/", "not a regular file but a directory: new/ (list the directory instead)"),
            ("f/x", "not a directory: f/x"),
            ("../x", "path is outside the workspace: ../x (use a path inside the workspace root)"),
        ] {
            let reply = bench.call("tool::file_write", json!({"path": path, "content": "x"})).await;
            assert_eq!(reply, Err(json!({"error": error})));
        }
        assert_eq!(bench.read("f"), "kept");
        let invalid = bench.call("tool::file_write", json!({"path": "f"})).await.unwrap_err();
        assert_eq!(invalid["error"]["code"], "invalid_input");
    }
}
