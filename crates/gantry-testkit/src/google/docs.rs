//! The behaviour of Google Docs: indexes in UTF-16, styles, lists, tables, footnotes, tabs and revisions.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Reply, Seen};

mod segment;
mod shown;
mod update;

use segment::Segment;

#[derive(Default)]
pub struct Docs {
    pub documents: BTreeMap<String, StoredDocument>,
    next: u64,
}

/// A document. Its first tab is the one that requests change unless they name another.
#[derive(Debug, Clone, Default)]
pub struct StoredDocument {
    pub title: String,
    body: Segment,
    footnotes: Vec<(String, Segment)>,
    /// Lists: their ids and their presets.
    lists: Vec<(String, String)>,
    /// Further tabs: title and text, each below the one before it.
    pub tabs: Vec<(String, String)>,
    revision: u64,
    next: u64,
}

impl Docs {
    /// Adds a document with plain paragraphs and returns its id.
    pub fn add(&mut self, title: &str, text: &str) -> String {
        self.next += 1;
        let id = format!("document-{:05}", self.next);
        let mut document = StoredDocument::new(title);
        if !text.is_empty() {
            let insert = json!([{"insertText": {"location": {"index": 1}, "text": text}}]);
            document.apply(&insert).unwrap();
        }
        self.documents.insert(id.clone(), document);
        id
    }
}

impl StoredDocument {
    pub fn new(title: &str) -> StoredDocument {
        StoredDocument {
            title: title.to_owned(),
            body: Segment::new_body(),
            revision: 1,
            ..StoredDocument::default()
        }
    }

    /// Applies all requests or none. Returns the answers.
    pub fn apply(&mut self, requests: &Value) -> Result<Vec<Value>, String> {
        let mut changed = self.clone();
        let mut replies = Vec::new();
        for (number, request) in requests.as_array().into_iter().flatten().enumerate() {
            let reply = update::apply(&mut changed, request);
            replies.push(reply.map_err(|why| format!("Invalid requests[{number}]: {why}"))?);
        }
        changed.revision += 1;
        *self = changed;
        Ok(replies)
    }

    /// The document as the API returns it.
    pub fn json(&self, id: &str, with_tabs: bool) -> Value {
        shown::document(self, id, with_tabs)
    }

    /// The text of the body, with a line for each paragraph.
    pub fn text(&self) -> String {
        self.body.text()
    }

    fn revision_id(&self) -> String {
        format!("revision-{:05}", self.revision)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

pub(super) fn answer(docs: &mut Docs, seen: &Seen) -> Reply {
    if seen.id == "docs.documents.create" {
        // Google ignores everything but the title.
        let id = docs.add(seen.body["title"].as_str().unwrap_or("Untitled document"), "");
        return Reply::Json(docs.documents[&id].json(&id, false));
    }
    let id = seen.path("documentId").to_owned();
    let Some(document) = docs.documents.get_mut(&id) else {
        return Reply::Error(404, "notFound", "Requested entity was not found.".to_owned());
    };
    match seen.id.as_str() {
        "docs.documents.get" => {
            Reply::Json(document.json(&id, seen.parameter("includeTabsContent") == Some("true")))
        }
        "docs.documents.batchUpdate" => {
            let required = seen.body["writeControl"]["requiredRevisionId"].as_str();
            if required.is_some_and(|required| required != document.revision_id()) {
                let text = "The required revision ID does not match the latest revision.";
                return Reply::Error(400, "failedPrecondition", text.to_owned());
            }
            match document.apply(&seen.body["requests"]) {
                Ok(replies) => Reply::Json(json!({
                    "documentId": id,
                    "replies": replies,
                    "writeControl": {"requiredRevisionId": document.revision_id()},
                })),
                Err(why) => Reply::Error(400, "invalidArgument", why),
            }
        }
        other => Reply::Error(501, "notImplemented", format!("this server has no {other}")),
    }
}
