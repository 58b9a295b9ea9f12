use proptest::prelude::*;

use super::*;
use crate::time::{DAY_MS, HOUR_MS, parse_moment, utc_text};

const ZONES: [&str; 4] = ["Europe/Berlin", "America/New_York", "America/Santiago", "Australia/Lord_Howe"];

fn at(text: &str) -> i64 {
    parse_moment(text, 0, &TimeZone::UTC).unwrap().at
}

fn runs(expr: &str, tz: &str, after: &str, count: usize) -> Vec<String> {
    let zone = zone_named(tz).unwrap();
    let schedule = Schedule::cron(expr, tz, 0).unwrap();
    let runs = schedule.next_runs(at(after), count);
    runs.iter()
        .map(|run| {
            Timestamp::from_millisecond(*run).unwrap().to_zoned(zone.clone()).strftime("%d %H:%M").to_string()
        })
        .collect()
}

#[test]
fn s12_fixed_times_in_a_gap_run_at_its_end_and_in_an_overlap_once() {
    let berlin = "Europe/Berlin";
    assert_eq!(runs("30 2 * * *", berlin, "2026-03-28T12:00Z", 3), ["29 03:00", "30 02:30", "31 02:30"]);
    assert_eq!(runs("30 2 * * *", berlin, "2026-10-24T12:00Z", 2), ["25 02:30", "26 02:30"]);
    let first = Schedule::cron("30 2 * * *", berlin, 0).unwrap().next_after(at("2026-10-24T12:00Z")).unwrap();
    assert_eq!(utc_text(first), "2026-10-25T00:30:00Z");
    assert_eq!(runs("30 0 * * *", "America/Santiago", "2026-09-05T12:00Z", 2), ["06 01:00", "07 00:30"]);
    assert_eq!(runs("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00Z", 2), ["04 02:30", "05 02:15"]);
}

#[test]
fn s12_wildcard_hours_follow_real_time() {
    let zone = "Europe/Berlin";
    for (after, count) in [("2026-03-28T23:59Z", 4), ("2026-10-24T22:59Z", 6)] {
        let schedule = Schedule::cron("*/30 * * * *", zone, 0).unwrap();
        let runs = schedule.next_runs(at(after), count * 2);
        assert!(runs.windows(2).all(|pair| pair[1] - pair[0] == 30 * MINUTE_MS), "{runs:?}");
    }
}

#[test]
fn expressions_with_names_and_special_days() {
    for expr in [
        "0 9 * * MON-FRI",
        "0 9 L * *",
        "0 9 15W * *",
        "0 9 * * 5#2",
        "0 9 13 * 5",
        "@daily",
        "0 0 29 2 *",
        "0 9 * JAN,JUL 7",
    ] {
        assert!(Schedule::cron(expr, "UTC", 0).is_ok(), "{expr}");
    }
    // Day of month or weekday.
    assert_eq!(runs("0 9 13 * 5", "UTC", "2026-02-06T10:00Z", 2), ["13 09:00", "20 09:00"]);
}

#[test]
fn impossible_and_invalid_expressions_are_rejected() {
    for (expr, tz, hint) in [
        ("0 0 30 2 *", "UTC", "never matches"),
        ("60 * * * *", "UTC", "invalid"),
        ("* * * *", "UTC", "five"),
        ("0 0 9 * * *", "UTC", "five"),
        ("0 9 22-2 * *", "UTC", "invalid"),
        ("5/15 * * * *", "UTC", "invalid"),
        ("@reboot", "UTC", "invalid"),
        ("", "UTC", "five"),
        ("0 9 * * *", "Europe/Berln", "Europe/Berlin"),
        ("0 9 * * *", "", "time zone"),
    ] {
        let found = Schedule::cron(expr, tz, 0);
        assert!(found.as_ref().is_err_and(|why| why.contains(hint)), "{expr} {tz}: {found:?}");
    }
    // Everything wrong is listed.
    let both = Schedule::cron("* *", "Mars/Base", 0).unwrap_err();
    assert!(both.contains("five") && both.contains("Mars/Base"), "{both}");
}

#[test]
fn intervals_are_anchored_and_do_not_drift() {
    let schedule = Schedule::every(5 * MINUTE_MS, 1_000).unwrap();
    assert_eq!(schedule.next_after(0), Some(1_000), "a future anchor is the first run");
    assert_eq!(schedule.next_after(1_000), Some(1_000 + 5 * MINUTE_MS));
    assert_eq!(schedule.next_after(1_000 + 12 * MINUTE_MS), Some(1_000 + 15 * MINUTE_MS));
    assert!(Schedule::every(59_999, 0).is_err());
    assert_eq!(Schedule::Every { every_ms: i64::MAX, anchor_ms: i64::MAX }.next_after(i64::MAX), None);
}

