//! What a client needs to show a session at any moment: the text so far, numbered events, pages from the end, the inbox.

use std::time::Duration;

use gantry_model::testing::Turn;
use gantry_testkit::peers::{Client, runtime};
use gantry_testkit::{Gateway, SOON, eventually};
use serde_json::{Value, json};

use super::{Model, call, results};

const ANSWER: &str = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen.";

/// The pieces of text that a client was sent, one after the other.
fn text_of(events: &[Value]) -> String {
    let texts = events.iter().filter(|data| data["event"]["event"] == "text");
    texts.map(|data| data["event"]["delta"].as_str().unwrap()).collect()
}

fn has(events: &[Value], name: &str) -> bool {
    events.iter().any(|data| data["event"]["event"] == name)
}

#[test]
fn client_that_comes_in_the_middle_of_an_answer_misses_nothing() {
    let slowly = || Turn { piece: Some(4), ..Turn::text(ANSWER) }.paced(Duration::from_millis(100));
    let model = Model::deciding(move |_| slowly());
    let world = model.world("autonomy = \"guided\"");
    let up = Gateway::start(&world);
    runtime().block_on(async {
        let first = Client::operator(&up).await;
        let new = first.ask("sessions.listen", json!({"sessionKey": "main"})).await.unwrap();
        assert_eq!(new["seq"], Value::Null, "the session does not exist yet: {new}");
        first.ask("sessions.send", json!({"sessionKey": "main", "message": "count"})).await.unwrap();
        eventually("the answer has begun", SOON, || text_of(&first.events("session.event")).len() > 12);
        let second = Client::operator(&up).await;
        let listened = second.ask("sessions.listen", json!({"sessionKey": "main"})).await.unwrap();
        let so_far = listened["unfinished"]["text"].as_str().unwrap().to_owned();
        assert!(!so_far.is_empty() && ANSWER.starts_with(&so_far) && so_far != ANSWER, "{so_far}");
        assert_eq!(listened["running"], listened["unfinished"]["run"]);
        let seq = listened["seq"].as_i64().unwrap();
        let history = json!({"sessionKey": "main"});
        let before = second.ask("sessions.history", history.clone()).await.unwrap();
        assert_eq!(before["events"].as_array().unwrap().len(), usize::try_from(seq).unwrap(), "{before}");
        eventually("the answer is whole", SOON, || has(&second.events("session.event"), "final"));
        let events = second.events("session.event");
        assert_eq!(so_far + &text_of(&events), ANSWER);
        let numbers: Vec<i64> = events.iter().map(|data| data["seq"].as_i64().unwrap()).collect();
        assert!(numbers[0] == seq && numbers.is_sorted() && numbers.last() > Some(&seq), "{numbers:?}");
        let idle = second.ask("sessions.listen", json!({"sessionKey": "main"})).await.unwrap();
        assert_eq!((&idle["unfinished"], &idle["seq"]), (&Value::Null, &idle["events"]), "{idle}");
    });
}

#[test]
fn history_is_read_backwards_from_the_end() {
    let model = Model::deciding(|_| Turn::text("noted"));
    let world = model.world("autonomy = \"guided\"");
    let up = Gateway::start(&world);
    runtime().block_on(async {
        for n in 0..4 {
            let message = json!({"message": format!("note {n}")});
            assert_eq!(super::post(&up, "main", &message, &[]).status, 200);
        }
        let client = Client::operator(&up).await;
        let page = async |params: Value| client.ask("sessions.history", params).await.unwrap();
        let all = page(json!({"sessionKey": "main"})).await["events"].as_array().unwrap().clone();
        let (mut pages, mut before) = (Vec::new(), json!(i64::MAX));
        while !before.is_null() {
            let one = page(json!({"sessionKey": "main", "before": before, "limit": 5})).await;
            before = one.get("previous").cloned().unwrap_or_default();
            pages.insert(0, one["events"].as_array().unwrap().clone());
        }
        assert!(pages.len() > 2);
        assert_eq!(pages.concat(), all);
        let both = json!({"sessionKey": "main", "before": 3, "from": 0});
        assert!(client.ask("sessions.history", both).await.is_err());
        let over_http = up.get("/v1/sessions/main/events?before=3").json();
        assert_eq!(over_http["events"].as_array().unwrap().len(), 3, "{over_http}");
    });
}

