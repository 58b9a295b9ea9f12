//! [`Letter`] is a message that is about to be sent.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mail_builder::MessageBuilder;
use mail_builder::headers::address::Address;
use uuid::Uuid;

use super::address::{MAX_RECIPIENTS, Mailbox, is_address};
use super::headers::{Headers, is_message_id};
use super::raw;

/// The largest message that Gmail accepts.
pub(crate) const MAX_MESSAGE_BYTES: usize = 36_700_160;
const MAX_SUBJECT: usize = 1_000;
const MAX_FILE_NAME: usize = 200;
/// Message-IDs of accounts whose address is unknown end with this.
const UNKNOWN_DOMAIN: &str = "gantry.invalid";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Letter {
    /// Gmail writes the account's own address if this is missing.
    pub(crate) from: Option<Mailbox>,
    pub(crate) to: Vec<Mailbox>,
    pub(crate) cc: Vec<Mailbox>,
    pub(crate) bcc: Vec<Mailbox>,
    pub(crate) subject: String,
    pub(crate) text: String,
    pub(crate) in_reply_to: Option<String>,
    pub(crate) references: Vec<String>,
    pub(crate) attachments: Vec<Attached>,
}

/// A file that is sent with a letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attached {
    pub(crate) name: String,
    pub(crate) mime: String,
    pub(crate) bytes: Vec<u8>,
}

/// The bytes of a letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Built {
    pub(crate) bytes: Vec<u8>,
    pub(crate) message_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ComposeError {
    #[error("the {0} must not contain line breaks or other control characters")]
    Control(&'static str),
    #[error("{0:?} is not a mail address")]
    NotAnAddress(String),
    #[error("the subject is longer than {MAX_SUBJECT} characters")]
    LongSubject,
    #[error("the attachment {0:?} needs a name of 1 to {MAX_FILE_NAME} characters")]
    FileName(String),
    #[error("a message has at most {MAX_RECIPIENTS} recipients")]
    TooManyRecipients,
    #[error(
        "the message has {0} bytes, and Gmail accepts at most {MAX_MESSAGE_BYTES}; send fewer or smaller attachments"
    )]
    TooLarge(usize),
    #[error("the message cannot be built: {0}")]
    Build(String),
    #[error("the built message differs from the requested one in its {0}; nothing was sent")]
    Differs(&'static str),
}

impl Letter {
    /// Builds the message, reads it back, and compares the two, so that nobody gets a message that nobody asked for.
    pub(crate) fn build(&self) -> Result<Built, ComposeError> {
        self.check()?;
        let domain =
            self.from.as_ref().and_then(|from| from.address.rsplit_once('@')).map(|(_, domain)| domain);
        let message_id = format!("{}@{}", Uuid::new_v4().simple(), domain.unwrap_or(UNKNOWN_DOMAIN));
        let mut builder = MessageBuilder::new().message_id(message_id.as_str());
        if let Some(from) = &self.from {
            builder = builder.from(address(from));
        }
        if !self.to.is_empty() {
            builder = builder.to(addresses(&self.to));
        }
        if !self.cc.is_empty() {
            builder = builder.cc(addresses(&self.cc));
        }
        if !self.bcc.is_empty() {
            builder = builder.bcc(addresses(&self.bcc));
        }
        builder = builder.subject(self.subject.as_str()).text_body(self.text.as_str());
        if let Some(id) = &self.in_reply_to {
            builder = builder.in_reply_to(id.as_str());
        }
        if !self.references.is_empty() {
            builder = builder.references(self.references.clone());
        }
        for file in &self.attachments {
            builder = builder.attachment(checked_mime(&file.mime), file.name.as_str(), file.bytes.as_slice());
        }
        let bytes = builder.write_to_vec().map_err(|err| ComposeError::Build(err.to_string()))?;
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(ComposeError::TooLarge(bytes.len()));
        }
        self.compare(&bytes)?;
        Ok(Built { bytes, message_id })
    }

    fn check(&self) -> Result<(), ComposeError> {
        let everybody = || self.from.iter().chain(&self.to).chain(&self.cc).chain(&self.bcc);
        if everybody().count() > MAX_RECIPIENTS + 1 {
            return Err(ComposeError::TooManyRecipients);
        }
        for mailbox in everybody() {
            if !is_address(&mailbox.address) {
                return Err(ComposeError::NotAnAddress(mailbox.address.clone()));
            }
            if mailbox.name.as_deref().is_some_and(has_control) {
                return Err(ComposeError::Control("display name"));
            }
        }
        if has_control(&self.subject) {
            return Err(ComposeError::Control("subject"));
        }
        if self.subject.chars().count() > MAX_SUBJECT {
            return Err(ComposeError::LongSubject);
        }
        if self.text.contains('\0') {
            return Err(ComposeError::Control("body"));
        }
        if self.in_reply_to.iter().chain(&self.references).any(|id| !is_message_id(id)) {
            return Err(ComposeError::Control("Message-ID"));
        }
        for file in &self.attachments {
            let length = file.name.chars().count();
            if !(1..=MAX_FILE_NAME).contains(&length) || has_control(&file.name) {
                return Err(ComposeError::FileName(file.name.clone()));
            }
        }
        Ok(())
    }

    fn compare(&self, bytes: &[u8]) -> Result<(), ComposeError> {
        let (headers, part) = raw::read(bytes).ok_or(ComposeError::Differs("form"))?;
        let Headers { from, to, cc, bcc, subject, .. } = &headers;
        let own_from: Vec<Mailbox> = self.from.iter().cloned().collect();
        for (wanted, found, what) in [
            (&own_from, from, "sender"),
            (&self.to, to, "recipients"),
            (&self.cc, cc, "Cc"),
            (&self.bcc, bcc, "Bcc"),
        ] {
            let addresses = |list: &[Mailbox]| list.iter().map(|one| one.address.clone()).collect::<Vec<_>>();
            if addresses(wanted) != addresses(found) {
                return Err(ComposeError::Differs(what));
            }
        }
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        if words(&gantry_tool::without_hidden(&self.subject)) != words(subject) {
            return Err(ComposeError::Differs("subject"));
        }
        if part.attachments().len() != self.attachments.len() {
            return Err(ComposeError::Differs("attachments"));
        }
        Ok(())
    }
}

