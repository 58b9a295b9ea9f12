//! Presses of buttons. Discord shows an error unless a press is answered within 3 seconds.

use std::convert::Infallible;
use std::time::Duration;

use gantry_net::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

use super::api::{Auth, Body, Call};
use super::error::ApiError;
use super::event::{self, Pressed, Reply};
use super::gateway::{Ended, stop};
use super::listen::{Listening, not_stored};
use super::{Discord, NO_MENTIONS};

/// If the answer is not known by then, Discord is asked for more time.
const ANSWER_LIMIT: Duration = Duration::from_millis(1_500);
/// The limit for one request.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// Only the person who pressed sees the answer.
const EPHEMERAL: u64 = 1 << 6;
/// The kinds of answers: a message, and a message that follows.
const MESSAGE: u8 = 4;
const LATER: u8 = 5;

impl Listening<'_> {
    pub(super) async fn take_presses(
        &self,
        mut waiting: Receiver<(u64, Value)>,
    ) -> Result<Infallible, Ended> {
        while let Some((seq, data)) = waiting.recv().await {
            match event::pressed(data) {
                Ok(Some(pressed)) => self.press(pressed, seq).await?,
                Ok(None) => {}
                Err(_) => {
                    let account = &self.discord.connection.account;
                    tracing::warn!(account, "an interaction event of Discord is malformed");
                }
            }
            self.progress().stored(seq);
        }
        std::future::pending().await
    }

    async fn press(&self, pressed: Pressed, seq: u64) -> Result<(), Ended> {
        let described = Some(&pressed.place).filter(|place| place["id"] == pressed.channel.as_str());
        let place = match described.and_then(|place| self.discord.places.insert(place, None)) {
            Some(place) => place,
            None => match self.discord.place(&pressed.channel).await {
                Ok(place) => place,
                Err(err) if err.is_out_of_reach() => return Ok(()),
                Err(err) => return Err(stop(err)),
            },
        };
        let reply = pressed.reply.clone();
        let press = pressed.press(&place, &self.discord.connection.account);
        let cursor = self.progress().text_with(Some(seq));
        let mut taken = self.intake.press(press, Some(cursor));
        match tokio::time::timeout(ANSWER_LIMIT, &mut taken).await {
            Ok(sentence) => {
                let sentence = sentence.map_err(|err| not_stored(&err))?;
                self.shown(self.discord.answer(&reply, MESSAGE, Some(&sentence)).await);
            }
            Err(_) => {
                self.shown(self.discord.answer(&reply, LATER, None).await);
                let sentence = taken.await.map_err(|err| not_stored(&err))?;
                self.shown(self.discord.complete(&reply, &sentence).await);
            }
        }
        Ok(())
    }

    /// The press itself is stored. A person who does not see the answer presses again.
    fn shown(&self, answered: Result<Value, ApiError>) {
        if let Err(err) = answered {
            tracing::warn!(
                account = self.discord.connection.account,
                "cannot answer a press of a button: {err}"
            );
        }
    }
}

impl Discord {
    async fn answer(&self, reply: &Reply, kind: u8, sentence: Option<&str>) -> Result<Value, ApiError> {
        let mut body = json!({ "type": kind, "data": { "flags": EPHEMERAL } });
        if let Some(sentence) = sentence {
            body["data"] = shown(sentence);
            body["data"]["flags"] = EPHEMERAL.into();
        }
        let path = ["interactions", &reply.id, &reply.token, "callback"];
        let mut call = Call::new(Method::POST, "answer a press", &path);
        (call.auth, call.body, call.limit) = (Auth::Path, Body::Json(&body), REQUEST_LIMIT);
        self.call(call).await
    }

    /// Writes the message that was promised.
    async fn complete(&self, reply: &Reply, sentence: &str) -> Result<Value, ApiError> {
        let body = shown(sentence);
        let path = ["webhooks", &reply.application, &reply.token, "messages", "@original"];
        let mut call = Call::new(Method::PATCH, "complete the answer to a press", &path);
        (call.auth, call.body, call.limit) = (Auth::Path, Body::Json(&body), REQUEST_LIMIT);
        self.call(call).await
    }
}

fn shown(sentence: &str) -> Value {
    let text = crate::render::discord::escaped(sentence);
    let text: String = text.chars().take(super::MAX_TEXT).collect();
    let text = if text.trim().is_empty() { "Done.".to_owned() } else { text };
    json!({ "content": text, "allowed_mentions": { NO_MENTIONS: [] } })
}
