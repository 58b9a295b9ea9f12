//! Paths a caller wants left out stay out of walks, whatever link leads to them, and are counted.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use gantry_files::{WalkOptions, glob, search};

#[test]
fn what_a_caller_skips_is_left_out_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let base = root.join("base");
    for path in ["base/a.txt", "base/secret/b.txt", "base/deep/secret.txt", "outside/secret/c.txt"] {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "needle\n").unwrap();
    }
    std::os::unix::fs::symlink(root.join("outside/secret/c.txt"), base.join("file-link")).unwrap();
    std::os::unix::fs::symlink(root.join("outside/secret"), base.join("folder-link")).unwrap();
    std::os::unix::fs::symlink(root.join("outside"), base.join("outer-link")).unwrap();
    let (inside, outside) = (base.join("secret"), root.join("outside/secret"));
    let skip =
        |path: &Path| path.starts_with(&inside) || path.starts_with(&outside) || path.ends_with("secret.txt");
    let cancelled = AtomicBool::new(false);
    for threads in [1, 4] {
        let options = WalkOptions { closed: &[], threads, cancelled: &cancelled, skip: Some(&skip) };
        let globbed = glob(&base, "**", &options).unwrap();
        assert_eq!((globbed.matches, globbed.skipped.left_out), (vec![base.join("a.txt")], 5));
        let found = search(&base, "needle", None, &options).unwrap();
        let paths: Vec<_> = found.matches.into_iter().map(|found| found.path).collect();
        assert_eq!((paths, found.skipped.left_out), (vec![base.join("a.txt")], 5));
        let named = glob(&base, "secret/*", &options).unwrap();
        assert_eq!((named.matches.len(), named.skipped.left_out), (0, 1));
    }
    let options = WalkOptions { closed: &[], threads: 1, cancelled: &cancelled, skip: None };
    assert_eq!(glob(&base, "**", &options).unwrap().total, 6);
}
