//! `create_event`: a new event, with invitations if there are attendees.

use gantry_net::Method;
use gantry_protocol::AskedAction;
use gantry_tool::{Call, ToolError};
use serde_json::{Value, json};

use super::event::{addresses, events_path, get, parsed, range, recurrence};
use super::{Input, SERVICE, WRITE};
use crate::api::{ApiCall, Service};
use crate::declare::{Ctx, Google};
use crate::ids::required;
use crate::others_words::{fenced, line};
use crate::questions::{change, field, quoted};
use crate::times;

/// A checked new event.
struct NewEvent {
    body: Value,
    attendees: Vec<String>,
}

fn checked(google: &Google, input: &Input) -> Result<NewEvent, ToolError> {
    let zone = times::zone(input.timezone.as_deref(), &google.zone)?;
    let summary = required("create_event", "summary", input.summary.as_deref())?;
    let start = required("create_event", "start", input.start.as_deref())?;
    let (start, end) = range(start, input.end.as_deref(), input.all_day, &zone)?;
    let attendees = addresses("attendees", input.attendees.as_deref().unwrap_or_default())?;
    let mut body = json!({"summary": summary, "start": start, "end": end});
    if let Some(text) = &input.description {
        body["description"] = json!(text);
    }
    if let Some(text) = &input.location {
        body["location"] = json!(text);
    }
    if let Some(rules) = &input.recurrence {
        body["recurrence"] = json!(recurrence(rules)?);
    }
    if !attendees.is_empty() {
        body["attendees"] = attendees.iter().map(|email| json!({"email": email})).collect();
    }
    Ok(NewEvent { body, attendees })
}

pub(super) fn question(google: &Google, input: &Input) -> Option<AskedAction> {
    let event = checked(google, input).ok()?;
    let zone = times::zone(input.timezone.as_deref(), &google.zone).ok()?;
    let account = google.api.accounts().resolve(input.account.as_deref()).ok()?;
    let title = line(input.summary.as_deref().unwrap_or_default(), 200);
    let when = parsed(event.body.clone()).when(&zone);
    let invited = match event.attendees.len() {
        0 => String::new(),
        _ => format!(" and invite {}", event.attendees.join(", ")),
    };
    let mut details = vec![
        field("Account", &account),
        field("Calendar", input.calendar_id.as_deref().unwrap_or("primary")),
    ];
    details.extend(input.location.as_deref().map(|text| field("Location", text)));
    details.extend(input.recurrence.as_ref().map(|rules| field("Repeats", &rules.join(" "))));
    details.extend(input.description.as_deref().map(|text| quoted("Description", text)));
    let what = format!("create \"{title}\", {when} ({}){invited}", times::zone_name(&zone));
    change(SERVICE, what, &details)
}

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let google = &ctx.state;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let zone = times::zone(input.timezone.as_deref(), &google.zone)?;
    let NewEvent { mut body, attendees } = checked(google, input)?;
    let path = events_path(input)?;
    let id = event_id(&ctx.call);
    body["id"] = json!(id);
    let mut request = ApiCall::send(Service::Calendar, Method::POST, path.clone(), WRITE, body).repeatable();
    if !attendees.is_empty() {
        // Google's own default sends no invitations.
        request = request.with("sendUpdates", "all");
    }
    let event = match google.api.call(&ctx.call, Some(&account), request).await {
        Ok(event) => parsed(event),
        // An earlier attempt of the same call has created the event.
        Err(err) if err.status() == Some(409) => {
            get(google, &ctx.call, Some(&account), &format!("{path}/{id}")).await?
        }
        Err(err) => return Err(err.into()),
    };
    let invited = match attendees.len() {
        0 => String::new(),
        count => format!(" {count} invitations were sent."),
    };
    let shown = format!("{}\n  link: {}", event.lines(&zone, true).join("\n"), line(&event.html_link, 500));
    Ok(format!("The event was created, account {account}.{invited}\n{}", fenced(SERVICE, &shown)))
}

/// The same call has the same id, so that a repeated request creates nothing twice. Google allows 0-9 and a-v.
fn event_id(call: &Call) -> String {
    let name =
        call.session.as_ref().zip(call.step.as_ref()).map(|(session, step)| format!("{session}:{step}"));
    let name = name.unwrap_or_else(|| call.id.clone());
    blake3::hash(format!("google calendar event {name}").as_bytes()).to_hex()[..32].to_owned()
}
