//! Walks from any path, for tests that are not about scopes.

use std::path::{Path, PathBuf};

use gantry_files::{
    Files, FilesOptions, GlobError, GlobResult, Scope, SearchError, SearchResult, WalkOptions,
};

/// Returns a scope in which everything except `closed` may be named.
pub(crate) fn scope(closed: &[PathBuf]) -> Scope {
    let options = FilesOptions { closed: closed.to_vec(), pending_dir: None };
    Files::new(options).unwrap().free(Path::new("/")).unwrap()
}

pub(crate) fn glob(base: &Path, pattern: &str, options: &WalkOptions<'_>) -> Result<GlobResult, GlobError> {
    let scope = scope(&[]);
    scope.glob(&scope.open_dir(base).unwrap(), pattern, options)
}

pub(crate) fn search(
    base: &Path,
    pattern: &str,
    include: Option<&str>,
    options: &WalkOptions<'_>,
) -> Result<SearchResult, SearchError> {
    let scope = scope(&[]);
    scope.search(&scope.open_base(base).unwrap(), pattern, include, options)
}
