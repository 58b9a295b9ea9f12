//! Exit codes: they tell a script whether the caller, the tool or the gateway must change.

use std::net::TcpListener;

use gantry_testkit::{Gateway, World};
use serde_json::Value;

type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], i32);

fn check(world: &World, cases: &[Case<'_>]) {
    for (args, variables, code) in cases {
        let ran = world.run_with(args, variables);
        let shown = format!("{args:?} {variables:?}: {} {}", ran.stdout, ran.stderr);
        assert_eq!(ran.code, *code, "{shown}");
        match code {
            0 => {}
            1 => assert!(!ran.stdout.is_empty(), "the tool's own error is missing: {shown}"),
            _ => {
                let reported: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{shown}"));
                let message = reported["error"]["message"].as_str().unwrap_or_else(|| panic!("{shown}"));
                assert!(reported["error"]["code"].is_string() && !message.is_empty(), "{shown}");
                assert!(!ran.stderr.is_empty(), "the same in words: {shown}");
            }
        }
    }
}

#[test]
fn exit_codes_without_a_gateway() {
    let world = World::new();
    // A port where nobody listens.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nobody = format!("http://127.0.0.1:{port}");
    let token = ("GANTRY_TOKEN", "gto_any");
    check(
        &world,
        &[
            (&["nodes"], &[], 4),
            (&["nodes", "add", "box"], &[], 4),
            (&["nodes", "forget", "box"], &[], 4),
            (&["tokens"], &[], 4),
            (&["tokens", "add", "ci"], &[], 4),
            (&["transfer", "a:x", "b:x"], &[], 4),
            (&["logs"], &[], 4),
            (&["logs", "box"], &[], 4),
            (&["--gateway", &nobody, "nodes"], &[token], 4),
            (&["--gateway", &nobody, "logs"], &[token], 4),
            (&["--gateway", &nobody, "transfer", "a:x", "b:x"], &[token], 4),
            (&["--gateway", &nobody, "workspace", "ls"], &[token], 4),
            (&["--gateway", &nobody, "call", "Read"], &[token], 4),
            (&["--gateway", &nobody, "tools"], &[token], 4),
            // Before anything is asked: it was typed wrong, or something is missing here.
            (&["--gateway", &nobody, "nodes"], &[], 2),
            (&["--gateway", &nobody, "tokens"], &[], 2),
            (&["--gateway", &nobody, "transfer", "a:x", "b:x"], &[], 2),
            (&["--gateway", &nobody, "logs"], &[("GANTRY_TOKEN_FILE", "/nonexistent")], 2),
            (&["--gateway", &nobody, "nodes"], &[token, ("GANTRY_TLS_CA", "/nonexistent")], 2),
            (&["--gateway", "nonsense://", "nodes"], &[token], 2),
            (&["--gateway", "nonsense://", "transfer", "a:x", "b:x"], &[token], 2),
            (&["nodes", "nonsense"], &[], 2),
            (&["nodes", "add"], &[], 2),
            (&["tokens", "add", "ci", "--expires", "soon"], &[], 2),
            (&["logs", "--lines", "0"], &[], 2),
            (&["logs", "--lines", "5001"], &[], 2),
            (&["transfer", "a:x"], &[], 2),
            (&["workspace", "put", "/nonexistent", "x"], &[], 2),
            (&["up", "--listen", "127.0.0.1:0", "--workspace", "/nonexistent"], &[], 2),
            (&["up", "--listen", "127.0.0.1:0", "--public-url", "gantry.example"], &[], 2),
            // The workspace is there without a gateway.
            (&["workspace", "ls"], &[], 0),
            (&["workspace", "cat", "none"], &[], 1),
        ],
    );
}

#[test]
fn exit_codes_with_a_gateway() {
    let world = World::new();
    let up = Gateway::start(&world);
    up.add_node(&world, "box", &[]);
    let client = up.client_token(&world, "ci", &[]);
    let client = ("GANTRY_TOKEN", client.as_str());
    let stranger = ("GANTRY_TOKEN", "gtc_nobody");
    world.write("here.txt", "text");
    world.write("binary", "\u{0}");
    assert_eq!(world.run(&["workspace", "put", "here.txt", "dir/file"]).code, 0);
    let many_tags: Vec<String> = (0..200).map(|number| format!("--tag=t{number}")).collect();
    let many_tags: Vec<&str> =
        ["nodes", "add", "many"].into_iter().chain(many_tags.iter().map(String::as_str)).collect();
    let data = world.data();
    let closed = format!("local:{}", data.join("x").display());
    check(
        &world,
        &[
            // Unknown ids, ids in use, and invalid ids.
            (&["nodes", "show", "zz"], &[], 2),
            (&["nodes", "forget", "zz"], &[], 2),
            (&["nodes", "revoke", "zz"], &[], 2),
            (&["nodes", "renew", "zz"], &[], 2),
            (&["nodes", "tag", "zz", "web"], &[], 2),
            (&["nodes", "rename", "zz", "yy"], &[], 2),
            (&["nodes", "rename", "box", "gsv"], &[], 2),
            (&["nodes", "rename", "box", "box"], &[], 2),
            (&["nodes", "add", "box"], &[], 2),
            (&["nodes", "add", "local"], &[], 2),
            (&["nodes", "add", "Not An Id"], &[], 2),
            (&["nodes", "add", ""], &[], 2),
            (&["nodes", "tag", "box", "not a tag"], &[], 2),
            (&["nodes", "forget", "local"], &[], 2),
            (&many_tags, &[], 2),
            (&["tokens", "add", "ci"], &[], 2),
            (&["tokens", "add", "not a name"], &[], 2),
            (&["tokens", "add", "long", "--expires", "99999999999d"], &[], 2),
            (&["tokens", "add", "past", "--expires", "0s"], &[], 2),
            (&["tokens", "add", "odd", "--tools", "["], &[], 2),
            (&["tokens", "revoke", "zz"], &[], 2),
            (&["nodes", "add", "new"], &[client], 3),
            (&["tokens"], &[client], 3),
            (&["tokens"], &[stranger], 3),
            (&["workspace", "ls"], &[stranger], 3),
            (&["workspace", "ls", "--agent", "nobody"], &[], 2),
            (&["workspace", "cat", "none"], &[], 1),
            (&["workspace", "cat", "../x"], &[], 1),
            (&["workspace", "cat", "dir"], &[], 2),
            (&["workspace", "put", "here.txt", "dir"], &[], 1),
            (&["workspace", "put", "here.txt", "dir/"], &[], 1),
            (&["workspace", "put", "none.txt", "x"], &[], 2),
            (&["workspace", "rm", "none"], &[], 1),
            (&["workspace", "rm", "dir"], &[], 1),
            (&["workspace", "edit", "none", "a", "b"], &[], 1),
            (&["workspace", "edit", "dir/file", "a", "a"], &[], 1),
            (&["workspace", "edit", "dir/file", "nowhere", "b"], &[], 1),
            (&["transfer", "nonsense", "gsv:x"], &[], 1),
            (&["transfer", "gsv:dir/file", "gsv:dir/file"], &[], 1),
            (&["transfer", "gsv:none", "gsv:x"], &[], 1),
            (&["transfer", "gsv:none", "local:x"], &[], 1),
            (&["transfer", "zz:x", "gsv:x"], &[], 1),
            (&["transfer", "gsv:dir/file", &closed], &[], 3),
            (&["transfer", "box:x", "gsv:x"], &[], 4),
            // It was never connected.
            (&["call", "box__Read", "{\"path\": \"x\"}"], &[], 4),
            (&["logs"], &[], 0),
            (&["logs", "zz"], &[], 1),
            (&["logs", "local"], &[], 0),
            (&["logs", "box"], &[], 4),
            (&["tools", "Raed"], &[], 2),
            (&["tools", "--agent", "nobody"], &[], 2),
            (&["nodes", "forget", "box"], &[], 0),
            (&["nodes", "forget", "box"], &[], 2),
        ],
    );
    assert_eq!(up.get("/health").status, 200);
}

#[test]
fn usage_line_omits_environment_variables() {
    let world = World::new();
    let variables = [("GANTRY_GATEWAY", "http://127.0.0.1:1"), ("GANTRY_CONFIG", "/no")];
    for args in [["secrets", "set", "A"].as_slice(), &["tokens", "add"], &["secrets", "set", "A", "--json"]] {
        let ran = world.run_with(args, &variables);
        let usage =
            ran.stderr.lines().find(|line| line.starts_with("Usage: gantry")).unwrap_or_default().to_owned();
        assert!(ran.code == 2 && !usage.is_empty(), "{args:?}: {}", ran.stderr);
        for option in ["--data-dir", "--config", "--gateway"] {
            assert!(!usage.contains(option), "{args:?}: {usage}");
        }
    }
}

#[test]
fn common_mistakes_are_reported_with_a_fix() {
    let world = World::new();
    let up = Gateway::start(&world);
    let status = world.run(&["audit", "--status", "nonsense"]);
    assert!(status.code == 2 && status.stderr.contains("approval_needed"), "{status:?}");
    up.client_token(&world, "ci", &[]);
    assert_eq!(world.run(&["tokens", "revoke", "ci"]).code, 0);
    let again = world.run(&["tokens", "revoke", "ci"]);
    assert!(again.code != 0 && again.stderr.contains("already revoked"), "{again:?}");
    let never = world.run(&["tokens", "revoke", "never"]);
    assert!(never.code != 0 && never.stderr.contains("unknown client token"), "{never:?}");
    // The audit log says what was wrong, and quotes no value.
    world.run(&["call", "Bash", r#"{"comand": "x", "timeoutt": 1}"#]);
    let log = world.run(&["audit", "--status", "invalid_input"]).stdout;
    assert!(
        log.contains("unknown field \"comand\"") && log.contains("required field \"command\" is missing"),
        "{log}"
    );
    let listen = up.address.to_string();
    let taken = World::new().run(&["up", "--listen", &listen]);
    assert!(taken.code == 1 && taken.stderr.contains("--listen 127.0.0.1:PORT"), "{taken:?}");
    let endpoint = world.run(&["transfer", "big.bin", "gsv:x"]);
    assert!(endpoint.stdout.contains("did you mean \\\"local:big.bin\\\""), "{endpoint:?}");
    let empty = world.run(&["chat", " "]);
    assert!(empty.stderr.contains("the message is empty"), "{empty:?}");
    let doctor = world.run(&["doctor"]).stdout;
    assert!(doctor.contains("no gantry.toml; defaults apply"), "{doctor}");
    assert_eq!(world.run(&["config"]).json(), world.run(&["config", "show"]).json());
}
