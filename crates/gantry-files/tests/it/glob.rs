//! Glob against a plain walk.

use std::{fs, sync::atomic::AtomicBool};

use gantry_files::{WalkOptions, glob};

#[test]
fn finds_files_below_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("src/inner")).unwrap();
    fs::create_dir_all(dir.path().join(".git")).unwrap();
    for name in ["a.rs", "src/b.rs", "src/inner/c.rs", "src/inner/d.txt", ".git/e.rs"] {
        fs::write(dir.path().join(name), "x").unwrap();
    }
    let cancelled = AtomicBool::new(false);
    let options = WalkOptions { closed: &[], threads: 2, cancelled: &cancelled, skip: None };
    let found = |pattern: &str| {
        let mut paths = glob(dir.path(), pattern, &options).unwrap().matches;
        paths.sort();
        paths
            .iter()
            .map(|path| path.strip_prefix(dir.path()).unwrap().display().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(found("**/*.rs"), ["a.rs", "src/b.rs", "src/inner/c.rs"]);
    assert_eq!(found("*.rs"), ["a.rs"]);
    assert_eq!(found("src/**/*.{rs,txt}"), ["src/b.rs", "src/inner/c.rs", "src/inner/d.txt"]);
    assert_eq!(found(&format!("{}/src/*.rs", dir.path().display())), ["src/b.rs"]);
}
