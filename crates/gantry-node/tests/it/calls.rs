//! Calls: answered, cancelled, interrupted, repeated, over the limit.

use std::sync::atomic::Ordering;
use std::time::Duration;

use gantry_protocol::{ErrorCode, event, method, raw};
use serde_json::{Value, json};

use crate::gateway::{Gateway, LIMIT, Peer, params};
use crate::world::{Counts, World};

async fn joined() -> (Gateway, World, Peer) {
    let gateway = Gateway::bind().await;
    let world = World::start(gateway.url());
    let peer = gateway.accept_all().await;
    (gateway, world, peer)
}

fn waited(chars: usize) -> Value {
    json!({"tool": "Wait", "json": {"text": "x".repeat(chars)}})
}

#[tokio::test(flavor = "multi_thread")]
async fn call_runs_through_the_nodes_own_gate() {
    let (_gateway, world, peer) = joined().await;
    assert_eq!(peer.call("a", "Wait", json!({"ms": 0, "chars": 3})).await, Ok(waited(3)));
    let error = peer.call("b", "Wait", json!({"ms": "soon"})).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidInput);
    assert_eq!(error.details.unwrap()["violations"][0]["path"], "ms");
    assert_eq!(peer.call("c", "Wayt", json!({})).await.unwrap_err().code, ErrorCode::UnknownTool);
    // The node's log has the call under the gateway's id.
    let log = world.log.tail(100).unwrap().lines.join("\n");
    assert!(
        log.contains(r#""call":"a","phase":"begin""#) && log.contains(r#""call":"a","phase":"end""#),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_complete_for_bounded_surfaces() {
    let (_gateway, _world, peer) = joined().await;
    assert_eq!(peer.call("a", "Wait", json!({"ms": 0, "chars": 200_000})).await, Ok(waited(200_000)));
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_reaches_the_tool_and_is_answered() {
    let (_gateway, world, peer) = joined().await;
    let request =
        peer.link.request(method::TOOL_CALL, raw(&params("a", "Wait", &json!({"ms": 60_000}))), None);
    tokio::select! {
        _ = request => panic!("it waits for a minute"),
        () = Counts::reach(&world.counts.started, 1) => {}
    }
    // Dropping the request has sent the cancel frame.
    Counts::reach(&world.counts.cancelled, 1).await;
    assert_eq!(peer.call("a", "Wait", json!({"ms": 0})).await.unwrap_err().code, ErrorCode::Conflict);
    assert_eq!(world.started(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_survives_a_lost_connection_and_runs_once() {
    let (gateway, world, peer) = joined().await;
    let link = peer.link.clone();
    let input = json!({"ms": 400, "chars": 2});
    let first = tokio::spawn(async move {
        link.request(method::TOOL_CALL, raw(&params("a", "Wait", &input)), None).await
    });
    Counts::reach(&world.counts.started, 1).await;
    peer.cut().await;
    first.abort();
    let peer = gateway.accept_all().await;
    assert_eq!(peer.hello().calls, ["a"]);
    // Two concurrent requests and a later one join the same call.
    let input = json!({"ms": 400, "chars": 2});
    let (one, two) =
        tokio::join!(peer.call("a", "Wait", input.clone()), peer.call("a", "Wait", input.clone()));
    assert_eq!((one, two), (Ok(waited(2)), Ok(waited(2))));
    assert_eq!(peer.call("a", "Wait", input).await, Ok(waited(2)));
    assert_eq!((world.started(), world.counts.cancelled.load(Ordering::SeqCst)), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_held_until_it_is_acknowledged() {
    let (gateway, world, peer) = joined().await;
    assert_eq!(peer.call("a", "Wait", json!({"ms": 0, "chars": 1})).await, Ok(waited(1)));
    peer.cut().await;
    let peer = gateway.accept_all().await;
    assert_eq!(peer.hello().calls, ["a"]);
    assert_eq!(peer.call("a", "Wait", json!({"ms": 0, "chars": 1})).await, Ok(waited(1)));
    peer.acknowledge("a").await;
    // Later frames on the same connection arrive after it.
    peer.call("b", "Wait", json!({"ms": 0})).await.unwrap();
    peer.acknowledge("b").await;
    assert_eq!(peer.call("a", "Wait", json!({"ms": 0})).await.unwrap_err().code, ErrorCode::Conflict);
    peer.cut().await;
    assert_eq!(gateway.accept_all().await.hello().calls, Vec::<String>::new());
    assert_eq!(world.started(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn unwanted_calls_are_cancelled_on_reconnect() {
    let (gateway, world, peer) = joined().await;
    let input = json!({"ms": 60_000});
    for id in ["wanted", "unwanted"] {
        let (link, params) = (peer.link.clone(), raw(&params(id, "Wait", &input)));
        tokio::spawn(async move { link.request(method::TOOL_CALL, params, None).await });
    }
    Counts::reach(&world.counts.started, 2).await;
    peer.cut().await;
    let peer = gateway.accept(|id| id == "wanted").await;
    Counts::reach(&world.counts.cancelled, 1).await;
    peer.cut().await;
    let peer = gateway.accept_all().await;
    assert_eq!(peer.hello().calls, ["wanted"]);
    assert_eq!(world.counts.cancelled.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_are_limited_and_all_are_answered() {
    let (_gateway, world, peer) = joined().await;
    let calls = (0..40).map(|number| {
        let link = peer.link.clone();
        let params = raw(&params(&format!("c{number}"), "Wait", &json!({"ms": 10})));
        tokio::spawn(async move { link.request_within(method::TOOL_CALL, params, LIMIT).await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    assert_eq!(world.started(), 40);
    assert_eq!(world.counts.most_running.load(Ordering::SeqCst), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_deadline_applies_to_the_call() {
    let (_gateway, world, peer) = joined().await;
    let params = raw(&params("a", "Wait", &json!({"ms": 60_000})));
    let deadline = std::time::Instant::now() + Duration::from_millis(100);
    let answer = tokio::time::timeout(LIMIT, peer.link.request(method::TOOL_CALL, params, Some(deadline)));
    let error = answer.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("deadline"), "{error}");
    assert_eq!(world.counts.cancelled.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_reported_and_rate_limited() {
    let (_gateway, _world, peer) = joined().await;
    peer.call("a", "Wait", json!({"ms": 0, "reports": 500})).await.unwrap();
    let first = peer.seen.sent_event(event::CALL_PROGRESS).await;
    assert_eq!(first, json!({"call": "a", "done": 1, "total": 500, "message": "steps"}));
    let count = peer.seen.events(event::CALL_PROGRESS);
    assert!((2..=5).contains(&count), "{count}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_calls_are_rejected_with_a_message() {
    let (_gateway, world, peer) = joined().await;
    let ask = async |method: &str, params: Value| {
        peer.link.request_within(method, raw(&params), LIMIT).await.unwrap_err().to_string()
    };
    assert!(ask("tool.call", json!({"callId": "a"})).await.contains("missing field"));
    assert!(ask("tool.call", json!(7)).await.contains("not valid"));
    assert!(ask("connect", json!({})).await.contains("unknown method"));
    let mut odd = serde_json::to_value(params("a", "Wait", &json!({"ms": 0}))).unwrap();
    odd["caller"]["principal"] = json!("root");
    assert!(ask("tool.call", odd.clone()).await.contains("principal"));
    odd["caller"]["principal"] = json!("operator");
    odd["callId"] = json!("x".repeat(100));
    assert!(ask("tool.call", odd).await.contains("call id"));
    assert_eq!(world.started(), 0);
}
