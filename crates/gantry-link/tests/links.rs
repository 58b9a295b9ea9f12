//! Links over an in-memory pipe: both ends are real, only the transport is not.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use gantry_link::{
    Event, HandshakeError, Link, LinkError, LinkOptions, Metered, Request, ServeFuture, Service, Socket,
    accepted, connect, receive_connect,
};
use gantry_protocol::{
    CloseReason, ConnectParams, ConnectResult, ErrorCode, MAX_FRAME_BYTES, ProtocolRange, Role, ServerInfo,
    StreamFrame, WireError, raw,
};
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio_websockets::{ClientBuilder, Message};

#[path = "links/memory_quota.rs"]
mod memory_quota;

#[derive(Default)]
struct Echo {
    seen: Mutex<Vec<String>>,
}

impl Echo {
    fn saw(&self, what: impl Into<String>) {
        self.seen.lock().unwrap().push(what.into());
    }

    async fn wait_for(&self, what: &str) {
        for _ in 0..500 {
            if self.seen.lock().unwrap().iter().any(|seen| seen == what) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{what} was not seen: {:?}", self.seen.lock().unwrap());
    }
}

impl Service for Echo {
    fn request(self: Arc<Self>, link: Link, request: Request) -> ServeFuture {
        Box::pin(async move {
            match &*request.method {
                "echo" => {
                    self.saw("echo");
                    Ok(request.params)
                }
                "mebibyte" => {
                    let count = self.seen.lock().unwrap().len() + 1;
                    self.saw(format!("mebibyte {count}"));
                    Ok(raw(&"x".repeat(1 << 20)))
                }
                "busy" => {
                    std::thread::sleep(Duration::from_secs(1));
                    Ok(raw(&()))
                }
                "panic" => panic!("on purpose"),
                "large" => Ok(raw(&"x".repeat(MAX_FRAME_BYTES))),
                "hang" => {
                    self.saw("hanging");
                    request.cancel.cancelled().await;
                    self.saw("cancelled");
                    Err(WireError::new(ErrorCode::Cancelled, "cancelled"))
                }
                // Sends a request over the same link before it answers.
                "back" => link.request("echo", request.params, None).await.map_err(|err| match err {
                    LinkError::Remote(error) => error,
                    LinkError::Closed(reason) => WireError::new(ErrorCode::Unavailable, reason.to_string()),
                }),
                "deadline" => {
                    let rest =
                        request.deadline.map(|at| at.saturating_duration_since(Instant::now()).as_millis());
                    Ok(raw(&rest.map(|ms| ms as u64)))
                }
                _ => Err(request.unknown()),
            }
        })
    }

    fn event(&self, _link: &Link, event: Event) {
        self.saw(format!("{} {}", event.name, event.data));
    }

