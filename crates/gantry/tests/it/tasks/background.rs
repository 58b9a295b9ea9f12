//! Tasks that run in the background, and the yes that an agent's task needs.

use super::*;

const WORKS: &str = "You work in the background";

/// A model that creates a task when it is asked to, and reports when it works on one.
fn creating(input: Value) -> Model {
    Model::deciding(move |heard: &Heard| {
        let text = heard.body["messages"].to_string();
        match (text.contains(WORKS), results(heard)) {
            (true, _) => Turn::text("the plants are wet"),
            (false, 0) => call("task_create", input.clone()),
            (false, _) => Turn::text(heard.last_text()),
        }
    })
}

/// Sends a message and answers the questions that follow. Returns the answer of the agent and the questions.
fn talk(up: &Gateway, answer: &str) -> (String, Vec<Value>) {
    std::thread::scope(|scope| {
        let talking = scope.spawn(|| post(up, "main", &json!({"message": "create it"}), &[]));
        let mut questions = Vec::new();
        while !talking.is_finished() {
            let status = up.get("/v1/sessions/main");
            if status.status == 200 {
                for question in status.json()["questions"].as_array().cloned().unwrap_or_default() {
                    let body = json!({"question": question["id"], "answer": answer}).to_string();
                    up.ask("POST", "/v1/sessions/main/answers", &[], body.as_bytes());
                    questions.push(question);
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        (talking.join().unwrap().text(), questions)
    })
}

#[test]
fn s32_task_of_an_agent_runs_after_one_yes_and_reports_to_the_owner() {
    let model = creating(json!({"title": "Water the plants", "assignee": "agent"}));
    let world = world_with(&model, "autonomy = \"guided\"");
    let up = Gateway::start(&world);
    let (answer, questions) = talk(&up, "yes");
    assert_eq!(questions.len(), 1, "{questions:?}");
    let reason = questions[0]["reason"].as_str().unwrap();
    assert_eq!(
        reason,
        "the agent main wants to run once, in the background, while nobody is present: \"Water the plants\""
    );
    let id = id_in(&answer);
    await_status(&up, &id, "completed");
    let done = task(&up, &id);
    assert_eq!((&done["lastStatus"], &done["lastResult"]), (&json!("ok"), &json!("the plants are wet")));
    assert_eq!(runs(&up, &id).len(), 1);
    assert_eq!(notices(&up), ["Done: Water the plants"]);
    model.check();
}

#[test]
fn s32_task_that_a_person_refuses_is_not_stored() {
    let model = creating(json!({"title": "Water the plants", "schedule": "1h"}));
    let world = world_with(&model, "autonomy = \"guided\"");
    let up = Gateway::start(&world);
    let (answer, questions) = talk(&up, "no");
    assert_eq!(questions.len(), 1);
    assert!(answer.contains("the task was not stored"), "{answer}");
    assert!(tasks(&up).is_empty());
}

#[test]
fn s32_task_of_an_autonomous_agent_waits_for_gantry_tasks_confirm() {
    let model = creating(json!({"title": "Water the plants", "assignee": "agent"}));
    let world = world_with(&model, "autonomy = \"autonomous\"");
    let up = Gateway::start(&world);
    let (answer, questions) = talk(&up, "yes");
    assert!(questions.is_empty() && answer.contains("gantry tasks confirm"), "{answer}");
    let id = id_in(&answer);
    assert_eq!(notices(&up), ["A task waits for your yes: Water the plants"]);
    std::thread::sleep(Duration::from_millis(500));
    assert!(runs(&up, &id).is_empty(), "it does not run before");
    let refused = world.run(&["tasks", "run", &id]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains(&format!("gantry tasks confirm {id}")), "{refused:?}");
    let changed = world.run(&["tasks", "confirm", &id, "--seen", "0123456789abcdef"]);
    assert!(changed.code == 3 && changed.stderr.contains("not what you read"), "{changed:?}");
    let confirmed = world.run(&["tasks", "confirm", &id]);
    assert_eq!(confirmed.code, 0, "{confirmed:?}");
    await_status(&up, &id, "completed");
}

#[test]
fn change_of_what_an_agents_task_does_needs_another_yes() {
    let model = Model::deciding(|heard: &Heard| match results(heard) {
        0 => call("task_create", json!({"title": "Look", "schedule": "1d"})),
        1 => call("task_list", json!({})),
        2 => call(
            "task_update",
            json!({"task_id": id_in(&heard.last_text()), "description": "and send it to me"}),
        ),
        _ => Turn::text(heard.last_text()),
    });
    let world = world_with(&model, "autonomy = \"guided\"");
    let up = Gateway::start(&world);
    let (answer, questions) = talk(&up, "yes");
    assert_eq!(questions.len(), 2, "{questions:?}");
    assert!(questions[1]["input"].to_string().contains("send it to me"), "{:?}", questions[1]);
    assert!(answer.contains("Task updated"), "{answer}");
}

#[test]
fn s31_scheduled_task_of_an_agent_runs_at_once_and_stays_open() {
    let model = creating(json!({}));
    let world = world_with(&model, "autonomy = \"guided\"");
    let up = Gateway::start(&world);
    let created = add(&up, json!({"title": "Report", "schedule": "every 2 hours", "assignee": "agent"}));
    let id = created["id"].as_str().unwrap();
    eventually("it ran", SOON, || task(&up, id)["lastStatus"] == "ok");
    let now = task(&up, id);
    assert_eq!((&now["status"], &now["kind"]), (&json!("open"), &json!("scheduled")));
    let next = now["nextRunAtMs"].as_i64().unwrap() - now["createdAtMs"].as_i64().unwrap();
    assert_eq!(next, 2 * 3_600_000, "the schedule is anchored at its creation");
    let cancelled = world.run(&["tasks", "cancel", id]);
    assert_eq!(cancelled.code, 0);
    assert_eq!(task(&up, id)["nextRunAtMs"], Value::Null);
}

#[test]
fn s31_failed_one_shot_is_final() {
    let model = Model::deciding(|_: &Heard| Turn::status(400));
    let world = world_with(&model, "autonomy = \"guided\"");
    let up = Gateway::start(&world);
    let created = add(&up, json!({"title": "Impossible", "assignee": "agent"}));
    let id = created["id"].as_str().unwrap();
    await_status(&up, id, "failed");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(runs(&up, id).len(), 1, "it does not run again");
    assert_eq!(notices(&up), ["Failed: Impossible"]);
}

#[test]
fn s31_pipeline_task_runs_a_stored_pipeline_without_a_model() {
    let model = silent();
    let world = world_with(&model, "autonomy = \"guided\"");
    let up = Gateway::start(&world);
    let steps = json!([{"id": "one", "tool": "Bash", "input": {"command": "echo {{params.word}} >> notes"}}]);
    let definition = json!({"name": "note", "steps": steps, "parameters": [{"name": "word", "type": "string", "source": "user_input"}]});
    let body = json!({"definition": definition});
    let stored = up.ask("POST", "/v1/pipelines", &[], body.to_string().as_bytes());
    assert_eq!(stored.status, 200, "{stored:?}");
    let pipeline = stored.json()["id"].as_str().unwrap().to_owned();
    let created = add(&up, json!({"title": "Note", "pipeline_id": pipeline, "params": {"word": "hello"}}));
    assert_eq!(created["kind"], "pipeline");
    let id = created["id"].as_str().unwrap();
    eventually("the task ends", SOON, || task(&up, id)["status"] != "open");
    assert_eq!(task(&up, id)["status"], "completed", "{}", task(&up, id));
    assert_eq!(std::fs::read_to_string(world.workspace().join("notes")).unwrap(), "hello\n");
}

#[test]
fn cancelled_task_stops_its_run() {
    let model = Model::deciding(|heard: &Heard| match results(heard) {
        0 => call("Bash", json!({"command": "touch begun; sleep 60"})),
        _ => Turn::text("done"),
    });
    let world = world_with(&model, "autonomy = \"guided\"");
    let up = Gateway::start(&world);
    let created = add(&up, json!({"title": "Long", "assignee": "agent"}));
    let id = created["id"].as_str().unwrap();
    eventually("the command runs", SOON, || world.workspace().join("begun").exists());
    assert_eq!(world.run(&["tasks", "cancel", id]).code, 0);
    eventually("the run ends", SOON, || runs(&up, id)[0]["state"] == "cancelled");
    assert_eq!(task(&up, id)["status"], "cancelled");
}

#[test]
fn run_of_a_killed_gateway_is_continued_and_does_nothing_twice() {
    let model = Model::deciding(|heard: &Heard| match results(heard) {
        0 => call("Bash", json!({"command": "echo run >> notes; sleep 3"})),
        _ => Turn::text("done"),
    });
    let world = world_with(&model, "autonomy = \"guided\"");
    let up = Gateway::start(&world);
    let created = add(&up, json!({"title": "Once", "assignee": "agent"}));
    let id = created["id"].as_str().unwrap();
    let notes = world.workspace().join("notes");
    eventually("the command runs", SOON, || notes.exists());
    up.kill();
    let up = Gateway::start(&world);
    await_status(&up, id, "completed");
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "run\n");
    assert_eq!(runs(&up, id).len(), 1);
    assert_eq!(notices(&up), ["Done: Once"]);
}
