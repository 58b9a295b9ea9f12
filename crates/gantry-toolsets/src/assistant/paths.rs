//! Checks file paths of this toolset, which must be absolute.

use std::path::Path;

use gantry_tool::ToolError;

/// Returns the path if it is absolute, else an error that shows the absolute path in the workspace.
pub(super) fn absolute<'a>(workspace: &Path, path: &'a str) -> Result<&'a Path, ToolError> {
    let given = Path::new(path);
    if given.is_absolute() {
        return Ok(given);
    }
    let in_workspace = workspace.join(given);
    Err(ToolError::input(format!("path must be absolute: {path:?}"))
        .with_hint(format!("did you mean {}?", in_workspace.display())))
}
