//! `google_drive` finds, reads, uploads, moves and shares files.

use std::sync::Arc;

use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, Call, Crossing, Text, Tool, ToolError, Toolset, Touch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::declare::{Ctx, Google, declared};
use crate::questions::unresolved;

pub(crate) mod files;
mod find;
mod read;
mod relocate;
mod share;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests read and write workspace files")]
mod tests;
mod upload;

pub(crate) const NAME: &str = "google_drive";
const SERVICE: &str = "Google Drive";

/// Scopes that may read the content of files.
const READ: &[&str] = &["drive.readonly", "drive.file", "drive"];
/// Scopes that may create files.
const CREATE: &[&str] = &["drive.file", "drive"];
/// Scopes that may move and share files. `drive.file` is enough for files that Gantry created.
const CHANGE: &[&str] = &["drive", "drive.file"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    Search,
    Read,
    Upload,
    CreateDoc,
    List,
    Move,
    Share,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Role {
    Reader,
    Commenter,
    Writer,
}

/// Work with Google Drive. `search` takes words, or a query such as name contains 'plan'. `read` returns the text of a file;
/// Docs become Markdown, spreadsheets tables. `upload` stores content or a workspace file. `create_doc` makes a Google Doc
/// from plain text. `list` shows a folder. `move` needs file_id and target_folder_id. `share` needs file_id, email and role.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    action: Action,
    /// The Google account, by address (default: the first one that signed in).
    account: Option<String>,
    /// search: words, or a query of the Drive API.
    query: Option<String>,
    file_id: Option<String>,
    /// list, upload, create_doc: the folder (default: the root folder "My Drive").
    folder_id: Option<String>,
    /// upload, create_doc: the name of the new file.
    file_name: Option<String>,
    /// upload, create_doc: the text of the new file.
    content: Option<String>,
    /// upload: a workspace file to store in place of content, at most 64 MiB.
    path: Option<String>,
    /// upload: the type of the content (default: from the name).
    mime_type: Option<String>,
    /// move: the folder to move to.
    target_folder_id: Option<String>,
    /// share: the address of one person.
    email: Option<String>,
    /// share: what the person may do (default reader).
    role: Option<Role>,
    /// share: send Google's notification mail (default true).
    notify: Option<bool>,
    /// share: when the access ends, such as 2026-12-24T18:00.
    expires: Option<String>,
    /// read: store the file under this new workspace path in place of returning its text.
    save_to: Option<String>,
    /// search, list: 1 to 100 (default 20).
    max_results: Option<u32>,
    /// search, list: the page that an earlier call named.
    page_token: Option<String>,
}

/// The workspace paths of an input.
#[derive(Debug, Deserialize)]
struct Paths {
    path: Option<String>,
    save_to: Option<String>,
}

pub(crate) fn tool(google: &Arc<Google>) -> Tool {
    let (asked, files) = (google.clone(), google.files.clone());
    declared(Tool::new(NAME, Toolset::Assistant, google, run))
        .crosses(crossings)
        .asks_as(move |call: AskedCall, input: Input| question(asked.clone(), call, input))
        .touches(move |call: &Call, paths: Paths| {
            let read = paths.path.iter().map(|path| Touch::read(files.touched(call, path)));
            let written = paths.save_to.iter().map(|path| Touch::write(files.touched(call, path)));
            read.chain(written).collect()
        })
}

/// How an action crosses the border. See [`declared`].
fn crossings(_: &Call, input: Input) -> Vec<Crossing> {
    let change = |what: &str| Crossing::Change { what: what.to_owned() };
    match input.action {
        Action::Search | Action::Read | Action::List => Vec::new(),
        Action::Upload => vec![change("upload a file to Google Drive")],
        Action::CreateDoc => vec![change("create a Google Doc")],
        Action::Move => vec![change("move a file in Google Drive")],
        Action::Share => {
            vec![
                Crossing::Message { to: input.email.unwrap_or_default() },
                change("share a file of Google Drive"),
            ]
        }
    }
}

async fn question(google: Arc<Google>, call: AskedCall, input: Input) -> Option<AskedAction> {
    let described = match input.action {
        Action::Search | Action::Read | Action::List => return None,
        Action::Upload | Action::CreateDoc => upload::question(&google, &call, &input).await,
        Action::Move => relocate::question(&google, &call, &input).await,
        Action::Share => share::question(&google, &call, &input).await,
    };
    described.or_else(|| unresolved(SERVICE, &input))
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    match input.action {
        Action::Search | Action::List => find::run(&ctx, &input).await,
        Action::Read => read::run(&ctx, &input).await,
        Action::Upload | Action::CreateDoc => upload::run(&ctx, &input).await,
        Action::Move => relocate::run(&ctx, &input).await,
        Action::Share => share::run(&ctx, &input).await,
    }
    .map(Text)
}
