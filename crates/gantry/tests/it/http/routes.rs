//! Every route and every status over plain HTTP.

use std::time::{Duration, Instant};

use gantry_store::KeptResults;
use gantry_testkit::{Gateway, World, is_soak};
use gantry_tool::ResultStore;
use serde_json::json;

const AGENTS: &str = r#"
[agents.watched]
autonomy = "supervised"
tools = "all"

[[policy.rules]]
tool = "write"
decision = "deny"
reason = "not today"
"#;

#[test]
fn every_route_except_health_and_the_page_requires_a_token() {
    let world = World::new();
    let up = Gateway::start(&world);
    let health = up.ask("GET", "/health", &[("Authorization", "")], b"");
    assert_eq!((health.status, &health.json()["status"]), (200, &json!("ok")));
    let metrics = up.get("/metrics");
    assert_eq!(metrics.status, 200);
    let tools = up.get("/v1/tools").json();
    let names: Vec<&str> =
        tools["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    for expected in ["Read", "local__Read", "read", "bash", "gsv__ReadFile"] {
        assert!(names.contains(&expected), "{expected} is not in {names:?}");
    }
    assert_eq!(up.get("/v1/tools?toolset=basic").json()["tools"].as_array().unwrap().len(), 3);
    assert_eq!(up.get("/v1/tools?toolset=none").code(), "bad_params");
    assert_eq!(up.get("/v1/tools/local__Read").json()["inputSchema"]["type"], "object");
    assert_eq!(up.get("/v1/tools/Raed").status, 404);
    assert_eq!(up.node("local")["online"], true);
    let routes = ["/metrics", "/v1/tools", "/v1/tools/Read", "/v1/results/res_1", "/v1/nodes", "/nothing"];
    for route in routes {
        let refused = up.ask("GET", route, &[("Authorization", "")], b"");
        assert_eq!((refused.status, refused.code().as_str()), (401, "unauthorized"), "{route}");
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"), "{route}");
    }
    assert_eq!((up.get("/nothing").status, up.get("/nothing").code().as_str()), (404, "not_found"));
    for (method, route) in
        [("DELETE", "/v1/tools/Read"), ("POST", "/v1/nodes"), ("PUT", "/metrics"), ("POST", "/health")]
    {
        let refused = up.ask(method, route, &[], b"");
        assert_eq!((refused.status, refused.code().as_str()), (405, "not_allowed"), "{method} {route}");
    }
    assert_eq!(up.get("/ws").code(), "bad_frame", "no upgrade was asked for");
}

#[test]
fn outcomes_map_to_http_statuses() {
    let world = World::new();
    world.configure(AGENTS);
    world.write("a.txt", "one\n");
    let up = Gateway::start(&world);
    let read = up.call("Read", &json!({"path": "a.txt"}));
    assert_eq!((read.status, &read.json()["content"]), (200, &json!("1\tone")));
    assert_eq!(read.header("content-type"), Some("application/json"));
    assert_eq!(read.header("gantry-tool"), Some("local__Read"));
    assert!(read.header("gantry-call-id").is_some());
    let failed = up.call("Read", &json!({"path": "missing"}));
    assert_eq!(failed.status, 422);
    assert!(failed.json()["error"].is_string(), "the tool's own shape: {}", failed.text());
    let started = up.call("local__Bash", &json!({"command": "exit 3"}));
    assert_eq!((started.status, &started.json()["exitCode"]), (200, &json!(3)), "{}", started.text());
    let invalid = up.call("write", &json!({"pathh": "x", "data": 5, "start_line": "one"}));
    assert_eq!((invalid.status, invalid.code().as_str()), (400, "invalid_input"));
    assert_eq!(invalid.json()["error"]["violations"].as_array().unwrap().len(), 4, "{}", invalid.text());
    let not_json = up.ask("POST", "/v1/tools/read", &[], b"{not json");
    assert_eq!((not_json.status, not_json.code().as_str()), (400, "invalid_input"));
    let unknown = up.call("Raed", &json!({}));
    assert_eq!((unknown.status, unknown.code().as_str()), (404, "unknown_tool"));
    assert!(unknown.text().contains("Read"), "the nearest names are missing: {}", unknown.text());
    assert_eq!(up.ask("POST", "/v1/tools/Raed", &[], b"{not json").status, 404);
    let denied = up.call("write", &json!({"path": "x", "data": "y"}));
    assert_eq!((denied.status, denied.code().as_str()), (403, "denied"));
    assert!(denied.text().contains("not today"), "{}", denied.text());
    let asked = up.call_with("exec", &json!({"command": "touch x"}), &[("Gantry-Agent", "watched")]);
    assert_eq!((asked.status, asked.code().as_str()), (409, "approval_needed"));
    assert!(!world.workspace().join("x").exists());
    let late = up.call_with("exec", &json!({"command": "sleep 20"}), &[("Gantry-Deadline-Ms", "200")]);
    assert_eq!((late.status, late.code().as_str()), (504, "deadline"));
    let odd = up.call_with("read", &json!({"path": "a.txt"}), &[("Gantry-Deadline-Ms", "soon")]);
    assert_eq!((odd.status, odd.code().as_str()), (400, "bad_params"));
    up.add_node(&world, "away", &[]);
    let away = up.call("away__Read", &json!({}));
    assert_eq!(
        (away.status, away.code().as_str()),
        (503, "unavailable"),
        "the node never reported its tools"
    );
}

