//! `gsv__Message`, and the delivery of schedules to chats.

use gantry_model::testing::{Heard, Turn};
use gantry_testkit::chat::telegram::message;
use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};

use super::services::telegram::{id_of, jiff_now};
use super::services::{PATIENCE, Person, Service, TelegramService, gets, link, sections, store_secrets};
use crate::sessions::{Model, call, results};

/// Calls `gsv__Message` with the JSON in the newest text of the user, then says what came of it.
fn decide(heard: &Heard) -> Turn {
    let messages = heard.body["messages"].as_array().unwrap();
    let last = messages.last().unwrap();
    let text = last["content"].as_str().map_or_else(|| last["content"].to_string(), str::to_owned);
    match results(heard) {
        0 => match text.find('{').map(|at| serde_json::from_str::<Value>(&text[at..])) {
            Some(Ok(input)) => call("gsv__Message", input),
            _ => Turn::text("the report is ready"),
        },
        _ => Turn::text(format!("it answered: {text}")),
    }
}

fn start(service: &TelegramService, model: &Model, agent: &str) -> (World, Gateway) {
    let services: [&dyn Service; 1] = [service];
    let group = "[channels.telegram.default.groups.-100]\nallow = [\"*\"]\n";
    let world = model.world(&format!("{agent}\n{}{group}", sections(&services)));
    store_secrets(&world, &services);
    let up = Gateway::start(&world);
    link(&world, &up, service);
    (world, up)
}

/// The texts that were sent to a chat.
fn texts(service: &TelegramService, chat: i64) -> Vec<String> {
    let calls = service.fake.calls("sendMessage").into_iter().filter(|call| call["chat_id"] == chat);
    calls.map(|call| call["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_message_to_the_owner_is_sent_and_other_receivers_are_asked_about() {
    let service = TelegramService::start();
    let model = Model::deciding(decide);
    let (world, up) = start(&service, &model, "autonomy = \"guided\"");
    // The conversation of the run is the default, and the owner alone reads it.
    service.says(&up, Person::Ann, 10, "send {\"text\": \"a *note*\"}");
    let answer = gets(&service, Person::Ann, "it answered");
    for part in [
        "\"sent\":true",
        "\"channel\":\"telegram\"",
        "\"to\":\"42\"",
        "\"peerKind\":\"dm\"",
        "\"state\":\"sent\"",
    ] {
        assert!(answer.text.contains(part), "{part}: {answer:?}");
    }
    assert_eq!(texts(&service, 42).iter().filter(|text| *text == "a note").count(), 1);
    // A group is another audience.
    service.says(&up, Person::Ann, 11, "/new");
    service.says(&up, Person::Ann, 12, "send {\"text\": \"to all\", \"to\": \"-100\"}");
    let asked = gets(&service, Person::Ann, "to all");
    assert!(asked.buttons.len() >= 2, "{asked:?}");
    assert!(texts(&service, -100).is_empty(), "nothing is sent before the answer");
    service.presses(&up, Person::Ann, &asked, &asked.buttons[0]);
    eventually("the group gets it", PATIENCE, || texts(&service, -100) == ["to all"]);
    // Nobody else.
    for to in ["666", "-200", "ann"] {
        let denied = world.run(&[
            "call",
            "gsv__Message",
            &json!({"text": "x", "to": to, "channel": "telegram"}).to_string(),
        ]);
        assert_ne!(denied.code, 0, "{to}: {denied:?}");
        assert!(denied.stdout.contains("may not get messages"), "{to}: {denied:?}");
    }
    let wrong = world.run(&["call", "gsv__Message", r#"{"text": "x", "peerKind": "crowd"}"#]);
    assert!(wrong.stdout.contains("dm, group, channel or thread"), "{wrong:?}");
    let elsewhere = world.run(&["call", "gsv__Message", r#"{"text": "x", "channel": "pigeon"}"#]);
    assert!(elsewhere.stdout.contains("telegram:default"), "{elsewhere:?}");
    // The operator's own call goes to the owner's last active conversation.
    let sent = world.run(&["call", "gsv__Message", r#"{"text": "from the shell"}"#]);
    assert_eq!(sent.code, 0, "{sent:?}");
    gets(&service, Person::Ann, "from the shell");
    // Programs with a token of their own cannot write to people.
    let token = up.client_token(&world, "ci", &[]);
    let bearer = format!("Bearer {token}");
    let denied =
        up.ask("POST", "/v1/tools/gsv__Message", &[("Authorization", &bearer)], br#"{"text": "spam"}"#);
    assert_eq!(denied.status, 403, "{}", String::from_utf8_lossy(&denied.body));
    model.check();
}

#[test]
fn an_autonomous_agent_writes_to_its_owner_only() {
    let service = TelegramService::start();
    let model = Model::deciding(decide);
    let (_world, up) = start(&service, &model, "autonomy = \"autonomous\"");
    service.says(&up, Person::Ann, 10, "send {\"text\": \"to all\", \"to\": \"-100\"}");
    let answer = gets(&service, Person::Ann, "it answered");
    assert!(answer.text.contains("denied"), "{answer:?}");
    assert!(texts(&service, -100).is_empty());
    model.check();
}

#[test]
fn a_schedule_answers_in_the_last_active_chat_or_the_chat_it_names() {
    let service = TelegramService::start();
    let model = Model::deciding(decide);
    let (world, up) = start(&service, &model, "autonomy = \"guided\"");
    // A bystander in a group does not become the last active conversation.
    let chat = json!({ "id": -100, "type": "supergroup", "title": "Room" });
    service.fake.push("message", message(chat, json!({
        "message_id": 50, "date": jiff_now(), "text": "hello all", "from": { "id": id_of(Person::Eve), "is_bot": false, "first_name": "Eve" },
    })));
    let job = |name: &str, more: Value| {
        let mut spec = json!({"mode": "task", "message": "report"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let job = json!({"name": name, "schedule": {"kind": "at", "at": "in 1 hour"}, "spec": spec});
        let add = json!({"action": "add", "job": job});
        world.run(&["call", "gsv__Cron", &add.to_string()])
    };
    let refused = job("nowhere", json!({"channel": "telegram", "to": "666"}));
    assert!(refused.stdout.contains("may not get messages"), "refused at once: {refused:?}");
    let added = job("here", json!({}));
    assert_eq!(added.code, 0, "{added:?}");
    let id = added.json()["result"]["job"]["id"].as_str().unwrap().to_owned();
    assert_eq!(world.run(&["cron", "run", &id]).code, 0);
    gets(&service, Person::Ann, "the report is ready");
    let added = job("there", json!({"channel": "telegram", "to": "-100"}));
    assert_eq!(added.code, 0, "{added:?}");
    let id = added.json()["result"]["job"]["id"].as_str().unwrap().to_owned();
    assert_eq!(world.run(&["cron", "run", &id]).code, 0);
    eventually("the group gets it", PATIENCE, || {
        texts(&service, -100).iter().any(|text| text.contains("the report is ready"))
    });
    drop(up);
    model.check();
}
