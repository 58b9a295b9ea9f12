//! What agents and untrusted text cannot do with jobs.

use gantry_tool::Label;

use super::*;
use crate::testing::{Script, message};

/// A model that makes one call of `gsv__Cron` when it is asked to act.
fn acting(input: Value) -> Script {
    Arc::new(move |request| match (texts(request).contains("act now"), results(request)) {
        (true, 0) => calls("gsv__Cron", input.clone()),
        (true, _) => says("acted"),
        _ => says("done"),
    })
}

fn acting_on(id: &std::sync::Mutex<String>, input: impl Fn(&str) -> Value) -> Value {
    input(&id.lock().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn rename_of_a_persons_job_by_an_agent_is_asked() {
    for (answer, name) in [(ApprovalDecision::No, "j"), (ApprovalDecision::Yes, "renamed")] {
        let folder = tempfile::tempdir().unwrap();
        let id = Arc::new(std::sync::Mutex::new(String::new()));
        let script: Script = Arc::new({
            let id = id.clone();
            move |request| {
                let rename = |id: &str| json!({"action": "update", "id": id, "patch": {"name": "renamed"}});
                acting(acting_on(&id, rename))(request)
            }
        });
        let world = World::open(folder.path(), Setup { script, ..Setup::default() }).await;
        let job = world.every(10).await;
        id.lock().unwrap().clone_from(&job.id);
        let questions = world.tell("main", message("act now", &[Label::Untrusted]), answer).await;
        assert_eq!(questions.len(), 1, "{questions:?}");
        assert_eq!(questions[0].rule, "unattended");
        let after = Job::of(world.row(&job.id).await).unwrap();
        assert_eq!(after.definition.name, name);
        // The changed work has the rights and the labels of whoever changed it.
        assert_eq!(after.authority.by_agent, name == "renamed");
        assert_eq!(after.authority.labels.contains(&Label::Untrusted), name == "renamed");
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn carried_answer_brings_the_labels_of_its_run() {
    let folder = tempfile::tempdir().unwrap();
    // The first run reads a diary, which is private.
    let script: Script = Arc::new(|request| match texts(request).contains("the answer of the last run") {
        true => says("second"),
        false if results(request) == 0 => calls("diary", json!({"text": ""})),
        false => says("first"),
    });
    let world = World::open(folder.path(), Setup { script, ..Setup::default() }).await;
    let job = world
        .add(json!({"name": "j", "schedule": {"kind": "every", "everyMinutes": 10}, "spec": task("x"), "carry": "summary"}))
        .await;
    for minutes in [10, 20] {
        world.at(START + minutes * MINUTE_MS).await;
    }
    let runs = world.runs(&job.id).await;
    assert_eq!(runs[1].summary.as_deref(), Some("second"));
    for run in &runs {
        let labels = world.labels(run.session_key.as_ref().unwrap()).await;
        assert_eq!(labels, [Label::Private], "{run:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn list_and_runs_bring_the_labels_of_what_they_show() {
    let folder = tempfile::tempdir().unwrap();
    let job = json!({"name": "j", "schedule": {"kind": "every", "everyMinutes": 10}, "spec": task("work")});
    let script: Script = Arc::new(move |request| {
        let text = texts(request);
        match (results(request), ["please add", "please list", "please read"].map(|word| text.contains(word)))
        {
            (0, [true, ..]) => calls("gsv__Cron", json!({"action": "add", "job": job})),
            (0, [_, true, _]) => calls("gsv__Cron", json!({"action": "list"})),
            (0, [.., true]) => calls("gsv__Cron", json!({"action": "runs"})),
            _ => says("done"),
        }
    });
    let world = World::open(folder.path(), Setup { script, ..Setup::default() }).await;
    let yes = || ApprovalDecision::Yes;
    world.tell("agent:main:a", message("please list", &[]), yes()).await;
    assert_eq!(world.labels("agent:main:a").await, [Label::Private], "nothing untrusted yet");
    world.tell("agent:main:b", message("please add it", &[Label::Untrusted]), yes()).await;
    world.tell("agent:main:c", message("please list", &[]), yes()).await;
    assert!(world.labels("agent:main:c").await.contains(&Label::Untrusted));
    world.tell("agent:main:d", message("please read", &[]), yes()).await;
    assert!(!world.labels("agent:main:d").await.contains(&Label::Untrusted), "no run has an answer yet");
    world.at(START + 10 * MINUTE_MS).await;
    world.tell("agent:main:e", message("please read", &[]), yes()).await;
    assert!(world.labels("agent:main:e").await.contains(&Label::Untrusted));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_go_to_sessions_of_the_same_agent_only() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { works: false, ..Setup::default() }).await;
    let job = |to: &str| {
        let spec = json!({"mode": "task", "message": "x", "channel": "session", "to": to});
        input(json!({"name": "j", "schedule": {"kind": "every", "everyMinutes": 10}, "spec": spec}))
    };
    for to in ["agent:other:main", "agent:mainly:main", "main"] {
        let refused = world.flow.api_add(&OPERATOR, job(to)).await.unwrap_err();
        assert!(refused.to_string().contains("a session of the same agent"), "{to}: {refused}");
    }
    let added = world.flow.api_add(&OPERATOR, job("agent:main:reports")).await.unwrap();
    assert_eq!(added.spec["to"], "agent:main:reports");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_without_an_id_starts_the_callers_jobs_only() {
    let folder = tempfile::tempdir().unwrap();
    let script = acting(json!({"action": "run"}));
    let world = World::open(folder.path(), Setup { works: false, script, ..Setup::default() }).await;
    let own = world.every(10).await;
    let schedule = json!({"kind": "every", "everyMinutes": 10});
    let foreign = world
        .add(json!({"name": "o", "agentId": "other", "schedule": schedule, "spec": task("secret")}))
        .await;
    world.clock.set(START + 10 * MINUTE_MS);
    world.tell("main", message("act now", &[]), ApprovalDecision::Yes).await;
    assert_eq!(world.statuses(&own.id).await, ["queued"]);
    assert!(world.statuses(&foreign.id).await.is_empty(), "the job of another agent stays due");
    let asked = world.model.requests.lock().unwrap().last().unwrap().clone();
    let answer = format!("{:?}", asked.messages);
    assert!(answer.contains(&own.id) && !answer.contains(&foreign.id), "{answer}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn confirm_refuses_a_job_that_changed_since_the_notice() {
    let folder = tempfile::tempdir().unwrap();
    let job =
        json!({"name": "j", "schedule": {"kind": "every", "everyMinutes": 10}, "spec": task("harmless")});
    let script: Script = Arc::new(move |request| {
        let text = texts(request);
        let patch = json!({"spec": task("harmful")});
        match (results(request), text.contains("please add"), text.contains("please change")) {
            (0, true, _) => calls("gsv__Cron", json!({"action": "add", "job": job})),
            (0, _, true) => calls("gsv__Cron", json!({"action": "update", "id": "j", "patch": patch})),
            _ => says("done"),
        }
    });
    let setup = Setup { script, autonomy: Autonomy::Autonomous, works: false, ..Setup::default() };
    let world = World::open(folder.path(), setup).await;
    world.tell("agent:main:a", message("please add it", &[]), ApprovalDecision::No).await;
    let added = world.job("j").await;
    let notice = world.messages().await.remove(0).1;
    assert!(
        notice.contains(&format!("gantry cron confirm {} --seen {}", added.id, added.content_hash)),
        "{notice}"
    );
    world.tell("agent:main:b", message("please change it", &[]), ApprovalDecision::No).await;
    let refused = world.flow.api_confirm(&OPERATOR, &added.id, Some(&added.content_hash)).await.unwrap_err();
    assert!(
        refused.to_string().contains("not what you read") && refused.to_string().contains("harmful"),
        "{refused}"
    );
    assert_eq!(world.job("j").await.confirmed_by, None);
    let now = world.job("j").await.content_hash;
    assert!(world.flow.api_confirm(&OPERATOR, "j", Some(&now)).await.unwrap().confirmed_by.is_some());
    world.stop().await;
}
