//! `gsv__EditFile` replaces exact text in a file of the agent's workspace.

use std::sync::Arc;

use gantry_files::edit::{EditError, Occurrences, edit};
use gantry_protocol::{AskedAction, ChangeKind};
use gantry_store::Object;
use gantry_tool::{AskedCall, Effect, Label, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::asked;

use super::workspace::{SkillSource, WorkspacePath};
use super::{Ctx, Done, MAX_FILE_BYTES, Native, done, reading_error, write_file};

/// Replace exact text in a file of your workspace, all or nothing. `oldString` must match exactly,
/// white space included; LF in it matches CRLF, and the file's line endings are kept. Editing a
/// shared skill creates your own copy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Input {
    /// Path of the file, relative to the workspace root.
    path: String,
    /// Exact text to find. Must not be empty. Unless `replaceAll` is true it must occur exactly
    /// once.
    old_string: String,
    /// The replacement. Must differ from `oldString`; may be empty.
    new_string: String,
    /// Replace every occurrence. Default false.
    #[serde(default)]
    replace_all: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The path as given.
    path: String,
    /// The number of replacements.
    replacements: usize,
    /// Always true.
    edited: bool,
    /// For skills: whose copy was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_source: Option<SkillSource>,
    /// For skills: the key that was read. The edit is always written to your own copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_path: Option<String>,
}

enum Unedited {
    Missing,
    Refused(EditError),
}

pub(super) const NAME: &str = "gsv__EditFile";

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

async fn described(native: Arc<Native>, asked: AskedCall, input: Asked) -> Option<AskedAction> {
    let Asked { path, old_string: old, new_string: new, replace_all } = input;
    let occurrences = if replace_all { Occurrences::All } else { Occurrences::One };
    let present = super::stored_text(&native, &asked, &path).await.flatten();
    let edited = present
        .as_ref()
        .and_then(|present| asked::joined(&edit(present.as_bytes(), &old, &new, occurrences).ok()?.parts));
    let text = match (present, edited) {
        (Some(present), Some(edited)) => asked::difference(&asked, &path, &present, &edited),
        _ => asked::difference(&asked, &path, &old, &new),
    };
    asked::stored_change(&path, ChangeKind::Change, text)
}

