//! Permissions of tokens: the operator's, clients' within their scope, agents'.

use std::time::Duration;

use gantry_testkit::peers::{Client, runtime};
use gantry_testkit::{Gateway, World, eventually};
use serde_json::json;

use crate::mcp::http::Session;

const AGENTS: &str = r#"
[agents.reader]
tools = ["read", "local__Read"]
autonomy = "autonomous"

[agents.full]
tools = "all"
autonomy = "autonomous"
"#;

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[test]
fn scope_limits_what_a_token_sees_and_calls() {
    let world = World::new();
    world.write("a.txt", "one\n");
    let up = Gateway::start(&world);
    let token = bearer(&up.client_token(&world, "few", &["--tools", "read,local__Read"]));
    let as_few = [("Authorization", token.as_str())];
    let seen = up.ask("GET", "/v1/tools", &as_few, b"").json();
    let names: Vec<&str> =
        seen["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.iter().all(|name| ["read", "Read", "local__Read"].contains(name)), "{names:?}");
    assert_eq!(up.call_with("read", &json!({"path": "a.txt"}), &as_few).status, 200);
    assert_eq!(up.call_with("Read", &json!({"path": "a.txt"}), &as_few).status, 200);
    for tool in ["write", "bash", "Bash", "local__Bash", "gsv__ReadFile"] {
        let refused = up.call_with(tool, &json!({}), &as_few);
        assert_eq!((refused.status, refused.code().as_str()), (404, "unknown_tool"), "{tool}");
        assert_eq!(up.ask("GET", &format!("/v1/tools/{tool}"), &as_few, b"").status, 404);
    }
    let everywhere = up.call_with("Bash", &json!({"command": "true", "node": "*"}), &as_few);
    assert_eq!(everywhere.status, 404);
}

#[test]
fn read_only_token_cannot_write() {
    let world = World::new();
    world.write("a.txt", "one\n");
    let up = Gateway::start(&world);
    let token = bearer(&up.client_token(&world, "looker", &["--read-only"]));
    let as_looker = [("Authorization", token.as_str())];
    assert_eq!(up.call_with("read", &json!({"path": "a.txt"}), &as_looker).status, 200);
    for (tool, input) in [
        ("write", json!({"path": "x", "data": "y"})),
        ("Write", json!({"path": "x", "content": "y"})),
        ("Bash", json!({"command": "touch x"})),
        ("exec", json!({"command": "touch x"})),
        ("gsv__WriteFile", json!({"path": "x", "content": "y"})),
    ] {
        let refused = up.call_with(tool, &input, &as_looker);
        assert!([403, 404].contains(&refused.status), "{tool}: {refused:?}");
    }
    assert!(!world.workspace().join("x").exists());
}

#[test]
fn token_acts_only_as_its_agents() {
    let world = World::new();
    world.configure(AGENTS);
    world.write("a.txt", "one\n");
    let up = Gateway::start(&world);
    let read = json!({"path": "a.txt"});
    for agent in ["reader", "full"] {
        assert_eq!(
            up.call_with("read", &read, &[("Gantry-Agent", agent)]).status,
            200,
            "the operator chooses"
        );
    }
    assert_eq!(up.call_with("bash", &json!({"command": "true"}), &[("Gantry-Agent", "reader")]).status, 404);
    let unknown = up.call_with("read", &read, &[("Gantry-Agent", "raeder")]);
    assert_eq!(unknown.status, 400);
    assert!(unknown.text().contains("reader"), "{}", unknown.text());
    let plain = bearer(&up.client_token(&world, "plain", &[]));
    let scoped = bearer(&up.client_token(&world, "scoped", &["--agents", "reader"]));
    let narrow = bearer(&up.client_token(&world, "narrow", &["--agents", "full", "--tools", "read"]));
    let ask = |token: &str, agent: &str, tool: &str| {
        let headers = [("Authorization", token), ("Gantry-Agent", agent)];
        up.call_with(tool, &read, &headers).status
    };
    assert_eq!((ask(&plain, "reader", "read"), ask(&plain, "main", "read")), (403, 403));
    assert_eq!((ask(&scoped, "reader", "read"), ask(&scoped, "full", "read")), (200, 403));
    assert_eq!((ask(&narrow, "full", "read"), ask(&narrow, "full", "Glob")), (200, 404));
    let elsewhere = [("Authorization", plain.as_str()), ("Gantry-Workspace", "/")];
    assert_eq!(up.call_with("read", &read, &elsewhere).status, 403, "only the operator chooses a workspace");
}

/// What `main` keeps, over every surface.
#[test]
fn token_without_an_agent_does_not_act_as_main() {
    let world = World::new();
    world.configure(AGENTS);
    let up = Gateway::start(&world);
    let note = json!({"path": "secret.md", "content": "main's own"});
    assert_eq!(up.call_with("gsv__WriteFile", &note, &[]).status, 200);
    let token = |name: &str, more: &[&str]| up.client_token(&world, name, more);
    let (plain, one) = (token("plain", &[]), token("one", &["--agents", "full"]));
    let (two, of_main) =
        (token("two", &["--agents", "full,reader"]), token("of-main", &["--agents", "main"]));
    let read = json!({"path": "secret.md"});
    let over_http = |token: &str, tool: &str, input: &serde_json::Value| {
        up.call_with(tool, input, &[("Authorization", &bearer(token))])
    };
    assert_eq!(over_http(&of_main, "gsv__ReadFile", &read).status, 200);
    let refused = over_http(&plain, "gsv__ReadFile", &read);
    assert!(refused.status == 403 && refused.text().contains("acts as no agent"), "{}", refused.text());
    assert_eq!(over_http(&plain, "gsv__WriteFile", &note).status, 403);
    let copied = json!({"source": "gsv:secret.md", "destination": "local:copy.md"});
    assert_eq!(over_http(&plain, "gsv__Transfer", &copied).status, 403);
    let remembered = over_http(&plain, "memory_recall", &json!({"namespace": "knowledge"}));
    assert!(remembered.text().contains("acts as no agent"), "{}", remembered.text());
    world.write("a.txt", "one\n");
    assert_eq!(
        over_http(&plain, "read", &json!({"path": "a.txt"})).status,
        200,
        "other tools are not an agent's"
    );
    let other = over_http(&one, "gsv__ReadFile", &read);
    assert!(other.status == 422 && !other.text().contains("main's own"), "{}", other.text());
    let own = json!({"path": "secret.md", "content": "the other one's"});
    assert_eq!(over_http(&one, "gsv__WriteFile", &own).status, 200);
    let unnamed = over_http(&two, "gsv__ReadFile", &read);
    assert_eq!(unnamed.status, 403);
    assert!(unnamed.text().contains("full, reader"), "{}", unnamed.text());
    runtime().block_on(async {
        let over_socket = async |token: &str| {
            let client = Client::connect(&up, token).await.unwrap();
            let answer = client.ask("tool.call", json!({"tool": "gsv__ReadFile", "input": read})).await;
            answer.map_or_else(|err| err.message.clone(), |answer| answer.to_string())
        };
        assert!(over_socket(&of_main).await.contains("main's own"));
        assert!(over_socket(&one).await.contains("the other one's"));
        assert!(over_socket(&plain).await.contains("acts as no agent"));
        assert!(over_socket(&two).await.contains("full, reader"));
    });
    let over_mcp = |token: &str| {
        let session = Session::open(&up, "/mcp", token, "2025-11-25");
        let uri = json!({"uri": "gantry://workspace/secret.md"});
        session
            .say(&json!({"jsonrpc": "2.0", "id": 9, "method": "resources/read", "params": uri}))
            .2
            .to_string()
    };
    assert!(over_mcp(&of_main).contains("main's own"));
    assert!(over_mcp(&one).contains("the other one's"));
    assert!(over_mcp(&plain).contains("acts as no agent"));
    let kept = up.call_with("gsv__ReadFile", &read, &[]);
    assert!(kept.text().contains("main's own"), "{}", kept.text());
}

#[test]
fn revoked_token_is_rejected_at_once() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.client_token(&world, "gone", &[]);
    let header = bearer(&token);
    let as_gone = [("Authorization", header.as_str())];
    assert_eq!(up.ask("GET", "/v1/nodes", &as_gone, b"").status, 200);
    let runtime = runtime();
    let client = runtime.block_on(Client::connect(&up, &token)).unwrap();
    assert_eq!(world.run(&["tokens", "revoke", "gone"]).code, 0);
    let refused = up.ask("GET", "/v1/nodes", &as_gone, b"");
    assert_eq!((refused.status, refused.code().as_str()), (401, "unauthorized"));
    assert!(refused.text().contains("revoked"), "{}", refused.text());
    eventually("the socket is closed", Duration::from_secs(1), || client.link.is_closed());
    let closed = runtime.block_on(client.link.closed());
    assert_eq!(closed.reason, Some(gantry_protocol::CloseReason::TokenRevoked), "{closed}");
    assert!(runtime.block_on(Client::connect(&up, &token)).is_err());
}

