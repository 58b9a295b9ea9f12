//! Nothing outside a contained scope is read, written, created, listed, moved or removed, for any
//! path.

use std::ffi::OsStr;
use std::sync::atomic::AtomicBool;

use gantry_files::testing::{Arena, INNER};
use gantry_files::{FileError, Files, FilesOptions, ListOptions, Scope, UpdateOptions, WriteOptions};

static GO: AtomicBool = AtomicBool::new(false);

#[test]
fn hostile_paths_reach_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let arena = Arena::new(dir.path()).unwrap();
    let scope = Files::new(FilesOptions::default()).unwrap().contained(&arena.workspace()).unwrap();
    let before = arena.outside().unwrap();
    let paths = arena.hostile();
    assert!(paths.len() >= 400, "{}", paths.len());
    for path in &paths {
        for (operation, leaked) in try_everything(&scope, path) {
            assert!(!leaked, "{operation} {path:?}");
        }
        assert_eq!(arena.outside().unwrap(), before, "{path:?}");
    }
}

/// Runs each operation, and reports whether it revealed something from outside.
fn try_everything(scope: &Scope, path: &OsStr) -> Vec<(&'static str, bool)> {
    let make = WriteOptions { make_parents: true, only_new: false };
    let root = scope.root().to_path_buf();
    let read = scope.open(path).is_ok_and(|file| Arena::leaks(&file.read_up_to(4096).unwrap_or_default()));
    let resolved = scope.resolve(path).is_ok_and(|real| !real.starts_with(&root));
    let dir = scope.open_dir(path).is_ok_and(|dir| !dir.path.starts_with(&root));
    let options = ListOptions { recursive: true, limit: 1000 };
    let listed = scope.list(path, options, &GO).is_ok_and(|listing| !listing.path.starts_with(&root));
    let create = UpdateOptions { create: true, make_parents: true, expected_tag: None };
    let updated = scope.update(path, create).is_ok_and(|update| {
        let _ = update.write(&[b"overwritten"]);
        Arena::leaks(update.bytes())
    });
    let _ = scope.replace(path, &[b"overwritten"], make);
    let moved = scope.rename_new(path, "moved", &GO).is_ok()
        && root.join("moved").is_file()
        && !root.join("moved").is_symlink()
        && Arena::leaks(&std::fs::read(root.join("moved")).unwrap_or_default());
    // A move applies to the link itself, so it is moved back for the next path.
    let _ = scope.rename_new("moved", path, &GO);
    std::fs::write(root.join("bait"), "bait").unwrap();
    let _ = scope.rename_new("bait", path, &GO);
    for leftover in ["moved", "bait"] {
        let _ = std::fs::remove_file(root.join(leftover));
    }
    vec![
        ("open", read),
        ("resolve", resolved),
        ("open_dir", dir),
        ("list", listed),
        ("update", updated),
        ("rename_new", moved),
    ]
}

#[test]
fn removal_stays_inside() {
    let dir = tempfile::tempdir().unwrap();
    let arena = Arena::new(dir.path()).unwrap();
    let scope = Files::new(FilesOptions::default()).unwrap().contained(&arena.workspace()).unwrap();
    let before = arena.outside().unwrap();
    for path in arena.hostile() {
        let _ = scope.remove(&path);
        assert_eq!(arena.outside().unwrap(), before, "{path:?}");
    }
}

#[test]
fn legitimate_paths_work() {
    let dir = tempfile::tempdir().unwrap();
    let arena = Arena::new(dir.path()).unwrap();
    let scope = Files::new(FilesOptions::default()).unwrap().contained(&arena.workspace()).unwrap();
    let real = arena.workspace().join("dir/inner.txt");
    let paths = arena.legitimate();
    assert!(paths.len() >= 50, "{}", paths.len());
    for path in &paths {
        let file = scope.open(path).unwrap_or_else(|err| panic!("open {path:?}: {err}"));
        assert_eq!(file.read_all(100).unwrap(), INNER.as_bytes(), "{path:?}");
        assert_eq!(file.path, real, "{path:?}");
        assert_eq!(scope.resolve(path).unwrap(), real, "{path:?}");
        let written = scope.replace(path, &[INNER.as_bytes()], WriteOptions::default());
        assert_eq!(written.unwrap_or_else(|err| panic!("replace {path:?}: {err}")).path, real);
    }
    assert!(arena.workspace().join("in_absolute_file").is_symlink());
}

#[test]
fn malformed_paths_are_clean_errors() {
    let dir = tempfile::tempdir().unwrap();
    let arena = Arena::new(dir.path()).unwrap();
    let scope = Files::new(FilesOptions::default()).unwrap().contained(&arena.workspace()).unwrap();
    for path in arena.malformed() {
        let err = scope.open(&path).unwrap_err();
        assert!(!err.to_string().is_empty() && err.to_string().lines().count() == 1, "{err}");
    }
    assert!(matches!(scope.open(""), Err(FileError::EmptyPath)));
    assert!(matches!(scope.open("a\0b"), Err(FileError::NulInPath { .. })));
    assert!(matches!(scope.open("../outside/secret"), Err(FileError::Outside { .. })));
    assert!(matches!(scope.open("out_file"), Err(FileError::Outside { .. })));
    let message = scope.open("/etc/passwd").unwrap_err().to_string();
    assert_eq!(message, "path is outside the workspace: /etc/passwd");
}

#[test]
fn special_files_are_refused_without_blocking() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("fifo"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    let scope = Files::new(FilesOptions::default()).unwrap().free(root).unwrap();
    for path in ["fifo", "socket", ".", "/dev/null", "/dev/zero", "/proc/self"] {
        let err = scope.open(path).unwrap_err();
        assert!(matches!(err, FileError::NotAFile { .. }), "{path}: {err}");
        let err = scope.replace(path, &[b"x"], WriteOptions::default()).unwrap_err();
        assert!(
            matches!(err, FileError::NotAFile { .. } | FileError::PermissionDenied { .. }),
            "{path}: {err}"
        );
    }
}

#[test]
fn loops_and_long_chains_end() {
    let dir = tempfile::tempdir().unwrap();
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, dir.path().join(name)).unwrap();
    link("b", "a");
    link("a", "b");
    link("self/x", "self");
    std::fs::write(dir.path().join("l0"), "end").unwrap();
    for step in 1..=45 {
        link(&format!("l{}", step - 1), &format!("l{step}"));
    }
    let scope = Files::new(FilesOptions::default()).unwrap().contained(dir.path()).unwrap();
    for path in ["a", "b", "self", "self/y", "l45"] {
        assert!(matches!(scope.open(path), Err(FileError::TooManyLinks { .. })), "{path}");
    }
    assert_eq!(scope.open("l40").unwrap().read_all(9).unwrap(), b"end");
}
