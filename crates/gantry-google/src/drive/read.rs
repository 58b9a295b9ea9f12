//! `read`: the text of a file, or its bytes as a workspace file.

use bytes::Bytes;
use gantry_tool::ToolError;

use super::files::{FOLDER, FileInfo, content_of, get_target};
use super::{Input, READ, SERVICE};
use crate::api::{ApiCall, Service};
use crate::declare::Ctx;
use crate::ids::{object_id, required};
use crate::others_words::fenced;
use crate::sheets;

/// The largest file whose text is returned.
const MAX_TEXT: usize = 20 << 20;
/// The largest file that is stored in the workspace.
const MAX_SAVED: usize = 64 << 20;
/// Google exports at most 10 MB.
const MAX_EXPORT: usize = 11 << 20;

const DOCUMENT: &str = "application/vnd.google-apps.document";
const SPREADSHEET: &str = "application/vnd.google-apps.spreadsheet";
const PRESENTATION: &str = "application/vnd.google-apps.presentation";
const EDITOR_PREFIX: &str = "application/vnd.google-apps.";

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let google = &ctx.state;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let id = object_id("file_id", required("read", "file_id", input.file_id.as_deref())?)?;
    let file = get_target(google, &ctx.call, &account, id).await?;
    if let Some(path) = &input.save_to {
        return save(ctx, &account, &file, path).await;
    }
    let text = match file.mime_type.as_str() {
        FOLDER => {
            return Err(
                ToolError::input("the file is a folder").with_hint("use the action list with folder_id")
            );
        }
        SPREADSHEET => sheets::read::all_sheets(google, &ctx.call, &account, &file.id).await?,
        DOCUMENT | PRESENTATION => {
            let bytes = export(ctx, &account, &file).await?;
            String::from_utf8_lossy(&bytes).trim_start_matches('\u{feff}').to_owned()
        }
        kind if kind.starts_with(EDITOR_PREFIX) => {
            return Err(ToolError::failed(format!("a file of the type {kind} has no text")));
        }
        _ => text_of(ctx, &account, &file).await?,
    };
    let head = file.lines().join("\n");
    Ok(format!("1 file, account {account}.\n{}", fenced(SERVICE, &format!("{head}\n\n{text}"))))
}

/// Docs as Markdown, presentations as text.
async fn export(ctx: &Ctx, account: &str, file: &FileInfo) -> Result<Bytes, ToolError> {
    let request = |kind: &str| {
        ApiCall::get(Service::Drive, format!("/files/{}/export", file.id), READ).with("mimeType", kind)
    };
    let api = &ctx.state.api;
    let is_document = file.mime_type == DOCUMENT;
    let kind = if is_document { "text/markdown" } else { "text/plain" };
    let exported = api.bytes(&ctx.call, Some(account), request(kind), MAX_EXPORT).await;
    match exported {
        Err(err) if err.status() == Some(400) && is_document => {
            Ok(api.bytes(&ctx.call, Some(account), request("text/plain"), MAX_EXPORT).await?)
        }
        other => Ok(other?),
    }
}

/// The text of an ordinary file.
async fn text_of(ctx: &Ctx, account: &str, file: &FileInfo) -> Result<String, ToolError> {
    let size: u64 = file.size.as_deref().and_then(|size| size.parse().ok()).unwrap_or(0);
    let advice = "save_to stores it in the workspace";
    if size > MAX_TEXT as u64 {
        return Err(
            ToolError::failed(format!("the file has {size} bytes, more than {MAX_TEXT}")).with_hint(advice)
        );
    }
    let bytes = ctx.state.api.bytes(&ctx.call, Some(account), content_of(&file.id), MAX_TEXT).await?;
    let kind = file.mime_type.clone();
    let binary = || {
        ToolError::failed(format!(
            "the file is not text ({}, {} bytes)",
            crate::others_words::line(&file.mime_type, 100),
            bytes.len()
        ))
        .with_hint(advice)
    };
    if kind == "application/pdf" {
        let pdf = bytes.clone();
        let text = tokio::task::spawn_blocking(move || gantry_page::pdf_text(&pdf, MAX_TEXT));
        let text = text.await.map_err(|err| ToolError::internal(err.to_string()))?;
        return text.map(|pdf| pdf.text).map_err(|err| {
            ToolError::failed(format!("the text of the PDF cannot be read: {err}")).with_hint(advice)
        });
    }
    // A character that no text has.
    if bytes.contains(&0) {
        return Err(binary());
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(text.trim_start_matches('\u{feff}').to_owned()),
        Err(_) if kind.starts_with("text/") => Ok(gantry_page::decode(&bytes, Some(&kind)).into_owned()),
        Err(_) => Err(binary()),
    }
}

/// Stores a file in the workspace. Editor files are exported.
async fn save(ctx: &Ctx, account: &str, file: &FileInfo, path: &str) -> Result<String, ToolError> {
    let bytes = match file.mime_type.as_str() {
        FOLDER => return Err(ToolError::input("a folder cannot be saved; save its files")),
        DOCUMENT | PRESENTATION => export(ctx, account, file).await?,
        kind if kind.starts_with(EDITOR_PREFIX) => {
            return Err(ToolError::failed(format!("a file of the type {kind} cannot be saved")));
        }
        _ => ctx.state.api.bytes(&ctx.call, Some(account), content_of(&file.id), MAX_SAVED).await?,
    };
    let (files, call, own, size) = (ctx.state.files.clone(), ctx.call.clone(), path.to_owned(), bytes.len());
    let saved = tokio::task::spawn_blocking(move || files.create(&call, &own, &bytes));
    saved.await.map_err(|err| ToolError::internal(err.to_string()))??;
    Ok(format!("{size} bytes were saved to {path}, account {account}."))
}
