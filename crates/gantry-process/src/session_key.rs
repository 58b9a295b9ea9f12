//! The key of a detached session: who shows it to the session's keeper is gantry, and nobody else is heard.
//!
//! Being the same user is no proof, because confined commands are that too. A key is made by the keeper, and lies in the
//! session's folder below the data directory, which confined commands cannot read.

use std::fmt;
use std::fs::File;
use std::io::{Error, Read};
use std::os::fd::AsFd;
use std::path::Path;

use crate::record;

pub(crate) const KEY_BYTES: usize = 32;

const KEY: &str = "key";

#[derive(Clone, Copy)]
pub(crate) struct SessionKey([u8; KEY_BYTES]);

impl SessionKey {
    /// A new one, left in the folder for engines to come.
    pub(crate) fn make_in(folder: impl AsFd) -> Result<Self, Error> {
        let mut bytes = [0; KEY_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        record::write(folder, KEY, &bytes)?;
        Ok(Self(bytes))
    }

    /// `None` when there is none in the folder, or no proper one.
    pub(crate) fn of(folder: &Path) -> Result<Option<Self>, Error> {
        let bytes = record::read(folder, KEY)?;
        Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map(Self))
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// In a time that says nothing about how much of it was right.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
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
    fn only_the_whole_key_is_it_and_only_its_owner_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        assert!(SessionKey::of(folder.path()).unwrap().is_none());
        let key = SessionKey::make_in(File::open(folder.path()).unwrap()).unwrap();
        let mode = std::fs::metadata(folder.path().join(KEY)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = SessionKey::of(folder.path()).unwrap().unwrap();
        assert!(key.is(read.bytes()));
        assert!(!key.is(b"") && !key.is(&read.bytes()[..KEY_BYTES - 1]));
        assert!(!key.is(&[read.bytes(), &[0][..]].concat()));
        for place in 0..KEY_BYTES {
            let mut other = *read.bytes();
            other[place] ^= 1;
            assert!(!key.is(&other), "a wrong byte at {place}");
        }
        std::fs::write(folder.path().join(KEY), "short").unwrap();
        assert!(SessionKey::of(folder.path()).unwrap().is_none());
    }
}
