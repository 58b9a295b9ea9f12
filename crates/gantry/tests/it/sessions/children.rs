//! Agents that begin and message agents, in a real gateway: what children may do, how they end, and what becomes of them
//! when the gateway does.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gantry_model::Usage;
use gantry_model::testing::{Failure, Heard, Say, Turn};
use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};

use super::{Model, call, post, results};

mod approvals;
mod inbox;
mod restarts;

const GUIDED: &str = "autonomy = \"guided\"";

/// What the conversation began with.
pub(super) fn task(heard: &Heard) -> String {
    let messages = heard.body["messages"].as_array().unwrap();
    let first = messages.iter().find(|message| message["role"] == "user").unwrap();
    first["content"].as_str().unwrap().to_owned()
}

pub(super) fn spawn(specs: Value) -> Turn {
    call("spawn_agent", json!({ "agents": specs }))
}

/// What a parent says in the end: the result it got.
pub(super) fn reported(heard: &Heard) -> Turn {
    Turn::text(heard.last_text())
}

fn slowly(text: &str, delay_ms: u64) -> Turn {
    Turn { delay_ms, ..Turn::text(text) }
}

pub(super) fn reply(up: &Gateway, message: &str) -> String {
    let reported = post(up, "main", &json!({"message": message}), &[]).json();
    assert_eq!(reported["status"], "final", "{reported}");
    reported["reply"].as_str().unwrap().to_owned()
}

/// The sessions that others began.
pub(super) fn children(up: &Gateway) -> Vec<Value> {
    let listed = up.get("/v1/sessions?limit=1000").json();
    let sessions = listed["sessions"].as_array().unwrap().iter();
    sessions.filter(|session| session["parent"].is_string()).cloned().collect()
}

pub(super) fn history(up: &Gateway, key: &str) -> Vec<Value> {
    let history = up.get(&format!("/v1/sessions/{key}/events?limit=1000")).json();
    history["events"].as_array().unwrap().clone()
}

pub(super) fn more_config(world: &World, more: &str) {
    let config = std::fs::read_to_string(world.data().join("gantry.toml")).unwrap();
    world.configure(&format!("{config}{more}"));
}

#[test]
fn parallel_children_survive_the_failure_of_one() {
    let began = Arc::new(Mutex::new(Vec::new()));
    let model = Model::deciding({
        let began = began.clone();
        move |heard| match task(heard).as_str() {
            "go" if results(heard) == 0 => spawn(json!([
                {"name": "a", "task": "say alpha", "context": "letters"},
                {"name": "b", "task": "break"},
                {"name": "c", "task": "say gamma"},
                {"name": "d", "task": "x", "role": "reseacher"},
                {"name": "e", "task": "x", "tools": ["Raed"]},
                {"name": "f", "task": "x", "model": "lab/scripted-2"},
            ])),
            "go" => reported(heard),
            "break" => {
                let message = Some("no such thing".to_owned());
                let fail = Failure::Status { status: 400, retry_after: None, message, location: None };
                Turn { fail: Some(fail), ..Turn::default() }
            }
            task => {
                began.lock().unwrap().push(Instant::now());
                if task.contains("gamma") {
                    return slowly("gamma", 1_000);
                }
                assert_eq!(task, "<context>\nletters\n</context>\n\nsay alpha");
                slowly("alpha", 1_000)
            }
        }
    });
    let world = model.world(GUIDED);
    let up = Gateway::start(&world);
    let reply = reply(&up, "go");
    assert!(reply.contains("## a\nalpha\n\n## b\nfailed: ") && reply.contains("no such thing"), "{reply}");
    assert!(reply.contains("## c\ngamma"), "{reply}");
    assert!(reply.contains("unknown role \"reseacher\"; did you mean \"researcher\"?"), "{reply}");
    assert!(reply.contains("unknown tool \"Raed\"") && reply.contains("Read"), "{reply}");
    assert!(reply.contains("## f\nfailed: ") && reply.contains("scripted-1"), "{reply}");
    let began = began.lock().unwrap();
    assert!(began.len() == 2 && began[1].duration_since(began[0]) < Duration::from_millis(900), "{began:?}");
    let children = children(&up);
    let mut labels: Vec<&str> = children.iter().map(|child| child["label"].as_str().unwrap()).collect();
    labels.sort_unstable();
    assert_eq!(labels, ["a", "b", "c"]);
    assert!(children.iter().all(|child| child["parent"] == "agent:main:main"), "{children:?}");
    let listed = world.run(&["sessions", "list"]).stdout;
    assert_eq!(listed.matches("child of agent:main:main").count(), 3, "{listed}");
    model.check();
}

