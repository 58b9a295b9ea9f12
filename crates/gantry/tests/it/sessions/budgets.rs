//! Budgets: a call over budget is not made, and spending survives a restart.

use std::time::Duration;

use gantry_model::Usage;
use gantry_model::testing::{Failure, Heard, KEY, Script, ScriptedServer, Turn};
use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};

use super::{Model, NOBODY, call, post, results};

/// Each answer costs 40 cents; beforehand it may cost 50 and what the prompt takes, which is less than a cent.
const ANSWER_TOKENS: u64 = 400;
const PRICE: &str = "price = { input = 0.01, output = 1000.0 }\nmaxOutput = 500\ncontextWindow = 100000\n";

fn priced(turn: Turn) -> Turn {
    Turn { usage: Some(Usage { output_tokens: ANSWER_TOKENS, ..Usage::default() }), ..turn }
}

/// A model that calls a tool over and over.
fn tireless() -> Model {
    Model::deciding(|heard| priced(call("Read", json!({"path": format!("{}.txt", results(heard))}))))
}

fn talkative() -> Model {
    Model::deciding(|_| priced(Turn::text("hello")))
}

fn world(server: &ScriptedServer, budgets: &str) -> World {
    let world = World::new();
    world.configure(&format!(
        "{NOBODY}[models.budgets]\n{budgets}\n[models.providers.lab]\nbaseUrl = \"{}\"\nkey = \"{KEY}\"\n\
         [models.providers.lab.models.scripted-1]\n{PRICE}\
         [agents.main]\nautonomy = \"guided\"\n[agents.other]\nautonomy = \"guided\"\n",
        server.base_url()
    ));
    world
}

fn say(up: &Gateway, key: &str, id: &str) -> Value {
    post(up, key, &json!({"message": "go on", "id": id}), &[]).json()
}

fn asked(model: &Model) -> usize {
    model.server.requests().len()
}

fn stopped(reported: &Value, parts: &[&str]) {
    assert_eq!(reported["status"], "error", "{reported}");
    for part in parts {
        assert!(reported["error"].as_str().unwrap().contains(part), "{part} is not in {reported}");
    }
}

#[test]
fn run_stops_before_exceeding_its_budget() {
    let model = tireless();
    let world = world(&model.server, "run = 1.0");
    let up = Gateway::start(&world);
    // 0 + 0.5, 0.4 + 0.5, and not 0.8 + 0.5.
    stopped(&say(&up, "main", "m"), &["the budget of this run is $1.00", "$0.80 is spent"]);
    assert_eq!(asked(&model), 2);
    // Another run has a budget of its own, also one that its sender calls the same in another session.
    stopped(&say(&up, "main", "n"), &["the budget of this run"]);
    stopped(&say(&up, "agent:main:side", "m"), &["the budget of this run"]);
    assert_eq!(asked(&model), 6);
    model.check();
}

/// The message as the receiving agent reads it: the sender comes first.
fn is_sent(heard: &Heard) -> bool {
    heard.body["messages"].to_string().contains("[message from agent:main:main]")
}

fn recorded(up: &Gateway, key: &str) -> String {
    up.get(&format!("/v1/sessions/{key}/events")).json().to_string()
}

#[test]
fn run_started_by_a_message_is_charged_to_the_sending_run() {
    for (tool, input) in [
        (
            "gsv__SessionSend",
            json!({"sessionKey": "agent:other:main", "message": "hello", "waitSeconds": 20}),
        ),
        ("tool__agent_send", json!({"agentId": "main", "targetAgentId": "other", "message": "hello"})),
    ] {
        let model = Model::deciding(move |heard| match (is_sent(heard), results(heard)) {
            (true, number) => priced(call("Read", json!({"path": format!("{number}.txt")}))),
            (false, 0) => priced(call(tool, input.clone())),
            (false, _) => priced(Turn { delay_ms: 1_500, ..Turn::text("done") }),
        });
        let world = world(&model.server, "run = 1.9");
        let up = Gateway::start(&world);
        let reported = say(&up, "main", "m");
        eventually("the other run is over", Duration::from_secs(30), || {
            recorded(&up, "agent:other:main").contains("the budget of this run is $1.90")
        });
        // 0, 0.4, 0.8, 1.2 and 0.5, and not 1.6 and 0.5, whichever of the two asks.
        assert_eq!(asked(&model), 4, "{tool}: {reported}");
        // Who writes by himself pays by himself.
        stopped(&say(&up, "agent:other:main", "n"), &["the budget of this run"]);
        assert_eq!(asked(&model), 8, "{tool}");
        model.check();
    }
}

#[test]
fn killed_gateway_keeps_charging_the_same_run() {
    let model = Model::deciding(|heard| match (is_sent(heard), results(heard)) {
        (true, number) => {
            Turn { delay_ms: 400, ..priced(call("Read", json!({"path": format!("{number}.txt")}))) }
        }
        (false, 0) => {
            let input = json!({"agentId": "main", "targetAgentId": "other", "message": "hello"});
            priced(call("tool__agent_send", input))
        }
        (false, _) => priced(Turn::text("done")),
    });
    let world = world(&model.server, "run = 2.4");
    let up = Gateway::start(&world);
    assert_eq!(say(&up, "main", "m")["status"], "final");
    eventually("the other one is at work", Duration::from_secs(20), || asked(&model) >= 4);
    up.kill();
    let up = Gateway::start(&world);
    eventually("the other run is over", Duration::from_secs(30), || {
        recorded(&up, "agent:other:main").contains("the budget of this run is $2.40")
    });
    // Five fit; one more was under way when the gateway ended, and nobody knows what it cost.
    assert!((5..=6).contains(&asked(&model)), "{}", asked(&model));
    model.check();
}

