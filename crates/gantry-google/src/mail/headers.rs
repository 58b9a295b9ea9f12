//! [`Headers`] is what matters of the headers of a message that somebody wrote.

use gantry_tool::without_hidden;
use mail_parser::{Address, HeaderValue, Message, MessageParser};

use super::address::Mailbox;

/// The highest number of mailboxes that are read from one header.
const MAX_MAILBOXES: usize = 200;
const MAX_REFERENCES: usize = 50;
const MAX_LINE: usize = 2_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Headers {
    pub(crate) from: Vec<Mailbox>,
    pub(crate) to: Vec<Mailbox>,
    pub(crate) cc: Vec<Mailbox>,
    pub(crate) bcc: Vec<Mailbox>,
    pub(crate) reply_to: Vec<Mailbox>,
    pub(crate) subject: String,
    /// The Message-ID without angle brackets, if it is well-formed.
    pub(crate) message_id: Option<String>,
    /// The messages before this one, the first of the thread first.
    pub(crate) references: Vec<String>,
}

impl Headers {
    /// Reads names and values, as Gmail returns them. Values may be plain UTF-8 or encoded words.
    pub(crate) fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Headers {
        let mut block = String::new();
        for (name, value) in pairs {
            let is_token = |c: char| c.is_ascii_graphic() && c != ':';
            if name.is_empty() || !name.chars().all(is_token) {
                continue;
            }
            // A folded value becomes one line again. A value cannot start another header.
            let line: String =
                value.chars().map(|c| if matches!(c, '\r' | '\n') { ' ' } else { c }).collect();
            block.push_str(&format!("{name}: {}\r\n", line.trim()));
        }
        block.push_str("\r\n");
        MessageParser::default()
            .parse_headers(block.as_bytes())
            .map_or_else(Headers::default, |mail| Headers::of(&mail))
    }

    pub(super) fn of(mail: &Message<'_>) -> Headers {
        let mut references = ids(mail.references());
        if references.is_empty() {
            references = ids(mail.in_reply_to());
        }
        Headers {
            from: mailboxes(mail.from()),
            to: mail.all_to().flat_map(|list| mailboxes(Some(list))).take(MAX_MAILBOXES).collect(),
            cc: mail.all_cc().flat_map(|list| mailboxes(Some(list))).take(MAX_MAILBOXES).collect(),
            bcc: mail.all_bcc().flat_map(|list| mailboxes(Some(list))).take(MAX_MAILBOXES).collect(),
            reply_to: mailboxes(mail.reply_to()),
            subject: line(mail.subject().unwrap_or_default()),
            message_id: mail.message_id().map(str::trim).filter(|id| is_message_id(id)).map(str::to_owned),
            references,
        }
    }
}

fn mailboxes(list: Option<&Address<'_>>) -> Vec<Mailbox> {
    let read = |mailbox: &mail_parser::Addr<'_>| {
        let address = line(mailbox.address()?);
        let name = mailbox.name().map(line).filter(|name| !name.is_empty());
        (!address.is_empty()).then_some(Mailbox { name, address })
    };
    list.into_iter().flat_map(|list| list.iter()).filter_map(read).take(MAX_MAILBOXES).collect()
}

fn ids(value: &HeaderValue<'_>) -> Vec<String> {
    let list = value.as_text_list().unwrap_or_default();
    let ids = list.iter().map(|id| id.trim().to_owned()).filter(|id| is_message_id(id));
    ids.take(MAX_REFERENCES).collect()
}

/// The text of a header on one line, without invisible characters.
fn line(text: &str) -> String {
    let spaced: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_LINE).collect();
    without_hidden(&spaced).trim().to_owned()
}

/// Reports whether a text can be written between angle brackets in a header.
pub(crate) fn is_message_id(text: &str) -> bool {
    (3..=250).contains(&text.len())
        && text.contains('@')
        && text.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '<' | '>' | ','))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_gmail_are_read() {
        let headers = Headers::from_pairs([
            ("From", "=?utf-8?Q?J=C3=BCrgen?= <j@a.example>"),
            ("To", "\"Doe, Bob\" <bob@b.example>, Änn <ann@c.example>"),
            ("cc", "x@d.example"),
            ("Subject", "Grüße =?iso-8859-1?Q?f=FCr?= dich"),
            ("Message-Id", "<m1@a.example>"),
            ("References", "<r1@a.example> <r2@a.example>\r\n <r3@a.example>"),
            ("Bad\r\nBcc", "eve@evil.example"),
            ("X-Note", "a\r\nBcc: eve@evil.example"),
        ]);
        let shown = |list: &[Mailbox]| list.iter().map(Mailbox::shown).collect::<Vec<_>>().join("; ");
        assert_eq!(shown(&headers.from), "Jürgen <j@a.example>");
        assert_eq!(shown(&headers.to), "Doe, Bob <bob@b.example>; Änn <ann@c.example>");
        assert_eq!((shown(&headers.cc).as_str(), headers.bcc.len()), ("x@d.example", 0));
        assert_eq!(headers.subject, "Grüße für dich");
        assert_eq!(headers.message_id.as_deref(), Some("m1@a.example"));
        assert_eq!(headers.references, ["r1@a.example", "r2@a.example", "r3@a.example"]);
    }

    #[test]
    fn invalid_ids_and_hidden_characters_are_left_out() {
        let headers = Headers::from_pairs([
            ("Message-ID", "<a b@c>"),
            ("In-Reply-To", "<ok@c.example>"),
            ("Subject", "a\u{202e}b\u{200b}c\td"),
        ]);
        assert_eq!((headers.message_id, headers.references), (None, vec!["ok@c.example".to_owned()]));
        assert_eq!(headers.subject, "abc d");
    }
}
