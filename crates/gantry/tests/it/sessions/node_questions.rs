//! Questions about connections of commands on another node: the person who decides on the call is asked.

use std::time::Duration;

use gantry_protocol::{ConnectionAsk, ErrorCode, method, raw};
use gantry_testkit::peers::{self, Client, answered, runtime};
use gantry_testkit::{Gateway, SOON, World, eventually};
use serde_json::{Value, json};

use super::Far;
use super::isolated::Stage;

const FETCH: &str = "curl -sS --cacert ca.pem https://unknown.example/";

/// A node whose isolated commands reach the stage's internet.
fn far(stage: &Stage) -> Far {
    let config =
        format!("[shell]\nisolated = true\n[web]\nproxy = \"http://127.0.0.1:{}\"\n", stage.internet.port);
    let far = Far::join_configured(&stage.world, &stage.up, &config);
    far.world.write("ca.pem", &stage.internet.authority);
    far
}

fn questions(stage: &Stage) -> Value {
    stage.up.get("/v1/sessions/main").json()["questions"].clone()
}

#[test]
fn person_is_asked_about_a_host_that_a_node_wants() {
    let stage = Stage::new("autonomy = \"guided\"");
    let _far = far(&stage);
    let fetch = json!({"command": FETCH, "node": "far"});
    let message = json!([["Bash", fetch], ["Bash", fetch]]);
    let body = json!({"message": message.to_string()}).to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| stage.up.ask("POST", "/v1/sessions/main/messages", &[], body.as_bytes()));
        eventually("the first question", Duration::from_secs(20), || questions(&stage)[0].is_object());
        let question = questions(&stage)[0].clone();
        assert_eq!(
            (&question["rule"], &question["tool"]),
            (&json!("egress"), &json!("far__Bash")),
            "{question}"
        );
        assert_eq!(question["input"], json!({"host": "unknown.example", "port": 443}));
        assert!(question["reason"].as_str().unwrap().contains("from the node \"far\""), "{question}");
        assert!(stage.internet.hosts().is_empty(), "nothing got out before the answer");
        assert_eq!(stage.world.run(&["sessions", "answer", "main", "yes"]).code, 0);
        // The second call holds both labels, so the first yes does not count for it.
        eventually("the second question", Duration::from_secs(20), || {
            questions(&stage)[0]["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("untrusted and private"))
        });
        assert_eq!(stage.world.run(&["sessions", "answer", "main", "no"]).code, 0);
    });
    let results = stage.results();
    assert!(results[0].contains("hello over TLS"), "{results:?}");
    assert!(results[1].contains("the user said no"), "{results:?}");
    assert_eq!(stage.internet.hosts(), ["unknown.example:443"]);
    stage.model.check();
}

#[test]
fn node_of_an_autonomous_agent_asks_nobody() {
    let stage = Stage::new("autonomy = \"autonomous\"");
    let _far = far(&stage);
    let results = stage.calls("main", &json!([["Bash", {"command": FETCH, "node": "far"}]]));
    assert!(results[0].contains("the agent is autonomous"), "{results:?}");
    assert!(stage.internet.hosts().is_empty());
}

#[test]
fn node_can_ask_only_for_calls_that_run_on_it() {
    let world = World::new();
    let up = Gateway::start(&world);
    let tokens = ["one", "two"].map(|id| up.add_node(&world, id, &[]));
    runtime().block_on(async {
        let [one, two] = [peers::Node::new("one", &tokens[0]), peers::Node::new("two", &tokens[1])];
        let (link, other) = (one.join(&up).await, two.join(&up).await);
        let client = Client::operator(&up).await;
        let calling = client.call("one__Sleep", json!({"ms": 20_000}));
        let asking = async {
            while one.kept().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let call = one.kept().remove(0);
            let asked = |link: gantry_link::Link, call: &str, host: &str| {
                let params = raw(&ConnectionAsk { call: call.to_owned(), host: host.to_owned(), port: 443 });
                async move { answered(link.request_within(method::CONNECTION_ASK, params, SOON).await) }
            };
            let code = |answer: Result<Value, gantry_protocol::WireError>| answer.unwrap_err().code;
            assert_eq!(code(asked(link.clone(), "no-such-call", "x.example").await), ErrorCode::NotFound);
            assert_eq!(code(asked(other, &call, "x.example").await), ErrorCode::NotFound);
            for host in ["x.example\nallow", "", "X Y"] {
                assert_eq!(code(asked(link.clone(), &call, host).await), ErrorCode::BadParams);
            }
            let nobody = asked(link.clone(), &call, "x.example").await.unwrap();
            assert_eq!(nobody, json!({"allow": false, "reason": "nobody can be asked"}));
            assert!(!one.callers.lock().unwrap()[0].asks, "the gateway does not offer to ask");
        };
        tokio::select! {
            ended = calling => panic!("the call ended first: {ended:?}"),
            () = asking => {}
        }
    });
}
