//! Large messages need memory from a shared quota: without it the peer gets an error, slow peers are disconnected,
//! and small messages always pass.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use gantry_link::{Account, FREE_BYTES, Link, LinkOptions, Metered, Pool, RESERVE_TIMEOUT, Socket};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_websockets::{ClientBuilder, Message};

use super::Echo;

const MB: usize = 1 << 20;

/// Returns a link with a memory account and the raw other end.
fn link_with(account: Account) -> (Link, DuplexStream) {
    let (here, there) = tokio::io::duplex(MB);
    let mut socket: Socket<DuplexStream> = gantry_link::accepted(there);
    socket.limits_mut().set_max_payload_len(Some(64 * MB));
    let options = LinkOptions {
        account: Some(account),
        // The paused clock jumps ahead, which must not look like silence.
        ping_every: Duration::from_secs(24 * 3600),
        ..LinkOptions::default()
    };
    let (link, running) = Link::new(socket, Arc::new(Echo::default()), options);
    tokio::spawn(running);
    (link, here)
}

/// The header of a binary frame with a zero mask.
fn frame_header(first: u8, length: usize) -> Vec<u8> {
    [&[first, 0xff][..], &(length as u64).to_be_bytes(), &[0; 4]].concat()
}

/// Reads until the close frame. Returns its code and reason.
async fn close_frame(mut wire: DuplexStream) -> (u16, String) {
    let mut received = Vec::new();
    let reading = tokio::time::timeout(Duration::from_secs(120), wire.read_to_end(&mut received));
    reading.await.unwrap().unwrap();
    let at = received.iter().position(|byte| *byte == 0x88).unwrap();
    let code = u16::from_be_bytes([received[at + 2], received[at + 3]]);
    (code, String::from_utf8_lossy(&received[at + 4..]).into_owned())
}