#[test]
fn scope_without_a_match_is_warned_about() {
    let world = World::new();
    world.configure("[agents.helper]\n");
    let _up = Gateway::start(&world);
    let add = |name: &str, more: &[&str]| {
        let ran = world.run(&[&["tokens", "add", name], more].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.stderr
    };
    let reported = add("a", &["--agents", "helpr,main", "--tools", "local__Raed,Grep,nopetool"]);
    assert!(reported.contains("unknown agent \"helpr\"; did you mean \"helper\"?"), "{reported}");
    assert!(reported.contains("\"local__Raed\" now; did you mean \"local__Read\"?"), "{reported}");
    assert!(reported.contains("no tool matches \"nopetool\" now"), "{reported}");
    assert!(!reported.contains("\"main\"") && !reported.contains("matches \"Grep\""), "{reported}");
    let sound = add("b", &["--agents", "*", "--tools", "mcp,native,local__*,Read,tool__file_read"]);
    assert!(!sound.contains("now") && !sound.contains("unknown agent"), "{sound}");
}

#[test]
fn token_expires_on_every_surface() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.client_token(&world, "short", &["--expires", "2s"]);
    let header = bearer(&token);
    let as_short = [("Authorization", header.as_str())];
    assert_eq!(up.ask("GET", "/v1/nodes", &as_short, b"").status, 200);
    let runtime = runtime();
    let client = runtime.block_on(Client::connect(&up, &token)).unwrap();
    eventually("the token expired", Duration::from_secs(5), || {
        up.ask("GET", "/v1/nodes", &as_short, b"").status == 401
    });
    assert!(up.ask("GET", "/v1/nodes", &as_short, b"").text().contains("expired"));
    eventually("an open socket is closed too", Duration::from_secs(2), || client.link.is_closed());
    let closed = runtime.block_on(client.link.closed());
    assert_eq!(closed.reason, Some(gantry_protocol::CloseReason::TokenExpired), "{closed}");
}

