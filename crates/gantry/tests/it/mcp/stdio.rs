//! One MCP client on standard input and output, without a gateway.

use std::io::Write;
use std::time::{Duration, Instant};

use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};

use super::http::Session;
use super::servers::Fake;
use super::{Client, DEFAULT_TOOLS, names, tokens};

/// What the list of `@modelcontextprotocol/server-filesystem` 2026.8.31 costs; ours must be less.
const FILESYSTEM_SERVER_TOKENS: usize = 3243;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89";

#[test]
fn default_tool_list_is_small_and_complete() {
    let world = World::new();
    let mut client = Client::new(&world, &[]);
    let answer = client.ask("tools/list", &json!({}));
    let tools = &answer["result"]["tools"];
    assert_eq!(names(tools), DEFAULT_TOOLS);
    for tool in tools.as_array().unwrap() {
        let name = &tool["name"];
        assert!(!tool["title"].as_str().unwrap().is_empty(), "{name}");
        assert!(tool["description"].as_str().unwrap().len() > 20, "{name}");
        assert_eq!(tool["inputSchema"]["type"], "object", "{name}");
        assert!(
            tool["inputSchema"]["properties"].get("node").is_none(),
            "one node needs no argument: {name}"
        );
        for hint in ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"] {
            assert!(tool["annotations"][hint].is_boolean(), "{name} {hint}");
        }
    }
    let cost = tokens(tools);
    println!("tokens of the default tools/list: {cost}");
    assert!(cost < FILESYSTEM_SERVER_TOKENS, "{cost} tokens");
    assert_eq!(client.leave(), Some(0));
}

