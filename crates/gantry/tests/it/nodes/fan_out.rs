//! One call for several nodes, and the default node when none is named.

use gantry_testkit::{Fleet, SOON, eventually};
use serde_json::{Value, json};

fn nodes(answer: &Value) -> Vec<(String, bool)> {
    let results = answer["results"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let named = |one: &Value| (one["node"].as_str().unwrap().to_owned(), one["ok"].as_bool().unwrap());
    results.iter().map(named).collect()
}

fn named(names: &[(&str, bool)]) -> Vec<(String, bool)> {
    names.iter().map(|(name, ok)| ((*name).to_owned(), *ok)).collect()
}

#[test]
fn call_goes_to_all_named_or_the_only_node() {
    let fleet = Fleet::start();
    let mut machines = [fleet.add("box", &["web"]), fleet.add("cube", &["web", "db"]), fleet.add("den", &[])];
    for machine in &mut machines {
        machine.world.write("name", &machine.id);
        machine.start();
        fleet.wait_online(&machine.id);
    }
    fleet.world.write("name", "local");
    let read = |node: Value| fleet.call("Read", &json!({"path": "name", "node": node}));

    let all = read(json!("*"));
    assert_eq!(all.status, 200);
    assert_eq!(
        nodes(&all.json()),
        named(&[("box", true), ("cube", true), ("den", true), ("local", true)]),
        "{}",
        all.text()
    );
    for one in all.json()["results"].as_array().unwrap() {
        let said = one["result"]["content"].as_str().unwrap();
        assert_eq!(said, format!("1\t{}", one["node"].as_str().unwrap()), "each its own file");
    }
    assert_eq!(nodes(&read(json!("tag:web")).json()), named(&[("box", true), ("cube", true)]));
    assert_eq!(nodes(&read(json!("tag:db")).json()), named(&[("cube", true)]));
    assert_eq!(read(json!("den")).json()["content"], "1\tden");
    let bare = fleet.call("Read", &json!({"path": "name"}));
    assert_eq!((bare.status, &bare.json()["node"]), (200, &json!("local")), "{}", bare.text());
    assert_eq!(bare.json()["content"], "1\tlocal");
    for (unknown, hint) in [(json!("boxx"), "did you mean"), (json!("tag:none"), "tag"), (json!(7), "node")] {
        let refused = read(unknown);
        assert!(refused.status == 400 && refused.text().contains(hint), "{refused:?}");
    }
    // One machine fails, one is away: each says so for itself.
    std::fs::remove_file(machines[0].path("name")).unwrap();
    machines[1].kill();
    eventually("cube is away", SOON, || !fleet.is_online("cube"));
    let rest = read(json!("*")).json();
    assert_eq!(
        nodes(&rest),
        named(&[("box", false), ("cube", false), ("den", true), ("local", true)]),
        "{rest}"
    );
    assert!(rest["results"][0]["result"]["error"].is_string(), "{rest}");
    assert_eq!(rest["results"][1]["error"]["code"], "unavailable", "{rest}");
    let away = fleet.call("cube__Read", &json!({"path": "name"}));
    assert_eq!(away.status, 503, "{away:?}");
    assert!(away.text().contains("offline") && away.text().contains("last seen"), "{}", away.text());
    assert_eq!(fleet.node("cube")["online"], false, "a node that is away stays visible");

    let listed = fleet.run(&["tools", "--json"]).stdout;
    for name in ["\"box__Read\"", "\"den__Bash\"", "\"Read\""] {
        assert!(listed.contains(name), "{name} is not in {listed}");
    }
    let info = fleet.node("box");
    assert!(info["clientPlatform"].is_string() && info["firstSeen"].is_i64(), "{info}");
}

#[test]
fn bare_call_still_runs_locally_with_a_second_node() {
    let fleet = Fleet::start_with(|world| {
        world.configure("[agents.boxer]\nnode = \"box\"\n");
        None
    });
    fleet.world.write("a.txt", "here\n");
    let read = || fleet.run(&["call", "Read", r#"{"path": "a.txt"}"#]);
    let alone = read().json();
    assert_eq!((&alone["node"], &alone["content"]), (&json!("local"), &json!("1\there")), "{alone}");
    let machine = fleet.join("box");
    machine.world.write("a.txt", "there\n");
    let two = read();
    assert_eq!((two.code, two.json()), (0, alone), "{}", two.stderr);
    // Who works elsewhere says so once, in the configuration.
    let as_agent = ["call", "--agent", "boxer", "Read", r#"{"path": "a.txt"}"#];
    let ran = fleet.run(&as_agent);
    assert_eq!((ran.code, &ran.json()["node"]), (0, &json!("box")), "{ran:?}");
    assert_eq!(ran.json()["content"], "1\tthere");
    let one = fleet.run(&["call", "Read", r#"{"path": "a.txt", "node": "box"}"#]);
    assert_eq!((one.code, &one.json()["content"]), (0, &json!("1\tthere")), "{}", one.stderr);
}

#[test]
fn call_that_fails_on_every_node_fails() {
    let fleet = Fleet::start();
    let machine = fleet.join("box");
    let input = json!({"path": "none.txt", "node": "*"});
    let check = |answer: &Value| {
        assert_eq!(nodes(answer), named(&[("box", false), ("local", false)]), "{answer}");
        for one in answer["results"].as_array().unwrap() {
            assert!(one["result"]["error"].as_str().unwrap().contains("none.txt"), "{one}");
        }
    };
    let over_http = fleet.call("Read", &input);
    assert_eq!(over_http.status, 422, "{over_http:?}");
    check(&over_http.json());
    let over_cli = fleet.run(&["call", "Read", &input.to_string()]);
    assert_eq!(over_cli.code, 1, "{} {}", over_cli.stdout, over_cli.stderr);
    check(&over_cli.json());
    // One that can answer is enough for an answer.
    machine.world.write("none.txt", "found\n");
    assert_eq!(fleet.call("Read", &input).status, 200);
    assert_eq!(fleet.run(&["call", "Read", &input.to_string()]).code, 0);
}