pub(super) fn tool(native: &Arc<Native>) -> Tool {
    let own = native.clone();
    // The error of a failed edit shows passages of the file.
    Tool::new(NAME, Toolset::Native, native, run)
        .effects(&[Effect::WritesFiles])
        .labels(&[Label::Private])
        .writes_object("path")
        .asks_as(move |asked, input| described(own.clone(), asked, input))
        .works_without_machine()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Done<Output>, ToolError> {
    let objects = ctx.state.objects();
    let path = WorkspacePath::written_file(&ctx.call, &input.path)?;
    let shared = match path.global_key() {
        Some(key) => objects.get(&key, MAX_FILE_BYTES).await.map_err(reading_error(&path))?,
        None => None,
    };
    let occurrences = if input.replace_all { Occurrences::All } else { Occurrences::One };
    let Input { old_string, new_string, .. } = input;
    let change = move |own: Option<Object>| {
        let (copy, read) = match (own, &shared) {
            (Some(own), _) => (SkillSource::Agent, own),
            (None, Some(shared)) => (SkillSource::Global, shared.clone()),
            (None, None) => return Err(Unedited::Missing),
        };
        let edited = edit(&read.bytes, &old_string, &new_string, occurrences).map_err(Unedited::Refused)?;
        Ok((edited.parts.concat(), (edited.replacements, copy, read.info.key.clone())))
    };
    let content_type = write_file::content_type(path.shown());
    let edited = objects
        .update(&path.key(), MAX_FILE_BYTES, content_type, change)
        .await
        .map_err(reading_error(&path))?;
    let (replacements, copy, key) = edited.map_err(|why| unedited(&why, &path))?;
    let skill = path.is_skill();
    Ok(done(Output {
        path: path.shown().to_owned(),
        replacements,
        edited: true,
        resolved_source: skill.then_some(copy),
        resolved_path: skill.then_some(key),
    }))
}

fn unedited(why: &Unedited, path: &WorkspacePath) -> ToolError {
    let path = path.shown();
    let err = match why {
        Unedited::Missing => return ToolError::failed(format!("no such file in the workspace: {path}")),
        Unedited::Refused(err) => err,
    };
    let error = match err {
        EditError::EmptyOld => ToolError::input("oldString must not be empty"),
        EditError::Same => ToolError::input("oldString and newString must differ"),
        EditError::NotFound { .. } | EditError::Ambiguous { .. } | EditError::NotText(_) => {
            let cause = err.to_string().replacen("the passage", "oldString", 1);
            ToolError::failed(format!("cannot edit {path}: {cause}"))
        }
    };
    match err.hint() {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::testing::Bench;

    async fn edit(bench: &Bench, path: &str, old: &str, new: &str, all: bool) -> Result<Value, String> {
        let input = json!({"path": path, "oldString": old, "newString": new, "replaceAll": all});
        let answer = bench.call_as(bench.agent_call("a"), "gsv__EditFile", input).await;
        answer.map(|mut answer| answer["result"].take()).map_err(|error| {
            assert_eq!(error["ok"], false, "{error}");
            error["error"].as_str().unwrap().to_owned()
        })
    }

    #[tokio::test]
    async fn edit_behaves_like_the_node_tool() {
        let bench = Bench::new();
        bench.put_object("agents/a/f.md", "one\r\ntwo\r\ntwo\r\n").await;
        let done = edit(&bench, "f.md", "one\ntwo", "1\n2", false).await;
        assert_eq!(done, Ok(json!({"path": "f.md", "replacements": 1, "edited": true})));
        assert_eq!(bench.object("agents/a/f.md").await.as_deref(), Some("1\r\n2\r\ntwo\r\n"));
        edit(&bench, "f.md", "2", "two", false).await.unwrap();
        for (old, new, expected) in [
            (
                "two",
                "x",
                "cannot edit f.md: oldString was found 2 times (lines 2, 3) (add surrounding lines to make it unique, or pass replaceAll: true)",
            ),
            ("", "x", "oldString must not be empty"),
            ("two", "two", "oldString and newString must differ"),
            (
                "twooo",
                "x",
                "cannot edit f.md: oldString was not found; closest passages:\n2\ttwo\n--\n3\ttwo\n(read the file and copy the passage exactly, white space included)",
            ),
        ] {
            assert_eq!(edit(&bench, "f.md", old, new, false).await, Err(expected.to_owned()));
        }
        assert_eq!(bench.object("agents/a/f.md").await.as_deref(), Some("1\r\ntwo\r\ntwo\r\n"));
        assert_eq!(edit(&bench, "f.md", "two", "2", true).await.unwrap()["replacements"], 2);
        let missing = edit(&bench, "none", "a", "b", false).await;
        assert_eq!(missing, Err("no such file in the workspace: none".to_owned()));
        assert!(edit(&bench, "f.md/", "a", "b", false).await.is_err());
    }

    #[tokio::test]
    async fn editing_a_shared_skill_creates_an_own_copy() {
        let bench = Bench::new();
        bench.put_object("skills/x/SKILL.md", "shared").await;
        let done = edit(&bench, "skills/x/SKILL.md", "shared", "mine", false).await.unwrap();
        let read = |key: &str, source: &str| json!({"path": "skills/x/SKILL.md", "replacements": 1, "edited": true, "resolvedSource": source, "resolvedPath": key});
        assert_eq!(done, read("skills/x/SKILL.md", "global"));
        let done = edit(&bench, "skills/x/SKILL.md", "mine", "my own", false).await.unwrap();
        assert_eq!(done, read("agents/a/skills/x/SKILL.md", "agent"));
        assert_eq!(bench.object("skills/x/SKILL.md").await.as_deref(), Some("shared"));
        assert_eq!(bench.object("agents/a/skills/x/SKILL.md").await.as_deref(), Some("my own"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn concurrent_edits_are_all_kept() {
        let bench = std::sync::Arc::new(Bench::new());
        let lines: String = (0..20).map(|number| format!("line-{number}-old\n")).collect();
        bench.put_object("agents/a/f", lines).await;
        let tasks: Vec<_> = (0..20)
            .map(|number| {
                let bench = bench.clone();
                tokio::spawn(async move {
                    let line = |word: &str| format!("line-{number}-{word}\n");
                    edit(&bench, "f", &line("old"), &line("new"), false).await.unwrap();
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(bench.object("agents/a/f").await.unwrap().matches("new").count(), 20);
    }
}
