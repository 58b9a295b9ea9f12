//! Jobs with a virtual clock, real sessions and a scripted model. Each test is named after the rule that it holds.
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use gantry_agent::ApprovalDecision;
use gantry_protocol::{
    CronHistoryParams, CronJob, CronJobInput, CronListParams, CronRun, CronStatusParams, CronUpdateParams,
};
use gantry_store::StateChange;
use gantry_tool::{Autonomy, Refusal};
use serde_json::{Value, json};

use super::info::Job;
use crate::config::{FlowConfig, WebhookConfig};
use crate::testing::{OPERATOR, START, Setup, World, calls, eventually, results, says, texts};
use crate::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};

fn input(value: Value) -> CronJobInput {
    serde_json::from_value(value).unwrap()
}

fn task(message: &str) -> Value {
    json!({"mode": "task", "message": message})
}

impl World {
    async fn add(&self, value: Value) -> CronJob {
        self.flow.api_add(&OPERATOR, input(value)).await.unwrap()
    }

    /// Adds a task at an interval.
    async fn every(&self, minutes: i64) -> CronJob {
        self.add(json!({"name": "j", "schedule": {"kind": "every", "everyMinutes": minutes}, "spec": task("work")})).await
    }

    async fn update(&self, id: &str, patch: Value) -> Result<CronJob, Refusal> {
        let patch = input(patch);
        self.flow.api_update(&OPERATOR, CronUpdateParams { id: id.into(), patch }).await
    }

    async fn job(&self, id: &str) -> CronJob {
        self.flow.api_show(&OPERATOR, id).await.unwrap()
    }

    async fn row(&self, id: &str) -> gantry_store::CronJobRow {
        self.flow.parts.database.cron_job(id).await.unwrap().unwrap()
    }

    /// The history of a job, the oldest first.
    async fn runs(&self, id: &str) -> Vec<CronRun> {
        let params = CronHistoryParams { job_id: Some(id.into()), ..CronHistoryParams::default() };
        let mut runs = self.flow.api_history(&OPERATOR, params).await.unwrap().runs;
        runs.reverse();
        runs
    }

    async fn statuses(&self, id: &str) -> Vec<String> {
        self.runs(id).await.into_iter().map(|run| run.status).collect()
    }

    /// Moves the clock and waits until nothing is due and nothing runs.
    async fn at(&self, now: i64) {
        self.clock.set(now);
        self.idle().await;
    }

    async fn idle(&self) {
        let is_live = |status: &str| ["queued", "running"].contains(&status);
        eventually("nothing is due and nothing runs", async || {
            let status = self.flow.api_status(&OPERATOR, CronStatusParams::default()).await.unwrap();
            let runs = self.flow.api_history(&OPERATOR, CronHistoryParams::default()).await.unwrap().runs;
            status.due_count == 0 && !runs.iter().any(|run| is_live(&run.status))
        })
        .await;
    }

    async fn reached(&self, id: &str, status: &str) {
        eventually(status, async || self.runs(id).await.iter().any(|run| run.status == status)).await;
    }

    /// The texts of the messages in the outbox.
    async fn messages(&self) -> Vec<(String, String)> {
        let (messages, _) = self.flow.parts.database.list_outbox(None, None, 500, 0).await.unwrap();
        messages.into_iter().map(|message| (message.body.title, message.body.text)).collect()
    }
}

