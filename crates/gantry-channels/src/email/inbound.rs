//! Reads a mail into a message: its text without the quoted tail, its thread, and its files.

use mail_parser::{HeaderValue, Message, MessageParser, MimeHeaders, PartType};

use super::compose::{is_address, is_message_id, is_topic};
use super::sender_check::{automatic, is_genuine};
use super::{Answered, Email};
use crate::adapter::{Addressed, Inbound, Media, MediaKind};
use crate::address::{Address, PeerKind, Person};

const MAX_TEXT: usize = 200_000;
const MAX_NAME: usize = 100;
const MAX_FILES: usize = 20;

/// What becomes of a mail.
#[derive(Debug)]
pub(super) enum Read {
    Message(Box<Inbound>, Answered),
    /// It is not answered, for this reason.
    Ignored(&'static str),
}

/// Reads the bytes of a mail. `uid` is `UIDVALIDITY:UID`. `too_long` is its size, if only its headers were loaded.
pub(super) fn read(email: &Email, uid: &str, bytes: &[u8], too_long: Option<u32>) -> Read {
    let Some(mail) = MessageParser::default().parse(bytes) else { return Read::Ignored("it is not a mail") };
    if let Some(why) = automatic(mail.headers_raw()) {
        return Read::Ignored(why);
    }
    let from_headers =
        mail.headers_raw().filter(|(name, _)| name.trim().eq_ignore_ascii_case("from")).count();
    let senders: Vec<_> = mail.from().into_iter().flat_map(|from| from.iter()).collect();
    let [sender] = senders.as_slice() else { return Read::Ignored("it does not have one sender") };
    let from = sender.address().unwrap_or_default().trim().to_lowercase();
    if from_headers != 1 || !is_address(&from) {
        return Read::Ignored("it does not have one sender with a plain address");
    }
    if is_own(email, &from) || from.starts_with("mailer-daemon@") {
        return Read::Ignored("the account or a mail server sent it");
    }
    let is_verified =
        email.authserv_id.as_deref().is_some_and(|id| is_genuine(mail.headers_raw(), id, &from));
    if !is_verified && !email.accept_unverified {
        return Read::Ignored("the receiving server does not call its sender genuine");
    }
    let own_id = mail.message_id().filter(|id| is_message_id(id)).map(str::to_owned);
    let references = references(&mail);
    let thread = topic(email, &mail).or_else(|| references.first().cloned()).or_else(|| own_id.clone());
    let (text, quoted) = match too_long {
        Some(size) => (format!("(This mail has {size} bytes, too many to read it.)"), None),
        None => split_tail(&body(&mail)),
    };
    let subject = one_line(mail.subject().unwrap_or_default(), 200);
    let inbound = Inbound {
        event_id: own_id.clone().unwrap_or_else(|| uid.to_owned()),
        message_id: own_id.unwrap_or_default(),
        address: Address {
            channel: "email".to_owned(),
            account: email.account.clone(),
            kind: PeerKind::Dm,
            chat: from.clone(),
            thread,
        },
        person: Person {
            id: from,
            alias: None,
            name: one_line(sender.name().unwrap_or_default(), MAX_NAME),
            is_bot: false,
        },
        text: with_subject(&subject, text, references.is_empty()),
        quoted,
        is_forwarded: is_forward(&subject),
        media: files(&mail, uid),
        addressed: Addressed::Direct,
        at: mail.date().map_or(0, |date| date.to_timestamp().saturating_mul(1_000)),
        is_edit: false,
        is_verified,
    };
    Read::Message(Box::new(inbound), Answered { subject, references })
}

/// Subject and references of a mail, from its headers.
pub(super) fn answered(headers: &[u8]) -> Option<Answered> {
    let mail = MessageParser::default().parse(headers)?;
    Some(Answered {
        subject: one_line(mail.subject().unwrap_or_default(), 200),
        references: references(&mail),
    })
}

/// The bytes of the file with this number.
pub(super) fn file(bytes: &[u8], number: u32) -> Option<Vec<u8>> {
    Some(MessageParser::default().parse(bytes)?.attachment(number)?.contents().to_vec())
}

/// The first mail of a thread starts with its subject.
fn with_subject(subject: &str, text: String, is_first: bool) -> String {
    match is_first && !subject.is_empty() {
        true => format!("{subject}\n\n{text}").trim().to_owned(),
        false => text,
    }
}

fn is_forward(subject: &str) -> bool {
    let start: String = subject.chars().take(5).collect::<String>().to_lowercase();
    start.starts_with("fwd:") || start.starts_with("fw:")
}

fn one_line(text: &str, max: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(max).collect::<String>().trim().to_owned()
}

/// Reports whether an address is the account's, with or without a topic.
fn is_own(email: &Email, address: &str) -> bool {
    address == email.address || topic_of(&email.address, address).is_some()
}

/// The topic in `local+topic@domain`, if the rest is the account's address.
fn topic_of<'a>(own: &str, address: &'a str) -> Option<&'a str> {
    let (own_local, own_domain) = own.rsplit_once('@')?;
    let (local, domain) = address.rsplit_once('@')?;
    let (local, topic) = local.split_once('+')?;
    (local == own_local && domain == own_domain && is_topic(topic)).then_some(topic)
}

fn topic(email: &Email, mail: &Message<'_>) -> Option<String> {
    let receivers = mail.all_to().chain(mail.all_cc()).flat_map(|list| list.iter());
    let mut addresses = receivers.filter_map(|receiver| receiver.address()).map(str::to_lowercase);
    addresses.find_map(|address| topic_of(&email.address, &address).map(str::to_owned))
}

