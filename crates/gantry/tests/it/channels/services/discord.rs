//! A bot in Discord.

use gantry_testkit::Gateway;
use gantry_testkit::chat::discord::{ADA, DIRECT, FakeDiscord, OTHER_DIRECT, TOKEN, user};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{Got, Person, Service};

pub(crate) struct DiscordService {
    _runtime: Runtime,
    pub(crate) fake: FakeDiscord,
}

impl DiscordService {
    pub(crate) fn start() -> DiscordService {
        let runtime = Runtime::new().unwrap();
        let fake = runtime.block_on(FakeDiscord::start());
        DiscordService { _runtime: runtime, fake }
    }
}

/// A person, and the channel of the chat with the bot.
pub(crate) fn places_of(person: Person) -> (Value, &'static str) {
    match person {
        Person::Ann => (user(ADA, "ann"), DIRECT),
        Person::Eve => (user("1040000000000000008", "eve"), OTHER_DIRECT),
    }
}

impl Service for DiscordService {
    fn id(&self) -> &'static str {
        "discord:default"
    }

    fn config(&self) -> String {
        format!(
            "[channels.discord.default]\ntoken = \"secret:DISCORD\"\napiUrl = \"{}\"\n",
            self.fake.api_url()
        )
    }

    fn secrets(&self) -> Vec<(&'static str, String)> {
        vec![("DISCORD", TOKEN.to_owned())]
    }

    fn says(&self, _up: &Gateway, person: Person, _number: u64, text: &str) {
        let (author, channel) = places_of(person);
        let mut message = self.fake.message(channel, text);
        message["author"] = author;
        self.fake.say(message);
    }

    fn got(&self, person: Person) -> Vec<Got> {
        let posts = self.fake.posts().into_iter().filter(|post| post["channel_id"] == places_of(person).1);
        posts
            .map(|post| {
                let rows = post["components"].as_array().cloned().unwrap_or_default();
                let buttons = rows.iter().filter_map(|row| row["components"].as_array()).flatten();
                Got {
                    // A backslash makes the next character text.
                    text: post["content"].as_str().unwrap_or_default().replace('\\', ""),
                    id: post["id"].as_str().unwrap_or_default().to_owned(),
                    buttons: buttons
                        .filter_map(|button| Some(button["custom_id"].as_str()?.to_owned()))
                        .collect(),
                }
            })
            .collect()
    }

    fn presses(&self, _up: &Gateway, person: Person, message: &Got, button: &str) {
        self.fake.press(places_of(Person::Ann).1, &message.id, places_of(person).0, button);
    }
}

/// The fields of an event, changed.
pub(crate) fn said(service: &DiscordService, channel: &str, fields: Value) -> Value {
    let mut message = service.fake.message(channel, "ATTACK");
    message["author"] = places_of(Person::Eve).0;
    for (key, value) in fields.as_object().cloned().unwrap_or_else(|| json!({}).as_object().unwrap().clone())
    {
        message[key] = value;
    }
    message
}
