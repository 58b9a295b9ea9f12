//! Approvals of calls: questions survive restarts, and are answered by people or a timeout.

use gantry_agent::{Agent, ApprovalDecision, GrantReach, GrantScope, Question, SessionEvent};
use gantry_tool::Autonomy;
use serde_json::json;

use crate::world::{Setup, World, calls, final_text, results, says, settled, until};

fn supervised(minutes: u32) -> Setup {
    let agent = Agent { autonomy: Autonomy::Supervised, approval_minutes: minutes, ..Agent::default() };
    Setup { agent, ..Setup::default() }
}

/// Calls `note` once for each message, and answers with the last result.
fn script(request: &gantry_model::Request) -> Result<gantry_model::Reply, gantry_agent::ModelFailure> {
    match request.messages.last().unwrap().content.last().unwrap() {
        gantry_model::Block::ToolResult { .. } => says(results(request).last().unwrap()),
        _ => calls(&[("a", "note", json!({"text": "x"}))]),
    }
}

async fn question(events: &mut tokio::sync::broadcast::Receiver<std::sync::Arc<SessionEvent>>) -> Question {
    match until(events, |event| matches!(event, SessionEvent::Approval { .. })).await {
        SessionEvent::Approval { question, .. } => question,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn question_can_be_answered_yes_no_or_always() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), supervised(60), script).await;
    let key = world.key();
    let mut events = world.sessions.listen(&key);
    let first = world.send("one").await;
    let asked = question(&mut events).await;
    assert_eq!((asked.tool.as_str(), &asked.input), ("note", &json!({"text": "x"})));
    assert_eq!(world.notes().len(), 0, "nothing runs before the answer");
    let wrong = world.sessions.answer(&key, Some("nope".into()), ApprovalDecision::Yes, "operator").await;
    assert!(wrong.unwrap_err().to_string().contains(&asked.id));
    world.command(&format!("/approve {}", asked.id)).await;
    assert_eq!(final_text(&settled(&mut events, &first).await), "noted x");

    let second = world.send("two").await;
    question(&mut events).await;
    world.command("/no").await;
    let denied = settled(&mut events, &second).await;
    assert!(final_text(&denied).contains("the user said no"), "{denied:?}");
    assert_eq!(world.notes().len(), 1);

    let third = world.send("three").await;
    let asked = question(&mut events).await;
    let always = ApprovalDecision::Always {
        scope: GrantScope::Call,
        until: i64::MAX,
        reach: GrantReach::Session,
        grant: None,
    };
    world.sessions.answer(&key, Some(asked.id), always, "operator").await.unwrap();
    settled(&mut events, &third).await;
    assert_eq!(final_text(&world.ask("four").await), "noted x", "not asked again");
    assert_eq!(world.notes().len(), 3);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn question_survives_a_restart_and_its_call_runs_once() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), supervised(60), script).await;
    let mut events = world.sessions.listen(&world.key());
    let message = world.send("one").await;
    let asked = question(&mut events).await;
    world.stop().await;

    let world = World::open(folder.path(), supervised(60), script).await;
    world.sessions.resume().await.unwrap();
    let status = world.sessions.status(&world.key()).await.unwrap();
    assert_eq!(status.questions, std::slice::from_ref(&asked), "the same question with the same expiry");
    let mut events = world.sessions.listen(&world.key());
    world.sessions.answer(&world.key(), Some(asked.id), ApprovalDecision::Yes, "operator").await.unwrap();
    // The answer may arrive before the call asks again. In both cases it runs once.
    assert_eq!(final_text(&settled(&mut events, &message).await), "noted x");
    assert_eq!(world.notes().len(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswered_question_is_denied() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), supervised(0), script).await;
    let end = world.ask("one").await;
    assert!(final_text(&end).contains("the user did not answer in time"), "{end:?}");
    assert_eq!(world.notes().len(), 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_can_be_stopped_while_it_waits_for_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), supervised(60), script).await;
    let mut events = world.sessions.listen(&world.key());
    let message = world.send("one").await;
    let asked = question(&mut events).await;
    world.command("/stop").await;
    assert!(matches!(settled(&mut events, &message).await, SessionEvent::Stopped { .. }));
    let late = world.sessions.answer(&world.key(), Some(asked.id), ApprovalDecision::Yes, "operator").await;
    assert!(late.is_err(), "the question ended with its run");
    assert_eq!(world.notes().len(), 0);
    world.stop().await;
}

