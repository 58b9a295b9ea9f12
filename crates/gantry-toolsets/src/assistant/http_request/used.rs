//! The credentials a call has sent, so that no answer and no error can show them.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use gantry_tool::{Masker, Message, SHORTEST_SECRET, ToolError, mask_in_bytes, mask_in_text};

use super::form;

/// What was sent, in every form in which a server is likely to say it back.
#[derive(Clone, Default)]
pub(super) struct Used {
    forms: Vec<String>,
}

impl Used {
    pub(super) fn add(&mut self, value: &str) {
        let json = serde_json::to_string(value).unwrap_or_default();
        let bytes = value.as_bytes();
        let forms = [
            value.to_owned(),
            json.trim_matches('"').to_owned(),
            percent_encoded(value, "%20"),
            percent_encoded(value, "+"),
            form::word(value),
            STANDARD.encode(bytes),
            STANDARD_NO_PAD.encode(bytes),
            URL_SAFE_NO_PAD.encode(bytes),
        ];
        for form in forms.into_iter().filter(|form| !form.is_empty()) {
            if !self.forms.contains(&form) {
                self.forms.push(form);
            }
        }
        // The longest first, so that one which contains another is masked whole.
        self.forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    }

    /// The value of a header that holds a credential, written out by the caller: the credential is what follows the
    /// scheme, or each value of a cookie. What is very short would mask half of every text.
    pub(super) fn add_written_out(&mut self, value: &str) {
        let rest = value.split_once(' ').map_or(value, |(_, rest)| rest);
        let cookies = value.split(';').filter_map(|pair| Some(pair.split_once('=')?.1));
        for part in [rest].into_iter().chain(cookies).map(str::trim) {
            if part.len() >= SHORTEST_SECRET {
                self.add(part);
            }
        }
    }

    pub(super) fn mask_bytes(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        self.forms.iter().for_each(|form| mask_in_bytes(&mut bytes, form));
        bytes
    }

    pub(super) fn mask_text(&self, mut text: String) -> String {
        self.forms.iter().for_each(|form| mask_in_text(&mut text, form));
        text
    }

    /// In bytes.
    pub(super) fn longest(&self) -> usize {
        self.forms.first().map_or(0, String::len)
    }

    /// Errors are masked by the gate too, but it knows neither fetched tokens nor other forms.
    pub(super) fn masked_error(&self, err: ToolError) -> ToolError {
        let masked = |message: Message| Message { text: self.mask_text(message.text), ..message };
        match err {
            ToolError::Input(message) => ToolError::Input(masked(message)),
            ToolError::Failed(message) => ToolError::Failed(masked(message)),
            ToolError::Denied(message) => ToolError::Denied(masked(message)),
            ToolError::Unavailable(message) => ToolError::Unavailable(masked(message)),
            other => other,
        }
    }
}

impl std::fmt::Debug for Used {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Used({})", self.forms.len())
    }
}

/// Also what is known from elsewhere.
pub(super) fn mask_all(used: &Used, masker: &Masker, text: String) -> String {
    let mut text = used.mask_text(text);
    masker.mask_text(&mut text);
    text
}

fn percent_encoded(text: &str, space: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte))
            }
            b' ' => encoded.push_str(space),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_masked_in_text_and_in_bytes() {
        let mut used = Used::default();
        used.add("se\"cret/va lue");
        for said in [
            "se\"cret/va lue",
            "se\\\"cret/va lue",
            "se%22cret%2Fva%20lue",
            "se%22cret%2Fva+lue",
            "c2UiY3JldC92YSBsdWU=",
        ] {
            let text = format!("<{said}> and {said}");
            assert_eq!(used.mask_text(text.clone()), "<[masked]> and [masked]", "{said}");
            assert_eq!(used.mask_bytes(text.into_bytes()), b"<[masked]> and [masked]", "{said}");
        }
        assert_eq!(used.mask_bytes(vec![0xff, 0, 1]), [0xff, 0, 1]);
        assert!(!format!("{used:?}").contains("cret"));
    }
}
