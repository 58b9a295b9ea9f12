//! Times and durations in words.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};

/// Returns a time in a zone, such as `Thu 5 Mar 2026 09:00 CET`.
pub fn local_text(at: i64, zone: &TimeZone) -> String {
    let Ok(time) = Timestamp::from_millisecond(at) else { return format!("{at} ms") };
    let time = time.to_zoned(zone.clone());
    let format = if time.second() == 0 { "%a %-d %b %Y %H:%M %Z" } else { "%a %-d %b %Y %H:%M:%S %Z" };
    time.strftime(format).to_string()
}

/// Returns a time in UTC as ISO 8601 without fractions, such as `2026-03-05T08:00:00Z`.
pub fn utc_text(at: i64) -> String {
    Timestamp::from_millisecond(at).map_or_else(|_| format!("{at} ms"), |time| format!("{time:.0}"))
}

/// Returns a duration in the largest unit that divides it, such as `90 minutes`.
pub fn duration_text(ms: i64) -> String {
    let units = [
        (DAY_MS, "day"),
        (HOUR_MS, "hour"),
        (MINUTE_MS, "minute"),
        (SECOND_MS, "second"),
        (1, "millisecond"),
    ];
    let (unit, name) =
        units.into_iter().find(|(unit, _)| ms % unit == 0 && ms != 0).unwrap_or((1, "millisecond"));
    counted(ms / unit, name)
}

/// Returns how far a time is from now, rounded to one unit: `in 5 minutes`, `3 hours ago`.
pub fn relative_text(at: i64, now: i64) -> String {
    let distance = at.saturating_sub(now).saturating_abs();
    let units = [(DAY_MS, "day"), (HOUR_MS, "hour"), (MINUTE_MS, "minute"), (SECOND_MS, "second")];
    // The next smaller unit is used below two of a unit, because "1 day" may be almost two.
    let found = units.into_iter().find(|(unit, _)| distance >= 2 * unit);
    let Some((unit, name)) = found else {
        return if distance < SECOND_MS { "now".to_owned() } else { around("1 second".to_owned(), at > now) };
    };
    around(counted(distance / unit, name), at > now)
}

fn around(text: String, is_ahead: bool) -> String {
    if is_ahead { format!("in {text}") } else { format!("{text} ago") }
}

pub(crate) fn counted(count: i64, name: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {name}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_use_the_largest_whole_unit() {
        for (ms, text) in [
            (MINUTE_MS, "1 minute"),
            (90 * MINUTE_MS, "90 minutes"),
            (2 * HOUR_MS, "2 hours"),
            (DAY_MS, "1 day"),
            (1_500, "1500 milliseconds"),
            (0, "0 milliseconds"),
        ] {
            assert_eq!(duration_text(ms), text);
        }
    }

    #[test]
    fn relative_times_are_rounded_to_one_unit() {
        for (at, text) in [
            (100, "now"),
            (1_200, "in 1 second"),
            (90_000, "in 90 seconds"),
            (5 * MINUTE_MS + 3, "in 5 minutes"),
            (-3 * HOUR_MS - 7, "3 hours ago"),
            (40 * HOUR_MS, "in 40 hours"),
            (-9 * DAY_MS, "9 days ago"),
        ] {
            assert_eq!(relative_text(at + 1_000_000_000, 1_000_000_000), text);
        }
    }
}
