//! Tasks with a virtual clock, real sessions and a scripted model.

mod attacks;

use std::sync::Arc;

use gantry_protocol::{NewTask, RunEvent, RunKind, TaskAddParams, TaskInfo, TaskRunInfo};
use serde_json::{Value, json};

use super::api;
use crate::testing::{OPERATOR, START, Setup, World, eventually, says};
use crate::time::{DAY_MS, HOUR_MS, MINUTE_MS};

impl World {
    async fn add_task(&self, new: Value) -> TaskInfo {
        let task: NewTask = serde_json::from_value(new).unwrap();
        api::add(&self.flow, &OPERATOR, TaskAddParams { agent: None, task }).await.unwrap().task
    }

    async fn task(&self, id: &str) -> TaskInfo {
        api::show(&self.flow, &OPERATOR, id).await.unwrap()
    }

    /// The history of a task, the oldest first.
    async fn task_runs(&self, id: &str) -> Vec<TaskRunInfo> {
        let mut runs = api::history(&self.flow, &OPERATOR, id).await.unwrap().runs;
        runs.reverse();
        runs
    }

    async fn task_states(&self, id: &str) -> Vec<String> {
        self.task_runs(id).await.into_iter().map(|run| run.state).collect()
    }

    /// Moves the clock and waits until the task is not due and does not run.
    async fn tasks_at(&self, now: i64, id: &str) {
        self.clock.set(now);
        eventually("the task is idle", async || {
            let task = self.task(id).await;
            !task.running && task.next_run_at_ms.is_none_or(|next| next > now)
        })
        .await;
    }
}

