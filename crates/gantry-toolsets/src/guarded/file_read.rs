//! `tool::file_read` returns a text file of the workspace, whole or the beginning of it.

use std::sync::Arc;

use gantry_files::prefix::{Cut, prefix};
use gantry_tool::{Capability, Label, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::asked;
use crate::blocking::blocking;
use crate::machine::file_error;
use crate::{Ctx, Machine};

/// The default limit of one reply.
const DEFAULT_MAX_BYTES: u64 = 10 * 1024 * 1024;

/// Read a text file in the workspace, whole or its beginning. Text is UTF-8, or UTF-16 with a
/// byte-order mark. Binary files and paths that lead out of the workspace, also through links, are
/// refused.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Input {
    /// Path of the file, relative to the workspace root.
    path: String,
    /// Read at most this many bytes from the beginning of the file (default 10485760, at most
    /// 268435456). A character is never split: the content may be up to three bytes shorter.
    max_bytes: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Output {
    /// The file's text, or its beginning.
    content: String,
    /// The file's real absolute path.
    path: String,
    /// The whole file's size in bytes.
    size: u64,
    /// `content` is not the whole file.
    truncated: bool,
}

pub(super) const NAME: &str = "tool::file_read";

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    Tool::new(NAME, Toolset::Guarded, machine, run)
        .read_only()
        .capabilities(&[Capability::FilesystemRead])
        .labels(&[Label::Private])
        .reads_path("path", machine.contained_paths())
        .asks_as(asked::file_read)
}

async fn run(ctx: Ctx, input: Input) -> Result<Output, ToolError> {
    blocking(&ctx, move |ctx, _| {
        let file = ctx.state.contained(&ctx.call)?.open(&input.path).map_err(file_error)?;
        // Masking comes before truncation: the gate would not recognize the first part of a secret.
        let masker = ctx.state.masker();
        let cut = Cut {
            look_ahead: masker.reach() as u64,
            place: &|text, end| masker.cut_before_secret(text.as_bytes(), end),
        };
        let start = prefix(&file, input.max_bytes.unwrap_or(DEFAULT_MAX_BYTES), &cut).map_err(file_error)?;
        Ok(Output {
            content: start.text,
            path: file.path.to_string_lossy().into_owned(),
            size: start.size,
            truncated: start.truncated,
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::Bench;

    #[tokio::test]
    async fn whole_file_or_its_beginning_is_read() {
        let bench = Bench::new();
        let text = "aé€😀z";
        let path = bench.write("src/config.ts", text);
        for (max_bytes, content) in [
            (None, text),
            (Some(0), ""),
            (Some(1), "a"),
            (Some(2), "a"),
            (Some(3), "aé"),
            (Some(5), "aé"),
            (Some(6), "aé€"),
            (Some(9), "aé€"),
            (Some(10), "aé€😀"),
            (Some(11), text),
            (Some(10_000), text),
            (Some(u64::MAX), text),
        ] {
            let mut input = json!({"path": "src/config.ts"});
            if let Some(max_bytes) = max_bytes {
                input["maxBytes"] = json!(max_bytes);
            }
            let truncated = content.len() < text.len();
            let expected = json!({"content": content, "path": path, "size": 11, "truncated": truncated});
            assert_eq!(bench.call("tool::file_read", input.clone()).await, Ok(expected), "{input}");
        }
        let spelled = bench.call("tool__file_read", json!({"path": path, "maxBytes": null})).await.unwrap();
        assert_eq!(spelled["content"], text);
    }

    #[tokio::test]
    async fn truncation_shows_no_part_of_a_secret() {
        let secret = "hunter2-hunter2-hunter2";
        let bench =
            Bench::with(|parts| parts.settings.web.masker = gantry_tool::Masker::new([secret.to_owned()]));
        let text = format!("key = {secret}\nmore\n");
        for (name, text) in [("plain", text.clone()), ("marked", format!("\u{feff}{text}"))] {
            bench.write(name, &text);
            for max_bytes in 0..text.len() {
                let input = json!({"path": name, "maxBytes": max_bytes});
                let reply = bench.call("tool::file_read", input).await.unwrap();
                let content = reply["content"].as_str().unwrap();
                assert!(!content.contains("hunter") && reply["truncated"] == true, "{max_bytes}: {content}");
            }
        }
    }

    #[tokio::test]
    async fn default_limit_is_ten_mebibytes() {
        let bench = Bench::new();
        const LIMIT: usize = 10 * 1024 * 1024;
        for (size, max_bytes, read) in
            [(LIMIT, None, LIMIT), (LIMIT + 1, None, LIMIT), (LIMIT + 1, Some(LIMIT + 1), LIMIT + 1)]
        {
            bench.write("big", "x".repeat(size));
            let reply =
                bench.call("tool::file_read", json!({"path": "big", "maxBytes": max_bytes})).await.unwrap();
            assert_eq!(reply["content"].as_str().unwrap().len(), read);
            assert_eq!((&reply["truncated"], &reply["size"]), (&json!(read < size), &json!(size)));
        }
    }

    #[tokio::test]
    async fn errors_state_the_cause() {
        let bench = Bench::new();
        let binary = bench.write("a.png", b"\x89PNG\r\n\x1a\n\0\0");
        for (path, error) in [
            ("missing", "no such file or directory: missing".to_owned()),
            (".", "not a regular file but a directory: . (list the directory instead)".to_owned()),
            ("", "path is empty".to_owned()),
            ("../x", "path is outside the workspace: ../x (use a path inside the workspace root)".to_owned()),
            (
                "/etc/passwd",
                "path is outside the workspace: /etc/passwd (use a path inside the workspace root)"
                    .to_owned(),
            ),
            ("a.png", format!("binary file (image/png): {}", binary.display())),
        ] {
            assert_eq!(
                bench.call("tool::file_read", json!({"path": path})).await,
                Err(json!({"error": error}))
            );
        }
        for input in [json!({}), json!({"path": "a", "maxBytes": -1}), json!({"path": "a", "max_bytes": 1})] {
            let invalid = bench.call("tool::file_read", input).await.unwrap_err();
            assert_eq!(invalid["error"]["code"], "invalid_input");
        }
    }
}
