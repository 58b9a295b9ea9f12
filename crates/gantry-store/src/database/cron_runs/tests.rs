use super::*;
use crate::database::cron_occurrences::{Admission, MAX_HISTORY_ROWS, NewCronRun, NewOccurrence};
use crate::database::testing::database;
use crate::{CronJobRow, CronState, Journal};

const DAY: i64 = 24 * 3600 * 1000;

async fn job(database: &Database, id: &str) {
    let state = CronState { next_at: Some(10), due_at: Some(10), ..CronState::default() };
    let row = CronJobRow {
        id: id.into(),
        rev: 1,
        agent: "main".into(),
        enabled: true,
        state,
        ..CronJobRow::default()
    };
    database.add_cron_job(&row, None, 200).await.unwrap();
}

fn admission(job: &str, expected: i64, run: &str) -> Admission {
    let new = NewCronRun {
        id: run.into(),
        snapshot: "{}".into(),
        session: Some(format!("agent:main:cron:{run}")),
        not_before: expected,
        best_effort: false,
    };
    Admission {
        job: job.into(),
        agent: "main".into(),
        rev: 1,
        expected_next: expected,
        next_at: Some(expected + 10),
        due_at: Some(expected + 10),
        skipped: 0,
        occurrences: vec![NewOccurrence {
            scheduled_at: expected,
            through: expected,
            kind: "due",
            outcome: "admitted",
            reason: None,
            run: Some(new),
        }],
        ends: None,
        messages: Vec::new(),
    }
}

async fn ran(database: &Database, job: &str, expected: i64, run: &str, at: i64) {
    assert_eq!(database.admit_cron(&[admission(job, expected, run)], at).await.unwrap(), [true]);
    let claimed = database.claim_cron_runs("me", 1, at.max(expected)).await.unwrap();
    let end = FinishedRun {
        run: &claimed[0],
        state: "ok",
        error: None,
        summary: None,
        answer: None,
        cost: 0,
        delivery: "none",
        messages: Vec::new(),
        job: Some(JobAfterRun::default()),
    };
    assert!(database.finish_cron_run(&end, at).await.unwrap());
    assert!(!database.finish_cron_run(&end, at).await.unwrap(), "an ended run does not end again");
}

#[tokio::test]
async fn s03_occurrence_is_admitted_once_and_only_by_the_known_revision_and_time() {
    let (_folder, database) = database().await;
    job(&database, "j").await;
    let first = admission("j", 10, "r1");
    let stale = Admission { rev: 2, ..admission("j", 10, "r2") };
    let again = admission("j", 10, "r3");
    assert_eq!(database.admit_cron(&[stale, first, again], 10).await.unwrap(), [false, true, false]);
    let (history, count) = database.cron_history(Some("j"), None, 10, 0).await.unwrap();
    assert_eq!((history[0].run.as_ref().unwrap().id.as_str(), count), ("r1", 1));
    // A clock that went back reaches the same instant: no second run.
    let row = database.cron_job("j").await.unwrap().unwrap();
    assert!(database.arm_cron_job(&row, Some(10), Some(10)).await.unwrap());
    assert_eq!(database.admit_cron(&[admission("j", 10, "r4")], 10).await.unwrap(), [true]);
    assert_eq!(database.cron_history(Some("j"), None, 10, 0).await.unwrap().1, 1);
    assert!(database.find_cron_runs("r4").await.unwrap().is_empty());
}

#[tokio::test]
async fn s07_writes_of_a_process_that_lost_its_run_change_nothing() {
    let (_folder, database) = database().await;
    job(&database, "j").await;
    database.admit_cron(&[admission("j", 10, "r1")], 10).await.unwrap();
    let old = database.claim_cron_runs("old", 4, 10).await.unwrap().remove(0);
    assert!(database.adopt_cron_runs("old").await.unwrap().is_empty());
    let adopted = database.adopt_cron_runs("new").await.unwrap().remove(0);
    assert_eq!((adopted.epoch, adopted.owner.as_deref()), (old.epoch + 1, Some("new")));
    assert!(!database.park_cron_run(&old, true).await.unwrap());
    assert!(database.park_cron_run(&adopted, true).await.unwrap());
}

#[tokio::test]
async fn s23_sessions_of_old_runs_are_removed_except_the_last_ten() {
    let (_folder, database) = database().await;
    let journal = Journal::new(database.clone());
    job(&database, "j").await;
    for number in 0..15 {
        let run = format!("r{number:02}");
        journal.open(&format!("agent:main:cron:{run}"), "main", number).await.unwrap();
        ran(&database, "j", 10 + number * 10, &run, 10 + number * 10).await;
    }
    journal.open("agent:main:main", "main", 0).await.unwrap();
    assert_eq!(database.sweep_cron(29 * DAY).await.unwrap(), 0);
    assert_eq!(database.sweep_cron(31 * DAY).await.unwrap(), 5);
    for number in 0..15 {
        let there = journal.exists(&format!("agent:main:cron:r{number:02}")).await.unwrap();
        assert_eq!(there, number >= 5, "{number}");
    }
    assert!(journal.exists("agent:main:main").await.unwrap());
}

#[tokio::test]
async fn history_of_a_job_is_bounded() {
    let (_folder, database) = database().await;
    job(&database, "j").await;
    for number in 0..MAX_HISTORY_ROWS + 5 {
        ran(&database, "j", 10 + number * 10, &format!("r{number:03}"), 10 + number * 10).await;
    }
    let (_, count) = database.cron_history(Some("j"), None, 1, 0).await.unwrap();
    assert_eq!(i64::try_from(count).unwrap(), MAX_HISTORY_ROWS);
    assert!(database.find_cron_runs("r000").await.unwrap().is_empty());
}