fn failing() -> Setup {
    let script = |_: &gantry_model::Request| Err(gantry_agent::ModelFailure::Failed("no luck".into()));
    Setup { script: Arc::new(script), ..Setup::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn s31_scheduled_task_runs_at_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default()).await;
    let task = world.add_task(json!({"title": "report", "schedule": "every 30 minutes"})).await;
    assert_eq!(task.next_run_at_ms, Some(START + 30 * MINUTE_MS));
    for minutes in [30, 60, 90] {
        world.tasks_at(START + minutes * MINUTE_MS, &task.id).await;
    }
    assert_eq!(world.task_states(&task.id).await, ["ok", "ok", "ok"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s04_task_catches_up_the_newest_occurrence_and_records_the_missed_ones() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default()).await;
    let task = world.add_task(json!({"title": "report", "schedule": "every 30 minutes"})).await;
    world.stop().await;
    // 30, 60 and 90 were missed; 120 is 10 minutes late and runs.
    let now = START + 130 * MINUTE_MS;
    let world = World::open(folder.path(), Setup { now, ..Setup::default() }).await;
    world.tasks_at(now, &task.id).await;
    let runs = world.task_runs(&task.id).await;
    let mut states: Vec<&str> = runs.iter().map(|run| run.state.as_str()).collect();
    states.sort_unstable();
    assert_eq!(states, ["missed", "ok"]);
    assert_eq!(world.task(&task.id).await.next_run_at_ms, Some(START + 150 * MINUTE_MS));
    world.stop().await;
    // 20 of 30 minutes late is too late.
    let now = START + 170 * MINUTE_MS;
    let world = World::open(folder.path(), Setup { now, ..Setup::default() }).await;
    world.tasks_at(now, &task.id).await;
    let states = world.task_states(&task.id).await;
    assert_eq!(states.iter().filter(|state| *state == "missed").count(), 2, "{states:?}");
    assert_eq!(states.iter().filter(|state| *state == "ok").count(), 1, "{states:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s17_occurrence_during_a_run_of_a_task_is_skipped_with_a_row() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { held: true, ..Setup::default() }).await;
    let task = world.add_task(json!({"title": "long", "schedule": "every 30 minutes"})).await;
    world.clock.set(START + 30 * MINUTE_MS);
    eventually("it runs", async || world.task_states(&task.id).await == ["running"]).await;
    world.clock.set(START + HOUR_MS);
    eventually("it is skipped", async || world.task_runs(&task.id).await.len() == 2).await;
    world.model.held.send_replace(false);
    world.tasks_at(START + HOUR_MS, &task.id).await;
    assert_eq!(world.task_states(&task.id).await, ["ok", "skipped"]);
    let skipped = world.task_runs(&task.id).await.remove(1);
    assert_eq!(skipped.error.as_deref(), Some("the previous run has not ended"));
    world.stop().await;
}

/// 29 March 2026 has no 02:30 in Berlin, so the run is at 03:00. 25 October has it twice, and the first one runs.
#[tokio::test(flavor = "multi_thread")]
async fn s12_task_in_a_gap_runs_at_its_end_and_in_an_overlap_once() {
    let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_millisecond();
    for (now, runs) in [
        ("2026-03-28T12:00:00Z", ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
        ("2026-10-24T12:00:00Z", ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let world = World::open(folder.path(), Setup { now: at(now), ..Setup::default() }).await;
        let task = world.add_task(json!({"title": "early", "schedule": "30 2 * * *"})).await;
        for run in runs {
            assert_eq!(world.task(&task.id).await.next_run_at_ms, Some(at(run)), "{run}");
            world.tasks_at(at(run) - 1, &task.id).await;
            let before = world.task_runs(&task.id).await.len();
            world.tasks_at(at(run), &task.id).await;
            assert_eq!(world.task_runs(&task.id).await.len(), before + 1, "{run}");
        }
        assert_eq!(world.task_states(&task.id).await, ["ok", "ok"]);
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s19_failed_scheduled_task_backs_off_like_a_job() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), failing()).await;
    let task = world.add_task(json!({"title": "fails", "schedule": "every 5 minutes"})).await;
    let mut failed_at = Vec::new();
    for _ in 0..6 {
        let next = world.task(&task.id).await.next_run_at_ms.unwrap();
        failed_at.push((next - START) / MINUTE_MS);
        world.tasks_at(next, &task.id).await;
    }
    // Pauses of 30 s, 1, 5, 15 and 60 minutes; the next time of the schedule after the pause counts.
    assert_eq!(failed_at, [5, 10, 15, 20, 35, 95]);
    let runs = world.task_runs(&task.id).await;
    let skipped: Vec<_> = runs.iter().filter(|run| run.state == "skipped").collect();
    assert_eq!(skipped.len(), 3, "{runs:?}");
    assert!(skipped.iter().all(|run| run.error.as_deref() == Some("the task waits after errors")));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s18_schedules_and_tasks_share_four_places() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { held: true, ..Setup::default() }).await;
    for number in 0..3 {
        let job = json!({"name": format!("j{number}"), "schedule": {"kind": "every", "everyMinutes": 30},
            "spec": {"mode": "task", "message": "work"}});
        world.flow.api_add(&OPERATOR, serde_json::from_value(job).unwrap()).await.unwrap();
        world.add_task(json!({"title": format!("t{number}"), "schedule": "every 30 minutes"})).await;
    }
    let asked = || world.model.requests.lock().unwrap().len();
    world.clock.set(START + 30 * MINUTE_MS);
    eventually("four runs work", async || asked() == 4).await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_eq!((asked(), world.flow.slots.free()), (4, 0));
    world.model.held.send_replace(false);
    eventually("the others follow", async || asked() == 6 && world.flow.slots.free() == 4).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_of_a_task_publishes_its_start_and_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), failing()).await;
    let mut events = world.flow.follow_all_runs();
    let task = world.add_task(json!({"title": "once", "assignee": "agent"})).await;
    world.tasks_at(START, &task.id).await;
    let mut heard = Vec::new();
    for _ in 0..2 {
        let data = events.recv().await.unwrap();
        assert_eq!((data.kind, &data.source_id, data.name.as_str()), (RunKind::Task, &task.id, "once"));
        heard.push(data.event.clone());
    }
    assert!(
        matches!(&heard[0], RunEvent::Started { session_key: Some(key), resumed: false } if key.contains(":task:"))
    );
    let RunEvent::Ended { status, error, .. } = &heard[1] else { panic!("{heard:?}") };
    assert_eq!(status, "error");
    assert!(error.as_ref().unwrap().contains("no luck"), "{error:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_finished_tasks_are_removed_while_the_gateway_runs() {
    let folder = tempfile::tempdir().unwrap();
    let script = |_: &gantry_model::Request| says("done");
    let world = World::open(folder.path(), Setup { script: Arc::new(script), ..Setup::default() }).await;
    let task = world.add_task(json!({"title": "once", "assignee": "agent"})).await;
    world.tasks_at(START, &task.id).await;
    let session = world.task_runs(&task.id).await[0].session_key.clone();
    let journal = gantry_store::Journal::new(world.flow.parts.database.clone());
    assert!(journal.exists(&session).await.unwrap());
    // Sessions use the system's clock.
    world.clock.set(jiff::Timestamp::now().as_millisecond() + 31 * DAY_MS);
    eventually("the session is removed", async || !journal.exists(&session).await.unwrap()).await;
    world.stop().await;
}
