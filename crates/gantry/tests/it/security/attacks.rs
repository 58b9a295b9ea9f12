//! Hostile peers: each is rejected with a reason, and the gateway keeps serving in bounded memory.

use std::time::{Duration, Instant};

use gantry_protocol::{MAX_CONNECT_BYTES, MAX_FRAME_BYTES, Role, StreamFrame, method};
use gantry_testkit::peers::{Client, Node, Raw, hello, params, runtime, tools};
use gantry_testkit::{Gateway, Random, World, eventually, is_soak};
use serde_json::{Value, json};

/// What a gateway may grow to under attack, in KB; a debug build is larger than what is shipped.
const MOST_RESIDENT_KB: u64 = 400 * 1024;

fn still_serves(up: &Gateway) {
    assert_eq!(up.get("/health").status, 200);
    let read = up.call("exec", &json!({"command": "echo alive"}));
    assert!(read.text().contains("alive"), "{}", read.text());
    assert!(up.resident_kb() < MOST_RESIDENT_KB, "{} KB", up.resident_kb());
}

#[test]
fn requests_before_connect_are_rejected() {
    let world = World::new();
    let up = Gateway::start(&world);
    runtime().block_on(async {
        let connect = |params: Value| json!({"type": "req", "id": 1, "method": "connect", "params": params});
        let mut unknown_field = json!(params(Role::Client, "c", &up.token, None));
        unknown_field["admin"] = json!(true);
        let texts = [
            json!({"type": "req", "id": 1, "method": method::TOOL_CALL, "params": {"tool": "exec"}}),
            json!({"type": "req", "id": 1, "method": "nodes.add", "params": {"id": "evil"}}),
            json!({"type": "res", "id": 1, "ok": true, "result": {}}),
            json!({"type": "evt", "event": "tool.ack", "seq": 1, "data": {}}),
            json!({"type": "cancel", "id": 1}),
            json!({"type": "connect", "token": up.token}),
            json!([1, 2]),
            connect(json!({})),
            connect(json!({"token": up.token})),
            connect(unknown_field),
        ];
        for text in texts {
            let mut raw = Raw::open(&up).await;
            raw.say(&text.to_string()).await;
            let (heard, reason) = raw.hear_all().await;
            assert_eq!(heard.len(), 1, "one answer to {text}: {heard:?}");
            let error = if heard[0]["event"] == "error" { &heard[0]["data"] } else { &heard[0]["error"] };
            let code = error["code"].as_str().unwrap();
            assert!(["not_connected", "bad_params"].contains(&code), "{text}: {heard:?}");
            assert!(reason.contains("1008") && reason.len() > 20, "{text}: {reason}");
        }
        let mut binary = Raw::open(&up).await;
        binary.send_bytes(StreamFrame::credit(1, 1).into_bytes().to_vec()).await;
        let (heard, reason) = binary.hear_all().await;
        assert_eq!(heard[0]["data"]["code"], "not_connected");
        assert!(reason.contains("not_connected"), "{reason}");
        let mut large = Raw::open(&up).await;
        large.say(&"x".repeat(MAX_CONNECT_BYTES + 1)).await;
        let (heard, reason) = large.hear_all().await;
        assert!(heard.is_empty() && reason.contains("1009"), "{reason}");
    });
    assert_eq!(up.node("evil"), json!(null));
    still_serves(&up);
}

#[test]
fn silent_socket_is_closed_after_ten_seconds() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "box", &[]);
    runtime().block_on(async {
        let began = Instant::now();
        let mut silent = Raw::open(&up).await;
        let node = Node::new("box", &token);
        let (without_tools, _) = node.connect(&up).await.unwrap();
        let (heard, _) = silent.hear_all().await;
        assert_eq!(heard[0]["data"]["code"], "not_connected", "{heard:?}");
        assert!((8..14).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        let reason = tokio::time::timeout(Duration::from_secs(5), without_tools.closed()).await.unwrap();
        assert_eq!(reason.reason, Some(gantry_protocol::CloseReason::ToolsMissing), "{reason}");
    });
}

