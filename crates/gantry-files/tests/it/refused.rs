//! A scope's test refuses the real target of a path. Walks leave such paths out and count them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gantry_files::{FileError, ListOptions, Scope, SearchBase, UpdateOptions, WalkOptions, WriteOptions};

use crate::walking::scope;

static GO: AtomicBool = AtomicBool::new(false);

fn write(root: &Path, paths: &[&str]) {
    for path in paths {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "needle\n").unwrap();
    }
}

fn refusing(names: &'static [&'static str]) -> Scope {
    let refuses = move |path: &Path| path.iter().any(|part| names.iter().any(|name| part == *name));
    scope(&[]).refusing(Arc::new(refuses))
}

#[test]
fn walks_skip_and_count_refused_paths() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let base = root.join("base");
    write(&root, &["base/a.txt", "base/secret/b.txt", "base/deep/secret.txt", "outside/secret/c.txt"]);
    std::os::unix::fs::symlink(root.join("outside/secret/c.txt"), base.join("file-link")).unwrap();
    std::os::unix::fs::symlink(root.join("outside/secret"), base.join("folder-link")).unwrap();
    std::os::unix::fs::symlink(root.join("outside"), base.join("outer-link")).unwrap();
    let scope = refusing(&["secret", "secret.txt"]);
    let dir = scope.open_dir(&base).unwrap();
    for threads in [1, 4] {
        let options = WalkOptions { threads, cancelled: &GO };
        let globbed = scope.glob(&dir, "**", &options).unwrap();
        assert_eq!((globbed.matches, globbed.skipped.left_out), (vec![base.join("a.txt")], 5));
        let tree = SearchBase::Directory(scope.open_dir(&base).unwrap());
        let found = scope.search(&tree, "needle", None, &options).unwrap();
        let paths: Vec<_> = found.matches.into_iter().map(|found| found.path).collect();
        assert_eq!((paths, found.skipped.left_out), (vec![base.join("a.txt")], 5));
        let named = scope.glob(&dir, "secret/*", &options).unwrap();
        assert_eq!((named.matches.len(), named.skipped.left_out), (0, 1));
    }
    let options = WalkOptions { threads: 1, cancelled: &GO };
    assert_eq!(crate::walking::glob(&base, "**", &options).unwrap().total, 6);

    let listing = scope.list(&base, ListOptions { recursive: true, limit: 99 }, &GO).unwrap();
    let names: Vec<_> = listing.entries.iter().map(|entry| entry.path.as_str()).collect();
    // The five are the directory, the file in it, the file elsewhere, and two links to refused
    // paths.
    assert_eq!((names, listing.left_out, listing.total), (vec!["a.txt", "deep", "outer-link"], 5, 3));
    assert!(!listing.truncated && listing.not_entered.is_empty());
}

/// Every operation, by the real name and through a link, refuses and changes nothing.
#[test]
fn every_operation_refuses_the_real_path() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    write(&root, &["private/key", "plain"]);
    std::os::unix::fs::symlink("private/key", root.join("innocent")).unwrap();
    std::os::unix::fs::symlink("private", root.join("folder")).unwrap();
    let scope = refusing(&["private"]);
    let refused = |result: Result<(), FileError>, what: &str| {
        assert!(matches!(result, Err(FileError::Sensitive { .. })), "{what}: {result:?}");
    };
    let path = |name: &str| -> PathBuf { root.join(name) };
    let make = WriteOptions { make_parents: true, only_new: false };
    let create = UpdateOptions { create: true, make_parents: true, expected_tag: None };
    for name in ["private/key", "innocent", "folder/key", "private/new", "folder/new/deep"] {
        refused(scope.replace(path(name), &[b"x"], make).map(drop), name);
        refused(scope.update(path(name), create).map(drop), name);
    }
    for name in ["private/key", "innocent", "folder/key"] {
        refused(scope.open(path(name)).map(drop), name);
        refused(scope.open_base(path(name)).map(drop), name);
        assert_eq!(scope.resolve(path(name)).unwrap(), path("private/key"), "a policy can ask");
    }
    for name in ["private", "folder", "folder/"] {
        refused(scope.open_dir(path(name)).map(drop), name);
        refused(scope.list(path(name), ListOptions { recursive: true, limit: 9 }, &GO).map(drop), name);
        refused(scope.make_dirs(path(name).join("new")).map(drop), name);
    }
    for name in ["private/key", "folder/key"] {
        refused(scope.rename_new(path(name), path("stolen"), &GO).map(drop), name);
        refused(scope.rename_new(path("plain"), path(name).with_file_name("new"), &GO).map(drop), name);
        refused(scope.remove(path(name)).map(drop), name);
    }
    let mut left: Vec<_> =
        std::fs::read_dir(path("private")).unwrap().map(|entry| entry.unwrap().path()).collect();
    left.push(path("plain"));
    assert_eq!(left, [path("private/key"), path("plain")]);
    assert_eq!(std::fs::read_to_string(path("private/key")).unwrap(), "needle\n");
}
