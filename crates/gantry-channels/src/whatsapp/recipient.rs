//! The ids of people and groups: which field of a request takes them, and which texts can be one.

use serde_json::{Value, json};

use crate::address::{Address, PeerKind};

/// The longest id.
const MAX_ID: usize = 128;

/// Reports whether a text is the id that WhatsApp gives to a person, such as `DE.13491208655302741918`.
pub(super) fn is_user_id(text: &str) -> bool {
    let Some((country, rest)) = text.split_once('.') else { return false };
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    country.len() == 2
        && country.bytes().all(|byte| byte.is_ascii_uppercase())
        && text.len() <= MAX_ID
        && rest.split('.').all(is_part)
}

/// Reports whether a text is a phone number as WhatsApp writes it: digits with the country's code.
pub(super) fn is_phone(text: &str) -> bool {
    (5..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

pub(super) fn is_group_id(text: &str) -> bool {
    let is_character = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=+:@.".contains(&byte);
    (5..=MAX_ID).contains(&text.len()) && text.bytes().all(is_character)
}

/// The fields of a request that name the receiver. A BSUID has a field of its own.
pub(super) fn receiver(address: &Address) -> Option<Value> {
    let chat = address.chat.as_str();
    match address.kind {
        PeerKind::Dm if is_user_id(chat) => {
            Some(json!({ "recipient_type": "individual", "recipient": chat }))
        }
        PeerKind::Dm if is_phone(chat) => Some(json!({ "recipient_type": "individual", "to": chat })),
        PeerKind::Group if is_group_id(chat) => Some(json!({ "recipient_type": "group", "to": chat })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_a_strict_form() {
        for id in ["DE.1a2B3c", "US.13491208655302741918", "US.ENT.11815799212886844830"] {
            assert!(is_user_id(id) && !is_phone(id), "{id}");
        }
        for bad in [
            "",
            "DE.",
            "DE",
            "de.1",
            "D.1",
            "DE.1/..",
            "DE..1",
            "DE.1\r\n",
            "DE.ä",
            &format!("DE.{}", "1".repeat(200)),
        ] {
            assert!(!is_user_id(bad), "{bad}");
        }
        assert!(is_phone("491701234567"));
        for bad in ["", "+49170", "1234", "49 170", "4917012345\n", &"1".repeat(21)] {
            assert!(!is_phone(bad), "{bad}");
        }
    }
}
