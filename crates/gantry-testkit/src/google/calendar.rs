//! The behaviour of Google Calendar: events with their own ids, conflicts, deleted events, pages and busy times.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::Date;
use serde_json::{Value, json};

use super::{Reply, Seen};

/// Calendars by id, each with its events by id.
#[derive(Default)]
pub struct Calendar {
    pub calendars: BTreeMap<String, BTreeMap<String, Value>>,
    /// The largest page, whatever a request asks for. 0 means no limit.
    pub page_limit: usize,
    next: u64,
}

impl Calendar {
    /// Adds an event and returns its id. Missing fields are filled in.
    pub fn add(&mut self, calendar: &str, mut event: Value) -> String {
        self.next += 1;
        let given = event["id"].as_str().map(str::to_owned);
        let id = given.unwrap_or_else(|| format!("event{:05}", self.next));
        event["id"] = json!(id);
        event["kind"] = json!("calendar#event");
        if event["status"].is_null() {
            event["status"] = json!("confirmed");
        }
        event["etag"] = json!(format!("\"{}\"", self.next));
        event["htmlLink"] = json!(format!("https://www.google.com/calendar/event?eid={id}"));
        self.calendars.entry(calendar.to_owned()).or_default().insert(id.clone(), event);
        id
    }
}

/// The first moment of an event's start or end.
fn moment(value: &Value) -> Option<Timestamp> {
    if let Some(time) = value["dateTime"].as_str() {
        return time.parse().ok().or_else(|| {
            // A local time needs its zone.
            let zone = value["timeZone"].as_str()?;
            let local: jiff::civil::DateTime = time.parse().ok()?;
            Some(local.in_tz(zone).ok()?.timestamp())
        });
    }
    let date: Date = value["date"].as_str()?.parse().ok()?;
    Some(date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
}

pub(super) fn answer(state: &mut Calendar, seen: &Seen) -> Reply {
    let calendar = match seen.parameter("calendarId") {
        Some("primary") | None => seen.account.clone(),
        Some(id) => id.to_owned(),
    };
    if calendar == seen.account {
        state.calendars.entry(calendar.clone()).or_default();
    }
    if !state.calendars.contains_key(&calendar) {
        return Reply::not_found("Calendar");
    }
    let id = seen.path("eventId").to_owned();
    match seen.id.as_str() {
        "calendar.freebusy.query" => busy(state, seen),
        "calendar.events.list" => list(state, &calendar, seen),
        "calendar.events.insert" => insert(state, &calendar, seen),
        "calendar.events.get" => match state.calendars[&calendar].get(&id) {
            Some(event) => Reply::Json(event.clone()),
            None => Reply::not_found("Event"),
        },
        "calendar.events.patch" => {
            let Some(event) = state.calendars.get_mut(&calendar).and_then(|events| events.get_mut(&id))
            else {
                return Reply::not_found("Event");
            };
            if event["status"] == "cancelled" {
                return Reply::Error(403, "forbidden", "The event was deleted.".to_owned());
            }
            let mut changed = event.clone();
            for (name, value) in seen.body.as_object().into_iter().flatten() {
                // A patch replaces lists as a whole, and merges objects.
                match (value, &mut changed[name.as_str()]) {
                    (Value::Object(new), Value::Object(old)) => {
                        for (name, value) in new {
                            old.insert(name.clone(), value.clone());
                        }
                        old.retain(|_, value| !value.is_null());
                    }
                    (new, old) => *old = new.clone(),
                }
            }
            if let Err(reply) = check(&changed) {
                return reply;
            }
            *event = changed.clone();
            Reply::Json(changed)
        }
        "calendar.events.delete" => {
            match state.calendars.get_mut(&calendar).and_then(|events| events.get_mut(&id)) {
                None => Reply::not_found("Event"),
                Some(event) if event["status"] == "cancelled" => {
                    Reply::Error(410, "deleted", "Resource has been deleted".to_owned())
                }
                Some(event) => {
                    event["status"] = json!("cancelled");
                    Reply::Empty
                }
            }
        }
        other => Reply::Error(501, "notImplemented", format!("this server has no {other}")),
    }
}

/// Rules that no schema expresses.
fn check(event: &Value) -> Result<(), Reply> {
    let wrong = |text: &str| Err(Reply::Error(400, "invalid", text.to_owned()));
    let (start, end) = (&event["start"], &event["end"]);
    let is_all_day = |value: &Value| value["date"].is_string();
    let has_time = |value: &Value| value["dateTime"].is_string();
    if is_all_day(start) == has_time(start) || is_all_day(end) == has_time(end) {
        return wrong("Missing end time or start time.");
    }
    if is_all_day(start) != is_all_day(end) {
        return wrong("Start and end times must either both be date or both be dateTime.");
    }
    let (Some(from), Some(to)) = (moment(start), moment(end)) else {
        return wrong("Missing time zone definition.");
    };
    if to < from || (is_all_day(start) && to == from) {
        return Err(Reply::Error(400, "timeRangeEmpty", "The specified time range is empty.".to_owned()));
    }
    let is_recurring = event["recurrence"].as_array().is_some_and(|rules| !rules.is_empty());
    if is_recurring && has_time(start) && (!start["timeZone"].is_string() || !end["timeZone"].is_string()) {
        return wrong("Missing time zone definition for start time.");
    }
    Ok(())
}

fn insert(state: &mut Calendar, calendar: &str, seen: &Seen) -> Reply {
    let mut event = seen.body.clone();
    if let Some(id) = event["id"].as_str() {
        let is_base32hex = id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'v'));
        if !is_base32hex || !(5..=1024).contains(&id.len()) {
            return Reply::Error(400, "invalid", "Invalid resource id value.".to_owned());
        }
        if state.calendars[calendar].contains_key(id) {
            return Reply::Error(409, "duplicate", "The requested identifier already exists.".to_owned());
        }
    }
    if let Err(reply) = check(&event) {
        return reply;
    }
    event["organizer"] = json!({"email": seen.account, "self": true});
    event["creator"] = json!({"email": seen.account, "self": true});
    let id = state.add(calendar, event);
    Reply::Json(state.calendars[calendar][&id].clone())
}

