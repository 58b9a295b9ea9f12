//! The WebSocket for clients: handshake, calls, progress, cancellation and permissions.

use std::time::{Duration, Instant};

use gantry_link::HandshakeError;
use gantry_protocol::{ErrorCode, ProtocolRange, Role, method, raw};
use gantry_testkit::peers::{Client, Node, Raw, answered, hello, params, runtime};
use gantry_testkit::{Gateway, World, eventually};
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[test]
fn connect_identifies_the_gateway_and_rejects_invalid_hellos() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.client_token(&world, "mine", &[]);
    runtime().block_on(async {
        let operator = Client::operator(&up).await;
        assert_eq!(operator.hello.protocol, gantry_protocol::PROTOCOL_VERSION);
        assert_eq!(operator.hello.workspace.as_deref(), world.workspace().to_str());
        assert!(!operator.hello.server.instance.is_empty() && operator.hello.server.now > 0);
        let client = Client::connect(&up, &token).await.unwrap();
        assert_eq!(client.hello.workspace, None, "only the operator hears where it works");
        let again = client.ask("connect", json!({})).await.unwrap_err();
        assert_eq!(again.code, ErrorCode::NotConnected);
        let refused = async |role, id: &str, token: &str, range, node| {
            let mut params = params(role, id, token, node);
            params.protocol = range;
            let error = gantry_testkit::peers::link(&up, &params, Node::new(id, token)).await.err();
            match error {
                Some(HandshakeError::Refused(error)) => error.code,
                other => panic!("{other:?}"),
            }
        };
        let ours = ProtocolRange::default();
        let later = ProtocolRange { min: 3, max: 9 };
        assert_eq!(refused(Role::Client, "c", "wrong", ours, None).await, ErrorCode::Unauthorized);
        assert_eq!(refused(Role::Client, "c", "", ours, None).await, ErrorCode::Unauthorized);
        assert_eq!(refused(Role::Client, "c", &up.token, later, None).await, ErrorCode::UnsupportedProtocol);
        assert_eq!(refused(Role::Channel, "c", &up.token, ours, None).await, ErrorCode::Forbidden);
        let node = Some(hello());
        assert_eq!(refused(Role::Node, "none", &up.token, ours, node).await, ErrorCode::Unauthorized);
    });
}

