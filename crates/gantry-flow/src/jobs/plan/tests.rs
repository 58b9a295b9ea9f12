use super::*;

const START: i64 = 1_772_625_600_000;

fn every(minutes: i64) -> Schedule {
    Schedule::Every { every_ms: minutes * MINUTE_MS, anchor_ms: START }
}

fn job(schedule: &Schedule) -> DueJob<'_> {
    let next = schedule.next_after(START).unwrap();
    DueJob {
        id: "j",
        schedule,
        catch_up: CatchUp::Last,
        overlap: Overlap::Skip,
        jitter_seconds: 0,
        next_at: next,
        due_at: next,
        running: 0,
        queued: 0,
    }
}

fn only(plan: &Plan) -> &Outcome {
    assert_eq!(plan.occurrences.len(), 1, "{plan:?}");
    &plan.occurrences[0].outcome
}

#[test]
fn due_job_runs_and_its_next_time_follows_the_schedule() {
    let schedule = every(10);
    let due = job(&schedule);
    let planned = plan(&due, due.next_at + 5);
    assert_eq!(only(&planned), &Outcome::Run { is_catch_up: false });
    assert_eq!(planned.next_at, Some(due.next_at + 10 * MINUTE_MS));
}

#[test]
fn s04_late_occurrence_runs_once_within_its_window() {
    let schedule = every(60);
    let due = job(&schedule);
    for (late, outcome) in [
        (MINUTE_MS, Outcome::Run { is_catch_up: false }),
        (MINUTE_MS + 1, Outcome::Run { is_catch_up: true }),
        (30 * MINUTE_MS, Outcome::Run { is_catch_up: true }),
        (30 * MINUTE_MS + 1, Outcome::Missed("it is too late to catch up")),
    ] {
        assert_eq!(only(&plan(&due, due.next_at + late)), &outcome, "{late}");
    }
    let none = DueJob { catch_up: CatchUp::None, ..due };
    assert_eq!(only(&plan(&none, due.next_at + MINUTE_MS)), &Outcome::Run { is_catch_up: false });
    assert!(matches!(only(&plan(&none, due.next_at + 2 * MINUTE_MS)), Outcome::Missed(_)));
    // Two hours are the longest window.
    let daily = every(24 * 60);
    let due = job(&daily);
    assert_eq!(only(&plan(&due, due.next_at + 2 * HOUR_MS)), &Outcome::Run { is_catch_up: true });
    assert!(matches!(only(&plan(&due, due.next_at + 2 * HOUR_MS + 1)), Outcome::Missed(_)));
}

#[test]
fn s04_of_several_missed_occurrences_only_the_last_runs() {
    let schedule = every(10);
    let due = job(&schedule);
    let planned = plan(&due, due.next_at + 34 * MINUTE_MS);
    let last = due.next_at + 30 * MINUTE_MS;
    assert_eq!(
        planned.occurrences,
        [
            Planned { from: due.next_at, through: last - 1, outcome: Outcome::Missed(NOT_RUNNING) },
            Planned { from: last, through: last, outcome: Outcome::Run { is_catch_up: true } },
        ]
    );
    assert_eq!(planned.next_at, Some(last + 10 * MINUTE_MS));
}

#[test]
fn s04_job_that_runs_once_is_caught_up_for_a_day() {
    let schedule = Schedule::At { at_ms: START + 1 };
    let due = job(&schedule);
    assert_eq!(only(&plan(&due, START + DAY_MS)), &Outcome::Run { is_catch_up: true });
    let late = plan(&due, START + DAY_MS + 2);
    assert!(matches!(only(&late), Outcome::Missed(_)));
    assert_eq!(late.next_at, None);
}

#[test]
fn s17_overlap_is_skipped_or_queued_once() {
    let schedule = every(10);
    let due = job(&schedule);
    let now = due.next_at;
    let running = DueJob { running: 1, ..due };
    assert!(matches!(only(&plan(&running, now)), Outcome::Overlaps(_)));
    let queue = DueJob { overlap: Overlap::Queue, ..running };
    assert_eq!(only(&plan(&queue, now)), &Outcome::Run { is_catch_up: false });
    assert!(matches!(only(&plan(&DueJob { queued: 1, ..queue }, now)), Outcome::Overlaps(_)));
}

