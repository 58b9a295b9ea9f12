//! `read_file` returns a whole text file.

use std::sync::Arc;

use gantry_files::{FileError, text};
use gantry_tool::{Capability, Label, Text, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;

use super::paths::absolute;
use crate::asked;
use crate::blocking::blocking;
use crate::machine::{FileAccess, FileScopes, file_error};
use crate::workers::read_in_worker;
use crate::{Ctx, Machine};

const MAX_BYTES: u64 = 10 * 1024 * 1024;

/// Read a whole text file of at most 10 MiB. Text is UTF-8, or UTF-16 with a byte-order mark; the
/// mark is removed. Binary files are refused with their type.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Absolute path of the file. Links are followed.
    path: String,
}

pub(super) const NAME: &str = "read_file";

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    Tool::new(NAME, Toolset::Assistant, machine, run)
        .read_only()
        .capabilities(&[Capability::FilesystemRead])
        .labels(&[Label::Private])
        .reads_path("path", machine.free_paths())
        .asks_as(asked::file_read)
        .collects()
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    if let Some(read) = read_in_worker(&ctx, input.path.clone()).await {
        return read.map(Text);
    }
    blocking(&ctx, move |ctx, _| {
        read_whole_file(ctx.state.scopes(), &ctx.state.file_access(&ctx.call), &input.path).map(Text)
    })
    .await
}

/// The work of the tool, in this process or in a worker.
pub(crate) fn read_whole_file(
    scopes: &FileScopes,
    access: &FileAccess,
    path: &str,
) -> Result<String, ToolError> {
    let path = absolute(&access.workspace, path)?;
    let file = scopes.free(access)?.open(path).map_err(file_error)?;
    let bytes = file.read_all(MAX_BYTES).map_err(|err| match err {
        FileError::TooLarge { .. } => {
            file_error(err).with_hint("use Read with offset and limit to read it in parts")
        }
        other => file_error(other),
    })?;
    let decoded = text::decode(&bytes)
        .map_err(|err| file_error(FileError::Binary { path: path.into(), mime: err.mime }))?;
    Ok(decoded.text.into_owned())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests inspect the file system directly")]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::{Value, json};

    use super::MAX_BYTES;
    use crate::testing::Bench;

    async fn read(bench: &Bench, path: impl AsRef<std::path::Path>) -> Result<Value, Value> {
        bench.call("read_file", json!({"path": path.as_ref()})).await
    }

    #[tokio::test]
    async fn text_is_returned_byte_for_byte() {
        for bench in Bench::without_and_with_workers() {
            for text in ["", "a", "one\r\ntwo\n\n", "größe €\u{1F600}\0end", "$1 `x` \"q\"\n"] {
                let path = bench.write("dir/file", text);
                assert_eq!(read(&bench, path).await, Ok(json!(text)));
            }
        }
    }

    #[tokio::test]
    async fn text_with_a_byte_order_mark_is_decoded_without_it() {
        for bench in Bench::without_and_with_workers() {
            let little = bench.write("little", b"\xff\xfeh\0\xe9\0\n\0");
            let big = bench.write("big", b"\xfe\xff\0h\0\xe9\0\n");
            let marked = bench.write("marked", "\u{feff}hé\n");
            for path in [little, big, marked] {
                assert_eq!(read(&bench, &path).await, Ok(json!("hé\n")), "{path:?}");
            }
        }
    }

    #[tokio::test]
    async fn binary_files_are_refused_with_their_type() {
        for bench in Bench::without_and_with_workers() {
            let png = bench.write("a.png", b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\xff");
            let latin = bench.write("latin", b"gr\xf6sse");
            assert_eq!(
                read(&bench, &png).await,
                Err(json!(format!("binary file (image/png): {}", png.display())))
            );
            let unknown = format!("binary file (application/octet-stream): {}", latin.display());
            assert_eq!(read(&bench, &latin).await, Err(json!(unknown)));
        }
    }

    #[tokio::test]
    async fn relative_path_is_rejected_with_the_absolute_one() {
        for bench in Bench::without_and_with_workers() {
            let path = bench.write("a.txt", "a");
            let in_workspace = format!("path must be absolute: \"a.txt\" (did you mean {}?)", path.display());
            assert_eq!(read(&bench, "a.txt").await, Err(json!(in_workspace)));
            for path in ["./a.txt", "../a", "~/a", ""] {
                let error = read(&bench, path).await.unwrap_err();
                assert!(error.as_str().unwrap().starts_with("path must be absolute: "), "{error}");
            }
        }
    }

    #[tokio::test]
    async fn file_over_ten_mebibytes_is_rejected_with_a_hint() {
        for bench in Bench::without_and_with_workers() {
            let path = bench.write("large", "x".repeat(MAX_BYTES as usize));
            assert_eq!(read(&bench, &path).await.unwrap().as_str().unwrap().len(), 10_485_760);
            bench.write("large", "x".repeat(MAX_BYTES as usize + 1));
            let expected = format!(
                "file is too large: {} has 10485761 bytes, at most 10485760 (use Read with offset and limit to read it in parts)",
                path.display()
            );
            assert_eq!(read(&bench, &path).await, Err(json!(expected)));
        }
    }

    #[tokio::test]
    async fn missing_files_and_directories_are_errors_with_the_path() {
        for bench in Bench::without_and_with_workers() {
            let root = bench.workspace();
            let missing = root.join("missing");
            let expected = format!("no such file or directory: {}", missing.display());
            assert_eq!(read(&bench, &missing).await, Err(json!(expected)));
            let expected = format!(
                "not a regular file but a directory: {} (list the directory instead)",
                root.display()
            );
            assert_eq!(read(&bench, &root).await, Err(json!(expected)));
            let error = bench.call("read_file", json!({"path": "/x", "file": 1})).await.unwrap_err();
            assert_eq!(error["error"]["code"], "invalid_input");
        }
    }

    #[tokio::test]
    async fn data_directory_is_closed_to_everyone() {
        for bench in Bench::without_and_with_workers() {
            std::fs::write(bench.data().join("token"), "secret").unwrap();
            symlink(bench.data(), bench.workspace().join("link")).unwrap();
            for path in [
                bench.data().join("token"),
                bench.workspace().join("link/token"),
                bench.workspace().join("../data/token"),
                format!("/proc/self/root{}", bench.data().join("token").display()).into(),
            ] {
                let error = read(&bench, &path).await.unwrap_err();
                assert_eq!(error["error"]["code"], "denied", "{path:?}: {error}");
            }
        }
    }

    #[tokio::test]
    async fn agents_need_approval_for_sensitive_files_also_through_a_link() {
        for bench in Bench::without_and_with_workers() {
            let key = bench.write(".ssh/id_ed25519", "key");
            symlink(&key, bench.workspace().join("notes.txt")).unwrap();
            for path in [key.clone(), bench.workspace().join("notes.txt")] {
                let call = bench.agent_call("a");
                let error = bench.call_as(call, "read_file", json!({"path": path})).await.unwrap_err();
                assert_eq!(error["error"]["code"], "approval_needed", "{path:?}");
            }
            assert_eq!(read(&bench, &key).await, Ok(json!("key")));
        }
    }
}