fn list(state: &Calendar, calendar: &str, seen: &Seen) -> Reply {
    let single = seen.parameter("singleEvents") == Some("true");
    if seen.parameter("orderBy") == Some("startTime") && !single {
        let text = "The requested ordering is not available for the particular query.".to_owned();
        return Reply::Error(400, "badRequest", text);
    }
    let time = |name: &str| seen.parameter(name).and_then(|text| text.parse::<Timestamp>().ok());
    let (from, to) = (time("timeMin"), time("timeMax"));
    let shows_deleted = seen.parameter("showDeleted") == Some("true");
    let mut events: Vec<&Value> = state.calendars[calendar]
        .values()
        .filter(|event| shows_deleted || event["status"] != "cancelled")
        .filter(|event| from.is_none_or(|from| moment(&event["end"]).is_some_and(|end| end > from)))
        .filter(|event| to.is_none_or(|to| moment(&event["start"]).is_some_and(|start| start < to)))
        .filter(|event| {
            let wanted = seen.parameter("q").map(str::to_lowercase);
            wanted.is_none_or(|wanted| event.to_string().to_lowercase().contains(&wanted))
        })
        .collect();
    events.sort_by_key(|event| moment(&event["start"]));
    let limit: usize = seen.parameter("maxResults").and_then(|text| text.parse().ok()).unwrap_or(250);
    let limit = if state.page_limit == 0 { limit } else { limit.min(state.page_limit) };
    let skipped: usize = seen.parameter("pageToken").and_then(|text| text.parse().ok()).unwrap_or(0);
    let page: Vec<Value> = events.iter().skip(skipped).take(limit).map(|event| (*event).clone()).collect();
    let mut answer = json!({
        "kind": "calendar#events", "summary": calendar, "timeZone": "Europe/Berlin", "accessRole": "owner", "items": page,
    });
    if events.len() > skipped + limit {
        answer["nextPageToken"] = json!((skipped + limit).to_string());
    }
    Reply::Json(answer)
}

fn busy(state: &Calendar, seen: &Seen) -> Reply {
    let time = |name: &str| seen.body[name].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let (Some(from), Some(to)) = (time("timeMin"), time("timeMax")) else {
        return Reply::Error(400, "required", "Missing timeMin or timeMax.".to_owned());
    };
    let mut calendars = json!({});
    for item in seen.body["items"].as_array().into_iter().flatten() {
        let id = item["id"].as_str().unwrap_or_default();
        let key = if id == "primary" { &seen.account } else { id };
        calendars[id] = match state.calendars.get(key) {
            None => json!({"errors": [{"domain": "global", "reason": "notFound"}], "busy": []}),
            Some(events) => {
                let busy =
                    events.values().filter(|event| event["status"] != "cancelled").filter_map(|event| {
                        let (start, end) = (moment(&event["start"])?, moment(&event["end"])?);
                        (start < to && end > from)
                            .then(|| json!({"start": start.to_string(), "end": end.to_string()}))
                    });
                json!({"busy": busy.collect::<Vec<_>>()})
            }
        };
    }
    Reply::Json(json!({
        "kind": "calendar#freeBusy", "timeMin": from.to_string(), "timeMax": to.to_string(), "calendars": calendars,
    }))
}
