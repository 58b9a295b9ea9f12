//! `gsv__Transfer` sends a file or a directory between nodes and the workspace. Inside the workspace it copies by itself; whatever
//! has a node at one end is the gateway's work.

use std::path::Path;
use std::sync::Arc;

use gantry_store::{Depth, Objects};
use gantry_tool::{Call, Label, Tool, ToolError, Toolset, Touch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::workspace::{WorkspacePath, check_agent};
use super::{Ctx, Done, Endpoint, Native, Transferred, done, object_error};

/// Send a file or a directory between nodes and your workspace, and wait until it has arrived whole. A broken transfer goes
/// on where it was when it is asked for again. A file at the destination is replaced once everything has arrived. A directory is
/// merged into one that is there: each file is replaced when it has arrived whole, what else is there stays, and what had
/// come stays when the transfer is cancelled. What cannot be sent, or lies deeper than 128 directories, is left out and told in
/// `skipped`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Where from: "nodeId:/path/to/file" for a path on a node (relative ones start at its workspace), or "gsv:path" for
    /// your workspace.
    source: String,
    /// Where to, in the same form.
    destination: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The source as given.
    source: String,
    /// The destination as given.
    destination: String,
    /// How many bytes were sent in all.
    bytes_transferred: u64,
    /// The type of the file, when it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    mime: Option<String>,
    /// How many files, when a directory was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<u64>,
    /// What was left out of a directory, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<String>,
}

#[derive(Deserialize)]
struct Touched {
    source: String,
    destination: String,
}

pub(super) fn tool(native: &Arc<Native>) -> Tool {
    // What was left out is told by name, with where its links lead.
    Tool::new("gsv__Transfer", Toolset::Native, native, run).labels(&[Label::Private]).touches(
        |_, input: Touched| {
            // The paths as written: what they lead to on another machine is for that machine to judge again.
            let node_path = |text: &str| match Endpoint::parse(text) {
                Ok(Endpoint::Node { path, .. }) => Some(Path::new("/").join(path)),
                _ => None,
            };
            let read = node_path(&input.source).map(Touch::read);
            read.into_iter().chain(node_path(&input.destination).map(Touch::write)).collect()
        },
    )
}

async fn run(ctx: Ctx, input: Input) -> Result<Done<Output>, ToolError> {
    let source = Endpoint::parse(&input.source).map_err(ToolError::input)?;
    let destination = Endpoint::parse(&input.destination).map_err(ToolError::input)?;
    if [&source, &destination].into_iter().any(|end| matches!(end, Endpoint::Workspace { .. })) {
        check_agent(&ctx.call)?;
    }
    if source.is_same(&destination) {
        return Err(ToolError::input("source and destination are the same"));
    }
    let sent = match (&source, &destination) {
        (Endpoint::Workspace { path: from }, Endpoint::Workspace { path: to }) => {
            copy(ctx.state.objects(), &ctx.call, from, to).await?
        }
        _ => ctx.state.hub()?.transfer(ctx.call.clone(), source, destination).await?,
    };
    let Transferred { bytes_transferred, mime, files, skipped } = sent;
    let Input { source, destination } = input;
    Ok(done(Output { source, destination, bytes_transferred, mime, files, skipped }))
}

/// Copies a file, or everything below a directory, inside the workspace.
async fn copy(objects: &Objects, call: &Call, from: &str, to: &str) -> Result<Transferred, ToolError> {
    let (source, destination) = (WorkspacePath::new(call, from)?, WorkspacePath::new(call, to)?);
    if !source.is_folder()
        && let Some((_, info)) = source.find(objects).await?
    {
        let destination = WorkspacePath::written_file(call, to)?;
        let bytes_transferred = objects.copy(&info.key, &destination.key()).await.map_err(object_error)?;
        let mime = Some(info.content_type);
        return Ok(Transferred { bytes_transferred, mime, files: None, skipped: Vec::new() });
    }
    let missing =
        || ToolError::failed(format!("no such file or directory in the workspace: {}", source.shown()));
    for (_, key) in source.candidates() {
        let prefix = format!("{key}/");
        let listing = objects.list(&prefix, Depth::All).await.map_err(object_error)?;
        if listing.objects.is_empty() {
            continue;
        }
        if listing.truncated {
            return Err(ToolError::failed(format!(
                "{} holds too many files to be copied at once",
                source.shown()
            )));
        }
        let target = format!("{}/", destination.key());
        if target.starts_with(&prefix) {
            return Err(ToolError::input("a directory cannot be copied into itself"));
        }
        let (mut bytes_transferred, mut files) = (0, 0);
        for object in &listing.objects {
            if call.cancel.is_cancelled() {
                return Err(ToolError::Cancelled);
            }
            let name = object.key.strip_prefix(&prefix).unwrap_or(&object.key);
            let copied = objects.copy(&object.key, &format!("{target}{name}")).await;
            bytes_transferred += copied.map_err(object_error)?;
            files += 1;
        }
        return Ok(Transferred { bytes_transferred, mime: None, files: Some(files), skipped: Vec::new() });
    }
    Err(missing())
}

