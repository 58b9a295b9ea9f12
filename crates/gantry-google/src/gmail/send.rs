//! `send`, `reply` and `draft`. A letter whose outcome is unknown is looked for once and never sent again.

use std::time::Instant;

use gantry_net::Method;
use gantry_tool::ToolError;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::compose::{Composed, composed};
use super::message::{StoredMessage, metadata};
use super::{Ctx, DRAFT, Input, READ, SEND};
use crate::api::{ApiCall, Service};
use crate::errors::GoogleError;
use crate::mail::{Letter, Mailbox};
use crate::others_words::line;

/// How many sent messages are compared with one whose outcome is unknown.
const COMPARED: usize = 5;
/// A message that was sent this long before the request is another one.
const CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_secs(120);

pub(super) async fn send(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let google = &ctx.state.google;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let Composed { letter, built, thread } = composed(&ctx.state, &ctx.call, &account, input).await?;
    let fingerprint = ctx.state.sent.count(&account, &letter, Instant::now())?;
    let started = Timestamp::now();
    let mut body = json!({"raw": built.raw()});
    if let Some(thread) = &thread {
        body["threadId"] = json!(thread);
    }
    let request = ApiCall::send(Service::Gmail, Method::POST, "/messages/send", SEND, body);
    let what = if thread.is_some() { "Reply" } else { "Mail" };
    let to = described_recipients(&letter);
    match google.api.call(&ctx.call, Some(&account), request).await {
        Ok(answer) => Ok(sent(what, &to, &account, &answer)),
        // Nobody knows whether Gmail got it, so it stays counted.
        Err(err @ (GoogleError::Unknown { .. } | GoogleError::Cancelled | GoogleError::Invalid { .. })) => {
            let found = match err {
                GoogleError::Cancelled => None,
                _ => find_sent(ctx, &account, &letter, &built.message_id, started).await,
            };
            match found {
                Some(message) => {
                    let answer = json!({"id": message.id, "threadId": message.thread_id});
                    let sent = sent(what, &to, &account, &answer);
                    Ok(format!(
                        "{sent} The answer of Gmail was lost; the message was found among the sent ones."
                    ))
                }
                None => Err(unknown(&to, &err)),
            }
        }
        Err(err) => {
            ctx.state.sent.forget(fingerprint);
            Err(err.into())
        }
    }
}

fn unknown(to: &str, err: &GoogleError) -> ToolError {
    let text = format!("it is unknown whether the mail to {to} was sent: {err}");
    ToolError::failed(text).with_hint(
        "do not send it again before you have looked: search with the query \"in:sent newer_than:1d\"",
    )
}

fn sent(what: &str, to: &str, account: &str, answer: &Value) -> String {
    let id = |name: &str| line(answer[name].as_str().unwrap_or("unknown"), 100);
    format!("{what} sent to {to}. Message {}, thread {}. Account: {account}.", id("id"), id("threadId"))
}

/// Blind copies are counted only: results may be shown to others.
fn described_recipients(letter: &Letter) -> String {
    let shown: Vec<&str> = letter.to.iter().chain(&letter.cc).map(|one| one.address.as_str()).collect();
    match (shown.is_empty(), letter.bcc.len()) {
        (false, 0) => shown.join(", "),
        (true, hidden) => format!("{hidden} blind copies"),
        (false, hidden) => format!("{} and {hidden} blind copies", shown.join(", ")),
    }
}

/// Looks once for a letter that may have been sent: the newest messages with its Message-ID, or with its recipients and
/// subject.
async fn find_sent(
    ctx: &Ctx,
    account: &str,
    letter: &Letter,
    message_id: &str,
    started: Timestamp,
) -> Option<StoredMessage> {
    #[derive(Deserialize)]
    struct Found {
        #[serde(default)]
        messages: Vec<FoundMessage>,
    }
    #[derive(Deserialize)]
    struct FoundMessage {
        id: String,
    }
    let api = &ctx.state.google.api;
    let request = ApiCall::get(Service::Gmail, "/messages", READ)
        .with("q", "in:sent newer_than:1d")
        .with("maxResults", COMPARED.to_string());
    let answer = api.call(&ctx.call, Some(account), request).await.ok()?;
    let found: Found = serde_json::from_value(answer).ok()?;
    for candidate in found.messages.into_iter().take(COMPARED) {
        let message = metadata(&ctx.state, &ctx.call, account, &candidate.id).await.ok()?;
        let headers = message.headers();
        let is_new = message.received().is_some_and(|at| at >= started - CLOCK_DIFFERENCE);
        let is_equal = same(&headers.to, &letter.to)
            && same(&headers.cc, &letter.cc)
            && headers.subject.split_whitespace().eq(letter.subject.split_whitespace());
        if headers.message_id.as_deref() == Some(message_id) || (is_new && is_equal) {
            return Some(message);
        }
    }
    None
}

fn same(found: &[Mailbox], wanted: &[Mailbox]) -> bool {
    found.len() == wanted.len() && found.iter().all(|one| wanted.iter().any(|other| one.is_same(other)))
}

pub(super) async fn draft(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let google = &ctx.state.google;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let Composed { built, thread, .. } = composed(&ctx.state, &ctx.call, &account, input).await?;
    let mut message = json!({"raw": built.raw()});
    if let Some(thread) = &thread {
        message["threadId"] = json!(thread);
    }
    let request = ApiCall::send(Service::Gmail, Method::POST, "/drafts", DRAFT, json!({"message": message}));
    let answer = google.api.call(&ctx.call, Some(&account), request).await?;
    let id = |value: &Value| line(value.as_str().unwrap_or("unknown"), 100);
    Ok(format!(
        "Draft {} saved; nothing was sent. Message {}. Account: {account}.",
        id(&answer["id"]),
        id(&answer["message"]["id"])
    ))
}
