//! An event as Google returns it, how it is shown, and how its fields are built.

use gantry_tool::{Call, ToolError};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Input, MAX_ATTENDEES, READ};
use crate::api::{ApiCall, Service};
use crate::declare::Google;
use crate::errors::GoogleError;
use crate::ids::{object_id, required, segment};
use crate::oauth::is_address;
use crate::others_words::line;
use crate::times;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) status: String,
    pub(super) summary: String,
    pub(super) description: String,
    pub(super) location: String,
    pub(super) html_link: String,
    pub(super) start: Moment,
    pub(super) end: Moment,
    pub(super) organizer: Person,
    pub(super) attendees: Vec<Person>,
    pub(super) recurrence: Vec<String>,
    pub(super) recurring_event_id: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Moment {
    pub(super) date: Option<Date>,
    pub(super) date_time: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Person {
    pub(super) email: String,
    pub(super) response_status: String,
    pub(super) optional: bool,
    #[serde(rename = "self")]
    pub(super) is_self: bool,
}

impl Event {
    /// When it takes place, in a zone. The end of whole days is exclusive at Google and inclusive here.
    pub(super) fn when(&self, zone: &TimeZone) -> String {
        match (&self.start, &self.end) {
            (Moment { date: Some(first), .. }, Moment { date: end, .. }) => {
                let last = end.and_then(|end| end.yesterday().ok()).filter(|last| last > first);
                last.map_or_else(
                    || format!("{first} (all day)"),
                    |last| format!("{first} to {last} (all day)"),
                )
            }
            (Moment { date_time: Some(start), .. }, Moment { date_time: Some(end), .. }) => {
                let (from, to) = (times::shown(*start, zone), times::shown(*end, zone));
                match to.strip_prefix(&from[..10]) {
                    Some(time) => format!("{from} to{time}"),
                    None => format!("{from} to {to}"),
                }
            }
            _ => "unknown time".to_owned(),
        }
    }

    /// Whether the owner wrote or accepted the event. Anybody can put an invitation into a calendar.
    pub(super) fn is_accepted(&self) -> bool {
        let own = self.attendees.iter().find(|person| person.is_self);
        self.organizer.is_self || own.is_some_and(|own| own.response_status == "accepted")
    }

    /// The addresses of everybody but the owner.
    pub(super) fn others(&self) -> Vec<&str> {
        self.attendees.iter().filter(|person| !person.is_self).map(|person| person.email.as_str()).collect()
    }

    /// The event on a few lines. Details are shown for accepted events, or if `whole` is set.
    pub(super) fn lines(&self, zone: &TimeZone, whole: bool) -> Vec<String> {
        let title = if self.summary.is_empty() { "(no title)" } else { &self.summary };
        let cancelled = if self.status == "cancelled" { " [cancelled]" } else { "" };
        let mut lines = vec![format!("- {}: {}{cancelled}", self.when(zone), line(title, 300))];
        let organizer = if self.organizer.is_self { "you" } else { &self.organizer.email };
        if !organizer.is_empty() {
            lines.push(format!("  organizer: {}", line(organizer, 200)));
        }
        let details = whole || self.is_accepted();
        if details && !self.location.is_empty() {
            lines.push(format!("  location: {}", line(&self.location, 300)));
        }
        if details && !self.attendees.is_empty() {
            let people = self.attendees.iter().take(50).map(|person| {
                let answer =
                    if person.response_status.is_empty() { "needsAction" } else { &person.response_status };
                format!("{} ({answer})", person.email)
            });
            lines.push(format!("  attendees: {}", line(&people.collect::<Vec<_>>().join(", "), 4000)));
        }
        if details && !self.description.is_empty() {
            let limit = if whole { usize::MAX } else { 500 };
            let text = gantry_page::html_to_text(&self.description, None);
            lines.push(format!("  description: {}", line(&text, limit)));
        }
        if !details && !self.attendees.is_empty() {
            lines.push(
                "  (an invitation that was not accepted: list_events with event_id shows its details)"
                    .to_owned(),
            );
        }
        if !self.recurrence.is_empty() || self.recurring_event_id.is_some() {
            lines.push("  recurring".to_owned());
        }
        lines.push(format!("  id: {}", line(&self.id, 1024)));
        lines
    }
}

/// The path of a calendar's events.
pub(super) fn events_path(input: &Input) -> Result<String, ToolError> {
    let calendar = input.calendar_id.as_deref().unwrap_or("primary");
    let is_valid = !calendar.is_empty()
        && calendar.len() <= 254
        && calendar.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
    match is_valid {
        true => Ok(format!("/calendars/{}/events", segment(calendar))),
        false => Err(ToolError::input(
            "calendar_id must be \"primary\" or an address, as Google Calendar's settings show it",
        )),
    }
}

pub(super) fn event_path(action: &str, input: &Input) -> Result<String, ToolError> {
    let id = object_id("event_id", required(action, "event_id", input.event_id.as_deref())?)?;
    Ok(format!("{}/{id}", events_path(input)?))
}

/// Reads one event.
pub(super) async fn get(
    google: &Google,
    call: &Call,
    account: Option<&str>,
    path: &str,
) -> Result<Event, GoogleError> {
    let answer = google.api.call(call, account, ApiCall::get(Service::Calendar, path, READ)).await?;
    Ok(parsed(answer))
}

/// Fields of an unexpected kind are left out.
pub(super) fn parsed(event: Value) -> Event {
    serde_json::from_value(event).unwrap_or_default()
}

/// Start and end for a request, checked and with an offset.
pub(super) fn range(
    start: &str,
    end: Option<&str>,
    all_day: bool,
    zone: &TimeZone,
) -> Result<(Value, Value), ToolError> {
    if all_day {
        let day = |field: &str, text: &str| {
            text.trim().get(..10).unwrap_or(text).parse::<Date>().map_err(|_| {
                ToolError::input(format!(
                    "{field} must be a date such as 2026-11-18, because all_day is true"
                ))
            })
        };
        let first = day("start", start)?;
        let last = end.map_or(Ok(first), |end| day("end", end))?;
        if last < first {
            return Err(ToolError::input("end must not be before start"));
        }
        let after = last.tomorrow().map_err(|_| ToolError::input("end is out of range"))?;
        return Ok((json!({"date": first.to_string()}), json!({"date": after.to_string()})));
    }
    let end = end.ok_or_else(|| ToolError::input("an event needs the field end, unless all_day is true"))?;
    let (start, end) = (times::instant("start", start, zone)?, times::instant("end", end, zone)?);
    if end <= start {
        return Err(ToolError::input("end must be after start"));
    }
    Ok((moment(start, zone), moment(end, zone)))
}

/// A time with its offset, and its zone, which recurring events need.
fn moment(at: Timestamp, zone: &TimeZone) -> Value {
    let text = Zoned::new(at, zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    json!({"dateTime": text, "timeZone": times::zone_name(zone)})
}

/// Checks the addresses of people.
pub(super) fn addresses(field: &str, people: &[String]) -> Result<Vec<String>, ToolError> {
    if people.len() > MAX_ATTENDEES {
        return Err(ToolError::input(format!("{field} may have at most {MAX_ATTENDEES} addresses")));
    }
    let checked = |person: &String| match is_address(person.trim()) {
        true => Ok(person.trim().to_owned()),
        false => Err(ToolError::input(format!(
            "{field} must have plain addresses such as ann@example.com, not {:?}",
            line(person, 100)
        ))),
    };
    people.iter().map(checked).collect()
}

/// Checks rules of recurrence.
pub(super) fn recurrence(rules: &[String]) -> Result<&[String], ToolError> {
    let is_rule = |rule: &String| {
        let known = ["RRULE:", "RDATE", "EXDATE", "EXRULE:"];
        rule.len() <= 1000
            && known.iter().any(|start| rule.starts_with(start))
            && !rule.contains(['\r', '\n'])
    };
    match rules.len() <= 20 && rules.iter().all(is_rule) {
        true => Ok(rules),
        false => Err(ToolError::input("recurrence must have rules such as \"RRULE:FREQ=WEEKLY;COUNT=5\"")),
    }
}
