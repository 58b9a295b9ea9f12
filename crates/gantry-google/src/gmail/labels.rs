//! `labels`: every label with its numbers of messages.

use futures_util::{StreamExt, stream};
use gantry_tool::ToolError;
use serde::Deserialize;

use super::{Ctx, Input, READ};
use crate::api::{ApiCall, Service};
use crate::errors::GoogleError;
use crate::ids::segment;
use crate::others_words::{fenced, line};

/// The counts of more labels than this are not loaded.
const MAX_COUNTED: usize = 100;
const MAX_LISTED: usize = 1_000;
const PARALLEL: usize = 8;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Label {
    id: String,
    name: String,
    #[serde(rename = "type")]
    kind: String,
    messages_total: Option<u64>,
    messages_unread: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Labels {
    labels: Vec<Label>,
}

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let google = &ctx.state.google;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let request = ApiCall::get(Service::Gmail, "/labels", READ);
    let answer = google.api.call(&ctx.call, Some(&account), request).await?;
    let Labels { labels } = serde_json::from_value(answer).unwrap_or_default();
    if labels.is_empty() {
        return Ok(format!("No labels. Account: {account}."));
    }
    // The list has no counts, so each label is loaded by itself.
    let load = |label: &Label| {
        let (path, account) = (format!("/labels/{}", segment(&label.id)), account.clone());
        async move {
            let request = ApiCall::get(Service::Gmail, path, READ);
            let answer = google.api.call(&ctx.call, Some(&account), request).await?;
            Ok::<Label, GoogleError>(serde_json::from_value(answer).unwrap_or_default())
        }
    };
    let counted: Vec<Result<Label, GoogleError>> =
        stream::iter(labels.iter().take(MAX_COUNTED).map(load)).buffered(PARALLEL).collect().await;
    let entry = |(at, label): (usize, &Label)| {
        let counts = match counted.get(at) {
            Some(Ok(Label { messages_total: Some(total), messages_unread: Some(unread), .. })) => {
                format!("{total} messages, {unread} unread")
            }
            Some(Err(err)) => format!("the counts could not be loaded: {err}"),
            _ => "not counted".to_owned(),
        };
        format!("- {} [{}] ({counts}) — ID: {}", line(&label.name, 200), label.kind, label.id)
    };
    let entries: Vec<String> = labels.iter().take(MAX_LISTED).enumerate().map(entry).collect();
    let head = format!("{} labels. Account: {account}.", labels.len());
    Ok(format!("{head}\n{}", fenced("Gmail labels", &entries.join("\n"))))
}
