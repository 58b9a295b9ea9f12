//! A domain plugs in at one place: the example domain's parts all work through the real binary.

use std::time::Duration;

use gantry_testkit::peers::{Client, runtime};
use gantry_testkit::{Gateway, World, eventually};
use serde_json::json;

const ENABLED: &str = "[example]\nenabled = true\nstep = 2\n";

#[test]
fn tool_routes_methods_worker_and_configuration_of_a_domain_work() {
    let world = World::new();
    world.configure(ENABLED);
    let up = Gateway::start(&world);
    // The tool.
    assert_eq!(up.call("example_count", &json!({})).json(), json!({"count": 2}));
    // A public route, with its own limits on size and rate.
    let hook = |body: &[u8]| up.ask("POST", "/v1/example/hook", &[], body);
    let anonymous = || up.ask("POST", "/v1/example/hook", &[("Authorization", "")], b"hi");
    assert_eq!(anonymous().json(), json!({"count": 4, "body": "hi"}));
    assert_eq!(hook(&[b'x'; 17]).status, 413);
    let statuses: Vec<u16> = (0..5).map(|_| hook(b"again").status).collect();
    assert_eq!((statuses[0], statuses[4]), (200, 429), "{statuses:?}");
    // A route behind authentication.
    assert_eq!(up.ask("GET", "/v1/example/count", &[("Authorization", "")], b"").status, 401);
    let shown = up.get("/v1/example/count").json();
    assert_eq!(shown["caller"], "operator", "{shown}");
    // The worker.
    let ticks = || up.get("/v1/example/count").json()["state"]["ticks"].as_u64().unwrap();
    eventually("the worker runs", Duration::from_secs(20), || ticks() > 3);
    // Protocol methods, one of them the operator's alone.
    let token = up.client_token(&world, "reader", &[]);
    runtime().block_on(async {
        let operator = Client::operator(&up).await;
        let counted = operator.ask("example.count", json!({})).await.unwrap();
        assert!(counted["count"].as_i64().unwrap() >= 4, "{counted}");
        let client = Client::connect(&up, &token).await.unwrap();
        assert!(client.ask("example.count", json!({})).await.is_ok());
        assert!(client.ask("example.reset", json!({})).await.is_err());
        assert!(client.ask("example.count", json!({"x": 1})).await.is_err());
        assert_eq!(operator.ask("example.reset", json!({})).await.unwrap()["count"], 0);
    });
    // A changed configuration counts in the running gateway; an invalid one changes nothing.
    let step = || up.call("example_count", &json!({})).json()["count"].as_i64().unwrap();
    world.configure("[example]\nenabled = true\nstep = 10\n");
    eventually("the new step counts", Duration::from_secs(20), || {
        let before = step();
        step() - before == 10
    });
    world.configure("[example]\nenabled = true\nstep = 1000\n");
    std::thread::sleep(Duration::from_millis(2_500));
    let before = step();
    assert_eq!(step() - before, 10);
}

#[test]
fn domain_that_is_not_enabled_adds_nothing() {
    let world = World::new();
    let up = Gateway::start(&world);
    assert_eq!(up.call("example_count", &json!({})).status, 404);
    assert_eq!(up.get("/v1/example/count").status, 404);
    assert_eq!(up.ask("POST", "/v1/example/hook", &[], b"").status, 404);
    let listed = up.get("/v1/tools").json();
    let names = listed["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]);
    assert!(!names.into_iter().any(|name| name == "example_count"));
}

#[test]
fn violations_of_a_section_are_reported_with_their_key() {
    let world = World::new();
    world.configure("[example]\nstep = 1000\n");
    let ran = world.run(&["config", "show"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("example.step") && ran.stderr.contains("between 1 and 100"), "{ran:?}");
}
