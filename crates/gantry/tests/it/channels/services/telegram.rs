//! A bot in Telegram, by long polling.

use gantry_testkit::Gateway;
use gantry_testkit::chat::telegram::{FakeTelegram, TOKEN, message};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{Got, Person, Service};

pub(crate) struct TelegramService {
    _runtime: Runtime,
    pub(crate) fake: FakeTelegram,
}

impl TelegramService {
    pub(crate) fn start() -> TelegramService {
        let runtime = Runtime::new().unwrap();
        let fake = runtime.block_on(FakeTelegram::start());
        TelegramService { _runtime: runtime, fake }
    }
}

/// The id of a person, and of the chat with the bot.
pub(crate) fn id_of(person: Person) -> i64 {
    match person {
        Person::Ann => 42,
        Person::Eve => 666,
    }
}

/// A message of a person in a chat of two, written now.
pub(crate) fn direct(person: Person, number: u64, fields: Value) -> Value {
    let id = id_of(person);
    let mut own = json!({
        "message_id": number, "date": jiff_now(),
        "from": { "id": id, "is_bot": false, "first_name": format!("{person:?}") },
    });
    for (key, value) in fields.as_object().cloned().unwrap_or_default() {
        own[key] = value;
    }
    message(json!({ "id": id, "type": "private", "first_name": format!("{person:?}") }), own)
}

pub(crate) fn jiff_now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

impl Service for TelegramService {
    fn id(&self) -> &'static str {
        "telegram:default"
    }

    fn config(&self) -> String {
        format!(
            "[channels.telegram.default]\ntoken = \"secret:TELEGRAM\"\napiUrl = \"{}\"\n",
            self.fake.url()
        )
    }

    fn secrets(&self) -> Vec<(&'static str, String)> {
        vec![("TELEGRAM", TOKEN.to_owned())]
    }

    fn says(&self, _up: &Gateway, person: Person, number: u64, text: &str) {
        self.fake.push("message", direct(person, number, json!({ "text": text })));
    }

    fn got(&self, person: Person) -> Vec<Got> {
        let calls = self.fake.calls("sendMessage").into_iter();
        let mine = calls.enumerate().filter(|(_, call)| call["chat_id"] == id_of(person));
        mine.map(|(at, call)| {
            let rows = call["reply_markup"]["inline_keyboard"].as_array().cloned().unwrap_or_default();
            let buttons = rows.iter().filter_map(Value::as_array).flatten();
            Got {
                text: call["text"].as_str().unwrap_or_default().to_owned(),
                // The server counts messages from 2.
                id: (at + 2).to_string(),
                buttons: buttons
                    .filter_map(|button| Some(button["callback_data"].as_str()?.to_owned()))
                    .collect(),
            }
        })
        .collect()
    }

    fn presses(&self, _up: &Gateway, person: Person, message: &Got, button: &str) {
        let chat = json!({ "id": id_of(Person::Ann), "type": "private", "first_name": "Ann" });
        self.fake.push(
            "callback_query",
            json!({
                "id": format!("press-{}-{}", id_of(person), self.fake.calls("answerCallbackQuery").len()),
                "from": { "id": id_of(person), "is_bot": false, "first_name": format!("{person:?}") },
                "message": { "message_id": message.id.parse::<i64>().unwrap(), "date": jiff_now(), "chat": chat },
                "chat_instance": "1",
                "data": button,
            }),
        );
    }
}
