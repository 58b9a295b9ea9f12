//! [`Schedule`] is when a job is due: once, at an interval, or by a cron expression.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use gantry_tool::nearest;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dates::check_future;
use super::intervals::{check_interval, parse_interval};
use super::{MINUTE_MS, duration_text, local_text};

/// The longest cron expression.
const MAX_EXPRESSION: usize = 200;
/// The number of parsed expressions that are kept.
const MAX_KNOWN: usize = 512;

/// When a job is due. All instants are absolute, so a schedule means the same after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum Schedule {
    /// Once.
    At {
        /// Milliseconds since 1970.
        at_ms: i64,
    },
    /// At `anchorMs` and every `everyMs` after it.
    Every { every_ms: i64, anchor_ms: i64 },
    /// By a cron expression with five fields in a time zone.
    Cron {
        expr: String,
        /// The IANA name of the zone.
        tz: String,
    },
}

impl Schedule {
    /// A schedule that is due once. More than 60 seconds in the past is rejected.
    pub fn once(at: i64, now: i64, zone: &TimeZone) -> Result<Schedule, String> {
        check_future("at", at, now, zone)?;
        Ok(Schedule::At { at_ms: at })
    }

    pub fn every(every_ms: i64, anchor_ms: i64) -> Result<Schedule, String> {
        check_interval(every_ms)?;
        Ok(Schedule::Every { every_ms, anchor_ms })
    }

    /// Checks a cron expression and its zone. An expression that never matches is rejected.
    ///
    /// The search for a match of an impossible expression takes up to half a second.
    pub fn cron(expr: &str, tz: &str, now: i64) -> Result<Schedule, String> {
        let expr = expr.split_whitespace().collect::<Vec<_>>().join(" ");
        let zone = zone_named(tz);
        let pattern = parse_expression(&expr);
        let pattern = match (pattern, zone.as_ref()) {
            (Ok(pattern), Ok(_)) => pattern,
            (pattern, zone) => {
                let wrong = [pattern.err(), zone.err().cloned()];
                return Err(wrong.into_iter().flatten().collect::<Vec<_>>().join("; "));
            }
        };
        let schedule = Schedule::Cron { expr: expr.clone(), tz: zone_name(tz, zone.as_ref().ok()) };
        let never = || format!("the expression {expr:?} never matches a date");
        let first = zone.as_ref().ok().and_then(|zone| next_match(&pattern, zone, now)).ok_or_else(never)?;
        schedule.next_after(first).ok_or_else(never)?;
        Ok(schedule)
    }

    /// Reads the short text of a schedule: a cron expression, `every 5 minutes`, `30m`, `1h`, `1d`.
    pub fn parse(text: &str, tz: &str, now: i64) -> Result<Schedule, String> {
        let fields = text.split_whitespace().count();
        if fields == 5 && !text.trim_start().to_lowercase().starts_with("every ")
            || text.trim().starts_with('@')
        {
            return Schedule::cron(text, tz, now);
        }
        match parse_interval(text) {
            Ok(every_ms) => Schedule::every(every_ms, now),
            Err(why) => Err(format!(
                "{text:?} is not a schedule: write a cron expression with five fields, such as \"0 9 * * 1-5\", or an \
                 interval, such as \"every 5 minutes\", \"30m\", \"1h\" or \"1d\" ({why})"
            )),
        }
    }

    /// Returns the first instant after `after`. It depends on nothing but its arguments and the time zone database.
    pub fn next_after(&self, after: i64) -> Option<i64> {
        match self {
            Schedule::At { at_ms } => Some(*at_ms).filter(|at| *at > after),
            Schedule::Every { every_ms, anchor_ms } => {
                let (every, anchor) = ((*every_ms).max(MINUTE_MS), *anchor_ms);
                if after < anchor {
                    return Some(anchor);
                }
                let passed = after.checked_sub(anchor)? / every;
                passed.checked_add(1)?.checked_mul(every)?.checked_add(anchor)
            }
            Schedule::Cron { expr, tz } => {
                let zone = zone_named(tz).ok()?;
                next_match(&*known_expression(expr)?, &zone, after)
            }
        }
    }