#[test]
fn empty_body_counts_as_empty_object() {
    let world = World::new();
    let up = Gateway::start(&world);
    for body in ["", "  \n", "{}"] {
        let refused = up.ask("POST", "/v1/tools/read", &[], body.as_bytes());
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_input"), "path is missing");
    }
}

#[test]
fn text_results_have_a_text_content_type() {
    let world = World::new();
    let path = world.write("a.txt", "no final newline");
    let up = Gateway::start(&world);
    let read = up.call("read_file", &json!({ "path": path }));
    assert_eq!((read.status, read.text().as_str()), (200, "no final newline"));
    assert_eq!(read.header("content-type"), Some("text/plain; charset=utf-8"));
    let failed = up.call("bash", &json!({"command": "echo out; exit 3"}));
    assert_eq!((failed.status, failed.header("content-type")), (422, Some("text/plain; charset=utf-8")));
    assert!(failed.text().contains("exit code 3"), "{}", failed.text());
}

#[test]
fn oversized_body_is_rejected_before_it_is_read() {
    let world = World::new();
    let up = Gateway::start(&world);
    let mut connection = up.connection();
    let declared = ("Content-Length", "67108865");
    connection.begin(&up, "POST", "/v1/tools/read", &[declared], b"");
    connection.patience(Duration::from_secs(5));
    let refused = connection.read().unwrap();
    assert_eq!((refused.status, refused.code().as_str()), (413, "too_large"));
    // Without a declared length it is counted as it comes.
    let mut connection = up.connection();
    let chunked = [("Transfer-Encoding", "chunked"), ("Content-Length", "")];
    connection.begin(&up, "POST", "/v1/tools/read", &chunked, b"");
    let chunk = [b"100000\r\n".as_slice(), &vec![b' '; 1 << 20], b"\r\n"].concat();
    for _ in 0..66 {
        if connection.write(&chunk).is_err() {
            break;
        }
    }
    assert_eq!(connection.read().unwrap().status, 413);
    assert!(up.resident_kb() < 400 * 1024, "{} KB", up.resident_kb());
}

