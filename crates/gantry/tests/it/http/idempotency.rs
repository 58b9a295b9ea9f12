//! `Idempotency-Key`: one effect and one answer, even when the connection or the gateway fails.

use std::time::Duration;

use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};

fn count(world: &World) -> usize {
    std::fs::read_to_string(world.workspace().join("count")).unwrap_or_default().lines().count()
}

/// Leaves a line in a file, which tells how often it ran.
fn counting(then: &str) -> Value {
    json!({"command": format!("echo ran >> count; {then}")})
}

fn keyed(up: &Gateway, key: &str, input: &Value) -> gantry_testkit::Response {
    up.call_with("local__Bash", input, &[("Idempotency-Key", key)])
}

#[test]
fn retry_returns_first_answer_even_after_restart() {
    let world = World::new();
    let up = Gateway::start(&world);
    let input = counting("date +%N");
    let first = keyed(&up, "k1", &input);
    assert_eq!((first.status, first.header("idempotency-replayed")), (200, None));
    let again = keyed(&up, "k1", &input);
    assert_eq!((again.status, again.text()), (200, first.text()));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    for reported in ["content-type", "gantry-call-id", "gantry-tool"] {
        assert!(first.header(reported).is_some_and(|value| !value.is_empty()), "{reported}");
        assert_eq!(again.header(reported), first.header(reported), "{reported}");
    }
    assert_eq!(count(&world), 1);
    let other = keyed(&up, "k1", &counting("true"));
    assert_eq!((other.status, other.code().as_str()), (422, "conflict"));
    let other_tool = up.call_with("exec", &input, &[("Idempotency-Key", "k1")]);
    assert_eq!(other_tool.status, 422);
    assert_eq!(keyed(&up, "k2", &input).status, 200);
    assert_eq!(count(&world), 2);
    let token = format!("Bearer {}", up.client_token(&world, "other", &[]));
    let theirs = [("Authorization", token.as_str()), ("Idempotency-Key", "k1")];
    assert_eq!(up.call_with("local__Bash", &input, &theirs).status, 200);
    assert_eq!(count(&world), 3, "another principal's key is another key");
    drop(up);
    let up = Gateway::start(&world);
    let later = keyed(&up, "k1", &input);
    assert_eq!(later.text(), first.text());
    assert_eq!(later.header("gantry-call-id"), first.header("gantry-call-id"));
    assert_eq!(count(&world), 3);
    for bad in ["x".repeat(300), "\u{e4}".into()] {
        let refused = keyed(&up, &bad, &input);
        assert_eq!((refused.status, refused.code().as_str()), (400, "bad_params"));
    }
    assert_eq!(count(&world), 3);
}

#[test]
fn concurrent_requests_with_one_key_run_once() {
    let world = World::new();
    let up = Gateway::start(&world);
    let input = counting("sleep 1; date +%N");
    let answers: Vec<gantry_testkit::Response> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..4).map(|_| scope.spawn(|| keyed(&up, "k", &input))).collect();
        asking.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for answer in &answers {
        assert_eq!((answer.status, answer.text()), (200, answers[0].text()));
    }
    let first = answers.iter().filter(|answer| answer.header("idempotency-replayed").is_none());
    assert_eq!(first.count(), 1, "the others waited for it");
    assert_eq!(count(&world), 1);
}

#[test]
fn repetition_waits_no_longer_than_its_deadline() {
    let world = World::new();
    let up = Gateway::start(&world);
    let input = counting("sleep 2");
    let mut connection = up.connection();
    let body = input.to_string();
    connection.begin(&up, "POST", "/v1/tools/local__Bash", &[("Idempotency-Key", "k")], body.as_bytes());
    eventually("the command runs", Duration::from_secs(5), || count(&world) == 1);
    let hurried = [("Idempotency-Key", "k"), ("Gantry-Deadline-Ms", "200")];
    let answer = up.call_with("local__Bash", &input, &hurried);
    assert_eq!((answer.status, answer.code().as_str()), (409, "conflict"), "{}", answer.text());
    let other = keyed(&up, "k", &counting("true"));
    assert_eq!((other.status, other.code().as_str()), (422, "conflict"), "it does not wait");
    assert_eq!(count(&world), 1);
}

