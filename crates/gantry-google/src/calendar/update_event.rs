//! `update_event`: changes some fields of an event, and informs its attendees.

use gantry_net::Method;
use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, ToolError};
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};

use super::event::{Event, Moment, addresses, event_path, get, parsed, range, recurrence};
use super::{Input, SERVICE, Updates, WRITE};
use crate::api::{ApiCall, Service};
use crate::declare::{Ctx, Google};
use crate::ids::required;
use crate::others_words::{fenced, line};
use crate::questions::{change, field, quoted};
use crate::times;

fn updates(input: &Input) -> Result<&Updates, ToolError> {
    required("update_event", "updates", input.updates.as_ref())
}

/// The body of the request. Google replaces lists as a whole, so the present attendees are merged in.
fn patch(event: &Event, updates: &Updates, zone: &TimeZone) -> Result<Map<String, Value>, ToolError> {
    let mut body = Map::new();
    let texts = [
        ("summary", &updates.summary),
        ("description", &updates.description),
        ("location", &updates.location),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            body.insert(name.to_owned(), json!(text));
        }
    }
    if let Some(start) = &updates.start {
        let end = updates.end.clone().or_else(|| kept_end(event, start, updates.all_day, zone));
        let (start, end) = range(start, end.as_deref(), updates.all_day, zone)?;
        body.insert("start".to_owned(), other_kind_cleared(start));
        body.insert("end".to_owned(), other_kind_cleared(end));
    } else if let Some(end) = &updates.end {
        let start = match &event.start {
            Moment { date: Some(date), .. } => date.to_string(),
            Moment { date_time: Some(time), .. } => time.to_string(),
            Moment { .. } => return Err(ToolError::input("the event has no start; give start and end")),
        };
        let (_, end) = range(&start, Some(end), event.start.date.is_some(), zone)?;
        body.insert("end".to_owned(), end);
    }
    if let Some(rules) = &updates.recurrence {
        body.insert("recurrence".to_owned(), json!(recurrence(rules)?));
    }
    let added = addresses("attendees", updates.attendees.as_deref().unwrap_or_default())?;
    let removed = addresses("remove_attendees", updates.remove_attendees.as_deref().unwrap_or_default())?;
    if !added.is_empty() || !removed.is_empty() {
        let is_removed = |email: &str| removed.iter().any(|gone| gone.eq_ignore_ascii_case(email));
        let present = event.attendees.iter().filter(|person| !is_removed(&person.email));
        let mut people: Vec<Value> = present
            .map(|person| json!({"email": person.email, "responseStatus": person.response_status, "optional": person.optional}))
            .collect();
        let is_new =
            |email: &&String| !event.attendees.iter().any(|person| person.email.eq_ignore_ascii_case(email));
        people.extend(added.iter().filter(is_new).map(|email| json!({"email": email})));
        body.insert("attendees".to_owned(), Value::Array(people));
    }
    match body.is_empty() {
        true => Err(ToolError::input("updates changes nothing; give at least one field")),
        false => Ok(body),
    }
}

/// A new start without an end keeps the event's length.
fn kept_end(event: &Event, start: &str, all_day: bool, zone: &TimeZone) -> Option<String> {
    if all_day {
        return None;
    }
    let length = event.end.date_time?.duration_since(event.start.date_time?);
    let end = times::instant("start", start, zone).ok()?.checked_add(length).ok()?;
    Some(end.to_string())
}

/// An event changes between whole days and times only if the other kind is cleared.
fn other_kind_cleared(mut value: Value) -> Value {
    if value["date"].is_string() {
        (value["dateTime"], value["timeZone"]) = (Value::Null, Value::Null);
    } else {
        value["date"] = Value::Null;
    }
    value
}

pub(super) async fn question(google: &Google, asked: &AskedCall, input: &Input) -> Option<AskedAction> {
    let account = google.api.accounts().resolve(input.account.as_deref()).ok()?;
    let zone = times::zone(input.timezone.as_deref(), &google.zone).ok()?;
    let path = event_path("update_event", input).ok()?;
    let event = get(google, &asked.call, Some(&account), &path).await.ok()?;
    let updates = updates(input).ok()?;
    let body = patch(&event, updates, &zone).ok()?;
    let mut details = vec![field("Account", &account), field("Now", &event.when(&zone))];
    if body.contains_key("start") || body.contains_key("end") {
        let mut new = event.clone();
        let changed = parsed(Value::Object(body.clone()));
        if body.contains_key("start") {
            new.start = changed.start;
        }
        new.end = changed.end;
        details.push(field("New time", &new.when(&zone)));
    }
    details.extend(updates.summary.as_deref().map(|text| field("New title", text)));
    details.extend(updates.location.as_deref().map(|text| field("New location", text)));
    details.extend(updates.recurrence.as_ref().map(|rules| field("Repeats", &rules.join(" "))));
    details.extend(updates.attendees.as_ref().map(|people| field("Invite", &people.join(", "))));
    details.extend(updates.remove_attendees.as_ref().map(|people| field("Uninvite", &people.join(", "))));
    let others = event.others();
    details.extend((!others.is_empty()).then(|| field("Informed", &others.join(", "))));
    details.extend(updates.description.as_deref().map(|text| quoted("New description", text)));
    change(SERVICE, format!("change \"{}\"", line(&event.summary, 200)), &details)
}

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let google = &ctx.state;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let zone = times::zone(input.timezone.as_deref(), &google.zone)?;
    let path = event_path("update_event", input)?;
    let updates = updates(input)?;
    let event = get(google, &ctx.call, Some(&account), &path).await?;
    let body = Value::Object(patch(&event, updates, &zone)?);
    let has_attendees = !event.attendees.is_empty() || body["attendees"].is_array();
    // The same patch twice has the same effect as once.
    let mut request = ApiCall::send(Service::Calendar, Method::PATCH, path, WRITE, body).repeatable();
    if has_attendees {
        request = request.with("sendUpdates", "all");
    }
    let event = parsed(google.api.call(&ctx.call, Some(&account), request).await?);
    let lines = event.lines(&zone, true).join("\n");
    Ok(format!("The event was changed, account {account}.\n{}", fenced(SERVICE, &lines)))
}
