//! `upload` and `create_doc`: new files, in one request or in parts.

use bytes::Bytes;
use gantry_net::Method;
use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, Call, ToolError};
use serde_json::{Value, json};

use super::files::{FOLDER, FileInfo, get};
use super::{Action, CREATE, Input, SERVICE};
use crate::api::{ApiAnswer, ApiCall, Body, Service};
use crate::declare::{Ctx, Google};
use crate::errors::GoogleError;
use crate::ids::{object_id, required};
use crate::others_words::{fenced, line};
use crate::questions::{change, field, quoted};

/// The largest upload.
const MAX_UPLOAD: u64 = 64 << 20;
/// Google takes at most this much in one request.
const MAX_SIMPLE: usize = 5 << 20;
/// The size of a part; Google wants multiples of 256 KiB.
const PART: usize = 8 << 20;
const DOCUMENT: &str = "application/vnd.google-apps.document";
const RETURNED: &str = "id,name,mimeType,size,webViewLink,shared";

struct NewFile {
    name: String,
    mime_type: String,
    folder: Option<String>,
    is_document: bool,
}

fn checked(input: &Input) -> Result<NewFile, ToolError> {
    let is_document = input.action == Action::CreateDoc;
    let action = if is_document { "create_doc" } else { "upload" };
    let from_path = input.path.as_deref().and_then(|path| path.rsplit('/').next());
    let name = required(action, "file_name", input.file_name.as_deref().or(from_path))?;
    if name.trim().is_empty() || name.chars().count() > 500 || name.chars().any(char::is_control) {
        return Err(ToolError::input("file_name must be a name of at most 500 characters"));
    }
    match (&input.content, &input.path) {
        (Some(_), None) => {}
        (None, Some(_)) if !is_document => {}
        _ if is_document => return Err(ToolError::input("create_doc needs the field content and no path")),
        _ => return Err(ToolError::input("upload needs either content or path")),
    }
    let folder = input.folder_id.as_deref().filter(|folder| *folder != "root");
    let folder = folder.map(|folder| object_id("folder_id", folder)).transpose()?.map(str::to_owned);
    let mime_type = match &input.mime_type {
        None if is_document => "text/plain".to_owned(),
        None => type_of(name, input.content.is_some()).to_owned(),
        Some(kind) => {
            let is_valid = |c: u8| c.is_ascii_alphanumeric() || b"/+-._".contains(&c);
            let is_type = kind.len() <= 127 && kind.matches('/').count() == 1 && kind.bytes().all(is_valid);
            match is_type && !kind.starts_with("application/vnd.google-apps.") {
                true => kind.clone(),
                false => return Err(ToolError::input("mime_type must be a type such as text/csv")),
            }
        }
    };
    Ok(NewFile { name: name.to_owned(), mime_type, folder, is_document })
}

/// The type by the end of a name.
fn type_of(name: &str, is_text: bool) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase()).unwrap_or_default().as_str() {
        "md" => "text/markdown",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "json" => "application/json",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "zip" => "application/zip",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "txt" | "log" => "text/plain",
        _ if is_text => "text/plain",
        _ => "application/octet-stream",
    }
}

async fn content(google: &Google, call: &Call, input: &Input) -> Result<Bytes, ToolError> {
    let Some(path) = input.path.clone() else {
        return Ok(input.content.clone().unwrap_or_default().into());
    };
    let (files, call) = (google.files.clone(), call.clone());
    let read = tokio::task::spawn_blocking(move || files.read(&call, &path, MAX_UPLOAD));
    Ok(read.await.map_err(|err| ToolError::internal(err.to_string()))??.into())
}

pub(super) async fn question(google: &Google, asked: &AskedCall, input: &Input) -> Option<AskedAction> {
    let file = checked(input).ok()?;
    let account = google.api.accounts().resolve(input.account.as_deref()).ok()?;
    let mut details = vec![field("Account", &account)];
    match &file.folder {
        None => details.push(field("Folder", "My Drive (only you)")),
        Some(id) => match get(google, &asked.call, &account, id).await {
            Ok(folder) => {
                details.push(field("Folder", &format!("{} ({})", folder.name, folder.visibility())))
            }
            Err(_) => details.push(field("Folder", &format!("{id} (possibly shared with others)"))),
        },
    }
    details.push(field("Type", &file.mime_type));
    match (&input.path, &input.content) {
        (Some(path), _) => details.push(field("Workspace file", path)),
        (None, Some(text)) => details.push(quoted("Content", text)),
        (None, None) => {}
    }
    let verb = if file.is_document { "create the document" } else { "upload" };
    change(SERVICE, format!("{verb} \"{}\"", line(&file.name, 200)), &details)
}

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let google = &ctx.state;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let file = checked(input)?;
    let bytes = content(google, &ctx.call, input).await?;
    if let Some(folder) = &file.folder
        && get(google, &ctx.call, &account, folder).await?.mime_type != FOLDER
    {
        return Err(ToolError::input("folder_id is not a folder"));
    }
    let mut metadata = json!({"name": file.name});
    if let Some(folder) = &file.folder {
        metadata["parents"] = json!([folder]);
    }
    metadata["mimeType"] = json!(if file.is_document { DOCUMENT } else { &file.mime_type });
    // With an id of its own a request can be repeated. Google allows none for conversions.
    let own_id = match file.is_document {
        true => None,
        false => Some(new_id(google, &ctx.call, &account).await?),
    };
    if let Some(id) = &own_id {
        metadata["id"] = json!(id);
    }
    let sent = match bytes.len() <= MAX_SIMPLE {
        true => simple(google, &ctx.call, &account, &file, &metadata, &bytes).await,
        false => in_parts(google, &ctx.call, &account, &file, &metadata, &bytes).await,
    };
    let made: FileInfo = match (sent, &own_id) {
        (Ok(answer), _) => serde_json::from_value(answer).unwrap_or_default(),
        // An earlier attempt has stored the file.
        (Err(err), Some(id)) if err.status() == Some(409) => get(google, &ctx.call, &account, id).await?,
        (Err(err), _) => return Err(err.into()),
    };
    let what = if file.is_document { "The document was created" } else { "The file was uploaded" };
    let shown = format!(
        "- {}\n  id: {}\n  link: {}",
        line(&made.name, 300),
        line(&made.id, 200),
        line(&made.web_view_link, 500)
    );
    Ok(format!("{what} ({} bytes), account {account}.\n{}", bytes.len(), fenced(SERVICE, &shown)))
}

