//! No pattern makes a glob panic or report what is not there.
#![no_main]

use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;

use gantry_files::{WalkOptions, glob};
use libfuzzer_sys::fuzz_target;

static TREE: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    for path in ["a.rs", "src/b.rs", "src/deep/c.md", ".hidden/d.rs", "we{ird/[x].rs"] {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    folder
});

fuzz_target!(|pattern: &str| {
    let cancelled = AtomicBool::new(false);
    let options = WalkOptions { closed: &[], threads: 1, cancelled: &cancelled, skip: None };
    if let Ok(found) = glob(TREE.path(), pattern, &options) {
        for path in &found.matches {
            assert!(path.starts_with(TREE.path()) && path.is_file(), "{pattern:?} found {path:?}");
        }
    }
});
