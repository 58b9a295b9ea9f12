//! Files that arrive in pieces, files that are sent, and trees that are copied.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use gantry_files::testing::{Arena, as_user};
use gantry_files::{FileError, Files, FilesOptions, ManifestEntry, ManifestKind, Scope, WriteOptions};
use gantry_testkit::{Random, scaled, seed};

const DIR: &str = "GANTRY_TEST_PARTIAL_DIR";
const WHOLE: usize = 8 << 20;

fn scope(dir: &Path) -> Scope {
    std::fs::create_dir_all(dir.join("ws")).unwrap();
    let options = FilesOptions { closed: vec![dir.join("data")], pending_dir: Some(dir.join("pending")) };
    Files::new(options).unwrap().contained(&dir.join("ws")).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn own_read_only_file_is_replaced_but_not_that_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name| dir.path().join(name);
    for name in ["own", "foreign"] {
        std::fs::write(path(name), "old").unwrap();
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(0o444)).unwrap();
    }
    let is_root = rustix::process::geteuid().is_root();
    let scope = Files::new(FilesOptions::default()).unwrap().contained(dir.path()).unwrap();
    as_user(&[dir.path(), &path("own")], || {
        let mut partial = scope.open_partial("own", "t1").unwrap();
        partial.append(b"new").unwrap();
        partial.commit(0o400).unwrap();
        if is_root {
            let foreign = scope.open_partial("foreign", "t2");
            assert!(matches!(foreign, Err(FileError::PermissionDenied { .. })), "{foreign:?}");
        }
        // A write in place needs the permission that the file's mode grants.
        let written = scope.replace("own", &[b"other"], WriteOptions::default());
        assert!(matches!(written, Err(FileError::PermissionDenied { .. })), "{written:?}");
    })
    .unwrap();
    assert_eq!(std::fs::read(path("own")).unwrap(), b"new");
    assert_eq!(std::fs::read(path("foreign")).unwrap(), b"old");
}

#[test]
fn file_appears_only_at_the_commit() {
    let dir = tempfile::tempdir().unwrap();
    let scope = scope(dir.path());
    let target = dir.path().join("ws/new/deep/file");
    let mut partial = scope.open_partial("new/deep/file", "t1").unwrap();
    partial.append(b"hello ").unwrap();
    drop(partial);
    assert!(!target.exists());

    // A second start finds the received bytes, discards those that it does not trust, and
    // continues.
    let mut partial = scope.open_partial("new/deep/file", "t1").unwrap();
    assert_eq!(partial.length(), 6);
    partial.append(b"junk").unwrap();
    partial.truncate(6).unwrap();
    let mut hasher = partial.hash_prefix().unwrap();
    hasher.update(b"world");
    partial.write_at(6, b"world").unwrap();
    assert_eq!(partial.hash_prefix().unwrap().finalize(), hasher.finalize());
    assert_eq!(hasher.finalize(), blake3::hash(b"hello world"));
    assert!(partial.write_at(12, b"!").is_err(), "a hole would look like received zeros");
    assert!(!target.exists());
    assert_eq!(partial.commit(0o4751).unwrap(), target.canonicalize().unwrap());
    assert_eq!(std::fs::read(&target).unwrap(), b"hello world");
    assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o7777, 0o751);
    assert_eq!(names(target.parent().unwrap()), ["file"]);
}

#[test]
fn old_file_stays_until_commit_and_after_discard() {
    let dir = tempfile::tempdir().unwrap();
    let scope = scope(dir.path());
    let target = dir.path().join("ws/file");
    std::fs::write(&target, "old").unwrap();
    let mut partial = scope.open_partial("file", "t1").unwrap();
    partial.append(b"new").unwrap();
    assert_eq!(std::fs::read(&target).unwrap(), b"old");
    partial.discard().unwrap();
    scope.open_partial("file", "t2").unwrap().discard().unwrap();
    assert_eq!(names(&dir.path().join("ws")), ["file"]);
    assert_eq!(std::fs::read(&target).unwrap(), b"old");
    let mut partial = scope.open_partial("file", "t3").unwrap();
    partial.append(b"new").unwrap();
    partial.commit(0o600).unwrap();
    assert_eq!(std::fs::read(&target).unwrap(), b"new");
}

