//! The behaviour of Gmail: messages with their parts, threads, labels, drafts and queries.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{Reply, Seen};

mod payload;
mod query;

#[derive(Default)]
pub struct Gmail {
    /// Messages by id. Ids grow with time.
    pub mails: BTreeMap<String, Mail>,
    /// Names of the owner's own labels by id.
    pub labels: BTreeMap<String, String>,
    /// Drafts: id and message.
    pub drafts: BTreeMap<String, String>,
    next: u64,
    next_attachment: u64,
    /// Ids of attachments work for one load of the message only, as in Gmail.
    attachments: BTreeMap<String, (String, Vec<usize>)>,
}

#[derive(Debug, Clone, Default)]
pub struct Mail {
    pub thread: String,
    pub labels: Vec<String>,
    /// The message itself.
    pub bytes: Vec<u8>,
    /// Milliseconds since 1970.
    pub received: i64,
}

const SYSTEM_LABELS: &[&str] = &["INBOX", "SENT", "DRAFT", "UNREAD", "STARRED", "SPAM", "TRASH"];

impl Gmail {
    /// Adds a message to the inbox and returns its id.
    pub fn receive(&mut self, message: &str) -> String {
        let bytes = message.replace("\r\n", "\n").replace('\n', "\r\n").into_bytes();
        self.add(bytes, None, &["INBOX", "UNREAD"])
    }

    /// The messages that were sent.
    pub fn sent(&self) -> Vec<(String, Mail)> {
        let is_sent = |mail: &Mail| mail.labels.iter().any(|label| label == "SENT");
        self.mails
            .iter()
            .filter(|(_, mail)| is_sent(mail))
            .map(|(id, mail)| (id.clone(), mail.clone()))
            .collect()
    }

    /// Adds the bytes of a message with labels. Without a thread it starts one.
    pub fn add(&mut self, bytes: Vec<u8>, thread: Option<String>, labels: &[&str]) -> String {
        self.next += 1;
        let id = format!("18c0{:012x}", self.next);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let mail = Mail {
            thread: thread.unwrap_or_else(|| id.clone()),
            labels: labels.iter().map(ToString::to_string).collect(),
            bytes,
            received: i64::try_from(now.as_millis()).unwrap(),
        };
        self.mails.insert(id.clone(), mail);
        id
    }

    /// The thread that a new message belongs to: Gmail wants the thread's id, its references and its subject.
    fn thread_of(&self, wanted: Option<&str>, bytes: &[u8]) -> Result<Option<String>, Reply> {
        let Some(thread) = wanted else { return Ok(None) };
        let mut known = self.mails.values().filter(|mail| mail.thread == thread).peekable();
        if known.peek().is_none() {
            return Err(Reply::not_found("Requested entity was"));
        }
        let subject = |bytes: &[u8]| {
            let subject = payload::header(bytes, "Subject").unwrap_or_default().to_lowercase();
            subject.trim_start_matches("re:").trim().to_owned()
        };
        let references = payload::header(bytes, "References").unwrap_or_default();
        let fits = known.any(|mail| {
            let id = payload::header(&mail.bytes, "Message-ID").unwrap_or_default();
            subject(&mail.bytes) == subject(bytes) && (id.is_empty() || references.contains(id.trim()))
        });
        Ok(fits.then(|| thread.to_owned()))
    }

    /// Reads the field `raw`.
    fn new_message(&self, message: &Value) -> Result<(Vec<u8>, Option<String>), Reply> {
        let invalid = |text: &str| Reply::Error(400, "invalidArgument", text.to_owned());
        let raw = message["raw"].as_str().unwrap_or_default();
        let bytes = URL_SAFE_NO_PAD.decode(raw.trim_end_matches('='));
        let bytes = bytes.map_err(|_| invalid("Invalid value for ByteString"))?;
        if bytes.is_empty() {
            return Err(invalid("'raw' RFC822 payload message string is required"));
        }
        let bytes = payload::with_line_ends(bytes);
        if payload::has_broken_header(&bytes) {
            return Err(invalid("the headers of the message are not valid"));
        }
        let thread = self.thread_of(message["threadId"].as_str(), &bytes)?;
        Ok((bytes, thread))
    }

    fn shown(&mut self, id: &str, format: &str, headers: &[&str]) -> Value {
        let mail = self.mails[id].clone();
        let mut shown = json!({
            "id": id,
            "threadId": mail.thread,
            "labelIds": mail.labels,
            "snippet": payload::snippet(&mail.bytes),
            "sizeEstimate": mail.bytes.len(),
            "historyId": "1",
            "internalDate": mail.received.to_string(),
        });
        match format {
            "minimal" => {}
            "raw" => shown["raw"] = json!(URL_SAFE.encode(&mail.bytes)),
            "metadata" => shown["payload"] = payload::metadata(&mail.bytes, headers),
            _ => {
                let mut stored = Vec::new();
                shown["payload"] = payload::full(&mail.bytes, &mut |path: &[usize]| {
                    self.next_attachment += 1;
                    let attachment = format!("ANGjdJ_{:06}-{}", self.next_attachment, "x".repeat(100));
                    stored.push((attachment.clone(), path.to_vec()));
                    attachment
                });
                self.attachments.retain(|_, (of, _)| of != id);
                let stored = stored.into_iter().map(|(name, path)| (name, (id.to_owned(), path)));
                self.attachments.extend(stored);
            }
        }
        shown
    }

    fn label(&self, id: &str) -> Option<Value> {
        let (name, kind) = match self.labels.get(id) {
            Some(name) => (name.clone(), "user"),
            None => (SYSTEM_LABELS.contains(&id).then(|| id.to_owned())?, "system"),
        };
        Some(json!({"id": id, "name": name, "type": kind}))
    }
}

