//! How a gateway stops, and that each data directory has at most one.

use std::time::{Duration, Instant};

use gantry_testkit::peers::{Client, Node, runtime};
use gantry_testkit::{Gateway, World, eventually};
use rustix::process::Signal;
use serde_json::json;

#[test]
fn stopping_gateway_answers_running_calls() {
    let world = World::new();
    let mut up = Gateway::start(&world);
    let mut calling = up.connection();
    let body = json!({"command": "touch began; sleep 1; echo done"}).to_string();
    calling.begin(&up, "POST", "/v1/tools/local__Bash", &[], body.as_bytes());
    let runtime = runtime();
    let client = runtime.block_on(Client::operator(&up));
    let over_socket = runtime.spawn(async move {
        let answer = client.call("local__Bash", json!({"command": "sleep 1; echo done"})).await;
        (answer, client.link.closed().await)
    });
    eventually("it runs", Duration::from_secs(5), || world.workspace().join("began").exists());
    let began = Instant::now();
    up.signal(Signal::TERM);
    let answer = calling.read().unwrap();
    assert_eq!((answer.status, answer.text().contains("done")), (200, true), "{}", answer.text());
    let (answer, reason) = runtime.block_on(over_socket).unwrap();
    assert!(answer.unwrap()["json"]["output"].as_str().unwrap().contains("done"));
    assert_eq!(reason.reason, Some(gantry_protocol::CloseReason::Stopping), "{reason}");
    assert_eq!(up.wait(Duration::from_secs(5)), Some(0));
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[test]
fn stopping_gateway_ends_calls_that_exceed_the_drain_limit() {
    let world = World::new();
    let mut up = Gateway::start_with(&world, "up", &["--set", "gateway.drainSeconds=1"]);
    let token = up.add_node(&world, "box", &[]);
    let runtime = runtime();
    let node = Node::new("box", &token);
    let link = runtime.block_on(node.join(&up));
    let mut local = up.connection();
    let body = json!({"command": "touch began; sleep 61"}).to_string();
    local.begin(&up, "POST", "/v1/tools/local__Bash", &[], body.as_bytes());
    let mut remote = up.connection();
    remote.begin(&up, "POST", "/v1/tools/box__Sleep", &[], b"{}");
    let client = runtime.block_on(Client::operator(&up));
    let over_socket = runtime.spawn(async move { client.call("box__Sleep", json!({})).await });
    eventually("all run", Duration::from_secs(5), || {
        world.workspace().join("began").exists() && node.runs() == 2
    });
    let began = Instant::now();
    up.signal(Signal::TERM);
    for connection in [&mut local, &mut remote] {
        let answer = connection.read().unwrap();
        assert_eq!((answer.status, answer.code().as_str()), (503, "unavailable"));
        let said = answer.text();
        assert!(said.contains("the gateway is stopping") && said.contains("outcome is unknown"), "{said}");
    }
    let refused = runtime.block_on(over_socket).unwrap().unwrap_err();
    assert_eq!((refused.code.name(), refused.retryable), ("unavailable", true), "{refused}");
    assert!(refused.message.contains("the gateway is stopping"), "{refused}");
    assert_eq!(node.cancelled.lock().unwrap().len(), 2, "the cancel reached the node");
    assert_eq!(runtime.block_on(link.closed()).reason, Some(gantry_protocol::CloseReason::Stopping));
    assert_eq!(up.wait(Duration::from_secs(10)), Some(0));
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    let left = std::process::Command::new("pgrep").args(["-f", "^sleep 61$"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout), "", "the command is ended too");
}

#[test]
fn stopping_gateway_rejects_new_work() {
    let world = World::new();
    let mut up = Gateway::start(&world);
    let mut calling = up.connection();
    let body = json!({"command": "touch began; sleep 1.5"}).to_string();
    calling.begin(&up, "POST", "/v1/tools/local__Bash", &[], body.as_bytes());
    let runtime = runtime();
    let client = runtime.block_on(Client::operator(&up));
    eventually("it runs", Duration::from_secs(5), || world.workspace().join("began").exists());
    up.signal(Signal::TERM);
    eventually("it takes no connections", Duration::from_secs(1), || {
        std::net::TcpStream::connect(up.address).is_err()
    });
    let refused = runtime.block_on(client.call("local__Read", json!({"path": "began"}))).unwrap_err();
    assert_eq!((refused.code.name(), refused.retryable), ("unavailable", true), "{refused}");
    assert_eq!(calling.read().unwrap().status, 200);
    assert_eq!(up.wait(Duration::from_secs(5)), Some(0));
}

#[test]
fn second_start_reports_the_running_gateway() {
    let world = World::new();
    let up = Gateway::start(&world);
    let second = world.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.code, 1);
    assert!(second.stderr.contains(&up.url), "{}", second.stderr);
    assert!(second.stderr.contains(&up.pid().to_string()), "{}", second.stderr);
    up.kill();
    // The lock of a killed gateway does not block the next one.
    let up = Gateway::start(&world);
    assert_eq!(up.get("/health").status, 200);
}

#[test]
fn serve_has_no_local_node() {
    let world = World::new();
    let up = Gateway::start_with(&world, "serve", &[]);
    let tools = up.get("/v1/tools").json();
    let names: Vec<&str> =
        tools["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"gsv__ReadFile"), "{names:?}");
    for tool in ["Bash", "local__Bash", "bash", "exec", "read", "tool::shell_exec"] {
        assert!(!names.contains(&tool), "{tool}");
        assert_eq!(up.call(tool, &json!({"command": "true"})).status, 404, "{tool}");
    }
    assert_eq!(up.node("local"), json!(null));
    let token = up.add_node(&world, "box", &[]);
    let runtime = runtime();
    let node = Node::new("box", &token);
    let _link = runtime.block_on(node.join(&up));
    assert_eq!(up.call("Echo", &json!({"text": "hi"})).json()["node"], "box");
}
