//! Times as a model writes them. A time without an offset is local time in the owner's zone, or in the zone that the call
//! names.

use gantry_tool::ToolError;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// Reads an instant: RFC 3339, a local time such as `2026-11-18T09:30`, or a date, which means its first moment.
pub(crate) fn instant(field: &str, text: &str, zone: &TimeZone) -> Result<Timestamp, ToolError> {
    let text = text.trim();
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Ok(timestamp);
    }
    let local = text.parse::<DateTime>().ok().or_else(|| text.parse::<Date>().ok().map(DateTime::from));
    let local = local.and_then(|local| local.to_zoned(zone.clone()).ok());
    local.map(|zoned| zoned.timestamp()).ok_or_else(|| {
        ToolError::input(format!(
            "{field} must be a time such as 2026-11-18T09:30, 2026-11-18T09:30:00+01:00 or 2026-11-18"
        ))
    })
}

/// Reads the name of a zone, such as `Europe/Berlin`.
pub(crate) fn zone(name: Option<&str>, default: &TimeZone) -> Result<TimeZone, ToolError> {
    match name {
        None => Ok(default.clone()),
        Some(name) => TimeZone::get(name).map_err(|_| {
            ToolError::input(format!("timezone {name:?} is unknown; write a name such as Europe/Berlin"))
        }),
    }
}

/// The IANA name of a zone for Google; `UTC` for a zone without a name.
pub(crate) fn zone_name(zone: &TimeZone) -> String {
    zone.iana_name().unwrap_or("UTC").to_owned()
}

/// Shows an instant in a zone, to the minute: `2026-11-18 09:30`.
pub(crate) fn shown(timestamp: Timestamp, zone: &TimeZone) -> String {
    Zoned::new(timestamp, zone.clone()).strftime("%Y-%m-%d %H:%M").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_times_are_read_in_the_zone() {
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let read = |text: &str| instant("start", text, &berlin).map(|at| at.to_string()).unwrap_or_default();
        assert_eq!(read("2026-11-18T09:30"), "2026-11-18T08:30:00Z");
        assert_eq!(read("2026-07-18 09:30:15"), "2026-07-18T07:30:15Z");
        assert_eq!(read("2026-11-18"), "2026-11-17T23:00:00Z");
        assert_eq!(read("2026-11-18T09:30:00-05:00"), "2026-11-18T14:30:00Z");
        assert_eq!(read("tomorrow"), "");
        assert_eq!(shown("2026-11-18T08:30:00Z".parse().unwrap(), &berlin), "2026-11-18 09:30");
        assert!(zone(Some("Mars/Base"), &berlin).is_err());
    }
}
