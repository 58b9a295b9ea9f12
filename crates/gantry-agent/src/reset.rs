//! Automatic resets of conversations. The policy is checked when a message arrives.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ResetPolicy {
    /// Only on request.
    #[default]
    Manual,
    /// Every day at this hour in the user's time zone.
    Daily { at_hour: i8 },
    /// After this many minutes without a message.
    Idle { minutes: u32 },
}

/// Returns the reason for a reset, if one is due.
pub(crate) fn due(policy: ResetPolicy, last: i64, now: i64, zone: &TimeZone) -> Option<String> {
    match policy {
        ResetPolicy::Manual => None,
        ResetPolicy::Idle { minutes } => {
            let idle = now.saturating_sub(last) >= i64::from(minutes) * 60_000;
            idle.then(|| format!("no message for {minutes} minutes"))
        }
        ResetPolicy::Daily { at_hour } => {
            let boundary = last_boundary(now, at_hour, zone)?;
            (last < boundary).then(|| format!("a new day began at {at_hour}:00"))
        }
    }
}

/// Returns the last time it was this hour in the zone. On a day without this hour, the moment after the gap counts.
fn last_boundary(now: i64, hour: i8, zone: &TimeZone) -> Option<i64> {
    let now = Timestamp::from_millisecond(now).ok()?;
    let here = now.to_zoned(zone.clone());
    let at = |date: jiff::civil::Date| {
        Some(date.at(hour.clamp(0, 23), 0, 0, 0).to_zoned(zone.clone()).ok()?.timestamp())
    };
    let today = at(here.date())?;
    let boundary = if today <= now { today } else { at(here.date().checked_sub(1.day()).ok()?)? };
    Some(boundary.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(policy: ResetPolicy, zone: &str, last: &str, now: &str) -> bool {
        let ms = |text: &str| text.parse::<Timestamp>().unwrap().as_millisecond();
        due(policy, ms(last), ms(now), &TimeZone::get(zone).unwrap()).is_some()
    }

    #[test]
    fn daily_reset_follows_the_users_time_zone() {
        let four = ResetPolicy::Daily { at_hour: 4 };
        assert!(!check(four, "Asia/Tokyo", "2026-03-01T20:00:00Z", "2026-03-02T18:00:00Z"), "03:00 there");
        assert!(check(four, "Asia/Tokyo", "2026-03-01T20:00:00Z", "2026-03-02T19:00:00Z"), "04:00 there");
        assert!(check(four, "UTC", "2026-03-01T03:59:59Z", "2026-03-01T04:00:00Z"));
        assert!(!check(four, "UTC", "2026-03-01T04:00:00Z", "2026-03-02T03:59:59Z"));
        let gap = ResetPolicy::Daily { at_hour: 2 };
        assert!(
            check(gap, "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:30:00Z"),
            "no 02:00 that day"
        );
    }

    #[test]
    fn idle_reset_is_due_after_its_minutes_and_manual_never() {
        let idle = ResetPolicy::Idle { minutes: 60 };
        assert!(!check(idle, "UTC", "2026-03-01T00:00:00Z", "2026-03-01T00:59:59Z"));
        assert!(check(idle, "UTC", "2026-03-01T00:00:00Z", "2026-03-01T01:00:00Z"));
        assert!(!check(ResetPolicy::Manual, "UTC", "2020-03-01T00:00:00Z", "2026-03-01T01:00:00Z"));
    }
}
