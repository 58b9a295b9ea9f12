//! `google_calendar` lists, creates, changes and deletes events, and finds free time.

use std::sync::Arc;

use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, Call, Crossing, Text, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::declare::{Ctx, Google, declared};
use crate::questions::unresolved;

mod create_event;
mod delete_event;
mod event;
mod free_busy;
mod list_events;
#[cfg(test)]
mod tests;
mod update_event;

pub(crate) const NAME: &str = "google_calendar";
const SERVICE: &str = "Google Calendar";

/// Scopes that may read events, the smallest first.
const READ: &[&str] = &["calendar.readonly", "calendar.events.readonly", "calendar.events", "calendar"];
/// Scopes that may change events.
const WRITE: &[&str] = &["calendar.events", "calendar"];
/// The most attendees of an event.
const MAX_ATTENDEES: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    ListEvents,
    CreateEvent,
    UpdateEvent,
    DeleteEvent,
    FreeBusy,
}

/// Work with Google Calendar. Times without an offset are local times of the owner. `list_events` shows the next 7 days, or
/// one event with all details if event_id is given. `create_event` needs summary, start and end, and sends invitations to
/// attendees. `update_event` needs event_id and updates. `delete_event` needs event_id. `free_busy` shows busy times.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    action: Action,
    /// The Google account, by address (default: the first one that signed in).
    account: Option<String>,
    /// The calendar (default: "primary").
    calendar_id: Option<String>,
    /// The event, as list_events returns it. An instance of a recurring event has its own id.
    event_id: Option<String>,
    /// Start of the time range (default: now).
    time_min: Option<String>,
    /// End of the time range (default: 7 days after time_min).
    time_max: Option<String>,
    /// The title of a new event.
    summary: Option<String>,
    description: Option<String>,
    location: Option<String>,
    /// Start of a new event: a time, or a date if all_day is true.
    start: Option<String>,
    /// End of a new event. If all_day is true, its last day, inclusive (default: the first day).
    end: Option<String>,
    /// Addresses of the people to invite.
    attendees: Option<Vec<String>>,
    /// The event takes whole days.
    #[serde(default)]
    all_day: bool,
    /// The zone of local times, such as Europe/Berlin (default: the owner's).
    timezone: Option<String>,
    /// Rules such as "RRULE:FREQ=WEEKLY;COUNT=5".
    recurrence: Option<Vec<String>>,
    /// update_event: the fields to change.
    updates: Option<Updates>,
    /// free_busy: calendar ids, at most 50 (default: the primary calendar).
    calendars: Option<Vec<String>>,
    /// list_events: 1 to 100 (default 25).
    max_results: Option<u32>,
    /// list_events: the page that an earlier call named.
    page_token: Option<String>,
}

/// Fields of an event to change. A field that is left out stays as it is.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Updates {
    summary: Option<String>,
    description: Option<String>,
    location: Option<String>,
    /// A new start. Without a new end the event keeps its length.
    start: Option<String>,
    end: Option<String>,
    /// Whether start and end are days.
    all_day: bool,
    /// People to invite in addition to those who are invited.
    attendees: Option<Vec<String>>,
    /// People to uninvite.
    remove_attendees: Option<Vec<String>>,
    recurrence: Option<Vec<String>>,
}

pub(crate) fn tool(google: &Arc<Google>) -> Tool {
    let asked = google.clone();
    declared(Tool::new(NAME, Toolset::Assistant, google, run))
        .crosses(crossings)
        .asks_as(move |call: AskedCall, input: Input| question(asked.clone(), call, input))
}

/// How an action crosses the border. See [`declared`].
fn crossings(_: &Call, input: Input) -> Vec<Crossing> {
    let change = |what: &str| Crossing::Change { what: what.to_owned() };
    let invited = |addresses: Option<Vec<String>>| {
        let addresses = addresses.unwrap_or_default();
        (!addresses.is_empty()).then(|| Crossing::Message { to: addresses.join(", ") })
    };
    match input.action {
        Action::ListEvents | Action::FreeBusy => Vec::new(),
        Action::CreateEvent => {
            let message = invited(input.attendees);
            message.into_iter().chain([change("create an event in Google Calendar")]).collect()
        }
        Action::UpdateEvent => {
            let message = invited(input.updates.and_then(|updates| updates.attendees));
            message.into_iter().chain([change("change an event in Google Calendar")]).collect()
        }
        Action::DeleteEvent => vec![change("delete an event in Google Calendar")],
    }
}

/// Describes an action that needs a confirmation. An invalid input is shown as it is.
async fn question(google: Arc<Google>, call: AskedCall, input: Input) -> Option<AskedAction> {
    let described = match input.action {
        Action::ListEvents | Action::FreeBusy => return None,
        Action::CreateEvent => create_event::question(&google, &input),
        Action::UpdateEvent => update_event::question(&google, &call, &input).await,
        Action::DeleteEvent => delete_event::question(&google, &call, &input).await,
    };
    described.or_else(|| unresolved(SERVICE, &input))
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    match input.action {
        Action::ListEvents => list_events::run(&ctx, &input).await,
        Action::CreateEvent => create_event::run(&ctx, &input).await,
        Action::UpdateEvent => update_event::run(&ctx, &input).await,
        Action::DeleteEvent => delete_event::run(&ctx, &input).await,
        Action::FreeBusy => free_busy::run(&ctx, &input).await,
    }
    .map(Text)
}
