//! A node joins, loses its connection, is rejected, is replaced, and stops.

use std::time::{Duration, Instant};

use gantry_node::{ExitReason, Level, NodeState, Phase, Rejoin, TokenSource};
use gantry_protocol::{
    CloseReason, ErrorCode, LogsParams, LogsResult, StreamFrame, StreamKind, WireError, method, raw,
};
use serde_json::{Map, json};

use crate::gateway::{Gateway, LIMIT, params};
use crate::world::{Counts, TOKEN, World};

#[tokio::test(flavor = "multi_thread")]
async fn node_sends_its_identity_and_tools() {
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
    assert_eq!(gateway.accept_all().await.hello().instance, instance, "the same process of the node");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_is_never_written_to_disk() {
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
async fn dismissed_node_retries_once_and_then_ends() {
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
    // The new token is in place before the old one is rejected.
    write("new");
    peer.link.close(CloseReason::NodeTokenRenewed);
    let peer = gateway.accept_all().await;
    peer.link.close(CloseReason::NodeRenamed { new_id: "desk".into() });
    let (mut socket, request) = gateway.knock().await;
    assert_eq!(request.params.token, "new");
    request.refuse(&mut socket, WireError::new(ErrorCode::Unauthorized, "the token is not valid")).await;
    let reason = "the node was renamed to desk; start it with that id".to_owned();
    let over = tokio::time::timeout(Duration::from_secs(10), world.running).await.unwrap().unwrap();
    assert_eq!(over, ExitReason::Unauthorized { reason, rejoin: Rejoin::UnderId("desk".into()) });
    let state = NodeState::read(&world.home).unwrap();
    assert_eq!(state.phase, Phase::Stopped);
    assert!(state.last_error.unwrap().contains("renamed to desk"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_rejected_token_ends_a_node() {
    let gateway = Gateway::bind().await;
    let world = World::start(gateway.url());
    for code in [ErrorCode::TooMany, ErrorCode::Internal, ErrorCode::Unavailable] {
        let (mut socket, request) = gateway.knock().await;
        request.refuse(&mut socket, WireError::new(code, "not now")).await;
    }
    let (mut socket, request) = gateway.knock().await;
    request.refuse(&mut socket, WireError::new(ErrorCode::Unauthorized, "the token was revoked")).await;
    let over = tokio::time::timeout(Duration::from_secs(10), world.running).await.unwrap().unwrap();
    let rejoin = Rejoin::Unexpected;
    assert_eq!(over, ExitReason::Unauthorized { reason: "the token was revoked".into(), rejoin });
    let world = World::start(gateway.url());
    gateway.accept_all().await.link.close(CloseReason::NodeTokenRenewed);
    let (mut socket, request) = gateway.knock().await;
    request.refuse(&mut socket, WireError::new(ErrorCode::Unauthorized, "the token is not valid")).await;
    let over = tokio::time::timeout(Duration::from_secs(10), world.running).await.unwrap().unwrap();
    let rejoin = Rejoin::WithNewToken;
    assert_eq!(over, ExitReason::Unauthorized { reason: "the node's token was renewed".into(), rejoin });
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_node_waits_until_the_other_is_gone() {
    let gateway = Gateway::bind().await;
    let world = World::start(gateway.url());
    let peer = gateway.accept_all().await;
    peer.link.close(CloseReason::Replaced);
    let closed = Instant::now();
    let (mut socket, request) = gateway.knock().await;
    assert!(closed.elapsed() >= Duration::from_millis(250), "{:?}", closed.elapsed());
    let error = world.state().last_error.unwrap();
    assert!(error.contains("another process") && error.contains("waits"), "{error}");
    // It keeps waiting and joins when the other process is gone.
    request.refuse(&mut socket, WireError::new(ErrorCode::Conflict, "that one is still here")).await;
    let refused = Instant::now();
    gateway.accept_all().await;
    assert!(refused.elapsed() >= Duration::from_millis(250), "{:?}", refused.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn node_stops_in_every_state() {
    // No gateway listens there: the node dials and waits.
    let gateway = Gateway::bind().await;
    let url = gateway.url();
    drop(gateway);
    let waiting = World::start_with(url, |options| {
        // Jitter picks any part of this; a wait below a second is very unlikely.
        options.pace.first = Duration::from_secs(3_600);
        options.pace.slowest = Duration::from_secs(3_600);
    });
    // A server listens and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let dialling = World::start(gantry_net::GatewayUrl::parse(&address).unwrap());
    tokio::time::sleep(Duration::from_millis(200)).await;
    for world in [waiting, dialling] {
        let error = Instant::now();
        world.stop.cancel();
        tokio::time::timeout(LIMIT, world.running).await.unwrap().unwrap();
        assert!(error.elapsed() < Duration::from_secs(1), "{:?}", error.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_node_finishes_and_delivers_calls_before_closing() {
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
async fn log_can_be_read_over_the_link() {
    let gateway = Gateway::bind().await;
    let world = World::start(gateway.url());
    let peer = gateway.accept_all().await;
    for number in 0..50 {
        world.log.event(Level::Info, "tick", Map::from_iter([("number".to_owned(), json!(number))]));
    }
    let answer =
        peer.link.request_within(method::LOGS_GET, raw(&LogsParams { lines: 10 }), LIMIT).await.unwrap();
    let logs: LogsResult = serde_json::from_str(answer.get()).unwrap();
    assert_eq!((logs.lines.len(), logs.truncated), (10, true));
    assert!(logs.lines[9].contains(r#""number":49"#), "{:?}", logs.lines);
}

#[tokio::test(flavor = "multi_thread")]
async fn bulk_connection_opens_and_closes_with_the_main_one() {
    let gateway = Gateway::bind().await;
    let _world = World::start(gateway.url());
    let peer = gateway.accept_all().await;
    let opening = peer.link.request_within(method::BULK_OPEN, raw(&json!({})), LIMIT);
    let (opened, bulk) = tokio::join!(opening, gateway.accept_all());
    opened.unwrap();
    assert!(bulk.hello().bulk && bulk.hello().tools.is_empty());
    assert_eq!(bulk.hello().instance, peer.hello().instance);
    // It is open already, so no third socket is opened.
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
    tokio::time::timeout(LIMIT, bulk.link.closed())
        .await
        .expect("the bulk connection closes with the main one");
}
