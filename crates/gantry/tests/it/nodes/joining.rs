//! Nodes that join: validation of their hello, routing of calls, and administration.

use std::collections::BTreeMap;
use std::time::Duration;

use gantry_link::HandshakeError;
use gantry_protocol::{CloseReason, ErrorCode, NodeHello, ProtocolRange, Role, method, raw};
use gantry_testkit::peers::{Client, Node, answered, hello, link, params, runtime, tools};
use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

#[test]
fn invalid_node_hello_is_rejected() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "box", &[]);
    runtime().block_on(async {
        let refused = async |hello: Option<NodeHello>| {
            let node = Node::new("box", &token);
            match link(&up, &params(Role::Node, "box", &token, hello), node).await.err() {
                Some(HandshakeError::Refused(error)) => {
                    assert_eq!(error.code, ErrorCode::BadParams, "{error}")
                }
                other => panic!("{other:?}"),
            }
        };
        refused(None).await;
        refused(Some(NodeHello { instance: String::new(), ..hello() })).await;
        refused(Some(NodeHello { instance: "x".repeat(65), ..hello() })).await;
        refused(Some(NodeHello { tools: BTreeMap::new(), ..hello() })).await;
        refused(Some(NodeHello { host_capabilities: vec!["root".into()], ..hello() })).await;
        refused(Some(NodeHello { host_capabilities: Vec::new(), ..hello() })).await;
        for name in ["a__b", "_a", "a:b", "", "a b", "\u{e4}"] {
            let tools = [(name.to_owned(), vec!["filesystem.read".to_owned()])].into();
            refused(Some(NodeHello { tools, ..hello() })).await;
        }
        let capabilities =
            |ids: Vec<String>| -> BTreeMap<String, Vec<String>> { [("Echo".to_owned(), ids)].into() };
        refused(Some(NodeHello { tools: capabilities(Vec::new()), ..hello() })).await;
        refused(Some(NodeHello { tools: capabilities(vec!["shell.exec".into()]), ..hello() })).await;
    });
    assert_eq!(up.node("box")["firstSeen"], Value::Null);
}

#[test]
fn node_tools_must_match_the_hello_and_be_valid() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "box", &[]);
    runtime().block_on(async {
        let node = Node::new("box", &token);
        let (link, _) = node.connect(&up).await.unwrap();
        let send = async |tools: Value| {
            answered(link.request_within(method::NODE_TOOLS, raw(&tools), Duration::from_secs(5)).await)
        };
        let spoilt = |spoil: fn(&mut Vec<Value>)| {
            let mut all = tools();
            spoil(all["tools"].as_array_mut().unwrap());
            all
        };
        for (what, tools) in [
            ("one is missing", spoilt(|tools| drop(tools.pop()))),
            ("one is twice", spoilt(|tools| tools.push(tools[0].clone()))),
            ("another name", spoilt(|tools| tools[0]["name"] = json!("Other"))),
            ("no description", spoilt(|tools| tools[0]["description"] = json!(""))),
            ("a long description", spoilt(|tools| tools[0]["description"] = json!("x".repeat(40_000)))),
            ("a schema of no object", spoilt(|tools| tools[0]["inputSchema"] = json!({"type": "string"}))),
            ("no schema", spoilt(|tools| tools[0]["inputSchema"] = json!(true))),
            (
                "a broken schema",
                spoilt(|tools| tools[0]["inputSchema"]["properties"] = json!({"a": {"type": 7}})),
            ),
            (
                "a broken pattern",
                spoilt(|tools| {
                    tools[0]["inputSchema"]["properties"] = json!({"a": {"type": "string", "pattern": "("}});
                }),
            ),
            (
                "a schema from elsewhere",
                spoilt(|tools| {
                    tools[0]["inputSchema"]["properties"] = json!({"a": {"$ref": "file:///etc/passwd"}});
                }),
            ),
            ("unknown fields", json!({"tools": [], "more": 1})),
        ] {
            let error = send(tools).await.expect_err(what);
            assert_eq!(error.code, ErrorCode::BadParams, "{what}: {error}");
            assert_eq!(up.node("box")["online"], false, "{what}");
        }
        send(tools()).await.unwrap();
        assert_eq!(send(tools()).await.unwrap_err().code, ErrorCode::Conflict);
    });
    let shown = up.node("box");
    assert_eq!((&shown["clientPlatform"], &shown["clientVersion"]), (&json!("linux-x64"), &json!("0.0.1")));
    assert_eq!(shown["toolCapabilities"]["Echo"], json!(["filesystem.read"]));
}