    /// Returns up to `count` instants after `after`.
    pub fn next_runs(&self, after: i64, count: usize) -> Vec<i64> {
        std::iter::successors(self.next_after(after), |last| self.next_after(*last)).take(count).collect()
    }

    pub fn is_once(&self) -> bool {
        matches!(self, Schedule::At { .. })
    }

    /// The zone of a cron expression.
    pub fn zone(&self) -> Option<&str> {
        match self {
            Schedule::Cron { tz, .. } => Some(tz),
            Schedule::At { .. } | Schedule::Every { .. } => None,
        }
    }

    /// Describes the schedule for people. Instants are shown in `zone`.
    pub fn describe(&self, zone: &TimeZone) -> String {
        match self {
            Schedule::At { at_ms } => format!("once, {}", local_text(*at_ms, zone)),
            Schedule::Every { every_ms, anchor_ms } => {
                format!("every {}, from {}", duration_text(*every_ms), local_text(*anchor_ms, zone))
            }
            Schedule::Cron { expr, tz } => {
                let words = parse_expression(expr).map_or_else(|_| expr.clone(), |cron| cron.describe());
                format!("{} ({expr}, {tz})", words.trim_end_matches('.'))
            }
        }
    }
}

/// Returns the part of `seconds` by which a job starts later. It is the same after a restart, because it depends on the id
/// alone.
pub fn jitter_ms(id: &str, seconds: u32) -> i64 {
    let hash = blake3::hash(id.as_bytes());
    let number = hash.as_bytes().iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let range = u64::from(seconds) * 1_000 + 1;
    i64::try_from(number % range).unwrap_or(0)
}

/// Returns a time zone by its IANA name.
pub fn zone_named(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| {
        let names: Vec<String> = jiff::tz::db().available().map(|name| name.to_string()).collect();
        let near = nearest(name, names.iter().map(String::as_str));
        let hint = near.first().map_or(String::new(), |near| format!("; did you mean {near:?}?"));
        format!("unknown time zone {name:?}{hint} Use an IANA name, such as \"Europe/Berlin\".")
    })
}

fn zone_name(written: &str, zone: Option<&TimeZone>) -> String {
    zone.and_then(|zone| zone.iana_name()).unwrap_or(written).to_owned()
}

fn parse_expression(expr: &str) -> Result<Cron, String> {
    let fields = expr.split_whitespace().count();
    if expr.len() > MAX_EXPRESSION {
        return Err(format!("a cron expression may have at most {MAX_EXPRESSION} characters"));
    }
    if fields != 5 && !expr.trim().starts_with('@') {
        return Err(format!(
            "the cron expression {expr:?} has {fields} fields; it must have five: minute, hour, day of month, month and \
             weekday"
        ));
    }
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(expr).map_err(|err| format!("invalid cron expression {expr:?}: {err}"))
}

/// Returns a parsed expression. Expressions that were used before are kept, because the same ones are needed again and again.
fn known_expression(expr: &str) -> Option<Arc<Cron>> {
    static KNOWN: Mutex<BTreeMap<String, Arc<Cron>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cron) = known.get(expr) {
        return Some(cron.clone());
    }
    let cron = Arc::new(parse_expression(expr).ok()?);
    if known.len() >= MAX_KNOWN {
        known.clear();
    }
    known.insert(expr.to_owned(), cron.clone());
    Some(cron)
}

fn next_match(cron: &Cron, zone: &TimeZone, after: i64) -> Option<i64> {
    let second = Timestamp::from_second(after.div_euclid(1_000)).ok()?;
    let next = cron.find_next_occurrence(&second.to_zoned(zone.clone()), false).ok()?;
    Some(next.timestamp().as_millisecond()).filter(|next| *next > after)
}

#[cfg(test)]
mod tests;
