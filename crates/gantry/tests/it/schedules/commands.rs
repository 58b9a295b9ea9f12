//! `gantry cron` and `gantry outbox`, the routes, and who may use them.

use std::time::Duration;

use gantry_model::testing::Turn;
use gantry_testkit::{Gateway, eventually};
use serde_json::json;

use super::{PATIENCE, Sink};
use crate::sessions::Model;

#[test]
fn job_is_added_run_paused_and_removed_on_the_command_line() {
    let model = Model::deciding(|_| Turn::text("the report"));
    let world = super::world(&model, "");
    let up = Gateway::start(&world);
    let added = world.run(&[
        "cron",
        "add",
        "Report",
        "--cron",
        "0 9 * * 1-5",
        "--tz",
        "Europe/Berlin",
        "--task",
        "Report, please",
    ]);
    assert_eq!(added.code, 0, "{added:?}");
    assert!(added.stdout.contains("Europe/Berlin") && added.stdout.contains("Report, please"), "{added:?}");
    let jobs = world.run(&["cron", "list", "--json"]).json();
    let id = jobs["jobs"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(jobs["jobs"][0]["nextRuns"].as_array().unwrap().len(), 3);
    let next = jobs["jobs"][0]["state"]["nextRunAtMs"].clone();
    let run = world.run(&["cron", "run", &id]);
    assert!(run.code == 0 && run.stderr.contains("queued as run"), "{run:?}");
    eventually("the answer is delivered", PATIENCE, || {
        let history = world.run(&["cron", "history", &id, "--json"]).json();
        history["runs"][0]["status"] == "ok" && history["runs"][0]["delivery"] == "sent"
    });
    let history = world.run(&["cron", "history", &id]);
    assert!(history.stdout.contains("ok") && history.stdout.contains("the report"), "{history:?}");
    let shown = world.run(&["sessions", "show", "main"]);
    assert!(shown.stdout.contains("notice from cron:") && shown.stdout.contains("the report"), "{shown:?}");
    // A manual run does not move the schedule, and the beginning of an id is enough.
    let job = world.run(&["cron", "show", &id[..20], "--json"]).json();
    assert_eq!(job["state"]["nextRunAtMs"], next);
    for (command, word) in [("pause", "paused"), ("resume", "next")] {
        let ran = world.run(&["cron", command, &id]);
        assert!(ran.code == 0 && format!("{}{}", ran.stdout, ran.stderr).contains(word), "{ran:?}");
    }
    let edited = world.run(&["cron", "edit", &id, "--every", "2h", "--json"]).json();
    assert_eq!(edited["schedule"]["everyMs"], 7_200_000);
    assert_eq!(edited["spec"]["message"], "Report, please");
    let status = world.run(&["cron", "status", "--json"]).json();
    assert_eq!(
        (&status["count"], &status["maxJobs"], &status["maxConcurrentRuns"]),
        (&json!(1), &json!(200), &json!(4))
    );
    let wrong = world.run(&["cron", "add", "x", "--at", "yesterday", "--task", "y"]);
    assert!(wrong.code != 0 && wrong.stderr.contains("yesterday"), "{wrong:?}");
    let removed = world.run(&["cron", "remove", &id]);
    assert_eq!(removed.code, 0, "{removed:?}");
    let gone = world.run(&["cron", "show", &id]);
    assert!(gone.code != 0 && gone.stderr.contains("unknown job"), "{gone:?}");
    drop(up);
    model.check();
}

#[test]
fn due_job_runs_by_itself_and_its_answer_reaches_the_webhook_once() {
    let sink = Sink::start();
    let model = Model::deciding(|_| Turn::text("tea"));
    let world = super::world(&model, &format!("[flow.webhooks.kitchen]\nurl = \"{}\"", sink.url));
    let up = Gateway::start(&world);
    let added = world.run(&[
        "cron",
        "add",
        "Tea",
        "--at",
        "in 1 second",
        "--task",
        "make tea",
        "--channel",
        "kitchen",
        "--json",
    ]);
    assert_eq!(added.code, 0, "{added:?}");
    eventually("the webhook is called", PATIENCE, || sink.seen().len() == 1);
    std::thread::sleep(Duration::from_millis(500));
    assert!(sink.seen().values().all(|times| *times == 1), "{:?}", sink.seen());
    let listed = world.run(&["outbox", "--json"]).json();
    assert_eq!(listed["messages"][0]["state"], "sent", "{listed}");
    let id = listed["messages"][0]["id"].as_str().unwrap();
    let shown = world.run(&["outbox", "show", id]);
    assert!(shown.stdout.contains("kitchen") && shown.stdout.contains("tea"), "{shown:?}");
    let again = world.run(&["outbox", "resend", id]);
    assert!(
        again.code != 0 && again.stderr.contains("is sent"),
        "a sent message is not sent again: {again:?}"
    );
    drop(up);
}

#[test]
fn message_that_did_not_arrive_is_resent_by_a_person() {
    let model = Model::deciding(|_| Turn::text("tea"));
    // Nothing listens on this port any more.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let world = super::world(&model, &format!("[flow.webhooks.kitchen]\nurl = \"http://127.0.0.1:{port}/\""));
    let up = Gateway::start(&world);
    world.run(&["cron", "add", "Tea", "--at", "in 1 second", "--task", "make tea", "--channel", "kitchen"]);
    let first = || world.run(&["outbox", "list", "--json"]).json()["messages"][0].clone();
    eventually("the first attempt failed", PATIENCE, || first()["error"].is_string());
    let message = first();
    assert_eq!(message["state"], "queued", "{message}");
    let id = message["id"].as_str().unwrap();
    assert_eq!(world.run(&["outbox", "drop", id]).code, 0);
    eventually("the run knows", PATIENCE, || {
        let run = up.get("/v1/cron/runs").json()["runs"][0].clone();
        run["delivery"] == "failed" && run["status"] == "error"
    });
    let resent = up.ask("POST", &format!("/v1/outbox/{id}/resend"), &[], b"");
    assert_eq!(resent.status, 200, "{resent:?}");
    assert_eq!(world.run(&["outbox", "drop", id]).code, 0);
    assert_eq!(world.run(&["outbox", "list", "--state", "nope"]).code, 2);
    drop(up);
}

#[test]
fn tokens_reach_only_the_jobs_of_their_agents() {
    let model = Model::deciding(|_| Turn::text("done"));
    let world = super::world(&model, "[agents.other]\nautonomy = \"guided\"");
    let up = Gateway::start(&world);
    let job = |agent: &str| {
        json!({"name": agent, "agentId": agent, "schedule": {"kind": "every", "everyHours": 1}, "spec": {"mode": "task", "message": "x"}})
            .to_string()
    };
    let bearer = |token: &str| format!("Bearer {token}");
    let own = bearer(&up.client_token(&world, "own", &["--agents", "main"]));
    let reads = bearer(&up.client_token(&world, "reads", &["--agents", "main", "--read-only"]));
    let tools = bearer(&up.client_token(&world, "tools", &["--agents", "main", "--tools", "Read"]));
    let ask = |token: &str, method: &str, path: &str, body: &str| {
        up.ask(method, path, &[("Authorization", token)], body.as_bytes())
    };
    let others = up.ask("POST", "/v1/cron/jobs", &[], job("other").as_bytes()).json();
    let others = others["id"].as_str().unwrap();
    let added = ask(&own, "POST", "/v1/cron/jobs", &job("main"));
    assert_eq!(added.status, 200, "{added:?}");
    let id = added.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(ask(&own, "POST", "/v1/cron/jobs", &job("other")).status, 403);
    assert_eq!(ask(&own, "GET", "/v1/cron/jobs", "").json()["count"], 1, "other agents' jobs are not listed");
    assert_eq!(ask(&own, "GET", "/v1/cron/jobs?agentId=other", "").status, 403);
    assert_ne!(ask(&own, "GET", &format!("/v1/cron/jobs/{others}"), "").status, 200);
    assert_eq!(
        ask(&own, "POST", &format!("/v1/cron/jobs/{id}/confirm"), "").status,
        403,
        "only the operator"
    );
    for token in [&reads, &tools] {
        assert_eq!(ask(token, "GET", &format!("/v1/cron/jobs/{id}"), "").status, 200);
        for (method, path, body) in [
            ("POST", "/v1/cron/jobs".to_owned(), job("main")),
            ("PATCH", format!("/v1/cron/jobs/{id}"), "{}".to_owned()),
            ("DELETE", format!("/v1/cron/jobs/{id}"), String::new()),
            ("POST", format!("/v1/cron/jobs/{id}/run"), String::new()),
            ("POST", format!("/v1/cron/jobs/{id}/pause"), String::new()),
        ] {
            assert_eq!(ask(token, method, &path, &body).status, 403, "{method} {path}");
        }
    }
    // The tool is for agents and their owner.
    let tool = ask(&own, "POST", "/v1/tools/gsv__Cron", "{\"action\": \"list\"}");
    assert!(tool.text().contains("denied"), "{tool:?}");
    let listed = up.call("gsv__Cron", &json!({"action": "list"})).json();
    assert_eq!(listed["result"]["count"], 2, "{listed}");
    for action in ["status", "runs"] {
        assert_eq!(up.call("gsv__Cron", &json!({"action": action})).status, 200);
    }
    let wrong = up.call(
        "gsv__Cron",
        &json!({"action": "add", "job": {"name": "", "schedule": {"kind": "cron", "expr": "x"}}}),
    );
    for word in ["name", "schedule.expr", "spec"] {
        assert!(wrong.text().contains(word), "{word}: {wrong:?}");
    }
    drop(up);
}

/// S22: a run that would exceed its budget stops before the next request to the model.
#[test]
fn s22_budget_stops_a_scheduled_run_and_a_task() {
    let model = Model::deciding(|heard| {
        let usage = gantry_model::Usage { output_tokens: 400, ..gantry_model::Usage::default() };
        let path = format!("{}.txt", crate::sessions::results(heard));
        Turn { usage: Some(usage), ..crate::sessions::call("Read", json!({"path": path})) }
    });
    let price = "price = { input = 0.01, output = 1000.0 }\nmaxOutput = 500";
    let world = gantry_testkit::World::new();
    world.configure(&format!(
        "[models.providers.lab]\nbaseUrl = \"{}\"\nkey = \"{}\"\n[models.providers.lab.models.scripted-1]\n{price}\n\
         contextWindow = 100000\n[agents.main]\nautonomy = \"guided\"\n[flow]\nrunBudgetUsd = 1.0\n",
        model.base_url(),
        gantry_model::testing::KEY
    ));
    let up = Gateway::start(&world);
    let added = world.run(&["cron", "add", "Endless", "--every", "2h", "--task", "go on"]);
    assert_eq!(added.code, 0, "{added:?}");
    assert_eq!(world.run(&["cron", "run", "endless"]).code, 0, "a name is enough");
    let history = || world.run(&["cron", "history", "Endless", "--json"]).json()["runs"][0].clone();
    eventually("the run ends", PATIENCE, || history()["status"] == "error");
    let run = history();
    assert!(run["error"].as_str().unwrap().contains("budget"), "{run}");
    // Two answers of 40 cents; a third one could cost 50.
    assert_eq!(run["costUsd"].as_f64().map(|cost| (cost * 10.0).round()), Some(8.0), "{run}");
    assert_eq!(model.asked(), 2);
    let body = json!({"task": {"title": "Endless task", "assignee": "agent"}}).to_string();
    let task = up.ask("POST", "/v1/tasks", &[], body.as_bytes()).json()["task"].clone();
    let task = task["id"].as_str().unwrap();
    eventually("the task fails", PATIENCE, || {
        up.get(&format!("/v1/tasks/{task}")).json()["status"] == "failed"
    });
    let failed = up.get(&format!("/v1/tasks/{task}")).json();
    assert!(failed["lastResult"].as_str().unwrap().contains("budget"), "{failed}");
    assert_eq!(model.asked(), 4);
    let shown = world.run(&["cron", "show", "Endless"]).stdout;
    for option in [
        "answers to",
        "delivery",
        "model",
        "thinking",
        "timeout",
        "catch-up",
        "overlap",
        "jitter",
        "carry",
        "created by",
        "allowed by",
    ] {
        assert!(shown.contains(option), "{option} in {shown}");
    }
    let unknown = world.run(&["cron", "show", "Endlos"]);
    assert!(unknown.code != 0 && unknown.stderr.contains("did you mean \"Endless\"?"), "{unknown:?}");
}