#[test]
fn http_calls_end_with_their_token() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = bearer(&up.client_token(&world, "brief", &["--expires", "3s"]));
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        for (seconds, key) in [(886.25, None), (885.25, Some(("Idempotency-Key", "once")))] {
            let (up, token) = (&up, token.as_str());
            scope.spawn(move || {
                let headers: Vec<_> = [("Authorization", token)].into_iter().chain(key).collect();
                let input = json!({"command": format!("sleep {seconds}")});
                let ended = up.call_with("local__Bash", &input, &headers);
                assert_eq!((ended.status, ended.code().as_str()), (401, "unauthorized"), "{ended:?}");
                assert!(ended.text().contains("the token expired"), "{}", ended.text());
            });
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let runs = |seconds: &str| {
        let found = std::process::Command::new("pgrep").args(["-fx", &format!("sleep {seconds}")]).output();
        !found.unwrap().stdout.is_empty()
    };
    eventually("the commands are ended", Duration::from_secs(10), || !runs("886.25") && !runs("885.25"));
}

#[test]
fn new_token_inherits_nothing_from_an_old_one_of_its_name() {
    let world = World::new();
    let up = Gateway::start(&world);
    let first = bearer(&up.client_token(&world, "ci", &[]));
    let as_first = [("Authorization", first.as_str()), ("Idempotency-Key", "once")];
    let command = json!({"command": "echo private; date +%N"});
    let private = up.call_with("local__Bash", &command, &as_first);
    let again = up.call_with("local__Bash", &command, &as_first);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.text(), private.text());
    let loops = json!({"command": "sleep 884.25", "background": true});
    let started = up.call_with("local__Bash", &loops, &as_first[..1]).json();
    let poll = json!({"action": "poll", "sessionId": started["sessionId"]});
    assert_eq!(up.call_with("local__Process", &poll, &as_first[..1]).json()["status"], "running");

    assert_eq!(world.run(&["tokens", "revoke", "ci"]).code, 0);
    let second = bearer(&up.client_token(&world, "ci", &[]));
    let as_second = [("Authorization", second.as_str()), ("Idempotency-Key", "once")];
    let own = up.call_with("local__Bash", &command, &as_second);
    assert_eq!((own.status, own.header("idempotency-replayed")), (200, None), "{own:?}");
    assert_ne!(own.text(), private.text());
    let refused = up.call_with("local__Process", &poll, &as_second[..1]);
    assert!(refused.text().contains("session not found"), "{refused:?}");
    let listed = up.call_with("local__Process", &json!({"action": "list"}), &as_second[..1]);
    assert!(!listed.text().contains("884.25"), "{listed:?}");
    let lines = world.run(&["audit", "--json"]).stdout;
    assert!(lines.contains("\"client:ci\"") && lines.contains("\"client:ci#2\""), "{lines}");
}
