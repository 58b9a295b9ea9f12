//! A real Matrix homeserver.

use std::sync::Mutex;

use gantry_testkit::Gateway;
use gantry_testkit::chat::Synapse;
use serde_json::{Value, json};

use super::{Got, Person, Service};

pub(crate) struct MatrixService {
    server: Synapse,
    bot: (String, String),
    ann: (String, String),
    /// Ann's room with the bot.
    room: Mutex<Option<String>>,
}

impl MatrixService {
    pub(crate) fn start() -> MatrixService {
        let server = Synapse::start();
        let [bot, ann] = ["gantry", "ann"].map(|name| server.register(name));
        MatrixService { server, bot, ann, room: Mutex::default() }
    }

    /// The room with the bot, which joins it by itself only for people it knows, so the bot opens it.
    fn room(&self) -> String {
        let mut room = self.room.lock().unwrap();
        if let Some(room) = &*room {
            return room.clone();
        }
        let made = self.server.client(
            &self.bot.1,
            "POST",
            "/createRoom",
            Some(json!({"is_direct": true, "preset": "trusted_private_chat", "invite": [self.ann.0]})),
        );
        let id = made["room_id"].as_str().unwrap().to_owned();
        let direct = json!({ self.ann.0.as_str(): [id] });
        let path = format!("/user/{}/account_data/m.direct", self.bot.0);
        self.server.client(&self.bot.1, "PUT", &path, Some(direct));
        self.server.client(&self.ann.1, "POST", &format!("/rooms/{id}/join"), Some(json!({})));
        *room = Some(id.clone());
        id
    }
}

impl Service for MatrixService {
    fn id(&self) -> &'static str {
        "matrix:default"
    }

    fn config(&self) -> String {
        format!(
            "[channels.matrix.default]\ntoken = \"secret:MATRIX\"\nhomeserver = \"{}\"\n",
            self.server.url()
        )
    }

    fn secrets(&self) -> Vec<(&'static str, String)> {
        vec![("MATRIX", self.bot.1.clone())]
    }

    fn says(&self, _up: &Gateway, person: Person, number: u64, text: &str) {
        assert_eq!(person, Person::Ann, "strangers have no room with the bot");
        let path = format!("/rooms/{}/send/m.room.message/t{number}", self.room());
        self.server.client(&self.ann.1, "PUT", &path, Some(json!({"msgtype": "m.text", "body": text})));
    }

    fn got(&self, _person: Person) -> Vec<Got> {
        let path = format!("/rooms/{}/messages?dir=b&limit=200", self.room());
        let answer = self.server.client(&self.ann.1, "GET", &path, None);
        let sent = answer["chunk"]
            .as_array()
            .unwrap()
            .iter()
            .rev()
            .filter(|event| event["sender"] == self.bot.0.as_str());
        let texts = sent.filter(|event: &&Value| event["type"] == "m.room.message");
        texts
            .map(|event| Got {
                text: event["content"]["body"].as_str().unwrap_or_default().to_owned(),
                id: event["event_id"].as_str().unwrap().to_owned(),
                buttons: Vec::new(),
            })
            .collect()
    }
}
