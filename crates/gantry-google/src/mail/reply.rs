//! [`Reply`] is what an answer takes from the message that it answers.

use super::address::{Mailbox, is_address};
use super::headers::Headers;

const MAX_REFERENCES: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) to: Vec<Mailbox>,
    pub(crate) subject: String,
    pub(crate) in_reply_to: Option<String>,
    pub(crate) references: Vec<String>,
}

/// Derives an answer. `own` is the address of the account: an answer to one's own message goes to its recipients.
///
/// Returns `None` if the message names nobody to answer.
pub(crate) fn reply_to(original: &Headers, own: Option<&str>) -> Option<Reply> {
    let is_own = |mailbox: &Mailbox| own.is_some_and(|own| mailbox.address.eq_ignore_ascii_case(own));
    let wrote_it = !original.from.is_empty() && original.from.iter().all(is_own);
    let receivers = match () {
        () if wrote_it => &original.to,
        () if !original.reply_to.is_empty() => &original.reply_to,
        () => &original.from,
    };
    let mut to: Vec<Mailbox> = Vec::new();
    for mailbox in receivers.iter().filter(|mailbox| is_address(&mailbox.address)) {
        if !to.iter().any(|known| known.is_same(mailbox)) {
            to.push(mailbox.clone());
        }
    }
    if to.is_empty() {
        return None;
    }
    let mut references = original.references.clone();
    references.extend(original.message_id.clone().filter(|id| !original.references.contains(id)));
    if references.len() > MAX_REFERENCES {
        // The first one names the thread.
        references.drain(1..=references.len() - MAX_REFERENCES);
    }
    Some(Reply {
        to,
        subject: subject(&original.subject),
        in_reply_to: original.message_id.clone(),
        references,
    })
}

/// Gmail keeps an answer in its thread only if the subject is the same, so one `Re:` is put before it and no more.
fn subject(original: &str) -> String {
    let original = original.trim();
    match original.get(..3) {
        Some(start) if start.eq_ignore_ascii_case("re:") => original.to_owned(),
        _ => format!("Re: {original}").trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        Headers::from_pairs(pairs.iter().copied())
    }

    fn receivers(pairs: &[(&str, &str)]) -> Option<String> {
        let reply = reply_to(&headers(pairs), Some("me@own.example"))?;
        Some(reply.to.iter().map(Mailbox::shown).collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn answers_go_to_the_sender_unless_the_message_says_otherwise() {
        let to = ("To", "Me <me@own.example>, ann@c.example");
        assert_eq!(receivers(&[("From", "Bob <bob@b.example>"), to]).as_deref(), Some("Bob <bob@b.example>"));
        let reply_to = ("Reply-To", "list@l.example, list@L.example");
        assert_eq!(receivers(&[("From", "bob@b.example"), reply_to, to]).as_deref(), Some("list@l.example"));
        let own = ("From", "ME@own.example");
        assert_eq!(receivers(&[own, ("To", "ann@c.example"), reply_to]).as_deref(), Some("ann@c.example"));
        assert_eq!(receivers(&[("From", "not an address")]), None);
        // A display name that is an address does not become the recipient.
        let crafted = ("From", "\"ceo@own.example\" <eve@evil.example>");
        assert_eq!(receivers(&[crafted]).as_deref(), Some("ceo@own.example <eve@evil.example>"));
    }

    #[test]
    fn re_is_written_once() {
        for (original, expected) in [
            ("Plans", "Re: Plans"),
            ("RE: Plans", "RE: Plans"),
            ("re:x", "re:x"),
            ("", "Re:"),
            ("Ré", "Re: Ré"),
        ] {
            assert_eq!(subject(original), expected);
        }
    }

    #[test]
    fn references_keep_the_first_and_the_newest() {
        let many: Vec<String> = (0..40).map(|number| format!("<r{number}@a.example>")).collect();
        let original = headers(&[
            ("From", "a@b.example"),
            ("Message-ID", "<m@a.example>"),
            ("References", &many.join(" ")),
        ]);
        let reply = reply_to(&original, None).unwrap();
        assert_eq!(reply.references.len(), MAX_REFERENCES);
        assert_eq!(reply.references.first().map(String::as_str), Some("r0@a.example"));
        assert_eq!(reply.references.last().map(String::as_str), Some("m@a.example"));
        let none = reply_to(&headers(&[("From", "a@b.example")]), None).unwrap();
        assert_eq!((none.in_reply_to, none.references), (None, Vec::new()));
    }
}
