//! Runs: messages, answers and slash commands.

use gantry_agent::{Agent, ModelFailure, NewMessage, ResetPolicy, Sent, SessionError, SessionEvent};
use gantry_tool::Autonomy;
use serde_json::json;

use crate::world::{
    PATIENCE, Setup, World, calls, final_text, message, results, says, settled, texts, until,
};

#[tokio::test(flavor = "multi_thread")]
async fn run_with_tools_is_recorded_in_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default(), |request| match results(request).len() {
        0 => calls(&[("a", "note", json!({"text": "one"})), ("b", "look", json!({"text": "two"}))]),
        _ => says("done"),
    })
    .await;
    let mut events = world.sessions.listen(&world.key());
    let message = world.send("do it").await;
    let mut seen = Vec::new();
    loop {
        let event = tokio::time::timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
        seen.push(event.name());
        if event.settles(&message) {
            let SessionEvent::Final { text, messages, .. } = &*event else { panic!("{event:?}") };
            assert_eq!((text.as_str(), &messages[0].reply_to), ("done", &json!({"for": "do it"})));
            break;
        }
    }
    assert_eq!(seen, ["run_begun", "tool_start", "tool_start", "tool_end", "tool_end", "text", "final"]);
    let kinds = world.kinds().await;
    assert_eq!(
        kinds,
        [
            "message_in",
            "run_begun",
            "joined",
            "request_begun",
            "replied",
            "call_begun",
            "call_begun",
            "call_ended",
            "call_ended",
            "request_begun",
            "replied",
            "run_ended"
        ]
    );
    let mut notes = world.notes();
    notes.sort();
    assert_eq!(notes, ["one", "two"]);
    assert!(world.command("/status").await.contains("no run is in progress"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_during_a_run_join_it_and_keep_their_address() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default(), |request| match results(request).len() {
        0 => calls(&[("a", "note", json!({"text": "slow", "ms": 300}))]),
        _ => says(&texts(request).join(" + ")),
    })
    .await;
    let mut events = world.sessions.listen(&world.key());
    let first = world.send("first").await;
    until(&mut events, |event| matches!(event, SessionEvent::ToolStart { .. })).await;
    let second = world.send("second").await;
    let end = settled(&mut events, &second).await;
    assert!(end.settles(&first));
    let SessionEvent::Final { text, messages, .. } = &end else { panic!("{end:?}") };
    assert_eq!(text, "first + second");
    let addresses: Vec<_> = messages.iter().map(|message| message.reply_to["for"].clone()).collect();
    assert_eq!(addresses, ["first", "second"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_message_returns_the_first_answer() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default(), |_| says("hello")).await;
    let key = world.key();
    let again = || NewMessage { id: Some("m1".into()), ..message("hi") };
    let mut events = world.sessions.listen(&key);
    assert!(matches!(world.sessions.send(&key, again()).await.unwrap(), Sent::Accepted { .. }));
    settled(&mut events, "m1").await;
    let Sent::Settled { event, .. } = world.sessions.send(&key, again()).await.unwrap() else { panic!() };
    assert_eq!(final_text(&event), "hello");
    assert_eq!(world.kinds().await.iter().filter(|kind| *kind == "message_in").count(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_run_leaves_an_unknown_outcome_for_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default(), |request| match results(request).as_slice() {
        [] => calls(&[("a", "note", json!({"text": "long", "ms": 60_000}))]),
        [only, ..] => says(only),
    })
    .await;
    let mut events = world.sessions.listen(&world.key());
    let first = world.send("go").await;
    until(&mut events, |event| matches!(event, SessionEvent::ToolStart { .. })).await;
    world.noted(1).await;
    assert_eq!(world.command("/stop").await, "the run is stopped");
    assert!(matches!(settled(&mut events, &first).await, SessionEvent::Stopped { .. }));
    let end = world.ask("and now?").await;
    assert!(final_text(&end).contains("outcome is unknown"), "{end:?}");
    assert_eq!(world.notes().len(), 1, "it was not run again");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_change_the_session_and_invalid_ones_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default(), |request| {
        says(&format!("{} {}", request.model, request.messages.len()))
    })
    .await;
    assert_eq!(final_text(&world.ask("one").await), "scripted 1");
    assert_eq!(world.command("/model other").await, "the model is now other");
    assert_eq!(final_text(&world.ask("two").await), "other 3");
    let key = world.key();
    for wrong in ["/model none", "/stopp", "", &"x".repeat(2 * 1024 * 1024)] {
        let refused = world.sessions.send(&key, message(wrong)).await;
        assert!(matches!(refused, Err(SessionError::Refused(_))), "{wrong:.20}");
    }
    let mut events = world.sessions.listen(&key);
    world.command("/compact").await;
    until(&mut events, |event| matches!(event, SessionEvent::Compacted { .. })).await;
    assert_eq!(final_text(&world.ask("three").await), "other 1", "the summary and the message are one");
    world.command("/new").await;
    assert_eq!(final_text(&world.ask("four").await), "other 1");
    assert!(world.kinds().await.len() > 15, "the journal keeps everything");
    assert!(matches!(
        world.sessions.key("agent:mian:main", None),
        Err(SessionError::UnknownAgent { near: Some(_), .. })
    ));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_run_is_reported_and_the_next_one_works() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default(), |request| {
        let last = texts(request).pop().unwrap();
        match (last.as_str(), results(request).len()) {
            ("fail", _) => Err(ModelFailure::Failed("the provider is down".into())),
            ("loop", _) => calls(&[("a", "look", json!({"text": "same"}))]),
            ("wrong", 0) => calls(&[("a", "look", json!({"txt": "x"})), ("a", "nothing", json!({}))]),
            (_, _) => says(&results(request).join("\n")),
        }
    })
    .await;
    let failed = world.ask("fail").await;
    assert!(
        matches!(&failed, SessionEvent::Error { message, .. } if message.contains("provider is down")),
        "{failed:?}"
    );
    let looped = world.ask("loop").await;
    assert!(
        matches!(&looped, SessionEvent::Error { message, .. } if message.contains("was called repeatedly")),
        "{looped:?}"
    );
    assert_eq!(world.notes().len(), 4, "three times, and once after the advice");
    world.command("/new").await;
    let end = world.ask("wrong").await;
    let text = final_text(&end);
    assert!(text.contains("txt") && text.contains("unknown tool"), "{text}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_finish_when_the_gateway_stops_and_the_run_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let script = |request: &gantry_model::Request| match results(request).len() {
        0 => calls(&[
            ("a", "note", json!({"text": "slow", "ms": 150})),
            ("b", "note", json!({"text": "endless", "ms": 60_000})),
        ]),
        _ => says(&results(request).join("\n")),
    };
    let world = World::open(folder.path(), Setup::default(), script).await;
    let mut events = world.sessions.listen(&world.key());
    let message = world.send("go").await;
    until(&mut events, |event| matches!(event, SessionEvent::ToolStart { call, .. } if call == "b")).await;
    world.noted(2).await;
    world.stop().await;
    let world = World::open(folder.path(), Setup::default(), script).await;
    let mut events = world.sessions.listen(&world.key());
    assert_eq!(world.sessions.resume().await.unwrap(), 1);
    let end = settled(&mut events, &message).await;
    let text = final_text(&end);
    assert!(text.contains("noted slow") && text.contains("interrupted: the gateway stopped"), "{text}");
    assert_eq!(world.notes().len(), 2, "no effect happened twice");
    assert_eq!(world.sessions.resume().await.unwrap(), 0, "no work is left");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_conversation_is_reset_and_the_journal_stays() {
    let folder = tempfile::tempdir().unwrap();
    let agent =
        Agent { reset: ResetPolicy::Idle { minutes: 0 }, autonomy: Autonomy::Guided, ..Agent::default() };
    let setup = Setup { agent, ..Setup::default() };
    let world = World::open(folder.path(), setup, |request| says(&request.messages.len().to_string())).await;
    assert_eq!(final_text(&world.ask("one").await), "1");
    assert_eq!(final_text(&world.ask("two").await), "1");
    let kinds = world.kinds().await;
    assert!(kinds.contains(&"reset".to_owned()) && kinds[0] == "message_in", "{kinds:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn message_without_a_model_is_answered_with_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent { model: Some("none".into()), ..Agent::default() };
    let world = World::open(folder.path(), Setup { agent, ..Setup::default() }, |_| says("?")).await;
    let end = world.ask("hi").await;
    assert!(
        matches!(&end, SessionEvent::Error { message, .. } if message == "no model is configured"),
        "{end:?}"
    );
    world.stop().await;
}

/// A notice starts no run. The model sees it once, with the next message, and its labels come with it.
#[tokio::test(flavor = "multi_thread")]
async fn notice_starts_no_run_and_reaches_the_model_once_with_its_labels() {
    let folder = tempfile::tempdir().unwrap();
    let script = |request: &gantry_model::Request| {
        let seen = texts(request).iter().filter(|text| text.contains("[notice from cron:j1")).count();
        says(&format!("seen {seen}"))
    };
    let world = World::open(folder.path(), Setup::default(), script).await;
    let key = world.key();
    let notice = |id: &str| gantry_agent::Notice {
        id: id.into(),
        from: "cron:j1".into(),
        text: "the backup is done".into(),
        at: 1,
        labels: vec![gantry_tool::Label::Untrusted],
    };
    let mut events = world.sessions.listen(&key);
    assert!(world.sessions.notify(&key, notice("n1")).await.unwrap());
    assert!(!world.sessions.notify(&key, notice("n1")).await.unwrap(), "a repetition changes nothing");
    until(&mut events, |event| matches!(event, SessionEvent::Notice { text, .. } if text.contains("backup")))
        .await;
    assert!(world.model.requests.lock().unwrap().is_empty());
    assert!(world.sessions.status(&key).await.unwrap().labels.is_empty());
    world.stop().await;

    // It waits over a restart.
    let world = World::open(folder.path(), Setup::default(), script).await;
    assert!(!world.sessions.notify(&key, notice("n1")).await.unwrap());
    assert_eq!(final_text(&world.ask("hello").await), "seen 1");
    assert_eq!(world.sessions.status(&key).await.unwrap().labels, [gantry_tool::Label::Untrusted]);
    assert_eq!(final_text(&world.ask("again").await), "seen 1");
    world.stop().await;
}
