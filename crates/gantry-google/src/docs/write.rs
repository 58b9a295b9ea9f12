//! `create` and `append`: Markdown becomes part of a document.

use gantry_net::Method;
use gantry_tool::ToolError;
use serde_json::{Value, json};

use super::read::{Loaded, load};
use super::{Input, WRITE};
use crate::api::{ApiCall, Service};
use crate::declare::Ctx;
use crate::document::{Plan, append_plan, footnote_requests, parse};
use crate::errors::GoogleError;
use crate::ids::{object_id, required};
use crate::others_words::line;

const MAX_CONTENT: usize = 1 << 20;
const MAX_TITLE: usize = 500;
/// How often an append starts again because somebody else changed the document.
const MAX_ATTEMPTS: usize = 3;

pub(super) async fn create(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let title = required("create", "title", input.title.as_deref().filter(|title| !title.trim().is_empty()))?;
    if title.chars().count() > MAX_TITLE || title.chars().any(char::is_control) {
        return Err(ToolError::input(format!("title has at most {MAX_TITLE} characters on one line")));
    }
    let content = checked(input.content.as_deref().unwrap_or_default())?;
    let google = &ctx.state;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let request = ApiCall::send(Service::Docs, Method::POST, "", WRITE, json!({"title": title}));
    let answer = google.api.call(&ctx.call, Some(&account), request).await?;
    let id = answer["documentId"].as_str().unwrap_or_default().to_owned();
    let created = format!("Document {} created. Account: {account}.", line(&id, 100));
    let plan = append_plan(&parse(content), 1, true);
    if plan.requests.is_empty() {
        return Ok(format!("{created}\nhttps://docs.google.com/document/d/{id}/edit"));
    }
    let revision = answer["revisionId"].as_str().unwrap_or_default();
    match apply(ctx, &account, object_id("documentId", &id)?, revision, &plan).await {
        Ok(()) => Ok(format!("{created}\nhttps://docs.google.com/document/d/{id}/edit")),
        // A second call would create a second document.
        Err(err) => Err(ToolError::failed(format!(
            "the empty document {id} was created, but its content is missing: {err}"
        ))
        .with_hint("append the content to that document, do not create another one")),
    }
}

pub(super) async fn append(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let id = object_id("document_id", required("append", "document_id", input.document_id.as_deref())?)?;
    let content = checked(required("append", "content", input.content.as_deref())?)?;
    let blocks = parse(content);
    if blocks.is_empty() {
        return Err(ToolError::input("content is empty; there is nothing to append"));
    }
    let google = &ctx.state;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let mut attempt = 1;
    loop {
        let document = load(google, &ctx.call, &account, id, Loaded::Body).await?;
        let (end, is_last_empty) = document.end();
        let plan = append_plan(&blocks, end, is_last_empty);
        match apply(ctx, &account, id, &document.revision_id, &plan).await {
            Ok(()) => break,
            // The rejected change had no effect, so it is planned again on the new state.
            Err(err) if is_conflict(&err) && attempt < MAX_ATTEMPTS => attempt += 1,
            Err(err) => return Err(err.into()),
        }
    }
    let count = content.chars().count();
    Ok(format!("Appended {count} characters of Markdown to document {id}. Account: {account}."))
}

fn checked(content: &str) -> Result<&str, ToolError> {
    if content.len() > MAX_CONTENT {
        return Err(ToolError::input(format!(
            "content has at most {MAX_CONTENT} bytes; append the rest later"
        )));
    }
    Ok(content)
}

/// Applies a plan to one revision of a document, then writes the text of its footnotes.
async fn apply(ctx: &Ctx, account: &str, id: &str, revision: &str, plan: &Plan) -> Result<(), GoogleError> {
    let answer = update(ctx, account, id, revision, &plan.requests).await?;
    let mut requests = Vec::new();
    for (request, spans) in &plan.footnotes {
        if let Some(footnote) = answer["replies"][*request]["createFootnote"]["footnoteId"].as_str() {
            requests.extend(footnote_requests(footnote, spans));
        }
    }
    if !requests.is_empty() {
        update(ctx, account, id, "", &requests).await?;
    }
    Ok(())
}

/// Sends requests. With a revision they are applied only to it.
pub(super) async fn update(
    ctx: &Ctx,
    account: &str,
    id: &str,
    revision: &str,
    requests: &[Value],
) -> Result<Value, GoogleError> {
    let mut body = json!({"requests": requests});
    // Google names the revision only to people who may edit the document.
    if !revision.is_empty() {
        body["writeControl"] = json!({"requiredRevisionId": revision});
    }
    let path = format!("/{id}:batchUpdate");
    let request = ApiCall::send(Service::Docs, Method::POST, path, WRITE, body);
    let result = ctx.state.api.call(&ctx.call, Some(account), request).await;
    let Err(GoogleError::Unknown { service, text }) = result else { return result };
    // The revision shows whether the change happened. It is never sent again.
    let now =
        load(&ctx.state, &ctx.call, account, id, Loaded::Body).await.map(|document| document.revision_id);
    match now {
        Ok(now) if !revision.is_empty() && now == revision => {
            let text = format!("{text}; the document was not changed, so you may try again");
            Err(GoogleError::Unreachable { service, text })
        }
        _ => Err(GoogleError::Unknown { service, text }),
    }
}

/// Whether somebody else changed the document first.
fn is_conflict(err: &GoogleError) -> bool {
    match err {
        GoogleError::Rejected { status: 400, reason, text, .. } => {
            reason.eq_ignore_ascii_case("FAILED_PRECONDITION")
                || reason == "failedPrecondition"
                || text.contains("revision")
        }
        _ => false,
    }
}
