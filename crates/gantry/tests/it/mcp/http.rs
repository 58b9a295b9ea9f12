//! Clients at `/mcp`: authentication, visible tools, and isolation between clients.

use std::time::Duration;

use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};

use super::servers::is_alive;
use super::{DEFAULT_TOOLS, names};

pub(super) const ACCEPT: (&str, &str) = ("Accept", "application/json, text/event-stream");
pub(super) const JSON: (&str, &str) = ("Content-Type", "application/json");

pub(super) fn initialize(revision: &str) -> Value {
    let info = json!({"name": "http-client", "version": "1"});
    let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": info});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

/// One POST; its status, its session, and the answer with that id out of the JSON or the events.
pub(super) fn post(
    up: &Gateway,
    path: &str,
    body: &Value,
    more: &[(&str, &str)],
) -> (u16, Option<String>, Value) {
    let headers = [&[ACCEPT, JSON], more].concat();
    let response = up.ask("POST", path, &headers, body.to_string().as_bytes());
    let session = response.header("mcp-session-id").map(str::to_owned);
    let text = response.text();
    let events = text.lines().filter_map(|line| line.strip_prefix("data:"));
    let messages = events.chain([&*text]).filter_map(|text| serde_json::from_str::<Value>(text.trim()).ok());
    let answer = messages.rev().find(|message| message.get("id") == body.get("id"));
    let answer = answer.unwrap_or_else(|| serde_json::from_str(&text).unwrap_or(json!(null)));
    (response.status, session, answer)
}

/// A conversation of an older revision.
pub(crate) struct Session<'a> {
    up: &'a Gateway,
    path: String,
    id: String,
    bearer: String,
}

impl Session<'_> {
    pub(crate) fn open<'a>(up: &'a Gateway, path: &str, token: &str, revision: &str) -> Session<'a> {
        let bearer = format!("Bearer {token}");
        let (status, id, answer) = post(up, path, &initialize(revision), &[("Authorization", &bearer)]);
        assert_eq!((status, &answer["result"]["protocolVersion"]), (200, &json!(revision)), "{answer}");
        let session = Session { up, path: path.to_owned(), id: id.expect("a session"), bearer };
        let (status, ..) = session.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        assert_eq!(status, 202);
        session
    }

    pub(crate) fn say(&self, body: &Value) -> (u16, Option<String>, Value) {
        let headers = [("Authorization", &*self.bearer), ("Mcp-Session-Id", &*self.id)];
        post(self.up, &self.path, body, &headers)
    }

    /// Ends the conversation.
    pub(crate) fn close(self) {
        let headers = [("Authorization", &*self.bearer), ("Mcp-Session-Id", &*self.id)];
        let ended = self.up.ask("DELETE", &self.path, &headers, b"");
        assert!(matches!(ended.status, 200..=204), "{}", ended.text());
    }

    pub(crate) fn ask(&self, method: &str, params: &Value) -> Value {
        let (status, _, answer) =
            self.say(&json!({"jsonrpc": "2.0", "id": 9, "method": method, "params": params}));
        assert_eq!(status, 200, "{answer}");
        answer["result"].clone()
    }
}

#[test]
fn each_revision_lists_and_calls() {
    let world = World::new();
    world.write("a.txt", "over http\n");
    let up = Gateway::start(&world);
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = Session::open(&up, "/mcp", &up.token, revision);
        assert_eq!(names(&session.ask("tools/list", &json!({}))["tools"]), DEFAULT_TOOLS);
        let read = session.ask("tools/call", &json!({"name": "Read", "arguments": {"path": "a.txt"}}));
        assert!(read.to_string().contains("over http"), "{read}");
        let ended = up.ask("DELETE", "/mcp", &[("Mcp-Session-Id", &session.id)], b"");
        assert_eq!((ended.status, &*ended.body), (204, &b""[..]), "{}", ended.text());
        eventually("the session is gone", Duration::from_secs(5), || {
            session.say(&json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list"})).0 == 404
        });
    }
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "new", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": "Read", "arguments": {"path": "a.txt"}, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params});
    let headers =
        [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "Read")];
    let (status, session, answer) = post(&up, "/mcp", &body, &headers);
    assert_eq!((status, session), (200, None), "{answer}");
    assert!(answer.to_string().contains("over http"), "{answer}");
    let wrong = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "Bash")];
    assert_eq!(post(&up, "/mcp", &body, &wrong).0, 400, "headers must say what the body says");
    let log = std::fs::read_to_string(world.data().join("audit.log")).unwrap();
    assert!(log.contains("mcp:http-client") && log.contains("mcp:new"), "{log}");
}