#[test]
fn sessions_are_found_by_title_and_text_and_renamed() {
    let model = Model::deciding(|_| Turn::text("The \"quokka\" is a 100% happy_animal."));
    let world = model.world("autonomy = \"guided\"");
    let up = Gateway::start(&world);
    super::post(&up, "zoo", &json!({"message": "Which animal smiles?"}), &[]);
    super::post(&up, "other", &json!({"message": "nothing"}), &[]);
    let token = up.client_token(&world, "foreign", &["--agents", "nobody"]);
    runtime().block_on(async {
        let client = Client::operator(&up).await;
        let search = async |text: &str| {
            let found = client.ask("sessions.search", json!({"text": text})).await.unwrap();
            found["matches"].as_array().unwrap().clone()
        };
        for text in ["\"quokka\"", "100%", "happy_animal", "QUOKKA"] {
            let found = search(text).await;
            assert_eq!(found.len(), 2, "{text}: {found:?}");
            assert!(found[0]["excerpt"].as_str().unwrap().contains("quokka") && found[0]["seq"].is_i64());
        }
        assert!(search("happy%animal").await.is_empty(), "signs of patterns are plain text");
        let found = search("animal smiles").await;
        assert!(
            found.iter().all(|one| one["sessionKey"] == "agent:main:zoo") && !found.is_empty(),
            "{found:?}"
        );
        let renamed =
            client.ask("sessions.rename", json!({"sessionKey": "zoo", "label": "Marsupials"})).await;
        assert_eq!(renamed.unwrap()["label"], "Marsupials");
        let titled = search("marsup").await;
        assert_eq!((titled.len(), &titled[0]["label"]), (1, &json!("Marsupials")), "{titled:?}");
        for bad in ["", " ", "a\nb", "a\u{202e}b", &"x".repeat(201)] {
            let refused = client.ask("sessions.rename", json!({"sessionKey": "zoo", "label": bad})).await;
            assert!(refused.is_err(), "{bad:?}");
        }
        assert!(client.ask("sessions.search", json!({"text": "x"})).await.is_err());
        // A token finds only the sessions of its agents.
        let foreign = Client::connect(&up, &token).await.unwrap();
        let found = foreign.ask("sessions.search", json!({"text": "quokka"})).await.unwrap();
        assert_eq!(found["matches"], json!([]));
    });
}

#[test]
fn inbox_has_what_waits_and_is_answered_in_place() {
    let model = Model::deciding(|heard| match results(heard) {
        0 => call("Bash", json!({"command": "echo made > made.txt"})),
        _ => Turn::text("done"),
    });
    let world = model.world("autonomy = \"supervised\"");
    let up = Gateway::start(&world);
    let token = up.client_token(&world, "foreign", &["--agents", "nobody"]);
    runtime().block_on(async {
        let client = Client::operator(&up).await;
        assert_eq!(client.ask("inbox.listen", json!({})).await.unwrap(), json!({"items": []}));
        client.ask("sessions.send", json!({"sessionKey": "one", "message": "make it"})).await.unwrap();
        client.ask("sessions.send", json!({"sessionKey": "two", "message": "make it"})).await.unwrap();
        let last = || client.events("inbox.changed").pop().unwrap_or_default();
        eventually("both questions are there", SOON, || last()["items"].as_array().is_some_and(|items| items.len() == 2));
        let items = last()["items"].as_array().unwrap().clone();
        assert!(items.iter().all(|item| item["kind"] == "approval" && item["label"] == "make it"), "{items:?}");
        assert_eq!(client.ask("inbox.list", json!({})).await.unwrap()["items"], json!(items));
        let foreign = Client::connect(&up, &token).await.unwrap();
        assert_eq!(foreign.ask("inbox.list", json!({})).await.unwrap()["items"], json!([]));
        for item in &items {
            let answer = json!({"sessionKey": item["sessionKey"], "question": item["question"]["id"], "answer": "yes"});
            client.ask("sessions.answer", answer).await.unwrap();
        }
        eventually("nothing waits any more", SOON, || last() == json!({"items": []}));
        eventually("the command ran", SOON, || world.workspace().join("made.txt").exists());
    });
}
