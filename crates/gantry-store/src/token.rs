//! Tokens: 256 random bits as text, with a prefix for their kind. Only hashes are stored.

use std::fmt;
use std::io::{self, Read};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const TOKEN_BYTES: usize = 32;
/// Length of a code that is used once within minutes.
const CODE_BYTES: usize = 16;

/// Longer texts cannot be tokens and are not hashed.
const MAX_TOKEN_CHARS: usize = 128;

/// A token in plain text, shown once.
#[derive(Clone, PartialEq, Eq)]
pub struct PlainToken(String);

impl PlainToken {
    pub(crate) fn make(prefix: &str) -> io::Result<PlainToken> {
        PlainToken::random::<TOKEN_BYTES>(prefix)
    }

    /// A code of 128 random bits without a prefix, short enough for a QR code.
    pub fn one_time_code() -> io::Result<PlainToken> {
        PlainToken::random::<CODE_BYTES>("")
    }

    fn random<const N: usize>(prefix: &str) -> io::Result<PlainToken> {
        let mut bytes = [0; N];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(PlainToken(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// Whether a text is a complete token with this prefix.
    pub(crate) fn is_whole(prefix: &str, text: &str) -> bool {
        let bits = text.strip_prefix(prefix).map(|rest| URL_SAFE_NO_PAD.decode(rest));
        bits.is_some_and(|bits| bits.is_ok_and(|bits| bits.len() == TOKEN_BYTES))
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Makes the token of a node, for a machine that joins.
pub fn new_node_token() -> io::Result<PlainToken> {
    PlainToken::make(crate::database::nodes::NODE_TOKEN_PREFIX)
}

/// Makes the random part of a join code.
pub fn new_join_token() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl fmt::Debug for PlainToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PlainToken(…)")
    }
}

/// Hashes a text that may be a token with this prefix. Returns `None` if it cannot be one.
pub(crate) fn hash(prefix: &str, token: &str) -> Option<blake3::Hash> {
    (token.len() <= MAX_TOKEN_CHARS && token.starts_with(prefix)).then(|| blake3::hash(token.as_bytes()))
}

/// Compares a stored hash with this one in constant time.
pub(crate) fn is_same(kept: &[u8], hash: &blake3::Hash) -> bool {
    // `blake3::Hash` compares in constant time.
    blake3::Hash::from_slice(kept).is_ok_and(|kept| kept == *hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_unique_header_safe_and_hidden_in_debug_output() {
        let (one, two) = (PlainToken::make("gtn_").unwrap(), PlainToken::make("gtn_").unwrap());
        assert_ne!(one, two);
        assert_eq!(one.expose().len(), 4 + 43);
        assert!(one.expose().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
        assert!(!format!("{one:?}").contains(&one.expose()[4..]));
    }

    #[test]
    fn only_possible_tokens_are_hashed() {
        assert!(hash("gtn_", "gtc_abc").is_none());
        assert!(hash("gtn_", &format!("gtn_{}", "a".repeat(200))).is_none());
        let hash = hash("gtn_", "gtn_abc").unwrap();
        assert!(is_same(blake3::hash(b"gtn_abc").as_bytes(), &hash));
        assert!(!is_same(blake3::hash(b"gtn_abd").as_bytes(), &hash));
        assert!(!is_same(b"short", &hash));
    }
}
