//! The gateway's long-lived TLS key, the next one while it is announced, and the certificate in use.

use std::io;

use crate::DataDir;
use crate::data_dir::{make_private, read_text, replace_private};

const KEY: &str = "gateway.key";
const NEXT_KEY: &str = "gateway.key.next";
const CERTIFICATE: &str = "gateway.certificate";

impl DataDir {
    /// Returns the key as PEM. `make` makes it at first use.
    pub fn gateway_key(&self, make: impl FnOnce() -> io::Result<String>) -> io::Result<String> {
        self.create()?;
        let path = self.root().join(KEY);
        match read_text(&path) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            read => return read,
        }
        // If two processes start at once, the first one's key is kept.
        make_private(&path, make()?.as_bytes())?;
        read_text(&path)
    }

    /// Returns the key that is announced, and not yet used.
    pub fn next_gateway_key(&self) -> io::Result<Option<String>> {
        match read_text(&self.root().join(NEXT_KEY)) {
            Ok(text) => Ok(Some(text)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err),
        }
    }

    pub fn set_next_gateway_key(&self, pem: &str) -> io::Result<()> {
        replace_private(&self.root().join(NEXT_KEY), pem.as_bytes())
    }

    /// Replaces the key by the next one. The rename is atomic, so that there is one key at every moment.
    pub fn use_next_gateway_key(&self) -> io::Result<()> {
        std::fs::rename(self.root().join(NEXT_KEY), self.root().join(KEY))?;
        std::fs::File::open(self.root())?.sync_all()
    }

    /// Returns the record of the certificate in use, or `None` if there is none that can be read.
    pub fn gateway_certificate(&self) -> Option<String> {
        read_text(&self.root().join(CERTIFICATE)).ok()
    }

    pub fn set_gateway_certificate(&self, record: &str) -> io::Result<()> {
        replace_private(&self.root().join(CERTIFICATE), record.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_made_once_and_replaced_by_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        assert_eq!(data.gateway_key(|| Ok("one".into())).unwrap(), "one");
        assert_eq!(data.gateway_key(|| Ok("two".into())).unwrap(), "one");
        assert_eq!(data.next_gateway_key().unwrap(), None);
        assert!(data.use_next_gateway_key().is_err());
        data.set_next_gateway_key("two").unwrap();
        assert_eq!(data.gateway_key(|| Ok("three".into())).unwrap(), "one");
        data.use_next_gateway_key().unwrap();
        assert_eq!(data.gateway_key(|| Ok("three".into())).unwrap(), "two");
        assert_eq!(data.next_gateway_key().unwrap(), None);
    }

    #[test]
    fn key_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        data.gateway_key(|| Ok("one".into())).unwrap();
        data.set_next_gateway_key("two").unwrap();
        for name in [KEY, NEXT_KEY] {
            let path = data.root().join(name);
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
            assert_eq!(data.restore().unwrap(), [(path, 0o644)]);
        }
    }
}
