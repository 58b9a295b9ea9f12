//! `gsv__Transfer` copies a file or a directory between nodes and the workspace. It copies objects inside the workspace itself.
//! If a node is at one end, the gateway's transfers do the work.

use std::path::Path;
use std::sync::Arc;

use gantry_protocol::{AskedAction, ChangeKind};
use gantry_store::Objects;
use gantry_tool::{Call, Ctx, DataAccess, DataLocation, Effect, Label, Tool, ToolError, Toolset, Touch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::asked::STORAGE;

use super::node_services::GatewayTools;
use super::workspace::{WorkspacePath, check_agent};
use super::{Done, Endpoint, Ends, StoredTree, Transferred, done, object_error};

/// Copy a file or a directory between nodes and your workspace, and wait until the copy is complete. Repeat an interrupted
/// transfer to resume it. A file at the destination is replaced only when the new one is complete. A directory is merged into
/// an existing one: its other files stay, and files that were copied stay if the transfer is cancelled. Entries that cannot be
/// copied, or lie deeper than 128 directories, are listed in `skipped`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The source: "nodeId:/path/to/file" on a node (relative paths start at its workspace), or "gsv:path" in your
    /// workspace.
    source: String,
    /// The destination, in the same form.
    destination: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The source as given.
    source: String,
    /// The destination as given.
    destination: String,
    /// The number of bytes sent.
    bytes_transferred: u64,
    /// The type of the file, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    mime: Option<String>,
    /// The number of files, for a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<u64>,
    /// Skipped entries of a directory, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<String>,
    /// The number of skipped entries, including those that `skipped` does not list.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped_count: Option<u64>,
}

#[derive(Deserialize)]
struct Touched {
    source: String,
    destination: String,
}

pub(super) const NAME: &str = "gsv__Transfer";

/// Describes the copy. The paths are not resolved here, so no grant for a path covers them.
fn described(input: Touched) -> Option<AskedAction> {
    let machine = match Endpoint::parse(&input.destination).ok()? {
        Endpoint::Workspace { .. } => STORAGE.to_owned(),
        Endpoint::Node { node, .. } => node,
    };
    let (paths, text) = (vec![input.destination], format!("from {}", input.source));
    Some(AskedAction::FileChange { machine, paths, change: ChangeKind::Copy, text, not_shown: 0 })
}

pub(super) fn tool(state: &Arc<GatewayTools>) -> Tool {
    // The result is private: it names skipped entries and the targets of their links.
    Tool::new(NAME, Toolset::Native, state, run)
        .effects(&[Effect::WritesFiles])
        .labels(&[Label::Private])
        .asks_as(|_, input| std::future::ready(described(input)))
        .touches(|_, input: Touched| {
            // The paths as written. Another machine resolves its own paths and checks them again.
            let node_path = |text: &str| match Endpoint::parse(text) {
                Ok(Endpoint::Node { path, .. }) => Some(Path::new("/").join(path)),
                _ => None,
            };
            let read = node_path(&input.source).map(Touch::read);
            read.into_iter().chain(node_path(&input.destination).map(Touch::write)).collect()
        })
        .implies(|input: Touched| {
            match (Endpoint::parse(&input.source), Endpoint::parse(&input.destination)) {
                (Ok(source), Ok(destination)) => {
                    Ends { source: &source, destination: &destination }.implied().into()
                }
                // It says so when it runs, and does nothing else.
                _ => Vec::new(),
            }
        })
        .data_locations(|input: Touched| {
            let location = |text: &str| match Endpoint::parse(text).ok()? {
                Endpoint::Workspace { path } => Some(DataLocation::Object(path)),
                Endpoint::Node { node, path } => Some(DataLocation::OnNode { node, path }),
            };
            let read = location(&input.source).map(DataAccess::read);
            read.into_iter().chain(location(&input.destination).map(DataAccess::write)).collect()
        })
        .works_without_machine()
        .offered_to_agents()
}

