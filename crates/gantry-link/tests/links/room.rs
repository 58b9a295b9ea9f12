//! Large messages need room that all links share: who finds none is told, who is too slow is ended, and small ones pass.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use gantry_link::{Account, FREE_BYTES, Link, LinkOptions, Metered, Pool, ROOM_WAIT, Socket};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_websockets::{ClientBuilder, Message};

use super::Echo;

const MB: usize = 1 << 20;

/// One end is a link that somebody pays for, the other is bare.
fn paid_by(account: Account) -> (Link, DuplexStream) {
    let (here, there) = tokio::io::duplex(MB);
    let mut socket: Socket<DuplexStream> = gantry_link::accepted(there);
    socket.limits_mut().set_max_payload_len(Some(64 * MB));
    let options = LinkOptions {
        account: Some(account),
        // Clocks that are wound on say nothing about silence.
        ping_every: Duration::from_secs(24 * 3600),
        ..LinkOptions::default()
    };
    let (link, running) = Link::new(socket, Arc::new(Echo::default()), options);
    tokio::spawn(running);
    (link, here)
}

/// The head of a binary frame whose mask changes nothing.
fn head(first: u8, length: usize) -> Vec<u8> {
    [&[first, 0xff][..], &(length as u64).to_be_bytes(), &[0; 4]].concat()
}

/// The code and the words of the close frame, which is the last.
async fn last_words(mut wire: DuplexStream) -> (u16, String) {
    let mut heard = Vec::new();
    let told = tokio::time::timeout(Duration::from_secs(120), wire.read_to_end(&mut heard));
    told.await.unwrap().unwrap();
    let at = heard.iter().position(|byte| *byte == 0x88).unwrap();
    let code = u16::from_be_bytes([heard[at + 2], heard[at + 3]]);
    (code, String::from_utf8_lossy(&heard[at + 4..]).into_owned())
}

