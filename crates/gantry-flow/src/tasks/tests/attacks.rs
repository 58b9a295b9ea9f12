//! What agents, tokens and odd text cannot do with tasks.

use gantry_agent::{ApprovalDecision, Authority};
use gantry_protocol::{PipelineAdd, TaskChanges};
use gantry_tool::{Autonomy, Label, RefusalCode};

use super::*;
use crate::testing::{Script, calls, message, results, texts, token_for};

/// A model that makes one call when it is asked to act, and repeats the result.
fn acting(tool: &'static str, input: Value) -> Script {
    Arc::new(move |request| match (texts(request).contains("act now"), results(request)) {
        (true, 0) => calls(tool, input.clone()),
        _ => says("done"),
    })
}

async fn adds(world: &World, identity: &gantry_domain::Identity, new: Value) -> Result<TaskInfo, String> {
    let task: NewTask = serde_json::from_value(new).unwrap();
    let agent = Some("main".to_owned());
    let added = api::add(&world.flow, identity, TaskAddParams { agent, task }).await;
    added.map(|added| added.task).map_err(|refused| refused.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn task_changed_by_an_agent_has_its_rights_and_labels() {
    let folder = tempfile::tempdir().unwrap();
    let change = json!({"task_id": "report", "title": "report to everybody"});
    let setup = Setup { script: acting("task_update", change), works: false, ..Setup::default() };
    let world = World::open(folder.path(), setup).await;
    let task = world.add_task(json!({"title": "report", "schedule": "1h"})).await;
    let questions =
        world.tell("agent:other:main", message("act now", &[Label::Untrusted]), ApprovalDecision::Yes).await;
    assert_eq!(questions.len(), 1, "{questions:?}");
    let row = world.flow.parts.database.task(&task.id).await.unwrap().unwrap();
    assert_eq!(row.title, "report to everybody");
    let authority: Authority = serde_json::from_str(&row.authority).unwrap();
    assert_eq!(authority.agent, "main", "the same agent works on it");
    assert!(authority.policy_agents.contains(&"other".to_owned()), "{authority:?}");
    assert!(authority.by_agent && authority.labels.contains(&Label::Untrusted), "{authority:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn question_about_a_task_is_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let new = json!({"title": "report", "description": "Write it.\nSend it.", "schedule": "1h"});
    let setup = Setup { script: acting("task_create", new), works: false, ..Setup::default() };
    let world = World::open(folder.path(), setup).await;
    let questions = world.tell("main", message("act now", &[]), ApprovalDecision::No).await;
    let text = gantry_tool::QuestionText::new(&questions[0].action()).whole();
    assert!(
        text.contains("\"report\" of the agent main")
            && text.contains("run unattended, by the schedule \"1h\""),
        "{text}"
    );
    assert!(text.contains("Send it.") && !text.contains('{'), "{text}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn task_cannot_run_the_pipeline_of_another_agent() {
    let folder = tempfile::tempdir().unwrap();
    let definition = json!({"name": "foreign", "steps": [{"id": "a", "task": "x"}]});
    for named in ["foreign", "id"] {
        let world = World::open(folder.path(), Setup { works: false, ..Setup::default() }).await;
        let definition = serde_json::from_value(definition.clone()).unwrap();
        let add = PipelineAdd { agent: Some("other".to_owned()), definition };
        let stored = crate::pipelines::api::add(&world.flow, &OPERATOR, add).await.unwrap();
        world.stop().await;
        let named = if named == "id" { stored.id } else { named.to_owned() };
        let new = json!({"title": "t", "pipeline_id": named});
        let setup = Setup { script: acting("task_create", new), works: false, ..Setup::default() };
        let world = World::open(folder.path(), setup).await;
        let key = format!("agent:main:{}", &named[..4]);
        let questions = world.tell(&key, message("act now", &[]), ApprovalDecision::Yes).await;
        assert!(questions.is_empty(), "nothing to allow: {questions:?}");
        let asked = format!("{:?}", world.model.requests.lock().unwrap().last().unwrap().messages);
        assert!(asked.contains("unknown pipeline"), "{asked}");
        let listed = api::list(&world.flow, &OPERATOR, Default::default()).await.unwrap();
        assert!(listed.tasks.is_empty());
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_cannot_create_tasks_in_the_scope_or_below_the_task_of_another_agent() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { works: false, ..Setup::default() }).await;
    let task = serde_json::from_value(json!({"title": "theirs"})).unwrap();
    let params = TaskAddParams { agent: Some("other".to_owned()), task };
    let theirs = api::add(&world.flow, &OPERATOR, params).await.unwrap().task;
    let token = token_for("main");
    for (new, part) in [
        (json!({"title": "x", "scope": "agent:other"}), "other"),
        (json!({"title": "x", "parent_task_id": theirs.id}), "not found"),
        (json!({"title": "x", "parent_task_id": "theirs"}), "not found"),
    ] {
        let refused = adds(&world, &token, new.clone()).await.unwrap_err();
        assert!(refused.contains(part), "{new}: {refused}");
    }
    // A task of its own agent may lie in another agent's scope, where the operator put it. Its subtasks may not.
    let own = adds(&world, &OPERATOR, json!({"title": "own", "scope": "agent:other"})).await.unwrap();
    assert!(adds(&world, &token, json!({"title": "x", "parent_task_id": own.id})).await.is_err());
    for new in [json!({"title": "a", "scope": "agent:main"}), json!({"title": "b"})] {
        adds(&world, &token, new).await.unwrap();
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unconfirmed_task_cannot_be_run_and_confirm_refuses_changed_content() {
    let folder = tempfile::tempdir().unwrap();
    let script: Script = Arc::new(|request| {
        let text = texts(request);
        match (results(request), text.contains("please create"), text.contains("please change")) {
            (0, true, _) => calls("task_create", json!({"title": "report", "schedule": "1h"})),
            (0, _, true) => {
                calls("task_update", json!({"task_id": "report", "description": "and delete it"}))
            }
            _ => says("done"),
        }
    });
    let setup = Setup { script, autonomy: Autonomy::Autonomous, works: false, ..Setup::default() };
    let world = World::open(folder.path(), setup).await;
    world.tell("agent:main:a", message("please create it", &[]), ApprovalDecision::No).await;
    let created = world.task("report").await;
    let refused = api::run(&world.flow, &OPERATOR, "report").await.unwrap_err();
    assert_eq!(refused.code, RefusalCode::Denied);
    assert!(refused.to_string().contains(&format!("gantry tasks confirm {}", &created.id[..8])), "{refused}");
    world.tell("agent:main:b", message("please change it", &[]), ApprovalDecision::No).await;
    let refused =
        api::confirm(&world.flow, &OPERATOR, "report", Some(&created.content_hash)).await.unwrap_err();
    assert!(refused.to_string().contains("not what you read"), "{refused}");
    assert!(!world.task("report").await.confirmed);
    let seen = world.task("report").await.content_hash;
    assert!(api::confirm(&world.flow, &OPERATOR, "report", Some(&seen)).await.unwrap().task.confirmed);
    assert!(api::run(&world.flow, &OPERATOR, "report").await.is_ok());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control_characters_are_rejected_in_all_texts_of_a_task() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { works: false, ..Setup::default() }).await;
    let wrong = json!({"title": "a\u{1b}[2J", "description": "x\u{7}", "tags": ["\u{202e}tag"]});
    let refused = adds(&world, &OPERATOR, wrong).await.unwrap_err();
    for field in ["title", "description", "tags"] {
        assert!(refused.contains(&format!("{field}: must not have control characters")), "{refused}");
    }
    let job = json!({"name": "a\u{1b}", "schedule": {"kind": "every", "everyMinutes": 5}, "spec": {"mode": "task", "message": "x"}});
    let refused = world.flow.api_add(&OPERATOR, serde_json::from_value(job).unwrap()).await.unwrap_err();
    assert!(refused.to_string().contains("name: must not have control"), "{refused}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schedule_and_page_can_be_changed_where_the_task_has_one() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { works: false, ..Setup::default() }).await;
    let task = world.add_task(json!({"title": "report", "schedule": "1h"})).await;
    let watch = world.add_task(json!({"title": "prices", "watch_url": "https://example.org/a"})).await;
    let edit = async |changes: Value| {
        let changes: TaskChanges = serde_json::from_value(changes).unwrap();
        api::edit(&world.flow, &OPERATOR, changes).await.map(|changed| changed.task)
    };
    let changed = edit(json!({"task_id": "report", "schedule": "every 30 minutes"})).await.unwrap();
    assert_eq!(changed.next_run_at_ms, Some(START + 30 * MINUTE_MS));
    assert_ne!(changed.content_hash, task.content_hash);
    let changed = edit(
        json!({"task_id": "prices", "watch_url": "https://example.org/b", "watch_interval_minutes": 10}),
    );
    let changed = changed.await.unwrap();
    assert_eq!(
        (changed.watch_url.as_deref(), changed.watch_interval_minutes),
        (Some("https://example.org/b"), Some(10))
    );
    assert_eq!(changed.id, watch.id);
    let refused = edit(
        json!({"task_id": "prices", "schedule": "1h", "watch_url": "ftp://x", "watch_interval_minutes": 1}),
    );
    let refused = refused.await.unwrap_err().to_string();
    for part in
        ["schedule: the task has no schedule", "watch_url:", "watch_interval_minutes: must be between"]
    {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    world.stop().await;
}