#[test]
fn s18_jitter_delays_admission_and_not_the_schedule() {
    let schedule = every(10);
    let jitter = jitter_ms("j", 600);
    assert!(jitter > 0);
    let due = DueJob { jitter_seconds: 600, due_at: job(&schedule).next_at + jitter, ..job(&schedule) };
    let planned = plan(&due, due.due_at);
    assert_eq!(planned.occurrences[0].from, due.next_at);
    assert_eq!(planned.next_at, Some(due.next_at + 10 * MINUTE_MS));
    assert_eq!(planned.due_at, Some(due.next_at + 10 * MINUTE_MS + jitter));
}

#[test]
fn s19_occurrences_during_a_backoff_are_skipped_with_that_reason() {
    let schedule = every(10);
    let due = DueJob { due_at: job(&schedule).next_at + 25 * MINUTE_MS, ..job(&schedule) };
    let planned = plan(&due, due.due_at);
    assert_eq!(planned.occurrences[0].outcome, Outcome::BacksOff);
    assert_eq!(planned.occurrences[1].outcome, Outcome::Run { is_catch_up: false });
    assert_eq!(planned.occurrences[1].from, due.next_at + 20 * MINUTE_MS);
}

#[test]
fn s30_a_year_of_missed_occurrences_is_two_rows_and_quick() {
    let began = std::time::Instant::now();
    let minutely = Schedule::Cron { expr: "* * * * *".into(), tz: "Europe/Berlin".into() };
    for schedule in [every(1), minutely] {
        let due = job(&schedule);
        let planned = plan(&due, due.next_at + 365 * DAY_MS);
        assert_eq!(planned.occurrences.len(), 2, "{planned:?}");
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(1), "{:?}", began.elapsed());
}

/// A virtual year against an independent reference.
mod year {
    use std::collections::BTreeMap;
    use std::io::Write;
    use std::process::{Command, Stdio};

    use gantry_testkit::Random;

    use super::*;

    const ZONES: [&str; 4] = ["Europe/Berlin", "America/New_York", "America/Santiago", "Australia/Lord_Howe"];
    const JOBS: usize = 200;
    /// Thu 1 Jan 2026 00:00:00 UTC.
    const FROM: i64 = 1_767_225_600_000;
    const UNTIL: i64 = FROM + 365 * DAY_MS;

    /// An expression that is due at most 24 times a day.
    fn expression(random: &mut Random) -> String {
        let minute = random.below(60);
        let hour = random.below(24);
        match random.below(40) {
            0 => format!("{minute} * * * *"),
            1 => format!("{minute} {hour} * * 1-5"),
            2 => format!("{minute} {hour} {} * *", 1 + random.below(31)),
            3 => format!("{minute} {hour} {} {} *", 1 + random.below(28), 1 + random.below(12)),
            4 => format!("{minute} {hour} {} * {}", 1 + random.below(28), random.below(7)),
            5 => format!("{minute} {hour},{} * * *", (hour + 7) % 24),
            _ => format!("{minute} {hour} * * *"),
        }
    }