/// Asks for an echo over a bare socket.
async fn echo(socket: &mut Socket<DuplexStream>, id: u64, bytes: usize) -> usize {
    let frame = json!({"type": "req", "id": id, "method": "echo", "params": "x".repeat(bytes)});
    socket.send(Message::text(frame.to_string())).await.unwrap();
    loop {
        let message = socket.next().await.unwrap().unwrap();
        if let Some(text) = message.as_text() {
            return text.len();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_finds_no_room_is_told_and_small_messages_pass() {
    let pool = Pool::new(4 << 20);
    let (_first, mut hoarder) = paid_by(pool.whole());
    // Room for all of it is taken with the first bytes.
    hoarder.write_all(&head(0x82, MB + MB / 2)).await.unwrap();
    hoarder.write_all(&[0; MB / 2]).await.unwrap();
    let (small, wire) = paid_by(pool.whole());
    let mut socket = ClientBuilder::new().take_over(Metered::new(wire));
    assert!(echo(&mut socket, 1, FREE_BYTES / 2).await > FREE_BYTES / 2);
    let (_late, mut late) = paid_by(pool.whole());
    let began = tokio::time::Instant::now();
    late.write_all(&head(0x82, MB + MB / 2)).await.unwrap();
    let (code, reason) = last_words(late).await;
    assert_eq!((code, began.elapsed().as_secs()), (1013, ROOM_WAIT.as_secs()), "{reason}");
    assert_eq!(reason, r#"{"code":"no_room"}"#);
    assert!(echo(&mut socket, 2, FREE_BYTES / 2).await > FREE_BYTES / 2, "small ones still pass");
    drop(hoarder);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(echo(&mut socket, 3, MB).await > MB, "there is room again");
    assert!(!small.is_closed());
    // Nothing is kept: neither of the message nor of the buffer it came in.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(pool.whole().try_take(4 << 20).is_some());
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_room_is_an_error_in_its_place() {
    let pool = Pool::new(4 << 20);
    let (_link, wire) = paid_by(pool.whole());
    let mut socket = ClientBuilder::new().take_over(Metered::new(wire));
    let held = pool.whole().try_take(2 * MB + MB / 2).unwrap();
    for id in 1..=2 {
        let frame = json!({"type": "req", "id": id, "method": "mebibyte"});
        socket.send(Message::text(frame.to_string())).await.unwrap();
    }
    // They wait for the peer to read, and there is room for one of them.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(pool.whole().try_take(MB).is_none(), "it has its room until it is written");
    let mut told = Vec::new();
    while told.len() < 2 {
        let message = socket.next().await.unwrap().unwrap();
        told.extend(message.as_text().map(str::to_owned));
    }
    let refused = told.iter().filter(|text| text.contains("no room for its answer")).count();
    assert_eq!(refused, 1, "{:?}", told.iter().map(String::len).collect::<Vec<_>>());
    drop(held);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(pool.whole().try_take(4 << 20).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_large_message_must_come_on() {
    let pool = Pool::new(64 << 20);
    // Pieces with pongs between them: it is there, and does not end.
    let (_slow, mut slow) = paid_by(pool.whole());
    slow.write_all(&[head(0x02, 100_000), vec![0; 100_000]].concat()).await.unwrap();
    let dribbling = async {
        let pong = [0x8a, 0x80, 0, 0, 0, 0];
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if slow.write_all(&pong).await.is_err() {
                break;
            }
        }
        last_words(slow).await
    };
    let began = tokio::time::Instant::now();
    let (code, reason) = dribbling.await;
    assert_eq!(code, 1008, "{reason}");
    assert!(reason == r#"{"code":"too_slow"}"# && began.elapsed().as_secs() < 62, "{reason}");
    // Slow, but honest: a little more than is expected.
    let (honest, mut wire) = paid_by(pool.whole());
    wire.write_all(&head(0x82, 20 * MB)).await.unwrap();
    for _ in 0..60 {
        wire.write_all(&vec![0; MB / 3]).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(!honest.is_closed());
}

#[tokio::test(start_paused = true)]
async fn fragments_that_can_never_fit_are_refused_at_once() {
    let pool = Pool::new(8 << 20);
    let (_link, mut wire) = paid_by(pool.half());
    wire.write_all(&head(0x82, 3 * MB)).await.unwrap();
    let (code, reason) = last_words(wire).await;
    assert_eq!(code, 1009, "{reason}");
}

/// What comes back for a request with so many values, and for our own question whose answer has so many.
#[tokio::test]
async fn many_small_values_pay_for_what_is_made_of_them() {
    let pool = Pool::new(16 << 20);
    let (link, wire) = paid_by(pool.whole());
    let mut socket = ClientBuilder::new().take_over(Metered::new(wire));
    let many = |objects: usize| format!("[{}0]", r#"{"":0},"#.repeat(objects));
    for (id, objects, code) in
        [(1, 1_000, None), (2, 60_000, Some("unavailable")), (3, 200_000, Some("too_large"))]
    {
        let frame = format!(r#"{{"type":"req","id":{id},"method":"echo","params":{}}}"#, many(objects));
        socket.send(Message::text(frame)).await.unwrap();
        let message = socket.next().await.unwrap().unwrap();
        let told: serde_json::Value = serde_json::from_str(message.as_text().unwrap()).unwrap();
        assert_eq!((told["id"].as_u64(), told["error"]["code"].as_str()), (Some(id), code), "{objects}");
    }
    let asking = tokio::spawn(async move { link.request("x", gantry_protocol::raw(&1), None).await });
    let question = socket.next().await.unwrap().unwrap();
    let question: serde_json::Value = serde_json::from_str(question.as_text().unwrap()).unwrap();
    let answer = format!(r#"{{"type":"res","id":{},"ok":true,"result":{}}}"#, question["id"], many(200_000));
    socket.send(Message::text(answer)).await.unwrap();
    let refused = asking.await.unwrap().unwrap_err();
    assert!(refused.to_string().contains("names and values"), "{refused}");
    assert!(pool.whole().try_take(16 << 20).is_some(), "what is over is given back");
}

#[tokio::test]
async fn a_link_that_is_over_keeps_no_room_for_what_it_could_not_write() {
    let account = Pool::new(64 << 20).whole();
    let (here, there) = tokio::io::duplex(MB);
    let options = LinkOptions { account: Some(account.clone()), ..LinkOptions::default() };
    let (link, running) = Link::new(gantry_link::accepted(there), Arc::new(Echo::default()), options);
    let running = tokio::spawn(running);
    let large = gantry_protocol::raw(&"x".repeat(MB));
    let soon = Duration::from_millis(300);
    // Until the queue takes no more: nobody reads.
    while let Ok(sent) = tokio::time::timeout(soon, link.event("large", large.clone())).await {
        sent.unwrap();
    }
    assert!(account.try_take(32 * MB).is_none());
    link.close(gantry_protocol::CloseReason::Done);
    running.await.unwrap();
    assert!(account.try_take(60 * MB).is_some(), "and its handle is still there");
    drop((link, here));
}
