//! The channel `webhook`: signatures, repetitions, and kills of the gateway between every two steps.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use gantry_model::testing::{Heard, Turn};
use gantry_testkit::{Gateway, Random, World, eventually, is_soak};
use serde_json::{Value, json};

use crate::schedules::Sink;
use crate::sessions::{Model, call, results};

const PATIENCE: Duration = Duration::from_secs(60);
pub(super) const KEY: &str = "a key of enough length";

/// Signs a body with Python, whose `hmac` is independent of the gateway's.
pub(super) fn signature(body: &str, seconds: i64) -> String {
    let script = "import hmac,sys; print(hmac.new(sys.argv[1].encode(), (sys.argv[2]+'.'+sys.argv[3]).encode(), 'sha256').hexdigest())";
    let output =
        std::process::Command::new("python3").args(["-c", script, KEY, &seconds.to_string(), body]).output();
    format!("t={seconds},v1={}", String::from_utf8(output.unwrap().stdout).unwrap().trim())
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// Posts a signed message. Returns the status, or `None` if the gateway did not answer.
pub(super) fn post(address: &str, body: &str, signature: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let request = format!(
        "POST /v1/channels/webhook/default/webhook HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         X-Gantry-Signature: {signature}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

fn message(id: &str, person: &str, text: &str) -> String {
    json!({"id": id, "from": {"id": person}, "text": text}).to_string()
}

fn world(model: &Model, sink: &Sink) -> World {
    let world = model.world(&format!(
        "autonomy = \"guided\"\nflow = \"off\"\n[channels.webhook.default]\nsecret = \"secret:HOOK\"\nurl = \"{}\"",
        sink.url
    ));
    let stored = world.run_with_input(&["secrets", "set", "HOOK", "--host", "127.0.0.1"], KEY);
    assert_eq!(stored.code, 0, "{stored:?}");
    world
}

fn address(up: &Gateway) -> String {
    up.url.trim_start_matches("http://").to_owned()
}

/// Admits the person `ann`.
fn admit(world: &World, up: &Gateway) {
    let body = message("first", "ann", "hello");
    eventually("the channel", PATIENCE, || post(&address(up), &body, &signature(&body, now())) == Some(202));
    let mut code = String::new();
    eventually("the code", PATIENCE, || {
        let people = world.run(&["channels", "people", "--json"]).json();
        code = people["people"][0]["code"].as_str().unwrap_or_default().to_owned();
        !code.is_empty()
    });
    assert_eq!(world.run(&["channels", "pair", "approve", &code]).code, 0);
}

#[test]
fn only_signed_and_recent_requests_count() {
    let sink = Sink::start();
    let model = Model::deciding(|_: &Heard| Turn::text("fine"));
    let world = world(&model, &sink);
    let up = Gateway::start(&world);
    admit(&world, &up);
    let before = sink.seen().len();
    let body = message("m1", "ann", "hello");
    for wrong in [String::new(), "t=1,v1=00".into(), signature("{}", now()), signature(&body, now() - 400)] {
        assert_eq!(post(&address(&up), &body, &wrong), Some(401), "{wrong}");
    }
    let good = signature(&body, now());
    assert_eq!(post(&address(&up), &body, &good), Some(202));
    assert_eq!(post(&address(&up), &body, &good), Some(202), "a repetition is accepted and changes nothing");
    let odd = r#"{"id": "x"}"#;
    assert_eq!(post(&address(&up), odd, &signature(odd, now())), Some(400));
    eventually("the answer", PATIENCE, || sink.seen().len() > before);
    let sessions = world.run(&["sessions", "show", "agent:main:webhook:default:dm:ann", "--json"]).stdout;
    assert_eq!(sessions.matches("\"kind\":\"message_in\",\"data\"").count(), 1, "{sessions}");
    // Mail and webhooks cannot approve: their senders can be forged.
    let body = message("m2", "ann", "/approve");
    assert_eq!(post(&address(&up), &body, &signature(&body, now())), Some(202));
    model.check();
}

/// The model writes the name of the message into a file, once.
fn decide(heard: &Heard) -> Turn {
    let text =
        heard.body["messages"].as_array().unwrap().iter().rev().find(|message| message["role"] == "user");
    let text = text.map(|message| message["content"].to_string()).unwrap_or_default();
    let names: Vec<String> = text
        .split("item-")
        .skip(1)
        .map(|rest| format!("item-{}", rest.chars().take_while(char::is_ascii_digit).collect::<String>()))
        .collect();
    match results(heard) {
        0 => call("Bash", json!({"command": format!("echo {} >> notes", names.join(" "))})),
        _ => Turn::text(format!("{} done", names.join(" "))),
    }
}

#[test]
fn kills_lose_and_double_no_message_and_no_answer() {
    let (messages, kills) = if is_soak() { (1_000, 100) } else { (40, 5) };
    let mut random = Random::new();
    let sink = Sink::start();
    let model = Model::deciding(decide);
    let world = world(&model, &sink);
    let mut up = Gateway::start(&world);
    admit(&world, &up);
    let every = messages / kills;
    for number in 0..messages {
        // Each chat gets its messages in order; a message that was not confirmed is posted again, as providers do.
        let body = message(&format!("e{number}"), "ann", &format!("item-{number}"));
        let mut tries = 0;
        while post(&address(&up), &body, &signature(&body, now())) != Some(202) {
            tries += 1;
            assert!(tries < 200, "message {number} was not taken");
            std::thread::sleep(Duration::from_millis(100));
        }
        if number % every == every - 1 {
            std::thread::sleep(Duration::from_millis(random.below(300) as u64));
            up.kill();
            up = Gateway::start(&world);
        }
    }
    let session = "agent:main:webhook:default:dm:ann";
    eventually("all messages are answered", Duration::from_secs(120), || {
        let status = world.run(&["sessions", "--json"]).json();
        let rows = status["sessions"].as_array().unwrap();
        rows.iter().find(|row| row["sessionKey"] == session).is_some_and(|row| row["running"] == false)
    });
    let mut taken: HashMap<String, usize> = HashMap::new();
    let mut from = 0;
    loop {
        let page = up.get(&format!("/v1/sessions/{session}/events?from={from}&limit=1000")).json();
        for event in page["events"].as_array().unwrap() {
            if event["kind"] == "message_in" {
                *taken.entry(event["data"]["text"].as_str().unwrap().to_owned()).or_default() += 1;
            }
        }
        match page["next"].as_i64() {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!(taken.len(), messages, "every message is in the journal");
    assert!(taken.values().all(|count| *count == 1), "and once: {taken:?}");
    eventually("the outbox is empty", PATIENCE, || {
        let waiting = world.run(&["outbox", "list", "--state", "queued", "--json"]).json();
        waiting["total"] == 0
    });
    let seen = sink.seen();
    let listed: Value = world.run(&["outbox", "list", "--state", "unknown", "--json"]).json();
    assert!(seen.values().all(|count| *count == 1), "no answer arrived twice: {seen:?}");
    println!("{messages} messages, {kills} kills, {} answers, {} unknown", seen.len(), listed["total"]);
    model.check();
}