#[test]
fn second_receiver_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let scope = scope(dir.path());
    let first = scope.open_partial("file", "t1").unwrap();
    let second = scope.open_partial("file", "t1").unwrap_err();
    assert!(second.to_string().contains("another transfer"), "{second}");
    let other = scope.open_partial("file", "t2").unwrap();
    drop((first, other));
    scope.open_partial("file", "t1").unwrap();
}

#[test]
fn invalid_destinations_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let scope = scope(dir.path());
    let ws = dir.path().join("ws");
    std::fs::create_dir_all(dir.path().join("data")).unwrap();
    std::fs::create_dir_all(ws.join("folder")).unwrap();
    std::fs::write(ws.join("plain"), "x").unwrap();
    symlink(dir.path().join("data"), ws.join("in_data")).unwrap();
    symlink("/tmp", ws.join("out")).unwrap();
    for path in ["folder", "folder/", "plain/below", "in_data/x", "out/x", "../x", "/etc/x", "", "."] {
        assert!(scope.open_partial(path, "t").is_err(), "{path}");
    }
    for name in ["", "a/b", "..", "a\0", &"a".repeat(65)] {
        assert!(scope.open_partial("fine", name).is_err(), "{name:?}");
    }
    let refusing = Files::new(FilesOptions::default())
        .unwrap()
        .contained(&ws)
        .unwrap()
        .refusing(Arc::new(|path: &Path| path.ends_with("key")));
    assert!(matches!(refusing.open_partial("key", "t"), Err(FileError::Sensitive { .. })));
    assert_eq!(names(&ws), ["folder", "in_data", "out", "plain"]);
    assert_eq!(names(&dir.path().join("data")), Vec::<String>::new());
    // A directory that replaced the file in the meantime is not replaced.
    let partial = scope.open_partial("later", "t").unwrap();
    std::fs::create_dir(ws.join("later")).unwrap();
    assert!(matches!(partial.commit(0o644), Err(FileError::NotAFile { .. })));
}

/// Anybody who may write into the directory can create an entry with the part's name. It receives
/// none of the bytes.
#[test]
fn foreign_entry_with_the_part_name_receives_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let scope = scope(dir.path());
    let (ws, victim) = (dir.path().join("ws"), dir.path().join("victim"));
    std::fs::write(&victim, "victim").unwrap();
    let part = ws.join(".gantry-t.part");
    let traps: [&dyn Fn(); 3] =
        [&|| symlink(&victim, &part).unwrap(), &|| std::fs::hard_link(&victim, &part).unwrap(), &|| {
            assert!(Command::new("mkfifo").arg(&part).status().unwrap().success())
        }];
    for trap in traps {
        trap();
        let mut partial = scope.open_partial("file", "t").unwrap();
        assert_eq!(partial.length(), 0);
        partial.append(b"secret").unwrap();
        partial.commit(0o600).unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"victim");
        assert_eq!(std::fs::read(ws.join("file")).unwrap(), b"secret");
    }
}

#[test]
fn hostile_paths_cannot_receive_or_send_outside() {
    let dir = tempfile::tempdir().unwrap();
    let arena = Arena::new(dir.path()).unwrap();
    let before = arena.outside().unwrap();
    let scope = Files::new(FilesOptions::default()).unwrap().contained(&arena.workspace()).unwrap();
    for path in arena.hostile().into_iter().chain(arena.malformed()) {
        if let Ok(mut partial) = scope.open_partial(&path, "t") {
            partial.append(b"x").unwrap();
            let _ = partial.commit(0o600);
        }
        if let Ok(source) = scope.open_source(&path) {
            let mut block = vec![0; 4096];
            let read = source.read_at(0, &mut block).unwrap();
            assert!(!Arena::leaks(&block[..read]), "{path:?}");
        }
        assert_eq!(arena.outside().unwrap(), before, "{path:?}");
    }
}

/// Receives the same file in a loop until it is killed.
#[test]
fn receiver() {
    let Some(dir) = std::env::var_os(DIR) else {
        let dir = tempfile::tempdir().unwrap();
        receive(&scope(dir.path()), |_| {});
        check_whole(&dir.path().join("ws/file"));
        return;
    };
    let scope = scope(Path::new(&dir));
    println!("\nready");
    loop {
        receive(&scope, |_| {});
    }
}

