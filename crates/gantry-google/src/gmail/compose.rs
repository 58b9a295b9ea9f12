//! The letter of a call: its recipients, its files, and the question about it.

use std::sync::Arc;

use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, Call, ToolError};

use super::message::{StoredMessage, metadata, thread};
use super::{Action, Gmail, Input};
use crate::file_place::{self, FilePlace};
use crate::ids::{object_id, required};
use crate::mail::{Attached, Built, Headers, Letter, MAX_MESSAGE_BYTES, Mailbox, is_address, reply_to};
use crate::questions::{change, field, quoted};

const MAX_BODY: usize = 1 << 20;
const MAX_FILES: usize = 20;

/// The recipients that a call names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Recipients {
    pub(super) to: Vec<Mailbox>,
    pub(super) cc: Vec<Mailbox>,
    pub(super) bcc: Vec<Mailbox>,
}

impl Recipients {
    pub(super) fn is_empty(&self) -> bool {
        self.to.is_empty() && self.cc.is_empty() && self.bcc.is_empty()
    }

    /// Every address without display names, which could be anything.
    pub(super) fn shown(&self) -> String {
        let lists = [("", &self.to), ("cc ", &self.cc), ("bcc ", &self.bcc)];
        let all = lists
            .iter()
            .flat_map(|(kind, list)| list.iter().map(move |mailbox| format!("{kind}{}", mailbox.address)));
        all.collect::<Vec<_>>().join(", ")
    }
}

/// The fields of a letter that can be checked without Google.
pub(super) struct Fields<'a> {
    pub(super) recipients: Recipients,
    body: &'a str,
    /// Whether the letter answers a message.
    pub(super) answers: bool,
}

/// Checks a call before anybody is asked about it.
pub(super) fn fields(input: &Input) -> Result<Fields<'_>, ToolError> {
    let list = |field: &str, text: &Option<String>| {
        let parsed = Mailbox::parse_list(text.as_deref().unwrap_or_default());
        parsed.map_err(|err| ToolError::input(format!("{field}: {err}")))
    };
    let (to, cc, bcc) = (list("to", &input.to)?, list("cc", &input.cc)?, list("bcc", &input.bcc)?);
    let recipients = Recipients { to, cc, bcc };
    let action = input.action.name();
    let body = required(action, "body", input.body.as_deref())?;
    if body.len() > MAX_BODY {
        return Err(ToolError::input(format!("body has at most {MAX_BODY} bytes; attach a file instead")));
    }
    let answers = match input.action {
        Action::Reply => true,
        Action::Draft => input.message_id.is_some(),
        _ => false,
    };
    if let Some(id) = &input.message_id {
        object_id("message_id", id)?;
    }
    if let Some(id) = &input.thread_id {
        object_id("thread_id", id)?;
    }
    let subject = input.subject.as_deref();
    match answers {
        true if subject.is_some() => {
            return Err(ToolError::input("a reply keeps the subject of its thread; leave subject out")
                .with_hint("use send for a message with another subject"));
        }
        true if input.message_id.is_none() && input.thread_id.is_none() => {
            return Err(ToolError::input(format!("{action} needs the field message_id or thread_id")));
        }
        true => {}
        false if input.action == Action::Send && recipients.is_empty() => {
            return Err(ToolError::input(format!("{action} needs the field to")));
        }
        false if input.action == Action::Send && subject.is_none_or(|subject| subject.trim().is_empty()) => {
            return Err(ToolError::input("send needs the field subject"));
        }
        false => {}
    }
    // The letter without its files and its thread shows every other mistake.
    let letter = Letter {
        to: recipients.to.clone(),
        subject: subject.unwrap_or_default().to_owned(),
        text: body.to_owned(),
        ..Letter::default()
    };
    letter.build().map_err(|err| ToolError::input(err.to_string()))?;
    Ok(Fields { recipients, body, answers })
}

/// A letter with the thread that it belongs to.
pub(super) struct Composed {
    pub(super) letter: Letter,
    pub(super) built: Built,
    pub(super) thread: Option<String>,
}

/// Composes the letter of a call. Everything that can be wrong with it is found here, before anything is sent.
pub(super) async fn composed(
    gmail: &Gmail,
    call: &Arc<Call>,
    account: &str,
    input: &Input,
) -> Result<Composed, ToolError> {
    let Fields { recipients, body, answers } = fields(input)?;
    let Recipients { mut to, cc, bcc } = recipients;
    let mut letter = Letter { text: body.to_owned(), cc, bcc, ..Letter::default() };
    letter.from = Some(account)
        .filter(|own| is_address(own))
        .map(|own| Mailbox { name: None, address: own.to_owned() });
    letter.subject = input.subject.clone().unwrap_or_default();
    let mut thread = None;
    if answers {
        let original = original(gmail, call, account, input).await?;
        let reply = reply_to(&original.headers, Some(account)).ok_or_else(|| {
            ToolError::failed(format!("the message {} names no valid address to answer", original.id))
                .with_hint("give the recipient in the field to")
        });
        match (reply, to.is_empty()) {
            (Ok(reply), _) => {
                if to.is_empty() {
                    to = reply.to;
                }
                letter.subject = reply.subject;
                letter.in_reply_to = reply.in_reply_to;
                letter.references = reply.references;
            }
            (Err(err), true) => return Err(err),
            (Err(_), false) => letter.subject = format!("Re: {}", original.headers.subject).trim().to_owned(),
        }
        thread = Some(original.thread);
    } else if let Some(id) = input.thread_id.as_deref().filter(|_| input.action == Action::Draft) {
        thread = Some(object_id("thread_id", id)?.to_owned());
    }
    letter.to = to;
    refuse_secrets(gmail, &letter)?;
    letter.attachments = attached(gmail, call, input).await?;
    let built = letter.build().map_err(|err| ToolError::input(err.to_string()))?;
    Ok(Composed { letter, built, thread })
}

