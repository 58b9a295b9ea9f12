//! The credentials that a call has sent, for masking them in responses and errors.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use gantry_tool::{Masker, Message, SHORTEST_SECRET, ToolError, mask_found};

use super::spelling::{Finder, LONGEST_SPELLING, TextForm};

/// The sent values, also as base64. They are found in any escaping.
#[derive(Clone, Default)]
pub(super) struct SentCredentials {
    values: Vec<Vec<char>>,
}

impl SentCredentials {
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(super) fn add(&mut self, value: &str) {
        let bytes = value.as_bytes();
        let forms = [
            value.to_owned(),
            STANDARD.encode(bytes),
            STANDARD_NO_PAD.encode(bytes),
            URL_SAFE_NO_PAD.encode(bytes),
        ];
        for form in forms.into_iter().filter(|form| !form.is_empty()) {
            let form = form.chars().collect();
            if !self.values.contains(&form) {
                self.values.push(form);
            }
        }
    }

    /// Adds the credential of a header that the caller wrote out: the text after the scheme, or
    /// each value of a cookie. Very short values are skipped, because they would mask parts of
    /// unrelated text.
    pub(super) fn add_written_out(&mut self, value: &str) {
        let rest = value.split_once(' ').map_or(value, |(_, rest)| rest);
        let cookies = value.split(';').filter_map(|pair| Some(pair.split_once('=')?.1));
        for part in [rest].into_iter().chain(cookies).map(str::trim) {
            if part.len() >= SHORTEST_SECRET {
                self.add(part);
            }
        }
    }

    pub(super) fn mask_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        self.masked(bytes, TextForm::Verbatim)
    }

    pub(super) fn mask_text(&self, text: String) -> String {
        as_text(self.masked(text.into_bytes(), TextForm::Verbatim))
    }

    /// Masks the name of a header, or text about hosts and addresses, which Gantry normalizes.
    pub(super) fn mask_name(&self, text: String) -> String {
        as_text(self.masked(text.into_bytes(), TextForm::Normalized))
    }

    fn masked(&self, mut bytes: Vec<u8>, form: TextForm) -> Vec<u8> {
        if !self.values.is_empty() {
            let finder = Finder::new(&self.values, form);
            mask_found(&mut bytes, |bytes, from| finder.find(bytes, from));
        }
        bytes
    }

    /// The most bytes that one of the values can take in any escaping.
    pub(super) fn longest(&self) -> usize {
        LONGEST_SPELLING * self.values.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Masks an error. The gate masks errors too, but it knows neither fetched tokens nor escaped
    /// forms.
    pub(super) fn masked_error(&self, err: ToolError) -> ToolError {
        let masked = |message: Message| Message {
            text: self.mask_name(message.text),
            hint: message.hint.map(|hint| self.mask_name(hint)),
            ..message
        };
        match err {
            ToolError::Input(message) => ToolError::Input(masked(message)),
            ToolError::Failed(message) => ToolError::Failed(masked(message)),
            ToolError::Denied(message) => ToolError::Denied(masked(message)),
            ToolError::Unavailable(message) => ToolError::Unavailable(masked(message)),
            other => other,
        }
    }
}

impl std::fmt::Debug for SentCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SentCredentials({})", self.values.len())
    }
}

/// Masks sent credentials and all other known secrets.
pub(super) fn mask_all(used: &SentCredentials, masker: &Masker, text: String) -> String {
    let mut text = used.mask_text(text);
    masker.mask_text(&mut text);
    text
}

/// Only whole characters were replaced, so the bytes are still UTF-8.
fn as_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|err| String::from_utf8_lossy(err.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_escaping_is_masked_in_text_and_in_bytes() {
        let mut used = SentCredentials::default();
        used.add("se\"cret/va lue");
        for spelling in [
            "se\"cret/va lue",
            "se\\\"cret/va lue",
            "se%22cret%2Fva%20lue",
            "se%22cret%2Fva+lue",
            "c2UiY3JldC92YSBsdWU=",
            "c2UiY3JldC92YSBsdWU%3d",
            "se\\u0022cret\\/va\\u0020lue",
            "se\\\\\\\"cret\\\\/va lue",
            "%73%65%22cret/va%20lu%65",
            "se&quot;cret&#x2F;va&#032;lue",
            "se&amp;quot;cret/va&nbsp;lue",
        ] {
            let text = format!("<{spelling}> and {spelling}");
            assert_eq!(used.mask_text(text.clone()), "<[masked]> and [masked]", "{spelling}");
            assert_eq!(used.mask_bytes(text.into_bytes()), b"<[masked]> and [masked]", "{spelling}");
        }
        assert_eq!(used.mask_bytes(vec![0xff, 0, 1]), [0xff, 0, 1]);
        assert!(!format!("{used:?}").contains("cret"));
    }
}
