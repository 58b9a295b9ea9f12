//! `read`: a document as Markdown, with all its tabs.

use gantry_tool::{AskedCall, Call, ToolError, on_one_line};

use super::{Input, READ};
use crate::api::{ApiCall, Service};
use crate::declare::{Ctx, Google};
use crate::document::{Document, render, tabs};
use crate::errors::GoogleError;
use crate::ids::{object_id, required};
use crate::others_words::{fenced, line};

/// The longest Markdown of a document, in characters.
const MAX_TEXT: usize = 1_000_000;

/// Which parts of a document are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loaded {
    /// Every tab.
    Tabs,
    /// The first tab.
    Body,
}

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let id = object_id("document_id", required("read", "document_id", input.document_id.as_deref())?)?;
    let account = ctx.state.api.accounts().resolve(input.account.as_deref())?;
    let document = load(&ctx.state, &ctx.call, &account, id, Loaded::Tabs).await?;
    let tabs = tabs(&document);
    let mut text = format!("Title: {}\n", line(&document.title, 500));
    for tab in &tabs {
        if tabs.len() > 1 {
            text.push_str(&format!("\n=== Tab: {} ({}) ===\n", line(&tab.title, 200), line(&tab.id, 50)));
        }
        let markdown = render(&tab.blocks);
        text.push('\n');
        text.push_str(if markdown.is_empty() { "(empty)\n" } else { &markdown });
    }
    let length = text.chars().count();
    let cut = match text.char_indices().nth(MAX_TEXT) {
        None => String::new(),
        Some((end, _)) => {
            text.truncate(end);
            format!(" Only the first {MAX_TEXT} of {length} characters are shown.")
        }
    };
    let head = format!("Document {id}, {} tabs. Account: {account}.{cut}", tabs.len());
    Ok(format!("{head}\n{}", fenced(&format!("document {id}"), &text)))
}

pub(super) async fn load(
    google: &Google,
    call: &Call,
    account: &str,
    id: &str,
    loaded: Loaded,
) -> Result<Document, GoogleError> {
    let mut request = ApiCall::get(Service::Docs, format!("/{id}"), READ)
        .with("suggestionsViewMode", "PREVIEW_WITHOUT_SUGGESTIONS");
    if loaded == Loaded::Tabs {
        request = request.with("includeTabsContent", "true");
    }
    let answer = google.api.call(call, Some(account), request).await?;
    serde_json::from_value(answer)
        .map_err(|err| GoogleError::Invalid { service: Service::Docs, text: err.to_string() })
}

/// The document of a question, by its title.
pub(super) async fn named(google: &Google, asked: &AskedCall, input: &Input) -> String {
    let id = input.document_id.as_deref().unwrap_or_default();
    let shown = on_one_line(id);
    let Ok(id) = object_id("document_id", id) else { return shown };
    let Ok(account) = google.api.accounts().resolve(input.account.as_deref()) else { return shown };
    match load(google, &asked.call, &account, id, Loaded::Body).await {
        Ok(document) => format!("{:?} ({shown})", on_one_line(&document.title)),
        Err(err) => format!("{shown}, whose title is unknown ({})", on_one_line(&err.to_string())),
    }
}
