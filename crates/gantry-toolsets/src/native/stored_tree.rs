//! Lists all files below a directory of the workspace. An agent's own copy of a skill file hides
//! the shared one.

use gantry_store::{Depth, ObjectError, Objects};

use super::WorkspacePath;

/// The files below a directory, sorted by path.
#[derive(Debug)]
pub struct StoredTree {
    pub files: Vec<StoredFile>,
    /// The store has more files than one listing returns.
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// The path relative to the directory.
    pub path: String,
    pub key: String,
    pub size: u64,
}

impl StoredTree {
    /// Returns an empty tree if there is no such directory.
    pub async fn below(folder: &WorkspacePath, objects: &Objects) -> Result<StoredTree, ObjectError> {
        let mut files = Vec::new();
        let mut truncated = false;
        for (prefix, shown) in folder.trees() {
            let listing = objects.list(&prefix, Depth::All).await?;
            truncated |= listing.truncated;
            files.extend(listing.objects.into_iter().map(|object| {
                let path = format!("{shown}{}", object.key.strip_prefix(&prefix).unwrap_or(&object.key));
                StoredFile { path, key: object.key, size: object.size }
            }));
        }
        // The sort is stable: the agent's own copy stays before the shared one.
        files.sort_by(|one, other| one.path.split('/').cmp(other.path.split('/')));
        files.dedup_by(|other, one| other.path == one.path);
        Ok(StoredTree { files, truncated })
    }
}
