//! MCP servers that are killed, hang, flood or change their tools do not affect other servers.

use std::time::{Duration, Instant};

use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};

use super::servers::{Fake, is_alive};

const IN_FLIGHT: usize = 50;

/// Calls of two good servers, many at once, each with its own answer; gives the slowest.
fn good_calls(up: &Gateway) -> Duration {
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..IN_FLIGHT)
            .map(|number| {
                scope.spawn(move || {
                    let begun = Instant::now();
                    let server = if number % 2 == 0 { "one" } else { "two" };
                    let slept = up.call(&format!("{server}__sleep"), &json!({"seconds": 1}));
                    assert_eq!(slept.text(), "slept", "{server}");
                    let text = format!("{server} {number}");
                    assert_eq!(up.call(&format!("{server}__echo"), &json!({"text": text})).text(), text);
                    begun.elapsed()
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).max().unwrap()
    })
}

#[test]
fn other_servers_answer_while_one_misbehaves() {
    let world = World::new();
    let good = [Fake::added(&world, "one"), Fake::added(&world, "two")];
    let bad = Fake::added(&world, "bad");
    let up = Gateway::start(&world);
    let undisturbed = good_calls(&up);
    // A busy machine slows the calls down with or without the bad server, so the limit grows with the time they take
    // alone. The bad call hangs for longer than the limit: a call that waits for it exceeds the limit.
    let limit = Duration::from_secs(8) + undisturbed * 4;
    let hangs_for = format!("{}s", limit.as_secs() + 2);
    for act in ["die", "hang", "flood", "babble", "huge"] {
        let slowest = std::thread::scope(|scope| {
            let working = scope.spawn(|| good_calls(&up));
            std::thread::sleep(Duration::from_millis(300));
            let deadline = if act == "hang" { &hangs_for } else { "30s" };
            let ran = world.run(&["call", &format!("bad__{act}"), "--deadline", deadline]);
            assert_eq!(ran.code, if act == "hang" { 124 } else { 4 }, "{act}: {ran:?}");
            assert!(act == "hang" || ran.stderr.contains("the MCP server bad"), "{act}: {ran:?}");
            working.join().unwrap()
        });
        println!("{act}: slowest of {IN_FLIGHT} others {slowest:?}, undisturbed {undisturbed:?}");
        assert!(slowest < limit, "{act}: {slowest:?}");
        // It comes back by itself.
        eventually("bad answers again", Duration::from_secs(45), || {
            up.call("bad__echo", &json!({"text": "back"})).text() == "back"
        });
    }
    let resident = up.resident_kb();
    assert!(resident < 400 * 1024, "{resident} KB");
    let running = bad.pids().into_iter().filter(|pid| is_alive(*pid)).count();
    assert!(running <= 1, "{running} are left");
    drop(up);
    let all_gone = || good.iter().chain([&bad]).all(Fake::all_are_gone);
    eventually("no orphan is left", Duration::from_secs(10), all_gone);
}

#[test]
fn changed_tool_stays_blocked_after_restart() {
    let world = World::new();
    let good = [Fake::added(&world, "one"), Fake::added(&world, "two")];
    let turning = Fake::new(&world, "turning");
    let tools = |description: &str| -> Value {
        json!([{"name": "echo", "description": description, "inputSchema": {"type": "object"}}])
    };
    turning.define(&tools("harmless"));
    assert_eq!(turning.add(&world, "good", &[]).code, 0);
    let up = Gateway::start(&world);
    let call = |up: &Gateway| up.call("turning__echo", &json!({"text": "x"}));
    assert_eq!(call(&up).status, 200);
    std::thread::scope(|scope| {
        let working = scope.spawn(|| good_calls(&up));
        turning.define(&tools("not so harmless"));
        eventually("it is held", Duration::from_secs(10), || call(&up).status == 403);
        working.join().unwrap();
    });
    let text = call(&up).text();
    assert!(
        text.contains("turning__echo is blocked") && text.contains("gantry mcp accept turning echo"),
        "{text}"
    );
    up.kill();
    eventually("a killed gateway leaves no orphan", Duration::from_secs(10), || {
        good.iter().chain([&turning]).all(Fake::all_are_gone)
    });
    for _ in 0..2 {
        let up = Gateway::start(&world);
        assert_eq!(call(&up).status, 403, "held stays held");
        assert_eq!(up.call("one__echo", &json!({"text": "y"})).text(), "y");
    }
    turning.define(&tools("harmless"));
    let up = Gateway::start(&world);
    assert_eq!(world.run(&["mcp", "test", "turning"]).code, 0);
    eventually("what was accepted runs again", Duration::from_secs(10), || call(&up).status == 200);
}