fn failing() -> Setup {
    let script = |_: &gantry_model::Request| Err(gantry_agent::ModelFailure::Failed("no luck".into()));
    Setup { script: Arc::new(script), ..Setup::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn task_runs_at_each_time_with_its_answer_cost_and_delivery() {
    let folder = tempfile::tempdir().unwrap();
    let script =
        |request: &gantry_model::Request| says(&format!("heard {}", texts(request).contains("work")));
    let world = World::open(folder.path(), Setup { script: Arc::new(script), ..Setup::default() }).await;
    let job = world.every(10).await;
    assert_eq!(job.next_runs.len(), 3);
    assert_eq!(job.next_runs[0].utc, "2026-03-04T12:10:00Z");
    assert_eq!(job.next_runs[0].local, "Wed 4 Mar 2026 13:10 CET");
    for minutes in [10, 20] {
        world.at(START + minutes * MINUTE_MS).await;
    }
    let runs = world.runs(&job.id).await;
    assert_eq!(runs.len(), 2);
    for run in &runs {
        assert_eq!((run.status.as_str(), run.summary.as_deref()), ("ok", Some("heard true")), "{run:?}");
    }
    assert_ne!(runs[0].session_key, runs[1].session_key, "each run has a session of its own");
    eventually("the answers are delivered", async || {
        world.runs(&job.id).await.iter().all(|run| run.delivery == "sent")
    })
    .await;
    let main = world.flow.parts.sessions.key("main", None).unwrap();
    let history = world.flow.parts.sessions.history(&main, 0, 100).await.unwrap();
    assert_eq!(history.iter().filter(|event| event.kind == "notice").count(), 2);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s01_missed_occurrences_have_rows() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default()).await;
    let job = world.every(10).await;
    world.at(START + 10 * MINUTE_MS).await;
    world.stop().await;
    let now = START + 53 * MINUTE_MS;
    let world = World::open(folder.path(), Setup { now, ..Setup::default() }).await;
    world.idle().await;
    let runs = world.runs(&job.id).await;
    let found: Vec<(&str, &str, i64)> = runs
        .iter()
        .map(|run| (run.kind.as_str(), run.status.as_str(), (run.scheduled_at_ms - START) / MINUTE_MS))
        .collect();
    assert_eq!(found, [("due", "ok", 10), ("due", "missed", 20), ("catchup", "ok", 50)]);
    assert_eq!(runs[1].through_ms, Some(START + 50 * MINUTE_MS - 1), "the row covers 20, 30 and 40");
    assert_eq!(world.job(&job.id).await.state.next_run_at_ms, Some(START + HOUR_MS));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s02_admitted_run_survives_a_stop_before_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { works: false, ..Setup::default() }).await;
    let job = world.every(10).await;
    world.clock.set(START + 10 * MINUTE_MS);
    assert_eq!(world.flow.admit_due(None).await.unwrap().len(), 1);
    assert_eq!(world.statuses(&job.id).await, ["queued"]);
    assert_eq!(world.row(&job.id).await.state.next_at, Some(START + 20 * MINUTE_MS));
    world.stop().await;
    let world = World::open(folder.path(), Setup { now: START + 11 * MINUTE_MS, ..Setup::default() }).await;
    world.idle().await;
    assert_eq!(world.statuses(&job.id).await, ["ok"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s03_s26_schedulers_that_race_admit_each_occurrence_once() {
    let folder = tempfile::tempdir().unwrap();
    let one = World::open(folder.path(), Setup { works: false, ..Setup::default() }).await;
    let two = World::open(folder.path(), Setup { works: false, ..Setup::default() }).await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(one.every(10).await.id);
    }
    for world in [&one, &two] {
        world.clock.set(START + 10 * MINUTE_MS);
    }
    let (first, second) = tokio::join!(one.flow.admit_due(None), two.flow.admit_due(None));
    let admitted = first.unwrap().into_iter().chain(second.unwrap()).flatten().count();
    assert_eq!(admitted, 20);
    for id in &ids {
        assert_eq!(one.statuses(id).await, ["queued"]);
    }
    // A run is taken by one of them.
    let (a, b) = (&one.flow, &two.flow);
    let now = START + 10 * MINUTE_MS;
    let (first, second) = tokio::join!(
        a.parts.database.claim_cron_runs(&a.owner, 15, now),
        b.parts.database.claim_cron_runs(&b.owner, 15, now)
    );
    let (first, second) = (first.unwrap(), second.unwrap());
    let mut taken: Vec<&str> = first.iter().chain(&second).map(|run| run.id.as_str()).collect();
    taken.sort_unstable();
    let count = taken.len();
    taken.dedup();
    assert_eq!((taken.len(), count), (20, 20));
    two.stop().await;
    one.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s05_start_recomputes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { works: false, ..Setup::default() }).await;
    let job = world
        .add(json!({"name": "j", "schedule": {"kind": "cron", "expr": "0 9 * * *"}, "spec": task("x")}))
        .await;
    let next = job.state.next_run_at_ms;
    world.stop().await;
    let now = next.unwrap() + HOUR_MS;
    let world = World::open(folder.path(), Setup { works: false, now, ..Setup::default() }).await;
    world.flow.check_jobs().await.unwrap();
    assert_eq!(world.row(&job.id).await.state.next_at, next, "it is late, and stays so until it is admitted");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s06_reading_never_writes() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { works: false, ..Setup::default() }).await;
    let job = world.every(10).await;
    world.clock.set(START + 25 * MINUTE_MS);
    let before = world.row(&job.id).await;
    for _ in 0..3 {
        world.flow.api_list(&OPERATOR, CronListParams::default()).await.unwrap();
        let status = world.flow.api_status(&OPERATOR, CronStatusParams::default()).await.unwrap();
        assert_eq!(status.due_count, 1);
        world.job(&job.id).await;
        assert!(world.runs(&job.id).await.is_empty());
    }
    assert_eq!(world.row(&job.id).await, before);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s07_run_of_a_dead_process_continues_and_the_job_stays_alive() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { held: true, ..Setup::default() }).await;
    let job = world.every(10).await;
    world.clock.set(START + 10 * MINUTE_MS);
    world.reached(&job.id, "running").await;
    eventually("the model is asked", async || !world.model.requests.lock().unwrap().is_empty()).await;
    world.stop().await;
    let world = World::open(folder.path(), Setup { now: START + 11 * MINUTE_MS, ..Setup::default() }).await;
    world.idle().await;
    assert_eq!(world.statuses(&job.id).await, ["ok"], "the same run, once");
    world.at(START + 20 * MINUTE_MS).await;
    assert_eq!(world.statuses(&job.id).await, ["ok", "ok"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s08_run_can_be_cancelled_and_the_next_one_runs() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { held: true, ..Setup::default() }).await;
    let job = world.every(10).await;
    world.clock.set(START + 10 * MINUTE_MS);
    world.reached(&job.id, "running").await;
    let run = world.runs(&job.id).await[0].run_id.clone().unwrap();
    world.flow.api_cancel(&OPERATOR, &run).await.unwrap();
    world.reached(&job.id, "cancelled").await;
    assert!(world.flow.api_cancel(&OPERATOR, &run).await.is_err(), "it has ended");
    world.model.held.send_replace(false);
    world.at(START + 20 * MINUTE_MS).await;
    assert_eq!(world.statuses(&job.id).await, ["cancelled", "ok"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s09_s31_one_shot_is_over_after_any_outcome_and_past_times_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), failing()).await;
    let job = world
        .add(json!({"name": "once", "schedule": {"kind": "at", "at": "in 5 minutes"}, "spec": task("x")}))
        .await;
    world.at(START + 5 * MINUTE_MS).await;
    for minutes in [6, 7, 60, 24 * 60] {
        world.at(START + minutes * MINUTE_MS).await;
        world.flow.check_jobs().await.unwrap();
    }
    world.idle().await;
    assert_eq!(world.statuses(&job.id).await, ["error"], "it is not tried again");
    let after = world.job(&job.id).await;
    assert_eq!((after.enabled, after.state.next_run_at_ms), (false, None));
    // The past is rejected at add and at update.
    let past = json!({"kind": "at", "at": "2026-03-04T11:00:00Z"});
    let added =
        world.flow.api_add(&OPERATOR, input(json!({"name": "p", "schedule": past, "spec": task("x")}))).await;
    assert!(added.unwrap_err().to_string().contains("in the past"));
    let updated = world.update(&job.id, json!({"schedule": past})).await;
    assert!(updated.unwrap_err().to_string().contains("2026-03-04T11:00:00Z"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s10_new_schedule_makes_a_finished_job_active_again_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default()).await;
    let job = world
        .add(json!({"name": "once", "schedule": {"kind": "at", "at": "in 5 minutes"}, "spec": task("x")}))
        .await;
    world.at(START + 5 * MINUTE_MS).await;
    assert!(world.update(&job.id, json!({"enabled": true})).await.is_err(), "its time has passed");
    let again = world.update(&job.id, json!({"schedule": {"kind": "at", "in": "10 minutes"}})).await.unwrap();
    assert!(again.enabled && again.notes.iter().any(|note| note.contains("active again")), "{again:?}");
    world.at(START + 15 * MINUTE_MS).await;
    assert_eq!(world.statuses(&job.id).await, ["ok", "ok"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_shot_deletes_itself_after_success_and_keeps_its_history() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default()).await;
    let job = world
        .add(json!({"name": "once", "schedule": {"kind": "at", "at": "in 5 minutes"}, "spec": task("x"), "deleteAfterRun": true}))
        .await;
    world.at(START + 5 * MINUTE_MS).await;
    assert!(world.flow.api_show(&OPERATOR, &job.id).await.is_err());
    assert_eq!(world.statuses(&job.id).await, ["ok"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_s24_s25_edit_during_a_run_is_kept_and_the_run_keeps_its_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let script = |request: &gantry_model::Request| {
        says(if texts(request).contains("new text") { "new" } else { "old" })
    };
    let world =
        World::open(folder.path(), Setup { held: true, script: Arc::new(script), ..Setup::default() }).await;
    let job = world.every(10).await;
    world.clock.set(START + 10 * MINUTE_MS);
    world.reached(&job.id, "running").await;
    // Nothing is locked while it runs.
    assert_eq!(world.flow.api_list(&OPERATOR, CronListParams::default()).await.unwrap().count, 1);
    world.update(&job.id, json!({"name": "renamed", "spec": task("new text")})).await.unwrap();
    world.model.held.send_replace(false);
    world.idle().await;
    assert_eq!(world.runs(&job.id).await[0].summary.as_deref(), Some("old"));
    let after = world.job(&job.id).await;
    assert_eq!((after.name.as_str(), after.spec["message"].as_str()), ("renamed", Some("new text")));
    world.at(START + 20 * MINUTE_MS).await;
    assert_eq!(world.runs(&job.id).await[1].summary.as_deref(), Some("new"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s24_queued_run_of_an_older_revision_is_retired() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { works: false, ..Setup::default() }).await;
    let job = world.every(10).await;
    world.clock.set(START + 10 * MINUTE_MS);
    world.flow.admit_due(None).await.unwrap();
    world.update(&job.id, json!({"name": "only a name"})).await.unwrap();
    assert_eq!(world.statuses(&job.id).await, ["queued"]);
    world.update(&job.id, json!({"spec": task("other")})).await.unwrap();
    let runs = world.runs(&job.id).await;
    assert_eq!(runs[0].status, "skipped");
    assert!(runs[0].error.as_ref().unwrap().contains("changed"), "{runs:?}");
    // A stale revision changes nothing.
    let row = world.row(&job.id).await;
    let mut stale = row.clone();
    stale.rev -= 1;
    assert!(
        !world.flow.parts.database.update_cron_job(&stale, StateChange::Keep, false, None).await.unwrap()
    );
    assert_eq!(world.row(&job.id).await, row);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s14_clock_that_goes_back_repeats_nothing_and_the_job_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default()).await;
    let job = world.every(10).await;
    world.at(START + 10 * MINUTE_MS).await;
    world.at(START + 20 * MINUTE_MS).await;
    // The clock goes back by 12 minutes and passes the same times again.
    world.at(START + 8 * MINUTE_MS).await;
    world.flow.check_jobs().await.unwrap();
    for minutes in [10, 20, 30] {
        world.at(START + minutes * MINUTE_MS).await;
    }
    let times: Vec<i64> =
        world.runs(&job.id).await.iter().map(|run| (run.scheduled_at_ms - START) / MINUTE_MS).collect();
    let mut sorted = times.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [10, 20, 30], "each time once");
    // A year ahead and back: the job does not wait for a year.
    world.at(START + 365 * DAY_MS).await;
    world.clock.set(START + 35 * MINUTE_MS);
    world.flow.check_jobs().await.unwrap();
    assert_eq!(world.job(&job.id).await.state.next_run_at_ms, Some(START + 40 * MINUTE_MS));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s15_zone_is_resolved_at_add_shown_and_kept_by_updates() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { works: false, ..Setup::default() }).await;
    let users = world
        .add(json!({"name": "a", "schedule": {"kind": "cron", "expr": "0 9 * * *"}, "spec": task("x")}))
        .await;
    assert_eq!(users.schedule["tz"], "Europe/Berlin");
    let tokyo = json!({"kind": "cron", "expr": "0 9 * * *", "tz": "Asia/Tokyo"});
    let own = world.add(json!({"name": "b", "schedule": tokyo, "spec": task("x")})).await;
    assert_eq!(
        (own.next_runs[0].utc.as_str(), own.next_runs[0].local.as_str()),
        ("2026-03-05T00:00:00Z", "Thu 5 Mar 2026 09:00 JST")
    );
    let moved =
        world.update(&own.id, json!({"schedule": {"kind": "cron", "expr": "0 10 * * *"}})).await.unwrap();
    assert_eq!(moved.schedule["tz"], "Asia/Tokyo");
    let unknown = json!({"name": "c", "schedule": {"kind": "cron", "expr": "0 9 * * *", "tz": "Asia/Tokio"}, "spec": task("x")});
    let why = world.flow.api_add(&OPERATOR, input(unknown)).await.unwrap_err().to_string();
    assert!(why.contains("Asia/Tokyo"), "{why}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_changed_zone_rules_move_only_future_runs_and_start_none() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { works: false, ..Setup::default() }).await;
    let job = world
        .add(json!({"name": "j", "schedule": {"kind": "cron", "expr": "0 9 * * *"}, "spec": task("x")}))
        .await;
    let right = job.state.next_run_at_ms;
    // As if the database had been another one when the time was computed.
    let row = world.row(&job.id).await;
    let wrong = right.map(|next| next + HOUR_MS);
    assert!(world.flow.parts.database.arm_cron_job(&row, wrong, wrong).await.unwrap());
    world.flow.check_jobs().await.unwrap();
    assert_eq!(world.row(&job.id).await.state.next_at, right);
    assert!(world.flow.admit_due(None).await.unwrap().is_empty());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s17_skipped_occurrences_are_counted_and_queue_keeps_one() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { held: true, ..Setup::default() }).await;
    let skip = world.every(10).await;
    let queue = world
        .add(json!({"name": "q", "schedule": {"kind": "every", "everyMinutes": 10}, "spec": task("x"), "overlap": "queue"}))
        .await;
    world.clock.set(START + 10 * MINUTE_MS);
    world.reached(&skip.id, "running").await;
    world.reached(&queue.id, "running").await;
    for minutes in [20, 29] {
        world.clock.set(START + minutes * MINUTE_MS);
        eventually("the second occurrence", async || world.runs(&skip.id).await.len() == 2).await;
    }
    world.clock.set(START + 30 * MINUTE_MS);
    eventually("the third occurrence", async || {
        world.runs(&skip.id).await.len() == 3 && world.runs(&queue.id).await.len() == 3
    })
    .await;
    assert_eq!(world.job(&skip.id).await.state.skipped_in_a_row, 2);
    world.model.held.send_replace(false);
    world.idle().await;
    assert_eq!(world.statuses(&skip.id).await, ["ok", "skipped", "skipped"]);
    assert_eq!(world.statuses(&queue.id).await, ["ok", "ok", "skipped"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s18_four_runs_at_once_and_catch_up_starts_are_spread() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { held: true, ..Setup::default() }).await;
    let mut ids = Vec::new();
    for _ in 0..7 {
        ids.push(world.every(60).await.id);
    }
    world.clock.set(START + HOUR_MS);
    let states = async || {
        let runs = world.flow.api_history(&OPERATOR, CronHistoryParams::default()).await.unwrap().runs;
        let count = |status: &str| runs.iter().filter(|run| run.status == status).count();
        (count("running"), count("queued"))
    };
    eventually("four run", async || states().await == (4, 3)).await;
    world.model.held.send_replace(false);
    world.idle().await;
    world.stop().await;
    // After a pause all of them catch up, at least five seconds apart.
    let now = START + 2 * HOUR_MS + 10 * MINUTE_MS;
    let world = World::open(folder.path(), Setup { now, works: false, ..Setup::default() }).await;
    world.flow.admit_due(None).await.unwrap();
    let mut starts = Vec::new();
    for id in &ids {
        starts.push(world.flow.parts.database.live_cron_runs(id).await.unwrap()[0].not_before);
    }
    starts.sort_unstable();
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 5 * SECOND_MS), "{starts:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s19_errors_back_off_notify_and_pause() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), failing()).await;
    let job = world.every(1).await;
    let mut now = START;
    let mut gaps = Vec::new();
    for _ in 0..10 {
        let due = world.row(&job.id).await.state.due_at.unwrap();
        gaps.push((due - now) / SECOND_MS);
        now = due;
        world.at(now).await;
    }
    // The schedule is one minute, the backoff 30 s, 1, 5, 15 and 60 minutes.
    assert_eq!(gaps, [60, 60, 60, 300, 900, 3_600, 3_600, 3_600, 3_600, 3_600]);
    let paused = world.job(&job.id).await;
    let pause = paused.state.paused.as_ref().unwrap();
    assert_eq!((pause.count, paused.enabled), (10, true), "{pause:?}");
    assert_eq!(paused.state.next_run_at_ms, None);
    let titles: Vec<String> = world.messages().await.into_iter().map(|(title, _)| title).collect();
    let count = |title: &str| titles.iter().filter(|found| *found == title).count();
    assert_eq!((count("A scheduled run failed"), count("A job is paused")), (2, 1), "{titles:?}");
    world.at(now + DAY_MS).await;
    assert_eq!(world.row(&job.id).await.state.errors, 10, "it stays paused");
    let resumed = world.flow.api_resume(&OPERATOR, &job.id).await.unwrap();
    assert!(resumed.state.paused.is_none() && resumed.state.next_run_at_ms.is_some());
    assert_eq!(resumed.state.consecutive_errors, 0);
    world.stop().await;
}

/// A receiver that answers every request with one status. Returns its URL.
async fn receiver(status: &'static str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = vec![0; 65_536];
                let _ = stream.read(&mut buffer).await;
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn s20_failed_delivery_is_an_error_of_the_run_unless_it_is_best_effort() {
    let folder = tempfile::tempdir().unwrap();
    let hook = |url| WebhookConfig { url, secret: None };
    let webhooks = [
        ("good".to_owned(), hook(receiver("204 No Content").await)),
        ("bad".to_owned(), hook(receiver("404 Not Found").await)),
    ];
    let config = FlowConfig { webhooks: webhooks.into(), ..FlowConfig::default() };
    let world = World::open(folder.path(), Setup { config, ..Setup::default() }).await;
    let at = json!({"kind": "at", "at": "in 5 minutes"});
    let job = |channel: &str, best: bool| {
        let spec = json!({"mode": "task", "message": "x", "channel": channel, "bestEffortDeliver": best});
        json!({"name": channel, "schedule": at, "spec": spec})
    };
    let unknown = world.flow.api_add(&OPERATOR, input(job("telegram", false))).await.unwrap_err().to_string();
    assert!(unknown.contains("session, bad, good"), "{unknown}");
    let good = world.add(job("good", false)).await.id;
    let bad = world.add(job("bad", false)).await.id;
    let best = world.add(job("bad", true)).await.id;
    world.at(START + 5 * MINUTE_MS).await;
    eventually("the deliveries end", async || {
        let mut ends = Vec::new();
        for id in [&good, &bad, &best] {
            ends.push(world.runs(id).await[0].delivery.clone());
        }
        ends == ["sent", "failed", "failed"]
    })
    .await;
    assert_eq!(world.statuses(&good).await, ["ok"]);
    let failed = &world.runs(&bad).await[0];
    assert_eq!(failed.status, "error");
    assert!(failed.error.as_ref().unwrap().starts_with("delivered nowhere"), "{failed:?}");
    assert_eq!(world.statuses(&best).await, ["ok"]);
    eventually("the owner is notified", async || {
        world.messages().await.iter().filter(|(title, _)| title == "A message could not be delivered").count()
            == 2
    })
    .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s21_run_that_asks_is_parked_frees_its_place_and_continues_when_answered() {
    let folder = tempfile::tempdir().unwrap();
    let script = |request: &gantry_model::Request| match results(request) {
        0 => calls("note", json!({"text": "x"})),
        _ => says("noted"),
    };
    let setup = |autonomy| Setup { autonomy, script: Arc::new(script), ..Setup::default() };
    let world = World::open(folder.path(), setup(Autonomy::Supervised)).await;
    let job = world.every(10).await;
    world.clock.set(START + 10 * MINUTE_MS);
    world.reached(&job.id, "parked").await;
    eventually("the place is free", async || world.flow.jobs.slots.available_permits() == super::MAX_RUNS)
        .await;
    assert!(world.notes().is_empty());
    // The time limit does not count while it waits.
    world.clock.set(START + 3 * HOUR_MS);
    let run = world.runs(&job.id).await[0].clone();
    let key = world.flow.parts.sessions.key(run.session_key.as_ref().unwrap(), None).unwrap();
    world.flow.parts.sessions.answer(&key, None, ApprovalDecision::Yes, "operator").await.unwrap();
    eventually("it ends", async || world.runs(&job.id).await[0].status == "ok").await;
    assert_eq!(world.notes(), ["x"]);
    assert!(world.messages().await.iter().any(|(title, _)| title == "A scheduled run asks"));
    world.stop().await;

    // Nobody is asked for an autonomous agent: the call is denied or allowed by its rules, never parked.
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), setup(Autonomy::Autonomous)).await;
    let job = world.every(10).await;
    world.at(START + 10 * MINUTE_MS).await;
    assert_eq!(world.statuses(&job.id).await, ["ok"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s22_idle_asks_no_model_and_writes_nothing_and_runs_have_budgets() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default()).await;
    let mut last = String::new();
    for _ in 0..20 {
        last = world.every(10).await.id;
    }
    world.idle().await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let wal = folder.path().join("data/gateway.db-wal");
    let state = || std::fs::metadata(&wal).map(|found| (found.len(), found.modified().unwrap())).unwrap();
    let before = state();
    for seconds in 1..500 {
        world.clock.set(START + seconds * SECOND_MS);
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(state(), before);
    assert!(world.model.requests.lock().unwrap().is_empty());
    world.at(START + 10 * MINUTE_MS).await;
    let askers: Vec<String> =
        world.model.askers.lock().unwrap().iter().map(|asker| format!("{asker:?}")).collect();
    let shown = askers.iter().find(|asker| asker.contains(&last)).unwrap();
    assert!(shown.contains(&format!("cron:{last}:2026-03-04")), "{shown}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s27_active_job_without_a_next_run_is_armed_again() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { works: false, ..Setup::default() }).await;
    let job = world.every(10).await;
    let row = world.row(&job.id).await;
    world.flow.parts.database.arm_cron_job(&row, None, None).await.unwrap();
    assert!(Job::of(world.row(&job.id).await).unwrap().is_active());
    world.clock.set(START + 15 * MINUTE_MS);
    world.flow.check_jobs().await.unwrap();
    assert_eq!(world.row(&job.id).await.state.next_at, Some(START + 20 * MINUTE_MS));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s28_manual_runs_never_move_the_schedule() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default()).await;
    let job = world.every(10).await;
    world.clock.set(START + 5 * MINUTE_MS);
    for _ in 0..2 {
        world.flow.api_run(&OPERATOR, &job.id).await.unwrap();
        world.idle().await;
    }
    let row = world.row(&job.id).await;
    assert_eq!((row.state.next_at, row.state.errors), (Some(START + 10 * MINUTE_MS), 0));
    world.at(START + 10 * MINUTE_MS).await;
    let kinds: Vec<String> = world.runs(&job.id).await.into_iter().map(|run| run.kind).collect();
    assert_eq!(kinds, ["manual", "manual", "due"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s29_lateness_and_outcomes_are_in_the_history() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default()).await;
    let job = world.every(60).await;
    world.at(START + HOUR_MS + 20 * MINUTE_MS).await;
    let run = &world.runs(&job.id).await[0];
    assert_eq!(
        (run.kind.as_str(), run.started_at_ms.unwrap() - run.scheduled_at_ms),
        ("catchup", 20 * MINUTE_MS)
    );
    world.at(START + 3 * HOUR_MS - 5 * MINUTE_MS).await;
    assert_eq!(world.statuses(&job.id).await, ["ok", "missed"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_takes_too_long_ends_with_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { held: true, ..Setup::default() }).await;
    let spec = json!({"mode": "task", "message": "x", "timeoutSeconds": 90});
    let job = world
        .add(json!({"name": "j", "schedule": {"kind": "every", "everyMinutes": 10}, "spec": spec}))
        .await;
    world.clock.set(START + 10 * MINUTE_MS);
    world.reached(&job.id, "running").await;
    world.clock.set(START + 10 * MINUTE_MS + 91 * SECOND_MS);
    world.reached(&job.id, "error").await;
    assert!(world.runs(&job.id).await[0].error.as_ref().unwrap().contains("90 seconds"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn system_event_speaks_in_the_main_session_and_is_never_a_command() {
    let folder = tempfile::tempdir().unwrap();
    let seen = Arc::new(AtomicI64::new(0));
    let count = seen.clone();
    let script = move |request: &gantry_model::Request| {
        count.fetch_add(i64::from(texts(request).contains("/new")), Ordering::SeqCst);
        says("understood")
    };
    let world = World::open(folder.path(), Setup { script: Arc::new(script), ..Setup::default() }).await;
    let spec = json!({"mode": "systemEvent", "text": "/new"});
    let job =
        world.add(json!({"name": "e", "schedule": {"kind": "at", "in": "in 5 minutes"}, "spec": spec})).await;
    world.at(START + 5 * MINUTE_MS).await;
    let run = &world.runs(&job.id).await[0];
    assert_eq!(
        (run.status.as_str(), run.summary.as_deref(), run.delivery.as_str()),
        ("ok", Some("understood"), "sent")
    );
    assert_eq!(run.session_key.as_deref(), Some("agent:main:main"));
    assert_eq!(seen.load(Ordering::SeqCst), 1, "the agent got the text");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn carry_gives_the_last_answer_to_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let script = |request: &gantry_model::Request| {
        says(if texts(request).contains("first answer") { "saw it" } else { "first answer" })
    };
    let world = World::open(folder.path(), Setup { script: Arc::new(script), ..Setup::default() }).await;
    let job = world
        .add(json!({"name": "j", "schedule": {"kind": "every", "everyMinutes": 10}, "spec": task("x"), "carry": "summary"}))
        .await;
    world.at(START + 10 * MINUTE_MS).await;
    world.at(START + 20 * MINUTE_MS).await;
    let answers: Vec<Option<String>> = world.runs(&job.id).await.into_iter().map(|run| run.summary).collect();
    assert_eq!(answers, [Some("first answer".to_owned()), Some("saw it".to_owned())]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_wrong_is_listed_at_once_and_nothing_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup { works: false, ..Setup::default() }).await;
    let wrong = json!({
        "name": " ",
        "schedule": {"kind": "cron", "expr": "99 * * * *", "tz": "Mars/Base", "everyMinutes": 5},
        "spec": {"mode": "task", "message": "", "channel": "fax", "thinking": "hard", "timeoutSeconds": 0},
        "catchUp": "all", "overlap": "both", "jitterSeconds": 4000, "carry": "x",
    });
    let why = world.flow.api_add(&OPERATOR, input(wrong)).await.unwrap_err().to_string();
    for field in [
        "name:",
        "schedule.everyMinutes:",
        "99 * * * *",
        "Mars/Base",
        "spec.message:",
        "spec.channel:",
        "spec.thinking:",
        "spec.timeoutSeconds:",
        "catchUp:",
        "overlap:",
        "jitterSeconds:",
        "carry:",
    ] {
        assert!(why.contains(field), "{field} is not in {why}");
    }
    assert_eq!(world.flow.api_list(&OPERATOR, CronListParams::default()).await.unwrap().count, 0);
    world.stop().await;
}

/// An agent that adds a job, in the words of the tool.
fn adding(action: Value) -> crate::testing::Script {
    Arc::new(move |request| match (texts(request).contains("please add"), results(request)) {
        (true, 0) => calls("gsv__Cron", action.clone()),
        (true, _) => says(&texts(request)),
        _ => says("ran"),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn s32_job_of_an_agent_runs_only_after_a_persons_yes() {
    let job = json!({"name": "j", "schedule": {"kind": "every", "everyMinutes": 10}, "spec": task("work")});
    let add = json!({"action": "add", "job": job});
    for (answer, stored) in [(ApprovalDecision::Yes, 1), (ApprovalDecision::No, 0)] {
        let folder = tempfile::tempdir().unwrap();
        let world =
            World::open(folder.path(), Setup { script: adding(add.clone()), ..Setup::default() }).await;
        let sessions = &world.flow.parts.sessions;
        let key = sessions.key("main", None).unwrap();
        let message = gantry_agent::NewMessage {
            text: "please add it".into(),
            from: "operator".into(),
            ..Default::default()
        };
        sessions.send(&key, message).await.unwrap();
        eventually("the question", async || {
            sessions.status(&key).await.is_ok_and(|status| !status.questions.is_empty())
        })
        .await;
        let question = sessions.status(&key).await.unwrap().questions[0].clone();
        assert_eq!(question.rule, "unattended");
        assert!(question.offers.is_empty(), "no grant answers it");
        let shown = format!("{:?}", question.action);
        assert!(shown.contains("work") && shown.contains("every 10 minutes"), "{shown}");
        sessions.answer(&key, None, answer, "operator").await.unwrap();
        eventually("the run ends", async || sessions.status(&key).await.unwrap().running.is_none()).await;
        let jobs = world.flow.api_list(&OPERATOR, CronListParams::default()).await.unwrap().jobs;
        assert_eq!(jobs.len(), stored);
        if let Some(job) = jobs.first() {
            assert!(job.confirmed_by.is_some());
            world.at(START + 10 * MINUTE_MS).await;
            assert_eq!(world.statuses(&job.id).await, ["ok"]);
        }
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s32_without_a_person_the_job_waits_for_confirm() {
    let job = json!({"name": "j", "schedule": {"kind": "every", "everyMinutes": 10}, "spec": task("work")});
    let script = adding(json!({"action": "add", "job": job}));
    let folder = tempfile::tempdir().unwrap();
    let world =
        World::open(folder.path(), Setup { script, autonomy: Autonomy::Autonomous, ..Setup::default() })
            .await;
    let sessions = &world.flow.parts.sessions;
    let key = sessions.key("main", None).unwrap();
    let message = gantry_agent::NewMessage {
        text: "please add it".into(),
        from: "operator".into(),
        ..Default::default()
    };
    sessions.send(&key, message).await.unwrap();
    eventually("the job", async || {
        world.flow.api_list(&OPERATOR, CronListParams::default()).await.unwrap().count == 1
    })
    .await;
    let job = world.flow.api_list(&OPERATOR, CronListParams::default()).await.unwrap().jobs.remove(0);
    assert_eq!((job.confirmed_by.clone(), job.state.next_run_at_ms), (None, None));
    world.at(START + HOUR_MS).await;
    world.flow.check_jobs().await.unwrap();
    assert!(world.runs(&job.id).await.is_empty());
    assert!(world.flow.api_run(&OPERATOR, &job.id).await.is_err(), "not even by hand");
    assert!(
        world
            .messages()
            .await
            .iter()
            .any(|(title, text)| title == "A job waits for your yes" && text.contains("work"))
    );
    let confirmed = world.flow.api_confirm(&OPERATOR, &job.id).await.unwrap();
    assert_eq!(confirmed.confirmed_by.as_deref(), Some("operator"));
    world.at(START + 2 * HOUR_MS).await;
    assert!(!world.runs(&job.id).await.is_empty());
    world.stop().await;
}