#[cfg(test)]
mod tests {
    use gantry_tool::Label;
    use serde_json::{Value, json};

    use crate::testing::{Bench, ScriptedHub};

    async fn transfer(bench: &Bench, source: &str, destination: &str) -> Result<Value, Value> {
        let input = json!({"source": source, "destination": destination});
        let answer = bench.call_as(bench.agent_call("a"), "gsv__Transfer", input).await;
        answer.map(|mut answer| answer["result"].take())
    }

    #[tokio::test]
    async fn copies_files_and_directories_inside_the_workspace() {
        let bench = Bench::new();
        for (key, text) in [
            ("agents/a/f.md", "four"),
            ("agents/a/dir/1", "1"),
            ("agents/a/dir/deep/22", "22"),
            ("skills/s/SKILL.md", "skill"),
            ("agents/b/secret", "s"),
        ] {
            bench.put_object(key, text).await;
        }
        assert_eq!(
            transfer(&bench, "gsv:f.md", "gsv:copies/g.md").await,
            Ok(
                json!({"source": "gsv:f.md", "destination": "gsv:copies/g.md", "bytesTransferred": 4, "mime": "text/markdown"})
            )
        );
        assert_eq!(bench.object("agents/a/copies/g.md").await.as_deref(), Some("four"));
        let done = transfer(&bench, "gsv:dir", "gsv:dir2/").await.unwrap();
        assert_eq!((&done["bytesTransferred"], &done["files"]), (&json!(3), &json!(2)));
        assert_eq!(bench.object("agents/a/dir2/deep/22").await.as_deref(), Some("22"));
        transfer(&bench, "gsv:skills/s/SKILL.md", "gsv:mine.md").await.unwrap();
        assert_eq!(bench.object("agents/a/mine.md").await.as_deref(), Some("skill"));
        let before = bench.object_keys().await;
        for (source, destination) in [
            ("gsv:f.md", "gsv:f.md"),
            ("gsv:f.md", "gsv:./f.md"),
            ("gsv:dir", "gsv:dir/inner"),
            ("gsv:/", "gsv:all"),
            ("gsv:none", "gsv:x"),
            ("gsv:../b/secret", "gsv:x"),
            ("gsv:f.md", "gsv:../b/x"),
            ("gsv:f.md", "gsv:folder/"),
            ("gsv:f.md", "nonsense"),
            ("gsv:f.md", "gsv:"),
            ("Bad:/x", "gsv:x"),
        ] {
            let error = transfer(&bench, source, destination).await.unwrap_err();
            assert_eq!(error["ok"], false, "{source} {destination}: {error}");
        }
        assert_eq!(bench.object_keys().await, before);
    }

    #[tokio::test]
    async fn nodes_are_the_gateways_work() {
        let bench = Bench::new();
        let error = transfer(&bench, "box:/a", "gsv:a").await.unwrap_err();
        assert!(error["error"].as_str().unwrap().contains("needs a running gateway"), "{error}");
        bench.native.connect(std::sync::Arc::new(ScriptedHub));
        for (source, destination) in [("box:/a", "gsv:a"), ("gsv:a", "box:rel"), ("box:/a", "other:/a")] {
            let done = transfer(&bench, source, destination).await.unwrap();
            assert_eq!(done["bytesTransferred"], 42);
            assert_eq!(done["mime"], format!("a {source} {destination}"), "who asks, and what for");
        }
        assert!(transfer(&bench, "box:/a", "box:/a").await.is_err());
    }

    #[tokio::test]
    async fn what_it_tells_of_files_is_private() {
        let bench = Bench::new();
        bench.put_object("agents/a/f.md", "four").await;
        let input = json!({"source": "gsv:f.md", "destination": "gsv:g.md"});
        let told = bench.gate.call(bench.agent_call("a"), "gsv__Transfer", input).await;
        assert_eq!(told.labels, [Label::Private]);
    }

    #[tokio::test]
    async fn keys_on_a_node_are_sensitive_there_too() {
        let bench = Bench::new();
        bench.native.connect(std::sync::Arc::new(ScriptedHub));
        for (source, destination) in
            [("box:/home/u/.ssh/id_ed25519", "gsv:a"), ("gsv:a", "box:.ssh/authorized_keys")]
        {
            let error = transfer(&bench, source, destination).await.unwrap_err();
            assert_eq!(error["error"]["code"], "approval_needed", "{error}");
        }
    }
}
