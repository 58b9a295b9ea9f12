//! A bench whose login shells start in an empty home: tests end shells at any moment, also while they read start files.

use std::ffi::OsString;

use crate::MachineParts;
use crate::testing::Bench;

pub(super) fn bench() -> Bench {
    bench_with(|_| {})
}

pub(super) fn bench_with(change: impl FnOnce(&mut MachineParts)) -> Bench {
    Bench::with(|parts| {
        let home = parts.temp_dir.clone();
        set(parts, "HOME", home);
        change(parts);
    })
}

/// Sets a variable of the machine's environment.
pub(super) fn set(parts: &mut MachineParts, name: &str, value: impl Into<OsString>) {
    parts.variables.retain(|(known, _)| known != name);
    parts.variables.push((name.into(), value.into()));
}
