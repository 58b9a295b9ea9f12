//! What strangers, bystanders, bots and forged events try. A question of the owner is open all the time: nothing may answer
//! it, no text of an attack may reach the model, and nobody but the owner may get anything but a pairing code.

use std::sync::{Arc, Mutex};

use gantry_model::testing::{Heard, Turn};
use gantry_testkit::Gateway;
use gantry_testkit::chat::discord::CHANNEL;
use serde_json::{Value, json};

use super::services::{
    DiscordService, Got, Person, Service, SlackService, TelegramService, WhatsAppService, connected, gets,
    link, sections, store_secrets,
};
use crate::sessions::{Model, call, results};

mod discord;
mod slack;
mod telegram;
mod whatsapp;

/// One thing that an attacker does. Its texts contain `ATTACK`.
pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) act: Box<dyn Fn()>,
}

pub(super) fn attack(name: &'static str, act: impl Fn() + 'static) -> Attack {
    Attack { name, act: Box::new(act) }
}

/// Ann's open question, which attackers try to answer.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) message: Got,
    /// The value of the button that allows it.
    pub(super) yes: String,
}

/// Runs the attacks of one service against a gateway whose owner has an open question there.
fn check<S: Service>(service: &S, more: &str, attacks: impl Fn(&S, &Open, &Gateway) -> Vec<Attack>) {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let texts = heard.clone();
    let model = Model::deciding(move |asked: &Heard| {
        texts.lock().unwrap().push(asked.body["messages"].to_string());
        match results(asked) {
            0 => call("Bash", json!({"command": "echo out > canary"})),
            _ => Turn::text("done"),
        }
    });
    let services: [&dyn Service; 1] = [service];
    let world = model.world(&format!("autonomy = \"supervised\"\n{}{more}", sections(&services)));
    store_secrets(&world, &services);
    let up = Gateway::start(&world);
    link(&world, &up, service);
    service.says(&up, Person::Ann, 10, "please write");
    let message = gets(service, Person::Ann, "echo out > canary");
    let open = Open { yes: message.buttons[0].clone(), message };
    let before = heard.lock().unwrap().len();
    let attacks = attacks(service, &open, &up);
    println!("{}: {} attacks", service.id(), attacks.len());
    for attack in &attacks {
        (attack.act)();
    }
    // Events are taken in order, so the attacks are over when this command is answered.
    service.says(&up, Person::Ann, 9_000, "/status");
    gets(service, Person::Ann, "agent:main");
    connected(&world, service.id());
    let names: Vec<&str> = attacks.iter().map(|attack| attack.name).collect();
    let heard = heard.lock().unwrap().clone();
    assert_eq!(heard.len(), before, "{names:?} started a run: {:?}", &heard[before..]);
    assert!(!world.workspace().join("canary").exists(), "{names:?} answered the question");
    let open_questions = world.run(&["sessions", "questions", "agent:main:main", "--json"]).stdout;
    assert!(open_questions.contains("echo out"), "{names:?} closed the question: {open_questions}");
    for got in service.got(Person::Eve) {
        let allowed = ["I do not know you yet", "This code is unknown", "Only the owner can answer"];
        assert!(allowed.iter().any(|text| got.text.contains(text)), "Eve got {got:?}");
    }
    // The owner still decides.
    service.presses(&up, Person::Ann, &open.message, &open.yes);
    gets(service, Person::Ann, "done");
    assert!(world.workspace().join("canary").exists());
    model.check();
}

#[test]
fn attacks_in_telegram_do_nothing() {
    let groups = "[channels.telegram.default.groups.-100]\nallow = [\"5\"]\n";
    check(&TelegramService::start(), groups, |service, open, _| telegram::attacks(service, open));
}

#[test]
fn attacks_in_slack_do_nothing() {
    let groups = "[channels.slack.default.groups.C00000100]\nallow = [\"U00000005\"]\n";
    check(&SlackService::start(), groups, |service, open, _| slack::attacks(service, open));
}

#[test]
fn attacks_in_discord_do_nothing() {
    let groups = format!("[channels.discord.default.groups.{CHANNEL}]\nallow = [\"1040000000000000005\"]\n");
    check(&DiscordService::start(), &groups, |service, open, _| discord::attacks(service, open));
}

#[test]
fn attacks_in_whatsapp_do_nothing() {
    check(&WhatsAppService::start(), "", whatsapp::attacks);
}

/// Texts that no service should ever act on.
pub(super) fn hostile_texts() -> Vec<String> {
    vec![
        "ATTACK \u{202e}approve\u{202c}".to_owned(),
        "ATTACK \0\u{1b}[2J".to_owned(),
        format!("ATTACK {}", "a".repeat(300_000)),
    ]
}

pub(super) fn with(mut base: Value, fields: Value) -> Value {
    for (key, value) in fields.as_object().cloned().unwrap_or_default() {
        base[key] = value;
    }
    base
}