pub(super) fn answer(gmail: &mut Gmail, seen: &Seen) -> Reply {
    let id = seen.path("id").to_owned();
    let headers: Vec<&str> = seen
        .parameters
        .iter()
        .filter(|(name, _)| name == "metadataHeaders")
        .map(|(_, value)| value.as_str())
        .collect();
    let format = seen.parameter("format").unwrap_or("full");
    match seen.id.as_str() {
        "gmail.users.messages.list" => list(gmail, seen),
        "gmail.users.messages.get" if gmail.mails.contains_key(&id) => {
            Reply::Json(gmail.shown(&id, format, &headers))
        }
        "gmail.users.messages.attachments.get" => {
            let message = seen.path("messageId");
            let found = gmail.attachments.get(&id).filter(|(of, _)| of == message);
            let Some((_, path)) = found else {
                return Reply::Error(400, "invalidArgument", "Invalid attachment token".to_owned());
            };
            let bytes = payload::attachment(&gmail.mails[message].bytes, path);
            Reply::Json(json!({"size": bytes.len(), "data": URL_SAFE.encode(bytes)}))
        }
        "gmail.users.messages.modify" if gmail.mails.contains_key(&id) => {
            let names = |field: &str| {
                let list = seen.body[field].as_array().into_iter().flatten();
                list.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
            };
            let (added, removed) = (names("addLabelIds"), names("removeLabelIds"));
            if added.iter().chain(&removed).any(|label| gmail.label(label).is_none()) {
                return Reply::Error(400, "invalidArgument", "Invalid label".to_owned());
            }
            let mail = gmail.mails.get_mut(&id).unwrap();
            mail.labels.retain(|label| !removed.contains(label));
            mail.labels.extend(added);
            Reply::Json(json!({"id": id, "threadId": mail.thread, "labelIds": mail.labels}))
        }
        "gmail.users.messages.send" => match gmail.new_message(&seen.body) {
            Err(reply) => reply,
            Ok((bytes, _)) if !payload::has_recipients(&bytes) => {
                Reply::Error(400, "invalidArgument", "Recipient address required".to_owned())
            }
            Ok((bytes, thread)) => {
                let id = gmail.add(bytes, thread, &["SENT"]);
                Reply::Json(json!({"id": id, "threadId": gmail.mails[&id].thread, "labelIds": ["SENT"]}))
            }
        },
        "gmail.users.drafts.create" => match gmail.new_message(&seen.body["message"]) {
            Err(reply) => reply,
            Ok((bytes, thread)) => {
                let id = gmail.add(bytes, thread, &["DRAFT"]);
                let draft = format!("r-{id}");
                gmail.drafts.insert(draft.clone(), id.clone());
                let message = json!({"id": id, "threadId": gmail.mails[&id].thread, "labelIds": ["DRAFT"]});
                Reply::Json(json!({"id": draft, "message": message}))
            }
        },
        "gmail.users.threads.get" => {
            let ids: Vec<String> =
                gmail.mails.iter().filter(|(_, mail)| mail.thread == id).map(|(id, _)| id.clone()).collect();
            if ids.is_empty() {
                return Reply::not_found("Requested entity was");
            }
            let messages: Vec<Value> = ids.iter().map(|one| gmail.shown(one, format, &headers)).collect();
            Reply::Json(json!({"id": id, "historyId": "1", "messages": messages}))
        }
        "gmail.users.labels.list" => {
            let ids = SYSTEM_LABELS.iter().map(ToString::to_string).chain(gmail.labels.keys().cloned());
            // The list has no counts.
            Reply::Json(json!({"labels": ids.filter_map(|id| gmail.label(&id)).collect::<Vec<_>>()}))
        }
        "gmail.users.labels.get" => match gmail.label(&id) {
            None => Reply::not_found("Requested entity was"),
            Some(mut label) => {
                let has = |mail: &&Mail| mail.labels.contains(&id);
                let unread = |mail: &&Mail| mail.labels.iter().any(|label| label == "UNREAD");
                label["messagesTotal"] = json!(gmail.mails.values().filter(has).count());
                label["messagesUnread"] = json!(gmail.mails.values().filter(has).filter(unread).count());
                Reply::Json(label)
            }
        },
        "gmail.users.messages.get" | "gmail.users.messages.modify" => {
            Reply::not_found("Requested entity was")
        }
        other => Reply::Error(501, "notImplemented", format!("this server has no {other}")),
    }
}

fn list(gmail: &Gmail, seen: &Seen) -> Reply {
    let text = seen.parameter("q").unwrap_or_default();
    let wanted = match query::parse(text) {
        Ok(wanted) => wanted,
        Err(why) => return Reply::Error(400, "invalidArgument", why),
    };
    // The newest first.
    let found: Vec<(&String, &Mail)> =
        gmail.mails.iter().rev().filter(|(_, mail)| query::matches(&wanted, mail)).collect();
    let limit: usize = seen.parameter("maxResults").and_then(|text| text.parse().ok()).unwrap_or(100);
    let skipped: usize = seen.parameter("pageToken").and_then(|text| text.parse().ok()).unwrap_or(0);
    let page: Vec<Value> = found
        .iter()
        .skip(skipped)
        .take(limit)
        .map(|(id, mail)| json!({"id": id, "threadId": mail.thread}))
        .collect();
    let mut answer = json!({"resultSizeEstimate": found.len()});
    if !page.is_empty() {
        answer["messages"] = json!(page);
    }
    if found.len() > skipped + limit {
        answer["nextPageToken"] = json!((skipped + limit).to_string());
    }
    Reply::Json(answer)
}
