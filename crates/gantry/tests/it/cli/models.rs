//! `gantry models`, with scripted model servers.

use gantry_model::testing::{Failure, KEY, Script, ScriptedServer, Turn};
use gantry_testkit::{Gateway, Ran, World, eventually};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Ports that nobody listens on, so that what runs on this machine does not matter.
const NOBODY: [(&str, &str); 2] = [("OLLAMA_HOST", "127.0.0.1:1025"), ("LLAMA_ARG_PORT", "1025")];

fn run(world: &World, args: &[&str], variables: &[(&str, &str)]) -> Ran {
    let all: Vec<(&str, &str)> = NOBODY.iter().chain(variables).copied().collect();
    world.run_with(args, &all)
}

fn start(script: Script) -> (Runtime, ScriptedServer) {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(ScriptedServer::start(script));
    (runtime, server)
}

fn lab(server: &ScriptedServer, further: &str) -> World {
    let world = World::new();
    let url = server.base_url();
    world.configure(&format!("[models.providers.lab]\nbaseUrl = \"{url}\"\nkey = \"{KEY}\"\n{further}"));
    world
}

fn row<'a>(rows: &'a Value, name: &str) -> &'a Value {
    let found = rows.as_array().unwrap().iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not in {rows}"))
}

#[test]
fn missing_model_error_lists_three_ways_to_configure_one() {
    let world = World::new();
    for args in [&["models"][..], &["models", "test"], &["models", "set", "fast", "x"]] {
        let ran = run(&world, args, &[]);
        assert_ne!(ran.code, 0, "{ran:?}");
        for way in
            ["ANTHROPIC_API_KEY or OPENAI_API_KEY", "Ollama or llama.cpp", "models.providers.NAME.baseUrl"]
        {
            assert!(ran.stderr.contains(way), "{way} is not in {}", ran.stderr);
        }
    }
    assert_eq!(run(&world, &["models", "--json"], &[]).json(), json!([]));
    let elsewhere = run(&world, &["models", "--gateway", "http://127.0.0.1:1025"], &[]);
    assert!(elsewhere.code == 2 && elsewhere.stderr.contains("on the gateway's machine"), "{elsewhere:?}");
}

#[test]
fn environment_key_suffices_and_is_never_printed() {
    let world = World::new();
    let ran = run(&world, &["models", "--json"], &[("ANTHROPIC_API_KEY", "sk-ant-0123456789")]);
    let rows = ran.json();
    let opus = row(&rows, "anthropic/claude-opus-5-5");
    assert_eq!(
        (&opus["is"], &opus["price"]["input"], &opus["hasKey"]),
        (&json!(["deep"]), &json!(4.0), &json!(true))
    );
    assert_eq!(row(&rows, "anthropic/claude-haiku-5-5")["is"], json!(["fast"]));
    let reported = run(&world, &["models"], &[("ANTHROPIC_API_KEY", "sk-ant-0123456789")]);
    assert!(reported.stdout.contains("claude-sonnet-5-5  balanced"), "{}", reported.stdout);
    for ran in [ran, reported] {
        assert!(!format!("{ran:?}").contains("sk-ant-0123456789"));
    }
}