fn content() -> Vec<u8> {
    let mut bytes = vec![0; WHOLE];
    blake3::Hasher::new().update(b"content").finalize_xof().fill(&mut bytes);
    bytes
}

/// Continues where an earlier receiver stopped, after checking that the received bytes are right.
fn receive(scope: &Scope, mut resumed: impl FnMut(u64)) {
    let content = content();
    let mut partial = scope.open_partial("file", "t").unwrap();
    let length = partial.length() as usize;
    assert_eq!(partial.hash_prefix().unwrap().finalize(), blake3::hash(&content[..length]));
    resumed(partial.length());
    for piece in content[length..].chunks(64 << 10) {
        partial.append(piece).unwrap();
    }
    partial.commit(0o644).unwrap();
}

fn check_whole(file: &Path) {
    assert_eq!(blake3::hash(&std::fs::read(file).unwrap()), blake3::hash(&content()), "torn file");
}

#[test]
fn killed_receivers_lose_no_byte_and_expose_no_part() {
    let seed = seed();
    let mut random = Random::from_seed(seed);
    let dir = tempfile::tempdir().unwrap();
    let here = scope(dir.path());
    let file = dir.path().join("ws/file");
    let mut resumed = 0;
    for _ in 0..scaled(100, 12) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "partial_file::receiver", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        while lines.next().unwrap().unwrap() != "ready" {}
        std::thread::sleep(Duration::from_micros(random.next_u64() % 60_000));
        child.kill().unwrap();
        child.wait().unwrap();
        if file.exists() {
            check_whole(&file);
        }
        receive(&here, |length| resumed += usize::from(length > 0));
        check_whole(&file);
        std::fs::remove_file(&file).unwrap();
    }
    assert!(resumed > 0, "no receiver was killed between its first byte and its last");
}

#[test]
fn source_without_a_size_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let scope = scope(dir.path());
    std::fs::write(dir.path().join("ws/empty"), "").unwrap();
    assert_eq!(scope.open_source("empty").unwrap().meta().size, 0);
    let files = Files::new(FilesOptions::default()).unwrap();
    for (root, name) in [("/proc/sys/kernel/random", "uuid"), ("/proc/self", "environ")] {
        let refused = files.contained(Path::new(root)).unwrap().open_source(name).unwrap_err();
        assert!(refused.to_string().contains("a file that does not report its size"), "{refused}");
    }
}

#[test]
fn changed_source_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let scope = scope(dir.path());
    let path = dir.path().join("ws/file");
    std::fs::write(&path, "0123456789").unwrap();
    let source = scope.open_source("file").unwrap();
    let mut block = [0; 4];
    assert_eq!((source.read_at(8, &mut block).unwrap(), &block[..2]), (2, &b"89"[..]));
    assert_eq!(source.meta().size, 10);
    source.check_unchanged().unwrap();
    // Another name or mode does not change the content, and a replaced file leaves the open one
    // complete.
    std::fs::hard_link(&path, path.with_extension("link")).unwrap();
    std::fs::remove_file(&path).unwrap();
    source.check_unchanged().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    std::fs::write(path.with_extension("link"), "9876543210").unwrap();
    assert!(matches!(source.check_unchanged(), Err(FileError::ChangedMeanwhile { .. })));
}

