//! What becomes of due jobs: admission, catch-up, overlap, clocks and time zones.

use super::*;

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
    assert_eq!(world.flow.admit_due(None, None).await.unwrap().len(), 1);
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
    let (first, second) = tokio::join!(one.flow.admit_due(None, None), two.flow.admit_due(None, None));
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
    assert!(world.flow.admit_due(None, None).await.unwrap().is_empty());
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
    world.flow.admit_due(None, None).await.unwrap();
    let mut starts = Vec::new();
    for id in &ids {
        starts.push(world.flow.parts.database.live_cron_runs(id).await.unwrap()[0].not_before);
    }
    starts.sort_unstable();
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 5 * SECOND_MS), "{starts:?}");
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
