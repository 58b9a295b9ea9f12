//! The text of paths in results.

use std::path::Path;

pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
