//! Dates as people and models write them: ISO, `in 2 hours`, `tomorrow at 9am`, epochs.
//!
//! The whole text must be read, and nothing is guessed: a text with two meanings is rejected with a hint.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{Timestamp, ToSpan, Zoned};

use super::intervals::parse_length;
use super::{MINUTE_MS, local_text, utc_text, zone_named};

/// A time may be this much in the past, because the call that names it takes time.
const PAST_LIMIT_MS: i64 = MINUTE_MS;
/// The longest text that is read.
const MAX_TEXT: usize = 200;
const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// An instant that was read from a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    pub at: i64,
    /// What the reader should know about it.
    pub note: Option<String>,
}

/// As [`parse_moment`], but a time more than 60 seconds ago is rejected.
pub fn parse_future(text: &str, now: i64, zone: &TimeZone) -> Result<Moment, String> {
    let moment = parse_moment(text, now, zone)?;
    check_future(text, moment.at, now, zone)?;
    Ok(moment)
}

/// Rejects a time more than 60 seconds ago.
pub(super) fn check_future(text: &str, at: i64, now: i64, zone: &TimeZone) -> Result<(), String> {
    if at >= now.saturating_sub(PAST_LIMIT_MS) {
        return Ok(());
    }
    Err(format!(
        "{text:?} is in the past: it means {} ({}), and now is {} ({})",
        local_text(at, zone),
        utc_text(at),
        local_text(now, zone),
        utc_text(now)
    ))
}

/// Reads an instant. A text without a zone is in `zone`.
pub fn parse_moment(text: &str, now: i64, zone: &TimeZone) -> Result<Moment, String> {
    let text = text.trim();
    if text.is_empty() || text.len() > MAX_TEXT {
        return Err(format!("a date must have 1 to {MAX_TEXT} characters; {EXAMPLES}"));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return epoch(text);
    }
    let lower = text.to_lowercase();
    if let Some(length) = lower.strip_prefix("in ") {
        let at = now.saturating_add(parse_length(length)?);
        return Ok(Moment { at, note: None });
    }
    let first = lower.split([' ', ',']).next().unwrap_or_default();
    for (word, days) in [("today", 0), ("tomorrow", 1)] {
        if first == word {
            return day_word(word, days, lower[word.len()..].trim(), now, zone);
        }
    }
    if is_weekday(&lower) {
        return Err(format!(
            "{text:?} is ambiguous: a weekday can mean this week or the next; write the date, such as {:?}",
            example_date(now, zone)
        ));
    }
    if parse_clock(&lower).is_some() {
        return Err(format!("{text:?} has no day; write \"today at {lower}\" or \"tomorrow at {lower}\""));
    }
    iso(text, zone)
}

const EXAMPLES: &str =
    "examples: \"2026-03-05 09:00\", \"2026-03-05T09:00:00+01:00\", \"in 2 hours\", \"tomorrow at 9am\"";

fn unreadable(text: &str) -> String {
    format!("{text:?} is not a date that can be read; {EXAMPLES}")
}

/// Reads an epoch: 10 digits are seconds, 11 to 16 milliseconds.
fn epoch(text: &str) -> Result<Moment, String> {
    let number: Option<i64> = text.parse().ok();
    let at = match (text.len(), number) {
        (10, Some(seconds)) => seconds.saturating_mul(1_000),
        (11..=16, Some(ms)) => ms,
        _ => {
            return Err(format!(
                "{text:?} is not an epoch: write 10 digits for seconds, or 11 to 16 for milliseconds"
            ));
        }
    };
    match Timestamp::from_millisecond(at) {
        Ok(_) => Ok(Moment { at, note: None }),
        Err(_) => Err(format!("the epoch {text} is out of range")),
    }
}

fn is_weekday(lower: &str) -> bool {
    let words = lower.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    let mut words = words.skip_while(|word| ["next", "this", "on", "last", "every"].contains(word));
    words.next().is_some_and(|word| {
        word.len() >= 3
            && WEEKDAYS.iter().any(|day| *day == word || (word.len() <= 5 && day.starts_with(word)))
    })
}