#[test]
fn calls_are_routed_to_their_nodes() {
    let world = World::new();
    let up = Gateway::start_with(&world, "serve", &[]);
    let runtime = runtime();
    let mut links = Vec::new();
    let mut nodes = Vec::new();
    for (id, tag) in [("a", "web"), ("b", "web"), ("c", "db")] {
        let node = Node::new(id, &up.add_node(&world, id, &["--tag", tag]));
        links.push(runtime.block_on(node.join(&up)));
        nodes.push(node);
    }
    let echo = |input: Value| up.call("Echo", &input);
    assert_eq!(up.call("b__Echo", &json!({"text": "x"})).json(), json!({"text": "x", "on": "b"}));
    assert_eq!(echo(json!({"text": "x", "node": "c"})).json(), json!({"text": "x", "on": "c"}));
    let on = |response: gantry_testkit::Response| -> Vec<String> {
        let results = response.json()["results"].clone();
        results.as_array().unwrap().iter().map(|one| one["node"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(on(echo(json!({"text": "x", "node": "*"}))), ["a", "b", "c"]);
    assert_eq!(on(echo(json!({"text": "x", "node": "tag:web"}))), ["a", "b"]);
    let several = echo(json!({"text": "x"}));
    assert_eq!((several.status, several.code().as_str()), (400, "invalid_input"));
    assert!(several.text().contains("a, b, c"), "{}", several.text());
    for wrong in ["d", "tag:none", "", "tag:"] {
        assert_eq!(echo(json!({"node": wrong})).status, 400, "{wrong}");
    }
    let failed = up.call("a__Fail", &json!({}));
    assert_eq!((failed.status, failed.json()), (422, json!({"error": "as asked"})));
    assert_eq!(
        up.call("a__Echo", &json!({"txt": 1})).status,
        400,
        "the gate here checks before anything travels"
    );
    links[0].close(CloseReason::Done);
    eventually("a is offline", Duration::from_secs(2), || up.node("a")["online"] == false);
    let offline = up.call("a__Echo", &json!({"text": "x"}));
    assert_eq!((offline.status, offline.code().as_str()), (503, "unavailable"));
    assert!(offline.text().contains("last seen"), "{}", offline.text());
    assert!(up.get("/v1/tools").text().contains("a__Echo"), "offline tools stay visible");
    let all = echo(json!({"text": "x", "node": "*"})).json();
    assert_eq!(
        (&all["results"][0]["ok"], &all["results"][0]["error"]["code"]),
        (&json!(false), &json!("unavailable"))
    );
    assert_eq!(all["results"][1]["ok"], true);
    links[1].close(CloseReason::Done);
    eventually("b is offline", Duration::from_secs(2), || up.node("b")["online"] == false);
    assert_eq!(echo(json!({"text": "x"})).json()["node"], "c", "the only one that can answer is named");
    let caller = nodes[2].callers.lock().unwrap().last().unwrap().clone();
    assert_eq!(
        (caller.principal.as_str(), caller.agent.as_str(), caller.surface.as_str()),
        ("operator", "main", "http")
    );
}

#[test]
fn newer_connection_of_a_node_replaces_the_older() {
    let world = World::new();
    let up = Gateway::start(&world);
    let node = Node::new("box", &up.add_node(&world, "box", &[]));
    let runtime = runtime();
    let first = runtime.block_on(node.join(&up));
    let second = runtime.block_on(node.join(&up));
    eventually("the first is closed", Duration::from_secs(1), || first.is_closed());
    assert_eq!(runtime.block_on(first.closed()).reason, Some(CloseReason::Replaced));
    assert_eq!(up.node("box")["online"], true);
    assert_eq!(up.call("box__Echo", &json!({"text": "x"})).status, 200);
    assert!(!second.is_closed());
}

#[test]
fn revoke_renew_rename_and_forget_close_the_socket_within_a_second() {
    let world = World::new();
    let up = Gateway::start(&world);
    let runtime = runtime();
    for (action, word, code) in [
        (&["nodes", "revoke", "box"][..], "revoked", CloseReason::NodeTokenRevoked),
        (&["nodes", "renew", "box", "--token"], "renewed", CloseReason::NodeTokenRenewed),
        (
            &["nodes", "rename", "box", "other"],
            "renamed to other",
            CloseReason::NodeRenamed { new_id: "other".into() },
        ),
        (&["nodes", "forget", "box"], "forgotten", CloseReason::NodeForgotten),
    ] {
        let token = up.add_node(&world, "box", &[]);
        let node = Node::new("box", &token);
        let link = runtime.block_on(node.join(&up));
        // A second connection, which has not reported its tools yet.
        let (waiting, _) = runtime.block_on(node.connect(&up)).unwrap();
        let mut calling = up.connection();
        calling.begin(&up, "POST", "/v1/tools/box__Sleep", &[("Gantry-Deadline-Ms", "4000")], b"{}");
        eventually("the call runs", Duration::from_secs(2), || node.runs() == 1);
        assert_eq!(world.run(action).code, 0);
        eventually(word, Duration::from_secs(1), || link.is_closed());
        let reason = runtime.block_on(link.closed());
        assert_eq!(reason.reason, Some(code), "{reason}");
        eventually("the waiting one is closed", Duration::from_secs(1), || waiting.is_closed());
        calling.patience(Duration::from_secs(2));
        let answer = calling.read().unwrap();
        assert_eq!(answer.status, 503, "the call fails at once, not at the deadline: {answer:?}");
        assert!(answer.text().contains(word), "{}", answer.text());
        match runtime.block_on(node.connect(&up)).err() {
            Some(HandshakeError::Refused(error)) => assert_eq!(error.code, ErrorCode::Unauthorized),
            other => panic!("{action:?}: {other:?}"),
        }
        for id in ["box", "other"] {
            world.run(&["nodes", "forget", id]);
        }
        assert_eq!(up.call("box__Echo", &json!({})).status, 404);
    }
}

#[test]
fn node_of_protocol_version_1_connects_and_understands_why_it_is_closed() {
    let world = World::new();
    let up = Gateway::start(&world);
    let runtime = runtime();
    let token = up.add_node(&world, "old", &[]);
    let join = || {
        let node = Node::new("old", &token);
        let mut said = params(Role::Node, "old", &token, Some(node.hello()));
        said.protocol = ProtocolRange { min: 1, max: 1 };
        runtime.block_on(async {
            let (link, welcome) = link(&up, &said, node.clone()).await.unwrap();
            assert_eq!(welcome.protocol, 1);
            let offered =
                link.request_within(method::NODE_TOOLS, raw(&tools()), Duration::from_secs(5)).await;
            answered(offered).unwrap();
            link
        })
    };
    let (first, second) = (join(), join());
    assert_eq!(up.call("old__Echo", &json!({"text": "x"})).status, 200);
    assert_eq!(runtime.block_on(first.closed()).reason, Some(CloseReason::Replaced));
    assert_eq!(world.run(&["nodes", "rename", "old", "new"]).code, 0);
    let renamed = CloseReason::NodeRenamed { new_id: "new".into() };
    assert_eq!(runtime.block_on(second.closed()).reason, Some(renamed));
}

#[test]
fn peer_without_a_common_version_is_rejected_with_the_supported_versions() {
    let world = World::new();
    let up = Gateway::start(&world);
    let mut said = params(Role::Client, "tester", &up.token, None);
    said.protocol = ProtocolRange { min: 3, max: 9 };
    match runtime().block_on(link(&up, &said, Node::new("x", ""))).err() {
        Some(HandshakeError::Refused(error)) => {
            assert_eq!(error.code, ErrorCode::UnsupportedProtocol);
            assert!(error.message.contains("versions 1 to 2, not 3 to 9"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn offline_error_names_the_reason_and_last_seen_time() {
    let world = World::new();
    let up = Gateway::start(&world);
    let runtime = runtime();
    for (action, now_called) in [
        (&["nodes", "revoke", "box"][..], "box"),
        (&["nodes", "renew", "box", "--token"], "box"),
        (&["nodes", "rename", "box", "other"], "other"),
    ] {
        let token = up.add_node(&world, "box", &[]);
        let node = Node::new("box", &token);
        let link = runtime.block_on(node.join(&up));
        std::thread::sleep(Duration::from_millis(50));
        let before = jiff::Timestamp::now().as_millisecond();
        assert_eq!(world.run(action).code, 0);
        eventually("it is closed", Duration::from_secs(1), || link.is_closed());
        let seen = up.node(now_called)["lastSeen"].as_i64().unwrap();
        assert!((before..before + 2000).contains(&seen), "{action:?}: {}", seen - before);
        let reported = up.call(&format!("{now_called}__Echo"), &json!({"text": "x"})).text().to_owned();
        match action[1] {
            "revoke" => {
                assert!(reported.contains("is revoked") && reported.contains("nodes renew box"), "{reported}")
            }
            _ => assert!(reported.contains("is offline; last seen"), "{reported}"),
        }
        if action[1] == "revoke" {
            let ran = world.run(&["transfer", "local:x", "box:x"]);
            assert!(ran.stdout.contains("is revoked") || ran.stderr.contains("is revoked"), "{}", ran.stderr);
            let ran = world.run(&["logs", "box"]);
            assert!(ran.stdout.contains("is revoked") || ran.stderr.contains("is revoked"), "{}", ran.stderr);
        }
        assert_eq!(world.run(&["nodes", "forget", now_called]).code, 0);
    }
}

#[test]
fn node_that_never_connected_is_offline() {
    let world = World::new();
    let up = Gateway::start(&world);
    up.add_node(&world, "laptop", &["--tag", "web"]);
    for args in [
        &["call", "laptop__Bash", r#"{"command": "true"}"#][..],
        &["call", "Bash", r#"{"command": "true", "node": "laptop"}"#],
        &["tools", "laptop__Bash"],
        &["logs", "laptop"],
        &["transfer", "laptop:x", "local:x"],
    ] {
        let ran = world.run(args);
        let reported = format!("{} {}", ran.stdout, ran.stderr);
        assert!(
            reported.contains("it never connected") && !reported.contains("local__Bash"),
            "{args:?}: {reported}"
        );
        assert_eq!(ran.code, 4, "{args:?}: {reported}");
    }
    assert_eq!(up.call("laptop__Bash", &json!({"command": "true"})).status, 503);
    let all = up.call("Bash", &json!({"command": "true", "node": "*"})).json();
    let results = &all["results"];
    assert_eq!((&results[0]["node"], &results[0]["ok"]), (&json!("local"), &json!(true)), "{all}");
    assert_eq!((&results[1]["node"], &results[1]["ok"]), (&json!("laptop"), &json!(false)), "{all}");
    let tagged = world.run(&["call", "Bash", r#"{"command": "true", "node": "tag:web"}"#]);
    assert!(tagged.stdout.contains("never connected"), "{tagged:?}");
}

#[test]
fn cancel_and_deadline_reach_the_node() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "box", &[]);
    runtime().block_on(async {
        let node = Node::new("box", &token);
        let _link = node.join(&up).await;
        let client = Client::operator(&up).await;
        let late = client.call_until("box__Sleep", json!({}), Duration::from_millis(500)).await.unwrap_err();
        assert_eq!(late.code, ErrorCode::Deadline);
        let reported = node.deadlines.lock().unwrap()[0].unwrap();
        assert!((1..=500).contains(&reported), "{reported} ms");
        let cancel = CancellationToken::new();
        let input = raw(&json!({"tool": "box__Sleep", "input": {}}));
        let calling =
            client.link.request_until(method::TOOL_CALL, input, None, &cancel, Duration::from_secs(5));
        let cancelling = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            cancel.cancel();
        };
        let (answer, ()) = tokio::join!(calling, cancelling);
        assert_eq!(answered(answer).unwrap_err().code, ErrorCode::Cancelled);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(
            node.cancelled.lock().unwrap().len(),
            2,
            "the deadline and the cancel both ended it there"
        );
    });
    // An HTTP caller that hangs up calls it off too.
    let node = Node::new("box", &token);
    let runtime = runtime();
    let _link = runtime.block_on(node.join(&up));
    let mut calling = up.connection();
    calling.begin(&up, "POST", "/v1/tools/box__Sleep", &[], b"{}");
    eventually("it runs", Duration::from_secs(2), || node.runs() == 1);
    drop(calling);
    eventually("it is called off", Duration::from_secs(3), || node.cancelled.lock().unwrap().len() == 1);
}

#[test]
fn node_runs_64_calls_at_a_time_and_queues_the_rest() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "box", &[]);
    runtime().block_on(async {
        let node = Node::new("box", &token);
        let _link = node.join(&up).await;
        let client = Client::operator(&up).await;
        let calls = (0..160).map(|_| client.call("box__Sleep", json!({"ms": 200})));
        let answers = futures_util::future::join_all(calls).await;
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!((node.runs(), node.peak()), (160, 64));
    });
}

#[test]
fn process_exits_during_gateway_downtime_are_reported_after_reconnect() {
    let world = World::new();
    let up = Gateway::start(&world);
    let started = up.call("local__Bash", &json!({"command": "sleep 0.6; exit 7", "background": true})).json();
    up.kill();
    std::thread::sleep(Duration::from_millis(1500));
    let up = Gateway::start(&world);
    // The connection of a command is short and does not count as a listener.
    assert_eq!(world.run(&["nodes", "list"]).code, 0);
    let mine = up.client_token(&world, "mine", &[]);
    let runtime = runtime();
    runtime.block_on(async {
        for _ in 0..2 {
            let operator = Client::operator(&up).await;
            let until = std::time::Instant::now() + Duration::from_secs(5);
            while operator.events("process.ended").is_empty() && std::time::Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let reported = operator.events("process.ended");
            assert_eq!(reported.len(), 1, "{reported:?}");
            assert_eq!((&reported[0]["nodeId"], &reported[0]["exitCode"]), (&json!("local"), &json!(7)));
            assert_eq!(reported[0]["sessionId"], started["sessionId"]);
        }
        let client = Client::connect(&up, &mine).await.unwrap();
        let listener = Client::operator(&up).await;
        tokio::time::sleep(Duration::from_millis(5500)).await;
        assert_eq!(listener.events("process.ended").len(), 1);
        assert!(client.events("process.ended").is_empty(), "the operator's only");
        let late = Client::operator(&up).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(late.events("process.ended").is_empty(), "an operator already received it");
    });
}

#[test]
fn process_exit_is_recorded_once_and_reported() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "box", &[]);
    let mine = up.client_token(&world, "mine", &[]);
    let end = json!({
        "eventId": "e1", "sessionId": "s1", "command": "make", "principal": "operator", "agent": "main",
        "exitCode": 2, "signal": null, "timedOut": false, "startedAt": 1, "endedAt": 2, "tail": "failed\n",
    });
    runtime().block_on(async {
        let (operator, client) = (Client::operator(&up).await, Client::connect(&up, &mine).await.unwrap());
        let node = Node::new("box", &token);
        let link = node.join(&up).await;
        let tell = async |end: &Value| {
            answered(link.request_within(method::PROCESS_ENDED, raw(end), Duration::from_secs(5)).await)
        };
        assert_eq!(tell(&end).await.unwrap(), json!({"new": true}));
        assert_eq!(tell(&end).await.unwrap(), json!({"new": false}));
        tokio::time::sleep(Duration::from_millis(200)).await;
        let reported = operator.events("process.ended");
        assert_eq!(
            (reported.len(), &reported[0]["nodeId"], &reported[0]["exitCode"]),
            (1, &json!("box"), &json!(2))
        );
        assert!(client.events("process.ended").is_empty(), "the operator's only");
        let mut huge = end.clone();
        huge["eventId"] = json!("e2");
        huge["tail"] = json!("x".repeat(1 << 20));
        let refused = tell(&huge).await.unwrap_err();
        assert_eq!((refused.code, refused.retryable), (ErrorCode::BadParams, false), "{refused}");
    });
    let shown = world.run(&["nodes", "show", "box", "--json"]).json();
    assert_eq!(shown["processEnds"].as_array().unwrap().len(), 1);
    assert_eq!(shown["processEnds"][0]["event"]["tail"], "failed\n");
}

/// Not what the asker's own configuration says: it may be another machine's.
#[test]
fn gateway_reports_its_public_address() {
    let world = World::new();
    let url = "https://gantry.example.com";
    let log = world.folder.path().join("said");
    let up = Gateway::start_logged(&world, &log, &["--public-url", url]);
    let added = world.run(&["nodes", "add", "here", "--token"]);
    assert!(added.stdout.contains(&format!("--gateway {url} --id here")), "{}", added.stdout);
    assert!(!added.stderr.contains("cannot reach this address"), "{}", added.stderr);
    let elsewhere = World::new();
    elsewhere.configure("[gateway]\npublicUrl = \"https://wrong.example.com\"\n");
    let from_there = [("GANTRY_GATEWAY", up.url.as_str()), ("GANTRY_TOKEN", up.token.as_str())];
    let added = elsewhere.run_with(&["nodes", "add", "there", "--token", "--json"], &from_there);
    assert_eq!(added.json()["gateway"], url, "{}", added.stderr);
    let renewed = elsewhere.run_with(&["nodes", "renew", "there", "--token", "--json"], &from_there);
    assert_eq!(renewed.json()["gateway"], url);
}

#[test]
fn bulk_connection_requires_its_main_connection() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "box", &[]);
    runtime().block_on(async {
        let node = Node::new("box", &token);
        let refused = async |instance: &str| {
            let hello = NodeHello { instance: instance.into(), bulk: true, ..NodeHello::default() };
            match link(&up, &params(Role::Node, "box", &token, Some(hello)), node.clone()).await {
                Err(HandshakeError::Refused(error)) => Some(error.code),
                Err(other) => panic!("{other:?}"),
                Ok(_) => None,
            }
        };
        let own = node.hello().instance;
        assert_eq!(refused(&own).await, Some(ErrorCode::Conflict), "nobody is connected");
        let _main = node.join(&up).await;
        assert_eq!(refused("another").await, Some(ErrorCode::Conflict), "another start is connected");
        assert_eq!(refused(&own).await, None);
    });
}

#[test]
fn rename_warns_about_rules_with_the_old_name() {
    let world = World::new();
    world.configure(
        "[[policy.rules]]\nname = \"no-shell\"\ntool = \"box__Bash\"\ndecision = \"deny\"\n\
         [[policy.rules]]\nname = \"nowhere\"\ntool = \"Bash\"\ndecision = \"deny\"\n",
    );
    let up = Gateway::start(&world);
    up.add_node(&world, "box", &[]);
    let renamed = world.run(&["nodes", "rename", "box", "other"]);
    assert_eq!(renamed.code, 0);
    assert!(renamed.stderr.contains("name box") && renamed.stderr.contains("no-shell"), "{}", renamed.stderr);
    assert!(!renamed.stderr.contains("nowhere"), "{}", renamed.stderr);
    let quiet = world.run(&["nodes", "rename", "other", "third"]);
    assert!(!quiet.stderr.contains("rules"), "{}", quiet.stderr);
}

#[test]
fn administration_of_the_local_node_is_rejected() {
    let world = World::new();
    let _up = Gateway::start(&world);
    for (args, cannot) in [
        (&["forget", "local"][..], "cannot be removed"),
        (&["rename", "local", "x"], "renamed"),
        (&["revoke", "local"], "no token to revoke"),
        (&["renew", "local"], "no token to renew"),
        (&["tag", "local", "web"], "tagged"),
    ] {
        let ran = world.run(&[&["nodes"], args].concat());
        let reported = format!("{}{}", ran.stdout, ran.stderr);
        assert_eq!(
            ran.code,
            world.run(&[&["nodes", args[0], "nobody"], &args[2..]].concat()).code,
            "{reported}"
        );
        assert!(reported.contains("gateway's own machine") && reported.contains(cannot), "{reported}");
        assert!(!reported.contains("unknown node"), "{reported}");
    }
}

#[test]
fn terminal_reports_joins_leaves_and_stop() {
    let world = World::new();
    let log = world.folder.path().join("gateway.log");
    let mut up = Gateway::start_logged(&world, &log, &["-v"]);
    let logged = |text: &str| std::fs::read_to_string(&log).unwrap().contains(text);
    let far = crate::sessions::Far::join(&world, &up);
    let soon = Duration::from_secs(20);
    eventually("it says who joined", soon, || logged("node_connected  node=far"));
    drop(far);
    eventually("it says who left", soon, || logged("node_disconnected  node=far"));
    up.signal(rustix::process::Signal::TERM);
    assert_eq!(up.wait(Duration::from_secs(30)), Some(0));
    assert!(logged("Stopping: waiting for running calls.") && logged("Gantry has stopped."));
}