#[test]
fn every_protocol_revision_works_and_unknown_ones_are_negotiated() {
    let world = World::new();
    world.write("a.txt", "one\ntwo\n");
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = Client::introduced(&world, &[], revision, &json!({}));
        let read = client.call("Read", &json!({"path": "a.txt"}));
        assert_eq!(read["isError"], false, "{revision}: {read}");
        assert!(read.get("resultType").is_none(), "older clients do not know it");
    }
    let mut client = Client::start(&world, &[]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "new", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let discovered = client.ask("server/discover", &json!({"_meta": meta.clone()}));
    let versions = discovered["result"]["supportedVersions"].to_string();
    assert!(versions.contains("2026-07-28") && versions.contains("2025-06-18"), "{discovered}");
    let read = client
        .ask("tools/call", &json!({"name": "Read", "arguments": {"path": "a.txt"}, "_meta": meta.clone()}));
    assert_eq!(read["result"]["resultType"], "complete", "{read}");
    let mut older = Client::start(&world, &[]);
    let params = json!({"protocolVersion": "1999-01-01", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
    let answer = older.ask("initialize", &params);
    let offered = answer["result"]["protocolVersion"].as_str().unwrap_or_default().to_owned();
    assert!(["2025-06-18", "2025-11-25"].contains(&&*offered), "{answer}");
}

#[test]
fn results_have_text_structured_content_and_images() {
    let world = World::new();
    world.write("a.txt", "one\ntwo\n");
    std::fs::write(world.workspace().join("p.png"), PNG).unwrap();
    let mut client = Client::new(&world, &[]);
    let read = client.call("Read", &json!({"path": "a.txt"}));
    let text: Value = serde_json::from_str(read["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, read["structuredContent"]);
    assert!(text["content"].as_str().unwrap().contains("two"), "{text}");
    let picture = client.call("Read", &json!({"path": "p.png"}));
    assert_eq!(picture["content"][1]["type"], "image", "{picture}");
    assert_eq!(picture["content"][1]["mimeType"], "image/png");
    assert!(picture.get("structuredContent").is_none());
    let missing = client.call("Read", &json!({"path": "nothing"}));
    assert_eq!(missing["isError"], true, "{missing}");
    let wrong = client.call("Read", &json!({"pth": "a.txt"}));
    assert_eq!(wrong["isError"], true);
    assert!(wrong["content"][0]["text"].as_str().unwrap().starts_with("invalid_input: "), "{wrong}");
    let unknown = client.call("Raed", &json!({}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert!(unknown["error"]["message"].as_str().unwrap().contains("Read"), "{unknown}");
}

#[test]
fn structured_content_matches_the_output_schema() {
    let world = World::new();
    world.write("a.txt", "one\n");
    let mut client = Client::new(&world, &[]);
    let tools = client.ask("tools/list", &json!({}))["result"]["tools"].clone();
    for (tool, input) in [
        ("Write", json!({"path": "b.txt", "content": "x"})),
        ("Edit", json!({"path": "a.txt", "oldString": "one", "newString": "two"})),
        ("Glob", json!({"pattern": "*.txt"})),
        ("Grep", json!({"pattern": "two"})),
    ] {
        let answer = client.call(tool, &input);
        assert_eq!(answer["isError"], false, "{tool}: {answer}");
        let listed = tools.as_array().unwrap().iter().find(|listed| listed["name"] == tool).unwrap();
        let Some(schema) = listed.get("outputSchema") else { panic!("{tool} has no output schema") };
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for field in required {
            assert!(
                answer["structuredContent"].get(field.as_str().unwrap()).is_some(),
                "{tool}: {field} in {answer}"
            );
        }
    }
}

#[test]
fn agent_reads_the_rest_of_truncated_results() {
    let world = World::new();
    world.configure(
        "[agents.reader]\nautonomy = \"guided\"\ntools = [\"Read\"]\n[agents.denied]\nautonomy = \"guided\"\n\
         tools = [\"Read\"]\ndenyTools = [\"result_read\"]\n",
    );
    world.write("long.txt", &"a line of words\n".repeat(20_000));
    let shown = |world: &World| {
        let mut client = Client::new(world, &["--agent", "reader"]);
        assert_eq!(client.tool_names(), ["Read", "result_read"]);
        let read = client.call("Read", &json!({"path": "long.txt"}));
        let handle = read["structuredContent"]["resultHandle"].as_str().unwrap().to_owned();
        let rest = client.call("result_read", &json!({"handle": handle, "offset": 100_000, "limit": 1_000}));
        assert_eq!(rest["isError"], false, "{rest}");
        assert!(rest.to_string().contains("a line of words"), "{rest}");
    };
    shown(&world);
    assert_eq!(Client::new(&world, &["--agent", "denied"]).tool_names(), ["Read"]);
    let _up = Gateway::start(&world);
    shown(&world);
}

#[test]
fn agent_with_a_tool_list_is_offered_those_tools() {
    let world = World::new();
    let _fake = Fake::added(&world, "fake");
    let lists = [
        ("words", r#"["basic"]"#, &["read", "exec"][..]),
        ("globs", r#"["fake__*"]"#, &["fake__echo"]),
        ("servers", r#"["mcp"]"#, &["fake__echo"]),
        ("names", r#"["tool::file_read", "local__Grep"]"#, &["tool__file_read", "Grep"]),
        ("spelled", r#"["tool__file_read", "read"]"#, &["tool__file_read", "read"]),
    ];
    let mut config = std::fs::read_to_string(world.data().join("gantry.toml")).unwrap();
    for (agent, list, _) in lists {
        config.push_str(&format!("\n[agents.{agent}]\nautonomy = \"guided\"\ntools = {list}\n"));
    }
    world.configure(&config);
    let check = |agent: &str, expected: &[&str], names: &[String]| {
        for name in expected.iter().chain(&["result_read"]) {
            assert!(names.iter().any(|listed| listed == name), "{agent}: {name} in {names:?}");
        }
        assert!(!names.contains(&"Bash".to_owned()), "{agent}: no more than its list: {names:?}");
    };
    for (agent, _, expected) in lists {
        check(agent, expected, &Client::new(&world, &["--agent", agent]).tool_names());
    }
    let up = Gateway::start(&world);
    for (agent, _, expected) in lists {
        check(agent, expected, &Client::new(&world, &["--agent", agent]).tool_names());
        let token = up.client_token(&world, agent, &["--agents", agent]);
        let session = Session::open(&up, "/mcp", &token, "2025-11-25");
        check(agent, expected, &names(&session.ask("tools/list", &json!({}))["tools"]));
    }
    let mut chosen = Client::new(&world, &["--agent", "words", "--tools", "read"]);
    assert_eq!(chosen.tool_names(), ["read", "result_read"], "what is chosen of a list is less");
}

#[test]
fn only_selected_tools_can_be_called() {
    let world = World::new();
    let mut read_only = Client::new(&world, &["--read-only"]);
    let names = read_only.tool_names();
    assert!(names.contains(&"Read".to_owned()) && !names.contains(&"Bash".to_owned()), "{names:?}");
    for hidden in ["Bash", "local__Bash", "exec", "tool::shell_exec"] {
        let refused = read_only.call(hidden, &json!({"command": "touch evil"}));
        assert!(
            refused["error"]["message"].as_str().unwrap().contains("unknown tool"),
            "{hidden}: {refused}"
        );
    }
    assert!(!world.workspace().join("evil").exists());
    let mut guarded = Client::new(&world, &["--toolset", "guarded"]);
    let names = guarded.tool_names();
    assert!(
        names.contains(&"tool__file_read".to_owned()) && !names.contains(&"Read".to_owned()),
        "{names:?}"
    );
    let mut two = Client::new(&world, &["--tools", "Read,local__Gr*", "--namespaced"]);
    assert_eq!(two.tool_names(), ["local__Grep", "local__Read", "result_read"]);
}

#[test]
fn startup_errors_go_to_stderr_only() {
    let world = World::new();
    for args in
        [&["mcp", "--toolset", "nodes"][..], &["mcp", "--agent", "nobody"], &["mcp", "--gateway", "ftp://x"]]
    {
        let ran = world.run(args);
        assert_eq!((ran.code, &*ran.stdout), (2, ""), "{args:?} {}", ran.stderr);
        assert!(ran.stderr.contains("error:"), "{}", ran.stderr);
    }
    let unreachable = world.run_with(&["mcp", "--gateway", "http://127.0.0.1:1"], &[("GANTRY_TOKEN", "x")]);
    assert_eq!((unreachable.code, &*unreachable.stdout), (4, ""), "{}", unreachable.stderr);
}

#[test]
fn cancel_and_disconnect_end_the_command() {
    let world = World::new();
    let mut client = Client::new(&world, &[]);
    let sleeper = |seconds: u32| format!("echo $$ > pid-{seconds}; exec sleep {seconds}");
    let pid = |seconds: u32| -> Option<u32> {
        std::fs::read_to_string(world.workspace().join(format!("pid-{seconds}"))).ok()?.trim().parse().ok()
    };
    let lives = |pid: u32| std::path::Path::new(&format!("/proc/{pid}")).exists();
    let id = client.send("tools/call", &json!({"name": "Bash", "arguments": {"command": sleeper(301)}}));
    eventually("the command runs", Duration::from_secs(20), || pid(301).is_some());
    client.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    eventually("the command is gone", Duration::from_secs(20), || !lives(pid(301).unwrap()));
    assert_eq!(client.call("Bash", &json!({"command": "echo on"}))["isError"], false, "the others go on");
    client.send("tools/call", &json!({"name": "Bash", "arguments": {"command": sleeper(302)}}));
    eventually("the second runs", Duration::from_secs(20), || pid(302).is_some());
    assert_eq!(client.leave(), Some(0));
    eventually("the second is gone", Duration::from_secs(20), || !lives(pid(302).unwrap()));
}

#[test]
fn closing_stdin_answers_running_calls_without_delay() {
    let world = World::new();
    world.write("a.txt", "one\n");
    let read = json!({"name": "Read", "arguments": {"path": "a.txt"}});
    let mut client = Client::new(&world, &[]);
    let mut soon: Vec<u64> = (0..50).map(|_| client.send("tools/call", &read)).collect();
    let last = json!({"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": read}).to_string();
    let mut stdin = client.stdin.take().unwrap();
    stdin.write_all(last.as_bytes()).unwrap();
    drop(stdin);
    soon.push(99);
    for id in soon {
        assert_eq!(client.answer(id)["result"]["isError"], false, "whatever is ready is said");
    }
    assert_eq!(client.leave(), Some(0));

    let mut client = Client::new(&world, &[]);
    // Progress reports must not delay the answer.
    client.ask("logging/setLevel", &json!({"level": "debug"}));
    let sleep = json!({
        "name": "Bash", "arguments": {"command": "echo $$ > pid; exec sleep 60"}, "_meta": {"progressToken": "p"},
    });
    let long = client.send("tools/call", &sleep);
    let pid = || std::fs::read_to_string(world.workspace().join("pid")).unwrap_or_default().trim().to_owned();
    eventually("the command runs", Duration::from_secs(20), || !pid().is_empty());
    let left = Instant::now();
    drop(client.stdin.take());
    let answer = client.answer(long);
    assert!(answer["result"]["content"][0]["text"].as_str().unwrap().starts_with("cancelled"), "{answer}");
    assert_eq!(client.leave(), Some(0));
    let took = left.elapsed();
    println!("left within {took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert!(!std::path::Path::new(&format!("/proc/{}", pid())).exists());
}

#[test]
fn long_command_reports_progress() {
    let world = World::new();
    let mut client = Client::new(&world, &[]);
    let began = Instant::now();
    let params =
        json!({"name": "Bash", "arguments": {"command": "sleep 7"}, "_meta": {"progressToken": "t-1"}});
    let id = client.send("tools/call", &params);
    let progress = client.hear_of("notifications/progress");
    assert_eq!(progress["params"]["progressToken"], "t-1", "{progress}");
    assert!(began.elapsed() < Duration::from_secs(7) + super::PATIENCE);
    assert_eq!(client.answer(id)["result"]["isError"], false);
}

#[test]
fn long_results_are_stored_and_readable_as_a_resource() {
    let world = World::new();
    world.configure("[mcp]\nmaxToolResultChars = 2000\n");
    let mut client = Client::new(&world, &[]);
    let long = client.call("Bash", &json!({"command": "seq 1 3000"}));
    let handle =
        long["structuredContent"]["resultHandle"].as_str().unwrap_or_else(|| panic!("{long}")).to_owned();
    assert!(long["content"][0]["text"].as_str().unwrap().len() < 3000);
    let uri = long["content"][1]["uri"].as_str().unwrap().to_owned();
    assert_eq!(uri, format!("gantry://results/{handle}"));
    let on = client.call("result_read", &json!({"handle": handle, "grep": "2999"}));
    assert_eq!(on["isError"], false, "{on}");
    let whole = client.ask("resources/read", &json!({"uri": uri}));
    let text = whole["result"]["contents"][0]["text"].as_str().unwrap();
    assert!(text.contains("1499\\n1500\\n1501") && text.contains("3000"), "{}", text.len());
    let none = client.ask("resources/read", &json!({"uri": "gantry://results/none"}));
    assert!(none["error"]["message"].as_str().unwrap().contains("no kept result"), "{none}");
}

#[test]
fn workspace_files_are_resources_and_skills_are_prompts() {
    let world = World::new();
    let long = "x".repeat(5000);
    world.configure("[mcp]\nmaxToolResultChars = 2000\n");
    for (path, text) in [
        ("SOUL.md", "who I am"),
        ("notes/a b.md", &*long),
        ("skills/sum/SKILL.md", "---\nname: sum\ndescription: Use when: summing\n---\n# Sum\nadd up\n"),
    ] {
        let input = json!({"path": path, "content": text}).to_string();
        assert_eq!(world.run(&["call", "gsv__WriteFile", &input]).code, 0);
    }
    let mut client = Client::new(&world, &[]);
    let listed = client.ask("resources/list", &json!({}))["result"]["resources"].clone();
    let uris: Vec<&str> = listed.as_array().unwrap().iter().map(|one| one["uri"].as_str().unwrap()).collect();
    assert!(
        uris.contains(&"gantry://workspace/SOUL.md") && uris.contains(&"gantry://workspace/notes/a%20b.md"),
        "{uris:?}"
    );
    let soul = client.ask("resources/read", &json!({"uri": "gantry://workspace/SOUL.md"}));
    assert_eq!(soul["result"]["contents"][0]["text"], "who I am", "{soul}");
    let whole = client.ask("resources/read", &json!({"uri": "gantry://workspace/notes/a%20b.md"}));
    assert_eq!(whole["result"]["contents"][0]["text"], long, "a resource is never shortened");
    for outside in
        ["gantry://workspace/..%2f..%2fgantry.toml", "gantry://workspace/none", "file:///etc/passwd"]
    {
        let refused = client.ask("resources/read", &json!({"uri": outside}));
        assert!(refused.get("error").is_some(), "{outside}: {refused}");
    }
    let prompts = client.ask("prompts/list", &json!({}))["result"]["prompts"].clone();
    assert_eq!(prompts, json!([{"name": "sum", "description": "Use when: summing"}]));
    let prompt = client.ask("prompts/get", &json!({"name": "sum"}));
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "# Sum\nadd up\n", "{prompt}");
    assert!(client.ask("prompts/get", &json!({"name": "../x"})).get("error").is_some());
    let mut narrow = Client::new(&world, &["--tools", "Read"]);
    assert_eq!(narrow.ask("resources/list", &json!({}))["result"]["resources"], json!([]));
}

#[test]
fn every_call_is_audited_under_the_clients_name() {
    let world = World::new();
    let mut client = Client::new(&world, &[]);
    client.call("Bash", &json!({"command": "true"}));
    assert_eq!(client.leave(), Some(0));
    let log = std::fs::read_to_string(world.data().join("audit.log")).unwrap();
    let begun = log.lines().find(|line| line.contains("\"begin\"")).unwrap();
    assert!(
        begun.contains("mcp:test-client") && begun.contains("\"mcp\"") && begun.contains("local__Bash"),
        "{begun}"
    );
}

/// A sensitive path needs approval. A client that cannot ask its user is denied, with the rule's name.
#[test]
fn approval_is_asked_by_elicitation() {
    let world = World::new();
    std::fs::create_dir_all(world.folder.path().join(".ssh")).unwrap();
    let key = world.folder.path().canonicalize().unwrap().join(".ssh/id_ed25519");
    std::fs::write(&key, "secret key").unwrap();
    let input = json!({"path": key});

    let mut silent = Client::new(&world, &[]);
    let denied = silent.call("Read", &input);
    assert_eq!(denied["isError"], true);
    let text = denied["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("approval_needed: ") && text.contains("(rule "), "{text}");

    let mut asking = Client::introduced(&world, &[], "2025-11-25", &json!({"elicitation": {}}));
    for (answer, may) in [
        (json!({"action": "accept", "content": {"allow": true}}), true),
        (json!({"action": "accept", "content": {"allow": false}}), false),
        (json!({"action": "decline"}), false),
        (json!({"action": "cancel"}), false),
    ] {
        let id = asking.send("tools/call", &json!({"name": "Read", "arguments": input}));
        let question = asking.hear_of("elicitation/create");
        assert!(question["params"]["message"].as_str().unwrap().contains("id_ed25519"), "{question}");
        asking.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
        let read = asking.answer(id);
        assert_eq!(read["result"]["isError"], !may, "{answer}: {read}");
        assert_eq!(read.to_string().contains("secret key"), may, "{answer}: {read}");
    }
    let id = asking.send("tools/call", &json!({"name": "Read", "arguments": input}));
    let question = asking.hear_of("elicitation/create");
    let error = json!({"code": -1, "message": "no"});
    asking.say(&json!({"jsonrpc": "2.0", "id": question["id"], "error": error}));
    assert_eq!(asking.answer(id)["result"]["isError"], true, "an error is a no");
    drop(asking);
    let log = std::fs::read_to_string(world.data().join("audit.log")).unwrap();
    assert_eq!(log.matches("(approved)").count(), 1, "one was allowed, and it is recorded");
}

/// Since 2026-07-28 a server asks by its answer, and the call comes again with the user's.
#[test]
fn approval_can_be_given_by_calling_again() {
    let world = World::new();
    std::fs::create_dir_all(world.folder.path().join(".ssh")).unwrap();
    let key = world.folder.path().canonicalize().unwrap().join(".ssh/id_ed25519");
    std::fs::write(&key, "secret key").unwrap();
    let mut client = Client::start(&world, &[]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "new", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    });
    let mut params = json!({"name": "Read", "arguments": {"path": key}, "_meta": meta});
    let asked = client.ask("tools/call", &params);
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let question = &asked["result"]["inputRequests"]["approval"];
    assert_eq!(question["method"], "elicitation/create", "{asked}");
    params["requestState"] = asked["result"]["requestState"].clone();
    params["inputResponses"] = json!({"approval": {"action": "accept", "content": {"allow": true}}});
    let mut other = params.clone();
    other["arguments"]["path"] = json!(world.folder.path().canonicalize().unwrap().join(".ssh/other"));
    assert_eq!(client.ask("tools/call", &other)["error"]["code"], -32602, "it was asked of another call");
    let mut forged = params.clone();
    forged["requestState"] = json!(format!("{}0", params["requestState"].as_str().unwrap()));
    assert_eq!(client.ask("tools/call", &forged)["error"]["code"], -32602, "it was never given");
    let read = client.ask("tools/call", &params);
    assert!(read.to_string().contains("secret key"), "{read}");
    let again = client.ask("tools/call", &params);
    assert_eq!(again["result"]["resultType"], "input_required", "an answer counts once: {again}");
    let mut denied = params.clone();
    denied["requestState"] = again["result"]["requestState"].clone();
    denied["inputResponses"]["approval"] = json!({"action": "decline"});
    let refused = client.ask("tools/call", &denied);
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert!(refused.to_string().contains("the user said no"), "{refused}");
}

#[test]
fn invalid_messages_do_not_end_the_connection() {
    let world = World::new();
    let mut client = Client::new(&world, &[]);
    client.say(&json!({"jsonrpc": "2.0", "id": 77, "method": "no/such", "params": {}}));
    assert!(client.answer(77).get("error").is_some());
    client.say(&json!({"jsonrpc": "2.0", "id": 78, "method": "tools/call", "params": {"name": 7}}));
    assert!(client.answer(78).get("error").is_some());
    assert_eq!(client.tool_names(), DEFAULT_TOOLS);
}

#[test]
fn usage_error_writes_nothing_to_stdout() {
    let world = World::new();
    for args in [&["mcp", "--no-such-flag"][..], &["mcp", "nonsense"], &["--json", "mcp", "--toolset"]] {
        let ran = world.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
        assert!(ran.stderr.contains("error:"), "{ran:?}");
    }
    let other = world.run(&["mcp", "show", "--no-such-flag"]);
    assert!(other.code == 2 && other.stdout.contains("\"usage\""), "{other:?}");
}

#[test]
fn tool_choice_without_a_match_is_reported_at_start() {
    let world = World::new();
    let nothing = world.run_with_input(&["mcp", "--tools", "x*,Raed"], "");
    assert_eq!(nothing.code, 2, "{nothing:?}");
    assert_eq!(nothing.stdout, "", "that is the client's");
    for part in ["no tool matches \"x*\"", "no tool matches \"Raed\"; did you mean read, local__Read"] {
        assert!(nothing.stderr.contains(part), "{part}: {nothing:?}");
    }
    let partly = world.run_with_input(&["mcp", "--tools", "Read,x*"], "");
    assert_eq!(partly.code, 0, "{partly:?}");
    assert!(partly.stderr.contains("warning: no tool matches \"x*\""), "{partly:?}");
    let fine = world.run_with_input(&["mcp", "--tools", "Read"], "");
    assert_eq!((fine.code, fine.stderr.as_str()), (0, ""), "{fine:?}");
    let _up = Gateway::start(&world);
    let through = world.run_with_input(&["mcp", "--tools", "laptop__*"], "");
    assert_eq!(through.code, 0, "it may come with a node: {through:?}");
    assert!(through.stderr.contains("warning: no tool matches \"laptop__*\""), "{through:?}");
}

#[test]
fn invalid_params_and_unknown_names_have_error_codes() {
    let world = World::new();
    let mut client = Client::new(&world, &[]);
    let mut code = |method: &str, params: Value| client.ask(method, &params)["error"]["code"].clone();
    assert_eq!(code("tools/call", json!({"name": "nope", "arguments": {}})), -32602);
    assert_eq!(code("tools/call", json!({"name": 5})), -32602);
    assert_eq!(code("prompts/get", json!({})), -32602);
    assert_eq!(code("nope/nope", json!({})), -32601);
    for list in ["tools/list", "resources/list", "resources/templates/list", "prompts/list"] {
        assert_eq!(code(list, json!({"cursor": "nope"})), -32602, "{list} has one page");
        assert_eq!(code(list, json!({})), json!(null), "{list}");
    }
}