async fn run(ctx: Ctx<GatewayTools>, input: Input) -> Result<Done<Output>, ToolError> {
    let source = Endpoint::parse(&input.source).map_err(ToolError::input)?;
    let destination = Endpoint::parse(&input.destination).map_err(ToolError::input)?;
    if [&source, &destination].into_iter().any(|end| matches!(end, Endpoint::Workspace { .. })) {
        check_agent(&ctx.call)?;
    }
    if source.is_same(&destination) {
        return Err(ToolError::input("source and destination are the same"));
    }
    let sent = match (&source, &destination) {
        (Endpoint::Workspace { .. }, Endpoint::Workspace { .. }) => {
            copy(&ctx.state.objects, &ctx.call, Ends { source: &source, destination: &destination }).await?
        }
        _ => ctx.state.nodes()?.transfer(ctx.call.clone(), source, destination).await?,
    };
    let Transferred { bytes_transferred, mime, files, skipped, skipped_count } = sent;
    let skipped_count = (skipped_count > 0).then_some(skipped_count);
    let Input { source, destination } = input;
    Ok(done(Output { source, destination, bytes_transferred, mime, files, skipped, skipped_count }))
}

/// Copies a file, or everything below a directory, inside the workspace.
async fn copy(objects: &Objects, call: &Call, ends: Ends<'_>) -> Result<Transferred, ToolError> {
    let (from, to) = (ends.source.path(), ends.destination.path());
    let (source, destination) = (WorkspacePath::new(call, from)?, WorkspacePath::new(call, to)?);
    if !source.is_folder()
        && let Some((_, info)) = source.find(objects).await?
    {
        let destination = WorkspacePath::written_file(call, to)?;
        destination.check_not_shared_folder(objects).await?;
        let bytes_transferred = objects.copy(&info.key, &destination.key()).await.map_err(object_error)?;
        let mime = Some(info.content_type);
        return Ok(Transferred {
            bytes_transferred,
            mime,
            files: None,
            skipped: Vec::new(),
            skipped_count: 0,
        });
    }
    let tree = StoredTree::below(&source, objects).await.map_err(object_error)?;
    if tree.files.is_empty() {
        let text = format!("no such file or directory in the workspace: {}", source.shown());
        return Err(ToolError::failed(text));
    }
    if tree.truncated {
        let text = format!("{} holds too many files to be copied at once", source.shown());
        return Err(ToolError::failed(text));
    }
    let target = format!("{}/", destination.key());
    if target.starts_with(&format!("{}/", source.key())) {
        return Err(ToolError::input("a directory cannot be copied into itself"));
    }
    // Before anything is written.
    if let Some(policy) = call.policy.as_ref().filter(|policy| ends.are_told_apart(policy)) {
        let judged = tree.files.iter().try_for_each(|file| ends.check_entry(policy, call, &file.path));
        judged.map_err(ToolError::Refused)?;
    }
    let (mut bytes_transferred, mut files) = (0, 0);
    for file in &tree.files {
        if call.cancel.is_cancelled() {
            return Err(ToolError::Cancelled);
        }
        let copied = objects.copy(&file.key, &format!("{target}{}", file.path)).await;
        bytes_transferred += copied.map_err(object_error)?;
        files += 1;
    }
    Ok(Transferred {
        bytes_transferred,
        mime: None,
        files: Some(files),
        skipped: Vec::new(),
        skipped_count: 0,
    })
}

#[cfg(test)]
mod tests {
    use gantry_tool::{
        Approver, Condition, Consent, Decision, Gate, GateParts, GateSettings, Label, Operator, Policy, Rule,
        SensitivePaths, ToolScope,
    };
    use serde_json::{Value, json};

    use crate::testing::{Bench, ScriptedNodes};

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
        bench.connect(std::sync::Arc::new(ScriptedNodes));
        for (source, destination) in [("box:/a", "gsv:a"), ("gsv:a", "box:rel"), ("box:/a", "other:a")] {
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
        let outcome = bench.gate.call(bench.agent_call("a"), "gsv__Transfer", input).await;
        assert_eq!(outcome.labels, [Label::Private]);
    }