#[test]
fn unknown_fields_and_methods_get_an_error() {
    let world = World::new();
    let up = Gateway::start(&world);
    runtime().block_on(async {
        let client = Client::operator(&up).await;
        let code = async |method: &str, params| client.ask(method, params).await.unwrap_err().code;
        assert_eq!(code("tool.cal", json!({})).await, ErrorCode::UnknownMethod);
        assert_eq!(code("tool.call", json!({"tol": "x"})).await, ErrorCode::BadParams);
        assert_eq!(code("tool.call", json!([1])).await, ErrorCode::BadParams);
        assert_eq!(code("tools.get", json!({})).await, ErrorCode::BadParams);
        assert_eq!(code("tools.list", json!({"toolset": "x"})).await, ErrorCode::BadParams);
        assert_eq!(code("tools.get", json!({"name": "Raed"})).await, ErrorCode::UnknownTool);
        assert_eq!(code("results.read", json!({"handle": "res_x", "limit": 5})).await, ErrorCode::NotFound);
        assert_eq!(code("nodes.add", json!({"id": "a", "nope": 1})).await, ErrorCode::BadParams);
        for id in ["gsv", "tool", "local", "a__b", "A", "", "-a", "a b", "ä", &"x".repeat(33)] {
            let error = client.ask("nodes.add", json!({"id": id})).await.unwrap_err();
            assert_eq!(error.code, ErrorCode::Conflict, "{id}: {error}");
        }
        let mut raw = Raw::connected(&up, &params(Role::Client, "c", &up.token, None)).await;
        raw.say(r#"{"type": "hello", "id": 3}"#).await;
        let reported = raw.hear().await.unwrap();
        assert_eq!((&reported["id"], &reported["error"]["code"]), (&json!(3), &json!("bad_frame")));
        raw.say("{").await;
        let reported = raw.hear().await.unwrap();
        assert_eq!((&reported["event"], &reported["data"]["code"]), (&json!("error"), &json!("bad_frame")));
        raw.say(r#"{"type": "req", "id": 4, "method": "tools.list"}"#).await;
        assert_eq!(raw.hear().await.unwrap()["ok"], true, "parameters may be left out");
    });
}

#[test]
fn calls_answer_like_http() {
    let world = World::new();
    world.write("a.txt", "one\n");
    let up = Gateway::start(&world);
    runtime().block_on(async {
        let client = Client::operator(&up).await;
        let read = client.call("Read", json!({"path": "a.txt"})).await.unwrap();
        assert_eq!(read["json"], up.call("Read", &json!({"path": "a.txt"})).json());
        assert_eq!((&read["tool"], read.get("isError")), (&json!("local__Read"), None));
        let failed = client.call("Read", json!({"path": "missing"})).await.unwrap();
        assert_eq!(failed["isError"], true);
        let text = client.call("read_file", json!({"path": world.workspace().join("a.txt")})).await.unwrap();
        assert_eq!(text["text"], "one\n");
        let invalid = client.call("read", json!({"pth": 1})).await.unwrap_err();
        assert_eq!(invalid.code, ErrorCode::InvalidInput);
        assert_eq!(invalid.details.unwrap()["violations"].as_array().unwrap().len(), 2);
        let began = Instant::now();
        let late =
            client.call_until("exec", json!({"command": "sleep 20"}), Duration::from_millis(300)).await;
        assert_eq!(late.unwrap_err().code, ErrorCode::Deadline);
        assert!(began.elapsed() < Duration::from_secs(5));
        let listed = client.ask("tools.list", json!({})).await.unwrap();
        assert_eq!(listed, up.get("/v1/tools").json());
        assert_eq!(
            client.ask("tools.get", json!({"name": "Read"})).await.unwrap(),
            up.get("/v1/tools/Read").json()
        );
    });
}

#[test]
fn cancelling_ends_the_command() {
    let world = World::new();
    let up = Gateway::start(&world);
    runtime().block_on(async {
        let client = Client::operator(&up).await;
        let cancel = CancellationToken::new();
        let params =
            raw(&json!({"tool": "local__Bash", "input": {"command": "touch began; sleep 1; touch ended"}}));
        let calling =
            client.link.request_until(method::TOOL_CALL, params, None, &cancel, Duration::from_secs(5));
        let cancelling = async {
            while !world.workspace().join("began").exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            cancel.cancel();
        };
        let (answer, ()) = tokio::join!(calling, cancelling);
        assert_eq!(answered(answer).unwrap_err().code, ErrorCode::Cancelled);
        // A client that is gone wants nothing any more either.
        let gone = Client::operator(&up).await;
        let begun = gone.link.clone();
        tokio::spawn(async move {
            let input =
                json!({"tool": "local__Bash", "input": {"command": "touch began2; sleep 1; touch ended2"}});
            begun.request(method::TOOL_CALL, raw(&input), None).await
        });
        while !world.workspace().join("began2").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        gone.link.close(gantry_protocol::CloseReason::Done);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert!(!world.workspace().join("ended").exists() && !world.workspace().join("ended2").exists());
    });
}

#[test]
fn calls_share_a_connection_up_to_a_limit() {
    let world = World::new();
    let up = Gateway::start(&world);
    runtime().block_on(async {
        let client = Client::operator(&up).await;
        let calls = (0..300).map(|_| client.call("exec", json!({"command": "sleep 1"})));
        let answers = futures_util::future::join_all(calls).await;
        let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
        let codes: Vec<ErrorCode> = refused.map(|error| error.code).collect();
        assert!(codes.iter().all(|code| *code == ErrorCode::TooMany), "{codes:?}");
        assert_eq!(codes.len(), 300 - 256, "at most 256 are worked on at once");
        assert!(client.call("exec", json!({"command": "true"})).await.is_ok(), "the connection lives on");
    });
}

#[test]
fn only_the_operator_may_administrate() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.client_token(&world, "mine", &["--agents", "*"]);
    runtime().block_on(async {
        let client = Client::connect(&up, &token).await.unwrap();
        for method in [
            "nodes.add",
            "nodes.renew",
            "nodes.tag",
            "nodes.rename",
            "nodes.revoke",
            "nodes.forget",
            "nodes.processes",
            "tokens.list",
            "tokens.add",
            "tokens.revoke",
        ] {
            let error = client.ask(method, json!({"id": "a", "name": "a"})).await.unwrap_err();
            assert_eq!(error.code, ErrorCode::Forbidden, "{method}");
        }
        assert!(client.ask("nodes.list", json!({})).await.is_ok());
        for method in ["node.tools", "process.ended", "logs.get", "bulk.open"] {
            let error = client.ask(method, json!({})).await.unwrap_err();
            assert!([ErrorCode::UnknownMethod, ErrorCode::Forbidden].contains(&error.code), "{method}");
        }
    });
    assert_eq!(up.node("a"), json!(null));
}

#[test]
fn progress_reaches_the_caller() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "box", &[]);
    let runtime = runtime();
    runtime.block_on(async {
        let node = Node::new("box", &token);
        let _link = node.join(&up).await;
        let (client, other) = (Client::operator(&up).await, Client::operator(&up).await);
        assert_eq!(client.call("box__Report", json!({})).await.unwrap()["json"]["done"], 3);
        let reports = client.events("call.progress");
        assert_eq!(reports.last().unwrap()["done"], 3, "{reports:?}");
        assert!(reports.iter().all(|report| report["total"] == 3 && report["call"] == "1"), "{reports:?}");
        assert!(other.events("call.progress").is_empty());
    });
    eventually("nothing is in flight", Duration::from_secs(1), || up.node("box")["inFlight"] == 0);
}
