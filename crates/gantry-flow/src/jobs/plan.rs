//! [`plan`] decides what becomes of a due job: which occurrences run, are skipped or were missed, and when it is due next. It is
//! a function without I/O.

use super::definition::{CatchUp, Overlap};
use crate::time::{DAY_MS, HOUR_MS, MINUTE_MS, Schedule, jitter_ms};

/// An occurrence that is admitted this late still counts as on time.
const GRACE_MS: i64 = MINUTE_MS;
/// The longest delay after which an occurrence still runs.
const MAX_WINDOW_MS: i64 = 2 * HOUR_MS;
/// As [`MAX_WINDOW_MS`], for jobs that run once.
const ONCE_WINDOW_MS: i64 = DAY_MS;
/// How far back the newest occurrence of an expression is searched. Older ones are too late in any case.
const SEARCH_MS: i64 = 3 * HOUR_MS;

/// A due job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DueJob<'a> {
    pub(crate) id: &'a str,
    pub(crate) schedule: &'a Schedule,
    pub(crate) catch_up: CatchUp,
    pub(crate) overlap: Overlap,
    pub(crate) jitter_seconds: u32,
    pub(crate) next_at: i64,
    pub(crate) due_at: i64,
    /// Its runs that have started and not ended.
    pub(crate) running: i64,
    /// Its runs that wait.
    pub(crate) queued: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) occurrences: Vec<Planned>,
    pub(crate) next_at: Option<i64>,
    pub(crate) due_at: Option<i64>,
}

/// What becomes of the occurrences from `from` through `through`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) from: i64,
    pub(crate) through: i64,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Run {
        is_catch_up: bool,
    },
    /// The previous run has not ended.
    Overlaps(&'static str),
    /// The job waits after errors.
    BacksOff,
    Missed(&'static str),
}

const NOT_RUNNING: &str = "the gateway was not running, or the clock jumped";

pub(crate) fn plan(job: &DueJob<'_>, now: i64) -> Plan {
    let jitter = jitter_ms(job.id, job.jitter_seconds);
    // Occurrences up to here are due.
    let until = now.saturating_sub(jitter).max(job.next_at);
    let (newest, next_at) = around(job.schedule, job.next_at, until);
    let due_at = next_at.map(|next| next.saturating_add(jitter));
    let mut occurrences = Vec::new();
    let Some(newest) = newest else {
        let outcome = Outcome::Missed(NOT_RUNNING);
        occurrences.push(Planned { from: job.next_at, through: until, outcome });
        return Plan { occurrences, next_at, due_at };
    };
    let backs_off = job.due_at > job.next_at.saturating_add(jitter);
    if newest > job.next_at {
        let outcome = if backs_off { Outcome::BacksOff } else { Outcome::Missed(NOT_RUNNING) };
        occurrences.push(Planned { from: job.next_at, through: newest - 1, outcome });
    }
    let late = now.saturating_sub(newest.saturating_add(jitter).max(job.due_at));
    let window = match job.schedule.is_once() {
        true => ONCE_WINDOW_MS,
        false => next_at.map_or(MAX_WINDOW_MS, |next| ((next - newest) / 2).min(MAX_WINDOW_MS)),
    };
    let outcome = match () {
        () if late > GRACE_MS && job.catch_up == CatchUp::None => Outcome::Missed(NOT_RUNNING),
        () if late > window.max(GRACE_MS) => Outcome::Missed("it is too late to catch up"),
        () => overlapping(job).unwrap_or(Outcome::Run { is_catch_up: late > GRACE_MS }),
    };
    occurrences.push(Planned { from: newest, through: newest, outcome });
    Plan { occurrences, next_at, due_at }
}

fn overlapping(job: &DueJob<'_>) -> Option<Outcome> {
    match job.overlap {
        Overlap::Skip if job.running + job.queued > 0 => {
            Some(Outcome::Overlaps("the previous run has not ended"))
        }
        Overlap::Queue if job.queued > 0 => Some(Outcome::Overlaps("a run already waits")),
        Overlap::Skip | Overlap::Queue => None,
    }
}

/// Returns the newest occurrence from `first` until `until`, and the first one after it. The newest is `None` if it is older
/// than the search goes. The search does not depend on the number of occurrences.
fn around(schedule: &Schedule, first: i64, until: i64) -> (Option<i64>, Option<i64>) {
    match schedule {
        Schedule::At { .. } => (Some(first), None),
        Schedule::Every { every_ms, .. } => {
            let every = (*every_ms).max(MINUTE_MS);
            (Some(first.saturating_add((until - first) / every * every)), schedule.next_after(until))
        }
        Schedule::Cron { .. } => {
            let from = until.saturating_sub(SEARCH_MS);
            let mut newest = (first >= from).then_some(first);
            let mut next = schedule.next_after(newest.unwrap_or(from - 1));
            while let Some(later) = next.filter(|next| *next <= until) {
                newest = Some(later);
                next = schedule.next_after(later);
            }
            (newest, next)
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the reference is a program")]
mod tests;
