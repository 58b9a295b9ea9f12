//! What each operation of a scope does with ordinary input.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use gantry_files::prefix::{Cut, prefix};
use gantry_files::{
    EntryKind, FileError, Files, FilesOptions, ListOptions, Scope, UpdateOptions, WriteOptions, tag,
};

static GO: AtomicBool = AtomicBool::new(false);

fn contained(root: &Path) -> Scope {
    Files::new(FilesOptions::default()).unwrap().contained(root).unwrap()
}

#[test]
fn scope_reads_and_replaces() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let scope = contained(&root);
    let written = scope
        .replace("a/b/c.txt", &[b"one", b" two"], WriteOptions { make_parents: true, ..Default::default() })
        .unwrap();
    assert_eq!(written.path, root.join("a/b/c.txt"));
    assert!(written.created);
    assert_eq!(written.tag, tag::of_bytes(b"one two"));
    let open = scope.open("a/../a/b/./c.txt").unwrap();
    assert_eq!(open.read_all(100).unwrap(), b"one two");
    assert_eq!(open.path, root.join("a/b/c.txt"));
    let again = scope.replace(root.join("a/b/c.txt"), &[b"three"], WriteOptions::default()).unwrap();
    assert!(!again.created);
    assert_eq!(std::fs::read(root.join("a/b/c.txt")).unwrap(), b"three");
    assert_eq!(names(&root.join("a/b")), ["c.txt"]);
}

#[test]
fn missing_parents_are_created_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let scope = contained(dir.path());
    let err = scope.replace("a/b", &[b"x"], WriteOptions::default()).unwrap_err();
    assert!(matches!(err, FileError::NotFound { .. }), "{err}");
    let make = WriteOptions { make_parents: true, ..Default::default() };
    let err = scope.replace("new/", &[b"x"], make).unwrap_err();
    assert!(matches!(err, FileError::NotAFile { .. }), "{err}");
    let err = scope.replace("new/../../evil", &[b"x"], make).unwrap_err();
    assert!(matches!(err, FileError::Outside { .. }), "{err}");
    assert!(names(dir.path()).is_empty());
}

#[test]
fn existing_and_missing_paths_resolve() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("real/sub")).unwrap();
    symlink("real", root.join("link")).unwrap();
    symlink(root.join("real/sub"), root.join("absolute")).unwrap();
    symlink("gone/away", root.join("dangling")).unwrap();
    let scope = contained(&root);
    for (path, real) in [
        ("link/sub", "real/sub"),
        ("absolute", "real/sub"),
        ("link/new/file", "real/new/file"),
        ("link/new/../other", "real/other"),
        ("absolute/../x", "real/x"),
        ("dangling", "gone/away"),
        ("..foo", "..foo"),
        ("link/", "real"),
    ] {
        assert_eq!(scope.resolve(path).unwrap(), root.join(real), "{path}");
    }
    assert_eq!(scope.resolve(".").unwrap(), root);
}

#[test]
fn free_scope_accepts_absolute_paths() {
    let dir = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("x"), "out").unwrap();
    symlink(other.path().join("x"), dir.path().join("to_x")).unwrap();
    let scope = Files::new(FilesOptions::default()).unwrap().free(dir.path()).unwrap();
    assert_eq!(scope.open(other.path().join("x")).unwrap().read_all(9).unwrap(), b"out");
    scope.replace("to_x", &[b"new"], WriteOptions::default()).unwrap();
    assert_eq!(std::fs::read(other.path().join("x")).unwrap(), b"new");
    assert!(dir.path().join("to_x").is_symlink());
    assert!(!scope.open("/proc/self/status").unwrap().read_all(1 << 20).unwrap().is_empty());
    assert_eq!(
        scope.open("/../../proc/self/cwd/Cargo.toml").unwrap().path.file_name().unwrap(),
        "Cargo.toml"
    );
}

/// Relative paths start at the directory that was opened, wherever it is now.
#[test]
fn relative_paths_stay_beneath_the_opened_base() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let [base, moved, closed] = ["base", "moved", "closed"].map(|name| root.join(name));
    for (folder, text) in [(base.join("sub"), "first"), (closed.clone(), "closed")] {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("a.txt"), text).unwrap();
    }
    std::fs::write(base.join("a.txt"), "first").unwrap();
    let options = FilesOptions { closed: vec![closed.clone()], ..FilesOptions::default() };
    let scope = Files::new(options).unwrap().free(&base).unwrap();
    let read = |path: &str| scope.open(path).map(|file| file.read_all(100).unwrap());
    std::fs::rename(&base, &moved).unwrap();
    symlink(&closed, &base).unwrap();
    for path in ["a.txt", "sub/a.txt"] {
        assert_eq!(read(path).unwrap(), b"first", "{path}");
    }
    std::fs::rename(&moved, closed.join("moved")).unwrap();
    for path in ["a.txt", "sub/a.txt", "./a.txt"] {
        assert!(matches!(read(path), Err(FileError::Closed { .. })), "{path}: {:?}", read(path));
    }
}

