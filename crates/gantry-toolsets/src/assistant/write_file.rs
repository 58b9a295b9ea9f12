//! `write_file` creates a file or replaces its whole content, atomically.

use std::sync::Arc;

use gantry_files::WriteOptions;
use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, Capability, Text, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;

use super::paths::absolute;
use crate::asked::{self, Shown};
use crate::blocking::blocking;
use crate::machine::{FileAccess, FileScopes, file_error};
use crate::workers::write_in_worker;
use crate::{Ctx, Machine};

/// Write a whole text file. An existing file is replaced atomically and keeps its mode and owner.
/// Missing parent directories are created. A symbolic link stays, and its target is replaced.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Absolute path of the file.
    path: String,
    /// The whole new content, written exactly as given, as UTF-8, whatever the old encoding. No
    /// newline is added.
    content: String,
}

pub(super) const NAME: &str = "write_file";

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
    Tool::new(NAME, Toolset::Assistant, machine, run)
        .idempotent()
        .capabilities(&[Capability::FilesystemWrite])
        .writes_path("path", machine.free_paths())
        .asks_as(move |asked, input| described(own.clone(), asked, input))
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    let Input { path, content } = input;
    let content = match write_in_worker(&ctx, &path, content).await {
        Ok(written) => return written.map(Text),
        Err(content) => content,
    };
    blocking(&ctx, move |ctx, _| {
        let access = ctx.state.file_access(&ctx.call);
        write_whole_file(ctx.state.scopes(), &access, &path, content.as_bytes()).map(Text)
    })
    .await
}

/// The work of the tool, in this process or in a worker.
pub(crate) fn write_whole_file(
    scopes: &FileScopes,
    access: &FileAccess,
    path: &str,
    content: &[u8],
) -> Result<String, ToolError> {
    let path = absolute(&access.workspace, path)?;
    let options = WriteOptions { make_parents: true, only_new: false };
    let written = scopes.free(access)?.replace(path, &[content], options).map_err(file_error)?;
    let count = written.bytes;
    let plural = if count == 1 { "" } else { "s" };
    Ok(format!("Wrote {count} byte{plural} to {}", written.path.display()))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests inspect the file system directly")]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use serde_json::{Value, json};

    use crate::testing::Bench;

    async fn write(bench: &Bench, path: impl AsRef<Path>, content: &str) -> Result<Value, Value> {
        bench.call("write_file", json!({"path": path.as_ref(), "content": content})).await
    }

    #[tokio::test]
    async fn content_is_written_and_its_size_reported() {
        for bench in Bench::without_and_with_workers() {
            let path = bench.workspace().join("new/deep/a.txt");
            assert_eq!(
                write(&bench, &path, "hello wörld").await,
                Ok(json!(format!("Wrote 12 bytes to {}", path.display())))
            );
            assert_eq!(bench.read("new/deep/a.txt"), "hello wörld");
            assert_eq!(
                write(&bench, &path, "x").await,
                Ok(json!(format!("Wrote 1 byte to {}", path.display())))
            );
            assert_eq!(bench.read("new/deep/a.txt"), "x");
            assert_eq!(
                write(&bench, &path, "").await,
                Ok(json!(format!("Wrote 0 bytes to {}", path.display())))
            );
            assert_eq!(bench.read("new/deep/a.txt"), "");
        }
    }

    #[tokio::test]
    async fn link_target_is_replaced_and_keeps_its_mode() {
        for bench in Bench::without_and_with_workers() {
            let target = bench.write("real/target.sh", "old");
            std::fs::set_permissions(&target, PermissionsExt::from_mode(0o750)).unwrap();
            let link = bench.workspace().join("link");
            symlink("real/target.sh", &link).unwrap();
            assert_eq!(
                write(&bench, &link, "new").await,
                Ok(json!(format!("Wrote 3 bytes to {}", target.display())))
            );
            assert_eq!(bench.read("real/target.sh"), "new");
            assert!(link.is_symlink());
            assert_eq!(target.metadata().unwrap().permissions().mode() & 0o7777, 0o750);
        }
    }

    #[tokio::test]
    async fn relative_paths_and_directories_are_rejected() {
        for bench in Bench::without_and_with_workers() {
            let in_workspace = bench.workspace().join("new/a");
            let expected =
                format!("path must be absolute: \"new/a\" (did you mean {}?)", in_workspace.display());
            assert_eq!(write(&bench, "new/a", "x").await, Err(json!(expected)));
            let root = bench.workspace();
            let expected = format!(
                "not a regular file but a directory: {} (list the directory instead)",
                root.display()
            );
            assert_eq!(write(&bench, &root, "x").await, Err(json!(expected)));
            assert!(write(&bench, root.join("dir/"), "x").await.is_err());
            bench.write("file", "");
            let below = root.join("file/below");
            let expected = format!("not a directory: {}", below.display());
            assert_eq!(write(&bench, &below, "x").await, Err(json!(expected)));
            assert_eq!(std::fs::read_dir(root).unwrap().count(), 1);
        }
    }

    #[tokio::test]
    async fn data_directory_is_closed_to_everyone() {
        for bench in Bench::without_and_with_workers() {
            symlink(bench.data(), bench.workspace().join("link")).unwrap();
            let paths = [
                bench.data().join("new/x"),
                bench.workspace().join("link/x"),
                bench.workspace().join("../data/x"),
            ];
            for path in paths {
                let error = write(&bench, &path, "x").await.unwrap_err();
                assert_eq!(error["error"]["code"], "denied", "{path:?}: {error}");
            }
            assert!(!bench.data().join("new").exists() && !bench.data().join("x").exists());
        }
    }

    #[tokio::test]
    async fn agents_need_approval_for_start_files_and_supervised_agents_for_any_file() {
        for bench in Bench::without_and_with_workers() {
            let input = json!({"path": bench.workspace().join(".bashrc"), "content": "x"});
            let error = bench.call_as(bench.agent_call("a"), "write_file", input).await.unwrap_err();
            assert_eq!(error["error"]["code"], "approval_needed");
            let mut supervised = bench.agent_call("a");
            supervised.autonomy = gantry_tool::Autonomy::Supervised;
            let input = json!({"path": bench.workspace().join("plain"), "content": "x"});
            let error = bench.call_as(supervised, "write_file", input.clone()).await.unwrap_err();
            assert_eq!(error["error"]["code"], "approval_needed");
            assert_eq!(std::fs::read_dir(bench.workspace()).unwrap().count(), 0);
            bench.call_as(bench.agent_call("a"), "write_file", input).await.unwrap();
        }
    }
}