    /// Asks Python for all occurrences of the year, outside the days on which clocks change.
    fn reference(jobs: &[(String, &str)]) -> Vec<Vec<i64>> {
        let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/mcp/venv-cron/bin/python");
        let mut child = Command::new(python)
            .args(["-c", include_str!("year.py")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`cargo xtask setup` installs croniter");
        let input = serde_json::json!({"from": FROM, "until": UNTIL, "jobs": jobs});
        child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
        let answer = child.wait_with_output().unwrap();
        assert!(answer.status.success());
        serde_json::from_slice(&answer.stdout).unwrap()
    }

    /// The rows of one job: what was recorded for which instants.
    #[derive(Default)]
    struct Rows {
        runs: BTreeMap<i64, usize>,
        /// Ranges that were missed or skipped.
        accounted: Vec<(i64, i64)>,
    }

    impl Rows {
        fn covers(&self, at: i64) -> bool {
            self.runs.contains_key(&at)
                || self.accounted.iter().any(|(from, through)| (*from..=*through).contains(&at))
        }
    }

    /// The gateway runs, sleeps, restarts, and its clock jumps forwards. Every occurrence of the reference is recorded, and
    /// none runs twice.
    #[test]
    fn s01_every_occurrence_of_a_year_is_accounted_for() {
        let began = std::time::Instant::now();
        let mut random = Random::new();
        let jobs: Vec<(String, &str)> =
            (0..JOBS).map(|_| (expression(&mut random), *random.pick(&ZONES))).collect();
        // Times at which the worker looks: often, with pauses of up to two days.
        let mut looks = Vec::new();
        let mut now = FROM;
        while now < UNTIL {
            now += match random.below(200) {
                0 => i64::try_from(random.below(2 * 24 * 60)).unwrap() * MINUTE_MS,
                1..=20 => i64::try_from(random.below(180)).unwrap() * MINUTE_MS,
                _ => 20 * MINUTE_MS,
            };
            looks.push(now.min(UNTIL));
        }
        let expected = std::thread::spawn({
            let jobs = jobs.clone();
            move || reference(&jobs)
        });
        let mut all = Vec::new();
        for (expr, tz) in &jobs {
            let schedule = Schedule::cron(expr, tz, FROM).unwrap();
            let mut rows = Rows::default();
            let mut next = schedule.next_after(FROM - 1);
            for now in &looks {
                let Some(next_at) = next.filter(|next| next <= now) else { continue };
                // The stored time alone decides, so a restart at any moment changes nothing.
                let due = DueJob { next_at, due_at: next_at, ..job(&schedule) };
                let planned = plan(&due, *now);
                for one in &planned.occurrences {
                    match one.outcome {
                        Outcome::Run { .. } => *rows.runs.entry(one.from).or_default() += 1,
                        _ => rows.accounted.push((one.from, one.through)),
                    }
                }
                assert!(planned.next_at.is_none_or(|next| next > *now), "{expr} {tz}");
                next = planned.next_at;
            }
            all.push(rows);
        }
        let expected = expected.join().unwrap();
        let (mut total, mut ran) = (0, 0);
        for (place, rows) in all.iter().enumerate() {
            assert!(rows.runs.values().all(|times| *times == 1), "{:?} ran twice", jobs[place]);
            total += expected[place].len();
            ran += rows.runs.len();
            for at in &expected[place] {
                assert!(rows.covers(*at), "{:?} at {at} is lost", jobs[place]);
            }
        }
        assert!(total > 10_000 && ran > 10_000, "{total} {ran}");
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", began.elapsed());
        println!("{total} occurrences, {ran} runs, {:?}", began.elapsed());
    }

    /// The instants themselves equal those of the reference.
    #[test]
    fn s12_instants_equal_an_independent_reference_outside_clock_changes() {
        let mut random = Random::new();
        let jobs: Vec<(String, &str)> =
            (0..JOBS / 4).map(|_| (expression(&mut random), *random.pick(&ZONES))).collect();
        for ((expr, tz), expected) in jobs.iter().zip(reference(&jobs)) {
            let schedule = Schedule::cron(expr, tz, FROM).unwrap();
            for at in &expected {
                assert_eq!(schedule.next_after(at - 1), Some(*at), "{expr} {tz}");
            }
            let mut own =
                std::iter::successors(schedule.next_after(FROM - 1), |last| schedule.next_after(*last));
            let count = own.by_ref().take_while(|at| *at < UNTIL).count();
            // The reference leaves out the three days around each of two clock changes.
            assert!(
                count >= expected.len() && count <= expected.len() + 7 * 24,
                "{expr} {tz}: {count} {}",
                expected.len()
            );
        }
    }
}