#[test]
fn connections_are_kept_alive_and_requests_are_pipelined() {
    let world = World::new();
    world.write("a.txt", "one\n");
    let up = Gateway::start(&world);
    let mut connection = up.connection();
    for _ in 0..20 {
        let read = connection.ask(&up, "POST", "/v1/tools/Read", &[], br#"{"path": "a.txt"}"#);
        assert_eq!(read.status, 200);
    }
    for _ in 0..10 {
        connection.begin(&up, "GET", "/health", &[], b"");
    }
    for _ in 0..10 {
        assert_eq!(connection.read().unwrap().status, 200);
    }
    let last = connection.ask(&up, "GET", "/health", &[("Connection", "close")], b"");
    assert_eq!(last.status, 200);
    assert!(connection.is_closed_within(Duration::from_secs(5)));
}

#[test]
fn malformed_requests_are_rejected_at_once() {
    let world = World::new();
    let up = Gateway::start(&world);
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(100_000));
    let many = format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "A: b\r\n".repeat(5_000));
    let cases: &[(&str, &[u16])] = &[
        ("\0\0\0\0\r\n\r\n", &[400]),
        ("GET\r\n\r\n", &[400]),
        ("GET /health\r\n\r\n", &[400]),
        ("GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n", &[400, 505]),
        ("GET /health HTTP/1.1\r\n\r\n", &[403]),
        ("GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", &[403]),
        ("GET /health HTTP/1.1\r\nHost: localhost\r\nA\r\n\r\n", &[400]),
        ("GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n", &[400]),
        ("POST /v1/tools/read HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", &[400]),
        (
            "POST /v1/tools/read HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            &[400],
        ),
        ("GET /%ff%00/..%2f HTTP/1.1\r\nHost: localhost\r\n\r\n", &[401]),
        ("GET /v1/tools/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", &[401]),
        ("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", &[400, 401, 404]),
        ("CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", &[400, 401, 403, 404]),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[400, 505]),
        ("\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\r\n\r\n", &[400]),
        (&long, &[414, 431]),
        (&many, &[431]),
    ];
    for (request, statuses) in cases {
        let mut connection = up.connection();
        connection.patience(Duration::from_secs(5));
        let _ = connection.write(request.as_bytes());
        let shown: String = request.chars().take(60).collect();
        match connection.read() {
            Ok(response) => assert!(statuses.contains(&response.status), "{shown:?}: {response:?}"),
            Err(err) => {
                let hung_up = [std::io::ErrorKind::UnexpectedEof, std::io::ErrorKind::ConnectionReset];
                assert!(hung_up.contains(&err.kind()), "{shown:?}: {err}");
            }
        }
        assert_eq!(up.get("/health").status, 200, "after {shown:?}");
    }
    // With a token the path itself is looked at.
    for path in ["/v1/tools/%zz", "/v1/tools/%ff", "/v1/results/..%2f..%2foperator.token", "/v1/tools/a%00b"]
    {
        let refused = up.get(path);
        assert!([400, 404].contains(&refused.status), "{path}: {refused:?}");
        refused.code();
    }
    let broken_utf8 = up.ask("POST", "/v1/tools/read", &[], b"{\"path\": \"\xff\xfe\"}");
    assert_eq!((broken_utf8.status, broken_utf8.code().as_str()), (400, "invalid_input"));
    let deep = "[".repeat(100_000);
    assert_eq!(up.ask("POST", "/v1/tools/read", &[], deep.as_bytes()).status, 400);
}

#[test]
fn body_needs_one_length_or_chunked_encoding() {
    let world = World::new();
    let up = Gateway::start(&world);
    let chunked = b"2\r\n{}\r\n0\r\n\r\n";
    let ask = |headers: &[(&str, &str)], body: &[u8]| {
        up.ask("POST", "/v1/tools/local__Process", &[headers, &[("Content-Length", "")]].concat(), body)
    };
    assert_eq!(ask(&[("Transfer-Encoding", "chunked")], chunked).code(), "invalid_input", "it was read");
    for coding in ["gzip, chunked", "identity, chunked", "chunked, chunked"] {
        let refused = ask(&[("Transfer-Encoding", coding)], chunked);
        assert_eq!((refused.status, refused.code().as_str()), (501, "unsupported"), "{coding}");
    }
    let twice = ask(&[("Transfer-Encoding", "gzip"), ("Transfer-Encoding", "chunked")], chunked);
    assert_eq!(twice.status, 501);
    for coding in ["gzip", "identity, gzip", "x"] {
        let headers = [("Content-Encoding", coding)];
        let refused = up.ask("POST", "/v1/tools/local__Process", &headers, b"{}");
        assert_eq!((refused.status, refused.code().as_str()), (415, "unsupported"), "{coding}");
    }
    let plain = up.ask("POST", "/v1/tools/local__Process", &[("Content-Encoding", "identity")], b"{}");
    assert_eq!(plain.code(), "invalid_input");
    // With both lengths the body ends where its chunks do, and nothing behind it is taken for a request.
    for (first, second) in [("Content-Length", "Transfer-Encoding"), ("Transfer-Encoding", "Content-Length")]
    {
        let value = |name: &str| if name == "Content-Length" { "4" } else { "chunked" };
        let headers = [(first, value(first)), (second, value(second))];
        let behind = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut connection = up.connection();
        let body = [&chunked[..], behind].concat();
        let answer = connection.ask(&up, "POST", "/v1/tools/local__Process", &headers, &body);
        assert_eq!(answer.code(), "invalid_input");
        assert!(connection.is_closed_within(Duration::from_secs(5)), "{first} first");
    }
}

#[test]
fn incomplete_websocket_handshake_is_rejected() {
    let world = World::new();
    let up = Gateway::start(&world);
    let ask = |method: &str, key: &str, more: &[(&str, &str)]| {
        let headers = [
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", key),
        ];
        let mut connection = up.connection();
        connection.begin(&up, method, "/ws", &[&headers[..], more].concat(), b"");
        connection.read().unwrap().status
    };
    let sound = "dGhlIHNhbXBsZSBub25jZQ==";
    assert_eq!(ask("GET", sound, &[]), 101);
    for method in ["POST", "PUT", "OPTIONS"] {
        assert_eq!(ask(method, sound, &[]), 405, "{method}");
    }
    for key in ["short", "dGhlIHNhbXBsZSBub25j", "dGhlIHNhbXBsZSBub25jZQ", "!GhlIHNhbXBsZSBub25jZQ=="] {
        assert_eq!(ask("GET", key, &[]), 400, "{key}");
    }
    assert_eq!(ask("GET", sound, &[("Sec-WebSocket-Key", sound)]), 400, "two keys");
}

