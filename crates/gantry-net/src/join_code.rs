//! `JoinCode` is what `gantry nodes add` prints and `gantry join` reads: where the gateway is, how to recognise it, and
//! a token that works once.
//!
//! The code is base64 of a compact binary form with a checksum, so that it fits on a line and in a QR code, and a
//! mistyped code is recognised.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::gateway_url::GatewayUrl;
use crate::key_pin::KeyPin;

const PREFIX: &str = "gtj_";
const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 4;
pub const JOIN_TOKEN_BYTES: usize = 16;

/// Addresses beyond this number are left out of a code.
pub const MAX_JOIN_ADDRESSES: usize = 8;

/// Longer texts cannot be codes.
const MAX_CODE_CHARS: usize = 4096;

#[derive(Clone, PartialEq, Eq)]
pub struct JoinCode {
    /// The id of the node that may join with this code.
    pub id: String,
    pub token: [u8; JOIN_TOKEN_BYTES],
    pub key: Option<KeyPin>,
    /// Where the gateway may be reached, best first.
    pub addresses: Vec<JoinAddress>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinAddress {
    pub url: GatewayUrl,
    pub proof: Proof,
}

/// How the gateway at an address proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Not at all: the connection is not encrypted.
    Nothing,
    /// By the gateway's own key.
    Key,
    /// By a certificate of a trusted authority: a reverse proxy.
    Authority,
    /// By either: the operator's own certificate, or a public name that may lead to a proxy.
    KeyOrAuthority,
}

impl Proof {
    const ALL: [(Proof, u8, &'static str); 4] = [
        (Proof::Nothing, 0, "nothing"),
        (Proof::Key, 1, "key"),
        (Proof::Authority, 2, "authority"),
        (Proof::KeyOrAuthority, 3, "keyOrAuthority"),
    ];

    fn byte(self) -> u8 {
        Proof::ALL.iter().find(|(proof, ..)| *proof == self).map_or(0, |(_, byte, _)| *byte)
    }

    fn from_byte(byte: u8) -> Option<Proof> {
        Proof::ALL.iter().find(|(_, known, _)| *known == byte).map(|(proof, ..)| *proof)
    }

    /// Returns the name under which a node stores it.
    pub fn name(self) -> &'static str {
        Proof::ALL.iter().find(|(proof, ..)| *proof == self).map_or("nothing", |(.., name)| name)
    }

    pub fn from_name(name: &str) -> Option<Proof> {
        Proof::ALL.iter().find(|(.., known)| *known == name).map(|(proof, ..)| *proof)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinCodeError {
    #[error("this is not a join code: a code begins with {PREFIX}")]
    NotACode,
    #[error("the join code is damaged; copy it again, whole")]
    Damaged,
    #[error("the join code is of a newer Gantry; install that version here first")]
    Newer,
}

impl JoinCode {
    pub fn parse(text: &str) -> Result<JoinCode, JoinCodeError> {
        let text = text.trim();
        let body = text.strip_prefix(PREFIX).ok_or(JoinCodeError::NotACode)?;
        if text.len() > MAX_CODE_CHARS {
            return Err(JoinCodeError::Damaged);
        }
        let bytes = URL_SAFE_NO_PAD.decode(body).map_err(|_| JoinCodeError::Damaged)?;
        let split = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or(JoinCodeError::Damaged)?;
        let (content, sum) = bytes.split_at(split);
        if sum != checksum(content) {
            return Err(JoinCodeError::Damaged);
        }
        match content.split_first() {
            Some((&VERSION, rest)) => Reader(rest).code().ok_or(JoinCodeError::Damaged),
            Some(_) => Err(JoinCodeError::Newer),
            None => Err(JoinCodeError::Damaged),
        }
    }

    /// Returns the token as text, for messages to the gateway.
    pub fn token_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.token)
    }
}

impl fmt::Display for JoinCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![VERSION];
        bytes.extend(self.token);
        put_text(&mut bytes, &self.id);
        bytes.push(u8::from(self.key.is_some()));
        bytes.extend(self.key.iter().flat_map(|key| *key.bytes()));
        for JoinAddress { url, proof } in self.addresses.iter().take(MAX_JOIN_ADDRESSES) {
            bytes.push(proof.byte());
            put_text(&mut bytes, &url.authority());
        }
        let sum = checksum(&bytes);
        bytes.extend(sum);
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