#[test]
fn unauthorized_requests_are_rejected_before_the_body_is_read() {
    let world = World::new();
    let up = Gateway::start(&world);
    let body = initialize("2025-11-25");
    for (headers, status) in [
        (&[("Authorization", "")][..], 401),
        (&[("Authorization", "Bearer wrong")], 401),
        (&[("Authorization", "Basic b3BlcmF0b3I6eA==")], 401),
        (&[("Origin", "http://evil.example")], 403),
        (&[("Origin", "null")], 403),
        (&[("Host", "evil.example")], 403),
        (&[("Host", "localhost.evil.example:80")], 403),
    ] {
        for method in ["POST", "GET", "DELETE"] {
            let headers = [&[ACCEPT, JSON], headers].concat();
            let refused = up.ask(method, "/mcp", &headers, body.to_string().as_bytes());
            assert_eq!(refused.status, status, "{method} {headers:?}: {}", refused.text());
            assert!(refused.header("mcp-session-id").is_none());
        }
    }
    let in_url =
        up.ask("POST", &format!("/mcp?token={}", up.token), &[ACCEPT, JSON, ("Authorization", "")], b"{}");
    assert_eq!(in_url.status, 401);
}

#[test]
fn empty_or_duplicate_tool_choice_is_rejected() {
    let world = World::new();
    let up = Gateway::start(&world);
    for (query, why) in [
        ("tools=", "empty"),
        ("toolset=", "empty"),
        ("tools=,", "empty"),
        ("tools=Read&tools=Write", "must not be repeated"),
        ("readOnly&readOnly=false", "must not be repeated"),
    ] {
        let (status, _, answer) = post(&up, &format!("/mcp?{query}"), &initialize("2025-11-25"), &[]);
        assert_eq!(status, 400, "{query}: {answer}");
        assert!(answer.to_string().contains(why), "{query}: {answer}");
    }
}

#[test]
fn session_belongs_to_its_token_and_scope() {
    let world = World::new();
    let up = Gateway::start(&world);
    let narrow =
        up.client_token(&world, "narrow", &["--tools", "tool::file_read,local__Bash", "--read-only"]);
    let plain = up.client_token(&world, "plain", &[]);
    let mine = Session::open(&up, "/mcp", &up.token, "2025-11-25");
    let theirs = Session::open(&up, "/mcp", &narrow, "2025-11-25");
    let listed = names(&theirs.ask("tools/list", &json!({}))["tools"]);
    assert_eq!(
        listed,
        ["tool__file_read", "result_read"],
        "its own tools that change nothing, and the rest of their results"
    );
    let list = json!({"jsonrpc": "2.0", "id": 4, "method": "tools/list"});
    for token in [&narrow, &plain] {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", &*bearer), ("Mcp-Session-Id", &*mine.id)];
        assert_eq!(post(&up, "/mcp", &list, &headers).0, 404, "a session of another token is unknown");
    }
    let call = json!({"name": "Bash", "arguments": {"command": "touch evil"}});
    let call = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": call});
    let (_, _, refused) = theirs.say(&call);
    assert!(refused["error"]["message"].as_str().unwrap().contains("unknown tool"), "{refused}");
    assert!(!world.workspace().join("evil").exists());
    let long = Session::open(&up, "/mcp", &plain, "2025-11-25");
    long.ask("tools/call", &json!({"name": "Bash", "arguments": {"command": "true"}}));
    let log = std::fs::read_to_string(world.data().join("audit.log")).unwrap();
    assert!(log.contains("mcp:plain/http-client"), "whose token it is comes first");
    assert_eq!(world.run(&["tokens", "revoke", "plain"]).code, 0);
    assert_eq!(long.say(&list).0, 401, "a revoked token ends its sessions");
}

