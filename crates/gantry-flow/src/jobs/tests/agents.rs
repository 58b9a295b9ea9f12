//! Jobs that agents add, and input that is rejected.

use super::*;

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
    let confirmed = world.flow.api_confirm(&OPERATOR, &job.id, None).await.unwrap();
    assert_eq!(confirmed.confirmed_by.as_deref(), Some("operator"));
    world.at(START + 2 * HOUR_MS).await;
    assert!(!world.runs(&job.id).await.is_empty());
    world.stop().await;
}