#[test]
fn methods_of_another_role_are_rejected() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "box", &[]);
    runtime().block_on(async {
        let mut node = Raw::connected(&up, &params(Role::Node, "box", &token, Some(hello()))).await;
        for joined in [false, true] {
            if joined {
                node.say(
                    &json!({"type": "req", "id": 90, "method": "node.tools", "params": tools()}).to_string(),
                )
                .await;
                assert_eq!(node.hear().await.unwrap()["ok"], true);
            }
            for name in [
                "tool.call",
                "tools.list",
                "tools.get",
                "results.read",
                "nodes.list",
                "nodes.add",
                "nodes.revoke",
                "tokens.add",
                "tokens.list",
            ] {
                let params =
                    json!({"tool": "exec", "input": {"command": "touch evil"}, "id": "evil", "name": "evil"});
                node.say(&json!({"type": "req", "id": 5, "method": name, "params": params}).to_string())
                    .await;
                let answer = node.hear().await.unwrap();
                assert_eq!(answer["error"]["code"], "forbidden", "{name}: {answer}");
            }
        }
        let mut client = Raw::connected(&up, &params(Role::Client, "c", &up.token, None)).await;
        for name in ["node.tools", "process.ended", "logs.get", "bulk.open"] {
            client.say(&json!({"type": "req", "id": 5, "method": name, "params": tools()}).to_string()).await;
            let answer = client.hear().await.unwrap();
            assert!(
                ["unknown_method", "forbidden"].contains(&answer["error"]["code"].as_str().unwrap()),
                "{answer}"
            );
        }
        // Streams are nodes', and nobody's without a transfer.
        for socket in [&mut client, &mut node] {
            socket.send_bytes(StreamFrame::end(7, 0, &[0; 32]).into_bytes().to_vec()).await;
            assert_eq!(socket.hear().await.unwrap()["binary"], 4, "an abort with a reason");
        }
    });
    assert!(!world.workspace().join("evil").exists());
    assert_eq!(up.node("evil"), json!(null));
}

/// A node answers, reports on and ends only what it was asked itself.
#[test]
fn node_cannot_answer_another_nodes_call() {
    let world = World::new();
    let up = Gateway::start(&world);
    let (good_token, evil_token) = (up.add_node(&world, "good", &[]), up.add_node(&world, "evil", &[]));
    runtime().block_on(async {
        let good = Node::new("good", &good_token);
        let _link = good.join(&up).await;
        let mut evil = Raw::connected(&up, &params(Role::Node, "evil", &evil_token, Some(hello()))).await;
        evil.say(&json!({"type": "req", "id": 1, "method": "node.tools", "params": tools()}).to_string())
            .await;
        evil.hear().await.unwrap();
        let client = Client::operator(&up).await;
        let calling = client.call("good__Sleep", json!({"ms": 700}));
        let meddling = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let call = good.kept()[0].clone();
            for id in 0..50 {
                let result = json!({"tool": "Sleep", "json": {"slept": "by evil"}});
                evil.say(&json!({"type": "res", "id": id, "ok": true, "result": result}).to_string()).await;
                evil.say(&json!({"type": "cancel", "id": id}).to_string()).await;
            }
            let progress = json!({"call": call, "done": 666, "message": "evil"});
            evil.say(
                &json!({"type": "evt", "event": "call.progress", "seq": 1, "data": progress}).to_string(),
            )
            .await;
            let mut stolen = hello();
            stolen.calls = vec![call];
            drop(Raw::connected(&up, &params(Role::Node, "evil", &evil_token, Some(stolen))).await);
        };
        let (answer, ()) = tokio::join!(calling, meddling);
        assert_eq!(answer.unwrap()["json"], json!({"slept": true, "on": "good"}));
        assert!(client.events("call.progress").is_empty());
        assert_eq!(client.aborts(), 0);
    });
}

