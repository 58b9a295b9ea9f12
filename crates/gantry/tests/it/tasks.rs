//! Tasks in a real gateway: their tools, each kind of run, watched pages, and a person's yes.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_model::testing::{Heard, KEY, Turn};
use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};

use crate::sessions::{Model, call, post, results};

mod background;
mod watches;

const SOON: Duration = Duration::from_secs(30);

/// The text of a tool's answer.
fn said(up: &Gateway, tool: &str, input: &Value) -> String {
    up.call(tool, input).text()
}

fn tasks(up: &Gateway) -> Vec<Value> {
    let listed = up.get("/v1/tasks?limit=100").json();
    listed["tasks"].as_array().unwrap_or_else(|| panic!("{listed}")).clone()
}

fn task(up: &Gateway, id: &str) -> Value {
    up.get(&format!("/v1/tasks/{id}")).json()
}

/// The first word after the priority: the short id.
fn id_in(text: &str) -> String {
    text.split("] ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .unwrap_or_else(|| panic!("{text}"))
        .to_owned()
}

fn add(up: &Gateway, new: Value) -> Value {
    let body = json!({"task": new}).to_string();
    let added = up.ask("POST", "/v1/tasks", &[], body.as_bytes());
    assert_eq!(added.status, 200, "{added:?}");
    added.json()["task"].clone()
}

fn runs(up: &Gateway, id: &str) -> Vec<Value> {
    up.get(&format!("/v1/tasks/{id}/runs")).json()["runs"].as_array().unwrap().clone()
}

fn notices(up: &Gateway) -> Vec<String> {
    let listed = up.get("/v1/outbox?limit=100").json();
    let messages = listed["messages"].as_array().unwrap_or_else(|| panic!("{listed}"));
    messages.iter().map(|message| message["title"].as_str().unwrap().to_owned()).collect()
}

fn await_status(up: &Gateway, id: &str, status: &str) {
    eventually(&format!("the task is {status}"), SOON, || task(up, id)["status"] == status);
}

/// A world whose model has no known price: the default budgets of background work do not stop it.
fn world_with(model: &Model, agent: &str) -> World {
    let world = World::new();
    world.configure(&format!(
        "[models]\n[models.providers.lab]\nbaseUrl = \"{}\"\nkey = \"{KEY}\"\n[models.providers.lab.models.scripted-1]\n\
         contextWindow = 100000\n[agents.main]\n{agent}\n",
        model.base_url()
    ));
    world
}

/// A model that must not be asked.
fn silent() -> Model {
    Model::deciding(|heard| panic!("no model is asked: {:?}", heard.last_text()))
}

#[test]
fn tools_answer_with_one_line_for_each_task() {
    let world = World::new();
    let up = Gateway::start(&world);
    let create = |input: Value| said(&up, "task_create", &input);
    let rent = create(
        json!({"title": "Pay the rent", "priority": "high", "due_date": "2030-01-02", "assignee": "user"}),
    );
    let id = id_in(&rent);
    assert_eq!(
        rent,
        format!("Task created: [HIGH] {id} Pay the rent @user (user:owner) — due 2030-01-02 [open]")
    );
    let part = create(json!({"title": "Find the number", "parent_task_id": id, "tags": ["bank"]}));
    let part = id_in(&part);
    create(json!({"title": "Sleep", "priority": "low", "scope": "global"}));
    assert_eq!(
        said(&up, "task_list", &json!({})),
        format!(
            "[HIGH] {id} Pay the rent @user (user:owner) — due 2030-01-02 [open]\n\
             [MEDIUM] {part} Find the number (user:owner) [open]\n{}",
            said(&up, "task_list", &json!({"scope": "global"}))
        )
    );
    let first = said(&up, "task_list", &json!({"limit": 1}));
    assert!(first.ends_with("[open]\n... and 2 more"), "{first}");
    assert_eq!(said(&up, "task_list", &json!({"due": "today"})), "No tasks due today.");
    assert_eq!(said(&up, "task_list", &json!({"due": "week"})), "No tasks due within a week.");
    assert_eq!(said(&up, "task_list", &json!({"due": "overdue"})), "No overdue tasks.");
    assert_eq!(said(&up, "task_list", &json!({"status": "failed"})), "No tasks.");
    let renamed = said(&up, "task_update", &json!({"task_id": &id[..6], "title": "Pay it", "due_date": ""}));
    assert_eq!(renamed, format!("Task updated: [HIGH] {id} Pay it @user (user:owner) [open]"));
    let done = said(&up, "task_update", &json!({"task_id": id, "status": "completed"}));
    assert_eq!(done, format!("Task completed: [HIGH] {id} Pay it @user (user:owner) [completed]"));
    assert_eq!(task(&up, &part)["status"], "completed", "a subtask is completed with its task");
    let missing = said(&up, "task_update", &json!({"task_id": "ffffffffff", "status": "open"}));
    assert_eq!(missing, "Task not found: ffffffffff (task_list shows the ids of the tasks)");
}

#[test]
fn invalid_task_lists_everything_wrong_and_stores_nothing() {
    let world = World::new();
    world.configure("[tasks]\nscopes = [\"project:site\"]\n");
    let up = Gateway::start(&world);
    let wrong = said(
        &up,
        "task_create",
        &json!({
            "title": "x", "due_date": "2026-02-30", "scope": "project:other", "parent_task_id": "abc",
            "schedule": "61 * * * *", "watch_url": "ftp://x", "watch_interval_minutes": 1, "pipeline_id": "nope",
            "assignee": "nobody",
        }),
    );
    for field in [
        "due_date",
        "scope",
        "parent_task_id",
        "schedule",
        "watch_url",
        "watch_interval_minutes",
        "pipeline_id",
        "assignee",
    ] {
        assert!(
            wrong.lines().any(|line| line.starts_with(&format!("{field}: "))),
            "{field} is missing in:\n{wrong}"
        );
    }
    assert!(tasks(&up).is_empty());
    add(&up, json!({"title": "a", "scope": "project:site"}));
    let closed = up.call_with("task_create", &json!({"title": "b", "scope": "agent:nobody"}), &[]);
    assert_eq!(closed.status, 422, "{closed:?}");
}

#[test]
fn command_line_creates_lists_and_completes_tasks() {
    let world = World::new();
    let _up = Gateway::start(&world);
    let added =
        world.run(&["tasks", "add", "Water the plants", "--priority", "urgent", "--tag", "home", "--json"]);
    let id = added.json()["task"]["id"].as_str().unwrap()[..8].to_owned();
    let listed = world.run(&["tasks"]);
    assert!(listed.stdout.contains(&id) && listed.stdout.contains("Water the plants"), "{listed:?}");
    world.run(&["tasks", "edit", &id, "--description", "The small ones first", "--due", "2030-05-06"]);
    let shown = world.run(&["tasks", "show", &id]);
    assert!(
        shown.stdout.contains("The small ones first") && shown.stdout.contains("due 2030-05-06"),
        "{shown:?}"
    );
    assert_eq!(world.run(&["tasks", "done", &id]).code, 0);
    assert_eq!(world.run(&["tasks", "list", "--status", "completed", "--json"]).json()["total"], 1);
    let wrong = world.run(&["tasks", "list", "--status", "finished"]);
    assert!(wrong.code != 0 && wrong.stderr.contains("--status"), "{wrong:?}");
    let unneeded = world.run(&["tasks", "confirm", &id]);
    assert!(unneeded.stderr.contains("needs no confirmation"), "{unneeded:?}");
}

#[test]
fn client_tokens_see_and_change_the_tasks_of_their_agents_only() {
    let world = World::new();
    world.configure("[agents.main]\n[agents.other]\n");
    let up = Gateway::start(&world);
    let id = add(&up, json!({"title": "mine"}))["id"].as_str().unwrap().to_owned();
    let ask = |token: &str, method: &str, path: &str, body: &str| {
        let bearer = format!("Bearer {token}");
        up.ask(method, path, &[("Authorization", &bearer)], body.as_bytes())
    };
    let other = up.client_token(&world, "other", &["--agents", "other"]);
    assert_eq!(ask(&other, "GET", "/v1/tasks", "").json()["total"], 0);
    assert_eq!(ask(&other, "GET", &format!("/v1/tasks/{id}"), "").status, 400);
    let reader = up.client_token(&world, "reader", &["--agents", "main", "--read-only"]);
    assert_eq!(ask(&reader, "GET", "/v1/tasks", "").json()["total"], 1);
    for (path, body) in
        [("/v1/tasks", r#"{"task": {"title": "x"}}"#), (&*format!("/v1/tasks/{id}/cancel"), "{}")]
    {
        assert_eq!(ask(&reader, "POST", path, body).status, 403, "{path}");
    }
    let writer = up.client_token(&world, "writer", &["--agents", "main"]);
    assert_eq!(ask(&writer, "POST", &format!("/v1/tasks/{id}/confirm"), "{}").status, 403);
    assert_eq!(ask(&writer, "POST", &format!("/v1/tasks/{id}/cancel"), "{}").status, 200);
}