#[test]
fn exponential_schema_does_not_block_the_gateway() {
    let world = World::new();
    let fake = Fake::new(&world, "boom");
    let mut defs: serde_json::Map<String, Value> = (0..14)
        .map(|level| {
            (
                format!("d{level}"),
                json!({"allOf": vec![json!({"$ref": format!("#/$defs/d{}", level + 1)}); 4]}),
            )
        })
        .collect();
    defs.insert("d14".into(), json!({"type": "string"}));
    let costly = json!({"type": "object", "$defs": defs, "properties": {"x": {"$ref": "#/$defs/d0"}}});
    let plain = json!({"type": "object"});
    fake.define(&json!([
        {"name": "structured", "description": "harmless", "inputSchema": plain, "outputSchema": costly},
        {"name": "echo", "description": "harmless", "inputSchema": costly},
    ]));
    let added = fake.add(&world, "good", &[]);
    assert_eq!(added.code, 0, "{added:?}");
    for reported in [added, world.run(&["mcp", "show", "boom"]), world.run(&["mcp", "test", "boom"])] {
        for field in ["inputSchema", "outputSchema"] {
            assert!(
                reported.stdout.contains(&format!("its {field} is not enforced by Gantry")),
                "{field}: {reported:?}"
            );
        }
    }
    let up = Gateway::start(&world);
    let begun = Instant::now();
    let answer = up.call("boom__structured", &json!({"structuredContent": {"x": "s"}}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(up.call("boom__echo", &json!({"text": "back", "x": "s"})).text(), "back");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let listed = up.get("/v1/tools/boom__structured").json();
    assert_eq!(listed["outputSchema"], json!(null), "what nobody can check is not passed on: {listed}");
}

#[test]
fn tool_works_again_after_its_definition_is_fixed() {
    let world = World::new();
    let fake = Fake::new(&world, "turning");
    let good = json!({"name": "echo", "description": "says it", "inputSchema": {"type": "object"}});
    let mut bad = good.clone();
    bad["execution"] = json!({"taskSupport": "required"});
    fake.define(&json!([good]));
    assert_eq!(fake.add(&world, "good", &[]).code, 0);
    let up = Gateway::start(&world);
    let call = || up.call("turning__echo", &json!({"text": "x"}));
    assert_eq!(call().text(), "x");
    fake.define(&json!([bad]));
    eventually("it is held", Duration::from_secs(10), || call().text().contains("only as a task"));
    fake.define(&json!([good]));
    eventually("it runs again", Duration::from_secs(10), || call().text() == "x");
}

#[test]
fn server_problems_are_reported() {
    let world = World::new();
    let ancient = Fake::new(&world, "ancient").add(&world, "ancient", &[]);
    assert_eq!(ancient.code, 4, "{ancient:?}");
    assert!(ancient.stderr.contains("1999-01-01") && ancient.stderr.contains("2025-11-25"), "{ancient:?}");
    let fake = Fake::new(&world, "fake");
    let description = "adds\u{e0069}\u{e0067}\u{200b} numbers";
    fake.define(&json!([
        {"name": "structured", "description": description, "inputSchema": {"type": "object"}},
        {"inputSchema": {"type": "object"}}, {"inputSchema": {"type": "object"}},
    ]));
    let added = fake.add(&world, "good", &[]);
    assert_eq!(added.code, 0, "{added:?}");
    let shown = added.stdout;
    assert!(shown.contains("\\u{e0069}\\u{e0067}\\u{200b}"), "{shown}");
    assert!(!shown.contains('\u{e0069}') && !shown.contains('\u{200b}'), "{shown}");
    assert!(shown.contains("it has no name"), "{shown}");
    let up = Gateway::start(&world);
    let tool = up.get("/v1/tools/fake__structured").json();
    assert_eq!(tool["description"], "adds numbers");
    let odd = up.call("fake__structured", &json!({"content": [{"type": "hologram"}]})).text();
    assert!(odd.contains("the unknown type") && odd.contains("hologram"), "{odd}");
}

#[test]
fn frozen_server_is_killed_and_restarted() {
    let world = World::new();
    let fake = Fake::added(&world, "fake");
    let up = Gateway::start(&world);
    assert_eq!(up.call("fake__echo", &json!({"text": "x"})).text(), "x");
    let frozen = *fake.pids().last().unwrap();
    let ran = world.run(&["call", "fake__freeze", "--deadline", "1s"]);
    assert_eq!(ran.code, 124, "{ran:?}");
    assert!(is_alive(frozen));
    eventually("another one answers", Duration::from_secs(30), || {
        world.run(&["call", "fake__echo", r#"{"text": "y"}"#, "--deadline", "2s"]).stdout == "y"
    });
    eventually("the frozen one is gone", Duration::from_secs(10), || !is_alive(frozen));
    drop(up);
    eventually("none is left", Duration::from_secs(10), || fake.all_are_gone());
}

#[test]
fn failing_server_backs_off() {
    let world = World::new();
    let fake = Fake::added(&world, "fake");
    let config = std::fs::read_to_string(world.data().join("gantry.toml")).unwrap();
    world.configure(&config.replace("\"good\"", "\"crash\""));
    let up = Gateway::start(&world);
    let before = fake.pids().len();
    let until = Instant::now() + Duration::from_secs(9);
    let mut refused_at_once = 0;
    while Instant::now() < until {
        let begun = Instant::now();
        let answer = up.call("fake__echo", &json!({"text": "x"}));
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(answer.text().contains("cannot find the database"), "{}", answer.text());
        if answer.text().contains("is retried in") {
            assert!(begun.elapsed() < Duration::from_secs(1), "the failure is reported at once");
            refused_at_once += 1;
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    let starts = fake.pids().len() - before;
    assert!((3..=5).contains(&starts), "after 0, 1, 3 and 7 s: {starts} starts");
    assert!(refused_at_once > 0);
}

#[test]
fn invalid_answer_fails_only_its_own_call() {
    let world = World::new();
    let fake = Fake::added(&world, "fake");
    let up = Gateway::start(&world);
    assert_eq!(up.call("fake__echo", &json!({"text": "x"})).text(), "x");
    let started = fake.pids().len();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| up.call("fake__sleep", &json!({"seconds": 2})));
        for tool in ["bare", "deep"] {
            let begun = Instant::now();
            let answer = up.call(&format!("fake__{tool}"), &json!({}));
            assert_eq!(answer.status, 422, "{tool}: {}", answer.text());
            assert!(begun.elapsed() < Duration::from_secs(2), "{tool}: {:?}", begun.elapsed());
            let text = answer.text();
            assert!(text.contains("the MCP server fake returned an invalid answer"), "{text}");
        }
        assert_eq!(other.join().unwrap().text(), "slept", "what else is under way goes on");
    });
    assert_eq!(fake.pids().len(), started, "it is the same process");
}

#[test]
fn deeply_nested_schema_disables_one_tool_only() {
    let world = World::new();
    let fake = Fake::new(&world, "fake");
    let mut deep = json!({"type": "object"});
    for _ in 0..70 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    fake.define(&json!([
        {"name": "deep", "description": "d", "inputSchema": deep},
        {"name": "echo", "description": "says it", "inputSchema": {"type": "object"}},
    ]));
    let added = fake.add(&world, "good", &["--json"]);
    assert_eq!(added.code, 0, "{added:?}");
    let reported: Value = serde_json::from_str(&added.stdout).unwrap();
    assert_eq!(reported["tools"], json!(["echo"]));
    assert!(reported["held"][0].to_string().contains("levels deep"), "{reported}");
    let ran = world.run(&["call", "fake__echo", r#"{"text": "still here"}"#]);
    assert_eq!(ran.stdout, "still here", "{ran:?}");
}

#[test]
fn invalid_structured_content_is_reported_with_its_server() {
    let world = World::new();
    let fake = Fake::new(&world, "fake");
    let promised = json!({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]});
    fake.define(&json!([{
        "name": "structured", "description": "adds", "inputSchema": {"type": "object"}, "outputSchema": promised,
    }]));
    assert_eq!(fake.add(&world, "good", &[]).code, 0);
    let call = |structure: Value| world.run(&["call", "fake__structured", &structure.to_string()]);
    let good = call(json!({"structuredContent": {"sum": 3}}));
    assert_eq!((good.code, &good.json()["structuredContent"]), (0, &json!({"sum": 3})), "{good:?}");
    for (bad, why) in [
        (json!({"structuredContent": {"sum": "three"}}), "sum"),
        (json!({"structuredContent": {}}), "required field"),
        (json!({}), "structuredContent is missing"),
    ] {
        let ran = call(bad);
        assert_eq!(ran.code, 1, "{ran:?}");
        for part in ["MCP server fake", "structured", "outputSchema", why] {
            assert!(ran.stdout.contains(part), "{part}: {ran:?}");
        }
    }
    let failed = call(json!({"isError": true}));
    assert_eq!(failed.json()["error"], "see structure", "an error promises nothing");
}

#[test]
fn restored_definition_is_accepted_again() {
    let world = World::new();
    let fake = Fake::new(&world, "fake");
    let tools = |description: &str| -> Value {
        json!([{"name": "echo", "description": description, "inputSchema": {"type": "object"}}])
    };
    fake.define(&tools("harmless"));
    assert_eq!(fake.add(&world, "good", &[]).code, 0);
    let call = || world.run(&["call", "fake__echo", r#"{"text": "x"}"#]);
    fake.define(&tools("not so harmless"));
    let held = call();
    assert_eq!(held.code, 3, "{held:?}");
    assert!(held.stderr.contains("fake__echo is blocked"), "{held:?}");
    fake.define(&tools("harmless"));
    let ran = call();
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "x"), "{ran:?}");
}

#[test]
fn server_text_is_sanitized_and_long_names_are_shortened() {
    let world = World::new();
    let fake = Fake::new(&world, "fake");
    let schema =
        json!({"type": "object", "properties": {"a": {"description": "\u{1b}[2Jx", "enum": ["\u{7}"]}}});
    fake.define(&json!([
        {"name": "echo", "description": "safe\u{1b}]0;owned\u{7}\u{202e}", "inputSchema": schema},
        {"name": "x".repeat(5_000), "description": "d", "inputSchema": {"type": "object"}},
    ]));
    let added = fake.add(&world, "good", &[]);
    assert_eq!(added.code, 0, "{added:?}");
    let mut client = super::Client::new(&world, &["--toolset", "mcp"]);
    let listed = client.ask("tools/list", &json!({}))["result"]["tools"].clone();
    let echo = listed.as_array().unwrap().iter().find(|tool| tool["name"] == "fake__echo").unwrap();
    assert_eq!(echo["description"], "safe]0;owned");
    let property = &echo["inputSchema"]["properties"]["a"];
    assert_eq!((&property["description"], &property["enum"][0]), (&json!("[2Jx"), &json!("\u{7}")));
    drop(client);
    for args in
        [&["mcp", "accept", "fake", "--print"][..], &["mcp", "show", "fake"], &["up", "--listen", "nope"]]
    {
        let ran = world.run(args);
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains(&"x".repeat(100)), "{args:?}: {ran:?}");
    }
    assert!(!format!("{added:?}").contains(&"x".repeat(100)), "{added:?}");
}

#[test]
fn call_of_a_removed_server_reports_the_removal() {
    let world = World::new();
    let fake = Fake::added(&world, "fake");
    let up = Gateway::start(&world);
    assert_eq!(up.call("fake__echo", &json!({"text": "x"})).text(), "x");
    let text = std::thread::scope(|scope| {
        let calling = scope.spawn(|| up.call("fake__sleep", &json!({"seconds": 30})).text());
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(world.run(&["mcp", "remove", "fake"]).code, 0);
        calling.join().unwrap()
    });
    assert!(text.contains("was removed or changed") && !text.contains("exited with code"), "{text}");
    eventually("it is gone", Duration::from_secs(10), || fake.all_are_gone());
}
