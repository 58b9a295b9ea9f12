//! Sessions at `/mcp` that clients never close are counted, bounded and freed.

use std::time::Duration;

use gantry_testkit::{Gateway, World, eventually};
use serde_json::json;

use super::http::{ACCEPT, JSON, Session, initialize, post};

/// How far the memory may lie above the start once all sessions are gone.
const SLACK_KB: u64 = 5 * 1024;
const CLIENTS: usize = 8;
const SESSIONS: usize = 7_000;

#[test]
fn abandoned_sessions_are_freed() {
    let world = World::new();
    world.configure("[gateway]\nmcpIdleSeconds = 1\n");
    let up = Gateway::start(&world);
    let token = up.client_token(&world, "reader", &["--read-only"]);
    let bearer = format!("Bearer {token}");
    let body = initialize("2025-11-25").to_string();
    let open = |count: usize| {
        let mut connection = up.connection();
        for _ in 0..count {
            let headers = [ACCEPT, JSON, ("Authorization", &*bearer)];
            let opened = connection.ask(&up, "POST", "/mcp", &headers, body.as_bytes());
            assert_eq!(opened.status, 200, "{}", opened.text());
        }
    };
    // The code and the caches of the first sessions stay, so that the start is measured after them.
    open(1);
    let start = up.resident_kb();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| open(SESSIONS / CLIENTS));
        }
    });
    let full = up.resident_kb();
    println!("{SESSIONS} sessions: {start} KB at the start, {full} KB after them");
    eventually("the memory is given back", Duration::from_secs(60), || {
        // The allocator returns memory while it is used.
        assert_eq!(up.get("/health").status, 200);
        up.resident_kb() <= start + SLACK_KB
    });
    println!("{} KB in the end", up.resident_kb());
}

/// The newest revision has no sessions, but a client may still open one under its name.
#[test]
fn session_limit_applies_to_every_protocol_revision() {
    let world = World::new();
    let up = Gateway::start(&world);
    let first = Session::open(&up, "/mcp", &up.token, "2025-11-25");
    let list = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list"});
    for _ in 0..64 {
        let newest = [("MCP-Protocol-Version", "2026-07-28")];
        let (status, session, answer) = post(&up, "/mcp", &initialize("2026-07-28"), &newest);
        assert_eq!((status, session.is_some()), (200, true), "{answer}");
    }
    assert_eq!(first.say(&list).0, 404, "the oldest of 65 had to go");
}
