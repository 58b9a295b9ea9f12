//! Background sessions: they run once, park at questions, resume after a restart, and need no model for a fixed call.

use gantry_agent::{
    Agent, ApprovalDecision, BackgroundChange, BackgroundEnd, BackgroundRun, BackgroundSpec, BackgroundWork,
    FixedCall, ToolLimits,
};
use gantry_tool::{Autonomy, Label};
use serde_json::{Value, json};

use crate::world::{PATIENCE, Setup, World, calls, results, says, texts};

fn spec(world: &World, name: &str, work: BackgroundWork) -> BackgroundSpec {
    BackgroundSpec {
        conversation: format!("cron:{name}"),
        label: name.to_owned(),
        work,
        authority: world.sessions.own_authority("main", "operator").unwrap(),
        labels: Vec::new(),
        role: None,
        model: None,
        thinking: None,
        effort: None,
        tools: Vec::new(),
        max_turns: None,
        account: format!("cron:{name}"),
        budgets: Vec::new(),
        approval_minutes: 60,
    }
}

fn call(tool: &str, input: Value) -> BackgroundWork {
    BackgroundWork::Call(FixedCall { tool: tool.to_owned(), input })
}

async fn next(run: &mut BackgroundRun) -> BackgroundChange {
    tokio::time::timeout(PATIENCE, run.next()).await.unwrap()
}

async fn end(run: &mut BackgroundRun) -> BackgroundEnd {
    tokio::time::timeout(PATIENCE, run.end_of_session()).await.unwrap()
}

fn supervised() -> Setup {
    Setup { agent: Agent { autonomy: Autonomy::Supervised, ..Agent::default() }, ..Setup::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn turn_runs_once_and_its_end_can_be_read_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let script = |request: &gantry_model::Request| match results(request).last() {
        None => calls(&[("a", "note", json!({"text": "x"}))]),
        Some(_) => says(&texts(request).concat()),
    };
    let world = World::open(folder.path(), Setup::default(), script).await;
    let work = BackgroundWork::Message("report".into());
    let mut run = world.sessions.start_background(spec(&world, "r1", work.clone())).await.unwrap();
    assert_eq!(run.key.key, "agent:main:cron:r1");
    let ended = end(&mut run).await;
    assert!(ended.outcome.as_ref().unwrap().contains("report"), "{ended:?}");
    assert_eq!((ended.tokens_in, ended.tokens_out, ended.stopped), (20, 10, false));
    drop(run);
    world.stop().await;

    let world = World::open(folder.path(), Setup::default(), script).await;
    let mut again = world.sessions.start_background(spec(&world, "r1", work)).await.unwrap();
    assert_eq!(end(&mut again).await.outcome, ended.outcome);
    assert_eq!(world.notes(), ["x"], "the work ran once");
    assert!(world.model.requests.lock().unwrap().is_empty());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fixed_call_asks_no_model_and_returns_the_result_or_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default(), |_| panic!("no model is asked")).await;
    let start = |name: &str, work| world.sessions.start_background(spec(&world, name, work));
    let mut good = start("good", call("note", json!({"text": "x"}))).await.unwrap();
    assert_eq!(end(&mut good).await.outcome, Ok("noted x".into()));
    let mut wrong = start("wrong", call("note", json!({"txt": 1}))).await.unwrap();
    let error = end(&mut wrong).await.outcome.unwrap_err();
    assert!(error.contains("txt"), "{error}");
    let mut unknown = start("unknown", call("nothing", json!({}))).await.unwrap();
    let error = end(&mut unknown).await.outcome.unwrap_err();
    assert!(error.contains("nothing"), "{error}");
    let mut page = start("page", call("page", json!({"text": "y"}))).await.unwrap();
    let ended = end(&mut page).await;
    assert_eq!(ended.labels, [Label::Untrusted]);
    let mut big = start("big", call("big", json!({}))).await.unwrap();
    let text = end(&mut big).await.outcome.unwrap();
    assert!(text.len() > 45_000 && text.len() < 60_000, "{}", text.len());
    assert_eq!(world.notes(), ["x", "y"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn question_parks_the_run_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), supervised(), |_| panic!("no model is asked")).await;
    let work = call("note", json!({"text": "x"}));
    let mut run = world.sessions.start_background(spec(&world, "r1", work.clone())).await.unwrap();
    assert_eq!(next(&mut run).await, BackgroundChange::Waiting);
    assert!(world.notes().is_empty());
    drop(run);
    world.stop().await;

    let world = World::open(folder.path(), supervised(), |_| panic!("no model is asked")).await;
    assert_eq!(world.sessions.resume().await.unwrap(), 1);
    let mut run = world.sessions.start_background(spec(&world, "r1", work)).await.unwrap();
    assert_eq!(next(&mut run).await, BackgroundChange::Waiting);
    world.sessions.answer(&run.key.clone(), None, ApprovalDecision::Yes, "operator").await.unwrap();
    assert_eq!(end(&mut run).await.outcome, Ok("noted x".into()));
    assert_eq!(world.notes(), ["x"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_gets_no_more_rights_than_its_creator_had() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), supervised(), |_| panic!("no model is asked")).await;
    let work = || call("note", json!({"text": "never"}));
    let mut unattended = spec(&world, "unattended", work());
    unattended.authority.unattended = true;
    let mut run = world.sessions.start_background(unattended).await.unwrap();
    let error = end(&mut run).await.outcome.unwrap_err();
    assert!(error.contains("no user can be asked"), "{error}");
    let mut limited = spec(&world, "limited", work());
    limited.tools = vec![ToolLimits { allow: Some(vec!["look".into()]), deny: Vec::new() }];
    let mut run = world.sessions.start_background(limited).await.unwrap();
    let error = end(&mut run).await.outcome.unwrap_err();
    assert!(error.contains("note"), "{error}");
    // Its autonomy is that of its agent even if the creator's was higher.
    let mut raised = spec(&world, "raised", work());
    raised.authority.autonomy = Autonomy::Autonomous;
    let mut run = world.sessions.start_background(raised).await.unwrap();
    assert_eq!(next(&mut run).await, BackgroundChange::Waiting);
    run.stop("the test").await;
    let ended = end(&mut run).await;
    assert_eq!((ended.outcome, ended.stopped), (Err("stopped by the test".into()), true));
    assert!(world.notes().is_empty());
    world.stop().await;
}
