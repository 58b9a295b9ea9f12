//! Resources: files of the agent's workspace, and stored results by handle. All are read through the gate.

use std::collections::VecDeque;

use gantry_tool::{Answer, Outcome, Refusal, RefusalCode, Reply};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::backend::{Backend, CallRequest, Purpose, Who};
use crate::results::RESULT_HANDLE;
use crate::selection::{READ_FILE, RESULT_READ};

const WORKSPACE: &str = "gantry://workspace/";
const RESULTS: &str = "gantry://results/";

/// Maximum entries of a list. Other files can still be read by their URI.
const MAX_LISTED: usize = 500;
const MAX_FOLDERS: usize = 100;

/// Longer results are read page by page with the tool.
const MAX_RESULT_CHARS: u64 = 8_000_000;
const PAGE_CHARS: u64 = 40_000;

/// Characters of a path that are percent-encoded; slashes are not.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b'~');

pub(crate) fn result_uri(handle: &str) -> String {
    format!("{RESULTS}{}", utf8_percent_encode(handle, PATH))
}

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new(format!("{WORKSPACE}{{+path}}"), "workspace file")
            .with_description("A file of the agent's workspace in Gantry's storage"),
        ResourceTemplate::new(format!("{RESULTS}{{handle}}"), "stored result")
            .with_description("The complete text of a result that was too long to show, by its resultHandle"),
    ]
}

/// Lists the files of the workspace, folder by folder.
pub(crate) async fn list<B: Backend>(reading: &Reading<'_, B>) -> Vec<Resource> {
    let mut found = Vec::new();
    let mut folders = VecDeque::from([String::new()]);
    let mut looked = 0;
    while let Some(folder) = folders.pop_front().filter(|_| looked < MAX_FOLDERS) {
        looked += 1;
        // A workspace that is missing or may not be read counts as empty.
        let Ok(listing) = reading.file(if folder.is_empty() { "/" } else { &folder }).await else { continue };
        let names = |field: &str| {
            let names = listing[field].as_array().into_iter().flatten().filter_map(Value::as_str);
            names.map(|name| format!("{folder}{name}")).collect::<Vec<_>>()
        };
        for path in names("files") {
            if found.len() == MAX_LISTED {
                return found;
            }
            found.push(Resource::new(format!("{WORKSPACE}{}", utf8_percent_encode(&path, PATH)), path));
        }
        folders.extend(names("directories").into_iter().map(|path| format!("{path}/")));
    }
    found
}

pub(crate) async fn read<B: Backend>(
    reading: &Reading<'_, B>,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let decoded = |part: &str| percent_decode_str(part).decode_utf8().ok().map(|part| part.into_owned());
    let text = if let Some(path) = uri.strip_prefix(WORKSPACE).and_then(decoded) {
        let file = reading.file(&path).await.map_err(|refusal| not_found(uri, &refusal))?;
        match file["content"].as_str() {
            Some(content) => content.to_owned(),
            // A folder is returned as its listing.
            None => file.to_string(),
        }
    } else if let Some(handle) = uri.strip_prefix(RESULTS).and_then(decoded) {
        reading.kept(&handle).await.map_err(|refusal| not_found(uri, &refusal))?
    } else {
        let refusal = Refusal::new(RefusalCode::InvalidInput, "unknown kind of resource");
        return Err(not_found(uri, &refusal));
    };
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri)]))
}

fn not_found(uri: &str, refusal: &Refusal) -> ErrorData {
    let shown: String = uri.chars().take(200).collect();
    ErrorData::resource_not_found(
        format!("cannot read {shown}: {}", refusal.describe()),
        Some(json!({"uri": shown})),
    )
}

/// `Reading` reads for one client through the gate, until it is cancelled.
pub(crate) struct Reading<'a, B> {
    pub(crate) backend: &'a B,
    pub(crate) who: &'a Who,
    pub(crate) cancel: CancellationToken,
}

impl<B: Backend> Reading<'_, B> {
    /// Returns the result of `gsv__ReadFile`: a file with its complete content, or a folder.
    pub(crate) async fn file(&self, path: &str) -> Result<Value, Refusal> {
        let mut answer = self.call(READ_FILE, json!({ "path": path })).await?;
        if let Some(handle) = answer[RESULT_HANDLE].as_str() {
            // The result was too long to show; the stored one is complete.
            let whole = self.kept(handle).await?;
            answer = serde_json::from_str(&whole)
                .map_err(|err| Refusal::new(RefusalCode::Unavailable, err.to_string()))?;
        }
        Ok(answer["result"].take())
    }

    /// Returns the complete text of a stored result.
    pub(crate) async fn kept(&self, handle: &str) -> Result<String, Refusal> {
        let mut text = String::new();
        let mut offset = 0;
        loop {
            let input = json!({"handle": handle, "offset": offset, "limit": PAGE_CHARS});
            let page = self.call(RESULT_READ, input).await?;
            if page["totalCharacters"].as_u64().is_some_and(|total| total > MAX_RESULT_CHARS) {
                let message = format!("the result {handle} is longer than {MAX_RESULT_CHARS} characters");
                let refusal = Refusal::new(RefusalCode::InvalidInput, message);
                return Err(refusal.with_hint("read it page by page with result_read"));
            }
            text.push_str(page["text"].as_str().unwrap_or_default());
            match page["nextOffset"].as_u64() {
                Some(next) if next > offset => offset = next,
                _ => return Ok(text),
            }
        }
    }

    async fn call(&self, tool: &str, input: Value) -> Result<Value, Refusal> {
        let request = CallRequest {
            tool: tool.to_owned(),
            input,
            purpose: Purpose::Resource,
            cancel: self.cancel.clone(),
            progress: None,
            approver: None,
        };
        let Outcome { answer, .. } = Box::pin(self.backend.call(self.who, request)).await;
        match answer {
            Answer::Success(Reply::Json(value)) => Ok(value),
            Answer::Success(Reply::Text(text)) => Ok(Value::String(text)),
            Answer::ToolError(Reply::Json(value)) => {
                let message = value["error"].as_str().map_or_else(|| value.to_string(), str::to_owned);
                Err(Refusal::new(RefusalCode::InvalidInput, message))
            }
            Answer::ToolError(Reply::Text(text)) => Err(Refusal::new(RefusalCode::InvalidInput, text)),
            Answer::Refused(refusal) => Err(refusal),
        }
    }
}
