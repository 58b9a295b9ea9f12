//! No pattern makes a glob panic or report what is not there.
#![no_main]

use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;

use gantry_files::{Files, FilesOptions, OpenDir, Scope, WalkOptions};
use libfuzzer_sys::fuzz_target;

static TREE: LazyLock<(tempfile::TempDir, Scope, OpenDir)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    for path in ["a.rs", "src/b.rs", "src/deep/c.md", ".hidden/d.rs", "we{ird/[x].rs"] {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    let files = Files::new(FilesOptions { closed: vec![], pending_dir: None }).unwrap();
    let scope = files.free(folder.path()).unwrap();
    let base = scope.open_dir(".").unwrap();
    (folder, scope, base)
});

fuzz_target!(|pattern: &str| {
    let cancelled = AtomicBool::new(false);
    let options = WalkOptions { threads: 1, cancelled: &cancelled };
    let (_, scope, base) = &*TREE;
    if let Ok(found) = scope.glob(base, pattern, &options) {
        for path in &found.matches {
            assert!(path.starts_with(&base.path) && path.is_file(), "{pattern:?} found {path:?}");
        }
    }
});
