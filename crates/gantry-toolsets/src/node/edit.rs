//! `Edit` replaces exact text in a file.

use std::sync::Arc;

use gantry_files::UpdateOptions;
use gantry_files::edit::{EditError, Occurrences, edit};
use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, Capability, Label, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::paths;
use crate::asked::{self, Shown};
use crate::blocking::blocking;
use crate::machine::file_error;
use crate::{Ctx, Machine};

/// Replace exact text in a file, all or nothing. Encoding and line endings are kept.
///
/// `oldString` must not be empty; LF in it matches CRLF in the file. The encoding is UTF-8, or
/// UTF-16 with a byte-order mark. Files may have up to 1 GB. An edit refused for a stale `tag`
/// returns the current tag.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Input {
    /// Absolute, or relative to the workspace.
    path: String,
    /// Text to find, white space included, without the line numbers of `Read`. Must occur exactly
    /// once unless `replaceAll` is set.
    old_string: String,
    /// Replacement. Must differ from `oldString`.
    new_string: String,
    /// Replace every occurrence.
    #[serde(default)]
    replace_all: bool,
    /// The `tag` of an earlier result: refuses the edit if the file has changed since.
    tag: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Output {
    /// The real absolute path, links followed.
    path: String,
    /// The number of replacements.
    replacements: usize,
    /// Identifies the new content of the file.
    tag: String,
}

pub(super) const NAME: &str = "Edit";

/// The part of the input that a question shows.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    path: String,
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: bool,
}

async fn described(machine: Arc<Machine>, asked: AskedCall, input: Asked) -> Option<AskedAction> {
    let Asked { path, old_string: old, new_string: new, replace_all } = input;
    let occurrences = if replace_all { Occurrences::All } else { Occurrences::One };
    let shown = Shown::Passage { old: old.clone(), new: new.clone() };
    let edited = move |present: &[u8]| asked::joined(&edit(present, &old, &new, occurrences).ok()?.parts);
    asked::file_change(&machine, asked, path, shown, Machine::free, edited).await
}

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    let own = machine.clone();
    Tool::new(NAME, Toolset::Node, machine, run)
        .capabilities(&[Capability::FilesystemEdit])
        // The error of a failed edit shows passages of the file.
        .labels(&[Label::Private])
        .writes_path("path", machine.free_paths())
        .asks_as(move |asked, input| described(own.clone(), asked, input))
        .offered_to_clients()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Output, ToolError> {
    blocking(&ctx, move |ctx, _| {
        let scope = ctx.state.free(&ctx.call)?;
        let occurrences = if input.replace_all { Occurrences::All } else { Occurrences::One };
        let options = UpdateOptions { expected_tag: input.tag.as_deref(), ..UpdateOptions::default() };
        let update = scope.update(&input.path, options).map_err(file_error)?;
        let edited = edit(update.bytes(), &input.old_string, &input.new_string, occurrences);
        let edited = edited.map_err(|err| edit_error(&err, &input.path))?;
        let replacements = edited.replacements;
        let written = update.write(&edited.parts).map_err(file_error)?;
        Ok(Output { path: paths::text(&written.path), replacements, tag: written.tag })
    })
    .await
}

