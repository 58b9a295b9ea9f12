//! `free_busy`: the busy times of calendars.

use gantry_net::Method;
use gantry_tool::ToolError;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::Input;
use crate::api::{ApiCall, Service};
use crate::declare::Ctx;
use crate::others_words::{fenced, line};
use crate::times;

/// Google accepts at most this many calendars in one request.
const MAX_CALENDARS: usize = 50;
const SCOPES: &[&str] = &["calendar.readonly", "calendar.freebusy", "calendar", "calendar.events.freebusy"];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Calendar {
    busy: Vec<Busy>,
    errors: Vec<CalendarError>,
}

#[derive(Debug, Deserialize)]
struct Busy {
    start: Timestamp,
    end: Timestamp,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CalendarError {
    reason: String,
}

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let google = &ctx.state;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let zone = times::zone(input.timezone.as_deref(), &google.zone)?;
    let (from, to) = super::list_events::range(input, &zone)?;
    let calendars = input.calendars.clone().unwrap_or_else(|| vec!["primary".to_owned()]);
    if calendars.is_empty() || calendars.len() > MAX_CALENDARS {
        return Err(ToolError::input(format!("calendars must have 1 to {MAX_CALENDARS} ids")));
    }
    let items: Vec<_> = calendars.iter().map(|id| json!({"id": id})).collect();
    let body = json!({
        "timeMin": from.to_string(), "timeMax": to.to_string(), "timeZone": times::zone_name(&zone), "items": items,
    });
    let request = ApiCall::send(Service::Calendar, Method::POST, "/freeBusy", SCOPES, body).repeatable();
    let answer = google.api.call(&ctx.call, Some(&account), request).await?;
    let mut lines = Vec::new();
    for id in &calendars {
        let calendar: Calendar =
            serde_json::from_value(answer["calendars"][id.as_str()].clone()).unwrap_or_default();
        let name = line(id, 200);
        if let Some(error) = calendar.errors.first() {
            // A calendar that cannot be read is not free.
            lines.push(format!("{name}: unknown ({})", line(&error.reason, 100)));
        } else if calendar.busy.is_empty() {
            lines.push(format!("{name}: free for the whole time"));
        } else {
            lines.push(format!("{name}: busy"));
            let busy = |busy: &Busy| {
                format!("- {} to {}", times::shown(busy.start, &zone), times::shown(busy.end, &zone))
            };
            lines.extend(calendar.busy.iter().map(busy));
        }
    }
    let (from, to) = (times::shown(from, &zone), times::shown(to, &zone));
    let head = format!("Busy times from {from} to {to} ({}), account {account}.", times::zone_name(&zone));
    Ok(format!("{head}\n{}", fenced("Google Calendar", &lines.join("\n"))))
}
