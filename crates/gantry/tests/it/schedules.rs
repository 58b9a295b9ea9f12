//! Scheduled jobs and the outbox in a real gateway, with a scripted server in place of a model.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_testkit::World;

use crate::sessions::Model;

mod commands;
mod kills;

/// The time for a job to run.
const PATIENCE: Duration = Duration::from_secs(30);

/// A world whose agents use this model. Runs have budgets, so the model has a price.
fn world(model: &Model, more: &str) -> World {
    let price = "[models.providers.lab.models.scripted-1.price]\ninput = 0.01\noutput = 0.01";
    model.world(&format!("autonomy = \"guided\"\nflow = \"off\"\n{price}\n{more}"))
}

/// A receiver of webhooks that counts messages by their idempotency key.
pub(crate) struct Sink {
    pub(crate) url: String,
    seen: Arc<Mutex<HashMap<String, usize>>>,
}

impl Sink {
    pub(crate) fn start() -> Sink {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let seen: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        let counted = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counted = counted.clone();
                std::thread::spawn(move || serve(stream, &counted));
            }
        });
        Sink { url, seen }
    }

    /// The number of times that each key arrived.
    pub(crate) fn seen(&self) -> HashMap<String, usize> {
        self.seen.lock().unwrap().clone()
    }
}

/// Answers the requests of one connection.
fn serve(stream: TcpStream, seen: &Mutex<HashMap<String, usize>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut key, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let line = line.trim();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").unwrap_or((line, ""));
            match name.to_lowercase().as_str() {
                "idempotency-key" => value.clone_into(&mut key),
                "content-length" => length = value.parse().unwrap(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        *seen.lock().unwrap().entry(key).or_default() += 1;
        let answer = b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n";
        if reader.get_mut().write_all(answer).is_err() {
            return;
        }
    }
}