/// The mails before this one, the first of the thread first.
fn references(mail: &Message<'_>) -> Vec<String> {
    let mut ids = ids(mail.references());
    if ids.is_empty() {
        ids = self::ids(mail.in_reply_to());
    }
    ids
}

fn ids(value: &HeaderValue<'_>) -> Vec<String> {
    let list = value.as_text_list().unwrap_or_default();
    let ids = list.iter().map(|id| id.trim().to_owned()).filter(|id| is_message_id(id));
    ids.take(50).collect()
}

fn body(mail: &Message<'_>) -> String {
    let text = match mail.text_part(0).map(|part| &part.body) {
        Some(PartType::Text(text)) => text.to_string(),
        Some(PartType::Html(html)) => gantry_page::html_to_text(html, None),
        _ => String::new(),
    };
    text.replace("\r\n", "\n").chars().take(MAX_TEXT).collect()
}

/// Separates what the sender wrote from the earlier mail below it. Quotes between the sender's lines stay.
fn split_tail(text: &str) -> (String, Option<String>) {
    let lines: Vec<&str> = text.lines().collect();
    let is_quote = |line: &&str| line.starts_with('>') || line.trim().is_empty();
    let is_divider = |line: &&str| {
        let inner = line.trim().trim_matches('-').trim();
        line.trim().starts_with("---") && inner.eq_ignore_ascii_case("original message")
    };
    let outlook = |at: usize| {
        let line = lines[at].trim();
        let next = lines.get(at + 1).copied().unwrap_or_default();
        line.len() >= 20
            && line.chars().all(|c| c == '_')
            && next.trim_start().to_lowercase().starts_with("from:")
    };
    let divided = (0..lines.len()).find(|at| is_divider(&lines[*at]) || outlook(*at));
    let quoted = (0..lines.len()).find(|at| lines[*at].starts_with('>') && lines[*at..].iter().all(is_quote));
    let Some(mut cut) = divided.or(quoted) else { return (without_signature(text), None) };
    if divided.is_none() {
        // "On Monday, Ann wrote:" belongs to the quote, on up to three lines.
        let before = lines[..cut].iter().rposition(|line| !line.trim().is_empty());
        if let Some(end) = before.filter(|end| lines[*end].trim_end().ends_with(':')) {
            let start =
                lines[..end].iter().rposition(|line| line.trim().is_empty()).map_or(0, |blank| blank + 1);
            if end - start < 3 {
                cut = start;
            }
        }
    }
    let own = without_signature(&lines[..cut].join("\n"));
    match own.is_empty() {
        true => (text.trim().to_owned(), None),
        false => (own, Some(lines[cut..].join("\n").trim().to_owned())),
    }
}

fn without_signature(text: &str) -> String {
    let end = text.find("\n-- \n").unwrap_or(text.len());
    text[..end].trim().to_owned()
}

fn files(mail: &Message<'_>, uid: &str) -> Vec<Media> {
    let read = |(number, part): (usize, &mail_parser::MessagePart<'_>)| {
        let kind = part.content_type();
        let mime = kind.map_or_else(
            || "application/octet-stream".to_owned(),
            |kind| format!("{}/{}", kind.ctype(), kind.subtype().unwrap_or("octet-stream")).to_lowercase(),
        );
        Media {
            kind: match mime.split('/').next() {
                Some("image") => MediaKind::Image,
                Some("audio") => MediaKind::Audio,
                Some("video") => MediaKind::Video,
                _ => MediaKind::Document,
            },
            mime: mime.chars().filter(char::is_ascii_graphic).take(MAX_NAME).collect(),
            name: part.attachment_name().map(|name| one_line(name, MAX_NAME)).filter(|name| !name.is_empty()),
            size: u64::try_from(part.contents().len()).ok(),
            source: format!("{uid}:{number}"),
        }
    };
    mail.attachments().enumerate().take(MAX_FILES).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_tail_is_separated() {
        for (text, own, quoted) in [
            (
                "Yes.\n\nOn Monday, Ann\n<a@b> wrote:\n> old\n>\n> more\n",
                "Yes.",
                Some("On Monday, Ann\n<a@b> wrote:\n> old\n>\n> more"),
            ),
            ("> question\nanswer\n> other\nmore", "> question\nanswer\n> other\nmore", None),
            ("Hi\n-- \nAnn\nBoss", "Hi", None),
            ("Hi\n\n-----Original Message-----\nFrom: x", "Hi", Some("-----Original Message-----\nFrom: x")),
            (
                "Hi\n________________________________\nFrom: x\nold",
                "Hi",
                Some("________________________________\nFrom: x\nold"),
            ),
            ("> only\n> quote", "> only\n> quote", None),
            ("Look:\n\ntext", "Look:\n\ntext", None),
            ("", "", None),
        ] {
            assert_eq!(split_tail(text), (own.to_owned(), quoted.map(str::to_owned)), "{text:?}");
        }
    }

    #[test]
    fn plus_addresses_of_the_account_alone_name_topics() {
        let own = "agent@example.org";
        assert_eq!(topic_of(own, "agent+plans@example.org"), Some("plans"));
        for other in [
            "agent@example.org",
            "agent+@example.org",
            "agent+a@evil.org",
            "b+a@example.org",
            "agent+a b@example.org",
        ] {
            assert_eq!(topic_of(own, other), None, "{other}");
        }
    }
}
