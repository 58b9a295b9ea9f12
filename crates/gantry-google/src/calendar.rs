//! `google_calendar` lists, creates, changes and deletes events, and finds free time.

use std::sync::Arc;

use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, Call, Crossing, Text, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::declare::{Ctx, Google, declared};

mod free_busy;

pub(crate) const NAME: &str = "google_calendar";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    FreeBusy,
}

/// Work with Google Calendar. Times without an offset are local times of the owner.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    action: Action,
    /// The Google account, by address (default: the first one that signed in).
    account: Option<String>,
    /// Start of the time range (default: now).
    time_min: Option<String>,
    /// End of the time range (default: 7 days after time_min).
    time_max: Option<String>,
    /// The zone of local times, such as Europe/Berlin (default: the owner's).
    timezone: Option<String>,
    /// free_busy: calendar ids, at most 50 (default: the primary calendar).
    calendars: Option<Vec<String>>,
}

pub(crate) fn tool(google: &Arc<Google>) -> Tool {
    let asked = google.clone();
    declared(Tool::new(NAME, Toolset::Assistant, google, run))
        .crosses(crossings)
        .asks_as(move |call: AskedCall, input: Input| question(asked.clone(), call, input))
}

/// How an action crosses the border. See [`declared`].
fn crossings(_: &Call, input: Input) -> Vec<Crossing> {
    match input.action {
        Action::FreeBusy => Vec::new(),
    }
}

/// Describes an action that needs a confirmation.
async fn question(_google: Arc<Google>, _call: AskedCall, input: Input) -> Option<AskedAction> {
    match input.action {
        Action::FreeBusy => None,
    }
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    match input.action {
        Action::FreeBusy => free_busy::run(&ctx, &input).await,
    }
    .map(Text)
}
