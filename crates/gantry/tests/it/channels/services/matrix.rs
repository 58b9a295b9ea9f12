//! A real Matrix homeserver.

use std::sync::Mutex;

use gantry_testkit::chat::Synapse;
use gantry_testkit::{Gateway, eventually};
use serde_json::{Value, json};

use super::{Got, PATIENCE, Person, Service};

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

    /// The room with the bot. Ann invites the bot, which joins because a link code waits.
    fn room(&self) -> String {
        let mut room = self.room.lock().unwrap();
        if let Some(room) = &*room {
            return room.clone();
        }
        let options = json!({"is_direct": true, "preset": "trusted_private_chat", "invite": [self.bot.0]});
        let made = self.server.client(&self.ann.1, "POST", "/createRoom", Some(options));
        let id = made["room_id"].as_str().unwrap().to_owned();
        eventually("the bot joins", PATIENCE, || {
            let path = format!("/rooms/{id}/joined_members");
            let joined = self.server.client(&self.ann.1, "GET", &path, None);
            joined["joined"].as_object().unwrap().len() == 2
        });
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
