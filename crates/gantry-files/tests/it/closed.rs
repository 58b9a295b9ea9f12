//! A closed directory or file is out of reach in every kind of scope, by every form of its path.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use gantry_files::testing::{Arena, SECRET};
use gantry_files::{FileError, Files, FilesOptions, ListOptions, Scope, UpdateOptions, WriteOptions};

static GO: AtomicBool = AtomicBool::new(false);

struct Fixture {
    dir: tempfile::TempDir,
    files: Files,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("home/data/inner")).unwrap();
    std::fs::create_dir_all(root.join("home/work")).unwrap();
    std::fs::write(root.join("home/data/token"), SECRET).unwrap();
    std::fs::write(root.join("home/data/inner/db"), SECRET).unwrap();
    std::fs::write(root.join("home/single"), SECRET).unwrap();
    std::fs::hard_link(root.join("home/single"), root.join("home/alias")).unwrap();
    symlink("../data", root.join("home/work/link")).unwrap();
    symlink(root.join("home/data"), root.join("home/work/absolute")).unwrap();
    symlink("link/token", root.join("home/work/token")).unwrap();
    std::fs::write(root.join("home/work/free"), "free").unwrap();
    let closed = vec![root.join("home/data"), root.join("home/single"), root.join("home/later/data")];
    let files = Files::new(FilesOptions { closed, pending_dir: None }).unwrap();
    Fixture { dir, files }
}

fn spellings(root: &Path) -> Vec<OsString> {
    let home = root.join("home");
    let dirs = [
        "data",
        "./data",
        "work/../data",
        "work/link",
        "work/absolute",
        "work/link/../data",
        "data/inner/..",
        "work/link/inner/..",
        "data/../data",
    ];
    let mut paths: Vec<OsString> = Vec::new();
    for dir in dirs {
        for name in ["", "/", "/token", "/new", "/inner", "/inner/db", "/inner/new", "/new/deep/file"] {
            paths.push(format!("{dir}{name}").into());
            paths.push(home.join(format!("{dir}{name}")).into_os_string());
        }
    }
    paths.extend(
        ["work/token", "single", "alias", "later/data", "later/data/x", "later/../later/data/y"]
            .map(Into::into),
    );
    paths.push(format!("/proc/self/root{}/data/token", home.display()).into());
    paths.push(format!("/proc/self/root/proc/self/root{}/data/token", home.display()).into());
    paths
}

fn check(scope: &Scope, home: &Path) {
    let before = snapshot(home);
    for path in spellings(home.parent().unwrap()) {
        let opened = scope.open(&path).and_then(|file| file.read_all(100));
        assert!(!opened.is_ok_and(|bytes| Arena::leaks(&bytes)), "open {path:?}");
        assert!(scope.open_dir(&path).is_err(), "open_dir {path:?}");
        assert!(
            scope.resolve(&path).is_err() || path.to_string_lossy().contains("alias") || path == "single",
            "resolve {path:?}"
        );
        assert!(scope.list(&path, ListOptions { recursive: true, limit: 9 }, &GO).is_err(), "list {path:?}");
        let make = WriteOptions { make_parents: true, only_new: false };
        assert!(scope.replace(&path, &[b"x"], make).is_err(), "replace {path:?}");
        let update = UpdateOptions { create: true, make_parents: true, expected_tag: None };
        assert!(scope.update(&path, update).is_err(), "update {path:?}");
        assert!(scope.rename_new("work/free", &path, &GO).is_err(), "rename to {path:?}");
        assert_eq!(snapshot(home), before, "{path:?}");
    }
    for path in ["data", "data/token", "work/link/token", "single", "alias", "data/inner"] {
        assert!(scope.rename_new(path, "work/stolen", &GO).is_err(), "rename {path:?}");
        assert!(scope.remove(path).is_err(), "remove {path:?}");
    }
    assert_eq!(snapshot(home), before);
}

#[test]
fn closed_paths_are_refused_in_a_contained_scope() {
    let fixture = fixture();
    let home = fixture.dir.path().canonicalize().unwrap().join("home");
    check(&fixture.files.contained(&home).unwrap(), &home);
}