/// Reads what follows `today` or `tomorrow`.
fn day_word(word: &str, days: i64, rest: &str, now: i64, zone: &TimeZone) -> Result<Moment, String> {
    let clock = rest.strip_prefix("at ").unwrap_or(rest).trim();
    if clock.is_empty() || clock == "at" {
        return Err(format!("{word:?} needs a time; write \"{word} at 9am\" or \"{word} at 17:30\""));
    }
    let time = parse_clock(clock).ok_or_else(|| {
        format!("{clock:?} is not a time of day; write \"{word} at 9am\" or \"{word} at 17:30\"")
    })?;
    let here = zoned(now, zone)?;
    let date = here.date().checked_add(days.days()).map_err(|err| err.to_string())?;
    resolve(date.to_datetime(time), zone)
}

fn zoned(at: i64, zone: &TimeZone) -> Result<Zoned, String> {
    Timestamp::from_millisecond(at).map(|time| time.to_zoned(zone.clone())).map_err(|err| err.to_string())
}

fn example_date(now: i64, zone: &TimeZone) -> String {
    let tomorrow = zoned(now, zone).and_then(|now| now.date().tomorrow().map_err(|err| err.to_string()));
    tomorrow.map_or_else(|_| "2026-03-05 09:00".to_owned(), |date| format!("{date} 09:00"))
}

/// Reads a time of day: `9am`, `9:30 pm`, `17:30`, `17`.
fn parse_clock(text: &str) -> Option<Time> {
    let (clock, half) = match (text.strip_suffix("am"), text.strip_suffix("pm")) {
        (Some(clock), _) => (clock.trim_end(), Some(0)),
        (_, Some(clock)) => (clock.trim_end(), Some(12)),
        _ => (text, None),
    };
    let (hour, minute) = clock.split_once(':').unwrap_or((clock, "00"));
    let digits = |text: &str, lengths: std::ops::RangeInclusive<usize>| -> Option<i8> {
        let is_number = lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_number)
    };
    let (hour, minute) = (digits(hour, 1..=2)?, digits(minute, 2..=2)?);
    let hour = match half {
        Some(half) if (1..=12).contains(&hour) => hour % 12 + half,
        Some(_) => return None,
        None => hour,
    };
    Time::new(hour, minute, 0, 0).ok()
}

/// Reads `YYYY-MM-DD`, then a time and a zone, which may be missing.
fn iso(text: &str, zone: &TimeZone) -> Result<Moment, String> {
    let wrong = || unreadable(text);
    let date = text.get(..10).and_then(iso_date).ok_or_else(wrong)?;
    let rest = text.get(10..).unwrap_or_default();
    if rest.is_empty() {
        return resolve(date.to_datetime(Time::midnight()), zone);
    }
    let rest = rest.strip_prefix(['T', 't', ' ']).ok_or_else(wrong)?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != ':' && c != '.').unwrap_or(rest.len());
    let (clock, zone_text) = rest.split_at(end);
    let local = date.to_datetime(iso_time(clock).ok_or_else(wrong)?);
    match zone_text.trim() {
        "" => resolve(local, zone),
        "Z" | "z" | "UTC" | "utc" | "GMT" | "gmt" => at_offset(local, Offset::UTC),
        name if name.starts_with(['+', '-']) => at_offset(local, iso_offset(name).ok_or_else(wrong)?),
        name => {
            let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
            resolve(local, &zone_named(name)?)
        }
    }
}

fn iso_date(text: &str) -> Option<Date> {
    let bytes = text.as_bytes();
    let shape = bytes.iter().enumerate().all(|(at, byte)| match at {
        4 | 7 => *byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    if !shape {
        return None;
    }
    Date::new(text[..4].parse().ok()?, text[5..7].parse().ok()?, text[8..].parse().ok()?).ok()
}

/// Reads `HH[:MM[:SS[.fraction]]]`. Fractions below a millisecond are dropped.
fn iso_time(text: &str) -> Option<Time> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<&str> = clock.split(':').collect();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if parts.len() > 3 || parts.iter().any(|part| part.len() != 2 || !is_number(part)) {
        return None;
    }
    if !is_number(fraction) || fraction.len() > 9 || (text.contains('.') && parts.len() < 3) {
        return None;
    }
    let number = |at: usize| parts.get(at).map_or(Some(0), |part| part.parse::<i8>().ok());
    let padded = format!("{fraction:0<3}");
    let ms: i32 = padded[..3].parse().ok()?;
    Time::new(number(0)?, number(1)?, number(2)?, ms * 1_000_000).ok()
}

/// Reads `±HH`, `±HHMM` or `±HH:MM`.
fn iso_offset(text: &str) -> Option<Offset> {
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let digits: String = text[1..].chars().filter(|c| *c != ':').collect();
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit()) && matches!(digits.len(), 2 | 4);
    if !is_number || text[1..].len() > digits.len() + 1 {
        return None;
    }
    let hours: i32 = digits[..2].parse().ok()?;
    let minutes: i32 = if digits.len() == 4 { digits[2..].parse().ok()? } else { 0 };
    if hours > 23 || minutes > 59 {
        return None;
    }
    Offset::from_seconds(sign * (hours * 3_600 + minutes * 60)).ok()
}