impl Built {
    /// The message as the field `raw` of Gmail's API takes it.
    pub(crate) fn raw(&self) -> String {
        URL_SAFE_NO_PAD.encode(&self.bytes)
    }
}

fn addresses(list: &[Mailbox]) -> Address<'_> {
    Address::new_list(list.iter().map(address).collect())
}

fn address(mailbox: &Mailbox) -> Address<'_> {
    Address::new_address(mailbox.name.as_deref(), mailbox.address.as_str())
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

/// A type that cannot break out of its header.
fn checked_mime(mime: &str) -> String {
    let is_token = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "!#$&-^_.+".contains(c))
    };
    let is_valid = mime.split_once('/').is_some_and(|(kind, sub)| is_token(kind) && is_token(sub));
    // The content of these would be written without an encoding.
    let is_structured = mime.starts_with("multipart/") || mime.starts_with("message/");
    if is_valid && !is_structured { mime.to_lowercase() } else { "application/octet-stream".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter() -> Letter {
        Letter {
            to: Mailbox::parse_list("Ann <ann@a.example>").unwrap(),
            subject: "Plans".into(),
            text: "Hello".into(),
            ..Letter::default()
        }
    }

    #[test]
    fn letters_are_built_with_every_field() {
        let full = Letter {
            from: Some(Mailbox { name: Some("Jürgen".into()), address: "j@own.example".into() }),
            cc: Mailbox::parse_list("\"Doe, Bob\" <bob@b.example>").unwrap(),
            bcc: Mailbox::parse_list("eve@c.example").unwrap(),
            subject: "Grüße 日本".into(),
            text: "Zeile 1\nZeile 2 – ü".into(),
            in_reply_to: Some("m@a.example".into()),
            references: vec!["r@a.example".into(), "m@a.example".into()],
            attachments: vec![Attached {
                name: "ä.pdf".into(),
                mime: "application/pdf".into(),
                bytes: vec![0; 99],
            }],
            ..letter()
        };
        let built = full.build().unwrap();
        let text = String::from_utf8(built.bytes.clone()).unwrap();
        assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 998), "{text}");
        assert!(
            text.contains("In-Reply-To: <m@a.example>\r\n") && built.message_id.ends_with("@own.example")
        );
        let (headers, part) = raw::read(&built.bytes).unwrap();
        assert_eq!(headers.subject, "Grüße 日本");
        assert_eq!(headers.references, full.references);
        assert_eq!(part.text().text, full.text);
        assert_eq!(part.attachments()[0].name, "ä.pdf");
        let raw = built.raw();
        assert!(!raw.contains(['+', '/', '=']), "base64url without padding");
    }

    #[test]
    fn hostile_fields_are_rejected() {
        let named = |name: &str| Mailbox { name: Some(name.into()), address: "a@b.example".into() };
        let addressed = |address: &str| Mailbox { name: None, address: address.into() };
        let file = |name: &str| Attached { name: name.into(), mime: "text/plain".into(), bytes: Vec::new() };
        let cases = [
            Letter { subject: "a\r\nBcc: eve@evil.example".into(), ..letter() },
            Letter { subject: "a\0".into(), ..letter() },
            Letter { subject: "a".repeat(MAX_SUBJECT + 1), ..letter() },
            Letter { to: vec![named("a\nBcc: e@evil.example")], ..letter() },
            Letter { to: vec![addressed("a@b.example>\r\nBcc: <e@evil.example")], ..letter() },
            Letter { cc: vec![addressed("a@b.example, e@evil.example")], ..letter() },
            Letter { in_reply_to: Some("a@b>\r\nBcc: e@evil.example".into()), ..letter() },
            Letter { references: vec!["a b@c".into()], ..letter() },
            Letter { attachments: vec![file("a\r\nb")], ..letter() },
            Letter { attachments: vec![file("")], ..letter() },
            Letter { text: "a\0b".into(), ..letter() },
            Letter {
                attachments: vec![Attached { bytes: vec![0; MAX_MESSAGE_BYTES], ..file("big") }],
                ..letter()
            },
        ];
        for case in cases {
            assert!(case.build().is_err(), "{:?}", case.subject);
        }
        let odd = Attached { mime: "text/html\r\nX: y".into(), ..file("a.txt") };
        let built = Letter { attachments: vec![odd], ..letter() }.build().unwrap();
        assert!(String::from_utf8(built.bytes).unwrap().contains("application/octet-stream"));
    }
}