#[test]
fn token_is_valid_for_its_own_node_only() {
    let world = World::new();
    let up = Gateway::start(&world);
    let (a, _b) = (up.add_node(&world, "a", &[]), up.add_node(&world, "b", &[]));
    let client = up.client_token(&world, "client", &[]);
    runtime().block_on(async {
        let refused = async |role: Role, id: &str, token: &str| {
            let node = matches!(role, Role::Node).then(hello);
            let mut raw = Raw::open(&up).await;
            let params = params(role, id, token, node);
            raw.say(&json!({"type": "req", "id": 0, "method": "connect", "params": params}).to_string())
                .await;
            let (heard, reason) = raw.hear_all().await;
            assert_eq!(heard[0]["error"]["code"], "unauthorized", "{id}: {heard:?}");
            assert!(reason.contains("1008"), "{reason}");
            assert!(!heard[0].to_string().contains(token), "tokens are not repeated");
        };
        refused(Role::Node, "b", &a).await;
        refused(Role::Node, "a", &up.token).await;
        refused(Role::Node, "a", &client).await;
        refused(Role::Client, "a", &a).await;
        refused(Role::Node, "local", &a).await;
        refused(Role::Node, "gsv", &a).await;
        refused(Role::Node, "a__b", &a).await;
        refused(Role::Node, "../a", &a).await;
        refused(Role::Node, "a", &a.to_uppercase()).await;
        refused(Role::Node, "a", &a[..a.len() - 1]).await;
    });
    let as_node = format!("Bearer {a}");
    assert_eq!(up.ask("GET", "/v1/tools", &[("Authorization", &as_node)], b"").status, 401);
}

#[test]
fn token_is_accepted_in_the_header_only() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.token.clone();
    for path in [
        format!("/v1/tools?token={token}"),
        format!("/v1/tools?access_token={token}"),
        format!("/v1/tools?authorization=Bearer%20{token}"),
    ] {
        assert_eq!(up.ask("GET", &path, &[("Authorization", "")], b"").status, 401, "{path}");
    }
    let cookie = format!("token={token}");
    assert_eq!(up.ask("GET", "/v1/tools", &[("Authorization", ""), ("Cookie", &cookie)], b"").status, 401);
    for value in [
        format!("Basic {token}"),
        token.clone(),
        "Bearer".into(),
        "Bearer  ".into(),
        format!("Bearer x{token}"),
    ] {
        assert_eq!(up.ask("GET", "/v1/tools", &[("Authorization", &value)], b"").status, 401, "{value}");
    }
    runtime().block_on(async {
        let header = format!("Bearer {token}");
        let mut raw =
            Raw::open_with(&up, &format!("/ws?token={token}"), &[("Authorization", &header)]).await.unwrap();
        raw.say(&json!({"type": "req", "id": 1, "method": "tools.list"}).to_string()).await;
        let (heard, _) = raw.hear_all().await;
        assert_eq!(heard[0]["error"]["code"], "not_connected", "sockets authenticate in connect: {heard:?}");
    });
}

#[test]
fn foreign_hosts_and_origins_are_rejected_on_every_route() {
    let world = World::new();
    let up = Gateway::start(&world);
    let port = up.address.port();
    let upgrade = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for route in [
        "/health",
        "/metrics",
        "/v1/tools",
        "/v1/tools/read",
        "/v1/results/x",
        "/v1/nodes",
        "/ws",
        "/mcp",
        "/nothing",
    ] {
        let more: &[(&str, &str)] = if route == "/ws" { &upgrade } else { &[] };
        for host in [
            "evil.example",
            &format!("evil.example:{port}"),
            "127.0.0.1.evil.example",
            "localhost.",
            "10.0.0.1",
            "0.0.0.0",
        ] {
            let refused = up.ask("GET", route, &[&[("Host", host)], more].concat(), b"");
            assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"), "{host} {route}");
        }
        for origin in [
            "http://evil.example",
            "null",
            "file://",
            "http://localhost.evil.example",
            "chrome-extension://abc",
            "http://127.0.0.1",
            "http://localhost:3000",
            &format!("http://localhost:{}", port ^ 1),
        ] {
            let refused = up.ask("GET", route, &[&[("Origin", origin)], more].concat(), b"");
            assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"), "{origin} {route}");
        }
        let rebound = up.ask("GET", &format!("http://evil.example{route}"), more, b"");
        assert_eq!(rebound.status, 403, "{route}");
    }
    let own = format!("http://localhost:{port}");
    assert_eq!(
        up.ask("GET", "/health", &[("Origin", &own), ("Host", &format!("localhost:{port}"))], b"").status,
        200
    );
    let preflight = up.ask("OPTIONS", "/v1/tools", &[("Origin", "http://evil.example")], b"");
    assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (403, None));
    runtime().block_on(async {
        assert!(Raw::open_with(&up, "/ws", &[("Origin", "http://evil.example")]).await.is_err());
        assert!(Raw::open_with(&up, "/ws", &[("Origin", &own)]).await.is_ok());
    });
}

