//! An intake that records what an adapter gives it, for tests of adapters.

use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::adapter::{Accepted, Inbound, Intake, IntakeError, Press};

#[derive(Default)]
pub(crate) struct RecordingIntake {
    pub(crate) messages: Mutex<Vec<Inbound>>,
    pub(crate) presses: Mutex<Vec<Press>>,
    pub(crate) cursor: Mutex<Option<String>>,
    pub(crate) names: Mutex<Vec<String>>,
    pub(crate) settled: Mutex<Vec<(String, String)>>,
    /// The answer to every message, if it is set.
    pub(crate) accepts: Mutex<Option<Accepted>>,
    /// While this is set, nothing can be stored.
    pub(crate) fails: Mutex<bool>,
    /// How long it takes to store an event.
    pub(crate) pause: Mutex<Duration>,
}

impl RecordingIntake {
    pub(crate) fn texts(&self) -> Vec<String> {
        self.messages.lock().unwrap().iter().map(|inbound| inbound.text.clone()).collect()
    }

    async fn take_time(&self) {
        let pause = *self.pause.lock().unwrap();
        tokio::time::sleep(pause).await;
    }

    fn store(&self, cursor: Option<String>) -> Result<(), IntakeError> {
        if *self.fails.lock().unwrap() {
            return Err(IntakeError("the disk is full".to_owned()));
        }
        if cursor.is_some() {
            *self.cursor.lock().unwrap() = cursor;
        }
        Ok(())
    }
}

impl Intake for RecordingIntake {
    fn message<'a>(
        &'a self,
        inbound: Inbound,
        cursor: Option<String>,
    ) -> BoxFuture<'a, Result<Accepted, IntakeError>> {
        Box::pin(async move {
            self.take_time().await;
            self.store(cursor)?;
            if let Some(accepted) = *self.accepts.lock().unwrap() {
                return Ok(accepted);
            }
            let mut messages = self.messages.lock().unwrap();
            if messages.iter().any(|known| known.event_id == inbound.event_id) {
                return Ok(Accepted::Duplicate);
            }
            messages.push(inbound);
            Ok(Accepted::New)
        })
    }

    fn press<'a>(
        &'a self,
        press: Press,
        cursor: Option<String>,
    ) -> BoxFuture<'a, Result<String, IntakeError>> {
        Box::pin(async move {
            self.take_time().await;
            self.store(cursor)?;
            self.presses.lock().unwrap().push(press);
            Ok("recorded".to_owned())
        })
    }

    fn skip<'a>(&'a self, cursor: String) -> BoxFuture<'a, Result<(), IntakeError>> {
        Box::pin(async move { self.store(Some(cursor)) })
    }

    fn connected(&self, name: &str) {
        self.names.lock().unwrap().push(name.to_owned());
    }

    fn settled<'a>(&'a self, key: &'a str, message_id: &'a str) -> BoxFuture<'a, Result<(), IntakeError>> {
        Box::pin(async move {
            self.store(None)?;
            self.settled.lock().unwrap().push((key.to_owned(), message_id.to_owned()));
            Ok(())
        })
    }
}
