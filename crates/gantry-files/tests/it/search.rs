//! Grep against `rg`.

use std::{fs, sync::atomic::AtomicBool};

use gantry_files::{WalkOptions, search};

#[test]
fn finds_lines_in_path_order() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("a")).unwrap();
    fs::write(dir.path().join("a/x.txt"), "one\ntwo hit\r\nthree\n").unwrap();
    fs::write(dir.path().join("a.txt"), "hit at once\n").unwrap();
    fs::write(dir.path().join("bin"), b"hit\0\n").unwrap();
    let cancelled = AtomicBool::new(false);
    let options = WalkOptions { closed: &[], threads: 2, cancelled: &cancelled, skip: None };
    let found = search(dir.path(), "hit", None, &options).unwrap();
    let lines: Vec<_> = found.matches.iter().map(|found| (found.line, found.content.as_str())).collect();
    assert_eq!(lines, [(2, "two hit"), (1, "hit at once")]);
}