#[test]
fn token_guessing_is_rate_limited_on_loopback() {
    let world = World::new();
    let up = Gateway::start(&world);
    let client = up.client_token(&world, "client", &[]);
    let guess = |number: usize| {
        let bearer = format!("Bearer guess-{number}");
        up.ask("GET", "/v1/tools", &[("Authorization", &bearer)], b"")
    };
    let statuses: Vec<u16> = (0..30).map(|number| guess(number).status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 20, "{statuses:?}");
    assert_eq!(statuses[29], 429);
    let slowed = guess(99);
    assert_eq!((slowed.code().as_str(), slowed.header("retry-after")), ("too_many", Some("60")));
    assert_eq!(up.get("/v1/tools").status, 200, "the operator is not shut out by others' guesses");
    runtime().block_on(async {
        assert!(Client::connect(&up, "another guess").await.err().unwrap().to_string().contains("too many"));
        assert!(Client::connect(&up, &up.token).await.is_ok());
        // A client's good token has to be looked up, which guesses could wear out; it is let in all the same.
        assert!(Client::connect(&up, &client).await.is_ok(), "a valid token is not counted as a guess");
    });
}

#[test]
fn oversized_frames_close_the_link() {
    let world = World::new();
    let up = Gateway::start(&world);
    runtime().block_on(async {
        let mut raw = Raw::connected(&up, &params(Role::Client, "c", &up.token, None)).await;
        let before = up.resident_kb();
        raw.say(&"x".repeat(MAX_FRAME_BYTES + 1)).await;
        let (_, reason) = raw.hear_all().await;
        assert!(reason.contains("too_large"), "{reason}");
        // The allocator keeps what was freed for a moment.
        let until = Instant::now() + Duration::from_secs(5);
        while up.resident_kb() > before + 96 * 1024 {
            assert!(Instant::now() < until, "{before} KB before, {} KB after", up.resident_kb());
            assert_eq!(up.get("/v1/tools").status, 200);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let token = up.add_node(&world, "box", &[]);
        let mut node = Raw::connected(&up, &params(Role::Node, "box", &token, Some(hello()))).await;
        let mut long = StreamFrame::credit(1, 1).into_bytes().to_vec();
        long[0] = 1;
        long.resize(16 + 1024 * 1024 + 1, 0);
        node.send_bytes(long).await;
        assert_eq!(node.hear().await.unwrap()["data"]["code"], "bad_frame");
    });
    still_serves(&up);
}

/// An input that is just small enough for HTTP must not cut the connection of the node it is meant for.
#[test]
fn oversized_input_does_not_disconnect_a_node() {
    let world = World::new();
    let up = Gateway::start(&world);
    let node = Node::new("box", &up.add_node(&world, "box", &[]));
    let runtime = runtime();
    let link = runtime.block_on(node.join(&up));
    let body = format!("{{\"text\": \"{}\"}}", "x".repeat(MAX_FRAME_BYTES - 20));
    let refused = up.ask("POST", "/v1/tools/box__Echo", &[("Gantry-Deadline-Ms", "20000")], body.as_bytes());
    assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_input"));
    assert!(!link.is_closed() && node.runs() == 0);
    assert_eq!(up.call("box__Echo", &json!({"text": "x"})).status, 200);
}

#[test]
fn idle_connections_are_dropped_and_do_not_block_others() {
    let world = World::new();
    let up = Gateway::start(&world);
    let count = if is_soak() { 4_000 } else { 400 };
    let before = up.resident_kb();
    let mut idle: Vec<_> = (0..count).map(|_| up.connection()).collect();
    for (number, connection) in idle.iter_mut().enumerate() {
        let part: &[u8] =
            if number % 2 == 0 { b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: " } else { b"" };
        connection.write(part).unwrap();
    }
    let began = Instant::now();
    still_serves(&up);
    assert!(began.elapsed() < Duration::from_secs(3), "others are served meanwhile: {:?}", began.elapsed());
    println!(
        "{count} idle connections: {} KB each",
        (up.resident_kb().saturating_sub(before)) / count as u64
    );
    // A byte now and then does not buy more time.
    let until = Instant::now() + Duration::from_secs(9);
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(500));
        for connection in idle.iter_mut().step_by(2).take(20) {
            let _ = connection.write(b"a");
        }
    }
    for connection in &mut idle {
        assert!(connection.is_closed_within(Duration::from_secs(6)));
    }
    eventually("all are let go", Duration::from_secs(5), || open_files(&up) < 64);
}

