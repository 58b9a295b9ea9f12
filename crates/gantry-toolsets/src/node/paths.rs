//! Paths of a call on the free file system of the machine, as policy should see them.

use std::path::{Path, PathBuf};

use gantry_tool::Call;

use crate::Machine;

/// Where a path really leads; as written, from the workspace on, when that cannot be told.
pub(super) fn resolved(machine: &Machine, call: &Call, path: &str) -> PathBuf {
    let real = machine.free(call).ok().and_then(|scope| scope.resolve(path).ok());
    real.unwrap_or_else(|| call.workspace.join(path))
}

pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