#[test]
fn limited_token_acts_only_as_its_own_agent() {
    let world = World::new();
    let reader = "[agents.reader]\nautonomy = \"guided\"\ntools = [\"Read\"]\n";
    world.configure(&format!("{reader}[agents.full]\nautonomy = \"guided\"\n"));
    let up = Gateway::start(&world);
    let token = up.client_token(&world, "limited", &["--agents", "reader"]);
    let bearer = format!("Bearer {token}");
    let as_agent = |agent, body: &Value, session: &str| {
        let headers = [("Authorization", &*bearer), ("Gantry-Agent", agent), ("Mcp-Session-Id", session)];
        post(&up, "/mcp", body, &headers[..if session.is_empty() { 2 } else { 3 }])
    };
    let session = Session::open(&up, "/mcp", &token, "2025-11-25");
    assert_eq!(names(&session.ask("tools/list", &json!({}))["tools"]), ["Read", "result_read"]);
    let bash = json!({"name": "Bash", "arguments": {"command": "touch made"}});
    let bash = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": bash});
    assert!(session.say(&bash).2.get("error").is_some());
    for agent in ["main", "full"] {
        let (status, _, answer) = as_agent(agent, &initialize("2025-11-25"), "");
        assert_eq!(status, 403, "{agent}: {answer}");
        let (_, _, answer) = as_agent(agent, &bash, &session.id);
        assert!(answer.get("result").is_none_or(|result| result["isError"] == true), "{agent}: {answer}");
        let url = format!("http://{}", up.address);
        let args = ["--gateway", &url, "mcp", "--agent", agent];
        let stdio = world.run_with(&args, &[("GANTRY_TOKEN", &token)]);
        assert_eq!((stdio.code, &*stdio.stdout), (3, ""), "{agent}: {stdio:?}");
    }
    assert_eq!(as_agent("reader", &initialize("2025-11-25"), "").0, 200);
    assert!(!world.workspace().join("made").exists());
}

#[test]
fn unknown_protocol_revisions_are_rejected_or_negotiated() {
    let world = World::new();
    let up = Gateway::start(&world);
    for unknown in ["1999-01-01", "2099-01-01", "nonsense", ""] {
        let (status, _, answer) = post(&up, "/mcp", &initialize(unknown), &[]);
        assert_eq!(
            (status, &answer["result"]["protocolVersion"]),
            (200, &json!("2025-11-25")),
            "{unknown:?}"
        );
    }
    let session = Session::open(&up, "/mcp", &up.token, "2025-06-18");
    let list = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list"});
    let headers = [("Mcp-Session-Id", &*session.id), ("MCP-Protocol-Version", "1999-01-01")];
    assert_eq!(post(&up, "/mcp", &list, &headers).0, 400);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2099-01-01",
        "io.modelcontextprotocol/clientInfo": {"name": "new", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let newer = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list", "params": {"_meta": meta}});
    let headers = [("MCP-Protocol-Version", "2099-01-01"), ("Mcp-Method", "tools/list")];
    let (status, _, answer) = post(&up, "/mcp", &newer, &headers);
    assert_eq!(status, 400, "{answer}");
    assert!(answer["error"].to_string().contains("2026-07-28"), "it says which it knows: {answer}");
}

#[test]
fn stream_ends_when_its_token_is_revoked() {
    use std::io::{Read, Write};
    let world = World::new();
    let up = Gateway::start(&world);
    let (mine, other) = (up.client_token(&world, "mine", &[]), up.client_token(&world, "other", &[]));
    let stream = |token: &str| {
        let session = Session::open(&up, "/mcp", token, "2025-11-25");
        let mut stream = std::net::TcpStream::connect(up.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        write!(
            stream,
            "GET /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\naccept: text/event-stream\r\nmcp-session-id: {}\r\n\r\n",
            up.address, session.id
        )
        .unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        stream
    };
    let (mut revoked, mut kept) = (stream(&mine), stream(&other));
    assert_eq!(world.run(&["tokens", "revoke", "mine"]).code, 0);
    let mut rest = Vec::new();
    let mut buffer = [0; 4096];
    eventually("the stream is at its end", Duration::from_secs(10), || {
        if let Ok(count) = revoked.read(&mut buffer) {
            rest.extend_from_slice(&buffer[..count]);
        }
        rest.ends_with(b"0\r\n\r\n")
    });
    while let Ok(count) = kept.read(&mut buffer) {
        assert!(count > 0 && !buffer[..count].ends_with(b"0\r\n\r\n"), "another's stream goes on");
    }
}

#[test]
fn revoking_a_token_cancels_its_calls() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.client_token(&world, "mine", &[]);
    let bearer = format!("Bearer {token}");
    let session = Session::open(&up, "/mcp", &token, "2025-11-25");
    let command = |file: &str| json!({"command": format!("echo $$ > {file}; sleep 60; touch {file}.done")});
    let pid = |file: &str| -> Option<i32> {
        std::fs::read_to_string(world.workspace().join(file)).ok()?.trim().parse().ok()
    };
    let (mcp, http) = (command("mcp"), command("http"));
    let call = json!({"name": "Bash", "arguments": mcp});
    let call = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": call});
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| session.say(&call));
        let plain = scope.spawn(|| up.call_with("local__Bash", &http, &[("Authorization", &bearer)]));
        let running = || pid("mcp").is_some() && pid("http").is_some();
        eventually("both commands run", Duration::from_secs(20), running);
        assert_eq!(world.run(&["tokens", "revoke", "mine"]).code, 0);
        eventually("both commands are over", Duration::from_secs(20), || {
            ["mcp", "http"].iter().filter_map(|file| pid(file)).all(|pid| !is_alive(pid))
        });
        // A stream may break off: nobody is there any more who may hear its answer.
        let _ = calling.join();
        assert_ne!(plain.join().unwrap().status, 200);
    });
    assert!(["mcp.done", "http.done"].iter().all(|file| !world.workspace().join(file).exists()));
    let namesake = format!("Bearer {}", up.client_token(&world, "mine", &[]));
    let list = json!({"jsonrpc": "2.0", "id": 4, "method": "tools/list"});
    let headers = [("Authorization", &*namesake), ("Mcp-Session-Id", &*session.id)];
    assert_eq!(post(&up, "/mcp", &list, &headers).0, 404, "a session is its token's, not its name's");
    assert_eq!(up.call_with("local__Bash", &json!({"command": "true"}), &headers[..1]).status, 200);
}