#[test]
fn short_texts() {
    let parse = |text: &str| Schedule::parse(text, "Europe/Berlin", 7);
    let every = |every_ms| Ok(Schedule::Every { every_ms, anchor_ms: 7 });
    assert_eq!(parse("every 5 minutes"), every(5 * MINUTE_MS));
    assert_eq!(parse("every 1 hour 30 minutes"), every(90 * MINUTE_MS));
    assert_eq!(parse("1h"), every(HOUR_MS));
    assert_eq!(parse("1d"), every(DAY_MS));
    assert_eq!(
        parse(" 0  9 * * 1-5 "),
        Ok(Schedule::Cron { expr: "0 9 * * 1-5".into(), tz: "Europe/Berlin".into() })
    );
    assert!(parse("sometimes").unwrap_err().contains("five fields"));
}

#[test]
fn schedules_are_described_and_stored() {
    let zone = zone_named("Europe/Berlin").unwrap();
    let cron = Schedule::cron("0 9 * * 1-5", "Europe/Berlin", 0).unwrap();
    assert!(cron.describe(&zone).contains("(0 9 * * 1-5, Europe/Berlin)"), "{}", cron.describe(&zone));
    let every = Schedule::every(90 * MINUTE_MS, 0).unwrap();
    assert_eq!(every.describe(&zone), "every 90 minutes, from Thu 1 Jan 1970 01:00 CET");
    let once = Schedule::once(1_772_622_000_000, 0, &zone).unwrap();
    assert_eq!(once.describe(&zone), "once, Wed 4 Mar 2026 12:00 CET");
    for (schedule, json) in [
        (&cron, r#"{"kind":"cron","expr":"0 9 * * 1-5","tz":"Europe/Berlin"}"#),
        (&every, r#"{"kind":"every","everyMs":5400000,"anchorMs":0}"#),
        (&once, r#"{"kind":"at","atMs":1772622000000}"#),
    ] {
        assert_eq!(serde_json::to_string(schedule).unwrap(), json);
        assert_eq!(&serde_json::from_str::<Schedule>(json).unwrap(), schedule);
    }
}

#[test]
fn s18_jitter_is_stable_and_bounded() {
    assert_eq!(jitter_ms("a", 0), 0);
    let jitters: Vec<i64> = (0..50).map(|number| jitter_ms(&format!("job-{number}"), 60)).collect();
    assert_eq!(jitters, (0..50).map(|number| jitter_ms(&format!("job-{number}"), 60)).collect::<Vec<_>>());
    assert!(jitters.iter().all(|jitter| (0..=60_000).contains(jitter)));
    let spread: std::collections::BTreeSet<i64> = jitters.iter().map(|jitter| jitter / 10_000).collect();
    assert!(spread.len() >= 5, "{jitters:?}");
}

fn field(most: u32, least: u32) -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("*".to_owned()),
        3 => (least..=most).prop_map(|number| number.to_string()),
        1 => (2..=most.max(3) / 2).prop_map(|step| format!("*/{step}")),
        1 => (least..most).prop_flat_map(move |from| (Just(from), from..=most)).prop_map(|(from, to)| format!("{from}-{to}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Instants strictly increase, lie on whole minutes, and do not depend on where the search starts.
    #[test]
    fn next_is_strictly_later_and_independent_of_the_start(
        minute in field(59, 0), hour in field(23, 0), day in field(28, 1), month in field(12, 1), weekday in field(6, 0),
        zone in 0_usize..4,
        start in 1_735_689_600_000_i64..1_830_000_000_000,
        part in 0_i64..1_000,
    ) {
        let expr = format!("{minute} {hour} {day} {month} {weekday}");
        let schedule = Schedule::Cron { expr, tz: ZONES[zone].to_owned() };
        let first = schedule.next_after(start).unwrap();
        prop_assert!(first > start && first % MINUTE_MS == 0);
        // A search that starts between gives the same instant.
        let between = start + (first - start - 1) * part / 1_000;
        prop_assert_eq!(schedule.next_after(between), Some(first));
        prop_assert_eq!(schedule.next_after(first - 1), Some(first));
        prop_assert!(schedule.next_after(first).unwrap() > first);
    }

    #[test]
    fn any_expression_is_read_or_rejected_without_a_panic(expr in "[0-9*,/LW#? @A-Z-]{0,20}") {
        // Impossible ones search for years, so only the reading is tried here.
        let _ = parse_expression(&expr);
    }
}
