//! Secrets and API profiles from the command line, and requests that use them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use gantry_testkit::World;
use serde_json::{Value, json};

const VALUE: &str = "sk_live_value_0123456789";

/// Says every request's head back.
fn echo_site() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = seen.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let head = head.join("\n");
            record.lock().unwrap().push(head.clone());
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{head}",
                head.len()
            );
        }
    });
    (port, seen)
}

fn world() -> World {
    let world = World::new();
    world.configure("[web]\nallowedHosts = [\"127.0.0.1\"]\n");
    world
}

fn profile(port: u16) -> Value {
    json!({
        "id": "shop", "name": "Shop", "base_url": format!("http://127.0.0.1:{port}/v1"), "description": "Orders.",
        "auth": {"type": "bearer", "token": "secret:SHOP"}, "rate_limit": {"requests_per_day": 2},
        "endpoints": [{"method": "GET", "path": "/orders", "description": "All orders."}],
        "guidelines": ["Ask for pages."], "avoid": ["Asking for everything."],
    })
}

fn assert_nowhere(folder: &Path, value: &str) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_nowhere(&path, value);
        } else {
            let text = std::fs::read(&path).unwrap();
            assert!(!String::from_utf8_lossy(&text).contains(value), "{value} is in {}", path.display());
        }
    }
}

#[test]
fn secret_is_set_listed_used_removed_and_never_printed() {
    let world = world();
    let (port, seen) = echo_site();
    let set = world.run_with_input(
        &["secrets", "set", "SHOP", "--host", "127.0.0.1", "--host", "*.Shop.example"],
        &format!("{VALUE}\n"),
    );
    assert_eq!((set.code, set.stdout.as_str()), (0, ""), "{}", set.stderr);
    assert_eq!(set.stderr, "Stored SHOP for 127.0.0.1, *.shop.example.\n");
    let listed = world.run(&["secrets", "list", "--json"]).json();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["hosts"]),
        (&json!("SHOP"), &json!(["127.0.0.1", "*.shop.example"]))
    );
    let shown = world.run(&["secrets"]);
    assert!(shown.stdout.starts_with("SHOP  127.0.0.1, *.shop.example · stored 20"), "{}", shown.stdout);
    let input = json!({"url": format!("http://127.0.0.1:{port}/x"), "headers": {"Authorization": "Bearer secret:SHOP"}});
    let called = world.run(&["call", "http_request", &input.to_string()]);
    assert_eq!(called.code, 0, "{} {}", called.stdout, called.stderr);
    assert!(seen.lock().unwrap()[0].contains(&format!("authorization: Bearer {VALUE}")));
    assert!(called.stdout.contains("Bearer [masked]"), "{}", called.stdout);
    // Other tools do not show it either.
    let echoed = world.run(&["call", "bash", &json!({"command": format!("echo {VALUE}")}).to_string()]);
    assert_eq!(echoed.stdout, "[masked]\n");
    for ran in [&set, &shown, &called, &echoed] {
        assert!(!ran.stdout.contains(VALUE) && !ran.stderr.contains(VALUE), "{ran:?}");
    }
    assert_nowhere(&world.data(), VALUE);
    assert_eq!(world.run(&["secrets", "rm", "SHOP"]).code, 0);
    let gone = world.run(&["secrets", "rm", "SHOP"]);
    assert_eq!((gone.code, &gone.json()["error"]["code"]), (2, &json!("usage")));
    assert_eq!(world.run(&["secrets", "--json"]).json(), json!([]));
}