/// The message that a reply answers.
struct Original {
    id: String,
    thread: String,
    headers: Headers,
}

async fn original(gmail: &Gmail, call: &Call, account: &str, input: &Input) -> Result<Original, ToolError> {
    let message: StoredMessage = match (&input.message_id, &input.thread_id) {
        (Some(id), _) => metadata(gmail, call, account, object_id("message_id", id)?).await?,
        (None, Some(id)) => {
            let messages = thread(gmail, call, account, object_id("thread_id", id)?).await?;
            // Drafts are part of a thread, but nobody has got them.
            let is_draft = |message: &StoredMessage| message.label_ids.iter().any(|label| label == "DRAFT");
            messages
                .into_iter()
                .rev()
                .find(|message| !is_draft(message))
                .ok_or_else(|| ToolError::failed(format!("the thread {id} has no message to answer")))?
        }
        (None, None) => return Err(ToolError::input("reply needs the field message_id or thread_id")),
    };
    let headers = message.headers();
    Ok(Original { id: message.id, thread: message.thread_id, headers })
}

/// A stored secret never leaves in a mail, whoever asks for it.
fn refuse_secrets(gmail: &Gmail, letter: &Letter) -> Result<(), ToolError> {
    for (field, text) in [("subject", &letter.subject), ("body", &letter.text)] {
        let mut masked = text.clone();
        gmail.google.masker.mask_text(&mut masked);
        if masked != *text {
            return Err(ToolError::denied(format!("the {field} contains a stored secret; nothing was sent"))
                .with_hint("remove the secret from the text"));
        }
    }
    Ok(())
}

async fn attached(gmail: &Gmail, call: &Arc<Call>, input: &Input) -> Result<Vec<Attached>, ToolError> {
    let paths = input.attachments.as_deref().unwrap_or_default();
    if paths.len() > MAX_FILES {
        return Err(ToolError::input(format!("a message has at most {MAX_FILES} attachments")));
    }
    let mut attached = Vec::new();
    let mut room = MAX_MESSAGE_BYTES as u64;
    for path in paths {
        let bytes = file_place::read(&gmail.google.files, call, path, room).await?;
        room -= (bytes.len() as u64).min(room);
        let name = FilePlace::parse(path).file_name().to_owned();
        attached.push(Attached { mime: mime_of(&name).to_owned(), name, bytes });
    }
    Ok(attached)
}

/// The type of a file by its ending. Mail programs use it to choose an icon; nothing depends on it.
fn mime_of(name: &str) -> &'static str {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase()).unwrap_or_default();
    match ending.as_str() {
        "txt" | "log" | "md" => "text/plain",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "json" => "application/json",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "zip" => "application/zip",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "ics" => "text/calendar",
        _ => "application/octet-stream",
    }
}

/// Shows a person who gets the letter, and all of it.
pub(super) async fn question(gmail: &Gmail, asked: &AskedCall, input: &Input) -> Option<AskedAction> {
    let composed = match gmail.google.api.accounts().resolve(input.account.as_deref()) {
        Ok(account) => {
            composed(gmail, &asked.call, &account, input).await.map(|composed| (account, composed))
        }
        Err(err) => Err(err.into()),
    };
    let (to, details) = match composed {
        Ok((account, Composed { letter, .. })) => {
            let recipients =
                Recipients { to: letter.to.clone(), cc: letter.cc.clone(), bcc: letter.bcc.clone() };
            (recipients.shown(), described(&account, &letter))
        }
        Err(err) => {
            let why = field("This call cannot work, so deny it", &err.to_string());
            ("recipients that could not be found".to_owned(), vec![why])
        }
    };
    match input.action {
        Action::Draft => change("Gmail", format!("save a draft to {to}"), &details),
        _ => Some(AskedAction::Message { to, text: details.join("\n"), not_shown: 0 }),
    }
}

fn described(account: &str, letter: &Letter) -> Vec<String> {
    let mut lines = vec![field("From", account)];
    for (name, list) in [("To", &letter.to), ("Cc", &letter.cc), ("Bcc", &letter.bcc)] {
        if !list.is_empty() {
            let addresses: Vec<&str> = list.iter().map(|mailbox| mailbox.address.as_str()).collect();
            lines.push(field(name, &addresses.join(", ")));
        }
    }
    lines.push(field("Subject", &letter.subject));
    for file in &letter.attachments {
        lines.push(field("Attachment", &format!("{} ({} bytes)", file.name, file.bytes.len())));
    }
    lines.push(quoted("Text", &letter.text));
    lines
}