    #[tokio::test]
    async fn skills_are_copied_as_they_are_listed() {
        let bench = Bench::new();
        for (key, text) in [
            ("skills/sum/SKILL.md", "for all"),
            ("skills/sum/extra.md", "extra"),
            ("skills/web/SKILL.md", "web"),
            ("agents/a/skills/sum/SKILL.md", "mine"),
        ] {
            bench.put_object(key, text).await;
        }
        let done = transfer(&bench, "gsv:skills", "gsv:copy").await.unwrap();
        assert_eq!((&done["files"], &done["bytesTransferred"]), (&json!(3), &json!(4 + 5 + 3)));
        for (path, text) in [("sum/SKILL.md", "mine"), ("sum/extra.md", "extra"), ("web/SKILL.md", "web")] {
            assert_eq!(bench.object(&format!("agents/a/copy/{path}")).await.as_deref(), Some(text), "{path}");
        }
        let error = transfer(&bench, "gsv:copy/sum/extra.md", "gsv:skills/web").await.unwrap_err();
        assert!(error["error"].as_str().unwrap().contains("not a file but a directory"), "{error}");
        let error = transfer(&bench, "gsv:skills", "gsv:skills/again").await.unwrap_err();
        assert!(error["error"].as_str().unwrap().contains("into itself"), "{error}");
    }

    /// The same bench under these rules.
    fn ruled(bench: Bench, rules: Vec<Rule>) -> Bench {
        let policy = Policy::new(rules, SensitivePaths::default(), Vec::new());
        let registry = bench.gate.registry().clone();
        let parts = GateParts::new(bench.audit.clone(), bench.results.clone());
        Bench {
            gate: Gate::new(GateParts { registry, settings: GateSettings::of(policy), ..parts }),
            ..bench
        }
    }

    fn rule(tool: &str, decision: Decision) -> Rule {
        Rule::new(&format!("on {tool}"), tool, decision, "because").unwrap()
    }

    fn on_path(tool: &str, part: &str) -> Rule {
        let condition = Condition::new("path", Operator::Contains(part.into())).unwrap();
        rule(tool, Decision::Deny).when(condition)
    }

    #[tokio::test]
    async fn a_transfer_may_do_no_more_than_read_and_write_at_its_ends() {
        for (tool, source, destination, denied) in [
            ("box__Read", "box:/a", "gsv:a", true),
            ("box__Read", "other:/a", "box:a", false),
            ("box__Write", "other:/a", "box:a", true),
            ("box__Write", "box:/a", "other:a", false),
            ("Write", "gsv:a", "box:a", true),
            ("Write", "box:/a", "gsv:a", false),
            ("Read", "box:/a", "other:a", true),
            ("box__*", "box:/a", "gsv:a", true),
            ("box__*", "gsv:a", "box:a", true),
            ("gsv__WriteFile", "box:/a", "gsv:a", true),
            ("gsv__WriteFile", "gsv:f.md", "gsv:a", true),
            ("gsv__WriteFile", "gsv:f.md", "box:a", false),
            ("gsv__ReadFile", "gsv:f.md", "box:a", true),
            ("ReadFile", "gsv:f.md", "gsv:g.md", true),
            ("gsv__ReadFile", "box:/a", "gsv:a", false),
            ("local__Write", "gsv:f.md", "local:a", true),
        ] {
            let bench = ruled(Bench::new(), vec![rule(tool, Decision::Deny)]);
            bench.connect(std::sync::Arc::new(ScriptedNodes));
            bench.put_object("agents/a/f.md", "four").await;
            let what = format!("{tool}: {source} → {destination}");
            match transfer(&bench, source, destination).await {
                Ok(_) => assert!(!denied, "{what}"),
                Err(error) => {
                    assert!(denied, "{what}: {error}");
                    assert_eq!(error["error"]["code"], "denied", "{what}");
                    let said = error["error"]["message"].as_str().unwrap();
                    assert!(said.contains(&format!("(rule on {tool})")), "{what}: {said}");
                    assert_eq!(bench.object("agents/a/a").await, None, "{what}");
                }
            }
        }
    }