#[test]
fn error_lists_every_cause_when_all_children_fail() {
    let model = Model::deciding(|heard| match (task(heard).as_str(), results(heard)) {
        ("go", 0) => spawn(json!([
            {"name": "a", "task": "loop", "max_turns": 2},
            {"name": "b", "task": "x", "role": "nobody"},
        ])),
        ("go", _) => reported(heard),
        (_, done) => call("Glob", json!({"pattern": format!("*{done}")})),
    });
    let world = model.world(GUIDED);
    let up = Gateway::start(&world);
    let reply = reply(&up, "go");
    assert!(reply.contains("no agent succeeded\n- a: the run reached its limit of 2 requests"), "{reply}");
    assert!(reply.contains("- b: unknown role \"nobody\"; known roles: collector, creator"), "{reply}");
    let ended = history(&up, "main").into_iter().find(|event| event["kind"] == "call_ended").unwrap();
    assert_eq!(ended["data"]["result"]["is_error"], true, "{ended}");
    model.check();
}

#[test]
fn child_over_its_time_limit_is_stopped_with_its_processes() {
    let model = Model::deciding(|heard| match (task(heard).as_str(), results(heard)) {
        ("go", 0) => spawn(json!([{"name": "slow", "task": "wait"}])),
        ("wait", 0) => {
            call("Bash", json!({"command": "echo $$ > pid; sleep 300 & sleep 301; echo late > late"}))
        }
        _ => reported(heard),
    });
    let world = model.world(GUIDED);
    more_config(&world, "[session]\nchildSeconds = 2\n");
    let up = Gateway::start(&world);
    let began = Instant::now();
    let reply = reply(&up, "go");
    assert!(reply.contains("- slow: took longer than 2 seconds and was stopped"), "{reply}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let pid = std::fs::read_to_string(world.workspace().join("pid")).unwrap();
    eventually("the child's shell is gone", Duration::from_secs(10), || {
        !std::path::Path::new(&format!("/proc/{}", pid.trim())).exists()
    });
    let key = children(&up)[0]["sessionKey"].as_str().unwrap().to_owned();
    eventually("its run is over", Duration::from_secs(10), || {
        history(&up, &key).last().is_some_and(|last| last["kind"] == "run_ended")
    });
    assert!(!world.workspace().join("late").exists());
    model.check();
}

#[test]
fn stopping_a_parent_stops_its_children() {
    let model = Model::deciding(|heard| match (task(heard).as_str(), results(heard)) {
        ("go", 0) => call("tool__agent_spawn", json!({"template": "main", "message": "nest"})),
        ("nest", 0) => call("tool__agent_spawn", json!({"template": "main", "message": "wait"})),
        ("wait", 0) => call("Bash", json!({"command": "echo $$ > pid; sleep 300"})),
        _ => reported(heard),
    });
    let world = model.world(GUIDED);
    let up = Gateway::start(&world);
    let pid = world.workspace().join("pid");
    std::thread::scope(|scope| {
        let talking = scope.spawn(|| post(&up, "main", &json!({"message": "go"}), &[]).json());
        eventually("the grandchild runs", Duration::from_secs(20), || pid.exists());
        post(&up, "main", &json!({"message": "/stop"}), &[]);
        assert_eq!(talking.join().unwrap()["status"], "stopped");
    });
    let pid = std::fs::read_to_string(&pid).unwrap();
    eventually("the shell is gone", Duration::from_secs(10), || {
        !std::path::Path::new(&format!("/proc/{}", pid.trim())).exists()
    });
    eventually("nobody is at work", Duration::from_secs(10), || {
        children(&up).iter().all(|child| child["running"] == false)
    });
    assert_eq!(children(&up).len(), 2);
    model.check();
}

/// Tries each tool in turn, and says what came of them.
fn tries(heard: &Heard, tools: &[(&str, Value)]) -> Turn {
    match tools.get(results(heard)) {
        Some((name, input)) => call(name, input.clone()),
        None => {
            let results = heard.body["messages"].as_array().unwrap().iter();
            let results = results.filter(|message| message["role"] == "tool");
            let results: Vec<String> = results.map(|message| message["content"].to_string()).collect();
            Turn::text(results.join("\n"))
        }
    }
}

fn shown(heard: &Heard) -> Vec<String> {
    let tools = heard.body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn child_has_only_listed_tools_and_cannot_spawn() {
    let heard_tools = Arc::new(Mutex::new(Vec::<(String, Vec<String>, Value)>::new()));
    let model = Model::deciding({
        let heard_tools = heard_tools.clone();
        move |heard| {
            let task = task(heard);
            heard_tools.lock().unwrap().push((task.clone(), shown(heard), heard.body.clone()));
            let forbidden = [
                ("Bash", json!({"command": "touch made"})),
                ("exec", json!({"command": "touch made"})),
                ("bash", json!({"command": "touch made"})),
                ("tool__shell_exec", json!({"argv": ["touch", "made"]})),
                ("Write", json!({"path": "made", "content": "x"})),
                ("write_file", json!({"path": "/made", "content": "x"})),
                ("spawn_agent", json!({"agents": [{"name": "n", "task": "t"}]})),
                ("tool__agent_spawn", json!({"template": "main", "message": "x"})),
            ];
            match (task.as_str(), results(heard)) {
                ("go", 0) => spawn(json!([
                    {"name": "role", "task": "as researcher", "role": "researcher"},
                    {"name": "list", "task": "as listed", "role": "researcher", "tools": ["Read", "spawn_agent"]},
                    {"name": "own", "task": "as scribe", "role": "scribe", "max_tokens": 77},
                    {"name": "collects", "task": "as collector", "role": "collector"},
                ])),
                ("as researcher" | "as listed", _) => tries(heard, &forbidden),
                ("as scribe", _) => tries(heard, &[("Write", json!({"path": "scribed", "content": "x"}))]),
                ("as collector", _) => tries(heard, &[("Read", json!({"path": "a.txt"}))]),
                _ => reported(heard),
            }
        }
    });
    let world = model.world(GUIDED);
    more_config(
        &world,
        "[roles.scribe]\nprompt = \"You write.\"\nallowedTools = [\"Write\"]\neffort = \"low\"\n",
    );
    world.write("a.txt", "a\n");
    let up = Gateway::start(&world);
    let reply = reply(&up, "go");
    assert_eq!(reply.matches("unknown tool").count(), 8 + 8 + 1, "{reply}");
    assert!(!world.workspace().join("made").exists() && world.workspace().join("scribed").exists());
    let heard = heard_tools.lock().unwrap();
    let of = |name: &str| heard.iter().find(|(task, ..)| task == name).unwrap();
    assert!(of("go").1.contains(&"spawn_agent".to_owned()), "{:?}", of("go").1);
    let researcher = &of("as researcher").1;
    assert!(researcher.contains(&"Read".to_owned()), "{researcher:?}");
    for gone in ["Bash", "Write", "Edit", "Process", "spawn_agent", "gsv__WriteFile", "gsv__SessionSend"] {
        assert!(!researcher.contains(&gone.to_owned()), "{gone}: {researcher:?}");
    }
    assert_eq!(of("as listed").1, ["Read"]);
    assert_eq!(
        of("as collector").1,
        ["ask_user", "http_request", "memory_recall", "memory_store", "read_file"]
    );
    let (_, tools, body) = of("as scribe");
    assert_eq!(*tools, ["Write"]);
    let limit = body.get("max_completion_tokens").or(body.get("max_tokens")).unwrap();
    assert_eq!((limit, body["reasoning_effort"].as_str()), (&json!(77), Some("low")), "{body}");
    assert!(body["messages"][0].to_string().contains("You write."), "{body}");
    model.check();
}

#[test]
fn child_from_a_template_has_only_common_tools() {
    let model = Model::deciding(|heard| match (task(heard).as_str(), results(heard)) {
        ("go", 0) => {
            call("tool__agent_spawn", json!({"template": "helper", "parentId": "main", "message": "work"}))
        }
        ("other", 0) => {
            call("tool__agent_spawn", json!({"template": "helper", "parentId": "helper", "message": "work"}))
        }
        ("typo", 0) => call("tool__agent_spawn", json!({"template": "heper", "message": "work"})),
        ("work", _) => tries(
            heard,
            &[
                ("Glob", json!({"pattern": "*"})),
                ("Grep", json!({"pattern": "x"})),
                ("Read", json!({"path": "in.txt"})),
                ("Write", json!({"path": "made", "content": "x"})),
                ("exec", json!({"command": "touch made", "source_rc": false})),
            ],
        ),
        _ => reported(heard),
    });
    let world =
        model.world(&format!("{GUIDED}\ntools = [\"Glob\", \"Read\", \"exec\", \"tool::agent_spawn\"]"));
    let elsewhere = tempfile::tempdir().unwrap();
    more_config(
        &world,
        &format!(
            "[agents.helper]\nautonomy = \"autonomous\"\nworkspace = {:?}\nprompt = \"You help.\"\n\
             tools = [\"Grep\", \"Read\", \"Write\", \"exec\"]\n\
             [[policy.rules]]\ntool = \"exec\"\ndecision = \"deny\"\nagents = [\"helper\"]\nreason = \"not the helper\"\n",
            elsewhere.path()
        ),
    );
    world.write("in.txt", "here\n");
    let up = Gateway::start(&world);
    let reply = reply(&up, "go");
    let answer: Value = serde_json::from_str(&reply).unwrap_or_else(|err| panic!("{err}: {reply}"));
    assert_eq!(answer["depth"], 1, "{answer}");
    assert!(answer["agentId"].as_str().unwrap().starts_with("agent:main:child:"), "{answer}");
    let response = answer["response"].as_str().unwrap();
    // Of five, one is in both lists and allowed to both, and it works where the parent does.
    assert_eq!(response.matches("unknown tool").count(), 3, "{response}");
    assert!(response.contains("here") && response.contains("not the helper"), "{response}");
    let status = up.get(&format!("/v1/sessions/{}", answer["agentId"].as_str().unwrap())).json();
    assert_eq!(
        (&status["child"]["template"], &status["child"]["autonomy"]),
        (&json!("helper"), &json!("guided"))
    );
    for (message, expected) in [("other", "parentId is not yours"), ("typo", "did you mean \"helper\"?")] {
        world.run(&["sessions", "reset", "main"]);
        let reported = super::children::reply(&up, message).replace("\\\"", "\"");
        assert!(reported.contains(expected), "{reported}");
        assert_eq!(children(&up).len(), 1);
    }
    model.check();
}

#[test]
fn spawn_depth_is_5_and_concurrency_is_20() {
    let model = Model::deciding(|heard| {
        let task = task(heard);
        match (task.as_str(), results(heard)) {
            ("deep" | "deeper", 0) => {
                call("tool__agent_spawn", json!({"template": "main", "message": "deeper"}))
            }
            ("wide", 0) => {
                let many: Vec<Value> =
                    (0..20).map(|n| json!({"name": format!("n{n}"), "task": "sleep"})).collect();
                let one = json!({"template": "main", "message": "one more"});
                let say = vec![
                    Say::Call { name: "spawn_agent".into(), input: json!({"agents": many}) },
                    Say::Call { name: "tool__agent_spawn".into(), input: one },
                ];
                Turn { say, ..Turn::default() }
            }
            ("wide", _) => {
                let all: Vec<String> = heard.body["messages"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|message| message["content"].to_string())
                    .collect();
                Turn::text(all.join("\n"))
            }
            // All 20 must begin before the first ends, also on a busy machine.
            ("sleep" | "one more", _) => slowly("slept", 8_000),
            _ => reported(heard),
        }
    });
    let world = model.world(GUIDED);
    let up = Gateway::start(&world);
    let deepest = reply(&up, "deep");
    assert!(deepest.contains("child agents can be nested at most 5 deep"), "{deepest}");
    assert_eq!(children(&up).len(), 5);
    world.run(&["sessions", "reset", "main"]);
    let wide = reply(&up, "wide");
    assert_eq!(wide.matches("20 children are already running").count(), 1, "{wide}");
    assert_eq!(wide.matches("slept").count(), 20, "{wide}");
    // Those that have ended make room.
    world.run(&["sessions", "reset", "main"]);
    assert_eq!(reply(&up, "wide").matches("slept").count(), 20);
    model.check();
}

#[test]
fn child_spending_counts_for_the_parents_run() {
    let model = Model::deciding(|heard| match (task(heard).as_str(), results(heard)) {
        ("go", 0) => spawn(json!([{"name": "a", "task": "spend"}])),
        ("many", 0) => {
            let many: Vec<Value> =
                (0..8).map(|n| json!({"name": format!("n{n}"), "task": "spend once"})).collect();
            spawn(json!(many))
        }
        ("spend once", _) => {
            let usage = Some(Usage { output_tokens: 1_000, ..Usage::default() });
            Turn { usage, ..slowly("spent", 1_000) }
        }
        ("small", 0) => spawn(json!([{"name": "a", "task": "be brief", "max_budget_usd": 0.005}])),
        ("be brief", _) => Turn::text(format!("at most {}", heard.body["max_tokens"])),
        ("own", 0) => spawn(json!([{"name": "a", "task": "spend", "max_budget_usd": 0.02}])),
        ("spend", done) => {
            let usage = Some(Usage { output_tokens: 1_000, ..Usage::default() });
            Turn { usage, ..call("Glob", json!({"pattern": format!("*{done}")})) }
        }
        _ => reported(heard),
    });
    let world = model.world(GUIDED);
    let config = std::fs::read_to_string(world.data().join("gantry.toml")).unwrap();
    // A call costs a cent: a thousand tokens of answer at ten dollars a million, at most.
    let priced = config.replace(
        "contextWindow = 100000\n",
        "contextWindow = 100000\nmaxOutput = 1000\nprice = { input = 0.0, output = 10.0 }\n",
    );
    world.configure(&format!("{priced}[models.budgets]\nrun = 0.05\n"));
    let up = Gateway::start(&world);
    let own = post(&up, "main", &json!({"message": "own"}), &[]).json();
    assert!(own["reply"].as_str().unwrap_or_default().contains("the budget of this run is $0.02"), "{own}");
    // A budget that is too small for the longest answer makes the answer shorter.
    world.run(&["sessions", "reset", "main"]);
    let small = post(&up, "main", &json!({"message": "small"}), &[]).json();
    assert!(small["reply"].as_str().unwrap_or_default().contains("at most 500"), "{small}");
    // Side by side they do not pass together what each would keep.
    world.run(&["sessions", "reset", "main"]);
    post(&up, "main", &json!({"message": "many"}), &[]);
    let ended = history(&up, "main").into_iter().rfind(|event| event["kind"] == "call_ended").unwrap();
    let spent = ended.to_string().matches("\\nspent").count();
    assert!((1..=4).contains(&spent), "{spent} of 8 at a cent each, of five cents: {ended}");
    world.run(&["sessions", "reset", "main"]);
    let reported = post(&up, "main", &json!({"message": "go"}), &[]).json();
    // The child has used up the run's budget, so its parent cannot go on either.
    assert_eq!(reported["status"], "error", "{reported}");
    assert!(reported["error"].as_str().unwrap().contains("the budget of this run is $0.05"), "{reported}");
    let ended = history(&up, "main").into_iter().rfind(|event| event["kind"] == "call_ended").unwrap();
    assert!(ended.to_string().contains("- a: the budget of this run is $0.05"), "{ended}");
    model.check();
}

#[test]
fn isolated_child_cannot_read_its_parents_memories() {
    let model = Model::deciding(|heard| match (task(heard).as_str(), results(heard)) {
        ("go", 0) => {
            call("memory_store", json!({"namespace": "knowledge", "content": "the cat is called Tom"}))
        }
        ("go", 1) => spawn(json!([
            {"name": "knows", "task": "open"},
            {"name": "isolated", "task": "shut", "isolated_memory": true},
        ])),
        ("open" | "shut", 0) => call("memory_recall", json!({"namespace": "knowledge"})),
        ("shut", 1) => call("memory_store", json!({"namespace": "knowledge", "content": "a dog barks"})),
        ("shut", 2) => call("gsv__ReadFile", json!({"path": "USER.md"})),
        ("shut", 3) => call(
            "tool__agent_send",
            json!({"agentId": "main", "targetAgentId": "agent:main:other", "message": "what do you know?"}),
        ),
        ("open" | "shut", _) => {
            let prompt = heard.body["messages"][0].to_string();
            let reported: Vec<String> = heard.body["messages"]
                .as_array()
                .unwrap()
                .iter()
                .map(|said| said["content"].to_string())
                .collect();
            let knows = prompt.contains("likes tea");
            Turn::text(format!("user known: {knows}; {}", reported[2..].join(" ")))
        }
        ("again", 0) => call("memory_recall", json!({"namespace": "knowledge"})),
        _ => reported(heard),
    });
    let world = model.world(GUIDED);
    let up = Gateway::start(&world);
    up.call_with(
        "gsv__WriteFile",
        &json!({"path": "USER.md", "content": "likes tea"}),
        &[("Gantry-Agent", "main")],
    );
    let reported = reply(&up, "go");
    let (open, shut) = reported.split_once("## isolated").unwrap();
    assert!(open.contains("user known: true") && open.contains("called Tom"), "{reported}");
    assert!(
        shut.contains("user known: false") && shut.contains("Nothing is stored") && !shut.contains("Tom"),
        "{reported}"
    );
    assert_eq!(shut.matches("unknown tool").count(), 2, "neither objects nor other sessions: {reported}");
    world.run(&["sessions", "reset", "main"]);
    let after = reply(&up, "again");
    assert!(after.contains("Tom") && !after.contains("dog"), "{after}");
    model.check();
}
