//! The key of a detached session. It proves to the session's keeper that the connection comes from
//! Gantry.
//!
//! The same user is not enough proof, because sandboxed commands run as that user too. The keeper
//! creates the key in the session's folder below the data directory, which sandboxed commands
//! cannot read.

use std::fmt;
use std::fs::File;
use std::io::{Error, Read};
use std::os::fd::AsFd;
use std::path::Path;

use crate::session::record;

pub(crate) const KEY_BYTES: usize = 32;

const KEY: &str = "key";

#[derive(Clone, Copy)]
pub(crate) struct SessionKey([u8; KEY_BYTES]);

impl SessionKey {
    /// Creates a key and writes it into the folder for later engines.
    pub(crate) fn create_in(folder: impl AsFd) -> Result<Self, Error> {
        let mut bytes = [0; KEY_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        record::write(folder, KEY, &bytes)?;
        Ok(Self(bytes))
    }

    /// Reads the key; `None` if it is missing or malformed.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, Error> {
        let bytes = record::read(folder, KEY)?;
        Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map(Self))
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Compares in constant time, so that the time does not reveal how much of the key was right.
    pub(crate) fn matches(&self, shown: &[u8]) -> bool {
        let differing = self.0.iter().zip(shown).fold(0, |all, (own, other)| all | (own ^ other));
        shown.len() == KEY_BYTES && std::hint::black_box(differing) == 0
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_whole_key_matches_and_only_the_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        assert!(SessionKey::read(folder.path()).unwrap().is_none());
        let key = SessionKey::create_in(File::open(folder.path()).unwrap()).unwrap();
        let mode = std::fs::metadata(folder.path().join(KEY)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = SessionKey::read(folder.path()).unwrap().unwrap();
        assert!(key.matches(read.bytes()));
        assert!(!key.matches(b"") && !key.matches(&read.bytes()[..KEY_BYTES - 1]));
        assert!(!key.matches(&[read.bytes(), &[0][..]].concat()));
        for place in 0..KEY_BYTES {
            let mut other = *read.bytes();
            other[place] ^= 1;
            assert!(!key.matches(&other), "wrong byte at {place}");
        }
        std::fs::write(folder.path().join(KEY), "short").unwrap();
        assert!(SessionKey::read(folder.path()).unwrap().is_none());
    }
}
