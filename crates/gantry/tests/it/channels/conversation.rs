//! The same conversation in every chat service: the journals are equal.

use gantry_model::testing::{Heard, Turn};
use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};

use super::services::{
    DiscordService, EmailService, MatrixService, PATIENCE, Person, Service, SlackService, TelegramService,
    WebhookService, WhatsAppService, gets, link, sections, store_secrets,
};
use crate::sessions::{Model, call};

/// Conversations are apart, so that each service has a journal of its own.
const APART: &str = "[session]\ndmScope = \"per-channel-peer\"\n";

/// Runs a command when it is asked to write, and answers in Markdown.
fn decide(heard: &Heard) -> Turn {
    let messages = heard.body["messages"].as_array().unwrap();
    let last = messages.last().unwrap();
    let text = last["content"].as_str().map_or_else(|| last["content"].to_string(), str::to_owned);
    match last["role"].as_str() {
        Some("tool") => Turn::text("**Written**, with `one` line & <no> tags."),
        _ if text.contains("write a line") => call("Bash", json!({"command": "echo one"})),
        _ => Turn::text(format!("You wrote _{}_", text.trim())),
    }
}

/// The only conversation of a channel.
pub(super) fn session_of(world: &World, channel: &str) -> String {
    let listed = world.run(&["sessions", "--json"]).json();
    let keys = listed["sessions"].as_array().unwrap().iter().filter_map(|row| row["sessionKey"].as_str());
    let own: Vec<&str> = keys.filter(|key| key.starts_with(&format!("agent:main:{channel}:"))).collect();
    assert_eq!(own.len(), 1, "{channel}: {own:?}");
    own[0].to_owned()
}

/// The entries of a journal without what differs from conversation to conversation: ids, times and usage.
pub(super) fn journal(up: &Gateway, key: &str) -> Vec<Value> {
    let (mut entries, mut from) = (Vec::new(), 0);
    loop {
        let page = up.get(&format!("/v1/sessions/{key}/events?from={from}&limit=1000")).json();
        entries.extend(page["events"].as_array().unwrap_or_else(|| panic!("{key}: {page}")).iter().cloned());
        match page["next"].as_i64() {
            Some(next) => from = next,
            None => break,
        }
    }
    entries
        .iter()
        .map(|entry| {
            let data = &entry["data"];
            let text = data["text"].as_str().map(str::trim);
            let reply = &data["reply"]["message"]["content"][0];
            json!({"kind": entry["kind"], "text": text, "labels": data["labels"], "failed": data["result"]["is_error"],
                "reply": reply["text"], "call": reply["name"], "end": data["end"]})
        })
        .collect()
}

#[test]
fn the_same_conversation_gives_the_same_journal_in_every_service() {
    let model = Model::deciding(decide);
    let (telegram, slack) = (TelegramService::start(), SlackService::start());
    let (matrix, email) = (MatrixService::start(), EmailService::start());
    let (discord, whatsapp) = (DiscordService::start(), WhatsAppService::start());
    let webhook = WebhookService::start();
    let services: [&dyn Service; 7] = [&telegram, &slack, &discord, &whatsapp, &matrix, &email, &webhook];
    let world = model.world(&format!("autonomy = \"guided\"\n{APART}{}", sections(&services)));
    store_secrets(&world, &services);
    let up = Gateway::start(&world);
    for service in services {
        link(&world, &up, service);
    }
    for service in services {
        service.says(&up, Person::Ann, 10, "hello there");
        gets(service, Person::Ann, "You wrote");
        service.says(&up, Person::Ann, 11, "please write a line");
        let got = gets(service, Person::Ann, "Written");
        assert!(got.text.contains("<no> tags"), "{}: {got:?}", service.id());
    }
    let mut journals = Vec::new();
    for service in services {
        let channel = service.id().split(':').next().unwrap();
        let key = session_of(&world, channel);
        eventually("the run ends", PATIENCE, || {
            journal(&up, &key).iter().filter(|entry| entry["kind"] == "run_ended").count() == 2
        });
        journals.push((channel, journal(&up, &key)));
    }
    let (_, first) = &journals[0];
    let kinds: Vec<&str> = first.iter().filter_map(|entry| entry["kind"].as_str()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "message_in").count(), 2, "{kinds:?}");
    for (channel, other) in &journals[1..] {
        assert_eq!(other, first, "{channel} differs from {}", journals[0].0);
    }
    model.check();
}
