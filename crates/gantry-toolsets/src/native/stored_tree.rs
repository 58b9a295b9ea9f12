//! Everything below a directory of the workspace, as reads see it: of two copies of a skill's file the agent's own.

use gantry_store::{Depth, ObjectError, Objects};

use super::WorkspacePath;

/// The files below a directory, in the order of their paths.
#[derive(Debug)]
pub struct StoredTree {
    pub files: Vec<StoredFile>,
    /// There are more than one listing tells.
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// From the directory on.
    pub path: String,
    pub key: String,
    pub size: u64,
}

impl StoredTree {
    /// Empty where there is no such directory.
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
        // A stable sort: of two copies the agent's own stays before the other.
        files.sort_by(|one, other| one.path.split('/').cmp(other.path.split('/')));
        files.dedup_by(|other, one| other.path == one.path);
        Ok(StoredTree { files, truncated })
    }
}