/// Asks the user with the tool `ask`.
fn asking(request: &gantry_model::Request) -> Result<gantry_model::Reply, gantry_agent::ModelFailure> {
    match results(request).last() {
        Some(answer) => says(answer),
        None => calls(&[("a", "ask", json!({"text": "Which colour?"}))]),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn question_to_the_user_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default(), asking).await;
    let key = world.key();
    let mut events = world.sessions.listen(&key);
    let message = world.send("paint it").await;
    until(&mut events, |event| matches!(event, SessionEvent::Asked { .. })).await;
    world.stop().await;
    let world = World::open(folder.path(), Setup::default(), asking).await;
    world.sessions.resume().await.unwrap();
    let status = world.sessions.status(&key).await.unwrap();
    assert_eq!(status.asks[0].questions[0].question, "Which colour?");
    let mut events = world.sessions.listen(&key);
    for wrong in [vec![], vec![" ".to_owned()], vec!["a".to_owned(), "b".to_owned()]] {
        assert!(world.sessions.reply(&key, None, wrong, "operator").await.is_err());
    }
    world
        .sessions
        .reply(&key, Some(status.asks[0].id.clone()), vec!["blue".into()], "operator")
        .await
        .unwrap();
    assert_eq!(final_text(&settled(&mut events, &message).await), "blue");
    assert!(
        world.sessions.reply(&key, None, vec!["red".into()], "operator").await.is_err(),
        "the question is closed"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn autonomous_agent_cannot_ask_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent { autonomy: Autonomy::Autonomous, ..Agent::default() };
    let world = World::open(folder.path(), Setup { agent, ..Setup::default() }, asking).await;
    assert_eq!(final_text(&world.ask("paint it").await), "nobody");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn always_has_a_duration_and_a_scope() {
    for (command, hours, scope) in
        [("/always", 5, GrantScope::Call), ("/always 2d any", 48, GrantScope::Tool)]
    {
        let folder = tempfile::tempdir().unwrap();
        let mut setup = supervised(60);
        setup.agent.always_hours = 5;
        let world = World::open(folder.path(), setup, script).await;
        let key = world.key();
        let mut events = world.sessions.listen(&key);
        let message = world.send("one").await;
        let asked = question(&mut events).await;
        for wrong in ["/always 0h", "/always 9999d"] {
            let refused = world.sessions.send(&key, crate::world::message(wrong)).await;
            assert!(refused.unwrap_err().to_string().contains("can last 1 to 8760 hours"), "{wrong}");
        }
        let answer = world.command(&format!("{command} {}", asked.id)).await;
        assert!(answer.contains("arguments until "), "{answer}");
        let event = until(&mut events, |event| matches!(event, SessionEvent::ApprovalAnswered { .. })).await;
        let SessionEvent::ApprovalAnswered {
            answer: ApprovalDecision::Always { scope: given, until, .. },
            ..
        } = event
        else {
            panic!("{event:?}")
        };
        let left = until - jiff::Timestamp::now().as_millisecond();
        assert_eq!((given, (left + 1_800_000) / 3_600_000), (scope, hours));
        settled(&mut events, &message).await;
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn always_expires() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), supervised(60), script).await;
    let (key, mut events) = (world.key(), world.sessions.listen(&world.key()));
    let first = world.send("one").await;
    question(&mut events).await;
    let soon = jiff::Timestamp::now().as_millisecond() + 300;
    let always = ApprovalDecision::Always {
        scope: GrantScope::Tool,
        until: soon,
        reach: GrantReach::Session,
        grant: None,
    };
    world.sessions.answer(&key, None, always, "operator").await.unwrap();
    settled(&mut events, &first).await;
    tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    world.send("two").await;
    question(&mut events).await;
    assert_eq!(world.notes().len(), 1, "asked again");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shortened_input_in_a_question_says_where_to_read_it() {
    let long = |request: &gantry_model::Request| match results(request).len() {
        0 => calls(&[("a", "note", json!({"text": format!("harmless{}evil", " ".repeat(9_000))}))]),
        1 => calls(&[("b", "note", json!({"text": "x"}))]),
        _ => says("done"),
    };
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), supervised(60), long).await;
    let mut events = world.sessions.listen(&world.key());
    let message = world.send("go").await;
    let asked = question(&mut events).await;
    let note = "5012 characters of the call are not shown here";
    assert!(
        asked.reason.contains(note) && asked.reason.contains("sessions questions agent:main:main"),
        "{asked:?}"
    );
    world.command("/no").await;
    let asked = question(&mut events).await;
    assert!(!asked.reason.contains("not shown"), "{asked:?}");
    world.command("/no").await;
    settled(&mut events, &message).await;
    world.stop().await;
}
