//! [`Mailbox`] is one mail address with an optional display name.

use url::Host;

/// The highest number of recipients of one message.
pub(crate) const MAX_RECIPIENTS: usize = 100;
const MAX_NAME: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Mailbox {
    pub(crate) name: Option<String>,
    pub(crate) address: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    #[error("an address list must not contain line breaks or other control characters")]
    Control,
    #[error("{0:?} is not a mail address; write `ann@example.org` or `Ann <ann@example.org>`")]
    NotAnAddress(String),
    #[error("the display name before <{0}> contains @; put it in double quotes, or leave it out")]
    AddressInName(String),
    #[error("a quotation mark or angle bracket is not closed")]
    Unclosed,
    #[error("a display name is longer than {MAX_NAME} characters")]
    LongName,
    #[error("a message has at most {MAX_RECIPIENTS} recipients")]
    TooMany,
}

impl Mailbox {
    /// Parses a list as a caller wrote it, separated by commas or semicolons.
    ///
    /// The reader is strict: a text that another program could read as different recipients is an error.
    pub(crate) fn parse_list(text: &str) -> Result<Vec<Mailbox>, AddressError> {
        if text.chars().any(char::is_control) {
            return Err(AddressError::Control);
        }
        let mut mailboxes: Vec<Mailbox> = Vec::new();
        let mut rest = text;
        loop {
            rest = rest.trim_start_matches([' ', ',', ';']);
            if rest.is_empty() {
                return Ok(mailboxes);
            }
            let (mailbox, after) = parse_one(rest)?;
            if !mailboxes.iter().any(|known| known.is_same(&mailbox)) {
                mailboxes.push(mailbox);
            }
            if mailboxes.len() > MAX_RECIPIENTS {
                return Err(AddressError::TooMany);
            }
            rest = after;
        }
    }

    /// Whether both mean the same mailbox, whatever their names are.
    pub(crate) fn is_same(&self, other: &Mailbox) -> bool {
        self.address.eq_ignore_ascii_case(&other.address)
    }

    /// The mailbox as a reader sees it: `Ann <ann@example.org>`.
    pub(crate) fn shown(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} <{}>", self.address),
            None => self.address.clone(),
        }
    }
}

/// Parses the mailbox at the start of `text`. Returns it with the rest, which is empty or starts with a separator.
fn parse_one(text: &str) -> Result<(Mailbox, &str), AddressError> {
    let not_an_address = || AddressError::NotAnAddress(text.chars().take(100).collect());
    let (mut phrase, mut quoted) = (String::new(), false);
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                quoted = true;
                loop {
                    match chars.next().ok_or(AddressError::Unclosed)?.1 {
                        '"' => break,
                        '\\' => phrase.push(chars.next().ok_or(AddressError::Unclosed)?.1),
                        c => phrase.push(c),
                    }
                }
            }
            '<' => {
                let inside = &text[at + 1..];
                let end = inside.find('>').ok_or(AddressError::Unclosed)?;
                let address = checked(&inside[..end]).ok_or_else(not_an_address)?;
                if !quoted && phrase.contains('@') {
                    return Err(AddressError::AddressInName(address));
                }
                let after = inside[end + 1..].trim_start();
                if !after.is_empty() && !after.starts_with([',', ';']) {
                    return Err(not_an_address());
                }
                let name = phrase.trim();
                if name.chars().count() > MAX_NAME {
                    return Err(AddressError::LongName);
                }
                let name = (!name.is_empty()).then(|| name.to_owned());
                return Ok((Mailbox { name, address }, after));
            }
            ',' | ';' => {
                let address = checked(&phrase).filter(|_| !quoted).ok_or_else(not_an_address)?;
                return Ok((Mailbox { name: None, address }, &text[at..]));
            }
            '>' | '(' | ')' | '[' | ']' | ':' | '\\' => return Err(not_an_address()),
            c => phrase.push(c),
        }
    }
    let address = checked(&phrase).filter(|_| !quoted).ok_or_else(not_an_address)?;
    Ok((Mailbox { name: None, address }, ""))
}

/// Returns the address in ASCII, with its domain in lower case, if it is one.
fn checked(text: &str) -> Option<String> {
    let (local, domain) = text.trim().rsplit_once('@')?;
    let domain = match Host::parse(domain).ok()? {
        Host::Domain(domain) => domain,
        Host::Ipv4(_) | Host::Ipv6(_) => return None,
    };
    Some(format!("{local}@{domain}")).filter(|address| is_address(address))
}

/// Reports whether a text is one plain address, which cannot break out of a header.
pub(crate) fn is_address(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let is_local = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c);
    let is_domain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let has_empty_label = |text: &str| text.split('.').any(str::is_empty);
    (1..=64).contains(&local.len())
        && (1..=253).contains(&domain.len())
        && local.chars().all(is_local)
        && domain.chars().all(is_domain)
        && !has_empty_label(local)
        && !has_empty_label(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Result<Vec<String>, AddressError> {
        Ok(Mailbox::parse_list(text)?.iter().map(Mailbox::shown).collect())
    }

    #[test]
    fn lists_are_parsed_into_names_and_addresses() {
        for (text, expected) in [
            ("", vec![]),
            ("ann@example.org", vec!["ann@example.org"]),
            (
                "Ann <ann@Example.ORG>; \"Doe, Bob\" <bob@b.example>,",
                vec!["Ann <ann@example.org>", "Doe, Bob <bob@b.example>"],
            ),
            ("\"a \\\"b\\\" c\" <a@b.example>", vec!["a \"b\" c <a@b.example>"]),
            ("<a@b.example>,A@b.example", vec!["a@b.example"]),
            ("ann@bücher.example", vec!["ann@xn--bcher-kva.example"]),
            ("\"ceo@corp.example\" <eve@evil.example>", vec!["ceo@corp.example <eve@evil.example>"]),
        ] {
            assert_eq!(
                list(text).as_deref(),
                Ok(&expected.iter().map(ToString::to_string).collect::<Vec<_>>()[..]),
                "{text}"
            );
        }
    }

    #[test]
    fn hostile_lists_are_rejected() {
        for text in [
            "a@b.example\r\nBcc: eve@evil.example",
            "a@b.example\nx",
            "a@b.example\0",
            "ann",
            "a@b.example c@d.example",
            "a@b.example <c@d.example>",
            "<a@b.example",
            "\"a <a@b.example>",
            "<a@b.example>c@d.example",
            "<a@b.example> c@d.example",
            "<a@b.example><c@d.example>",
            "\"a\"@b.example",
            "a@[127.0.0.1]",
            "a@127.0.0.1",
            "ä@b.example",
            "a@b..example",
            ".a@b.example",
            "team: a@b.example;",
            "a (note) <a@b.example>",
            "a@b.example>",
            "@b.example",
            "a@",
        ] {
            assert!(list(text).is_err(), "{text:?}: {:?}", list(text));
        }
        let many: Vec<String> = (0..=MAX_RECIPIENTS).map(|number| format!("a{number}@b.example")).collect();
        assert_eq!(list(&many.join(",")), Err(AddressError::TooMany));
    }
}
