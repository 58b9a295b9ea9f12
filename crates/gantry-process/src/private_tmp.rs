//! A temporary directory of a command's own, gone when the command is.

use std::fs::DirBuilder;
use std::io::Error;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// Removing is tried again when a dying process still puts something into the directory.
const REMOVE_TRIES: usize = 5;

/// A directory that only its owner may enter. Dropping it removes it with everything in it, which may take a while.
#[derive(Debug)]
pub struct PrivateTmp {
    path: PathBuf,
}

impl PrivateTmp {
    pub fn new_in(parent: &Path) -> Result<PrivateTmp, Error> {
        let path = parent.join(format!("gantry-{}", Uuid::new_v4().simple()));
        DirBuilder::new().mode(0o700).create(&path)?;
        // Sandboxes and programs compare real paths.
        match path.canonicalize() {
            Ok(path) => Ok(PrivateTmp { path }),
            Err(err) => {
                let _ = std::fs::remove_dir(&path);
                Err(err)
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateTmp {
    fn drop(&mut self) {
        for _ in 0..REMOVE_TRIES {
            match std::fs::remove_dir_all(&self.path) {
                Err(err) if err.kind() == std::io::ErrorKind::DirectoryNotEmpty => {}
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_private_and_vanishes_with_its_content_but_not_with_what_links_lead_to() {
        let parent = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("kept"), "").unwrap();
        let tmp = PrivateTmp::new_in(parent.path()).unwrap();
        let path = tmp.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        std::fs::write(path.join("a/b/c"), "x").unwrap();
        std::os::unix::fs::symlink(outside.path(), path.join("link")).unwrap();
        assert_ne!(PrivateTmp::new_in(parent.path()).unwrap().path(), path);
        drop(tmp);
        assert!(!path.exists());
        assert!(outside.path().join("kept").exists());
        assert!(PrivateTmp::new_in(&path).is_err());
    }
}
