//! `gsv__ReadFile` reads a file of the agent's workspace, or lists a directory.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_files::text;
use gantry_store::{Depth, Object, Objects};
use gantry_tool::{Label, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::workspace::{SkillSource, WorkspacePath};
use super::{Ctx, Done, MAX_FILE_BYTES, Native, done, object_error, reading_error};
use crate::optional_path::absent_when_empty;

/// Read a file of your workspace, or list a directory. Paths are relative to the workspace root.
/// Below `skills/` your own copy comes first, then the shared one; listings show both. Files up to
/// 32 MB.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Path relative to the workspace root; leave it out or use "/" to list the root. Examples:
    /// "SOUL.md", "memory/", "skills/summarize/SKILL.md".
    #[serde(default, deserialize_with = "absent_when_empty")]
    path: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Output {
    File(FileOutput),
    Directory(DirectoryOutput),
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FileOutput {
    /// The path as given.
    path: String,
    /// The whole text.
    content: String,
    /// The file's size in bytes.
    size: u64,
    /// The time of the last write, ISO 8601.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_modified: Option<String>,
    /// For skills: the key that was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_path: Option<String>,
    /// For skills: whose copy it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_source: Option<SkillSource>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct DirectoryOutput {
    /// The path as given; "/" for the root.
    path: String,
    /// Names of files, sorted.
    files: Vec<String>,
    /// Names of directories, sorted.
    directories: Vec<String>,
    /// The listing is incomplete.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
}

pub(super) const NAME: &str = "gsv__ReadFile";

pub(super) fn tool(native: &Arc<Native>) -> Tool {
    Tool::new(NAME, Toolset::Native, native, run)
        .read_only()
        .labels(&[Label::Private])
        .reads_object("path")
        .works_without_machine()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Done<Output>, ToolError> {
    let objects = ctx.state.objects();
    let path = WorkspacePath::new(&ctx.call, input.path.as_deref().unwrap_or("/"))?;
    if !path.is_folder() {
        for (copy, key) in path.candidates() {
            if let Some(object) = objects.get(&key, MAX_FILE_BYTES).await.map_err(reading_error(&path))? {
                return file(&path, copy, &object).map(Output::File).map(done);
            }
        }
    }
    directory(objects, &path).await.map(Output::Directory).map(done)
}

fn file(path: &WorkspacePath, copy: SkillSource, object: &Object) -> Result<FileOutput, ToolError> {
    let decoded = text::decode(&object.bytes).map_err(|err| {
        let hint = "copy it to a node with gsv__Transfer and read it there";
        ToolError::failed(format!("cannot read {}: {err}", path.shown())).with_hint(hint)
    })?;
    let modified = jiff::Timestamp::from_millisecond(object.info.modified).ok();
    let skill = path.is_skill();
    Ok(FileOutput {
        path: path.shown().to_owned(),
        content: decoded.text.into_owned(),
        size: object.info.size,
        last_modified: modified.map(|time| time.to_string()),
        resolved_path: skill.then(|| object.info.key.clone()),
        resolved_source: skill.then_some(copy),
    })
}

async fn directory(objects: &Objects, path: &WorkspacePath) -> Result<DirectoryOutput, ToolError> {
    let (mut files, mut directories) = (BTreeSet::new(), BTreeSet::new());
    let mut truncated = false;
    for prefix in path.prefixes() {
        let listing = objects.list(&prefix, Depth::One).await.map_err(object_error)?;
        truncated |= listing.truncated;
        let name = |key: &str| key.strip_prefix(&prefix).unwrap_or(key).trim_end_matches('/').to_owned();
        files.extend(listing.objects.iter().map(|object| name(&object.key)));
        directories.extend(listing.prefixes.iter().map(|key| name(key)));
    }
    let root = path.shown() == "/";
    if root && !objects.list("skills/", Depth::One).await.map_err(object_error)?.is_empty() {
        directories.insert("skills".to_owned());
    }
    if !root && files.is_empty() && directories.is_empty() {
        return Err(ToolError::failed(format!(
            "no such file or directory in the workspace: {}",
            path.shown()
        ))
        .with_hint("leave path out to list the root"));
    }
    Ok(DirectoryOutput {
        path: path.shown().to_owned(),
        files: files.into_iter().collect(),
        directories: directories.into_iter().collect(),
        truncated: truncated.then_some(true),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::testing::Bench;

    async fn read(bench: &Bench, agent: &str, path: &str) -> Result<Value, Value> {
        bench.call_as(bench.agent_call(agent), "gsv__ReadFile", json!({"path": path})).await.map(
            |mut answer| {
                assert_eq!(answer["ok"], true);
                let mut result = answer["result"].take();
                if let Some(modified) =
                    result.as_object_mut().and_then(|result| result.remove("lastModified"))
                {
                    let modified: jiff::Timestamp = modified.as_str().unwrap().parse().unwrap();
                    let age = jiff::Timestamp::now().duration_since(modified);
                    assert!(age.abs() < jiff::SignedDuration::from_secs(60), "{modified}");
                }
                result
            },
        )
    }

    #[tokio::test]
    async fn only_the_callers_workspace_is_read_and_listed() {
        let bench = Bench::new();
        for (key, text) in [
            ("agents/a/SOUL.md", "söul\r\n"),
            ("agents/a/memory/x/1.md", "1"),
            ("agents/a/memory/2.md", "2"),
            ("agents/b/other.md", "b"),
        ] {
            bench.put_object(key, text).await;
        }
        assert_eq!(
            read(&bench, "a", "SOUL.md").await,
            Ok(json!({"path": "SOUL.md", "content": "söul\r\n", "size": 7}))
        );
        let root = json!({"path": "/", "files": ["SOUL.md"], "directories": ["memory"]});
        assert_eq!(read(&bench, "a", "/").await, Ok(root.clone()));
        let omitted = bench.call_as(bench.agent_call("a"), "gsv__ReadFile", json!({})).await;
        assert_eq!(omitted, Ok(json!({"ok": true, "result": root})));
        let memory = json!({"path": "memory", "files": ["2.md"], "directories": ["x"]});
        assert_eq!(read(&bench, "a", "memory/").await, Ok(memory.clone()));
        assert_eq!(read(&bench, "a", "memory").await, Ok(memory));
        assert_eq!(read(&bench, "new", "/").await, Ok(json!({"path": "/", "files": [], "directories": []})));
        for path in
            ["other.md", "../b/other.md", "/agents/b/other.md", "SOUL.md/", "missing/", "a//b", "x\\y"]
        {
            let error = read(&bench, "a", path).await.unwrap_err();
            assert_eq!(error["ok"], false, "{path}: {error}");
        }
    }

    #[tokio::test]
    async fn own_skill_copy_wins_and_listings_are_merged() {
        let bench = Bench::new();
        assert_eq!(read(&bench, "a", "/").await.unwrap()["directories"], json!([]));
        for (key, text) in [
            ("skills/sum/SKILL.md", "global sum"),
            ("skills/sum/extra.md", "global extra"),
            ("skills/web/SKILL.md", "global web"),
            ("agents/a/skills/sum/SKILL.md", "my sum"),
            ("agents/a/skills/own/SKILL.md", "own"),
        ] {
            bench.put_object(key, text).await;
        }
        let skill = |path: &str, content: &str, key: &str, source: &str| json!({"path": path, "content": content, "size": content.len(), "resolvedPath": key, "resolvedSource": source});
        assert_eq!(
            read(&bench, "a", "skills/sum/SKILL.md").await.unwrap(),
            skill("skills/sum/SKILL.md", "my sum", "agents/a/skills/sum/SKILL.md", "agent")
        );
        assert_eq!(
            read(&bench, "b", "skills/sum/SKILL.md").await.unwrap(),
            skill("skills/sum/SKILL.md", "global sum", "skills/sum/SKILL.md", "global")
        );
        let listing = read(&bench, "a", "skills/").await.unwrap();
        assert_eq!(listing, json!({"path": "skills", "files": [], "directories": ["own", "sum", "web"]}));
        let merged = read(&bench, "a", "skills/sum").await.unwrap();
        assert_eq!(merged["files"], json!(["SKILL.md", "extra.md"]));
        assert_eq!(read(&bench, "new", "/").await.unwrap()["directories"], json!(["skills"]));
    }

    #[tokio::test]
    async fn binary_and_huge_files_are_rejected_with_a_hint() {
        let bench = Bench::new();
        bench.put_object("agents/a/x.bin", b"\xff\x00\x01").await;
        let error = read(&bench, "a", "x.bin").await.unwrap_err();
        assert!(error["error"].as_str().unwrap().contains("gsv__Transfer"), "{error}");
        bench.put_object("agents/a/huge", vec![b'a'; 32 * 1024 * 1024 + 1]).await;
        let error = read(&bench, "a", "huge").await.unwrap_err();
        let text = error["error"].as_str().unwrap();
        assert!(
            text.starts_with("huge has 33554433 bytes") && text.contains("gantry transfer gsv:huge"),
            "{text}"
        );
    }
}