#[test]
fn closed_paths_are_refused_in_a_free_scope() {
    let fixture = fixture();
    let home = fixture.dir.path().canonicalize().unwrap().join("home");
    check(&fixture.files.free(&home).unwrap(), &home);
}

#[test]
fn scope_with_a_closed_base_reaches_nothing() {
    let fixture = fixture();
    for path in ["home/data", "home/data/inner", "home/work/link"] {
        let path = fixture.dir.path().join(path);
        assert!(matches!(fixture.files.contained(&path), Err(FileError::Closed { .. })));
        let scope = fixture.files.free(&path).unwrap();
        assert!(matches!(scope.open_dir("."), Err(FileError::Closed { .. })));
        for name in ["token", "inner/db", "db", "../data/token"] {
            let opened = scope.open(name).map(|file| file.path);
            assert!(opened.is_err(), "{name}: {opened:?}");
        }
        assert!(matches!(scope.resolve("token"), Err(FileError::Closed { .. })));
        for name in ["token", "inner", "new"] {
            let written = scope.replace(name, &[b"x"], WriteOptions::default());
            assert!(matches!(written, Err(FileError::Closed { .. })), "{name}: {written:?}");
        }
    }
}

#[test]
fn directory_with_a_closed_one_inside_cannot_be_moved() {
    let fixture = fixture();
    let scope = fixture.files.free(fixture.dir.path()).unwrap();
    let err = scope.rename_new("home", "elsewhere", &GO).unwrap_err();
    assert!(matches!(err, FileError::Closed { .. }), "{err}");
    scope.rename_new("home/work", "work", &GO).unwrap();
}

#[test]
fn recursive_listing_skips_and_reports_closed_directories() {
    let fixture = fixture();
    let scope = fixture.files.contained(fixture.dir.path()).unwrap();
    let listing = scope.list("home", ListOptions { recursive: true, limit: 99 }, &GO).unwrap();
    let names: Vec<_> = listing.entries.iter().map(|entry| entry.path.as_str()).collect();
    let links = ["work/absolute", "work/free", "work/link", "work/token"];
    assert_eq!(names, [&["data", "work"], &links[..]].concat(), "neither what is inside nor the closed file");
    assert_eq!(listing.not_entered, ["data"]);
    assert!(listing.truncated);
}

#[test]
fn path_created_later_is_closed() {
    let fixture = fixture();
    let home = fixture.dir.path().join("home");
    std::fs::create_dir_all(home.join("later/data/sub")).unwrap();
    std::fs::write(home.join("later/data/sub/token"), SECRET).unwrap();
    symlink("later/data/sub", home.join("sneaky")).unwrap();
    let scope = fixture.files.free(&home).unwrap();
    for path in ["later/data/sub/token", "sneaky/token", "later/data/new"] {
        assert!(matches!(scope.open(path), Err(FileError::Closed { .. })), "{path}");
    }
}

#[test]
fn moved_directory_stays_closed() {
    let fixture = fixture();
    let home = fixture.dir.path().join("home");
    std::fs::rename(home.join("data"), home.join("renamed")).unwrap();
    for scope in [fixture.files.free(&home).unwrap(), fixture.files.contained(&home).unwrap()] {
        for path in ["renamed", "renamed/token", "renamed/inner/db", "renamed/new", "data/new"] {
            assert!(matches!(scope.resolve(path), Err(FileError::Closed { .. })), "resolve {path}");
            assert!(scope.open(path).is_err(), "open {path}");
            let make = WriteOptions { make_parents: true, only_new: false };
            assert!(scope.replace(path, &[b"x"], make).is_err(), "replace {path}");
        }
    }
    assert_eq!(std::fs::read_to_string(home.join("renamed/token")).unwrap(), SECRET);
}

fn snapshot(dir: &Path) -> Vec<String> {
    let mut seen = Vec::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let content = if meta.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
            seen.push(format!("{path:?} {:?} {content:?}", meta.file_type()));
            if meta.is_dir() {
                todo.push(path);
            }
        }
    }
    seen.sort();
    seen
}
