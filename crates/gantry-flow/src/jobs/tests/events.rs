//! Events and metrics of runs.

use gantry_protocol::{RunEvent, RunKind};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn run_that_asks_publishes_start_question_answer_and_end() {
    let folder = tempfile::tempdir().unwrap();
    let script = |request: &gantry_model::Request| match results(request) {
        0 => calls("note", json!({"text": "x"})),
        _ => says("noted"),
    };
    let setup = Setup { autonomy: Autonomy::Supervised, script: Arc::new(script), ..Setup::default() };
    let world = World::open(folder.path(), setup).await;
    let mut events = world.flow.follow_all_runs();
    let job = world.every(10).await;
    world.clock.set(START + 10 * MINUTE_MS);
    world.reached(&job.id, "parked").await;
    let run = world.runs(&job.id).await[0].clone();
    let session = run.session_key.clone().unwrap();
    let key = world.flow.parts.sessions.key(&session, None).unwrap();
    world.flow.parts.sessions.answer(&key, None, ApprovalDecision::Yes, "operator").await.unwrap();
    let mut heard = Vec::new();
    while !matches!(heard.last(), Some(RunEvent::Ended { .. })) {
        let data = tokio::time::timeout(std::time::Duration::from_secs(20), events.recv()).await;
        let data = data.unwrap_or_else(|_| panic!("no further event after {heard:?}")).unwrap();
        assert_eq!(
            (data.kind, Some(&data.run_id), &data.source_id),
            (RunKind::Schedule, run.run_id.as_ref(), &job.id)
        );
        assert_eq!((data.name.as_str(), data.agent.as_str()), ("j", "main"));
        heard.push(data.event.clone());
    }
    let session_key = session.clone();
    assert_eq!(
        heard,
        [
            RunEvent::Started { session_key: Some(session.clone()), resumed: false },
            RunEvent::Waiting { session_key: session.clone(), step: None },
            RunEvent::Continued { session_key, step: None },
            RunEvent::Ended { status: "ok".into(), error: None, duration_ms: 0 },
        ]
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s29_metrics_count_occurrences_lateness_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default()).await;
    world.every(60).await;
    world.at(START + HOUR_MS + 20 * MINUTE_MS).await;
    world.at(START + 3 * HOUR_MS - 5 * MINUTE_MS).await;
    let page = world.flow.metrics_text().await;
    for line in [
        "gantry_cron_occurrences_total{outcome=\"admitted\"} 1",
        "gantry_cron_occurrences_total{outcome=\"missed\"} 1",
        "gantry_cron_lateness_ms_sum 1200000.0",
        "gantry_cron_lateness_ms_bucket{le=\"600000.0\"} 0",
        "gantry_cron_lateness_ms_bucket{le=\"3600000.0\"} 1",
        "gantry_cron_oldest_due_age_ms 0",
        "gantry_runs_total{kind=\"schedule\",status=\"ok\"} 1",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
    }
    world.stop().await;
    // A worker that does not run leaves due work behind.
    let setup = Setup { works: false, now: START + 5 * HOUR_MS, ..Setup::default() };
    let world = World::open(folder.path(), setup).await;
    let page = world.flow.metrics_text().await;
    assert!(page.contains(&format!("gantry_cron_oldest_due_age_ms {}\n", 2 * HOUR_MS)), "{page}");
    world.stop().await;
}