/// Requests an echo over a raw socket.
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
async fn exhausted_quota_rejects_large_messages_and_passes_small_ones() {
    let pool = Pool::new(4 << 20);
    let (_first, mut hoarder) = link_with(pool.whole());
    // The first bytes reserve memory for the whole frame.
    hoarder.write_all(&frame_header(0x82, MB + MB / 2)).await.unwrap();
    hoarder.write_all(&[0; MB / 2]).await.unwrap();
    let (small, wire) = link_with(pool.whole());
    let mut socket = ClientBuilder::new().take_over(Metered::new(wire));
    assert!(echo(&mut socket, 1, FREE_BYTES / 2).await > FREE_BYTES / 2);
    let (_late, mut late) = link_with(pool.whole());
    let began = tokio::time::Instant::now();
    late.write_all(&frame_header(0x82, MB + MB / 2)).await.unwrap();
    let (code, reason) = close_frame(late).await;
    assert_eq!((code, began.elapsed().as_secs()), (1013, RESERVE_TIMEOUT.as_secs()), "{reason}");
    assert_eq!(reason, r#"{"code":"no_room"}"#);
    assert!(echo(&mut socket, 2, FREE_BYTES / 2).await > FREE_BYTES / 2, "small messages still pass");
    drop(hoarder);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(echo(&mut socket, 3, MB).await > MB, "the memory is free again");
    assert!(!small.is_closed());
    // Neither the message nor its buffer holds memory any longer.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(pool.whole().try_reserve(4 << 20).is_some());
}

#[tokio::test(start_paused = true)]
async fn answer_over_the_quota_is_replaced_by_an_error() {
    let pool = Pool::new(4 << 20);
    let (_link, wire) = link_with(pool.whole());
    let mut socket = ClientBuilder::new().take_over(Metered::new(wire));
    let held = pool.whole().try_reserve(2 * MB + MB / 2).unwrap();
    for id in 1..=2 {
        let frame = json!({"type": "req", "id": id, "method": "mebibyte"});
        socket.send(Message::text(frame.to_string())).await.unwrap();
    }
    // Both answers wait for the peer to read, and the quota has room for one of them.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(pool.whole().try_reserve(MB).is_none(), "an answer holds its reservation until it is written");
    let mut answers = Vec::new();
    while answers.len() < 2 {
        let message = socket.next().await.unwrap().unwrap();
        answers.extend(message.as_text().map(str::to_owned));
    }
    let refused = answers.iter().filter(|text| text.contains("no memory is free now for its answer")).count();
    assert_eq!(refused, 1, "{:?}", answers.iter().map(String::len).collect::<Vec<_>>());
    drop(held);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(pool.whole().try_reserve(4 << 20).is_some());
}

#[tokio::test(start_paused = true)]
async fn large_message_that_is_too_slow_is_rejected() {
    let pool = Pool::new(64 << 20);
    // The peer sends pongs between fragments: it is alive, but the message does not end.
    let (_slow, mut slow) = link_with(pool.whole());
    slow.write_all(&[frame_header(0x02, 100_000), vec![0; 100_000]].concat()).await.unwrap();
    let dribbling = async {
        let pong = [0x8a, 0x80, 0, 0, 0, 0];
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if slow.write_all(&pong).await.is_err() {
                break;
            }
        }
        close_frame(slow).await
    };
    let began = tokio::time::Instant::now();
    let (code, reason) = dribbling.await;
    assert_eq!(code, 1008, "{reason}");
    assert!(reason == r#"{"code":"too_slow"}"# && began.elapsed().as_secs() < 62, "{reason}");
    // Slightly faster than required.
    let (honest, mut wire) = link_with(pool.whole());
    wire.write_all(&frame_header(0x82, 20 * MB)).await.unwrap();
    for _ in 0..60 {
        wire.write_all(&vec![0; MB / 3]).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(!honest.is_closed());
}

#[tokio::test(start_paused = true)]
async fn fragments_over_the_limit_are_rejected_at_once() {
    let pool = Pool::new(8 << 20);
    let (_link, mut wire) = link_with(pool.half());
    wire.write_all(&frame_header(0x82, 3 * MB)).await.unwrap();
    let (code, reason) = close_frame(wire).await;
    assert_eq!(code, 1009, "{reason}");
}

/// Covers a request with many values, and our own request whose answer has many values.
#[tokio::test]
async fn many_small_values_count_against_the_quota() {
    let pool = Pool::new(16 << 20);
    let (link, wire) = link_with(pool.whole());
    let mut socket = ClientBuilder::new().take_over(Metered::new(wire));
    let many = |objects: usize| format!("[{}0]", r#"{"":0},"#.repeat(objects));
    for (id, objects, code) in
        [(1, 1_000, None), (2, 60_000, Some("unavailable")), (3, 200_000, Some("too_large"))]
    {
        let frame = format!(r#"{{"type":"req","id":{id},"method":"echo","params":{}}}"#, many(objects));
        socket.send(Message::text(frame)).await.unwrap();
        let message = socket.next().await.unwrap().unwrap();
        let answer: serde_json::Value = serde_json::from_str(message.as_text().unwrap()).unwrap();
        assert_eq!((answer["id"].as_u64(), answer["error"]["code"].as_str()), (Some(id), code), "{objects}");
    }
    let asking = tokio::spawn(async move { link.request("x", gantry_protocol::raw(&1), None).await });
    let question = socket.next().await.unwrap().unwrap();
    let question: serde_json::Value = serde_json::from_str(question.as_text().unwrap()).unwrap();
    let answer = format!(r#"{{"type":"res","id":{},"ok":true,"result":{}}}"#, question["id"], many(200_000));
    socket.send(Message::text(answer)).await.unwrap();
    let refused = asking.await.unwrap().unwrap_err();
    assert!(refused.to_string().contains("names and values"), "{refused}");
    assert!(pool.whole().try_reserve(16 << 20).is_some(), "finished requests release their memory");
}

#[tokio::test]
async fn closed_link_releases_the_memory_of_unwritten_frames() {
    let account = Pool::new(64 << 20).whole();
    let (here, there) = tokio::io::duplex(MB);
    let options = LinkOptions { account: Some(account.clone()), ..LinkOptions::default() };
    let (link, running) = Link::new(gantry_link::accepted(there), Arc::new(Echo::default()), options);
    let running = tokio::spawn(running);
    let large = gantry_protocol::raw(&"x".repeat(MB));
    let soon = Duration::from_millis(300);
    // Fill the queue: the peer does not read.
    while let Ok(sent) = tokio::time::timeout(soon, link.event("large", large.clone())).await {
        sent.unwrap();
    }
    assert!(account.try_reserve(32 * MB).is_none());
    link.close(gantry_protocol::CloseReason::Done);
    running.await.unwrap();
    assert!(account.try_reserve(60 * MB).is_some(), "although a handle still exists");
    drop((link, here));
}