#[test]
fn stale_tag_is_rejected_with_the_current_one() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "now").unwrap();
    let scope = contained(dir.path());
    let stale = UpdateOptions { expected_tag: Some("0123"), ..Default::default() };
    let err = scope.update("f", stale).unwrap_err();
    let FileError::Stale { current, .. } = err else { panic!("{err}") };
    assert_eq!(current, tag::of_bytes(b"now"));
    let fresh = UpdateOptions { expected_tag: Some(&current), ..Default::default() };
    let written = scope.update("f", fresh).unwrap().write(&[b"next"]).unwrap();
    assert_eq!(written.tag, tag::of_bytes(b"next"));
}

#[test]
fn missing_file_is_created_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let scope = contained(dir.path());
    assert!(matches!(scope.update("d/f", UpdateOptions::default()), Err(FileError::NotFound { .. })));
    let create = UpdateOptions { create: true, make_parents: true, expected_tag: None };
    let update = scope.update("d/f", create).unwrap();
    assert_eq!((update.bytes(), update.exists()), (&b""[..], false));
    assert!(update.write(&[b"new"]).unwrap().created);
    drop(update);
    let tagged = UpdateOptions { expected_tag: Some("x"), ..create };
    assert!(matches!(scope.update("d/other", tagged), Err(FileError::Stale { .. })));
}

const ANYWHERE: Cut<'static> = Cut { look_ahead: 0, place: &|_, end| end };

#[test]
fn prefix_never_splits_a_character() {
    let dir = tempfile::tempdir().unwrap();
    let scope = contained(dir.path());
    std::fs::write(dir.path().join("f"), "aé漢").unwrap();
    for (max_bytes, text) in [(0, ""), (1, "a"), (2, "a"), (3, "aé"), (5, "aé"), (6, "aé漢"), (99, "aé漢")]
    {
        let start = prefix(&scope.open("f").unwrap(), max_bytes, &ANYWHERE).unwrap();
        assert_eq!(
            (start.text.as_str(), start.size, start.truncated),
            (text, 6, max_bytes < 6),
            "{max_bytes}"
        );
    }
    std::fs::write(dir.path().join("f"), b"a\xff").unwrap();
    assert!(matches!(prefix(&scope.open("f").unwrap(), 9, &ANYWHERE), Err(FileError::Binary { .. })));
}

#[test]
fn change_by_another_program_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    std::fs::write(&file, "old").unwrap();
    let scope = contained(dir.path());
    let update = scope.update("f", UpdateOptions::default()).unwrap();
    std::fs::write(&file, "theirs").unwrap();
    assert!(matches!(update.write(&[b"ours"]), Err(FileError::ChangedMeanwhile { .. })));
    assert_eq!(std::fs::read(&file).unwrap(), b"theirs");
    assert_eq!(names(dir.path()), ["f"]);
}

#[test]
fn concurrent_updates_lose_nothing() {
    const THREADS: usize = 8;
    const EACH: usize = 25;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "0").unwrap();
    symlink("f", dir.path().join("alias")).unwrap();
    let scope = contained(dir.path());
    std::thread::scope(|threads| {
        for thread in 0..THREADS {
            let scope = &scope;
            threads.spawn(move || {
                for _ in 0..EACH {
                    let path = if thread % 2 == 0 { "f" } else { "alias" };
                    add_one(scope, path);
                }
            });
        }
    });
    assert_eq!(std::fs::read_to_string(dir.path().join("f")).unwrap(), (THREADS * EACH).to_string());
}

#[test]
fn moves_never_overwrite() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), "a").unwrap();
    std::fs::write(dir.path().join("b"), "b").unwrap();
    let scope = contained(dir.path());
    assert!(matches!(scope.rename_new("a", "b", &GO), Err(FileError::Exists { .. })));
    scope.rename_new("a", "c", &GO).unwrap();
    assert_eq!(names(dir.path()), ["b", "c"]);
    scope.remove("b").unwrap();
    assert!(matches!(scope.remove("."), Err(FileError::NotAFile { .. })));
    assert_eq!(names(dir.path()), ["c"]);
}