#[test]
fn child_spending_counts_for_agent_and_day() {
    for (budget, part) in [
        ("agent = 1.0", "the budget of this agent for today is $1.00"),
        ("day = 1.0", "the budget of today is $1.00"),
    ] {
        for (tool, input) in [
            ("spawn_agent", json!({"agents": [{"name": "one", "task": "a child's task"}]})),
            ("tool__agent_spawn", json!({"template": "other", "message": "a child's task"})),
        ] {
            let model = Model::deciding(move |heard| {
                let is_child = heard.body["messages"].to_string().contains("a child's task\"}");
                let is_child = is_child && results(heard) == 0;
                priced(if is_child { Turn::text("done") } else { call(tool, input.clone()) })
            });
            let world = world(&model.server, budget);
            let up = Gateway::start(&world);
            stopped(&say(&up, "main", "m"), &[part, "$0.80 is spent"]);
            assert_eq!(asked(&model), 2, "{budget} {tool}");
            model.check();
        }
    }
}

#[test]
fn agent_over_budget_stops_and_others_continue() {
    let model = talkative();
    let world = world(&model.server, "agent = 1.0");
    let up = Gateway::start(&world);
    for (number, key) in ["main", "agent:main:side"].into_iter().enumerate() {
        assert_eq!(say(&up, key, &number.to_string())["status"], "final");
    }
    stopped(&say(&up, "main", "2"), &["the budget of this agent for today is $1.00"]);
    assert_eq!(asked(&model), 2);
    assert_eq!(say(&up, "agent:other:main", "3")["status"], "final");
    assert_eq!(asked(&model), 3);
    model.check();
}

#[test]
fn daily_budget_covers_all_agents_and_restarts() {
    let model = talkative();
    let world = world(&model.server, "day = 1.0");
    let up = Gateway::start(&world);
    assert_eq!(say(&up, "main", "1")["status"], "final");
    assert_eq!(say(&up, "agent:other:main", "2")["status"], "final");
    let reported = ["the budget of today is $1.00", "$0.80 is spent"];
    stopped(&say(&up, "main", "3"), &reported);
    up.kill();
    let up = Gateway::start(&world);
    stopped(&say(&up, "main", "4"), &reported);
    stopped(&say(&up, "agent:other:side", "5"), &reported);
    assert_eq!(asked(&model), 2);
    model.check();
}

#[test]
fn concurrent_calls_do_not_exceed_a_budget() {
    let model = Model::deciding(|_| Turn { delay_ms: 1_500, ..priced(Turn::text("hello")) });
    let world = world(&model.server, "day = 1.2");
    let up = Gateway::start(&world);
    // Each of them fits by itself, two fit together, four do not.
    let reported: Vec<Value> = std::thread::scope(|scope| {
        let up = &up;
        let talking =
            (0..4).map(|number| scope.spawn(move || say(up, &format!("agent:main:s{number}"), "m")));
        let talking: Vec<_> = talking.collect();
        talking.into_iter().map(|talking| talking.join().unwrap()).collect()
    });
    let answered = reported.iter().filter(|reported| reported["status"] == "final").count();
    assert_eq!((answered, asked(&model)), (2, 2), "{reported:?}");
    for reported in reported.iter().filter(|reported| reported["status"] != "final") {
        stopped(reported, &["the budget of today is $1.20"]);
    }
    model.check();
}

#[test]
fn fallback_model_is_not_called_over_budget() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let busy = Turn::fail(Failure::Status { status: 529, retry_after: None, message: None, location: None });
    let (first, second) = runtime.block_on(async {
        let first = Script { turns: vec![busy], repeat: true, ..Script::default() };
        let second =
            Script { turns: vec![Turn::text("from the other one")], repeat: true, ..Script::default() };
        (ScriptedServer::start(first).await, ScriptedServer::start(second).await)
    });
    for (day, status, requests) in [("1.0", "error", 0), ("100.0", "final", 1)] {
        let world = World::new();
        world.configure(&format!(
            "[models]\nfallback = \"dear/scripted-1\"\n[models.limits]\nattempts = 1\n[models.budgets]\nday = {day}\n\
             [models.providers.lab]\nbaseUrl = \"{}\"\nkey = \"{KEY}\"\n[models.providers.lab.models.scripted-1]\n{PRICE}\
             [models.providers.dear]\nbaseUrl = \"{}\"\nkey = \"{KEY}\"\n[models.providers.dear.models.scripted-1]\n\
             price = {{ input = 1.0, output = 20000.0 }}\nmaxOutput = 500\ncontextWindow = 100000\n\
             [agents.main]\nmodel = \"lab/scripted-1\"\n",
            first.base_url(),
            second.base_url()
        ));
        let up = Gateway::start(&world);
        let reported = say(&up, "main", "m");
        assert_eq!(reported["status"], status, "{reported}");
        assert_eq!(second.requests().len(), requests, "{reported}");
    }
}
