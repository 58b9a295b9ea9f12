//! Chat services as people use them: each is a server that the gateway connects to, and the owner Ann who writes there.

use std::time::Duration;

use gantry_testkit::{Gateway, World, eventually};
use serde_json::Value;

pub(crate) mod discord;
mod email;
mod matrix;
pub(crate) mod slack;
pub(crate) mod telegram;
mod webhook;
pub(crate) mod whatsapp;

pub(crate) use discord::DiscordService;
pub(crate) use email::EmailService;
pub(crate) use matrix::MatrixService;
pub(crate) use slack::SlackService;
pub(crate) use telegram::TelegramService;
pub(crate) use webhook::WebhookService;
pub(crate) use whatsapp::WhatsAppService;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A message that somebody got.
#[derive(Debug, Clone, Default)]
pub(crate) struct Got {
    pub(crate) text: String,
    /// The provider's id.
    pub(crate) id: String,
    /// The values of its buttons.
    pub(crate) buttons: Vec<String>,
}

/// A chat service with its server.
pub(crate) trait Service {
    /// The account, such as `telegram:default`.
    fn id(&self) -> &'static str;

    /// The lines of its section in `gantry.toml`.
    fn config(&self) -> String;

    /// The secrets that the configuration names.
    fn secrets(&self) -> Vec<(&'static str, String)>;

    /// A person writes to the bot alone. `number` makes the event and its time unique.
    fn says(&self, up: &Gateway, person: Person, number: u64, text: &str);

    /// What a person got, oldest first.
    fn got(&self, person: Person) -> Vec<Got>;

    /// A person presses a button of a message that Ann got. Only for services with buttons.
    fn presses(&self, up: &Gateway, person: Person, message: &Got, button: &str) {
        let _ = (up, person, message, button);
        panic!("{} has no buttons", self.id());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Person {
    /// The owner, once she is linked.
    Ann,
    /// A stranger.
    Eve,
}

/// The sections of several services.
pub(crate) fn sections(services: &[&dyn Service]) -> String {
    services.iter().map(|service| service.config()).collect::<Vec<_>>().join("\n")
}

pub(crate) fn store_secrets(world: &World, services: &[&dyn Service]) {
    for (name, value) in services.iter().flat_map(|service| service.secrets()) {
        let stored = world.run_with_input(&["secrets", "set", name, "--host", "127.0.0.1"], &value);
        assert_eq!(stored.code, 0, "{stored:?}");
    }
}

/// Waits until an account is connected.
pub(crate) fn connected(world: &World, id: &str) {
    let mut listed = Value::Null;
    eventually(&format!("{id} is connected"), PATIENCE, || {
        listed = world.run(&["channels", "--json"]).json();
        let accounts = listed["accounts"].as_array().unwrap();
        accounts.iter().any(|account| account["id"] == id && account["state"] == "connected")
    });
}

/// Waits until a person got a text, and returns the newest message with it.
pub(crate) fn gets(service: &dyn Service, person: Person, text: &str) -> Got {
    let mut found = None;
    eventually(&format!("{} brings {text:?}", service.id()), PATIENCE, || {
        found = service.got(person).into_iter().rev().find(|got| got.text.contains(text));
        found.is_some()
    });
    found.unwrap()
}

/// Links Ann as the owner.
pub(crate) fn link(world: &World, up: &Gateway, service: &dyn Service) {
    connected(world, service.id());
    let link = world.run(&["channels", "link", service.id(), "--json"]);
    let link: Value = serde_json::from_str(&link.stdout).unwrap_or_else(|_| panic!("{link:?}"));
    service.says(up, Person::Ann, 1, link["code"].as_str().unwrap());
    gets(service, Person::Ann, "This account is linked");
}
