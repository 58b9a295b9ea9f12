//! Changes of the configuration count in the running gateway at once, whole or not at all.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use gantry_testkit::{Gateway, Random, SOON, World, eventually, scaled};
use serde_json::json;

/// Writes a file as the agent `main`. Returns the status.
fn write_as_agent(gateway: &Gateway, path: &str) -> u16 {
    let input = json!({"path": path, "content": "x"});
    gateway.call_with("local__Write", &input, &[("Gantry-Agent", "main")]).status
}

#[test]
fn changed_policy_counts_from_the_next_call() {
    let world = World::new();
    world.configure("[agents.main]\nautonomy = \"autonomous\"\n");
    let gateway = Gateway::start(&world);
    assert_eq!(write_as_agent(&gateway, "a.txt"), 200);
    let rules = r#"[{"tool": "Write", "decision": "deny"}]"#;
    let set = world.run(&["config", "set", "policy.rules", rules]);
    assert!(set.code == 0 && set.stderr.contains("The gateway has applied it."), "{set:?}");
    assert_eq!(write_as_agent(&gateway, "b.txt"), 403);
    // An edited file counts too.
    world.configure("[agents.main]\nautonomy = \"autonomous\"\n");
    eventually("the rule is gone", SOON, || write_as_agent(&gateway, "c.txt") == 200);
}

#[test]
fn new_agents_and_their_limits_count_at_once() {
    let world = World::new();
    let gateway = Gateway::start(&world);
    let read = |agent: &str, tool: &str| {
        gateway.call_with(tool, &json!({"path": "a.txt"}), &[("Gantry-Agent", agent)]).status
    };
    world.write("a.txt", "text\n");
    assert_eq!(read("reader", "local__Read"), 400, "the agent is unknown");
    let set = world.run(&["config", "set", "agents.reader.tools", r#"["local__Read"]"#]);
    assert_eq!(set.code, 0, "{set:?}");
    assert_eq!((read("reader", "local__Read"), read("reader", "read")), (200, 404));
    assert_eq!(world.run(&["config", "set", "agents.reader.tools", r#"["read"]"#]).code, 0);
    assert_eq!((read("reader", "local__Read"), read("reader", "read")), (404, 200));
    let listed = world.run(&["agents", "--json"]).stdout;
    assert!(listed.contains("reader"), "{listed}");
    assert_eq!(world.run(&["config", "unset", "agents.reader"]).code, 0);
    assert_eq!(read("reader", "read"), 400);
}

#[test]
fn shells_and_results_follow_their_settings() {
    let world = World::new();
    let gateway = Gateway::start(&world);
    let listed = |program: &str| {
        gateway.call("tool::shell_exec", &json!({"argv": [program, "--version"]})).status != 422
    };
    assert!(!listed("tee"), "not on the list of programs");
    assert_eq!(world.run(&["config", "set", "shell.allow", r#"["tee"]"#]).code, 0);
    assert!(listed("tee"));
    let level = || world.run(&["call", "gsv__ConfigGet", r#"{"path": "isolation.level"}"#]).stdout;
    assert!(!level().contains("scoped"));
    assert_eq!(world.run(&["config", "set", "isolation.level", "scoped"]).code, 0);
    assert!(level().contains("scoped"), "agents read the new configuration");
}

#[test]
fn sensitive_paths_reach_the_worker_processes() {
    let world = World::new();
    world.write("notes/plan.txt", "plan\n");
    let gateway = Gateway::start(&world);
    let path = world.workspace().join("notes/plan.txt");
    let read = || {
        let input = json!({"path": path});
        gateway.call_with("read_file", &input, &[("Gantry-Agent", "main")]).status
    };
    assert_eq!(read(), 200);
    let folder = json!([world.workspace().join("notes")]).to_string();
    assert_eq!(world.run(&["config", "set", "policy.sensitivePaths", &folder]).code, 0);
    assert_eq!(read(), 409, "a sensitive path is asked about");
}

#[test]
fn invalid_file_changes_nothing_and_says_where() {
    let world = World::new();
    let log = world.write("stderr", "");
    let gateway = Gateway::start_logged(&world, &log, &[]);
    let good =
        "[agents.main]\nautonomy = \"autonomous\"\n[[policy.rules]]\ntool = \"Write\"\ndecision = \"deny\"\n";
    world.configure(good);
    eventually("the rule", SOON, || write_as_agent(&gateway, "a.txt") == 403);
    // The second part is wrong, so the first one does not count either.
    world.configure("[agents.main]\nautonomy = \"autonomous\"\n[web]\nallowedHosts = [\"not a host\"]\n");
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    eventually("a warning", SOON, || said().contains("the previous configuration stays in effect"));
    assert!(said().contains("web.allowedHosts"), "{}", said());
    assert_eq!(write_as_agent(&gateway, "b.txt"), 403);
    world.configure(good);
}

/// Valid and invalid changes at random, while calls go on: no call fails, and what is in effect is always one of the valid
/// configurations as a whole.
#[test]
fn random_edits_under_load_are_applied_whole() {
    let mut random = Random::new();
    let edits = scaled(1_000, 50);
    let world = World::new();
    // Both halves change together: a file of version n denies the tool that version n + 1 allows.
    let version = |odd: bool| {
        let (denied, limit) = if odd { ("read", 50_000) } else { ("write", 60_000) };
        format!(
            "maxToolResultChars = {limit}\n[agents.main]\nautonomy = \"autonomous\"\n[[policy.rules]]\ntool = \"{denied}\"\ndecision = \"deny\"\n"
        )
    };
    world.configure(&version(false));
    world.write("a.txt", "text\n");
    let gateway = Gateway::start(&world);
    let (done, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut odd = false;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let answer = gateway.call("local__Read", &json!({"path": "a.txt"}));
                    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
                    calls.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        for _ in 0..edits {
            match random.below(4) {
                0 => world.configure("this is not TOML ["),
                1 => world.configure(&format!("{}\n[shell]\nsandbx = \"off\"\n", version(!odd))),
                2 => world.configure(&format!("{}\n[isolation]\nallowedHosts = [\"a b\"]\n", version(!odd))),
                _ => {
                    odd = !odd;
                    world.configure(&version(odd));
                    assert_eq!(reload(&world), 0);
                    let status = |tool: &str, input: serde_json::Value| {
                        gateway.call_with(tool, &input, &[("Gantry-Agent", "main")]).status
                    };
                    let read = status("read", json!({"path": "a.txt"}));
                    let write = status("write", json!({"path": "b.txt", "data": "x"}));
                    let expected = if odd { (403, 200) } else { (200, 403) };
                    assert_eq!((read, write), expected);
                    continue;
                }
            }
            assert_ne!(reload(&world), 0, "an invalid file is reported");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(calls.load(Ordering::Relaxed) > edits / 2);
    world.configure(&version(odd));
}

/// Asks the gateway to apply the file, as programs do.
fn reload(world: &World) -> i32 {
    world.run(&["config", "reload"]).code
}
