//! How this set takes paths: absolute where it says so, and resolved before policy looks at them.

use std::path::{Path, PathBuf};

use gantry_files::Scope;
use gantry_tool::{Call, ToolError};

use crate::Machine;

/// The path, if it is absolute; otherwise an error that says which one was probably meant.
pub(super) fn absolute<'a>(call: &Call, path: &'a str) -> Result<&'a Path, ToolError> {
    let given = Path::new(path);
    if given.is_absolute() {
        return Ok(given);
    }
    let meant = call.workspace.join(given);
    Err(ToolError::input(format!("path must be absolute: {path:?}"))
        .with_hint(format!("in the workspace it is {}", meant.display())))
}

/// Where a path really leads. What cannot be resolved is named as it was given: running the call will say why.
pub(super) fn resolved(scope: &Scope, path: &Path) -> PathBuf {
    scope.resolve(path).unwrap_or_else(|_| scope.root().join(path))
}

/// As [`resolved`], for a call that has no scope yet.
pub(super) fn resolved_for(machine: &Machine, call: &Call, path: &Path) -> PathBuf {
    match machine.free(call) {
        Ok(scope) => resolved(&scope, path),
        Err(_) => call.workspace.join(path),
    }
}