    #[tokio::test]
    async fn conditions_see_the_path_of_each_end_and_the_strictest_rule_holds() {
        let bench = ruled(
            Bench::new(),
            vec![
                on_path("Read", "secret"),
                on_path("gsv__WriteFile", "closed/"),
                rule("gsv__Transfer", Decision::Allow),
                rule("box__Write", Decision::Ask),
            ],
        );
        bench.connect(std::sync::Arc::new(ScriptedNodes));
        bench.put_object("agents/a/dir/closed/x", "1").await;
        bench.put_object("agents/a/dir/b", "2").await;
        let code = async |source: &str, destination: &str| match transfer(&bench, source, destination).await {
            Ok(_) => "done".to_owned(),
            Err(error) => error["error"]["code"].as_str().unwrap_or_default().to_owned(),
        };
        assert_eq!(code("box:secret.txt", "gsv:a").await, "denied");
        assert_eq!(code("box:plain.txt", "gsv:a").await, "done");
        assert_eq!(code("box:plain.txt", "gsv:closed/a").await, "denied");
        assert_eq!(code("other:x", "box:x").await, "approval_needed");
        assert_eq!(code("box:secret.txt", "box:x").await, "denied", "a no is stricter than a question");
        let before = bench.object_keys().await;
        let error = transfer(&bench, "gsv:dir", "gsv:copy").await.unwrap_err();
        let said = error["error"]["message"].as_str().unwrap();
        assert!(said.starts_with("closed/x: denied") && said.contains("(rule on gsv__WriteFile)"), "{said}");
        assert_eq!(bench.object_keys().await, before, "nothing was written");
    }

    #[tokio::test]
    async fn a_yes_is_asked_for_once_and_known_to_the_gateway() {
        let rules = vec![rule("box__Read", Decision::Ask), rule("other__Write", Decision::Ask)];
        let bench = ruled(Bench::new(), rules);
        bench.connect(std::sync::Arc::new(ScriptedNodes));
        let input = json!({"source": "box:/a", "destination": "other:/b"});
        let mut call = bench.agent_call("a");
        call.approver = Some(Approver::new(|approval| {
            assert_eq!(
                (&*approval.tool, &*approval.rule),
                ("gsv__Transfer", "on box__Read, on other__Write")
            );
            std::future::ready(Consent::Allowed)
        }));
        let done = bench.call_as(call, "gsv__Transfer", input).await.unwrap();
        let mime = done["result"]["mime"].as_str().unwrap();
        assert!(mime.ends_with(" box__Read: on box__Read, other__Write: on other__Write"), "{mime}");
    }

    #[tokio::test]
    async fn tools_out_of_scope_are_out_of_reach() {
        let bench = Bench::new();
        bench.put_object("agents/a/f.md", "four").await;
        for (tools, allowed) in [
            (vec!["gsv__Transfer", "gsv__ReadFile", "gsv__WriteFile"], true),
            (vec!["gsv__Transfer", "gsv__ReadFile"], false),
            (vec!["gsv__Transfer", "gsv__WriteFile"], false),
        ] {
            let mut call = bench.agent_call("a");
            let names: Vec<String> = tools.iter().map(ToString::to_string).collect();
            call.scope = ToolScope::new(Some(&names), &[]).unwrap();
            let input = json!({"source": "gsv:f.md", "destination": "gsv:g.md"});
            let answer = bench.call_as(call, "gsv__Transfer", input).await;
            assert_eq!(answer.is_ok(), allowed, "{tools:?}: {answer:?}");
        }
    }

    #[tokio::test]
    async fn keys_on_a_node_are_sensitive_there_too() {
        let bench = Bench::new();
        bench.connect(std::sync::Arc::new(ScriptedNodes));
        for (source, destination) in
            [("box:/home/u/.ssh/id_ed25519", "gsv:a"), ("gsv:a", "box:.ssh/authorized_keys")]
        {
            let error = transfer(&bench, source, destination).await.unwrap_err();
            assert_eq!(error["error"]["code"], "approval_needed", "{error}");
        }
    }
}
