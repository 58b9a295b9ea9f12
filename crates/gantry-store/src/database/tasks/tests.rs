use super::*;
use crate::database::task_runs::{FinishedTaskRun, NewTaskRun};
use crate::database::testing::database;

fn row(id: &str, parent: Option<&str>) -> TaskRow {
    TaskRow {
        id: id.to_owned(),
        rev: 1,
        agent: "main".to_owned(),
        parent: parent.map(str::to_owned),
        scope: "global".to_owned(),
        kind: "scheduled".to_owned(),
        status: "open".to_owned(),
        priority: 2,
        due: None,
        assignee: None,
        title: id.to_owned(),
        definition: "{}".to_owned(),
        authority: "{}".to_owned(),
        confirmed_by: Some("operator".to_owned()),
        created: 1,
        updated: 1,
        completed: None,
        next_at: Some(100),
        errors: 0,
        last_run_at: None,
        last_status: None,
        last_result: None,
        running: false,
    }
}

fn run(id: &str, at: i64) -> NewTaskRun {
    NewTaskRun {
        id: id.to_owned(),
        task: "a".to_owned(),
        scheduled_at: at,
        snapshot: "{}".to_owned(),
        session: format!("agent:main:task:{id}"),
    }
}

#[tokio::test]
async fn one_of_two_processes_admits_and_runs_a_due_task() {
    let (_folder, database) = database().await;
    database.add_task(&row("a", None)).await.unwrap();
    assert_eq!(database.next_task().await.unwrap(), Some(100));
    assert!(database.admit_task("a", 100, Some(200), Some(&run("r1", 100)), &[], 100).await.unwrap());
    assert!(!database.admit_task("a", 100, Some(200), Some(&run("r2", 100)), &[], 100).await.unwrap());
    let claimed = database.claim_task_run("one", 101).await.unwrap().unwrap();
    assert_eq!((claimed.id.as_str(), claimed.epoch), ("r1", 1));
    assert_eq!(database.claim_task_run("two", 101).await.unwrap(), None);
    assert_eq!(database.next_task().await.unwrap(), Some(200));
}

#[tokio::test]
async fn process_that_lost_a_run_cannot_finish_it() {
    let (_folder, database) = database().await;
    database.add_task(&row("a", None)).await.unwrap();
    database.admit_task("a", 100, None, Some(&run("r1", 100)), &[], 100).await.unwrap();
    let lost = database.claim_task_run("one", 101).await.unwrap().unwrap();
    let adopted = database.adopt_task_runs("two").await.unwrap();
    let end = |run| FinishedTaskRun {
        run,
        state: "ok",
        result: Some("done".to_owned()),
        error: None,
        cost: 5,
        status: Some(TaskStatus::Completed),
        errors: 0,
        ends: true,
        pause: None,
    };
    assert!(!database.finish_task_run(&end(&lost), 102).await.unwrap());
    assert_eq!(database.task("a").await.unwrap().unwrap().status, "open");
    assert!(database.finish_task_run(&end(&adopted[0]), 102).await.unwrap());
    let task = database.task("a").await.unwrap().unwrap();
    assert_eq!(
        (task.status.as_str(), task.last_result.as_deref(), task.running),
        ("completed", Some("done"), false)
    );
    assert!(database.adopt_task_runs("three").await.unwrap().is_empty());
}

#[tokio::test]
async fn final_status_reaches_open_subtasks_of_any_depth() {
    let (_folder, database) = database().await;
    for (id, parent) in [("a", None), ("b", Some("a")), ("c", Some("b")), ("d", None)] {
        database.add_task(&row(id, parent)).await.unwrap();
    }
    let mut changed = database.task("a").await.unwrap().unwrap();
    (changed.status, changed.completed) = ("completed".to_owned(), Some(9));
    let mut ended = database.update_task(&changed).await.unwrap().unwrap();
    ended.sort();
    assert_eq!(ended, ["a", "b", "c"]);
    assert_eq!(database.update_task(&changed).await.unwrap(), None, "it has changed since it was read");
    let filter = TaskFilter { statuses: vec![TaskStatus::Completed], limit: 2, ..TaskFilter::default() };
    let (listed, total) = database.list_tasks(&filter).await.unwrap();
    assert_eq!((listed.len(), total), (2, 3));
}

#[tokio::test]
async fn subtasks_may_be_nested_ten_levels_deep() {
    let (_folder, database) = database().await;
    database.add_task(&row("0", None)).await.unwrap();
    for level in 1..=MAX_DEPTH {
        let parent = (level - 1).to_string();
        database.add_task(&row(&level.to_string(), Some(&parent))).await.unwrap();
    }
    let refused = database.add_task(&row("x", Some("10"))).await.unwrap_err();
    assert!(refused.to_string().contains("at most 10 levels"), "{refused}");
}

#[tokio::test]
async fn s23_sessions_of_finished_tasks_are_removed_after_30_days() {
    const DAY: i64 = 24 * 3600 * 1000;
    let (_folder, database) = database().await;
    let journal = crate::Journal::new(database.clone());
    for id in ["a", "done"] {
        database.add_task(&row(id, None)).await.unwrap();
        for number in 0..12 {
            let id = format!("{id}-{number:02}");
            let task = id.split('-').next().unwrap().to_owned();
            let run = NewTaskRun { task, scheduled_at: number, ..run(&id, 0) };
            database.add_manual_task_run(&run, number).await.unwrap();
            journal.open(&run.session, "main", number).await.unwrap();
            let claimed = database.claim_task_run("one", number).await.unwrap().unwrap();
            let (state, status) =
                ("ok", (number == 11 && run.task == "done").then_some(TaskStatus::Completed));
            let end = FinishedTaskRun {
                run: &claimed,
                state,
                result: None,
                error: None,
                cost: 0,
                status,
                errors: 0,
                ends: false,
                pause: None,
            };
            assert!(database.finish_task_run(&end, number).await.unwrap());
        }
    }
    journal.open("agent:main:main", "main", 0).await.unwrap();
    database.sweep_tasks(29 * DAY).await.unwrap();
    assert!(journal.exists("agent:main:task:done-00").await.unwrap());
    database.sweep_tasks(31 * DAY).await.unwrap();
    for number in 0..12 {
        let of_open = journal.exists(&format!("agent:main:task:a-{number:02}")).await.unwrap();
        assert_eq!(of_open, number >= 2, "{number}: the last ten of an open task stay");
        assert!(!journal.exists(&format!("agent:main:task:done-{number:02}")).await.unwrap(), "{number}");
    }
    assert!(journal.exists("agent:main:main").await.unwrap());
}
