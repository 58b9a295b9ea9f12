//! Joining, losing, being refused, being replaced, stopping.

use std::time::{Duration, Instant};

use gantry_node::{Comeback, NodeState, Over, Phase, TokenSource};
use gantry_protocol::{
    CloseReason, ErrorCode, LogsParams, LogsResult, StreamFrame, StreamKind, WireError, method, raw,
};
use serde_json::json;

use crate::gateway::{Gateway, LIMIT, params};
use crate::world::{Counts, TOKEN, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_says_who_it_is_and_what_it_can_do() {
    let gateway = Gateway::bind().await;
    let world = World::start(gateway.url());
    let peer = gateway.accept_all().await;
    assert_eq!((&*peer.params.id, &*peer.params.token), ("laptop", TOKEN));
    assert_eq!(peer.params.platform, gantry_protocol::current_platform());
    let hello = serde_json::to_value(peer.hello()).unwrap();
    assert_eq!(
        hello["tools"],
        json!({"Quick": ["filesystem.read"], "Wait": ["text.search", "filesystem.read"]})
    );
    assert_eq!(hello["hostCapabilities"], json!(["filesystem.read", "text.search"]));
    let tools = peer.seen.sent_request(method::NODE_TOOLS).await;
    assert_eq!(tools["tools"][0]["name"], "Quick");
    assert_eq!(tools["tools"][0]["annotations"]["readOnly"], true);
    assert_eq!(tools["tools"][1]["inputSchema"]["properties"]["ms"]["type"], "integer");
    for _ in 0..200 {
        if world.state().phase == Phase::Connected {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(world.state().phase, Phase::Connected);
    let instance = peer.hello().instance.clone();
    peer.cut().await;
    assert_eq!(gateway.accept_all().await.hello().instance, instance, "the same start of the node");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_written_nowhere() {
    let gateway = Gateway::bind().await;
    let world = World::start(gateway.url());
    let (mut socket, request) = gateway.knock().await;
    request.refuse(&mut socket, WireError::new(ErrorCode::TooMany, "unknown token")).await;
    let peer = gateway.accept_all().await;
    peer.call("a", "Wait", json!({"ms": 0})).await.unwrap();
    world.stop.cancel();
    world.log.flush().unwrap();
    let written = world.everything_written();
    assert!(written.contains("unknown token") && !written.contains("very-secret"), "{written}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_sent_away_asks_once_more_and_then_ends() {
    let gateway = Gateway::bind().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let write = |token: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(&file, token).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    };
    write("old");
    let world = World::start_with(gateway.url(), |options| options.token = TokenSource::File(file.clone()));
    let peer = gateway.accept_all().await;
    // A new token is there before the old one is refused.
    write("new");
    peer.link.close(CloseReason::NodeTokenRenewed);
    let peer = gateway.accept_all().await;
    peer.link.close(CloseReason::NodeRenamed { new_id: "desk".into() });
    let (mut socket, request) = gateway.knock().await;
    assert_eq!(request.params.token, "new");
    request.refuse(&mut socket, WireError::new(ErrorCode::Unauthorized, "the token is not valid")).await;
    let reason = "the node was renamed to desk; start it with that id".to_owned();
    let over = tokio::time::timeout(Duration::from_secs(10), world.running).await.unwrap().unwrap();
    assert_eq!(over, Over::Unauthorized { reason, comeback: Comeback::UnderId("desk".into()) });
    let state = NodeState::read(&world.home).unwrap();
    assert_eq!(state.phase, Phase::Stopped);
    assert!(state.last_error.unwrap().contains("renamed to desk"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_refused_token_ends_a_node() {
    let gateway = Gateway::bind().await;
    let world = World::start(gateway.url());
    for code in [ErrorCode::TooMany, ErrorCode::Internal, ErrorCode::Unavailable] {
        let (mut socket, request) = gateway.knock().await;
        request.refuse(&mut socket, WireError::new(code, "not now")).await;
    }
    let (mut socket, request) = gateway.knock().await;
    request.refuse(&mut socket, WireError::new(ErrorCode::Unauthorized, "the token was revoked")).await;
    let over = tokio::time::timeout(Duration::from_secs(10), world.running).await.unwrap().unwrap();
    let comeback = Comeback::Unexpected;
    assert_eq!(over, Over::Unauthorized { reason: "the token was revoked".into(), comeback });
    let world = World::start(gateway.url());
    gateway.accept_all().await.link.close(CloseReason::NodeTokenRenewed);
    let (mut socket, request) = gateway.knock().await;
    request.refuse(&mut socket, WireError::new(ErrorCode::Unauthorized, "the token is not valid")).await;
    let over = tokio::time::timeout(Duration::from_secs(10), world.running).await.unwrap().unwrap();
    let comeback = Comeback::WithNewToken;
    assert_eq!(over, Over::Unauthorized { reason: "the node's token was renewed".into(), comeback });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_node_does_not_fight_for_its_place() {
    let gateway = Gateway::bind().await;
    let world = World::start(gateway.url());
    let peer = gateway.accept_all().await;
    peer.link.close(CloseReason::Replaced);
    let closed = Instant::now();
    let (mut socket, request) = gateway.knock().await;
    assert!(closed.elapsed() >= Duration::from_millis(250), "{:?}", closed.elapsed());
    let told = world.state().last_error.unwrap();
    assert!(told.contains("another process") && told.contains("waits"), "{told}");
    // It stays patient, and is there when the place is free.
    request.refuse(&mut socket, WireError::new(ErrorCode::Conflict, "that one is still here")).await;
    let refused = Instant::now();
    gateway.accept_all().await;
    assert!(refused.elapsed() >= Duration::from_millis(250), "{:?}", refused.elapsed());
    world.log.flush().unwrap();
    let log = world.everything_written();
    assert!(log.contains(r#""event":"replaced""#) && log.contains("another process"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_is_noticed_in_every_state() {
    // Nobody listens there: it dials and waits.
    let gateway = Gateway::bind().await;
    let url = gateway.url();
    drop(gateway);
    let waiting = World::start_with(url, |options| {
        // Jitter makes it any part of this: a wait below a second is one in thousands.
        options.pace.first = Duration::from_secs(3_600);
        options.pace.slowest = Duration::from_secs(3_600);
    });
    // Somebody listens, and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let dialling = World::start(gantry_net::GatewayUrl::parse(&address).unwrap());
    tokio::time::sleep(Duration::from_millis(200)).await;
    for world in [waiting, dialling] {
        let told = Instant::now();
        world.stop.cancel();
        tokio::time::timeout(LIMIT, world.running).await.unwrap().unwrap();
        assert!(told.elapsed() < Duration::from_secs(1), "{:?}", told.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_node_lets_calls_finish_delivers_them_and_says_goodbye() {
    let gateway = Gateway::bind().await;
    let world = World::start(gateway.url());
    let peer = gateway.accept_all().await;
    let link = peer.link.clone();
    let running = tokio::spawn(async move {
        link.request(method::TOOL_CALL, raw(&params("a", "Wait", &json!({"ms": 500, "chars": 1}))), None)
            .await
    });
    Counts::reach(&world.counts.started, 1).await;
    world.stop.cancel();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(peer.call("b", "Wait", json!({"ms": 0})).await.unwrap_err().code, ErrorCode::Unavailable);
    let answer = running.await.unwrap().unwrap();
    assert!(answer.get().contains(r#""text":"x""#), "{answer}");
    let reason = tokio::time::timeout(LIMIT, peer.link.closed()).await.unwrap();
    assert_eq!(reason.reason, Some(CloseReason::NodeStopping), "{reason}");
    tokio::time::timeout(LIMIT, world.running).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_read_over_the_wire() {
    let gateway = Gateway::bind().await;
    let world = World::start(gateway.url());
    let peer = gateway.accept_all().await;
    for number in 0..50 {
        world.log.info("tick", json!({ "number": number }));
    }
    let answer =
        peer.link.request_within(method::LOGS_GET, raw(&LogsParams { lines: 10 }), LIMIT).await.unwrap();
    let logs: LogsResult = serde_json::from_str(answer.get()).unwrap();
    assert_eq!((logs.lines.len(), logs.truncated), (10, true));
    assert!(logs.lines[9].contains(r#""number":49"#), "{:?}", logs.lines);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_socket_is_opened_for_streams_and_goes_with_the_first() {
    let gateway = Gateway::bind().await;
    let _world = World::start(gateway.url());
    let peer = gateway.accept_all().await;
    let opening = peer.link.request_within(method::BULK_OPEN, raw(&json!({})), LIMIT);
    let (opened, bulk) = tokio::join!(opening, gateway.accept_all());
    opened.unwrap();
    assert!(bulk.hello().bulk && bulk.hello().tools.is_empty());
    assert_eq!(bulk.hello().instance, peer.hello().instance);
    // Open already: no third socket.
    peer.link.request_within(method::BULK_OPEN, raw(&json!({})), LIMIT).await.unwrap();
    bulk.link.stream(StreamFrame::credit(7, 100)).await.unwrap();
    for _ in 0..1_000 {
        if !bulk.seen.streams().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let frames = bulk.seen.streams();
    assert_eq!((frames[0].kind(), frames[0].stream()), (StreamKind::Abort, 7));
    peer.cut().await;
    tokio::time::timeout(LIMIT, bulk.link.closed()).await.expect("the second socket goes with the first");
}
