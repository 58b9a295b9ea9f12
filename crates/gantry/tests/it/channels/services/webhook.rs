//! Signed requests in both directions.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_testkit::Gateway;
use serde_json::{Value, json};

use super::super::webhook::{KEY, post, signature};
use super::telegram::jiff_now;
use super::{Got, Person, Service};

pub(crate) struct WebhookService {
    url: String,
    answers: Arc<Mutex<Vec<Value>>>,
}

impl WebhookService {
    pub(crate) fn start() -> WebhookService {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let answers: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = answers.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = kept.clone();
                std::thread::spawn(move || receive(stream, &kept));
            }
        });
        WebhookService { url, answers }
    }
}

/// Keeps the bodies of one connection.
fn receive(stream: TcpStream, kept: &Mutex<Vec<Value>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if !matches!(reader.read_line(&mut line), Ok(1..)) {
                return;
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        kept.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
        let _ = reader.get_mut().write_all(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n");
    }
}

impl Service for WebhookService {
    fn id(&self) -> &'static str {
        "webhook:default"
    }

    fn config(&self) -> String {
        format!("[channels.webhook.default]\nsecret = \"secret:HOOK\"\nurl = \"{}\"\n", self.url)
    }

    fn secrets(&self) -> Vec<(&'static str, String)> {
        vec![("HOOK", KEY.to_owned())]
    }

    fn says(&self, up: &Gateway, person: Person, number: u64, text: &str) {
        let body = json!({"id": format!("{person:?}-{number}"), "from": {"id": format!("{person:?}")}, "text": text}).to_string();
        let address = up.url.trim_start_matches("http://");
        let seconds = i64::try_from(jiff_now()).unwrap();
        let taken = (0..50).any(|_| {
            post(address, &body, &signature(&body, seconds)) == Some(202) || {
                std::thread::sleep(Duration::from_millis(100));
                false
            }
        });
        assert!(taken, "the message was not taken");
    }

    fn got(&self, person: Person) -> Vec<Got> {
        let answers = self.answers.lock().unwrap();
        let own = answers.iter().filter(|answer| answer["peer"]["id"] == format!("{person:?}"));
        own.map(|answer| Got {
            text: answer["text"].as_str().unwrap_or_default().to_owned(),
            ..Got::default()
        })
        .collect()
    }
}