/// An id for a new file.
async fn new_id(google: &Google, call: &Call, account: &str) -> Result<String, GoogleError> {
    let request = ApiCall::get(Service::Drive, "/files/generateIds", CREATE).with("count", "1");
    let answer = google.api.call(call, Some(account), request).await?;
    let id = answer["ids"][0].as_str().map(str::to_owned);
    id.ok_or_else(|| GoogleError::Invalid { service: Service::Drive, text: "there is no id".to_owned() })
}

/// Metadata and content in one request.
async fn simple(
    google: &Google,
    call: &Call,
    account: &str,
    file: &NewFile,
    metadata: &Value,
    bytes: &Bytes,
) -> Result<Value, GoogleError> {
    // The boundary is random, so the content cannot contain it.
    let boundary = format!("gantry-{}", uuid::Uuid::new_v4().simple());
    let mut body = format!(
        "--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{metadata}\r\n--{boundary}\r\nContent-Type: {}\r\n\r\n",
        file.mime_type
    )
    .into_bytes();
    body.extend_from_slice(bytes);
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    let request = ApiCall::send(Service::DriveUpload, Method::POST, "/files", CREATE, Value::Null)
        .with("uploadType", "multipart")
        .with("supportsAllDrives", "true")
        .with("fields", RETURNED);
    let body =
        Body::Raw { content_type: format!("multipart/related; boundary={boundary}"), bytes: body.into() };
    let request = ApiCall { body, ..request };
    let request = if file.is_document { request } else { request.repeatable() };
    google.api.call(call, Some(account), request).await
}

/// A resumable upload: the metadata first, then part by part. A part that got no answer is sent again from where the server
/// stopped.
async fn in_parts(
    google: &Google,
    call: &Call,
    account: &str,
    file: &NewFile,
    metadata: &Value,
    bytes: &Bytes,
) -> Result<Value, GoogleError> {
    let invalid = |text: &str| GoogleError::Invalid { service: Service::DriveUpload, text: text.to_owned() };
    let begin = ApiCall::send(Service::DriveUpload, Method::POST, "/files", CREATE, metadata.clone())
        .with("uploadType", "resumable")
        .with("supportsAllDrives", "true")
        .with("fields", RETURNED)
        .header("x-upload-content-type", file.mime_type.clone())
        .header("x-upload-content-length", bytes.len().to_string())
        .repeatable();
    let begun = google.api.answer(call, Some(account), begin, 1 << 20).await?;
    // Only the id is taken from the address: the upload goes to the known host.
    let place = begun.headers.get("location").and_then(|value| value.to_str().ok());
    let place = place.and_then(|place| gantry_net::Url::parse(place).ok());
    let upload = place.and_then(|place| {
        place.query_pairs().find(|(name, _)| name == "upload_id").map(|(_, value)| value.into_owned())
    });
    let upload = upload.ok_or_else(|| invalid("the upload has no address"))?;
    let part = |range: String, content: Bytes| {
        let request = ApiCall::send(Service::DriveUpload, Method::PUT, "/files", CREATE, Value::Null)
            .with("uploadType", "resumable")
            .with("upload_id", upload.clone())
            .with("fields", RETURNED)
            .header("content-range", range);
        ApiCall { body: Body::Raw { content_type: file.mime_type.clone(), bytes: content }, ..request }
    };
    let total = bytes.len();
    let (mut sent, mut failures) = (0, 0);
    loop {
        let end = total.min(sent + PART);
        let request = part(format!("bytes {sent}-{}/{total}", end - 1), bytes.slice(sent..end));
        let answer = match google.api.answer(call, Some(account), request, 1 << 20).await {
            Err(GoogleError::Unknown { .. } | GoogleError::Unreachable { .. }) if failures < 3 => {
                failures += 1;
                let status = part(format!("bytes */{total}"), Bytes::new()).repeatable();
                google.api.answer(call, Some(account), status, 1 << 20).await?
            }
            other => other?,
        };
        if answer.status != 308 {
            return serde_json::from_slice(&answer.bytes).map_err(|err| invalid(&err.to_string()));
        }
        let received = received(&answer);
        if received < sent || received > total {
            return Err(invalid("the server lost a part of the upload"));
        }
        failures += u32::from(received == sent);
        if failures > 3 {
            return Err(GoogleError::Unknown {
                service: Service::DriveUpload,
                text: "the upload does not proceed".to_owned(),
            });
        }
        sent = received;
    }
}

/// How many bytes the server has.
fn received(answer: &ApiAnswer) -> usize {
    let range = answer.headers.get("range").and_then(|value| value.to_str().ok());
    let last = range.and_then(|range| range.rsplit('-').next()).and_then(|last| last.parse::<usize>().ok());
    last.map_or(0, |last| last.saturating_add(1))
}