#[test]
fn moves_across_devices_keep_mode_and_content() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let other = tempfile::tempdir_in("/tmp").unwrap();
    let id = |path: &Path| std::os::unix::fs::MetadataExt::dev(&path.metadata().unwrap());
    assert_ne!(id(dir.path()), id(other.path()), "this test needs two devices");
    std::fs::write(dir.path().join("a"), "content").unwrap();
    std::fs::set_permissions(dir.path().join("a"), PermissionsExt::from_mode(0o751)).unwrap();
    symlink("nowhere", dir.path().join("l")).unwrap();
    let scope = Files::new(FilesOptions::default()).unwrap().free(dir.path()).unwrap();
    std::fs::write(other.path().join("taken"), "theirs").unwrap();
    assert!(matches!(scope.rename_new("a", other.path().join("taken"), &GO), Err(FileError::Exists { .. })));
    scope.rename_new("a", other.path().join("b"), &GO).unwrap();
    scope.rename_new("l", other.path().join("l"), &GO).unwrap();
    assert!(names(dir.path()).is_empty());
    assert_eq!(names(other.path()), ["b", "l", "taken"]);
    assert_eq!(std::fs::read(other.path().join("taken")).unwrap(), b"theirs");
    assert_eq!(other.path().join("b").metadata().unwrap().permissions().mode() & 0o7777, 0o751);
    assert_eq!(std::fs::read_link(other.path().join("l")).unwrap(), Path::new("nowhere"));
}

#[test]
fn list_is_in_path_order_with_links_resolved() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("a/deep")).unwrap();
    std::fs::write(dir.path().join("a/b"), "12").unwrap();
    std::fs::write(dir.path().join("a.txt"), "123").unwrap();
    symlink("a/b", dir.path().join("inside")).unwrap();
    symlink("..", dir.path().join("a/up")).unwrap();
    symlink("/etc/passwd", dir.path().join("outside")).unwrap();
    symlink("loop", dir.path().join("loop")).unwrap();
    let scope = contained(dir.path());
    let listing = scope.list(".", ListOptions { recursive: true, limit: 100 }, &GO).unwrap();
    let seen: Vec<_> = listing.entries.iter().map(|entry| (entry.path.as_str(), entry.kind)).collect();
    use EntryKind::{Directory, File, Symlink};
    let expected = [
        ("a", Directory),
        ("a.txt", File),
        ("a/b", File),
        ("a/deep", Directory),
        ("a/up", Directory),
        ("inside", File),
        ("loop", Symlink),
        ("outside", Symlink),
    ];
    assert_eq!(seen, expected);
    assert!(!listing.truncated);
    let flat = scope.list(".", ListOptions { recursive: false, limit: 2 }, &GO).unwrap();
    assert_eq!((flat.entries.len(), flat.total, flat.truncated), (2, 5, true));
}

#[test]
fn invalid_utf8_names_are_listed_lossily_and_marked() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"bad\xff");
    std::fs::write(dir.path().join(name), "x").unwrap();
    let scope = contained(dir.path());
    let listing = scope.list(".", ListOptions { recursive: true, limit: 9 }, &GO).unwrap();
    assert_eq!((listing.entries[0].path.as_str(), listing.entries[0].lossy), ("bad\u{fffd}", true));
    assert_eq!(scope.open(name).unwrap().read_all(9).unwrap(), b"x");
}

fn add_one(scope: &Scope, path: &str) {
    let update = scope.update(path, UpdateOptions::default()).unwrap();
    let number: usize = std::str::from_utf8(update.bytes()).unwrap().parse().unwrap();
    update.write(&[(number + 1).to_string()]).unwrap();
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn broken_link_takes_a_name_and_make_dirs_is_idempotent() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::write(root.join("file"), "").unwrap();
    symlink("nowhere", root.join("broken")).unwrap();
    let scope = contained(&root);
    for (path, free) in [("file", false), ("broken", false), (".", false), ("new", true), ("new/deep", true)]
    {
        assert_eq!(scope.is_free(path).unwrap(), free, "{path}");
    }
    assert!(matches!(scope.is_free("../x").unwrap_err(), FileError::Outside { .. }));
    for path in ["a/b".into(), root.join("a/b"), root.join("c/"), "d".into()] {
        assert_eq!(scope.make_dirs(&path).unwrap().path, scope.resolve(&path).unwrap());
    }
    assert!(matches!(scope.make_dirs("file").unwrap_err(), FileError::NotADirectory { .. }));
    assert!(matches!(scope.make_dirs("../x").unwrap_err(), FileError::Outside { .. }));
    assert_eq!(names(&root), ["a", "broken", "c", "d", "file"]);
}
