//! Encrypts the secrets file, with a key file in the data directory or the operator's master key.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use serde::{Deserialize, Serialize};

use super::SecretsError;
use crate::data_dir::{make_private, open_file};

const NONCE_BYTES: usize = 24;
const KEY_BYTES: usize = 32;
/// The context of the key derivation. The same master key used elsewhere yields another key.
const MASTER_CONTEXT: &str = "gantry 2026 secrets sealed with a master key";
/// A shorter master key could be guessed, because the derivation is fast.
pub const SHORTEST_MASTER_KEY: usize = 32;

/// Which key the file needs. It is stored unencrypted, so that a missing key and a wrong key get different errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum KeyKind {
    File,
    Master,
}

#[derive(Serialize, Deserialize)]
struct SealedBox {
    version: u32,
    key: KeyKind,
    nonce: String,
    sealed: String,
}

const VERSION: u32 = 1;

pub(super) fn seal(kind: KeyKind, key: &[u8; KEY_BYTES], plain: &[u8]) -> Result<Vec<u8>, SecretsError> {
    let nonce: [u8; NONCE_BYTES] = random().map_err(SecretsError::Random)?;
    let payload = Payload { msg: plain, aad: &bound_to(kind) };
    let cipher = XChaCha20Poly1305::new(&Key::from(*key));
    let sealed = cipher.encrypt(&XNonce::from(nonce), payload).map_err(|_| SecretsError::Seal)?;
    let made = SealedBox {
        version: VERSION,
        key: kind,
        nonce: STANDARD.encode(nonce),
        sealed: STANDARD.encode(sealed),
    };
    serde_json::to_vec(&made).map_err(|_| SecretsError::Seal)
}

/// Decrypts the file with the key that `key_of` returns for its kind.
pub(super) fn open(
    path: &Path,
    bytes: &[u8],
    key_of: impl FnOnce(KeyKind) -> Result<[u8; KEY_BYTES], SecretsError>,
) -> Result<Vec<u8>, SecretsError> {
    let damaged = || SecretsError::Damaged { path: path.to_owned() };
    let found: SealedBox = serde_json::from_slice(bytes).map_err(|_| damaged())?;
    if found.version != VERSION {
        return Err(SecretsError::Newer { path: path.to_owned(), version: found.version });
    }
    let nonce =
        STANDARD.decode(&found.nonce).ok().and_then(|nonce| <[u8; NONCE_BYTES]>::try_from(nonce).ok());
    let (nonce, sealed) = nonce.zip(STANDARD.decode(&found.sealed).ok()).ok_or_else(damaged)?;
    let cipher = XChaCha20Poly1305::new(&Key::from(key_of(found.key)?));
    let payload = Payload { msg: &sealed, aad: &bound_to(found.key) };
    cipher.decrypt(&XNonce::from(nonce), payload).map_err(|_| match found.key {
        KeyKind::File => SecretsError::WrongKeyFile { path: path.to_owned() },
        KeyKind::Master => SecretsError::WrongMasterKey { path: path.to_owned() },
    })
}

/// The unencrypted header is authenticated too, so that a file cannot pass as another kind.
fn bound_to(kind: KeyKind) -> Vec<u8> {
    format!("gantry secrets {VERSION} {kind:?}").into_bytes()
}

pub(super) fn master_key(words: &str) -> Result<[u8; KEY_BYTES], SecretsError> {
    if words.len() < SHORTEST_MASTER_KEY {
        return Err(SecretsError::ShortMasterKey);
    }
    Ok(blake3::derive_key(MASTER_CONTEXT, words.as_bytes()))
}

/// Reads the key file, which is created at first use if `make` is set.
pub(super) fn file_key(path: &Path, make: bool) -> Result<[u8; KEY_BYTES], SecretsError> {
    let failed = |cause| SecretsError::KeyFile { path: path.to_owned(), cause };
    match read_key(path) {
        Err(err) if make && err.kind() == io::ErrorKind::NotFound => {}
        read => return read.map_err(failed),
    }
    let made: [u8; KEY_BYTES] = random().map_err(SecretsError::Random)?;
    // If two processes create the key at once, the first one wins.
    make_private(path, format!("{}\n", STANDARD.encode(made)).as_bytes()).map_err(failed)?;
    read_key(path).map_err(failed)
}

fn read_key(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    use std::os::unix::fs::PermissionsExt;

    let file = open_file(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        return Err(io::Error::other("it is open to other users; `chmod 600` closes it"));
    }
    let mut text = String::new();
    file.take(256).read_to_string(&mut text)?;
    let key = STANDARD.decode(text.trim()).ok().and_then(|key| key.try_into().ok());
    key.ok_or_else(|| io::Error::other("it holds no key"))
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
