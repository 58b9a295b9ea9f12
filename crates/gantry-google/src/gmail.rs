//! `google_gmail` searches, reads, sends and files mail.

use std::sync::Arc;

use gantry_protocol::AskedAction;
use gantry_tool::{
    AskedCall, Call, Crossing, DataAccess, Effect, Text, Tool, ToolError, Toolset, Touch, on_one_line,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::declare::{Google, declared};
use crate::file_place::FilePlace;

mod compose;
mod labels;
mod message;
mod modify;
mod read;
mod search;
mod send;
mod sent_guard;
#[cfg(test)]
mod tests;

use sent_guard::SentGuard;

pub(crate) const NAME: &str = "google_gmail";

/// Accepted for every read. The scope `gmail.metadata` allows neither a query nor a body.
const READ: &[&str] = &["gmail.readonly", "gmail.modify", "mail.google.com"];
const SEND: &[&str] = &["gmail.send", "gmail.compose", "gmail.modify", "mail.google.com"];
const DRAFT: &[&str] = &["gmail.compose", "gmail.modify", "mail.google.com"];
const MODIFY: &[&str] = &["gmail.modify", "mail.google.com"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    Search,
    Read,
    Send,
    Reply,
    Draft,
    Archive,
    MarkRead,
    Labels,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Action::Search => "search",
            Action::Read => "read",
            Action::Send => "send",
            Action::Reply => "reply",
            Action::Draft => "draft",
            Action::Archive => "archive",
            Action::MarkRead => "mark_read",
            Action::Labels => "labels",
        }
    }
}

/// Work with Gmail: search and read mail, save attachments, send, reply, draft, archive, mark as read, list labels. A person
/// confirms what is sent or archived.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    action: Action,
    /// The Google account, by address (default: the first one that signed in).
    account: Option<String>,
    /// search: a query in Gmail's syntax, such as "from:ann is:unread newer_than:7d".
    query: Option<String>,
    /// search: how many messages to return, at most 50 (default 10).
    max_results: Option<u32>,
    /// search: the token of the next page, as the last page returned it.
    page_token: Option<String>,
    /// read, reply, archive, mark_read: the message. draft: the message to answer.
    message_id: Option<String>,
    /// reply: the thread, to answer its newest message. draft: the thread to put the draft into.
    thread_id: Option<String>,
    /// Recipients, separated by commas: "ann@example.org, Bob <bob@example.org>". reply: default the sender.
    to: Option<String>,
    cc: Option<String>,
    bcc: Option<String>,
    /// send, draft: the subject. A reply keeps the subject of its thread.
    subject: Option<String>,
    /// The text of the message.
    body: Option<String>,
    /// Files to attach: paths in the workspace, or "gsv:PATH" in storage; at most 20.
    attachments: Option<Vec<String>>,
    /// read: the number of an attachment to save.
    attachment: Option<u32>,
    /// read: where to save the attachment: a new file in the workspace, or "gsv:PATH" in storage.
    save_to: Option<String>,
}

/// The files that a call reads and writes.
#[derive(Debug, Deserialize)]
struct Files {
    #[serde(default)]
    attachments: Option<Vec<String>>,
    #[serde(default)]
    save_to: Option<String>,
}

impl Files {
    fn read(&self) -> impl Iterator<Item = FilePlace<'_>> {
        self.attachments.iter().flatten().map(|path| FilePlace::parse(path))
    }

    fn written(&self) -> Option<FilePlace<'_>> {
        self.save_to.as_deref().map(FilePlace::parse)
    }
}

/// The state of the tool.
pub(crate) struct Gmail {
    google: Arc<Google>,
    sent: SentGuard,
}

type Ctx = gantry_tool::Ctx<Gmail>;

pub(crate) fn tool(google: &Arc<Google>) -> Tool {
    let gmail = Arc::new(Gmail { google: google.clone(), sent: SentGuard::default() });
    let (asked, files) = (gmail.clone(), google.files.clone());
    declared(Tool::new(NAME, Toolset::Assistant, &gmail, run))
        .effects(&[Effect::ReachesNetwork, Effect::SendsMessages, Effect::WritesFiles])
        .crosses(crossings)
        .asks_as(move |call: AskedCall, input: Input| question(asked.clone(), call, input))
        .touches(move |call, input: Files| {
            let read = input.read().filter_map(|place| place.in_workspace());
            let read = read.map(|path| Touch::read(files.touched(call, path)));
            let written = input.written().and_then(|place| place.in_workspace().map(str::to_owned));
            let written = written.map(|path| {
                Touch::write(files.touched(call, &path)).judged_against(&files.touched(call, "."))
            });
            read.chain(written).collect()
        })
        .data_locations(|input: Files| {
            let read = input.read().map(|place| DataAccess::read(place.location()));
            read.chain(input.written().map(|place| DataAccess::write(place.location()))).collect()
        })
}

/// How an action crosses the border. A letter that is not valid is not sent, so nobody is asked about it.
fn crossings(_: &Call, input: Input) -> Vec<Crossing> {
    let id = || on_one_line(input.message_id.as_deref().or(input.thread_id.as_deref()).unwrap_or_default());
    match input.action {
        Action::Search | Action::Read | Action::MarkRead | Action::Labels => Vec::new(),
        Action::Send | Action::Reply => match compose::fields(&input) {
            Ok(fields) if fields.answers && fields.recipients.to.is_empty() => {
                vec![Crossing::Message { to: format!("the sender of the mail {}", id()) }]
            }
            Ok(fields) => vec![Crossing::Message { to: fields.recipients.shown() }],
            Err(_) => Vec::new(),
        },
        // A draft without recipients stays with the owner. One with recipients needs a person in a labelled run.
        Action::Draft => match compose::fields(&input) {
            Ok(fields) if fields.answers || !fields.recipients.is_empty() => vec![Crossing::Network],
            _ => Vec::new(),
        },
        Action::Archive => vec![Crossing::Change { what: format!("archive the mail {}", id()) }],
    }
}

/// Describes an action that needs a confirmation.
async fn question(gmail: Arc<Gmail>, asked: AskedCall, input: Input) -> Option<AskedAction> {
    match input.action {
        Action::Send | Action::Reply | Action::Draft => compose::question(&gmail, &asked, &input).await,
        Action::Archive => modify::question(&gmail, &asked, &input).await,
        Action::Search | Action::Read | Action::MarkRead | Action::Labels => None,
    }
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    match input.action {
        Action::Search => search::run(&ctx, &input).await,
        Action::Read => read::run(&ctx, &input).await,
        Action::Send | Action::Reply => send::send(&ctx, &input).await,
        Action::Draft => send::draft(&ctx, &input).await,
        Action::Archive => modify::archive(&ctx, &input).await,
        Action::MarkRead => modify::mark_read(&ctx, &input).await,
        Action::Labels => labels::run(&ctx, &input).await,
    }
    .map(Text)
}