#[test]
fn query_parameters_choose_the_tools() {
    let world = World::new();
    let up = Gateway::start(&world);
    let session = Session::open(&up, "/mcp?tools=Read,Grep&readOnly&namespaced", &up.token, "2025-11-25");
    assert_eq!(
        names(&session.ask("tools/list", &json!({}))["tools"]),
        ["local__Grep", "local__Read", "result_read"]
    );
    for (path, headers, status, parts) in [
        ("/mcp?tool=Read", &[][..], 400, &["unknown parameter"][..]),
        ("/mcp?toolset=nodes", &[], 400, &["unknown toolset", "did you mean \\\"node\\\"?"]),
        ("/mcp", &[("Gantry-Agent", "mian")], 400, &["unknown agent", "did you mean \\\"main\\\"?"]),
    ] {
        let (refused, session, answer) = post(&up, path, &initialize("2025-11-25"), headers);
        assert_eq!((refused, session), (status, None), "{path}: {answer}");
        for part in parts {
            assert!(answer["error"].to_string().contains(part), "{part}: {answer}");
        }
    }
}

#[test]
fn invalid_message_is_rejected() {
    let world = World::new();
    let up = Gateway::start(&world);
    for (body, id, code) in [
        (&b"garbage"[..], json!(null), -32700),
        (b"{\"jsonrpc\":", json!(null), -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5}", json!(5), -32600),
        (b"[]", json!(null), -32600),
    ] {
        let answer = up.ask("POST", "/mcp", &[ACCEPT, JSON], body);
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert_eq!((&answer.json()["error"]["code"], &answer.json()["id"]), (&json!(code), &id));
    }
    let session = Session::open(&up, "/mcp", &up.token, "2025-11-25");
    let ask = |method: &str, params: Value| {
        session.say(&json!({"jsonrpc": "2.0", "id": 9, "method": method, "params": params})).2["error"]["code"].clone()
    };
    assert_eq!(ask("tools/call", json!({"name": "nope"})), -32602, "no such tool");
    assert_eq!(ask("tools/call", json!({"name": 5})), -32602, "no such params");
    assert_eq!(ask("nope/nope", json!({})), -32601, "no such method");
    for list in ["tools/list", "resources/list", "resources/templates/list", "prompts/list"] {
        assert_eq!(ask(list, json!({"cursor": "nope"})), -32602, "{list} has one page");
        assert_eq!(ask(list, json!({})), json!(null), "{list}");
    }
}

#[test]
fn session_limit_is_per_token() {
    let world = World::new();
    let up = Gateway::start(&world);
    let first = Session::open(&up, "/mcp", &up.token, "2025-11-25");
    let kept = Session::open(&up, "/mcp", &up.token, "2025-11-25");
    let list = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list"});
    for _ in 0..62 {
        assert_eq!(post(&up, "/mcp", &initialize("2025-11-25"), &[]).0, 200);
    }
    assert_eq!((first.say(&list).0, kept.say(&list).0), (200, 200), "64 are fine");
    assert_eq!(first.say(&list).0, 200, "used last");
    for _ in 0..63 {
        assert_eq!(post(&up, "/mcp", &initialize("2025-11-25"), &[]).0, 200);
    }
    assert_eq!(
        (first.say(&list).0, kept.say(&list).0),
        (200, 404),
        "the one that was idle for longest has ended"
    );
    let others: Vec<String> =
        (0..4).map(|number| up.client_token(&world, &format!("t{number}"), &[])).collect();
    for token in &others[..3] {
        let bearer = format!("Bearer {token}");
        for _ in 0..64 {
            assert_eq!(post(&up, "/mcp", &initialize("2025-11-25"), &[("Authorization", &bearer)]).0, 200);
        }
    }
    let bearer = format!("Bearer {}", others[3]);
    let (status, _, answer) = post(&up, "/mcp", &initialize("2025-11-25"), &[("Authorization", &bearer)]);
    assert_eq!(status, 200, "there are 256, and an idle one of those who have the most makes room: {answer}");
    assert_eq!(first.say(&list).0, 200, "what was used last stays");
    assert_eq!(up.get("/health").status, 200);
}

