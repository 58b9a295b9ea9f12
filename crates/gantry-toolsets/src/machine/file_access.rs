//! What a call may reach of the file system. Workers get it as data and open the same scopes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_files::{Files, PathTest, Scope};
use gantry_tool::ToolError;
use serde::{Deserialize, Serialize};

use super::file_error;

/// `FileAccess` is what one call may reach.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FileAccess {
    pub(crate) workspace: PathBuf,
    /// The call stays in the workspace.
    pub(crate) contain: bool,
    /// The call reads and writes inside the workspace only.
    pub(crate) writes_inside: bool,
    pub(crate) avoid_sensitive: bool,
}

/// `FileScopes` opens the scopes of calls.
pub(crate) struct FileScopes {
    files: Files,
    /// Checked by the scopes of calls that must avoid sensitive paths.
    is_sensitive: PathTest,
}

impl FileScopes {
    pub(crate) fn new(files: Files, is_sensitive: PathTest) -> FileScopes {
        FileScopes { files, is_sensitive }
    }

    /// Returns a scope with absolute paths and paths relative to the workspace; with `contain`, the workspace only.
    pub(crate) fn free(&self, access: &FileAccess) -> Result<Scope, ToolError> {
        if access.contain {
            return self.contained(access);
        }
        let scope = self.files.free(&access.workspace).map_err(file_error)?;
        if !access.writes_inside {
            return Ok(self.refusing(access, scope));
        }
        let (workspace, is_sensitive) = (scope.root().to_owned(), Arc::clone(&self.is_sensitive));
        let avoids_sensitive = access.avoid_sensitive;
        Ok(scope.refusing(Arc::new(move |path: &Path| {
            !path.starts_with(&workspace) || (avoids_sensitive && is_sensitive(path))
        })))
    }

    /// Returns a scope of the workspace only.
    pub(crate) fn contained(&self, access: &FileAccess) -> Result<Scope, ToolError> {
        let scope = self.files.contained(&access.workspace).map_err(file_error)?;
        Ok(self.refusing(access, scope))
    }

    /// Makes the scope refuse sensitive paths, because a link may have been swapped after the
    /// policy decision.
    pub(crate) fn refusing(&self, access: &FileAccess, scope: Scope) -> Scope {
        if access.avoid_sensitive { scope.refusing(Arc::clone(&self.is_sensitive)) } else { scope }
    }
}
