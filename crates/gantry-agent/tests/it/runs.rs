//! Messages in, answers out, and what can be said in between.

use gantry_agent::{Agent, Event, ModelFailure, ResetPolicy, Said, Sent, SessionError};
use gantry_tool::Autonomy;
use serde_json::json;

use crate::world::{PATIENCE, Setup, World, calls, final_text, results, said, says, settled, texts, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_answered_with_tools_and_all_of_it_is_in_the_journal() {
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
        let name = gantry_protocol::SessionEvent::from((*event).clone()).name().to_owned();
        seen.push(name);
        if event.settles(&message) {
            let Event::Final { text, messages, .. } = &*event else { panic!("{event:?}") };
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
    assert!(world.command("/status").await.contains("no run is under way"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_during_a_run_join_it_and_keep_their_own_address() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default(), |request| match results(request).len() {
        0 => calls(&[("a", "note", json!({"text": "slow", "ms": 300}))]),
        _ => says(&texts(request).join(" + ")),
    })
    .await;
    let mut events = world.sessions.listen(&world.key());
    let first = world.send("first").await;
    until(&mut events, |event| matches!(event, Event::ToolStart { .. })).await;
    let second = world.send("second").await;
    let end = settled(&mut events, &second).await;
    assert!(end.settles(&first));
    let Event::Final { text, messages, .. } = &end else { panic!("{end:?}") };
    assert_eq!(text, "first + second");
    let addresses: Vec<_> = messages.iter().map(|message| message.reply_to["for"].clone()).collect();
    assert_eq!(addresses, ["first", "second"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_sent_twice_is_one_and_its_answer_can_be_had_again() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default(), |_| says("hello")).await;
    let key = world.key();
    let again = || Said { id: Some("m1".into()), ..said("hi") };
    let mut events = world.sessions.listen(&key);
    assert!(matches!(world.sessions.send(&key, again()).await.unwrap(), Sent::Accepted { .. }));
    settled(&mut events, "m1").await;
    let Sent::Settled { event, .. } = world.sessions.send(&key, again()).await.unwrap() else { panic!() };
    assert_eq!(final_text(&event), "hello");
    assert_eq!(world.kinds().await.iter().filter(|kind| *kind == "message_in").count(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_can_be_stopped_and_the_next_one_hears_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default(), |request| match results(request).as_slice() {
        [] => calls(&[("a", "note", json!({"text": "long", "ms": 60_000}))]),
        [only, ..] => says(only),
    })
    .await;
    let mut events = world.sessions.listen(&world.key());
    let first = world.send("go").await;
    until(&mut events, |event| matches!(event, Event::ToolStart { .. })).await;
    world.noted(1).await;
    assert_eq!(world.command("/stop").await, "the run is stopped");
    assert!(matches!(settled(&mut events, &first).await, Event::Stopped { .. }));
    let told = world.ask("and now?").await;
    assert!(final_text(&told).contains("outcome is unknown"), "{told:?}");
    assert_eq!(world.notes().len(), 1, "it was not run again");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_change_the_session_and_wrong_ones_say_so() {
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
        let refused = world.sessions.send(&key, said(wrong)).await;
        assert!(matches!(refused, Err(SessionError::Refused(_))), "{wrong:.20}");
    }
    let mut events = world.sessions.listen(&key);
    world.command("/compact").await;
    until(&mut events, |event| matches!(event, Event::Compacted { .. })).await;
    assert_eq!(final_text(&world.ask("three").await), "other 1", "the summary and the message are one");
    world.command("/new").await;
    assert_eq!(final_text(&world.ask("four").await), "other 1");
    assert!(world.kinds().await.len() > 15, "nothing was wiped");
    assert!(matches!(
        world.sessions.key("agent:mian:main", None),
        Err(SessionError::UnknownAgent { near: Some(_), .. })
    ));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_is_told_and_does_not_stick() {
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
        matches!(&failed, Event::Error { message, .. } if message.contains("provider is down")),
        "{failed:?}"
    );
    let looped = world.ask("loop").await;
    assert!(
        matches!(&looped, Event::Error { message, .. } if message.contains("again and again")),
        "{looped:?}"
    );
    assert_eq!(world.notes().len(), 4, "three times, and once after the advice");
    world.command("/new").await;
    let told = world.ask("wrong").await;
    let told = final_text(&told);
    assert!(told.contains("txt") && told.contains("unknown tool"), "{told}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_of_the_gateway_lets_calls_finish_and_the_next_one_goes_on() {
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
    until(&mut events, |event| matches!(event, Event::ToolStart { call, .. } if call == "b")).await;
    world.noted(2).await;
    world.stop().await;
    let world = World::open(folder.path(), Setup::default(), script).await;
    let mut events = world.sessions.listen(&world.key());
    assert_eq!(world.sessions.resume().await.unwrap(), 1);
    let end = settled(&mut events, &message).await;
    let text = final_text(&end);
    assert!(text.contains("noted slow") && text.contains("interrupted: the gateway ended"), "{text}");
    assert_eq!(world.notes().len(), 2, "nothing was done twice");
    assert_eq!(world.sessions.resume().await.unwrap(), 0, "nothing is left to do");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_begins_anew_after_a_while_and_nothing_is_wiped() {
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
async fn without_a_model_the_message_is_answered_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent { model: Some("none".into()), ..Agent::default() };
    let world = World::open(folder.path(), Setup { agent, ..Setup::default() }, |_| says("?")).await;
    let told = world.ask("hi").await;
    assert!(matches!(&told, Event::Error { message, .. } if message == "there is no model"), "{told:?}");
    world.stop().await;
}
