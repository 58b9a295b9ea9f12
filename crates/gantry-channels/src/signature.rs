//! Signatures of webhooks: HMAC with SHA-256, compared in constant time.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

fn mac(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    #[expect(clippy::expect_used, reason = "HMAC accepts keys of every length")]
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac
}

/// Signs the parts as one text. Returns lower-case hexadecimal digits.
pub(crate) fn sign(key: &[u8], parts: &[&[u8]]) -> String {
    let bytes = mac(key, parts).finalize().into_bytes();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether `signature`, in hexadecimal digits, belongs to the parts.
pub(crate) fn is_signed(key: &[u8], parts: &[&[u8]], signature: &str) -> bool {
    let digits = signature.as_bytes();
    if key.is_empty() || digits.len() != 64 {
        return false;
    }
    let digit = |byte: u8| (byte as char).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes: Option<Vec<u8>> =
        digits.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect();
    bytes.is_some_and(|bytes| mac(key, parts).verify_slice(&bytes).is_ok())
}

/// Compares a text with a secret in constant time.
pub(crate) fn is_secret(secret: &str, given: &[u8]) -> bool {
    let key = secret.as_bytes();
    is_signed(key, &[given], &sign(key, &[key]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_key_and_text_verify() {
        let signature = sign(b"key", &[b"1700000000.", b"{}"]);
        assert!(is_signed(b"key", &[b"1700000000.{}"], &signature));
        assert!(is_signed(b"key", &[b"1700000000.{}"], &signature.to_uppercase()));
        assert!(!is_signed(b"other", &[b"1700000000.{}"], &signature));
        assert!(!is_signed(b"key", &[b"1700000001.{}"], &signature));
        for bad in ["", "00", "zz", &signature[1..], &"g".repeat(64), &"ä".repeat(32)] {
            assert!(!is_signed(b"key", &[b"1700000000.{}"], bad), "{bad}");
        }
        assert!(!is_signed(b"", &[b"x"], &sign(b"", &[b"x"])), "an empty key signs nothing");
    }

    #[test]
    fn only_the_whole_secret_is_the_secret() {
        assert!(is_secret("hook-secret", b"hook-secret"));
        for bad in ["", "hook-secre", "hook-secret ", "Hook-secret"] {
            assert!(!is_secret("hook-secret", bad.as_bytes()), "{bad}");
        }
        assert!(!is_secret("", b""), "an empty secret is never right");
    }
}