fn open_files(up: &Gateway) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", up.pid())).unwrap().count()
}

/// Frames of every kind, spoilt in every way that comes to mind, from a client and from a node.
#[test]
fn fuzzed_frames_get_an_error_or_a_close() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "box", &[]);
    let total = if is_soak() { 10_000 } else { 1_000 };
    let mut random = Random::new();
    let before = up.resident_kb();
    runtime().block_on(async {
        let client = params(Role::Client, "c", &up.token, None);
        let node = params(Role::Node, "box", &token, Some(hello()));
        let mut sent = 0;
        while sent < total {
            let mut raw = match random.below(3) {
                0 => Raw::open(&up).await,
                1 => Raw::connected(&up, &client).await,
                _ => Raw::connected(&up, &node).await,
            };
            for _ in 0..40 {
                match random.below(4) {
                    0 => raw.send_bytes(spoilt_bytes(&mut random)).await,
                    _ => raw.say(&spoilt_text(&mut random)).await,
                }
                sent += 1;
            }
            raw.say(r#"{"type": "req", "id": 4294967296, "method": "nothing"}"#).await;
            // Either the link lives and answers the last, or it was closed with a reason.
            loop {
                match raw.hear().await {
                    Ok(heard) if heard["id"] == 4_294_967_296_u64 => break,
                    Ok(_) => {}
                    Err(reason) => {
                        assert!(reason.contains("closed with") || reason.contains("lost"), "{reason}");
                        break;
                    }
                }
            }
        }
    });
    println!("{total} frames: {before} KB before, {} KB after", up.resident_kb());
    still_serves(&up);
    assert!(!world.workspace().join("evil").exists());
}

fn spoilt_text(random: &mut Random) -> String {
    let templates = [
        json!({"type": "req", "id": 7, "method": "tool.call", "params": {"tool": "read", "input": {"path": "x"}}, "deadlineMs": 60000}),
        json!({"type": "req", "id": 8, "method": "tools.list", "params": {"toolset": "basic"}}),
        json!({"type": "req", "id": 9, "method": "connect", "params": {"protocol": {"min": 1, "max": 1}, "role": "node"}}),
        json!({"type": "req", "id": 10, "method": "node.tools", "params": tools()}),
        json!({"type": "res", "id": 1, "ok": false, "error": {"code": "denied", "message": "no", "retryable": false}}),
        json!({"type": "evt", "event": "call.progress", "seq": 12, "data": {"call": "x", "done": 1}}),
        json!({"type": "evt", "event": "tool.ack", "seq": 12, "data": {"callIds": ["a"]}}),
        json!({"type": "cancel", "id": 7}),
        json!({"type": "req", "id": 11, "method": "process.ended", "params": {"eventId": "e"}}),
        json!({"type": "req", "id": 12, "method": "results.read", "params": {"handle": "../../operator.token", "limit": 9}}),
    ];
    let template = templates[random.below(templates.len())].to_string();
    let mut chars: Vec<char> = template.chars().collect();
    match random.below(8) {
        0 => chars.truncate(random.below(chars.len())),
        1 => {
            let at = random.below(chars.len());
            chars[at] = ['\0', '"', '{', '\u{1F980}', '\\', '9', '-'][random.below(7)];
        }
        2 => {
            let number =
                ["-1", "1e400", "18446744073709551616", "0.5", "null", "\"x\"", "[]"][random.below(7)];
            return template.replacen(":7", &format!(":{number}"), 1).replacen(
                ":1,",
                &format!(":{number},"),
                1,
            );
        }
        3 => return format!("{}{}", "[".repeat(random.below(5_000)), template),
        4 => return template.replace("\"x\"", &format!("\"{}\"", "x".repeat(random.below(20_000)))),
        5 => return format!("{template}{template}"),
        6 => {
            let word = ["req", "res", "evt", "cancel", "read", "tool.call"][random.below(6)];
            return template.replace(word, &"\u{feff}".repeat(random.below(100)));
        }
        _ => {}
    }
    chars.into_iter().collect()
}

fn spoilt_bytes(random: &mut Random) -> Vec<u8> {
    let length = [0, 1, 15, 16, 17, 48, 4096][random.below(7)];
    let mut bytes: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
    if let Some(kind) = bytes.first_mut() {
        *kind = random.below(6) as u8;
    }
    bytes
}
