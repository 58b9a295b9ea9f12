//! Orphaned children, limits of children, and sessions that are removed from memory.

use std::time::Duration;

use gantry_agent::{Agent, Entry, Spec};
use gantry_tool::{Autonomy, Call, Principal, Surface};
use serde_json::json;

use crate::world::{PATIENCE, Setup, World, calls, message, results, says, settled};

#[tokio::test(flavor = "multi_thread")]
async fn orphaned_child_is_stopped_after_a_restart_before_it_acts() {
    let folder = tempfile::tempdir().unwrap();
    let script = |request: &gantry_model::Request| match results(request).len() {
        0 => calls(&[("a", "note", json!({"text": "once", "ms": 60_000}))]),
        _ => calls(&[("b", "note", json!({"text": "never"}))]),
    };
    let world = World::open(folder.path(), Setup::default(), script).await;
    let mut call = Call::new(Principal::Operator, Surface::Http, folder.path().to_owned());
    call.autonomy = Autonomy::Guided;
    let spec = Spec { name: "scout".into(), task: "note it".into(), ..Spec::default() };
    let handle = world.sessions.start_child(&call, 0, &spec).await.unwrap();
    assert_eq!((handle.child.depth, handle.child.parent.as_str()), (1, "operator"));
    let key = handle.key.clone();
    world.noted(1).await;
    // The process ends while the call waits, so the child is not stopped.
    std::mem::forget(handle);
    world.stop().await;

    let world = World::open(folder.path(), Setup::default(), script).await;
    assert_eq!(world.sessions.resume().await.unwrap(), 1);
    let ended = async {
        loop {
            let events = world.journal.page(&key.key, 0, 1_000).await.unwrap();
            let last: Entry = serde_json::from_str(&events.last().unwrap().data).unwrap();
            if let Entry::RunEnded { end } = last {
                return end;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let end = tokio::time::timeout(PATIENCE, ended).await.unwrap();
    assert_eq!(json!(end), json!({"end": "stopped", "by": "the end of its parent's call"}));
    assert_eq!(world.notes(), ["once"]);
    assert!(world.model.requests.lock().unwrap().is_empty(), "the model is not asked again");
    world.stop().await;
}

/// Each message arrives while its session may be removed from memory.
#[tokio::test(flavor = "multi_thread")]
async fn message_to_a_session_that_leaves_memory_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { idle: Duration::from_millis(1), ..Setup::default() };
    let world = World::open(folder.path(), setup, |_| says("hello")).await;
    let rounds = gantry_testkit::scaled(2_000, 150);
    for round in 0..rounds {
        let key = world.sessions.key(&format!("s{}", round % 4), None).unwrap();
        let mut events = world.sessions.listen(&key);
        let message = gantry_agent::NewMessage { id: Some(format!("m{round}")), ..message("hi") };
        world.sessions.send(&key, message).await.unwrap();
        settled(&mut events, &format!("m{round}")).await;
        drop(events);
        tokio::time::sleep(Duration::from_micros(500 + 137 * (round % 20))).await;
        assert_eq!(world.sessions.status(&key).await.unwrap().queued, 0);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn children_of_an_autonomous_agent_cannot_ask() {
    let folder = tempfile::tempdir().unwrap();
    let script = |request: &gantry_model::Request| match results(request).last() {
        None => calls(&[("a", "note", json!({"text": "never"}))]),
        Some(answer) => says(answer),
    };
    let agent = Agent { autonomy: Autonomy::Supervised, ..Agent::default() };
    let world = World::open(folder.path(), Setup { agent, ..Setup::default() }, script).await;
    let mut call = Call::new(Principal::Operator, Surface::Http, folder.path().to_owned());
    let spec = Spec { name: "scout".into(), task: "note it".into(), ..Spec::default() };
    let mut above = None;
    // The parent of the first child is autonomous. The parent of the second is a child of an autonomous one.
    for autonomy in [Autonomy::Autonomous, Autonomy::Supervised] {
        (call.autonomy, call.session) = (autonomy, above.take());
        let handle = world.sessions.start_child(&call, 0, &spec).await.unwrap();
        above = Some(handle.key.key.clone());
        assert!(handle.child.unattended);
        let end = tokio::time::timeout(PATIENCE, handle.end()).await.unwrap();
        let answer = end.outcome.unwrap();
        assert!(answer.contains("no user can be asked"), "{answer}");
    }
    assert!(world.notes().is_empty());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn number_of_running_children_is_limited_by_parent_and_family() {
    let folder = tempfile::tempdir().unwrap();
    let script = |_: &gantry_model::Request| calls(&[("a", "note", json!({"text": "x", "ms": 600_000}))]);
    let world = World::open(folder.path(), Setup::default(), script).await;
    let mut call = Call::new(Principal::Operator, Surface::Http, folder.path().to_owned());
    call.autonomy = Autonomy::Guided;
    let spec = Spec { name: "scout".into(), task: "note it".into(), ..Spec::default() };
    let mut working = Vec::new();
    for index in 0..20 {
        working.push(world.sessions.start_child(&call, index, &spec).await.unwrap());
    }
    let error = |started: Result<_, gantry_agent::SessionError>| started.map(drop).unwrap_err().to_string();
    let refused = error(world.sessions.start_child(&call, 20, &spec).await);
    assert!(refused.contains("20 children are already running"), "{refused}");
    // Another parent has its own limit.
    for parent in 0..4 {
        (call.id, call.session) = (format!("call-{parent}"), Some(working[parent].key.key.clone()));
        for index in 0..20 {
            working.push(world.sessions.start_child(&call, index, &spec).await.unwrap());
        }
    }
    (call.id, call.session) = ("call-4".into(), Some(working[4].key.key.clone()));
    let refused = error(world.sessions.start_child(&call, 0, &spec).await);
    assert!(refused.contains("100 children are already running for operator"), "{refused}");
    // The process ends, so no child is stopped.
    working.into_iter().for_each(std::mem::forget);
    world.stop().await;
}