#[test]
fn server_models_are_listed_tested_and_set() {
    let script = Script {
        turns: vec![Turn::text("Yes."), Turn::text("Yes.")],
        models: vec!["qwen3:8b".into(), "qwen3:32b".into()],
        ..Script::default()
    };
    let (_runtime, server) = start(script);
    let world = lab(&server, "");
    let rows = run(&world, &["models", "--json"], &[]).json();
    assert_eq!(
        row(&rows, "lab/qwen3:8b")["is"],
        json!(["fast", "balanced", "deep"]),
        "the first one is all of them"
    );
    assert_eq!(row(&rows, "lab/qwen3:32b")["found"], json!(false));
    let ran = run(&world, &["models", "set", "opus", "qwen3:32b"], &[]);
    assert_eq!((ran.code, ran.stderr.trim()), (0, "The deep model is now lab/qwen3:32b."));
    let rows = run(&world, &["models", "--json"], &[]).json();
    assert_eq!(row(&rows, "lab/qwen3:32b")["is"], json!(["deep"]));
    let ran = run(&world, &["models", "test", "deep"], &[]);
    assert!(ran.code == 0 && ran.stdout.starts_with("ok lab/qwen3:32b  \"Yes.\""), "{ran:?}");
    let reported = run(&world, &["models", "test", "deep", "--json"], &[]).json();
    assert_eq!(
        (&reported[0]["ok"], &reported[0]["text"], &reported[0]["costUsd"]),
        (&json!(true), &json!("Yes."), &json!(0.0))
    );
    assert_eq!(server.violations(), Vec::<String>::new());
    for (args, part) in [
        (["models", "set", "deep", "qwen3:32"], "did you mean lab/qwen3:32b"),
        (["models", "set", "huge", "qwen3:8b"], "unknown tier"),
        (["models", "set", "deep", "fast"], "is a tier"),
    ] {
        let ran = run(&world, &args, &[]);
        assert!(ran.code == 2 && ran.stderr.contains(part), "{ran:?}");
    }
    assert!(run(&world, &["models", "test", "qwen"], &[]).stderr.contains("did you mean lab/qwen3"));
}

#[test]
fn failure_names_the_fix_and_hides_the_key() {
    let message = Some(format!("{KEY} is not a valid key"));
    let refused = Turn::fail(Failure::Status { status: 401, retry_after: None, message, location: None });
    let (_runtime, server) = start(Script { turns: vec![refused.clone(), refused], ..Script::default() });
    let world = lab(&server, "[models.limits]\nattempts = 1\n");
    let ran = run(&world, &["models", "test", "fast"], &[]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.starts_with("failed lab/scripted-1"), "{ran:?}");
    assert!(
        ran.stderr.contains("does not accept the key") && ran.stderr.contains("put a valid key"),
        "{ran:?}"
    );
    let shown = run(&world, &["config", "show"], &[]);
    for ran in [ran, run(&world, &["models", "test", "--json"], &[]), shown] {
        assert!(!format!("{ran:?}").contains(KEY), "{ran:?}");
    }
}