#[test]
fn slow_request_head_times_out() {
    let world = World::new();
    let up = Gateway::start(&world);
    let mut silent = up.connection();
    let mut slow = up.connection();
    slow.write(b"GET /health HTTP/1.1\r\nHost: loc").unwrap();
    let mut kept = up.connection();
    assert_eq!(kept.ask(&up, "GET", "/health", &[], b"").status, 200);
    let began = Instant::now();
    for (name, connection) in [("silent", &mut silent), ("slow", &mut slow), ("kept", &mut kept)] {
        assert!(connection.is_closed_within(Duration::from_secs(15)), "{name} after {:?}", began.elapsed());
    }
    assert!(began.elapsed() > Duration::from_secs(8), "{:?}", began.elapsed());
}

#[test]
fn slow_request_body_times_out() {
    let world = World::new();
    let up = Gateway::start(&world);
    let mut connection = up.connection();
    connection.begin(&up, "POST", "/v1/tools/read", &[("Content-Length", "10")], b"{");
    assert_eq!(up.get("/health").status, 200, "others are served meanwhile");
    if is_soak() {
        let refused = connection.read().unwrap();
        assert_eq!((refused.status, refused.code().as_str()), (408, "deadline"));
    }
    let mut broken = up.connection();
    broken.begin(&up, "POST", "/v1/tools/write", &[("Content-Length", "500")], br#"{"path": "x""#);
    drop(broken);
    assert_eq!(up.get("/health").status, 200);
    assert!(!world.workspace().join("x").exists());
}

#[test]
fn stored_results_are_read_by_range() {
    let world = World::new();
    let up = Gateway::start(&world);
    let results = KeptResults::new(gantry_store::DataDir::new(world.data()).results());
    let text: String = (0..5_000).map(|number| format!("{number}\n")).collect();
    let handle = results.keep("client:mine", "Read", &text).unwrap().handle;
    let path = format!("/v1/results/{handle}");
    let mine = up.client_token(&world, "mine", &[]);
    let other = up.client_token(&world, "other", &[]);
    let read = |token: &str, range: &str| {
        let bearer = format!("Bearer {token}");
        up.ask("GET", &path, &[("Authorization", &bearer), ("Range", range)], b"")
    };
    let whole = read(&mine, "");
    assert_eq!((whole.status, whole.text()), (200, text.clone()));
    let part = read(&mine, "bytes=2-5");
    assert_eq!((part.status, part.text().as_str()), (206, &text[2..6]));
    assert_eq!(part.header("content-range").unwrap(), format!("bytes 2-5/{}", text.len()));
    assert_eq!(read(&mine, "bytes=-5").text(), &text[text.len() - 5..]);
    assert_eq!(read(&mine, "bytes=999999-").status, 416);
    assert_eq!(read(&mine, "lines=1-2").status, 200, "another kind of range is passed over");
    let theirs = read(&other, "");
    assert_eq!((theirs.status, theirs.code().as_str()), (404, "not_found"));
    assert_eq!(up.get(&path).status, 200, "the operator's own disk");
    assert_eq!(up.get("/v1/results/res_00000000000000000000000000000000").status, 404);
}

/// However it arrives: all at once, or in pieces.
#[test]
fn request_head_is_limited_to_32_kb() {
    let world = World::new();
    let up = Gateway::start(&world);
    let head = |bytes: usize| {
        let start = format!("GET /health HTTP/1.1\r\nHost: {}\r\nA: ", up.address);
        format!("{start}{}\r\n\r\n", "a".repeat(bytes - start.len() - 4))
    };
    for (bytes, status) in [(31 << 10, 200), ((32 << 10) + 100, 431), (40_000, 431), (60_000, 431)] {
        for piece in [bytes, 4_000] {
            let mut connection = up.connection();
            let head = head(bytes);
            for piece in head.as_bytes().chunks(piece) {
                if connection.write(piece).is_err() {
                    break;
                }
                if piece.len() < bytes {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            match connection.read() {
                Ok(response) => assert_eq!(response.status, status, "{bytes} in pieces of {}", piece),
                // One that was refused before all of it was read may be lost with the rest.
                Err(err) => assert!(status == 431, "{bytes} in pieces of {piece}: {err}"),
            }
        }
    }
}