/// The token stays out of logs.
impl fmt::Debug for JoinCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinCode").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Texts are at most 255 bytes: an id has 32, and a host name 253 at most; a longer text is cut, and then rejected by
/// whoever reads it.
fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let text = text.as_bytes();
    let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
    bytes.push(length);
    bytes.extend(text.iter().take(usize::from(length)));
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut sum = [0; CHECKSUM_BYTES];
    let hash = blake3::hash(bytes);
    sum.iter_mut().zip(hash.as_bytes()).for_each(|(to, from)| *to = *from);
    sum
}

/// Reads the binary form from front to back. Every method returns `None` at the end.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn code(mut self) -> Option<JoinCode> {
        let token = self.bytes()?;
        let id = self.text()?;
        let key = match self.byte()? {
            0 => None,
            1 => Some(KeyPin::from_bytes(self.bytes()?)),
            _ => return None,
        };
        let mut addresses = Vec::new();
        while !self.0.is_empty() {
            let proof = Proof::from_byte(self.byte()?)?;
            let scheme = if proof == Proof::Nothing { "http" } else { "https" };
            let url = GatewayUrl::parse(&format!("{scheme}://{}", self.text()?)).ok()?;
            addresses.push(JoinAddress { url, proof });
        }
        let is_complete = !addresses.is_empty() && addresses.len() <= MAX_JOIN_ADDRESSES;
        let needs_key = |address: &JoinAddress| matches!(address.proof, Proof::Key | Proof::KeyOrAuthority);
        let is_sound = key.is_some() || !addresses.iter().any(needs_key);
        (is_complete && is_sound).then_some(JoinCode { id, token, key, addresses })
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::from(self.byte()?);
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        String::from_utf8(taken.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code() -> JoinCode {
        let address = |url: &str, proof| JoinAddress { url: GatewayUrl::parse(url).unwrap(), proof };
        JoinCode {
            id: "laptop".into(),
            token: [7; JOIN_TOKEN_BYTES],
            key: Some(KeyPin::of_public_key(b"key")),
            addresses: vec![
                address("https://192.168.1.5:7770", Proof::Key),
                address("https://[fd00::1]:7770", Proof::Key),
                address("https://gantry.example.com", Proof::KeyOrAuthority),
                address("http://127.0.0.1:7770", Proof::Nothing),
            ],
        }
    }

    #[test]
    fn code_survives_a_round_trip_and_fits_on_a_few_lines() {
        let text = code().to_string();
        assert_eq!(JoinCode::parse(&format!("  {text}\n")), Ok(code()));
        assert!(text.len() < 230, "{} characters", text.len());
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{text}");
        assert!(!format!("{:?}", code()).contains('7'));
    }

    #[test]
    fn every_changed_or_missing_character_is_noticed() {
        let text = code().to_string();
        for at in PREFIX.len()..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(matches!(JoinCode::parse(&changed), Err(JoinCodeError::Damaged)), "{at}");
            assert!(JoinCode::parse(&text[..at]).is_err(), "{at}");
        }
    }

    #[test]
    fn other_texts_are_rejected_with_a_reason() {
        let sealed = |content: &[u8]| {
            let bytes = [content, &checksum(content)].concat();
            format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
        };
        assert_eq!(JoinCode::parse(""), Err(JoinCodeError::NotACode));
        assert_eq!(JoinCode::parse("gtn_abc"), Err(JoinCodeError::NotACode));
        assert_eq!(JoinCode::parse("gtj_"), Err(JoinCodeError::Damaged));
        assert_eq!(JoinCode::parse(&sealed(&[2, 1, 1])), Err(JoinCodeError::Newer));
        assert_eq!(JoinCode::parse(&sealed(&[VERSION])), Err(JoinCodeError::Damaged));
        let no_address = JoinCode { addresses: Vec::new(), ..code() };
        assert_eq!(JoinCode::parse(&no_address.to_string()), Err(JoinCodeError::Damaged));
        let no_key = JoinCode { key: None, ..code() };
        assert_eq!(JoinCode::parse(&no_key.to_string()), Err(JoinCodeError::Damaged));
        assert_eq!(JoinCode::parse(&format!("gtj_{}", "A".repeat(9000))), Err(JoinCodeError::Damaged));
    }
}
