//! `archive` and `mark_read`: a message loses a label.

use gantry_net::Method;
use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, ToolError, on_one_line};
use serde_json::json;

use super::message::{metadata, thread};
use super::{Ctx, Gmail, Input, MODIFY};
use crate::api::{ApiCall, Service};
use crate::ids::{object_id, required};
use crate::mail::Mailbox;
use crate::questions::{change, field};

pub(super) async fn archive(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let (account, id) = remove_label(ctx, input, "INBOX").await?;
    let note = match others_in_inbox(ctx, &account, &id).await {
        Some(others) if !others.is_empty() => format!(
            " Its thread stays in the inbox because of {}: {}.",
            if others.len() == 1 { "another message" } else { "other messages" },
            others.join(", ")
        ),
        _ => String::new(),
    };
    Ok(format!("Message {id} archived (removed from the inbox). Account: {account}.{note}"))
}

pub(super) async fn mark_read(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let (account, id) = remove_label(ctx, input, "UNREAD").await?;
    Ok(format!("Message {id} marked as read. Account: {account}."))
}

/// Removes a label. Repeating it has no further effect.
async fn remove_label(ctx: &Ctx, input: &Input, label: &str) -> Result<(String, String), ToolError> {
    let google = &ctx.state.google;
    let id =
        object_id("message_id", required(input.action.name(), "message_id", input.message_id.as_deref())?)?;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let path = format!("/messages/{id}/modify");
    let body = json!({"removeLabelIds": [label]});
    let request = ApiCall::send(Service::Gmail, Method::POST, path, MODIFY, body).repeatable();
    google.api.call(&ctx.call, Some(&account), request).await?;
    Ok((account, id.to_owned()))
}

/// The other messages of the thread that are in the inbox, if that can be found out.
async fn others_in_inbox(ctx: &Ctx, account: &str, id: &str) -> Option<Vec<String>> {
    let message = metadata(&ctx.state, &ctx.call, account, id).await.ok()?;
    let messages = thread(&ctx.state, &ctx.call, account, &message.thread_id).await.ok()?;
    let is_there = |label: &String| label == "INBOX";
    let others = messages.into_iter().filter(|other| other.id != id && other.label_ids.iter().any(is_there));
    Some(others.map(|other| other.id).take(10).collect())
}

/// Shows which message is archived.
pub(super) async fn question(gmail: &Gmail, asked: &AskedCall, input: &Input) -> Option<AskedAction> {
    let id = input.message_id.as_deref().unwrap_or_default();
    let found =
        match (gmail.google.api.accounts().resolve(input.account.as_deref()), object_id("message_id", id)) {
            (Ok(account), Ok(id)) => {
                metadata(gmail, &asked.call, &account, id).await.map_err(|err| err.to_string())
            }
            (Err(err), _) => Err(err.to_string()),
            (_, Err(err)) => Err(err.to_string()),
        };
    let details = match found {
        Ok(message) => {
            let headers = message.headers();
            let from: Vec<String> = headers.from.iter().map(Mailbox::shown).collect();
            vec![field("Subject", &headers.subject), field("From", &from.join(", "))]
        }
        Err(why) => vec![field("The message could not be loaded", &why)],
    };
    change("Gmail", format!("archive the message {}", on_one_line(id)), &details)
}