fn edit_error(err: &EditError, path: &str) -> ToolError {
    let error = match err {
        EditError::EmptyOld => ToolError::input("oldString must not be empty"),
        EditError::Same => ToolError::input("oldString and newString must differ"),
        EditError::NotFound { .. } | EditError::Ambiguous { .. } => {
            let cause = err.to_string().replacen("the passage", "oldString", 1);
            ToolError::failed(format!("cannot edit {path}: {cause}"))
        }
        EditError::NotText(_) => ToolError::failed(format!("cannot edit {path}: {err}")),
    };
    match err.hint() {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests prepare their own files")]
mod tests {
    use crate::testing::Bench;
    use gantry_files::tag;
    use serde_json::{Value, json};

    fn replacing(old: &str, new: &str) -> Value {
        json!({"path": "f", "oldString": old, "newString": new})
    }

    /// Edits a file with this content. Returns its new content, or the error text.
    async fn edited(content: &str, input: Value) -> Result<String, String> {
        let bench = Bench::new();
        let path = bench.write("f", content);
        match bench.call("Edit", input).await {
            Ok(done) => {
                let now = bench.read("f");
                assert_eq!(
                    (&done["path"], &done["tag"]),
                    (&json!(path), &json!(tag::of_bytes(now.as_bytes())))
                );
                Ok(format!("{} {now}", done["replacements"]))
            }
            Err(error) => {
                assert_eq!(bench.read("f"), content, "a failed edit must change nothing");
                Err(error["error"].as_str().map_or_else(|| error.to_string(), str::to_owned))
            }
        }
    }

    #[tokio::test]
    async fn one_or_all_occurrences_are_replaced() {
        assert_eq!(edited("a b c", replacing("b", "x")).await, Ok("1 a x c".into()));
        assert_eq!(edited("a b c", replacing(" b", "")).await, Ok("1 a c".into()));
        let mut all = replacing("a", "aa");
        all["replaceAll"] = json!(true);
        assert_eq!(edited("a a a", all.clone()).await, Ok("3 aa aa aa".into()));
        assert_eq!(edited("a", all).await, Ok("1 aa".into()));
    }

    #[tokio::test]
    async fn several_occurrences_are_rejected_with_count_and_hint() {
        let error = edited("a\na\nb a", replacing("a", "x")).await.unwrap_err();
        assert_eq!(
            error,
            "cannot edit f: oldString was found 3 times (lines 1, 2, 3) (add surrounding lines to make it unique, or pass replaceAll: true)"
        );
    }

    #[tokio::test]
    async fn missing_passage_error_shows_the_closest_passages() {
        let content = "fn main() {\n    println!(\"hello\");\n}\n";
        let error = edited(content, replacing("    println!(\"hallo\");", "x")).await.unwrap_err();
        assert_eq!(
            error,
            "cannot edit f: oldString was not found; closest passages:\n2\t    println!(\"hello\");\n(read the file and copy the passage exactly, white space included)"
        );
    }

    #[tokio::test]
    async fn empty_and_equal_strings_are_rejected() {
        assert_eq!(edited("a", replacing("", "x")).await, Err("oldString must not be empty".into()));
        assert_eq!(edited("a", replacing("a", "a")).await, Err("oldString and newString must differ".into()));
    }

    #[tokio::test]
    async fn line_endings_are_kept() {
        assert_eq!(edited("a\r\nb\r\nc", replacing("a\nb", "x\ny")).await, Ok("1 x\r\ny\r\nc".into()));
    }

    #[tokio::test]
    async fn utf16_file_keeps_its_encoding() {
        let bench = Bench::new();
        let utf16 = |text: &str| -> Vec<u8> {
            [0xFEFF].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
        };
        let path = bench.write("f", utf16("one\ntwo\n"));
        bench.call("Edit", replacing("two", "zwei")).await.unwrap();
        assert_eq!(std::fs::read(path).unwrap(), utf16("one\nzwei\n"));
    }

    #[tokio::test]
    async fn stale_tag_is_rejected_with_the_current_one() {
        let mut input = replacing("a", "b");
        input["tag"] = json!("0123");
        let error = edited("a", input.clone()).await.unwrap_err();
        assert!(error.contains(&format!("its tag is now {}", tag::of_bytes(b"a"))), "{error}");
        input["tag"] = json!(tag::of_bytes(b"a"));
        assert_eq!(edited("a", input).await, Ok("1 b".into()));
    }

    #[tokio::test]
    async fn missing_files_directories_binaries_and_closed_paths_are_errors() {
        let bench = Bench::new();
        bench.write("bin", b"\xff\x00\x01");
        let edit = |path: Value| {
            let mut input = replacing("a", "b");
            input["path"] = path;
            bench.call("Edit", input)
        };
        for (path, expected) in [
            ("missing", "no such file or directory: missing"),
            (".", "not a regular file but a directory: . (list the directory instead)"),
            ("bin", "cannot edit bin: binary content (application/octet-stream), not text"),
        ] {
            assert_eq!(edit(json!(path)).await, Err(json!({"error": expected})));
        }
        assert!(!bench.workspace().join("missing").exists());
        let error = edit(json!(bench.data().join("x"))).await.unwrap_err();
        assert_eq!(error["error"]["code"], "denied");
    }
}
