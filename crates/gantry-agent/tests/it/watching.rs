//! The view of people: how calls ended, labels of conversations, and found tools.

use gantry_agent::{NewMessage, SessionEvent};
use serde_json::json;

use crate::world::{Setup, World, calls, message, results, says, until};

#[tokio::test(flavor = "multi_thread")]
async fn failed_command_is_reported_without_the_models_marks() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default(), |request| match results(request).len() {
        0 => calls(&[("a", "command", json!({"text": "tests failed", "ms": 101}))]),
        1 => calls(&[("b", "command", json!({"text": "fine"}))]),
        2 => calls(&[("c", "note", json!({"wrong": 1}))]),
        _ => {
            assert!(results(request)[0].starts_with("[untrusted "), "the model has the marks");
            says("done")
        }
    })
    .await;
    let mut events = world.sessions.listen(&world.key());
    world.send("go").await;
    let mut ends = Vec::new();
    for _ in 0..3 {
        let event = until(&mut events, |event| matches!(event, SessionEvent::ToolEnd { .. })).await;
        let SessionEvent::ToolEnd { failed, is_error, exit_code, result, .. } = event else { panic!() };
        assert!(!result.contains("untrusted"), "{result}");
        ends.push((failed, is_error, exit_code, result));
    }
    assert_eq!((ends[0].0, ends[0].1, ends[0].2), (true, false, Some(101)));
    assert_eq!(ends[0].3, r#"{"exitCode":101,"output":"tests failed"}"#);
    assert_eq!((ends[1].0, ends[1].1, ends[1].2), (false, false, Some(0)));
    assert_eq!((ends[2].0, ends[2].1, ends[2].2), (true, true, None));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn label_of_a_conversation_is_its_first_message() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default(), |_| says("yes")).await;
    let label = async || world.sessions.list(10, 0).await.unwrap().0[0].label.clone().unwrap();
    world.ask("Why does\n  the build fail?").await;
    world.ask("And the tests?").await;
    assert_eq!(label().await, "Why does the build fail?");
    world.command("/new").await;
    world.ask(&"word ".repeat(40)).await;
    let label = label().await;
    assert!(label.starts_with("word word") && label.ends_with('…') && label.chars().count() <= 61, "{label}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limit_between_agents_covers_all_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default(), |_| says("noted")).await;
    let send = async |number: usize| {
        let key = world.sessions.key(&format!("inbox-{number}"), None).unwrap();
        let from = format!("agent:helper:s{number}");
        world.sessions.send(&key, NewMessage { from, ..message("hello") }).await
    };
    for number in 0..10 {
        send(number).await.unwrap();
    }
    let refused = send(10).await.unwrap_err().to_string();
    assert!(refused.contains("helper has sent 10 messages to main within a minute"), "{refused}");
    world.ask("people are not counted").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn found_tool_is_offered_for_the_rest_of_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = Setup::default();
    setup.agent.shown = gantry_tool::ToolScope::new(Some(&["look".to_owned()]), &[]).unwrap();
    let world = World::open(folder.path(), setup, |request| {
        let offered: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
        match results(request).len() {
            0 => {
                assert_eq!(offered, ["look", "tool_search"]);
                calls(&[("a", "tool_search", json!({"query": "note"}))])
            }
            1 => {
                assert_eq!(offered, ["look", "note", "tool_search"]);
                calls(&[("b", "note", json!({"text": "x"}))])
            }
            _ => says(&format!("{} {}", results(request).join(" "), offered.join(" "))),
        }
    })
    .await;
    let end = world.ask("note it").await;
    let text = crate::world::final_text(&end);
    assert!(text.contains("noted x") && text.ends_with("look note tool_search"), "{text}");
    let audited = world.audit.records().iter().filter(|(record, _)| record.tool == "tool_search").count();
    assert_eq!(audited, 2, "the search went through the gate");
    world.stop().await;
    // The next process still offers it.
    let mut setup = Setup::default();
    setup.agent.shown = gantry_tool::ToolScope::new(Some(&["look".to_owned()]), &[]).unwrap();
    let world = World::open(folder.path(), setup, |request| {
        says(&request.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(" "))
    })
    .await;
    assert_eq!(crate::world::final_text(&world.ask("again").await), "look note tool_search");
    world.stop().await;
}
