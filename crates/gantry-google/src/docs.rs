//! `google_docs` reads documents as Markdown, and creates and changes them.

use std::sync::Arc;

use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, Call, Crossing, Label, Text, Tool, ToolError, Toolset, on_one_line};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::declare::{Ctx, Google, declared};
use crate::questions::{change, field, quoted};

mod read;
mod replace;
#[cfg(test)]
mod tests;
mod write;

pub(crate) const NAME: &str = "google_docs";

const READ: &[&str] = &["documents.readonly", "documents", "drive.readonly", "drive.file", "drive"];
const WRITE: &[&str] = &["documents", "drive.file", "drive"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    Read,
    Create,
    Append,
    Replace,
}

/// Work with Google Docs: read a document as Markdown, create one from Markdown, append Markdown, find and replace text. A
/// person confirms new documents and replacements.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    action: Action,
    /// The Google account, by address (default: the first one that signed in).
    account: Option<String>,
    /// read, append, replace: the id of the document, as in its address.
    document_id: Option<String>,
    /// create: the title.
    title: Option<String>,
    /// create, append: the content in Markdown: headings, lists, tables, links, quotes, code, footnotes.
    content: Option<String>,
    /// replace: the text to find, with case. It cannot span paragraphs.
    find: Option<String>,
    /// replace: the new text, not Markdown.
    replace_with: Option<String>,
    /// replace: change every occurrence (default true). With false, the text must occur exactly once.
    replace_all: Option<bool>,
}

pub(crate) fn tool(google: &Arc<Google>) -> Tool {
    let asked = google.clone();
    declared(Tool::new(NAME, Toolset::Assistant, google, run))
        // `run` adds `untrusted` to results that contain text of others.
        .labels(&[Label::Private])
        .crosses(crossings)
        .asks_as(move |call: AskedCall, input: Input| question(asked.clone(), call, input))
}

/// How an action crosses the border. See [`declared`].
fn crossings(_: &Call, input: Input) -> Vec<Crossing> {
    let id = on_one_line(input.document_id.as_deref().unwrap_or_default());
    match input.action {
        Action::Read => Vec::new(),
        // Others may be able to read the document, so a labelled run needs a person.
        Action::Append => vec![Crossing::Network],
        Action::Create => {
            let title = on_one_line(input.title.as_deref().unwrap_or_default());
            vec![Crossing::Change { what: format!("create the document {title:?}") }]
        }
        Action::Replace => vec![Crossing::Change { what: format!("replace text in the document {id}") }],
    }
}

/// Describes an action that needs a confirmation.
async fn question(google: Arc<Google>, asked: AskedCall, input: Input) -> Option<AskedAction> {
    let content = || quoted("Content", input.content.as_deref().unwrap_or_default());
    let (what, details) = match input.action {
        Action::Read => return None,
        Action::Create => {
            let title = on_one_line(input.title.as_deref().unwrap_or_default());
            (format!("create the document {title:?}"), vec![content()])
        }
        Action::Append => {
            let document = read::named(&google, &asked, &input).await;
            (format!("append to the document {document}"), vec![content()])
        }
        Action::Replace => {
            let every =
                if input.replace_all.unwrap_or(true) { "every occurrence" } else { "the only occurrence" };
            let document = read::named(&google, &asked, &input).await;
            let find = field(&format!("Find ({every})"), input.find.as_deref().unwrap_or_default());
            let new = field("Replace with", input.replace_with.as_deref().unwrap_or_default());
            (format!("replace text in the document {document}"), vec![find, new])
        }
    };
    change("Google Docs", what, &details)
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    if input.action == Action::Read {
        ctx.call.findings.add(Label::Untrusted);
    }
    match input.action {
        Action::Read => read::run(&ctx, &input).await,
        Action::Create => write::create(&ctx, &input).await,
        Action::Append => write::append(&ctx, &input).await,
        Action::Replace => replace::run(&ctx, &input).await,
    }
    .map(Text)
}
