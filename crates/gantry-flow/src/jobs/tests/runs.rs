//! Runs of jobs: their ends, errors, questions, deliveries and budgets.

use super::*;

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
    world.flow.admit_due(None, None).await.unwrap();
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
    eventually("the place is free", async || world.flow.slots.free() == crate::slots::MAX_RUNS).await;
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

/// Sessions use the system's clock, so the limit and what happens at its end are two checks.
#[tokio::test(flavor = "multi_thread")]
async fn s21_question_of_a_run_expires_after_24_hours_and_expiry_denies() {
    let folder = tempfile::tempdir().unwrap();
    let script = |request: &gantry_model::Request| match results(request) {
        0 => calls("note", json!({"text": "x"})),
        _ => says(&format!("{:?}", request.messages.last().unwrap())),
    };
    let setup = Setup { autonomy: Autonomy::Supervised, script: Arc::new(script), ..Setup::default() };
    let world = World::open(folder.path(), setup).await;
    let sessions = &world.flow.parts.sessions;
    let job = world.every(10).await;
    world.clock.set(START + 10 * MINUTE_MS);
    world.reached(&job.id, "parked").await;
    let key = world.runs(&job.id).await[0].session_key.clone().unwrap();
    let question = sessions.status(&sessions.key(&key, None).unwrap()).await.unwrap().questions.remove(0);
    let left = question.expires - jiff::Timestamp::now().as_millisecond();
    assert!((left - DAY_MS).abs() < 5 * MINUTE_MS, "{left}");
    // The same session with a limit that is over at once.
    let spec = gantry_agent::BackgroundSpec {
        conversation: "cron:expired".into(),
        label: "expired".into(),
        work: gantry_agent::BackgroundWork::Message("go".into()),
        authority: sessions.own_authority("main", "operator").unwrap(),
        labels: Vec::new(),
        role: None,
        model: None,
        thinking: None,
        effort: None,
        tools: Vec::new(),
        max_turns: None,
        account: "cron:expired".into(),
        budgets: Vec::new(),
        approval_minutes: 0,
    };
    let end = sessions.start_background(spec).await.unwrap().end_of_session().await;
    let answer = end.outcome.unwrap();
    assert!(answer.contains("is_error: true") && answer.contains("did not answer in time"), "{answer}");
    assert!(world.notes().is_empty(), "a question without an answer is a no");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s23_every_run_has_a_session_of_its_own_and_the_last_ten_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let script = |_: &gantry_model::Request| says("done");
    let world = World::open(folder.path(), Setup { script: Arc::new(script), ..Setup::default() }).await;
    let job = world.every(10).await;
    for number in 1..=12 {
        world.at(START + number * 10 * MINUTE_MS).await;
    }
    let runs = world.runs(&job.id).await;
    let sessions: Vec<String> = runs.into_iter().filter_map(|run| run.session_key).collect();
    let mut apart = sessions.clone();
    apart.sort();
    apart.dedup();
    assert_eq!((sessions.len(), apart.len()), (12, 12));
    let journal = gantry_store::Journal::new(world.flow.parts.database.clone());
    // Sessions use the system's clock.
    let later = jiff::Timestamp::now().as_millisecond() + 31 * DAY_MS;
    assert_eq!(world.flow.parts.database.sweep_cron(later).await.unwrap(), 2);
    for (number, session) in sessions.iter().enumerate() {
        assert_eq!(journal.exists(session).await.unwrap(), number >= 2, "run {number}");
    }
    world.stop().await;
}
