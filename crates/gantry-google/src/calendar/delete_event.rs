//! `delete_event`: deletes an event or one instance of it, and informs its attendees.

use gantry_net::Method;
use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, ToolError};

use super::event::{event_path, get};
use super::{Input, SERVICE, WRITE};
use crate::api::{ApiCall, Service};
use crate::declare::{Ctx, Google};
use crate::others_words::line;
use crate::questions::{change, field};
use crate::times;

pub(super) async fn question(google: &Google, asked: &AskedCall, input: &Input) -> Option<AskedAction> {
    let account = google.api.accounts().resolve(input.account.as_deref()).ok()?;
    let zone = times::zone(input.timezone.as_deref(), &google.zone).ok()?;
    let event =
        get(google, &asked.call, Some(&account), &event_path("delete_event", input).ok()?).await.ok()?;
    let mut details = vec![field("Account", &account), field("When", &event.when(&zone))];
    let others = event.others();
    details.extend((!others.is_empty()).then(|| field("Informed", &others.join(", "))));
    details.extend((!event.recurrence.is_empty()).then(|| field("Deletes", "every repetition of the event")));
    change(SERVICE, format!("delete \"{}\"", line(&event.summary, 200)), &details)
}

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let google = &ctx.state;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let path = event_path("delete_event", input)?;
    let request = ApiCall { method: Method::DELETE, ..ApiCall::get(Service::Calendar, path, WRITE) };
    match google.api.call(&ctx.call, Some(&account), request.with("sendUpdates", "all")).await {
        Ok(_) => Ok(format!("The event was deleted, account {account}. Its attendees were informed.")),
        Err(err) if err.status() == Some(410) => {
            Ok(format!("The event was already deleted, account {account}."))
        }
        Err(err) => Err(err.into()),
    }
}
