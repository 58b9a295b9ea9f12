//! Kills of the gateway and failures of the service while people write: each message is processed once, and each answer
//! arrives once or is marked as unknown.

use std::collections::BTreeMap;

use gantry_model::testing::{Heard, Turn};
use gantry_testkit::chat::{discord, slack, telegram, whatsapp};
use gantry_testkit::{Gateway, Random, eventually, is_soak};
use serde_json::{Value, json};

use super::conversation::{journal, session_of};
use super::services::{
    DiscordService, EmailService, MatrixService, PATIENCE, Person, Service, SlackService, TelegramService,
    WhatsAppService, link, sections, store_secrets,
};
use crate::sessions::Model;

/// Names the messages that it answers: those after its last answer.
fn decide(heard: &Heard) -> Turn {
    let messages = heard.body["messages"].as_array().unwrap();
    let new = messages.iter().rev().take_while(|message| message["role"] == "user");
    let text: String = new.map(|message| message["content"].to_string()).collect();
    let mut items: Vec<u32> = text
        .split("item-")
        .skip(1)
        .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap())
        .collect();
    items.sort_unstable();
    let items: Vec<String> = items.iter().map(|item| format!("<item-{item}>")).collect();
    Turn::text(format!("{} done", items.join(" ")))
}

/// `fault` makes one of the service's next calls fail in a way that the number chooses.
fn check<S: Service>(service: &S, fault: impl Fn(&S, usize)) {
    let (messages, kills) = if is_soak() { (1_000, 100) } else { (30, 4) };
    let mut random = Random::new();
    let model = Model::deciding(decide);
    let services: [&dyn Service; 1] = [service];
    let apart = "[session]\ndmScope = \"per-channel-peer\"\n";
    let world = model.world(&format!("{apart}{}", sections(&services)));
    store_secrets(&world, &services);
    let mut up = Gateway::start(&world);
    link(&world, &up, service);
    let every = messages / kills;
    for number in 0..messages {
        service.says(&up, Person::Ann, 100 + number as u64, &format!("item-{number}"));
        if number % 7 == 3 {
            fault(service, random.below(4));
        }
        if number % every == every - 1 {
            std::thread::sleep(std::time::Duration::from_millis(random.below(120) as u64));
            up.kill();
            up = Gateway::start(&world);
        }
    }
    let channel = service.id().split(':').next().unwrap();
    let all: Vec<String> = (0..messages).map(|number| format!("item-{number}")).collect();
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    eventually("every message is taken", PATIENCE, || {
        taken.clear();
        let entries = journal(&up, &session_of(&world, channel));
        for text in
            entries.iter().filter(|entry| entry["kind"] == "message_in").filter_map(|e| e["text"].as_str())
        {
            *taken.entry(text.to_owned()).or_default() += 1;
        }
        taken.len() == messages
    });
    assert!(taken.values().all(|count| *count == 1), "a message was taken twice: {taken:?}");
    let waiting =
        |state: &str| world.run(&["outbox", "list", "--state", state, "--limit", "500", "--json"]).json();
    let mut unknown = Value::Null;
    let mut missing = Vec::new();
    // A service takes a limited number of messages in a second, and hundreds wait.
    let patience = if is_soak() { PATIENCE * 10 } else { PATIENCE };
    eventually("every answer arrives or is unknown", patience, || {
        unknown = waiting("unknown");
        let texts: String = service.got(Person::Ann).iter().map(|got| got.text.clone()).collect();
        let texts = format!("{texts}{unknown}");
        missing = all.iter().filter(|item| !texts.contains(&format!("<{item}>"))).cloned().collect();
        missing.is_empty()
    });
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for got in service.got(Person::Ann).iter().filter(|got| got.text.contains("done")) {
        *answers.entry(got.text.clone()).or_default() += 1;
    }
    assert!(answers.values().all(|count| *count == 1), "an answer arrived twice: {answers:?}");
    println!("{messages} messages, {kills} kills, {} answers, {} unknown", answers.len(), unknown["total"]);
    model.check();
}

#[test]
fn kills_and_failures_in_telegram_lose_and_double_nothing() {
    check(&TelegramService::start(), |service, number| {
        let (method, fault) = match number {
            0 => ("sendMessage", telegram::Fault::FailAfter(502)),
            1 => ("sendMessage", telegram::Fault::CutAfter),
            2 => ("sendMessage", telegram::Fault::Reject(429, json!({ "parameters": { "retry_after": 1 } }))),
            _ => ("getUpdates", telegram::Fault::Reject(500, json!({}))),
        };
        service.fake.fail_next(method, fault);
    });
}

#[test]
fn kills_and_failures_in_slack_lose_and_double_nothing() {
    check(&SlackService::start(), |service, number| match number {
        0 => service.fake.fail("chat.postMessage", slack::Fault::After(503)),
        1 => service.fake.fail("chat.postMessage", slack::Fault::Cut),
        2 => service.fake.fail("chat.postMessage", slack::Fault::Limited(1)),
        _ => service.fake.cut_sockets(),
    });
}

#[test]
fn kills_and_failures_in_discord_lose_and_double_nothing() {
    check(&DiscordService::start(), |service, number| match number {
        0 => service.fake.fail("send", discord::Fault::After(502)),
        1 => service.fake.fail("send", discord::Fault::Cut),
        2 => service.fake.fail("send", discord::Fault::Before(503)),
        _ => service.fake.cut(),
    });
}

#[test]
fn kills_and_failures_in_whatsapp_lose_and_double_nothing() {
    check(&WhatsAppService::start(), |service, number| match number {
        0 => service.fake.fail("messages", whatsapp::Fault::After(502)),
        1 => service.fake.fail("messages", whatsapp::Fault::Cut),
        _ => service.fake.fail("messages", whatsapp::Fault::Before(503)),
    });
}

#[test]
fn kills_in_matrix_lose_and_double_nothing() {
    check(&MatrixService::start(), |_, _| {});
}

#[test]
fn kills_in_email_lose_and_double_nothing() {
    check(&EmailService::start(), |_, _| {});
}
