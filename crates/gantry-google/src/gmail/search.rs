//! `search`: messages that match a query.

use futures_util::{StreamExt, stream};
use gantry_tool::ToolError;
use serde::Deserialize;

use super::message::{StoredMessage, metadata};
use super::{Ctx, Input, READ};
use crate::api::{ApiCall, Service};
use crate::errors::GoogleError;
use crate::mail::Mailbox;
use crate::others_words::{fenced, line};
use crate::times;

const DEFAULT_RESULTS: u32 = 10;
const MAX_RESULTS: u32 = 50;
/// How many messages are loaded at the same time.
const PARALLEL: usize = 8;
const MAX_QUERY: usize = 2_000;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Found {
    messages: Vec<FoundMessage>,
    next_page_token: Option<String>,
    result_size_estimate: u64,
}

#[derive(Debug, Deserialize)]
struct FoundMessage {
    id: String,
}

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let (gmail, google) = (&ctx.state, &ctx.state.google);
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let max = input.max_results.unwrap_or(DEFAULT_RESULTS);
    if !(1..=MAX_RESULTS).contains(&max) {
        return Err(ToolError::input(format!("max_results must be 1 to {MAX_RESULTS}")));
    }
    let mut request = ApiCall::get(Service::Gmail, "/messages", READ).with("maxResults", max.to_string());
    if let Some(query) = input.query.as_deref().filter(|query| !query.trim().is_empty()) {
        if query.len() > MAX_QUERY {
            return Err(ToolError::input(format!("query has at most {MAX_QUERY} bytes")));
        }
        request = request.with("q", query);
    }
    if let Some(token) = &input.page_token {
        request = request.with("pageToken", token.as_str());
    }
    let answer = google.api.call(&ctx.call, Some(&account), request).await?;
    let found: Found = serde_json::from_value(answer).unwrap_or_default();
    if found.messages.is_empty() {
        return Ok(format!("No messages found. Account: {account}."));
    }
    let load = |found: &FoundMessage| {
        let (id, account) = (found.id.clone(), account.clone());
        async move { (metadata(gmail, &ctx.call, &account, &id).await, id) }
    };
    let loaded: Vec<(Result<StoredMessage, GoogleError>, String)> =
        stream::iter(found.messages.iter().map(load)).buffered(PARALLEL).collect().await;
    if loaded.iter().all(|(message, _)| message.is_err())
        && let Some((Err(err), _)) = loaded.first()
    {
        return Err(err.clone().into());
    }
    let entries = loaded.iter().map(|(message, id)| match message {
        Ok(message) => entry(message, &google.zone),
        // A message that is missing from the list would look as if it did not exist.
        Err(err) => format!("(the message {id} could not be loaded: {err})"),
    });
    let entries: Vec<String> = entries.collect();
    let about = found.result_size_estimate.max(entries.len() as u64);
    let head = format!("About {about} messages match; {} are shown. Account: {account}.", entries.len());
    let next = found.next_page_token.map(|token| format!("\nNext page: page_token {}", line(&token, 200)));
    Ok(format!("{head}{}\n{}", next.unwrap_or_default(), fenced("Gmail", &entries.join("\n\n"))))
}

/// One message of a list.
fn entry(message: &StoredMessage, zone: &jiff::tz::TimeZone) -> String {
    let headers = message.headers();
    let subject = match headers.subject.is_empty() {
        true => "(no subject)".to_owned(),
        false => line(&headers.subject, 200),
    };
    let unread = if message.is_unread() { " [UNREAD]" } else { "" };
    let from: Vec<String> = headers.from.iter().map(Mailbox::shown).collect();
    let date = message.received().map(|at| times::shown(at, zone)).unwrap_or_default();
    let mut lines = vec![
        format!("**{subject}**{unread}"),
        format!("From: {}", line(&from.join(", "), 300)),
        format!("Date: {date}"),
        format!("ID: {} (thread {})", message.id, message.thread_id),
    ];
    let snippet = line(&message.snippet, 200);
    if !snippet.is_empty() {
        lines.push(snippet);
    }
    lines.join("\n")
}
