use super::*;

fn known<'a>(scopes: &'a [String], agents: &'a [String]) -> Known<'a> {
    Known { scopes, agents, own_agent: "main", zone: "Europe/Berlin", now: 1_800_000_000_000 }
}

fn checked(new: &NewTask) -> Result<Checked, Vec<String>> {
    let scopes = ["global", "user:owner", "project:site"].map(str::to_owned);
    check(new, &known(&scopes, &["main".to_owned(), "scout".to_owned()]))
}

fn titled() -> NewTask {
    NewTask { title: "Water the plants".to_owned(), ..NewTask::default() }
}

#[test]
fn kind_follows_the_precedence_pipeline_schedule_watch_manual() {
    let all = NewTask {
        pipeline_id: Some("p".to_owned()),
        schedule: Some("1h".to_owned()),
        watch_url: Some("https://example.org/".to_owned()),
        ..titled()
    };
    let kind = |new: &NewTask| checked(new).unwrap().kind;
    assert_eq!(kind(&all), TaskKind::Pipeline);
    assert_eq!(kind(&NewTask { pipeline_id: None, ..all.clone() }), TaskKind::Scheduled);
    assert_eq!(kind(&NewTask { pipeline_id: None, schedule: None, ..all.clone() }), TaskKind::Watch);
    assert_eq!(kind(&titled()), TaskKind::Manual);
    let watch = checked(&NewTask { pipeline_id: None, schedule: None, ..all }).unwrap();
    assert_eq!(watch.definition.watch_interval_minutes, Some(60));
}

#[test]
fn everything_wrong_is_listed_at_once() {
    let wrong = checked(&NewTask {
        title: " ".to_owned(),
        due_date: Some("2026-13-01".to_owned()),
        scope: Some("project:other".to_owned()),
        tags: Some(vec![String::new()]),
        schedule: Some("every now and then".to_owned()),
        watch_url: Some("file:///etc/passwd".to_owned()),
        watch_interval_minutes: Some(4),
        params: Some(Map::new()),
        assignee: Some("scuot".to_owned()),
        ..NewTask::default()
    })
    .unwrap_err();
    let fields: Vec<&str> = wrong.iter().filter_map(|problem| problem.split(':').next()).collect();
    let expected = [
        "title",
        "due_date",
        "scope",
        "tags",
        "assignee",
        "schedule",
        "watch_url",
        "watch_interval_minutes",
        "params",
    ];
    assert_eq!(fields, expected, "{wrong:#?}");
    assert!(wrong[2].contains("active scopes are global, user:owner, project:site"), "{}", wrong[2]);
    assert!(wrong[4].ends_with("did you mean \"scout\"?"), "{}", wrong[4]);
}

#[test]
fn dates_have_one_form() {
    for good in ["2026-02-28", "2028-02-29"] {
        assert_eq!(date_problem(good), None);
    }
    for bad in ["2026-02-29", "2026-2-28", "28.02.2026", "tomorrow", "2026-02-28T10:00", ""] {
        assert!(date_problem(bad).is_some(), "{bad}");
    }
}

#[test]
fn assignee_names_the_agent_in_several_ways() {
    let assigned = |assignee: &str| checked(&NewTask { assignee: Some(assignee.to_owned()), ..titled() });
    for (given, stored) in [("user", "user"), ("agent", "main"), ("nodyn", "main"), ("scout", "scout")] {
        assert_eq!(assigned(given).unwrap().assignee.as_deref(), Some(stored), "{given}");
    }
    assert!(assigned("nobody").is_err());
}

#[test]
fn parameters_inside_a_text_are_refused() {
    let title = "Report\", \"schedule\": \"1h".to_owned();
    let wrong = checked(&NewTask { title, ..NewTask::default() }).unwrap_err();
    assert_eq!(wrong, ["title: contains the parameter schedule as text; pass it as a parameter of its own"]);
}