#[test]
fn invalid_secrets_and_wrong_master_key_are_reported() {
    let world = world();
    for (args, value, expected) in [
        (vec!["secrets", "set", "A"], VALUE, "--host"),
        (vec!["secrets", "set", "A", "--host", "https://x"], VALUE, "is not a valid host"),
        (vec!["secrets", "set", "A", "--host", "*.com"], VALUE, "is too broad"),
        (vec!["secrets", "set", "1A", "--host", "x.example"], VALUE, "cannot name a secret"),
        (vec!["secrets", "set", "A", "--host", "x.example"], "sh0rt", "shorter than 8"),
        (vec!["secrets", "set", "A", "--host", "x.example"], "", "shorter than 8"),
        (vec!["--gateway", "http://127.0.0.1:1", "secrets", "list"], "", "on the gateway's machine"),
    ] {
        let ran = world.run_with_input(&args, value);
        assert_eq!(ran.code, 2, "{args:?}: {ran:?}");
        assert!(ran.stdout.contains(expected), "{args:?}: {}", ran.stdout);
        assert!(value.is_empty() || !ran.stdout.contains(value), "{args:?}: {}", ran.stdout);
    }
    let master = [("GANTRY_MASTER_KEY", "0123456789012345678901234567890123456789")];
    let mut command = world.command(&["secrets", "set", "A", "--host", "x.example"]);
    let mut child = command.envs(master).stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(VALUE.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(world.run_with(&["secrets", "--json"], &master).json()[0]["name"], "A");
    let without = world.run(&["secrets"]);
    assert!(without.code == 1 && without.stderr.contains("set GANTRY_MASTER_KEY"), "{without:?}");
    let without = world.run(&["secrets", "--json"]);
    assert_eq!((without.code, &without.json()["error"]["code"]), (1, &json!("failed")), "{without:?}");
    assert!(
        without.json()["error"]["message"].as_str().unwrap().contains("set GANTRY_MASTER_KEY"),
        "{without:?}"
    );
    let doctor = world.run(&["doctor", "--json"]).json();
    let check =
        doctor["checks"].as_array().unwrap().iter().find(|check| check["check"] == "secrets").unwrap();
    assert_eq!(check["health"], "warning", "{check}");
    assert!(check["text"].as_str().unwrap().contains("web tools are disabled"), "{check}");
    let wrong =
        world.run_with(&["secrets"], &[("GANTRY_MASTER_KEY", "another-key-that-is-long-enough-to-be-one")]);
    assert!(
        wrong.code == 1 && wrong.stderr.contains("was not sealed with this GANTRY_MASTER_KEY"),
        "{wrong:?}"
    );
}

#[test]
fn profile_is_added_used_rate_limited_and_removed() {
    let world = world();
    let (port, seen) = echo_site();
    world.write("shop.json", &profile(port).to_string());
    let added = world.run(&["apis", "add", "shop.json"]);
    assert_eq!(added.code, 0, "{}", added.stderr);
    assert!(added.stderr.contains("gantry secrets set SHOP --host 127.0.0.1"), "{}", added.stderr);
    world.run_with_input(&["secrets", "set", "SHOP", "--host", "127.0.0.1"], VALUE);
    let again = world.run(&["apis", "add", "shop.json"]);
    assert!(again.code == 2 && again.stdout.contains("--replace"), "{again:?}");
    assert_eq!(world.run(&["apis", "add", "shop.json", "--replace"]).stderr.lines().count(), 1);
    let listed = world.run(&["apis"]);
    assert_eq!(listed.stdout, format!("shop  Shop · http://127.0.0.1:{port}/v1 · 2 a day\n"));
    assert_eq!(world.run(&["apis", "list", "--json"]).json()[0]["usable"], true);
    assert_eq!(world.run(&["apis", "show", "shop"]).json(), profile(port));
    let input = json!({"url": format!("http://127.0.0.1:{port}/v1/orders")}).to_string();
    // Each is a process of its own: the limit holds over all of them.
    for _ in 0..2 {
        let called = world.run(&["call", "http_request", &input]);
        assert!(called.code == 0 && !called.stdout.contains(VALUE), "{called:?}");
    }
    let limited = world.run(&["call", "http_request", &input]);
    assert!(limited.code == 1 && limited.stdout.contains("allows 2 requests a day"), "{limited:?}");
    assert!(seen.lock().unwrap().iter().all(|head| head.contains(VALUE)));
    assert_eq!(seen.lock().unwrap().len(), 2);
    let other = json!({"url": format!("http://127.0.0.1:{port}/api/other")}).to_string();
    let blocked = world.run(&["call", "http_request", &other]);
    assert!(blocked.code == 1 && blocked.stdout.contains("no API profile covers it"), "{blocked:?}");
    assert_eq!(world.run(&["apis", "rm", "shop"]).code, 0);
    assert_eq!(world.run(&["call", "http_request", &other]).code, 0);
    assert_nowhere(&world.data(), VALUE);
}

#[test]
fn invalid_profiles_are_reported_and_not_saved() {
    let world = world();
    world.write(
        "bad.json",
        r#"{"id": "x", "nmae": "X", "auth": {"type": "bearer", "token": "literal-token"}}"#,
    );
    world.write("torn.json", "{");
    for file in ["bad.json", "torn.json", "missing.json"] {
        let ran = world.run(&["apis", "add", file]);
        assert!(ran.code != 0 && !ran.stdout.contains("literal-token"), "{file}: {ran:?}");
    }
    assert!(world.run(&["apis", "add", "bad.json"]).stdout.contains("did you mean"));
    assert!(!world.data().join("apis").exists());
    std::fs::create_dir(world.data().join("apis")).unwrap();
    std::fs::write(world.data().join("apis/hand.json"), r#"{"id": "hand", "name": "Hand"}"#).unwrap();
    let listed = world.run(&["apis"]);
    assert!(listed.stdout.starts_with("hand  invalid\n"), "{}", listed.stdout);
    assert!(listed.stdout.contains("  - base_url: missing"), "{}", listed.stdout);
    assert_eq!(world.run(&["apis", "show", "hand"]).code, 2);
    assert_eq!(world.run(&["apis", "show", "hend"]).code, 2);
}

#[test]
fn openapi_description_becomes_a_profile() {
    let world = world();
    let openapi = json!({
        "openapi": "3.0.3", "info": {"title": "Shop API", "description": "Orders and more."},
        "servers": [{"url": "https://api.shop.example/v2"}],
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
        "paths": {"/orders": {"get": {"summary": "All orders"}}},
    });
    world.write("openapi.json", &openapi.to_string());
    let drafted = world.run(&["apis", "import", "openapi.json"]);
    assert_eq!(drafted.code, 1, "{drafted:?}");
    assert!(
        drafted.stderr.contains("- guidelines: missing") && drafted.stderr.contains("- avoid: missing"),
        "{drafted:?}"
    );
    assert_eq!(drafted.json()["endpoints"][0]["description"], "All orders");
    assert!(!world.data().join("apis").exists());
    let args = [
        "apis",
        "import",
        "openapi.json",
        "--id",
        "shop",
        "--guideline",
        "Ask for pages.",
        "--avoid",
        "Haste.",
    ];
    let saved = world.run(&args);
    assert_eq!(saved.code, 0, "{saved:?}");
    let shown = world.run(&["apis", "show", "shop"]).json();
    assert_eq!(shown["auth"], json!({"type": "bearer", "token": "secret:SHOP_TOKEN"}));
    assert_eq!(shown["base_url"], "https://api.shop.example/v2");
    world.write("other.json", "{\"a\": 1}");
    assert_eq!(world.run(&["apis", "import", "other.json"]).code, 2);
}

#[test]
fn idempotent_answer_stores_no_credential() {
    const WRITTEN_OUT: &str = "tok_written_out_by_the_caller";
    const LATER: &str = "stored_only_after_the_answer";
    let (port, seen) = echo_site();
    let world = world();
    let set = |name: &str, value: &str| {
        let ran = world.run_with_input(&["secrets", "set", name, "--host", "127.0.0.1"], value);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    };
    set("SHOP", VALUE);
    let up = gantry_testkit::Gateway::start(&world);
    let input = json!({
        "url": format!("http://127.0.0.1:{port}/"), "method": "POST", "form": {"key": "secret:SHOP"},
        "headers": {"Authorization": format!("Bearer {WRITTEN_OUT}"), "X-Api-Key": "secret:SHOP"},
    });
    let keyed = |tool: &str, input: &Value| up.call_with(tool, input, &[("Idempotency-Key", "k1")]);
    let first = keyed("http_request", &input);
    assert!(first.text().contains("authorization: Bearer [masked]"), "{}", first.text());
    assert!(first.text().contains("x-api-key: [masked]"), "{}", first.text());
    let again = keyed("http_request", &input);
    assert_eq!((again.header("idempotency-replayed"), again.text()), (Some("true"), first.text()));
    let heads = seen.lock().unwrap().join("\n");
    assert!(heads.contains(WRITTEN_OUT) && heads.contains(VALUE), "both were sent: {heads}");
    for value in [WRITTEN_OUT, VALUE] {
        assert_nowhere(&world.data(), value);
    }
    let echo = json!({"command": format!("echo {LATER}")});
    let keyed = || up.call_with("local__Bash", &echo, &[("Idempotency-Key", "k2")]);
    assert!(keyed().text().contains(LATER));
    set("LATER", LATER);
    let again = keyed();
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert!(!again.text().contains(LATER) && again.json()["output"] == "[masked]\n", "{}", again.text());
}
