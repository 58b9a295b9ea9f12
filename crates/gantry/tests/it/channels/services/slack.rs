//! An app in Slack, over Socket Mode.

use gantry_testkit::Gateway;
use gantry_testkit::chat::slack::{APP_TOKEN, BOT_TOKEN, FakeSlack};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::telegram::jiff_now;
use super::{Got, Person, Service};

pub(crate) struct SlackService {
    _runtime: Runtime,
    pub(crate) fake: FakeSlack,
}

impl SlackService {
    pub(crate) fn start() -> SlackService {
        let runtime = Runtime::new().unwrap();
        let fake = runtime.block_on(FakeSlack::start());
        SlackService { _runtime: runtime, fake }
    }
}

/// The id of a person and of the chat with the bot.
pub(crate) fn ids_of(person: Person) -> (&'static str, &'static str) {
    match person {
        Person::Ann => ("U00000042", "D00000042"),
        Person::Eve => ("U00000666", "D00000666"),
    }
}

/// A text as Slack shows it.
fn shown(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

impl Service for SlackService {
    fn id(&self) -> &'static str {
        "slack:default"
    }

    fn config(&self) -> String {
        format!(
            "[channels.slack.default]\nbotToken = \"secret:SLACK_BOT\"\nappToken = \"secret:SLACK_APP\"\napiUrl = \"{}\"\n",
            self.fake.api_url()
        )
    }

    fn secrets(&self) -> Vec<(&'static str, String)> {
        vec![("SLACK_BOT", BOT_TOKEN.to_owned()), ("SLACK_APP", APP_TOKEN.to_owned())]
    }

    fn says(&self, _up: &Gateway, person: Person, number: u64, text: &str) {
        let (user, channel) = ids_of(person);
        self.fake.say(json!({
            "type": "message", "channel": channel, "channel_type": "im", "user": user, "text": text,
            "ts": format!("{}.{number:06}", jiff_now()),
        }));
    }

    fn got(&self, person: Person) -> Vec<Got> {
        let posts = self.fake.posts().into_iter().filter(|post| post["channel"] == ids_of(person).1);
        posts
            .map(|post| {
                let blocks = post["blocks"].as_array().cloned().unwrap_or_default();
                let actions = blocks.iter().filter(|block| block["type"] == "actions");
                let buttons = actions.filter_map(|block| block["elements"].as_array()).flatten();
                Got {
                    text: shown(post["text"].as_str().unwrap_or_default()),
                    id: post["ts"].as_str().unwrap_or_default().to_owned(),
                    buttons: buttons
                        .filter_map(|button| Some(button["value"].as_str()?.to_owned()))
                        .collect(),
                }
            })
            .collect()
    }

    fn presses(&self, _up: &Gateway, person: Person, message: &Got, button: &str) {
        let press: Value = json!({
            "type": "block_actions",
            "user": { "id": ids_of(person).0, "username": format!("{person:?}") },
            "container": { "type": "message", "message_ts": message.id, "channel_id": ids_of(Person::Ann).1 },
            "actions": [{ "type": "button", "action_id": "gantry-0", "value": button, "action_ts": "1700000000.000001" }],
        });
        self.fake.push("interactive", press);
    }
}
