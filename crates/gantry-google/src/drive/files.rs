//! Files of Drive as Google describes them, and lists of them.

use gantry_tool::{Call, ToolError};
use serde::Deserialize;

use super::READ;
use crate::api::{ApiCall, Service};
use crate::declare::Google;
use crate::errors::GoogleError;
use crate::others_words::line;

pub(crate) const FOLDER: &str = "application/vnd.google-apps.folder";
pub(super) const SHORTCUT: &str = "application/vnd.google-apps.shortcut";
/// The fields that are asked for. Drive returns only four of them by itself.
const FIELDS: &str = "id,name,mimeType,size,modifiedTime,parents,shared,trashed,webViewLink,owners(emailAddress),shortcutDetails(targetId)";
/// Scopes that may list files. The first one sees no content.
const METADATA: &[&str] =
    &["drive.metadata.readonly", "drive.readonly", "drive.file", "drive.metadata", "drive"];

const DEFAULT_RESULTS: u32 = 20;
const MAX_RESULTS: u32 = 100;
/// A page may be empty although there are more.
const MAX_PAGES: u32 = 20;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct FileInfo {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) mime_type: String,
    pub(super) size: Option<String>,
    pub(super) modified_time: String,
    pub(super) parents: Vec<String>,
    /// Whether others have access. Unknown counts as yes.
    pub(super) shared: Option<bool>,
    pub(super) web_view_link: String,
    owners: Vec<Owner>,
    shortcut_details: Option<Shortcut>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Owner {
    email_address: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Shortcut {
    target_id: String,
}

impl FileInfo {
    pub(super) fn target(&self) -> Option<&str> {
        self.shortcut_details.as_ref().map(|shortcut| shortcut.target_id.as_str())
    }

    /// Who can see the file, for a question.
    pub(super) fn visibility(&self) -> &'static str {
        match self.shared {
            Some(false) => "only you",
            Some(true) => "shared with others",
            None => "possibly shared with others",
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let kind = match self.mime_type.as_str() {
            FOLDER => "folder",
            other => other.strip_prefix("application/vnd.google-apps.").unwrap_or(other),
        };
        let size = self.size.as_deref().map_or_else(String::new, |size| format!(", {size} bytes"));
        let owner =
            self.owners.first().map_or_else(String::new, |owner| format!(", owner {}", owner.email_address));
        let shared = if self.shared == Some(true) { ", shared" } else { "" };
        let modified = self.modified_time.get(..10).unwrap_or_default();
        vec![
            format!("- {}", line(&self.name, 300)),
            format!("  {}", line(&format!("{kind}{size}, modified {modified}{owner}{shared}"), 300)),
            format!("  id: {}", line(&self.id, 200)),
        ]
    }
}

/// Reads what Drive knows about a file.
pub(super) async fn get(
    google: &Google,
    call: &Call,
    account: &str,
    id: &str,
) -> Result<FileInfo, GoogleError> {
    let request = ApiCall::get(Service::Drive, format!("/files/{id}"), METADATA)
        .with("fields", FIELDS)
        .with("supportsAllDrives", "true");
    let answer = google.api.call(call, Some(account), request).await?;
    serde_json::from_value(answer)
        .map_err(|err| GoogleError::Invalid { service: Service::Drive, text: err.to_string() })
}

/// As [`get`], for the target of a shortcut.
pub(super) async fn get_target(
    google: &Google,
    call: &Call,
    account: &str,
    id: &str,
) -> Result<FileInfo, GoogleError> {
    let file = get(google, call, account, id).await?;
    let target = file.target().filter(|_| file.mime_type == SHORTCUT).map(str::to_owned);
    match target.as_deref().and_then(|target| crate::ids::object_id("file_id", target).ok()) {
        Some(target) => get(google, call, account, target).await,
        None => Ok(file),
    }
}

/// A request for the content of a file.
pub(super) fn content_of(id: &str) -> ApiCall {
    ApiCall::get(Service::Drive, format!("/files/{id}"), READ)
        .with("alt", "media")
        .with("supportsAllDrives", "true")
}

pub(crate) struct ListOptions {
    /// In the language of Drive.
    pub(crate) query: String,
    /// Not allowed with a search in contents.
    pub(crate) order: Option<&'static str>,
    pub(crate) max_results: Option<u32>,
    pub(crate) page_token: Option<String>,
}

pub(crate) struct FileList {
    pub(crate) lines: Vec<String>,
    pub(crate) count: u32,
    /// What to say after the list: how to get the next page, and whether Google looked everywhere.
    pub(crate) more: String,
}

pub(crate) async fn list(
    google: &Google,
    call: &Call,
    account: &str,
    options: ListOptions,
) -> Result<FileList, ToolError> {
    let limit = options.max_results.unwrap_or(DEFAULT_RESULTS);
    if !(1..=MAX_RESULTS).contains(&limit) {
        return Err(ToolError::input(format!("max_results must be 1 to {MAX_RESULTS}")));
    }
    let (mut lines, mut count, mut incomplete) = (Vec::new(), 0, false);
    let mut page = options.page_token;
    for _ in 0..MAX_PAGES {
        let mut request = ApiCall::get(Service::Drive, "/files", METADATA)
            .with("q", options.query.clone())
            .with("pageSize", (limit - count).to_string())
            .with("fields", format!("nextPageToken,incompleteSearch,files({FIELDS})"))
            .with("supportsAllDrives", "true")
            .with("includeItemsFromAllDrives", "true");
        if let Some(order) = options.order {
            request = request.with("orderBy", order);
        }
        if let Some(page) = page {
            request = request.with("pageToken", page);
        }
        let answer = google.api.call(call, Some(account), request).await?;
        incomplete |= answer["incompleteSearch"] == true;
        for file in answer["files"].as_array().into_iter().flatten() {
            let file: FileInfo = serde_json::from_value(file.clone()).unwrap_or_default();
            lines.extend(file.lines());
            count += 1;
        }
        page = answer["nextPageToken"].as_str().map(str::to_owned);
        if page.is_none() || count >= limit {
            break;
        }
    }
    let mut more = page.map_or_else(String::new, |page| {
        format!("\nThere are more files: call again with page_token {page:?}.")
    });
    if incomplete {
        more.push_str("\nGoogle did not search all shared drives, so files may be missing.");
    }
    Ok(FileList { lines, count, more })
}
