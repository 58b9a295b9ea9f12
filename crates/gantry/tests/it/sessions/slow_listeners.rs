//! A listener that reads slower than an answer arrives still gets the final event and a note about missing text.

use std::time::Duration;

use gantry_model::testing::{Script, Turn};
use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};

use super::{Model, NOBODY, events};

/// Single letters: as many events, and more bytes of them than sockets hold.
const LETTERS: usize = 60_000;

fn slowly(path: &str, body: &Value, headers: &[(&str, &str)]) -> String {
    let model = Model::of(Script::default(), |_| Turn { piece: Some(1), ..Turn::text("x".repeat(LETTERS)) });
    let world = World::new();
    world.configure(&format!(
        "{NOBODY}[models.providers.lab]\nbaseUrl = \"{}\"\nkey = \"{}\"\n[models.providers.lab.models.scripted-1]\n\
         contextWindow = 1000000\nmaxOutput = 200000\n",
        model.server.base_url(),
        gantry_model::testing::KEY
    ));
    let up = Gateway::start(&world);
    let mut connection = up.connection();
    connection.begin(&up, "POST", path, headers, body.to_string().as_bytes());
    eventually("the answer is there", Duration::from_secs(60), || {
        up.get("/v1/sessions/slow").status == 200 && up.get("/v1/sessions/slow").json()["running"].is_null()
    });
    let answer = connection.read().unwrap();
    assert_eq!(answer.status, 200);
    String::from_utf8(answer.body).unwrap()
}

#[test]
fn slow_session_listener_receives_the_final_event() {
    let body = json!({"message": "say much"});
    let reported = slowly("/v1/sessions/slow/messages", &body, &[("Accept", "text/event-stream")]);
    let reported = events(reported.as_bytes());
    let of = |name: &str| reported.iter().filter(|event| event["event"] == name).count();
    assert!(of("missed") > 0, "it was fast enough, so nothing was tried");
    assert_eq!((of("final"), &reported.last().unwrap()["text"]), (1, &json!("x".repeat(LETTERS))));
}

#[test]
fn slow_completion_reader_is_warned_about_missing_text() {
    let body =
        json!({"model": "main", "stream": true, "messages": [{"role": "user", "content": "say much"}]});
    let reported = slowly("/v1/chat/completions", &body, &[("Gantry-Session", "slow")]);
    assert!(reported.ends_with("data: [DONE]\n\n"), "{}", &reported[reported.len().saturating_sub(300)..]);
    assert!(
        reported.contains("too_slow") && !reported.contains("\"finish_reason\":\"stop\""),
        "it looks whole"
    );
}