    fn stream(&self, _link: &Link, frame: StreamFrame) {
        self.saw(format!("stream {} at {}", frame.stream(), frame.offset()));
    }
}

fn sockets() -> (Socket<DuplexStream>, Socket<DuplexStream>) {
    let (here, there) = tokio::io::duplex(256 * 1024);
    (ClientBuilder::new().take_over(Metered::new(here)), accepted(there))
}

fn params() -> ConnectParams {
    ConnectParams {
        protocol: ProtocolRange::default(),
        role: Role::Client,
        id: "test".into(),
        version: "0".into(),
        platform: "linux-x64".into(),
        token: "secret-token".into(),
        page_key: None,
        node: None,
    }
}

fn welcome() -> ConnectResult {
    let server = ServerInfo { version: "0".into(), instance: "i".into(), now: 0 };
    ConnectResult { protocol: 1, server, wanted: Vec::new(), workspace: None }
}

/// Returns two linked ends after a real handshake.
async fn linked(options: LinkOptions) -> (Link, Arc<Echo>, Link, Arc<Echo>) {
    let (mut here, mut there) = sockets();
    let server = async {
        let request = receive_connect(&mut there, Duration::from_secs(5)).await.unwrap();
        assert_eq!(request.params.token, "secret-token");
        request.accept(&mut there, &welcome()).await.unwrap();
    };
    let (connected, ()) =
        tokio::join!(async { connect(&mut here, &params(), Duration::from_secs(5)).await }, server);
    assert_eq!(connected.unwrap().protocol, 1);
    let (one, two) = (Arc::new(Echo::default()), Arc::new(Echo::default()));
    let (first, running) = Link::new(here, one.clone(), options.clone());
    tokio::spawn(running);
    let (second, running) = Link::new(there, two.clone(), options);
    tokio::spawn(running);
    (first, one, second, two)
}

async fn ask(link: &Link, method: &str, value: Value) -> Result<Value, LinkError> {
    link.request(method, raw(&value), None).await.map(|answer| serde_json::from_str(answer.get()).unwrap())
}

#[tokio::test]
async fn requests_work_both_ways_and_may_be_nested() {
    let (first, _, second, _) = linked(LinkOptions::default()).await;
    for link in [&first, &second] {
        assert_eq!(ask(link, "echo", json!({"a": 1})).await.unwrap(), json!({"a": 1}));
        assert_eq!(ask(link, "back", json!([2])).await.unwrap(), json!([2]));
    }
    let many = (0..100).map(|n| ask(&first, "echo", json!(n)));
    let answers = futures_util::future::join_all(many).await;
    assert!(answers.into_iter().enumerate().all(|(n, answer)| answer.unwrap() == json!(n)));
}

#[tokio::test]
async fn every_rejected_request_gets_an_error() {
    let (first, one, _, _) = linked(LinkOptions::default()).await;
    let code = |err: LinkError| match err {
        LinkError::Remote(error) => error.code,
        LinkError::Closed(reason) => panic!("{reason}"),
    };
    assert_eq!(code(ask(&first, "nothing", json!(0)).await.unwrap_err()), ErrorCode::UnknownMethod);
    assert_eq!(code(ask(&first, "panic", json!(0)).await.unwrap_err()), ErrorCode::Internal);
    assert_eq!(ask(&first, "echo", json!(1)).await.unwrap(), json!(1), "the link stays open");
    let within = first.request_within("hang", raw(&0), Duration::from_millis(50)).await;
    assert_eq!(code(within.unwrap_err()), ErrorCode::Deadline);
    drop(one);
}

/// The peer would close the connection on such a frame, and again after every reconnect that repeats it.
#[tokio::test]
async fn oversized_frame_is_rejected_before_it_is_sent() {
    let (first, _, second, _) = linked(LinkOptions::default()).await;
    for (method, value) in [("echo", json!("x".repeat(MAX_FRAME_BYTES))), ("large", json!(0))] {
        match ask(&first, method, value).await {
            Err(LinkError::Remote(error)) => assert_eq!(error.code, ErrorCode::TooLarge, "{method}"),
            other => panic!("{method}: {:?}", other.map(drop)),
        }
        assert_eq!(ask(&first, "echo", json!(1)).await.unwrap(), json!(1), "the link stays open");
    }
    assert!(!second.is_closed());
}

#[tokio::test]
async fn dropped_request_is_cancelled_at_the_peer() {
    let (first, _, _, two) = linked(LinkOptions::default()).await;
    let asking = tokio::spawn(async move { ask(&first, "hang", json!(0)).await });
    two.wait_for("hanging").await;
    asking.abort();
    two.wait_for("cancelled").await;
}

#[tokio::test]
async fn cancelled_request_may_still_answer() {
    let (first, _, _, two) = linked(LinkOptions::default()).await;
    let cancel = tokio_util::sync::CancellationToken::new();
    let asking = first.request_until("hang", raw(&0), None, &cancel, Duration::from_secs(5));
    let (answer, ()) = tokio::join!(asking, async {
        two.wait_for("hanging").await;
        cancel.cancel();
    });
    assert!(matches!(answer, Err(LinkError::Remote(error)) if error.code == ErrorCode::Cancelled));
    two.wait_for("cancelled").await;
}

#[tokio::test]
async fn both_ends_get_the_close_reason() {
    let (first, one, second, _) = linked(LinkOptions::default()).await;
    let asking = tokio::spawn({
        let second = second.clone();
        async move { ask(&second, "hang", json!(0)).await }
    });
    one.wait_for("hanging").await;
    first.close(CloseReason::TokenRevoked);
    assert_eq!(first.closed().await.reason, Some(CloseReason::TokenRevoked));
    one.wait_for("cancelled").await;
    let closed = second.closed().await;
    assert_eq!(closed.reason, Some(CloseReason::TokenRevoked));
    assert_eq!(closed.to_string(), "the peer closed the connection: the token was revoked");
    assert!(matches!(asking.await.unwrap(), Err(LinkError::Closed(reason)) if reason == closed));
    assert!(matches!(ask(&second, "echo", json!(0)).await, Err(LinkError::Closed(_))));
}

#[tokio::test]
async fn deadlines_events_and_streams_arrive() {
    let (first, _, _, two) = linked(LinkOptions::default()).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    let rest = first.request("deadline", raw(&0), Some(deadline)).await.unwrap();
    let rest: u64 = serde_json::from_str(rest.get()).unwrap();
    assert!((50_000..=60_000).contains(&rest), "{rest}");
    first.event("news", raw(&json!({"n": 1}))).await.unwrap();
    assert!(first.try_stream(StreamFrame::credit(7, 9)));
    two.wait_for("news {\"n\":1}").await;
    two.wait_for("stream 7 at 9").await;
}

#[tokio::test]
async fn requests_over_the_limit_are_rejected() {
    let (first, _, _, two) = linked(LinkOptions { max_serving: 2, ..LinkOptions::default() }).await;
    for _ in 0..2 {
        let first = first.clone();
        tokio::spawn(async move { ask(&first, "hang", json!(0)).await });
    }
    while two.seen.lock().unwrap().len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let refused = ask(&first, "echo", json!(0)).await.unwrap_err();
    assert!(
        matches!(refused, LinkError::Remote(error) if error.code == ErrorCode::TooMany && error.retryable)
    );
}

#[tokio::test(start_paused = true)]
async fn silent_peer_is_disconnected_after_two_pings() {
    let (here, _held) = tokio::io::duplex(1024);
    let socket = ClientBuilder::new().take_over(Metered::new(here));
    let options = LinkOptions { ping_every: Duration::from_millis(20), ..LinkOptions::default() };
    let (link, running) = Link::new(socket, Arc::new(Echo::default()), options);
    // The link measures silence with the real clock.
    tokio::spawn(running);
    let waited = async {
        loop {
            std::thread::sleep(Duration::from_millis(5));
            tokio::time::advance(Duration::from_millis(20)).await;
            tokio::task::yield_now().await;
            if link.is_closed() {
                return link.closed().await;
            }
        }
    };
    assert!(
        tokio::time::timeout(Duration::from_secs(60), waited).await.unwrap().reason
            == Some(CloseReason::Silent)
    );
}

#[tokio::test]
async fn peer_that_does_not_read_is_disconnected_as_soon() {
    let (here, _held) = tokio::io::duplex(1024);
    let socket = ClientBuilder::new().take_over(Metered::new(here));
    let options = LinkOptions { ping_every: Duration::from_millis(100), ..LinkOptions::default() };
    let (link, running) = Link::new(socket, Arc::new(Echo::default()), options);
    tokio::spawn(running);
    // The write blocks, and the pings behind it.
    link.event("news", raw(&"x".repeat(1 << 20))).await.unwrap();
    let reason = tokio::time::timeout(Duration::from_secs(3), link.closed()).await.unwrap();
    assert_eq!(reason.reason, Some(CloseReason::Silent), "{reason}");
}

#[tokio::test]
async fn requests_of_a_peer_that_does_not_read_are_not_processed() {
    let (mut here, mut there) = sockets();
    let service = Arc::new(Echo::default());
    let serving = service.clone();
    tokio::spawn(async move {
        let request = receive_connect(&mut there, Duration::from_secs(5)).await.unwrap();
        request.accept(&mut there, &welcome()).await.unwrap();
        let options = LinkOptions { max_serving: 8, queue: 8, ..LinkOptions::default() };
        Link::new(there, serving, options).1.await;
    });
    connect(&mut here, &params(), Duration::from_secs(5)).await.unwrap();
    let text = "x".repeat(64 * 1024);
    for id in 0..500 {
        let frame = json!({"type": "req", "id": id, "method": "echo", "params": text});
        here.send(Message::text(frame.to_string())).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let served = service.seen.lock().unwrap().len();
    assert!((8..60).contains(&served), "{served} were served");
}

/// The queue has room for many frames, but not for this many bytes.
#[tokio::test]
async fn queue_to_a_slow_peer_is_bounded_in_bytes() {
    let (mut here, mut there) = sockets();
    let service = Arc::new(Echo::default());
    let serving = service.clone();
    let options = LinkOptions { queue_bytes: 3 << 20, ..LinkOptions::default() };
    let accepting = tokio::spawn(async move {
        let request = receive_connect(&mut there, Duration::from_secs(5)).await.unwrap();
        request.accept(&mut there, &welcome()).await.unwrap();
        let (link, running) = Link::new(there, serving, options);
        tokio::spawn(running);
        link
    });
    connect(&mut here, &params(), Duration::from_secs(5)).await.unwrap();
    let link = accepting.await.unwrap();
    let queued = Arc::new(Mutex::new(0));
    let (sender, counting) = (link.clone(), queued.clone());
    // One frame exceeds the whole budget: it waits for its turn and is then sent.
    let sizes = [1 << 20; 20].into_iter().chain([5 << 20]);
    let sending = tokio::spawn(async move {
        for size in sizes {
            sender.event("large", raw(&"x".repeat(size))).await.unwrap();
            *counting.lock().unwrap() += 1;
        }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    // Two frames are queued, the writer holds one, and the pipe holds a quarter of one.
    let waiting = *queued.lock().unwrap();
    assert!((2..=4).contains(&waiting), "{waiting} were queued");
    assert!(link.try_event("small", raw(&1)), "a sender that cannot wait bypasses the byte limit");
    let mut came = Vec::new();
    while came.len() < 22 {
        let message = here.next().await.unwrap().unwrap();
        came.extend(message.as_text().map(str::len));
    }
    sending.await.unwrap();
    assert_eq!(came.iter().filter(|length| **length > 1 << 20).count(), 21);
    assert!(came.last().is_some_and(|last| *last > 5 << 20), "in their order: {came:?}");
    // The whole budget is free again.
    for _ in 0..2 {
        tokio::time::timeout(Duration::from_secs(5), link.event("large", raw(&"x".repeat(1 << 20))))
            .await
            .unwrap()
            .unwrap();
    }
}

#[tokio::test]
async fn answers_before_the_close_reach_a_slow_peer() {
    let (mut here, mut there) = sockets();
    let service = Arc::new(Echo::default());
    let running = tokio::spawn({
        let service = service.clone();
        async move {
            let request = receive_connect(&mut there, Duration::from_secs(5)).await.unwrap();
            request.accept(&mut there, &welcome()).await.unwrap();
            let (link, running) = Link::new(there, service, LinkOptions::default());
            tokio::spawn(running);
            link
        }
    });
    connect(&mut here, &params(), Duration::from_secs(5)).await.unwrap();
    let link = running.await.unwrap();
    for id in 1..=4 {
        let request = json!({"type": "req", "id": id, "method": "mebibyte", "params": null}).to_string();
        here.send(Message::text(request)).await.unwrap();
    }
    service.wait_for("mebibyte 4").await;
    link.answered().await;
    // The peer has read nothing yet, so the writer is in the middle of an answer.
    link.close(CloseReason::Stopping);
    let mut answers = 0;
    while let Some(Ok(message)) = here.next().await {
        answers += usize::from(message.is_text());
        if let Some((_, reason)) = message.as_close() {
            assert_eq!(reason, r#"{"code":"stopping"}"#);
        }
    }
    assert_eq!(answers, 4);
}

/// Sends these frames first. Returns the replies and the result of the handshake.
async fn send_first(messages: Vec<Message>) -> (Vec<Message>, Result<(), HandshakeError>) {
    let (mut here, mut there) = sockets();
    let server =
        tokio::spawn(async move { receive_connect(&mut there, Duration::from_millis(300)).await.map(drop) });
    for message in messages {
        let _ = here.send(message).await;
    }
    let mut answers = Vec::new();
    while let Some(Ok(message)) = here.next().await {
        answers.push(message);
    }
    (answers, server.await.unwrap())
}

#[tokio::test]
async fn frames_before_connect_are_rejected() {
    let long =
        format!(r#"{{"type":"req","id":1,"method":"connect","params":{{"id":"{}"}}}}"#, "x".repeat(70_000));
    for message in [
        Message::text(r#"{"type":"req","id":1,"method":"tool.call","params":{}}"#.to_owned()),
        Message::text(r#"{"type":"req","id":1,"method":"connect","params":{"role":"node"}}"#.to_owned()),
        Message::text(r#"{"type":"res","id":1,"ok":true}"#.to_owned()),
        Message::text("no json".to_owned()),
        Message::binary(StreamFrame::credit(1, 1).into_bytes()),
        Message::text(long),
    ] {
        let shown = format!("{message:?}").chars().take(100).collect::<String>();
        let (answers, outcome) = send_first(vec![message]).await;
        assert!(outcome.is_err(), "{shown}");
        let closed = answers.iter().any(Message::is_close);
        assert!(closed, "{shown} was answered with {answers:?}");
    }
    assert!(matches!(send_first(Vec::new()).await.1, Err(HandshakeError::TimedOut(_))));
}

#[tokio::test]
async fn malformed_frames_get_errors_and_too_many_close_the_link() {
    let (mut here, mut there) = sockets();
    tokio::spawn(async move {
        let request = receive_connect(&mut there, Duration::from_secs(5)).await.unwrap();
        request.accept(&mut there, &welcome()).await.unwrap();
        Link::new(there, Arc::new(Echo::default()), LinkOptions::default()).1.await;
    });
    connect(&mut here, &params(), Duration::from_secs(5)).await.unwrap();
    here.send(Message::text(r#"{"type":"what","id":5}"#.to_owned())).await.unwrap();
    let answer = here.next().await.unwrap().unwrap();
    let answer: Value = serde_json::from_str(answer.as_text().unwrap()).unwrap();
    assert_eq!((answer["id"].clone(), answer["error"]["code"].clone()), (json!(5), json!("bad_frame")));
    for _ in 0..100 {
        let _ = here.send(Message::binary(vec![9; 20])).await;
    }
    let mut closed = false;
    while let Some(Ok(message)) = here.next().await {
        closed |= message.is_close();
    }
    assert!(closed);
}

/// The runtime has one worker thread, as a gateway on two cores has.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn large_request_does_not_block_other_links() {
    let (busy, _, _busy, _) = linked(LinkOptions::default()).await;
    let (other, _, _other, _) = linked(LinkOptions::default()).await;
    let large = raw(&"x".repeat(2 << 20));
    let answered = tokio::spawn(async move { busy.request("busy", large, None).await.map(|_| ()) });
    let began = Instant::now();
    let mut slowest = Duration::ZERO;
    while began.elapsed() < Duration::from_millis(900) {
        let asked = Instant::now();
        // The request runs in its own task, because the test is about the single worker thread.
        let other = other.clone();
        let echo = tokio::spawn(async move { other.request("echo", raw(&1), None).await.map(|_| ()) });
        echo.await.unwrap().unwrap();
        slowest = slowest.max(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(slowest < Duration::from_millis(500), "{slowest:?}");
    answered.await.unwrap().unwrap();
}

/// No task serves the link any more, so callers must not wait forever.
#[tokio::test]
async fn link_is_closed_when_its_task_panics() {
    struct Fragile;
    impl Service for Fragile {
        fn request(self: Arc<Self>, _link: Link, request: Request) -> ServeFuture {
            Box::pin(async move { Err(request.unknown()) })
        }
        fn event(&self, _link: &Link, _event: Event) {
            panic!("on purpose");
        }
        fn stream(&self, _link: &Link, _frame: StreamFrame) {}
    }
    let (here, there) = sockets();
    let (link, running) = Link::new(here, Arc::new(Fragile), LinkOptions::default());
    let running = tokio::spawn(running);
    let (peer, peers) = Link::new(there, Arc::new(Echo::default()), LinkOptions::default());
    tokio::spawn(peers);
    let waiting = tokio::spawn({
        let link = link.clone();
        async move { ask(&link, "hang", json!(0)).await }
    });
    ask(&link, "echo", json!(1)).await.unwrap();
    assert!(peer.try_event("break", raw(&0)));
    assert!(running.await.unwrap_err().is_panic());
    let soon = Duration::from_secs(5);
    for asked in
        [tokio::time::timeout(soon, waiting).await.unwrap().unwrap(), ask(&link, "echo", json!(1)).await]
    {
        assert!(matches!(asked, Err(LinkError::Closed(_))), "{asked:?}");
    }
    assert!(link.is_closed() && !link.try_event("late", raw(&0)));
}

/// Pongs do not count against the queue, so the link stops reading from a peer that does not read them.
#[tokio::test]
async fn reading_stops_when_a_peer_pings_and_does_not_read() {
    let (mut here, there) = sockets();
    let (link, running) = Link::new(there, Arc::new(Echo::default()), LinkOptions::default());
    tokio::spawn(running);
    let mut sent = 0;
    let pinging = async {
        // Several times what the pipe holds in both directions.
        while sent < 30_000 {
            here.send(Message::ping(vec![b'x'; 100])).await.unwrap();
            sent += 1;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(5), pinging).await.is_err(), "{sent} pings were taken");
    assert!(!link.is_closed());
    // Reading resumes once the peer reads.
    let read = async {
        let mut pongs = 0;
        while pongs < sent {
            pongs += usize::from(here.next().await.unwrap().unwrap().is_pong());
        }
    };
    tokio::time::timeout(Duration::from_secs(5), read).await.unwrap();
}

/// Pongs that the peer has read must not stop the link from reading. Otherwise two ends that both write a lot
/// would deadlock.
#[tokio::test]
async fn flushed_pongs_do_not_stop_reading() {
    let (mut here, there) = sockets();
    let service = Arc::new(Echo::default());
    let (link, running) = Link::new(there, service.clone(), LinkOptions::default());
    tokio::spawn(running);
    for number in 0..63 {
        here.send(Message::ping(vec![b'x'; 10])).await.unwrap();
        while !here.next().await.unwrap().unwrap().is_pong() {}
        assert!(link.try_event("written", raw(&number)));
        while !here.next().await.unwrap().unwrap().is_text() {}
    }
    // More than the pipe holds, and the peer does not read it.
    assert!(link.try_event("large", raw(&"x".repeat(4 << 20))));
    tokio::time::sleep(Duration::from_millis(100)).await;
    here.send(Message::ping(vec![b'x'; 10])).await.unwrap();
    let heard = json!({"type": "evt", "event": "heard", "data": 1, "seq": 1});
    here.send(Message::text(heard.to_string())).await.unwrap();
    service.wait_for("heard 1").await;
}

#[tokio::test]
async fn link_is_closed_when_its_task_is_dropped_unpolled() {
    let (_here, there) = sockets();
    let (link, running) = Link::new(there, Arc::new(Echo::default()), LinkOptions::default());
    drop(running);
    let asked = tokio::time::timeout(Duration::from_secs(5), ask(&link, "echo", json!(1))).await.unwrap();
    assert!(matches!(asked, Err(LinkError::Closed(_))), "{asked:?}");
}
