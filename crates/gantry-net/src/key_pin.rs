//! `KeyPin` identifies a gateway by its public key, and `KnownKeys` are the keys that a node or a command accepts.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;
use sha2::{Digest, Sha256};

/// The form that curl's `--pinnedpubkey` reads.
const PREFIX: &str = "sha256//";

/// `KeyPin` is the SHA-256 of a certificate's SubjectPublicKeyInfo. It stays the same when a certificate is reissued
/// under the same key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyPin([u8; 32]);

impl KeyPin {
    pub fn from_bytes(bytes: [u8; 32]) -> KeyPin {
        KeyPin(bytes)
    }

    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Hashes a SubjectPublicKeyInfo in DER.
    pub fn of_public_key(spki: &[u8]) -> KeyPin {
        KeyPin(Sha256::digest(spki).into())
    }

    /// Returns `None` if the certificate does not parse.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Option<KeyPin> {
        let parsed = ParsedCertificate::try_from(certificate).ok()?;
        Some(KeyPin::of_public_key(&parsed.subject_public_key_info()))
    }

    /// Parses `sha256//BASE64`.
    pub fn parse(text: &str) -> Option<KeyPin> {
        let bytes = STANDARD.decode(text.trim().strip_prefix(PREFIX)?).ok()?;
        bytes.try_into().ok().map(KeyPin)
    }
}

impl fmt::Display for KeyPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", STANDARD.encode(self.0))
    }
}

impl fmt::Debug for KeyPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `KnownKeys` is a shared list of accepted keys. It changes when a gateway announces its next key. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct KnownKeys(Arc<Mutex<Vec<KeyPin>>>);

impl KnownKeys {
    pub fn new(keys: impl IntoIterator<Item = KeyPin>) -> KnownKeys {
        KnownKeys(Arc::new(Mutex::new(keys.into_iter().collect())))
    }

    pub fn contains(&self, key: &KeyPin) -> bool {
        self.list().contains(key)
    }

    pub fn list(&self) -> Vec<KeyPin> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set(&self, keys: Vec<KeyPin>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = keys;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pin_is_written_as_curl_reads_it() {
        let pin = KeyPin::of_public_key(b"key");
        let text = pin.to_string();
        assert!(text.starts_with("sha256//") && text.len() == 8 + 44, "{text}");
        assert_eq!(KeyPin::parse(&format!(" {text}\n")), Some(pin));
        for bad in ["", "sha256//", "sha256//AAAA", "md5//AAAA", &text[1..], &text[..40]] {
            assert_eq!(KeyPin::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn certificates_of_one_key_have_one_pin() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = |name: &str| {
            let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.self_signed(&key).unwrap().der().clone()
        };
        let (one, other) = (certificate("a.example"), certificate("b.example"));
        assert_ne!(one, other);
        assert_eq!(KeyPin::of_certificate(&one), KeyPin::of_certificate(&other));
        let foreign = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
        assert_ne!(KeyPin::of_certificate(&one), KeyPin::of_certificate(foreign.cert.der()));
        assert_eq!(KeyPin::of_certificate(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
