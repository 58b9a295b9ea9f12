//! A gateway announces its next key with a signature of its current key, so that nodes which know the current key can
//! accept the next one.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::key_pin::KeyPin;

/// Everything before the key in the SubjectPublicKeyInfo of a P-256 key.
const P256_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

const CONTEXT: &[u8] = b"gantry: next key of this gateway\0";

/// `KeyAnnouncement` names the next key of a gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyAnnouncement {
    /// The SubjectPublicKeyInfo of the current key.
    pub current: Vec<u8>,
    pub next: KeyPin,
    /// The current key's signature of [`KeyAnnouncement::message`].
    pub signature: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AnnouncementError {
    #[error("it is announced by a key that this node does not know")]
    UnknownKey,
    #[error("its signature is not of the current key")]
    Signature,
}

impl KeyAnnouncement {
    /// Reads an announcement as it is sent: the keys and the signature in base64. Returns `None` if it is malformed.
    pub fn parse(current: &str, next: &str, signature: &str) -> Option<KeyAnnouncement> {
        Some(KeyAnnouncement {
            current: STANDARD.decode(current).ok()?,
            next: KeyPin::parse(next)?,
            signature: STANDARD.decode(signature).ok()?,
        })
    }

    /// Returns what the current key signs.
    pub fn message(current: &KeyPin, next: &KeyPin) -> Vec<u8> {
        [CONTEXT, current.bytes(), next.bytes()].concat()
    }

    /// Checks that a known key signed the announcement.
    pub fn verify(&self, known: &[KeyPin]) -> Result<(), AnnouncementError> {
        let current = KeyPin::of_public_key(&self.current);
        if !known.contains(&current) {
            return Err(AnnouncementError::UnknownKey);
        }
        let point = self.current.strip_prefix(&P256_HEAD).ok_or(AnnouncementError::Signature)?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point)
            .verify(&KeyAnnouncement::message(&current, &self.next), &self.signature)
            .map_err(|_| AnnouncementError::Signature)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, PublicKeyData, SigningKey};

    use super::*;

    fn announced(by: &KeyPair, next: KeyPin) -> KeyAnnouncement {
        let current = by.subject_public_key_info();
        let message = KeyAnnouncement::message(&KeyPin::of_public_key(&current), &next);
        KeyAnnouncement { current, next, signature: by.sign(&message).unwrap() }
    }

    #[test]
    fn only_the_known_key_can_announce_the_next_one() {
        let (own, foreign) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let known = [KeyPin::of_public_key(&own.subject_public_key_info())];
        let next = KeyPin::of_public_key(b"next");
        let sound = announced(&own, next);
        assert_eq!(sound.verify(&known), Ok(()));
        assert_eq!(announced(&foreign, next).verify(&known), Err(AnnouncementError::UnknownKey));
        let other_key = KeyAnnouncement { next: KeyPin::of_public_key(b"other"), ..sound.clone() };
        assert_eq!(other_key.verify(&known), Err(AnnouncementError::Signature));
        let forged = KeyAnnouncement { signature: announced(&foreign, next).signature, ..sound.clone() };
        assert_eq!(forged.verify(&known), Err(AnnouncementError::Signature));
        for cut in 0..sound.signature.len() {
            let cut = KeyAnnouncement { signature: sound.signature[..cut].to_vec(), ..sound.clone() };
            assert_eq!(cut.verify(&known), Err(AnnouncementError::Signature));
        }
        assert_eq!(sound.verify(&[]), Err(AnnouncementError::UnknownKey));
    }
}