fn at_offset(local: DateTime, offset: Offset) -> Result<Moment, String> {
    let at = offset.to_timestamp(local).map_err(|err| err.to_string())?;
    Ok(Moment { at: at.as_millisecond(), note: None })
}

/// Finds the instant of a local time. A time that the clocks skip is rejected, one that they repeat means the first.
fn resolve(local: DateTime, zone: &TimeZone) -> Result<Moment, String> {
    let ambiguous = zone.to_ambiguous_timestamp(local);
    let offset = ambiguous.offset();
    let earlier = ambiguous.earlier().map_err(|err| err.to_string())?;
    match offset {
        AmbiguousOffset::Unambiguous { .. } => Ok(Moment { at: earlier.as_millisecond(), note: None }),
        AmbiguousOffset::Fold { .. } => {
            let at = earlier.as_millisecond();
            let note = format!(
                "the clocks go back and show {local} twice; the first one is meant ({})",
                utc_text(at)
            );
            Ok(Moment { at, note: Some(note) })
        }
        AmbiguousOffset::Gap { .. } => {
            let later = zone.to_ambiguous_timestamp(local).later().map_err(|err| err.to_string())?;
            let change = zone.preceding(later).next().map_or(later, |change| change.timestamp());
            let ms = change.as_millisecond();
            Err(format!(
                "{local} does not exist, because the clocks go forward; use {} or {}",
                local_text(ms - MINUTE_MS, zone),
                local_text(ms, zone)
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Wed 4 Mar 2026 12:00:00 in Berlin.
    const NOW: i64 = 1_772_622_000_000;

    fn berlin() -> TimeZone {
        zone_named("Europe/Berlin").unwrap()
    }

    fn utc_of(text: &str) -> String {
        parse_moment(text, NOW, &berlin())
            .map(|moment| utc_text(moment.at))
            .unwrap_or_else(|why| format!("! {why}"))
    }

    #[test]
    fn dates_in_words_and_iso() {
        for (text, utc) in [
            ("2026-03-05 09:00", "2026-03-05T08:00:00Z"),
            ("2026-03-05T09:00:30", "2026-03-05T08:00:30Z"),
            ("2026-03-05 09", "2026-03-05T08:00:00Z"),
            ("2026-03-05", "2026-03-04T23:00:00Z"),
            ("2026-03-05T09:00Z", "2026-03-05T09:00:00Z"),
            ("2026-03-05 09:00 UTC", "2026-03-05T09:00:00Z"),
            ("2026-03-05T09:00:00+05:30", "2026-03-05T03:30:00Z"),
            ("2026-03-05T09:00-0800", "2026-03-05T17:00:00Z"),
            ("2026-03-05T09:00:00.250Z", "2026-03-05T09:00:00Z"),
            ("2026-07-01 09:00", "2026-07-01T07:00:00Z"),
            ("2026-07-01 09:00 America/New_York", "2026-07-01T13:00:00Z"),
            ("2026-07-01T09:00[America/New_York]", "2026-07-01T13:00:00Z"),
            ("in 2 hours", "2026-03-04T13:00:00Z"),
            ("In 1.5 hours", "2026-03-04T12:30:00Z"),
            ("in an hour", "2026-03-04T12:00:00Z"),
            ("in 1h 30m", "2026-03-04T12:30:00Z"),
            ("today at 17:30", "2026-03-04T16:30:00Z"),
            ("today 5pm", "2026-03-04T16:00:00Z"),
            ("Tomorrow at 9am", "2026-03-05T08:00:00Z"),
            ("tomorrow at 12 am", "2026-03-04T23:00:00Z"),
            ("tomorrow 12:15pm", "2026-03-05T11:15:00Z"),
            ("tomorrow 9", "2026-03-05T08:00:00Z"),
            ("1772622000", "2026-03-04T11:00:00Z"),
            ("1772622000123", "2026-03-04T11:00:00Z"),
        ] {
            assert_eq!(utc_of(text), utc, "{text}");
        }
    }

    #[test]
    fn ambiguous_and_partial_texts_are_rejected_with_a_hint() {
        for (text, hint) in [
            ("today", "today at 9am"),
            ("tomorrow", "tomorrow at 9am"),
            ("tomorrow at", "tomorrow at 9am"),
            ("friday", "2026-03-05 09:00"),
            ("next Monday at 9", "2026-03-05 09:00"),
            ("on tue", "2026-03-05 09:00"),
            ("9am", "tomorrow at 9am"),
            ("17:30", "today at 17:30"),
            ("tomorrow at 13pm", "time of day"),
            ("tomorrow at 25:00", "time of day"),
            ("tomorrow at 9am sharp", "time of day"),
            ("2026-03-05 09:00 sharp", "time zone"),
            ("2026-13-05 09:00", "examples"),
            ("2026-02-30 09:00", "examples"),
            ("2026-03-05 9:00", "examples"),
            ("2026-03-05T09:00+25:00", "examples"),
            ("2026-03-05T09:00.5", "examples"),
            ("12345", "epoch"),
            ("in 2 months", "length of time"),
            ("in", "examples"),
            ("", "examples"),
            ("March 5 2026", "examples"),
            ("2026-03-05Ö", "examples"),
        ] {
            let found = parse_moment(text, NOW, &berlin());
            assert!(found.as_ref().is_err_and(|why| why.contains(hint)), "{text}: {found:?}");
        }
    }

    #[test]
    fn skipped_local_times_are_rejected_with_both_neighbours() {
        let why = parse_moment("2026-03-29 02:30", NOW, &berlin()).unwrap_err();
        assert!(why.contains("01:59 CET") && why.contains("03:00 CEST"), "{why}");
        let santiago = zone_named("America/Santiago").unwrap();
        let why = parse_moment("2026-09-06 00:30", NOW, &santiago).unwrap_err();
        assert!(why.contains("5 Sep 2026 23:59") && why.contains("6 Sep 2026 01:00"), "{why}");
    }

    #[test]
    fn repeated_local_time_means_the_first_and_says_so() {
        let moment = parse_moment("2026-10-25 02:30", NOW, &berlin()).unwrap();
        assert_eq!(utc_text(moment.at), "2026-10-25T00:30:00Z");
        assert!(moment.note.unwrap().contains("twice"));
    }

    #[test]
    fn s09_past_times_are_rejected_with_the_parsed_time_and_now() {
        let why = parse_future("2026-03-04 11:58", NOW, &berlin()).unwrap_err();
        assert!(why.contains("2026-03-04T10:58:00Z") && why.contains("2026-03-04T11:00:00Z"), "{why}");
        assert!(parse_future("2026-03-04 11:59", NOW, &berlin()).is_ok(), "60 s are tolerated");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_rejected_without_a_panic(text in "\\PC{0,40}") {
            let _ = parse_moment(&text, NOW, &berlin());
            let _ = super::super::parse_interval(&text);
        }

        #[test]
        fn texts_from_the_grammars_words_do_not_panic(
            words in proptest::collection::vec(
                prop_oneof![
                    Just("in"), Just("today"), Just("tomorrow"), Just("at"), Just("9am"), Just("12:60"), Just("2026-03-29"),
                    Just("T02:30"), Just("+01"), Just("Z"), Just("h"), Just("1.5"), Just("9999999999999999"), Just("ä"),
                    Just("99999-99-99"), Just("every"), Just("."), Just(":"), Just("9999-12-31T23:59:59-23:59"),
                ],
                0..6,
            ),
            separator in prop_oneof![Just(" "), Just("")],
        ) {
            let text = words.join(separator);
            let _ = parse_moment(&text, NOW, &berlin());
            let _ = parse_future(&text, NOW, &berlin());
            let _ = super::super::parse_interval(&text);
        }

        /// Every existing local minute of a year with both clock changes is read back as written.
        #[test]
        fn written_local_times_are_read_back(minute in 0_i64..525_600) {
            let zone = berlin();
            let at = 1_767_222_000_000 + minute * MINUTE_MS;
            let here = Timestamp::from_millisecond(at).unwrap().to_zoned(zone.clone());
            let moment = parse_moment(&here.strftime("%Y-%m-%d %H:%M").to_string(), NOW, &zone).unwrap();
            // A repeated hour means the first one.
            prop_assert!(moment.at == at || (moment.note.is_some() && moment.at == at - 60 * MINUTE_MS));
            let exact = here.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
            prop_assert_eq!(parse_moment(&exact, NOW, &zone).unwrap().at, at);
        }
    }
}