#[test]
fn disconnected_caller_fetches_the_answer_later() {
    let world = World::new();
    let up = Gateway::start(&world);
    let input = counting("sleep 0.5; echo done");
    let mut connection = up.connection();
    let body = input.to_string();
    connection.begin(&up, "POST", "/v1/tools/local__Bash", &[("Idempotency-Key", "k")], body.as_bytes());
    eventually("the command runs", Duration::from_secs(5), || count(&world) == 1);
    drop(connection);
    eventually("it is answered", Duration::from_secs(5), || keyed(&up, "k", &input).status == 200);
    assert!(keyed(&up, "k", &input).text().contains("done"));
    assert_eq!(count(&world), 1);
}

#[test]
fn request_interrupted_by_crash_is_reported_and_not_repeated() {
    let world = World::new();
    let up = Gateway::start(&world);
    let input = counting("sleep 30");
    let mut connection = up.connection();
    let body = input.to_string();
    connection.begin(&up, "POST", "/v1/tools/local__Bash", &[("Idempotency-Key", "k")], body.as_bytes());
    eventually("the command runs", Duration::from_secs(5), || count(&world) == 1);
    up.kill();
    let up = Gateway::start(&world);
    let reported = keyed(&up, "k", &input);
    assert_eq!((reported.status, reported.code().as_str()), (409, "interrupted"));
    assert_eq!(count(&world), 1);
}

/// What was turned away before it could do anything may be tried again under the same key.
#[test]
fn rejected_request_does_not_use_up_its_key() {
    let world = World::new();
    let up = Gateway::start(&world);
    let id = "later";
    let token = up.add_node(&world, id, &[]);
    let runtime = gantry_testkit::peers::runtime();
    let node = gantry_testkit::peers::Node::new(id, &token);
    let link = runtime.block_on(node.join(&up));
    link.close(gantry_protocol::CloseReason::Done);
    eventually("the node is offline", Duration::from_secs(2), || up.node(id)["online"] == false);
    let ask = || up.call_with("later__Echo", &json!({"text": "hi"}), &[("Idempotency-Key", "k")]);
    let offline = ask();
    assert_eq!((offline.status, offline.code().as_str()), (503, "unavailable"));
    let _link = runtime.block_on(node.join(&up));
    let answered = ask();
    assert_eq!((answered.status, &answered.json()["text"]), (200, &json!("hi")), "{}", answered.text());
    assert_eq!(ask().header("idempotency-replayed"), Some("true"));
    assert_eq!(node.runs(), 1);
}

#[test]
fn workspace_is_part_of_the_request_and_duplicate_headers_are_rejected() {
    let world = World::new();
    let up = Gateway::start(&world);
    let other = world.workspace().join("other");
    std::fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    let input = json!({"command": "pwd"});
    let first = keyed(&up, "k", &input);
    assert_eq!(first.status, 200, "{}", first.text());
    let elsewhere = [("Idempotency-Key", "k"), ("Gantry-Workspace", other)];
    let answer = up.call_with("local__Bash", &input, &elsewhere);
    assert_eq!((answer.status, answer.code().as_str()), (422, "conflict"), "{}", answer.text());
    let bearer = format!("Bearer {}", up.token);
    for twice in [
        [("Idempotency-Key", "a"), ("Idempotency-Key", "b")],
        [("Authorization", bearer.as_str()), ("Authorization", bearer.as_str())],
        [("Gantry-Workspace", other), ("Gantry-Workspace", other)],
    ] {
        let answer = up.call_with("local__Bash", &counting("true"), &twice);
        assert_eq!((answer.status, answer.code().as_str()), (400, "bad_params"), "{twice:?}");
        assert!(answer.text().contains("must not be repeated"), "{}", answer.text());
    }
    assert_eq!(count(&world), 0, "none of them ran");
}

#[tokio::test]
async fn expired_keys_are_removed_while_the_gateway_runs() {
    use gantry_store::{DataDir, Database};
    let world = World::new();
    let database = Database::open(&DataDir::new(world.data())).await.unwrap();
    database.record_process_end("box", "old", &json!({}), 0).await.unwrap();
    let now = jiff::Timestamp::now().as_millisecond();
    database.record_process_end("box", "new", &json!({}), now).await.unwrap();
    let _up = Gateway::start(&world);
    let until = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let ends = database.list_process_ends(None, 10).await.unwrap();
        if ends.len() == 1 {
            assert_eq!(ends[0].event_id, "new");
            break;
        }
        assert!(std::time::Instant::now() < until, "{ends:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
