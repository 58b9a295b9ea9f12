//! [`Letter`] is a mail that is ready to be sent.

use mail_builder::MessageBuilder;
use mail_builder::headers::HeaderType;
use mail_builder::headers::raw::Raw;

use super::Answered;
use crate::adapter::{Content, Outbound};
use crate::render::{html, plain};

const MAX_REFERENCES: usize = 20;
const MAX_SUBJECT: usize = 150;

pub(super) struct Letter {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) message_id: String,
    pub(super) subject: String,
    pub(super) references: Vec<String>,
    pub(super) bytes: Vec<u8>,
}

impl Letter {
    /// Builds the letter of one message. `answers` is the Message-ID that it answers.
    pub(super) fn new(
        from: &str,
        message: &Outbound,
        answers: Option<String>,
        answered: &Answered,
    ) -> Result<Letter, String> {
        let to = message.address.chat.clone();
        if !is_address(&to) || !is_address(from) {
            return Err("the receiver or the account is not a mail address".to_owned());
        }
        if answers.as_deref().is_some_and(|id| !is_message_id(id)) {
            return Err("the mail to answer has no valid Message-ID".to_owned());
        }
        let (local, domain) = from.rsplit_once('@').unwrap_or_default();
        let message_id = format!("{}@{domain}", message.key);
        let (text, file) = match &message.content {
            Content::Text(markdown) | Content::Question { markdown, .. } => (markdown.as_str(), None),
            Content::File { name, mime, bytes, caption } => (caption.as_str(), Some((name, mime, bytes))),
            Content::Edit { .. } => return Err("mail cannot be changed after it was sent".to_owned()),
        };
        let subject = subject(&answered.subject, text);
        if subject.chars().any(char::is_control) {
            return Err("the subject contains control characters".to_owned());
        }
        let mut references = answered.references.clone();
        let root = message.address.thread.clone().filter(|root| root.contains('@') && references.is_empty());
        for id in root.into_iter().chain(answers.clone()) {
            if !references.contains(&id) {
                references.push(id);
            }
        }
        references.retain(|id| is_message_id(id));
        if references.len() > MAX_REFERENCES {
            // The first names the thread.
            references.drain(1..=references.len() - MAX_REFERENCES);
        }
        let mut builder = MessageBuilder::new()
            .message_id(message_id.as_str())
            .from(from)
            .to(to.as_str())
            .subject(subject.as_str())
            .header("Auto-Submitted", HeaderType::from(Raw::new("auto-replied")))
            .text_body(plain::render(text))
            .html_body(format!("<!DOCTYPE html>\n<html><body>\n{}\n</body></html>\n", html::render(text)));
        if let Some(id) = &answers {
            builder = builder.in_reply_to(id.as_str());
        }
        if !references.is_empty() {
            builder = builder.references(references.clone());
        }
        if let Some(topic) = message.address.thread.as_deref().filter(|topic| is_topic(topic)) {
            builder = builder.reply_to(format!("{local}+{topic}@{domain}"));
        }
        if let Some((name, mime, bytes)) = file {
            if name.is_empty() || name.chars().any(char::is_control) {
                return Err("the file's name is empty or contains control characters".to_owned());
            }
            let is_mime = |c: char| c.is_ascii_alphanumeric() || "/+-._".contains(c);
            let is_valid = mime.split('/').count() == 2 && mime.chars().all(is_mime);
            let mime = if is_valid { mime.as_str() } else { "application/octet-stream" };
            builder = builder.attachment(mime, name.as_str(), bytes.to_vec());
        }
        let bytes = builder.write_to_vec().map_err(|err| err.to_string())?;
        Ok(Letter { from: from.to_owned(), to, message_id, subject, references, bytes })
    }
}

/// `Re:` once before the subject of the mail that is answered, else the text's first line.
fn subject(answered: &str, text: &str) -> String {
    let mut rest = answered.trim();
    while rest.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("re:")) {
        rest = rest[3..].trim_start();
    }
    if !rest.is_empty() {
        return format!("Re: {rest}");
    }
    let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("Message");
    first.trim_start_matches(['#', '*', ' ']).chars().filter(|c| !c.is_control()).take(MAX_SUBJECT).collect()
}

/// Reports whether a text is one plain address, which cannot break out of a header or a command.
pub(super) fn is_address(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let is_local = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c);
    let is_domain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    (1..=64).contains(&local.len())
        && (1..=253).contains(&domain.len())
        && local.chars().all(is_local)
        && domain.chars().all(is_domain)
}

pub(super) fn is_message_id(text: &str) -> bool {
    (3..=250).contains(&text.len())
        && text.contains('@')
        && text.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '<' | '>' | ','))
}

/// Reports whether a thread is the topic of a plus address.
pub(super) fn is_topic(text: &str) -> bool {
    (1..=40).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn re_stands_before_the_subject_once() {
        for (answered, text, expected) in [
            ("Plans", "x", "Re: Plans"),
            ("RE: re: Plans", "x", "Re: Plans"),
            ("", "\n# Hello there\nmore", "Hello there"),
            ("  ", "", "Message"),
        ] {
            assert_eq!(subject(answered, text), expected);
        }
    }

    #[test]
    fn hostile_addresses_are_refused() {
        for text in [
            "a@b\r\nDATA",
            "a b@c",
            "<a@b>",
            "a@b>",
            "a",
            "@b",
            "a@",
            "a@b,c@d",
            "\"a\"@b",
            "a@b c",
            "ä@b",
            "a@b\0",
        ] {
            assert!(!is_address(text), "{text:?}");
        }
        assert!(is_address("ann+x.y@mail.example.org"));
        for id in ["a@b\r\nX: y", "a b@c", "<a@b>", "a@b> <c@d", "a", ""] {
            assert!(!is_message_id(id), "{id:?}");
        }
    }
}
