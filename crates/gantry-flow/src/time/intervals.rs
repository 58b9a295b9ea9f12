//! Lengths of time in words: `90 minutes`, `1h 30m`, `every 5 minutes`.

use super::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};

/// The shortest interval between two runs.
pub const MIN_INTERVAL_MS: i64 = MINUTE_MS;
/// The longest length of time: a hundred years.
const MAX_MS: i64 = 100 * 366 * DAY_MS;

const UNITS: [(&[&str], i64); 6] = [
    (&["ms", "millisecond", "milliseconds"], 1),
    (&["s", "sec", "secs", "second", "seconds"], SECOND_MS),
    (&["m", "min", "mins", "minute", "minutes"], MINUTE_MS),
    (&["h", "hr", "hrs", "hour", "hours"], HOUR_MS),
    (&["d", "day", "days"], DAY_MS),
    (&["w", "week", "weeks"], 7 * DAY_MS),
];

/// Reads an interval of at least one minute: `every 5 minutes`, `30m`, `1h`, `1d`, `every hour`.
pub fn parse_interval(text: &str) -> Result<i64, String> {
    let lower = text.trim().to_lowercase();
    let (length, is_every) = match lower.strip_prefix("every ") {
        Some(rest) => (rest.trim(), true),
        None => (lower.as_str(), false),
    };
    let ms = match unit_ms(length).filter(|_| is_every) {
        Some(unit) => unit,
        None => parse_length(length)?,
    };
    check_interval(ms)?;
    Ok(ms)
}

pub(super) fn check_interval(ms: i64) -> Result<(), String> {
    if (MIN_INTERVAL_MS..=MAX_MS).contains(&ms) {
        return Ok(());
    }
    Err(format!("an interval must be between 1 minute and 100 years, got {}", super::duration_text(ms)))
}

/// Reads a length of time: numbers with units, such as `1.5 hours` or `1h 30m`. All of the text must be read.
pub(super) fn parse_length(text: &str) -> Result<i64, String> {
    let wrong = || {
        format!(
            "{text:?} is not a length of time; write a number and a unit (seconds, minutes, hours, days or weeks), such \
             as \"30 minutes\" or \"1h 30m\""
        )
    };
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut total = 0.0_f64;
    while !rest.is_empty() {
        let (number, after) = number(rest).ok_or_else(wrong)?;
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        let unit = unit_ms(&name.to_ascii_lowercase()).ok_or_else(wrong)?;
        #[expect(clippy::cast_precision_loss, reason = "units are far below 2^53")]
        {
            total += number * unit as f64;
        }
        let after = after.trim_start();
        rest = after.strip_prefix(',').or_else(|| after.strip_prefix("and ")).unwrap_or(after).trim_start();
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "checked against MAX_MS"
    )]
    match total <= MAX_MS as f64 {
        true => Ok(total.round() as i64),
        false => Err(format!("{text:?} is longer than 100 years")),
    }
}

fn unit_ms(name: &str) -> Option<i64> {
    UNITS.iter().find(|(names, _)| names.contains(&name)).map(|(_, ms)| *ms)
}

/// Reads a decimal number at the start of a text, or the article "a" or "an".
fn number(text: &str) -> Option<(f64, &str)> {
    for article in ["an ", "a "] {
        if let Some(rest) = text.strip_prefix(article) {
            return Some((1.0, rest));
        }
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit()) && !digits.ends_with('.');
    let value = digits.parse::<f64>().ok().filter(|_| is_number && digits.len() <= 16)?;
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_in_words_and_short_forms() {
        for (text, ms) in [
            ("every 5 minutes", 5 * MINUTE_MS),
            ("30m", 30 * MINUTE_MS),
            ("1h", HOUR_MS),
            ("1d", DAY_MS),
            ("Every Hour", HOUR_MS),
            ("every 1.5 hours", 90 * MINUTE_MS),
            ("1h 30m", 90 * MINUTE_MS),
            ("1 hour and 30 minutes", 90 * MINUTE_MS),
            ("1 day, 2 hours", 26 * HOUR_MS),
            ("2 weeks", 14 * DAY_MS),
            ("90 seconds", 90 * SECOND_MS),
        ] {
            assert_eq!(parse_interval(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn anything_else_is_rejected_whole() {
        for text in [
            "",
            "5",
            "m",
            "5x",
            "5m!",
            "-5m",
            "every",
            "5 months",
            "1..5h",
            "1.h",
            "30s",
            "0m",
            "1e9d",
            "99999999w",
        ] {
            assert!(parse_interval(text).is_err(), "{text}");
        }
        assert!(parse_interval("30s").unwrap_err().contains("1 minute"));
    }
}
