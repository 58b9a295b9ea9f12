//! Fills the outbox of a data directory whose gateway does not run: `outbox_messages DIRECTORY CHANNEL COUNT`. The benchmark
//! measures how fast a gateway then sends the messages.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a benchmark")]

use gantry_protocol::OutboxBody;
use gantry_store::{DataDir, Database, NewOutboxMessage};

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap();
    let channel = arguments.next().unwrap();
    let count: usize = arguments.next().unwrap().parse().unwrap();
    let database = Database::open(&DataDir::new(directory.into())).await.unwrap();
    let message = |number: usize| NewOutboxMessage {
        dedupe: format!("bench-{number}"),
        channel: channel.clone(),
        target: String::new(),
        body: OutboxBody { agent: "main".into(), text: "x".repeat(500), ..OutboxBody::default() },
        expires: None,
    };
    let messages: Vec<NewOutboxMessage> = (0..count).map(message).collect();
    let now = jiff::Timestamp::now().as_millisecond();
    database.add_outbox(&messages, now).await.unwrap();
    database.close().await;
}
