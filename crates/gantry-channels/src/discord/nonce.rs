//! The nonce of a message. Discord ignores a message whose nonce it saw some minutes ago, and repeats the nonce in the event
//! about the message. A key of the outbox has 160 bits, which is what 25 characters in base 85 hold: the event names the key.

use std::fmt::Write;

/// The longest nonce that Discord accepts, in characters.
const LENGTH: usize = 25;
/// Characters that need no escape in JSON.
const ALPHABET: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// The nonce of a key. Keys of another form than the outbox uses get one that cannot be read back.
pub(super) fn nonce(key: &str) -> String {
    match bytes(key) {
        Some(bytes) => bytes.chunks_exact(4).flat_map(digits).map(char::from).collect(),
        None => blake3::hash(key.as_bytes()).to_hex()[..LENGTH].to_owned(),
    }
}

/// The key of a nonce, if it can be one.
pub(super) fn key(nonce: &str) -> Option<String> {
    if nonce.len() != LENGTH {
        return None;
    }
    let mut key = String::with_capacity(40);
    for group in nonce.as_bytes().chunks_exact(5) {
        let mut value: u32 = 0;
        for byte in group {
            let digit = ALPHABET.iter().position(|known| known == byte)?;
            value = value.checked_mul(85)?.checked_add(u32::try_from(digit).ok()?)?;
        }
        write!(key, "{value:08x}").ok()?;
    }
    Some(key)
}

/// The 20 bytes of a key in hexadecimal.
fn bytes(key: &str) -> Option<Vec<u8>> {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if key.len() != 40 || !key.bytes().all(is_hex) {
        return None;
    }
    (0..40).step_by(2).map(|at| u8::from_str_radix(&key[at..at + 2], 16).ok()).collect()
}

fn digits(bytes: &[u8]) -> [u8; 5] {
    let mut value = bytes.iter().fold(0_u32, |value, byte| value << 8 | u32::from(*byte));
    let mut digits = [0; 5];
    for digit in digits.iter_mut().rev() {
        *digit = ALPHABET[(value % 85) as usize];
        value /= 85;
    }
    digits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_keys_get_a_nonce_too() {
        assert_eq!(nonce("k0123456789abcdef").len(), LENGTH);
        assert_ne!(nonce("k1"), nonce("k2"));
        for wrong in [
            "",
            "short",
            "~~~~~~~~~~~~~~~~~~~~~~~~~",
            "ééééééééééééé",
            "\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"",
        ] {
            assert_eq!(key(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn nonce_names_its_key(text in "[0-9a-f]{40}") {
            let made = nonce(&text);
            prop_assert_eq!(made.len(), LENGTH);
            prop_assert_eq!(key(&made), Some(text));
        }

        #[test]
        fn any_text_is_read(text in "\\PC{0,30}") {
            key(&text);
        }
    }
}