#[test]
fn stored_key_is_sent_to_its_host_only() {
    let (_runtime, server) = start(Script { turns: vec![Turn::text("Yes.")], ..Script::default() });
    let world = World::new();
    let url = server.base_url();
    world.configure(&format!(
        "[models.providers.lab]\nbaseUrl = \"{url}\"\nkey = \"secret:LAB\"\n[models.providers.lab.models.scripted-1]\n"
    ));
    let ran = run(&world, &["models", "test", "fast"], &[]);
    assert!(ran.stderr.contains("unknown secret LAB") && ran.code == 1, "{ran:?}");
    for (host, expected) in [("models.example.org", 1), ("127.0.0.1", 0)] {
        let stored = world.run_with_input(&["secrets", "set", "LAB", "--host", host], KEY);
        assert_eq!(stored.code, 0, "{stored:?}");
        let ran = run(&world, &["models", "test", "fast"], &[]);
        assert_eq!(ran.code, expected, "{ran:?}");
        assert!(
            expected == 0 || ran.stderr.contains("was stored for models.example.org, not for 127.0.0.1"),
            "{ran:?}"
        );
    }
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn ollama_is_detected_and_saved_when_chosen() {
    let script = Script { models: vec!["llama4".into()], ..Script::default() };
    let (_runtime, server) = start(script);
    let address = server.address().to_string();
    let here = [("OLLAMA_HOST", address.as_str())];
    let world = World::new();
    let rows = run(&world, &["models", "--json"], &here).json();
    let model = row(&rows, "ollama/llama4");
    assert_eq!(
        (&model["found"], &model["price"]["output"]),
        (&json!(true), &json!(0.0)),
        "one's own machine is free"
    );
    let ran = run(&world, &["models", "set", "fast", "ollama/llama4"], &here);
    assert_eq!(ran.code, 0, "{ran:?}");
    let text = std::fs::read_to_string(world.data().join("gantry.toml")).unwrap();
    assert!(text.contains(&address) && text.contains("fast = \"ollama/llama4\""), "{text}");
    // From now on it is configured, wherever Ollama says it is.
    let rows = run(&world, &["models", "--json"], &[]).json();
    assert_eq!(row(&rows, "ollama/llama4")["found"], json!(false));
}

#[test]
fn changed_model_applies_to_the_running_gateway() {
    let script = Script { models: vec!["fake-1".into()], ..Script::default() };
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(ScriptedServer::deciding(script, |_| Turn::text("here I am")));
    let world = World::new();
    world.configure("");
    let log = world.folder.path().join("gateway.log");
    let up = Gateway::start_with_env(&world, &log, &NOBODY);
    let none = run(&world, &["models"], &[]);
    assert!(none.code == 1 && !none.stderr.contains("`gantry models`"), "no advice to do it again: {none:?}");
    let failed = run(&world, &["chat", "hi"], &[]);
    assert!(failed.code != 0 && failed.stderr.contains("no model is configured"), "{failed:?}");
    for (key, value) in [
        ("models.providers.lab.baseUrl", server.base_url().to_string()),
        ("models.providers.lab.key", KEY.to_owned()),
    ] {
        let set = run(&world, &["config", "set", key, &value], &[]);
        assert!(set.code == 0 && set.stderr.contains("Set ") && !set.stderr.contains("Restart"), "{set:?}");
    }
    let set = run(&world, &["models", "set", "balanced", "lab/fake-1"], &[]);
    assert_eq!((set.code, set.stderr.as_str()), (0, "The balanced model is now lab/fake-1.\n"));
    let said = run(&world, &["chat", "hi"], &[]);
    assert_eq!((said.code, said.stdout.as_str()), (0, "here I am\n"), "{}", said.stderr);
    // The key that came later is masked as one that was there from the beginning.
    let reported =
        run(&world, &["call", "Bash", &json!({"command": format!("echo {KEY}")}).to_string()], &[]);
    assert!(reported.code == 0 && !reported.stdout.contains(KEY), "{reported:?}");
    assert_eq!(row(&run(&world, &["models", "--json"], &[]).json(), "lab/fake-1")["is"][1], "balanced");
    // A key that only this shell has is none of the gateway's.
    for args in [&["models"][..], &["models", "set", "deep", "openai/gpt-6-sol"]] {
        let other = run(&world, args, &[("OPENAI_API_KEY", "sk-0123456789abcdef")]);
        assert!(
            other.code == 0 && other.stderr.contains("the running gateway does not have openai/"),
            "{args:?}: {other:?}"
        );
    }
    // What needs a restart says so, where it is set, in the gateway's terminal and when asked.
    let set = run(&world, &["config", "set", "gateway.drainSeconds", "7"], &[]);
    assert!(set.stderr.contains("Restart the gateway to apply this change."), "{set:?}");
    eventually("the gateway says so", std::time::Duration::from_secs(30), || {
        std::fs::read_to_string(&log).unwrap().contains("gateway.drainSeconds). Restart the gateway")
    });
    let doctor = run(&world, &["doctor"], &[]).stdout;
    assert!(doctor.contains("has changed since the gateway started (gateway.drainSeconds)"), "{doctor}");
    assert!(doctor.contains("lab/fake-1, and"), "{doctor}");
    let unset = run(&world, &["config", "unset", "gateway.drainSeconds"], &[]);
    assert!(unset.code == 0 && unset.stderr.contains("its default applies"), "{unset:?}");
    assert_eq!(run(&world, &["config", "unset", "gateway.drainSeconds"], &[]).code, 2);
    assert!(!run(&world, &["doctor"], &[]).stdout.contains("since the gateway started"));
    drop(up);
    assert_eq!(server.violations(), [""; 0]);
}
