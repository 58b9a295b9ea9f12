//! Nodes that answer late, never or with invalid results: the caller gets a timely error that names the node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_link::{Event, Link, Request, ServeFuture, Service};
use gantry_protocol::{ErrorCode, NodeCallParams, RawJson, Role, StreamFrame, method, raw};
use gantry_testkit::peers::{Client, answered, hello, link, params, runtime, tools};
use gantry_testkit::{Gateway, World};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Answers as the input's text says.
struct Odd;

impl Service for Odd {
    fn request(self: Arc<Self>, _: Link, request: Request) -> ServeFuture {
        Box::pin(async move {
            let params: NodeCallParams = request.parse()?;
            let input: Value = serde_json::from_str(params.input.get()).unwrap();
            let answer = |text: String| -> RawJson { RawValue::from_string(text).unwrap() };
            Ok(match input["text"].as_str().unwrap() {
                "never" => std::future::pending().await,
                "nothing" => answer(r#"{"tool": "Echo"}"#.into()),
                "a list" => answer("[]".into()),
                "deep" => {
                    let (open, close) = ("[".repeat(5_000), "]".repeat(5_000));
                    answer(format!(r#"{{"tool": "Echo", "json": {open}{close}}}"#))
                }
                "huge" => answer(r#"{"tool": "Echo", "json": 1e999}"#.into()),
                "many" => {
                    let many = vec!["again"; 1_000];
                    raw(&json!({"tool": "Echo", "json": {}, "warnings": many}))
                }
                _ => raw(
                    &json!({"tool": "Echo", "json": {"a": 1}, "warnings": ["mind the gap", "zwei\nZ\u{e4}hler"]}),
                ),
            })
        })
    }

    fn event(&self, _: &Link, _: Event) {}

    fn stream(&self, _: &Link, _: StreamFrame) {}
}

async fn join(up: &Gateway, token: &str) -> Link {
    join_with(up, token, &tools()).await
}

async fn join_with(up: &Gateway, token: &str, tools: &Value) -> Link {
    let (link, _) = link(up, &params(Role::Node, "odd", token, Some(hello())), Arc::new(Odd)).await.unwrap();
    let reported = link.request_within(method::NODE_TOOLS, raw(tools), Duration::from_secs(10)).await;
    answered(reported).unwrap();
    link
}

#[test]
fn deadline_holds_when_a_node_never_answers() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "odd", &[]);
    runtime().block_on(async {
        let _node = join(&up, &token).await;
        let client = Client::operator(&up).await;
        let began = Instant::now();
        let deadline = Duration::from_millis(1_500);
        let late = client.call_until("odd__Echo", json!({"text": "never"}), deadline).await.unwrap_err();
        let took = began.elapsed();
        assert_eq!(late.code, ErrorCode::Deadline, "{late:?}");
        assert!((1_450..2_300).contains(&took.as_millis()), "{took:?}");
    });
}

#[test]
fn invalid_result_is_reported_as_a_node_error() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "odd", &[]);
    let runtime = runtime();
    let _node = runtime.block_on(join(&up, &token));
    for (asked, why) in [
        ("nothing", "neither JSON nor text"),
        ("a list", "invalid length"),
        ("deep", "recursion limit"),
        ("huge", "number out of range"),
    ] {
        let answer = up.call("odd__Echo", &json!({"text": asked}));
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (503, "unavailable"),
            "{asked}: {}",
            answer.text()
        );
        for part in ["cannot parse the node's answer", r#"\"odd\""#, why] {
            assert!(answer.text().contains(part), "{asked}: {part} is not in {}", answer.text());
        }
    }
}

#[test]
fn warnings_of_a_node_reach_every_surface() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "odd", &[]);
    let runtime = runtime();
    let _node = runtime.block_on(join(&up, &token));
    let input = json!({"text": "warned"});
    let reported =
        runtime.block_on(async { Client::operator(&up).await.call("odd__Echo", input.clone()).await });
    assert_eq!(reported.unwrap()["warnings"], json!(["mind the gap", "zwei Z\u{e4}hler"]));
    let answer = up.call_with("odd__Echo", &input, &[("Idempotency-Key", "warned")]);
    let again = up.call_with("odd__Echo", &input, &[("Idempotency-Key", "warned")]);
    for answer in [answer, again] {
        assert_eq!(answer.status, 200);
        let warnings = answer.header_values("gantry-warning");
        assert_eq!(warnings, ["mind the gap", "zwei Z\u{e4}hler"]);
    }
    let ran = world.run(&["call", "odd__Echo", &input.to_string()]);
    assert_eq!((ran.code, ran.stdout.trim()), (0, r#"{"a":1}"#));
    assert!(ran.stderr.contains("mind the gap") && ran.stderr.contains("zwei Z\u{e4}hler"), "{}", ran.stderr);
    // Somebody who warns of everything is cut short, and it is said.
    let many = runtime.block_on(async {
        Client::operator(&up).await.call("odd__Echo", json!({"text": "many"})).await.unwrap()
    });
    let many = many["warnings"].as_array().unwrap().clone();
    assert_eq!((many.len(), many[16].as_str()), (17, Some("984 more warnings are not shown")));
}

#[test]
fn node_tool_descriptions_are_sanitized() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "odd", &[]);
    let mut tools = tools();
    let hostile = "echoes\u{1b}[2J\u{7}\u{202e}\u{e0069}\u{200b} text";
    let echo = tools["tools"].as_array_mut().unwrap().iter_mut().find(|tool| tool["name"] == "Echo").unwrap();
    echo["description"] = json!(hostile);
    echo["inputSchema"]["description"] = json!(hostile);
    let runtime = runtime();
    let node = runtime.block_on(join_with(&up, &token, &tools));
    let is_plain = |up: &Gateway| {
        let tool = up.get("/v1/tools/odd__Echo").json();
        assert_eq!(tool["description"], "echoes[2J text");
        assert_eq!(tool["inputSchema"]["description"], "echoes[2J text");
    };
    is_plain(&up);
    drop((node, up));
    // The tools of a node that is away are those it described last.
    is_plain(&Gateway::start(&world));
}
