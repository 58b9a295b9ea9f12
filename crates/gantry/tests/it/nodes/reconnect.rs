//! A running call survives the loss of its connection and is answered once.

use std::time::{Duration, Instant};

use gantry_testkit::peers::{Client, Node, runtime};
use gantry_testkit::{Gateway, Random, World, eventually, is_soak};
use serde_json::json;

#[test]
fn call_is_answered_over_the_next_connection() {
    let world = World::new();
    let up = Gateway::start(&world);
    let node = Node::new("box", &up.add_node(&world, "box", &[]));
    let runtime = runtime();
    let first = runtime.block_on(node.join(&up));
    let mut calling = up.connection();
    calling.begin(&up, "POST", "/v1/tools/box__Sleep", &[], br#"{"ms": 800}"#);
    eventually("it runs", Duration::from_secs(2), || node.runs() == 1);
    first.close(gantry_protocol::CloseReason::Done);
    eventually("it is offline", Duration::from_secs(2), || up.node("box")["online"] == false);
    assert_eq!(up.node("box")["inFlight"], 1);
    let (second, hello) = runtime.block_on(node.connect(&up)).unwrap();
    assert_eq!(hello.wanted, node.kept(), "the gateway still waits for it");
    runtime.block_on(async {
        let tools = gantry_protocol::raw(&gantry_testkit::peers::tools());
        second.request_within("node.tools", tools, Duration::from_secs(5)).await.unwrap();
    });
    let answer = calling.read().unwrap();
    assert_eq!((answer.status, &answer.json()["slept"]), (200, &json!(true)), "{}", answer.text());
    assert_eq!(node.runs(), 1, "it ran once");
    eventually("it is acknowledged", Duration::from_secs(1), || node.kept().is_empty());
    assert_eq!(node.acked.lock().unwrap().len(), 1);
}

#[test]
fn result_ready_while_disconnected_is_delivered() {
    let world = World::new();
    let up = Gateway::start(&world);
    let node = Node::new("box", &up.add_node(&world, "box", &[]));
    let runtime = runtime();
    let first = runtime.block_on(node.join(&up));
    let mut calling = up.connection();
    calling.begin(&up, "POST", "/v1/tools/box__Sleep", &[], br#"{"ms": 200}"#);
    eventually("it runs", Duration::from_secs(2), || node.runs() == 1);
    first.close(gantry_protocol::CloseReason::Done);
    std::thread::sleep(Duration::from_millis(500));
    let _second = runtime.block_on(node.join(&up));
    assert_eq!(calling.read().unwrap().status, 200);
    assert_eq!(node.runs(), 1);
}

#[test]
fn restarted_node_fails_its_old_calls_at_once() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "box", &[]);
    let node = Node::new("box", &token);
    let runtime = runtime();
    let first = runtime.block_on(node.join(&up));
    let mut calling = up.connection();
    calling.begin(&up, "POST", "/v1/tools/box__Sleep", &[], b"{}");
    eventually("it runs", Duration::from_secs(2), || node.runs() == 1);
    first.close(gantry_protocol::CloseReason::Done);
    let next_start = Node::new("box", &token);
    let began = Instant::now();
    let _second = runtime.block_on(next_start.join(&up));
    let answer = calling.read().unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (503, "unavailable"));
    assert!(answer.text().contains("restarted during the call"), "{}", answer.text());
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(next_start.runs(), 0, "it is not run again");
}

#[test]
fn call_fails_at_its_deadline_when_the_node_stays_away() {
    let world = World::new();
    let up = Gateway::start(&world);
    let node = Node::new("box", &up.add_node(&world, "box", &[]));
    let runtime = runtime();
    let link = runtime.block_on(node.join(&up));
    let mut calling = up.connection();
    calling.begin(&up, "POST", "/v1/tools/box__Sleep", &[("Gantry-Deadline-Ms", "1500")], b"{}");
    eventually("it runs", Duration::from_secs(2), || node.runs() == 1);
    link.close(gantry_protocol::CloseReason::Done);
    let began = Instant::now();
    let answer = calling.read().unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (504, "deadline"));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let (_again, hello) = runtime.block_on(node.connect(&up)).unwrap();
    assert!(hello.wanted.is_empty(), "nobody waits for it any more");
    eventually("it is ended there", Duration::from_secs(1), || node.cancelled.lock().unwrap().len() == 1);
}

#[test]
fn replaced_connection_loses_no_calls() {
    let world = World::new();
    let up = Gateway::start(&world);
    let node = Node::new("box", &up.add_node(&world, "box", &[]));
    let runtime = runtime();
    let rounds = if is_soak() { 100 } else { 10 };
    let mut random = Random::new();
    runtime.block_on(async {
        let mut link = node.join(&up).await;
        let client = Client::operator(&up).await;
        for round in 0..rounds {
            let calls = (0..20).map(|call| client.call("box__Sleep", json!({"ms": (call * 7) % 60})));
            let cutting = async {
                tokio::time::sleep(Duration::from_millis(random.below(80) as u64)).await;
                link.close(gantry_protocol::CloseReason::Done);
                node.join(&up).await
            };
            let (answers, next) = tokio::join!(futures_util::future::join_all(calls), cutting);
            link = next;
            let failed: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
            // A call that comes while the node is away is refused at once, and has not run.
            assert!(failed.iter().all(|error| error.message.contains("is offline")), "{round}: {failed:?}");
        }
        let answered = node.acked.lock().unwrap().len();
        assert!(node.runs() >= answered && node.runs() <= rounds * 20, "{} runs", node.runs());
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(node.kept(), Vec::<String>::new(), "all are acknowledged");
    });
}
