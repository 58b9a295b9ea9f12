//! Finds what a command created at protected paths that did not exist before, and renames it.
//!
//! A mount cannot cover a path that does not exist. A command with a writable home directory could
//! create a shell start file there, which the user's next shell would run. The keeper therefore
//! compares the paths before and after the command. It renames what is new: a file that somebody
//! else created meanwhile is then reported, not lost.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// `Protected` is what was at the protected paths before the command.
#[derive(Debug, Default)]
pub(crate) struct Protected(Vec<Before>);

#[derive(Debug)]
struct Before {
    path: PathBuf,
    itself: Option<Identity>,
    parent: Option<Identity>,
}

/// The device and inode number of a file.
type Identity = (u64, u64);

fn identity(path: &Path) -> Option<Identity> {
    let found = path.symlink_metadata().ok()?;
    Some((found.dev(), found.ino()))
}

impl Protected {
    pub(crate) fn record<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Protected {
        let before = |path: &PathBuf| Before {
            itself: identity(path),
            parent: path.parent().and_then(identity),
            path: path.clone(),
        };
        Protected(paths.into_iter().map(before).collect())
    }

    /// Renames what appeared at the paths. Returns a line for each of them.
    ///
    /// A path that existed is left alone unless its parent directory was replaced: the command had
    /// it read-only, so the command did not change it.
    pub(crate) fn quarantine_new(&self) -> Vec<String> {
        let is_new = |before: &&Before| {
            let replaced = || before.path.parent().and_then(identity) != before.parent;
            match (before.itself, identity(&before.path)) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(old), Some(new)) => old != new && replaced(),
            }
        };
        self.0.iter().filter(is_new).map(|before| quarantine(&before.path)).collect()
    }
}

fn quarantine(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let id = Uuid::new_v4().simple().to_string();
    let moved = path.with_file_name(format!("{name}.gantry-quarantine-{}", &id[..8]));
    match std::fs::rename(path, &moved) {
        Ok(()) => format!(
            "the command created {}, which agents may not create; it was renamed to {}",
            path.display(),
            moved.display()
        ),
        Err(err) => format!(
            "the command created {}, which agents may not create, and it could not be renamed: {err}",
            path.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_paths_are_renamed() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        std::fs::write(at(".bashrc"), "old").unwrap();
        std::fs::create_dir(at(".config")).unwrap();
        std::fs::write(at(".config/fish"), "old").unwrap();
        let paths = [at(".bashrc"), at(".zshrc"), at(".ssh"), at(".config/fish"), at(".never")];
        let before = Protected::record(&paths);
        assert!(before.quarantine_new().is_empty());

        std::fs::write(at(".zshrc"), "new").unwrap();
        std::fs::create_dir(at(".ssh")).unwrap();
        // An editor replaces a file by renaming a new one over it.
        std::fs::write(at("edited"), "edited").unwrap();
        std::fs::rename(at("edited"), at(".bashrc")).unwrap();
        // A command cannot replace a read-only file, but it can replace the directory around it.
        std::fs::rename(at(".config"), at("moved")).unwrap();
        std::fs::create_dir(at(".config")).unwrap();
        std::fs::write(at(".config/fish"), "new").unwrap();

        let lines = before.quarantine_new();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines.iter().all(|line| line.contains("was renamed to")), "{lines:?}");
        for (path, exists) in [(".bashrc", true), (".zshrc", false), (".ssh", false), (".config/fish", false)]
        {
            assert_eq!(at(path).exists(), exists, "{path}");
        }
        assert!(before.quarantine_new().is_empty());
    }
}
