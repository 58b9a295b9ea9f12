//! `list_events`: events of a time range, or one event with all details.

use gantry_tool::ToolError;
use jiff::{SignedDuration, Timestamp};

use super::event::{event_path, events_path, get, parsed};
use super::{Input, READ};
use crate::api::{ApiCall, Service};
use crate::declare::Ctx;
use crate::others_words::fenced;
use crate::times;

const DEFAULT_RESULTS: u32 = 25;
const MAX_RESULTS: u32 = 100;
/// A page may be empty although there are more.
const MAX_PAGES: u32 = 20;
const DEFAULT_RANGE: SignedDuration = SignedDuration::from_hours(7 * 24);

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let google = &ctx.state;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let zone = times::zone(input.timezone.as_deref(), &google.zone)?;
    if input.event_id.is_some() {
        let event = get(google, &ctx.call, Some(&account), &event_path("list_events", input)?).await?;
        let lines = event.lines(&zone, true).join("\n");
        return Ok(format!("1 event, account {account}.\n{}", fenced(super::SERVICE, &lines)));
    }
    let (from, to) = range(input, &zone)?;
    let limit = input.max_results.unwrap_or(DEFAULT_RESULTS);
    if !(1..=MAX_RESULTS).contains(&limit) {
        return Err(ToolError::input(format!("max_results must be 1 to {MAX_RESULTS}")));
    }
    let path = events_path(input)?;
    let (mut lines, mut count) = (Vec::new(), 0);
    let mut page = input.page_token.clone();
    for _ in 0..MAX_PAGES {
        let mut request = ApiCall::get(Service::Calendar, path.clone(), READ)
            .with("timeMin", from.to_string())
            .with("timeMax", to.to_string())
            .with("singleEvents", "true")
            .with("orderBy", "startTime")
            .with("maxResults", (limit - count).to_string())
            .with("timeZone", times::zone_name(&zone));
        if let Some(page) = page {
            request = request.with("pageToken", page);
        }
        let answer = google.api.call(&ctx.call, Some(&account), request).await?;
        for event in answer["items"].as_array().into_iter().flatten() {
            lines.extend(parsed(event.clone()).lines(&zone, false));
            count += 1;
        }
        page = answer["nextPageToken"].as_str().map(str::to_owned);
        if page.is_none() || count >= limit {
            break;
        }
    }
    let (from, to) = (times::shown(from, &zone), times::shown(to, &zone));
    let zone = times::zone_name(&zone);
    if count == 0 && page.is_none() {
        return Ok(format!("No events from {from} to {to} ({zone}), account {account}."));
    }
    let more = page.map_or_else(String::new, |page| {
        format!("\nThere are more events: call again with page_token {page:?}.")
    });
    let body = fenced(super::SERVICE, &lines.join("\n"));
    Ok(format!("{count} events from {from} to {to} ({zone}), account {account}.\n{body}{more}"))
}

/// The time range of a call: from now, for 7 days, unless the input says otherwise.
pub(super) fn range(input: &Input, zone: &jiff::tz::TimeZone) -> Result<(Timestamp, Timestamp), ToolError> {
    let from = match &input.time_min {
        Some(text) => times::instant("time_min", text, zone)?,
        None => Timestamp::now(),
    };
    let to = match &input.time_max {
        Some(text) => times::instant("time_max", text, zone)?,
        None => from.checked_add(DEFAULT_RANGE).map_err(|_| ToolError::input("time_min is out of range"))?,
    };
    if to <= from {
        return Err(ToolError::input("time_max must be after time_min"));
    }
    Ok((from, to))
}
