//! How this set takes the path of one file: absolute, or not at all.

use std::path::Path;

use gantry_tool::{Call, ToolError};

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
