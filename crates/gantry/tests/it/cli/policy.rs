//! `gantry policy`: rules are checked, decisions explained, and the audit log replayed.

use gantry_testkit::World;
use serde_json::{Value, json};

const NO_PUSH: &str = "[[policy.rules]]\nname = \"no-push\"\ntool = \"Bash\"\ndecision = \"deny\"\nreason = \"history is shared\"\n\
    when = [{path = \"command\", contains = \"git push\"}]\n";

fn lines(world: &World) -> usize {
    world.run(&["audit", "--json"]).json().as_array().unwrap().len()
}

#[test]
fn check_lists_every_violation() {
    let world = World::new();
    world.configure(
        "[[policy.rules]]\ntool = \"*\"\ndecision = \"maybe\"\n\
         [[policy.rules]]\ntool = \"*\"\ndecision = \"deny\"\nwhen = [{path = \"x\", regex = \"(\"}]\n\
         [[policy.rules]]\ntool = \"*\"\ndecision = \"deny\"\nwhen = [{path = \"x\"}]\n",
    );
    let ran = world.run(&["policy", "check"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    for part in ["policy.rules.0", "policy.rules.1: regex", "policy.rules.2", "needs equals"] {
        assert!(ran.stderr.contains(part), "{part} not in {}", ran.stderr);
    }
    let listed = world.run(&["policy", "check", "--json"]);
    assert_eq!((listed.code, &listed.json()["valid"]), (2, &json!(false)));
    assert_eq!(listed.json()["violations"].as_array().unwrap().len(), 3, "{}", listed.stdout);
    let other = world.write("other.toml", NO_PUSH);
    let ran = world.run(&["policy", "check", other.to_str().unwrap()]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    assert!(ran.stdout.contains("valid: 1 rule in "), "{}", ran.stdout);
    assert_eq!(world.run(&["policy", "check", "missing.toml"]).code, 2);
}

#[test]
fn check_warns_of_rules_that_never_match() {
    let world = World::new();
    let rule = |fields: &str| format!("[[policy.rules]]\ndecision = \"deny\"\n{fields}\n");
    world.configure(
        &[
            rule("tool = \"laptop__Bash\""),
            rule("tool = \"Bsah\""),
            rule("tool = \"*\"\nprincipals = [\"agent\"]\nname = \"all-agents\""),
            rule("tool = \"Read\"\nprincipals = [\"agent\"]\nname = \"covered\""),
            rule("tool = \"Read\"\nname = \"open\""),
            rule("tool = \"Write\"\nagents = [\"nobody\"]"),
        ]
        .concat(),
    );
    let ran = world.run(&["policy", "check", "--json"]);
    let warnings: Vec<String> = serde_json::from_value(ran.json()["warnings"].clone()).unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(
        warnings,
        [
            "policy rule rule-2: \"Bsah\" matches no tool; did you mean \"Bash\"?",
            "policy rule covered never decides: all-agents is before it and matches all of its calls",
            "policy rule rule-6: unknown agent \"nobody\"",
        ]
    );
    let doctor = world.run(&["doctor"]);
    assert!(doctor.stdout.contains("all-agents is before it"), "doctor warns too: {}", doctor.stdout);
}

#[test]
fn explain_names_rule_reason_and_paths_and_runs_nothing() {
    let world = World::new();
    let first = "[[policy.rules]]\nname = \"first\"\ntool = \"Read\"\ndecision = \"deny\"\n";
    world.configure(&format!(
        "{first}{NO_PUSH}[agents.alone]\nautonomy = \"autonomous\"\n[agents.led]\nautonomy = \"guided\"\n"
    ));
    let explained = |args: &[&str]| -> Value {
        let ran = world.run(&[&["policy", "explain"], args, &["--json"]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.json()[0].clone()
    };
    let push = explained(&["Bash", r#"{"command": "git push"}"#]);
    assert_eq!(
        (&push["decision"], &push["rule"], &push["reason"], &push["tool"]),
        (&json!("deny"), &json!("no-push"), &json!("history is shared"), &json!("local__Bash")),
        "{push}"
    );
    assert_eq!(push["rules"][0]["reason"], "it is for other tools");
    assert_eq!(push["rules"][1]["matches"], true);
    let touch = explained(&["Bash", r#"{"command": "touch made"}"#]);
    assert_eq!((&touch["decision"], &touch["rule"]), (&json!("allow"), &json!("default")));
    assert_eq!(touch["rules"][1]["reason"], "its condition on `command` does not hold");
    let far = explained(&["laptop__Bash", r#"{"command": "git push"}"#]);
    assert_eq!((&far["tool"], &far["rule"]), (&json!("laptop__Bash"), &json!("no-push")), "{far}");

    let key = world.write(".ssh/id_rsa", "x");
    let read = json!({"path": ".ssh/id_rsa"}).to_string();
    for (args, decision, rule) in [
        (&["read"][..], "allow", "default"),
        (&["read", "--as", "client"], "allow", "default"),
        (&["read", "--as", "mcp"], "ask", "sensitive-paths"),
        (&["read", "--agent", "led"], "ask", "sensitive-paths"),
        (&["read", "--agent", "alone"], "deny", "sensitive-paths"),
    ] {
        let found = explained(&[&args[..1], &[&read], &args[1..]].concat());
        assert_eq!(
            (&found["decision"], &found["rule"]),
            (&json!(decision), &json!(rule)),
            "{args:?}: {found}"
        );
        assert_eq!(found["touches"][0]["path"], json!(key), "{found}");
        assert_eq!(found["touches"][0]["sensitive"], true);
    }
    let own = explained(&["read", &json!({"path": world.data().join("gantry.toml")}).to_string()]);
    assert_eq!((&own["rule"], &own["touches"][0]["closed"]), (&json!("closed-data-directory"), &json!(true)));

    let text = world.run(&["policy", "explain", "read", &read, "--agent", "alone"]);
    for part in ["read: deny", "sensitive-paths", "autonomous agent asks nobody", "(sensitive)", "checked"] {
        assert!(text.stdout.contains(part), "{part} not in {}", text.stdout);
    }
    assert_eq!(world.run(&["policy", "explain", "Bsah"]).code, 2);
    assert_eq!(world.run(&["policy", "explain", "Bash", r#"{"comand": "x"}"#]).code, 2);
    assert_eq!(world.run(&["policy", "explain", "read", &read, "--agent", "unknown"]).code, 2);
    assert!(!world.workspace().join("made").exists());
    assert_eq!(lines(&world), 0, "no audit line is written");
}

#[test]
fn audit_log_is_replayed_against_another_policy() {
    let world = World::new();
    world.configure("[[policy.rules]]\nname = \"no-exec\"\ntool = \"exec\"\ndecision = \"deny\"\n");
    for command in ["true", "git push", "git push --tags"] {
        world.run(&["call", "Bash", &json!({ "command": command }).to_string()]);
    }
    world.run(&["call", "Bash", &json!({"command": format!("true {}", "x".repeat(600))}).to_string()]);
    world.run(&["call", "exec", r#"{"command": "true"}"#]);
    world.run(&["call", "write", &json!({"path": "a", "data": "z".repeat(600)}).to_string()]);
    world.run(&["call", "raed"]);
    let before = lines(&world);

    let same = world.run(&["policy", "test", "--json"]).json();
    assert_eq!(
        (&same["calls"], &same["changed"], &same["unchanged"]),
        (&json!(6), &json!(0), &json!(6)),
        "{same}"
    );
    assert_eq!(same["now"], json!({"allow": 5, "ask": 0, "deny": 1}));

    let other = world.write("other.toml", NO_PUSH);
    let report = world.run(&["policy", "test", "--json", other.to_str().unwrap()]).json();
    assert_eq!(report["notJudged"]["hiddenInput"], 1, "the long command cannot be judged: {report}");
    assert_eq!(report["before"], json!({"allow": 4, "ask": 0, "deny": 1}), "{report}");
    assert_eq!(report["now"], json!({"allow": 3, "ask": 0, "deny": 2}), "{report}");
    let rows: Vec<_> = report["changes"].as_array().unwrap().iter().collect();
    assert_eq!(
        (&rows[0]["tool"], &rows[0]["now"], &rows[0]["ruleNow"], &rows[0]["calls"]),
        (&json!("local__Bash"), &json!("deny"), &json!("no-push"), &json!(2)),
        "{report}"
    );
    assert_eq!(
        (&rows[1]["tool"], &rows[1]["before"], &rows[1]["now"], &rows[1]["ruleBefore"]),
        (&json!("exec"), &json!("deny"), &json!("allow"), &json!("no-exec"))
    );
    let text = world.run(&["policy", "test", "--since", "1h", other.to_str().unwrap()]).stdout;
    for part in ["would be", "2 unchanged, 3 changed", "not judged: 1", "git push --tags"] {
        assert!(text.contains(part), "{part} not in {text}");
    }
    let none = world.run(&["policy", "test", "--since", "2100-01-01T00:00:00Z", "--json"]).json();
    assert_eq!(none["calls"], 0);
    assert_eq!(lines(&world), before, "no audit line is written");
}