#[test]
fn manifest_lists_every_entry_or_the_reason_it_is_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("ws/tree");
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    std::fs::create_dir_all(dir.path().join("data")).unwrap();
    std::fs::write(tree.join("a/b/file"), "four").unwrap();
    std::fs::write(tree.join("a.txt"), "").unwrap();
    std::fs::set_permissions(tree.join("a.txt"), PermissionsExt::from_mode(0o751)).unwrap();
    for (link, target) in [
        ("a/b/good", "../../a.txt"),
        ("a/up", ".."),
        ("z-abs", "/etc/passwd"),
        ("z-out", "../x"),
        ("z-turn", "a/up/../../x"),
    ] {
        symlink(target, tree.join(link)).unwrap();
    }
    assert!(Command::new("mkfifo").arg(tree.join("pipe")).status().unwrap().success());
    std::fs::write(tree.join("b-key"), "").unwrap();
    std::fs::write(tree.join(OsStr::from_bytes(b"c-\xff")), "").unwrap();
    let refusing = scope(dir.path()).refusing(Arc::new(|path: &Path| path.ends_with("tree/b-key")));
    let entries: Vec<ManifestEntry> = refusing.manifest("tree").unwrap().map(Result::unwrap).collect();
    let kinds: Vec<(&str, String)> = entries
        .iter()
        .map(|entry| {
            let kind = match &entry.kind {
                ManifestKind::File => format!("file {} {:o}", entry.size, entry.mode),
                ManifestKind::Directory => "dir".to_owned(),
                ManifestKind::Symlink { target } => format!("-> {target}"),
                ManifestKind::Skipped { reason } => format!("skipped: {reason}"),
            };
            (entry.path.as_str(), kind)
        })
        .collect();
    let mode = std::fs::metadata(tree.join("a/b/file")).unwrap().permissions().mode() & 0o777;
    let expected = [
        ("a", "dir".to_owned()),
        ("a/b", "dir".to_owned()),
        ("a/b/file", format!("file 4 {mode:o}")),
        ("a/b/good", "-> ../../a.txt".to_owned()),
        ("a/up", "-> ..".to_owned()),
        ("a.txt", "file 0 751".to_owned()),
        ("b-key", "skipped: it may hold keys or credentials".to_owned()),
        ("c-\u{fffd}", "skipped: its name is not valid UTF-8".to_owned()),
        ("pipe", "skipped: it is a FIFO".to_owned()),
        ("z-abs", "skipped: it is a link that leaves the directory: /etc/passwd".to_owned()),
        ("z-out", "skipped: it is a link that leaves the directory: ../x".to_owned()),
        ("z-turn", "skipped: it is a link that leaves the directory: a/up/../../x".to_owned()),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn closed_and_deep_directories_are_skipped() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("data/inner")).unwrap();
    let files =
        Files::new(FilesOptions { closed: vec![dir.path().join("data")], pending_dir: None }).unwrap();
    let entries: Vec<_> =
        files.free(dir.path()).unwrap().manifest(".").unwrap().map(Result::unwrap).collect();
    assert_eq!(entries.len(), 1);
    assert!(matches!(&entries[0].kind, ManifestKind::Skipped { reason } if reason.contains("Gantry")));
    assert!(matches!(files.free(dir.path()).unwrap().manifest("data/inner"), Err(FileError::Closed { .. })));

    let deep = dir.path().join("deep").join("d/".repeat(200));
    std::fs::create_dir_all(deep).unwrap();
    let entries: Vec<_> =
        files.free(dir.path()).unwrap().manifest("deep").unwrap().map(Result::unwrap).collect();
    assert_eq!(entries.len(), 128);
    assert!(
        matches!(&entries[127].kind, ManifestKind::Skipped { reason } if reason.contains("directories deep"))
    );
}

#[test]
fn received_links_stay_in_the_tree() {
    let dir = tempfile::tempdir().unwrap();
    let scope = scope(dir.path());
    let ws = dir.path().join("ws").canonicalize().unwrap();
    let tree = ws.join("tree");
    for (path, target) in [
        ("l", "/etc"),
        ("l", ".."),
        ("a/l", "../../x"),
        ("../l", "x"),
        ("/l", "x"),
        ("a//l", "x"),
        ("l", "a/../../x"),
        ("l", ""),
    ] {
        assert!(scope.make_link(&tree, path, target).is_err(), "{path} -> {target}");
    }
    scope.make_link(&tree, "a/l", "../x").unwrap();
    scope.make_link(&tree, "a/l", "../x").unwrap();
    assert!(matches!(scope.make_link(&tree, "a/l", "../y"), Err(FileError::Exists { .. })));
    assert_eq!(std::fs::read_link(tree.join("a/l")).unwrap(), Path::new("../x"));
    scope.set_directory_mode("tree/a", 0o2750).unwrap();
    assert_eq!(std::fs::metadata(tree.join("a")).unwrap().permissions().mode() & 0o7777, 0o750);
    assert_eq!(names(&ws), ["tree"]);
}