#[test]
fn idle_session_ends() {
    let world = World::new();
    world.configure("[gateway]\nmcpIdleSeconds = 2\n");
    let up = Gateway::start(&world);
    let session = Session::open(&up, "/mcp", &up.token, "2025-11-25");
    let list = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list"});
    let call = json!({"name": "Bash", "arguments": {"command": "sleep 4; echo slept"}});
    let slept = session.ask("tools/call", &call);
    assert!(slept.to_string().contains("slept"), "a call that takes longer keeps it: {slept}");
    assert_eq!(session.say(&list).0, 200);
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(session.say(&list).0, 404);
}

#[test]
fn scoped_token_reads_its_own_stored_results() {
    let world = World::new();
    world.write("long.txt", &"a line of text\n".repeat(20_000));
    let up = Gateway::start(&world);
    let narrow = up.client_token(&world, "narrow", &["--tools", "tool::file_read"]);
    let session = Session::open(&up, "/mcp", &narrow, "2025-11-25");
    let read = json!({"name": "tool__file_read", "arguments": {"path": "long.txt", "maxBytes": 300_000}});
    let read = session.ask("tools/call", &read);
    let handle = read["structuredContent"]["resultHandle"].as_str().unwrap_or_else(|| panic!("{read}"));
    let rest =
        json!({"name": "result_read", "arguments": {"handle": handle, "offset": 100_000, "limit": 1000}});
    let rest = session.ask("tools/call", &rest);
    assert!(rest["isError"] != true && rest.to_string().contains("a line of text"), "{rest}");
}

#[test]
fn concurrent_long_bodies_are_bounded_in_memory() {
    let world = World::new();
    let up = Gateway::start(&world);
    let text = "x".repeat(40 << 20);
    let call = json!({"name": "Write", "arguments": {"path": "long.txt", "content": text}});
    let body =
        |id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call}).to_string();
    let session = Session::open(&up, "/mcp", &up.token, "2025-11-25");
    let headers = [ACCEPT, JSON, ("Mcp-Session-Id", &*session.id)];
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let send = |id| up.ask("POST", "/mcp", &headers, body(id).as_bytes()).status;
        let sending: Vec<_> = (10..18).map(|id| scope.spawn(move || send(id))).collect();
        sending.into_iter().map(|sent| sent.join().unwrap()).collect()
    });
    assert!(
        statuses.iter().all(|status| matches!(status, 200 | 503)) && statuses.contains(&200),
        "{statuses:?}"
    );
    let peak = up.peak_kb();
    println!("eight bodies of 40 MB: {statuses:?}, at most {peak} KB");
    assert!(peak < 320 * 1024, "{peak} KB");
}

#[test]
fn resource_metadata_is_served_only_when_configured() {
    let world = World::new();
    let up = Gateway::start(&world);
    assert_eq!(
        up.ask("GET", "/.well-known/oauth-protected-resource", &[("Authorization", "")], b"").status,
        404
    );
    drop(up);
    world.configure(
        "[gateway]\npublicUrl = \"https://gantry.example.com\"\n[gateway.oauth]\nauthorizationServers = [\"https://login.example.com\"]\n",
    );
    let up = Gateway::start(&world);
    let reported = up.ask("GET", "/.well-known/oauth-protected-resource", &[("Authorization", "")], b"");
    assert_eq!(
        reported.json(),
        json!({
            "resource": "https://gantry.example.com/mcp",
            "resource_name": "Gantry",
            "authorization_servers": ["https://login.example.com"],
            "bearer_methods_supported": ["header"],
        })
    );
    let refused = up.ask("POST", "/mcp", &[ACCEPT, JSON, ("Authorization", "")], b"{}");
    let challenge = refused.header("www-authenticate").unwrap().to_owned();
    assert!(challenge.contains("resource_metadata=\"https://gantry.example.com/.well-known/"), "{challenge}");
}
