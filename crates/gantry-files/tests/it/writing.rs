//! A replaced file keeps its attributes: mode, owner, extended attributes, access lists, and the
//! link that led to it.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use gantry_files::{FileError, Files, FilesOptions, Scope, WriteOptions};
use rustix::fs::XattrFlags;

fn scope(root: &Path) -> Scope {
    Files::new(FilesOptions::default()).unwrap().contained(root).unwrap()
}

#[test]
fn mode_owner_and_attributes_are_kept() {
    let root = rustix::process::geteuid().is_root();
    let dir = tempfile::tempdir().unwrap();
    let scope = scope(dir.path());
    let mut checked = 0;
    for mode in [0o600, 0o644, 0o755, 0o777, 0o640, 0o4755] {
        for with_xattr in [false, true] {
            for through_link in [false, true] {
                let name = format!("f{checked}");
                let file = dir.path().join(&name);
                std::fs::write(&file, "old").unwrap();
                if root {
                    chown(&file, Some(1234), Some(2345)).unwrap();
                }
                std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
                if with_xattr {
                    rustix::fs::setxattr(&file, "user.note", b"kept", XattrFlags::empty()).unwrap();
                }
                let mut path = name.clone();
                if through_link {
                    path = format!("l{checked}");
                    symlink(&name, dir.path().join(&path)).unwrap();
                }
                let before = file.metadata().unwrap();
                scope.replace(&path, &[b"new"], WriteOptions::default()).unwrap();
                let after = file.metadata().unwrap();
                assert_eq!(std::fs::read(&file).unwrap(), b"new");
                let kept = if root { 0o7777 } else { 0o1777 };
                assert_eq!(after.mode() & 0o7777, before.mode() & kept, "{mode:o}");
                assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
                let mut value = [0u8; 16];
                let xattr = rustix::fs::getxattr(&file, "user.note", &mut value);
                assert_eq!(xattr.ok().map(|length| &value[..length]), with_xattr.then_some(&b"kept"[..]));
                assert_eq!(dir.path().join(&path).is_symlink(), through_link);
                assert_ne!(before.ino(), after.ino(), "written in place");
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 24);
}

#[test]
fn access_lists_are_kept_and_defaults_not_added() {
    let dir = tempfile::tempdir().unwrap();
    // Version 2; user::rw-, user:1234:r--, group::r--, mask::r--, other::---
    let mut list = vec![2, 0, 0, 0];
    for (kind, rights, id) in
        [(1u16, 6u16, u32::MAX), (2, 4, 1234), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)]
    {
        list.extend(kind.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    const ACCESS: &str = "system.posix_acl_access";
    let get = |path: &Path| {
        let mut value = [0u8; 256];
        rustix::fs::getxattr(path, ACCESS, &mut value).ok().map(|length| value[..length].to_vec())
    };
    std::fs::write(dir.path().join("listed"), "old").unwrap();
    std::fs::write(dir.path().join("plain"), "old").unwrap();
    rustix::fs::setxattr(dir.path().join("listed"), ACCESS, &list, XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(dir.path(), "system.posix_acl_default", &list, XattrFlags::empty()).unwrap();
    let scope = scope(dir.path());
    for name in ["listed", "plain"] {
        let before = (get(&dir.path().join(name)), dir.path().join(name).metadata().unwrap().mode());
        scope.replace(name, &[b"new"], WriteOptions::default()).unwrap();
        assert_eq!(
            (get(&dir.path().join(name)), dir.path().join(name).metadata().unwrap().mode()),
            before,
            "{name}"
        );
    }
    assert_eq!(get(&dir.path().join("listed")), Some(list));
}

#[test]
fn new_files_follow_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("std"), "x").unwrap();
    scope(dir.path()).replace("ours", &[b"x"], WriteOptions::default()).unwrap();
    let mode = |name| dir.path().join(name).metadata().unwrap().mode();
    assert_eq!(mode("ours"), mode("std"));
}

#[test]
fn other_hard_links_keep_the_old_content() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), "old").unwrap();
    std::fs::hard_link(dir.path().join("a"), dir.path().join("b")).unwrap();
    scope(dir.path()).replace("a", &[b"new"], WriteOptions::default()).unwrap();
    assert_eq!(std::fs::read(dir.path().join("b")).unwrap(), b"old");
}

#[test]
fn only_new_refuses_existing_files() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), "old").unwrap();
    let only_new = WriteOptions { only_new: true, ..Default::default() };
    let err = scope(dir.path()).replace("a", &[b"new"], only_new).unwrap_err();
    assert!(matches!(err, FileError::Exists { .. }), "{err}");
    assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"old");
}

#[test]
fn read_only_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a");
    std::fs::write(&file, "old").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o444)).unwrap();
    let result = scope(dir.path()).replace("a", &[b"new"], WriteOptions::default());
    // The superuser may write it; other users may not.
    if std::fs::OpenOptions::new().write(true).open(&file).is_ok() {
        result.unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o444);
    } else {
        assert!(matches!(result, Err(FileError::PermissionDenied { .. })));
        assert_eq!(std::fs::read(&file).unwrap(), b"old");
    }
}

#[test]
fn many_parts_are_written_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let parts: Vec<Vec<u8>> = (0..5000u32).map(|number| number.to_string().into_bytes()).collect();
    let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).chain([&b""[..]]).collect();
    scope(dir.path()).replace("a", &slices, WriteOptions::default()).unwrap();
    assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), parts.concat());
}

#[test]
fn update_removes_only_the_file_it_read() {
    let dir = tempfile::tempdir().unwrap();
    let scope = scope(dir.path());
    let file = dir.path().join("f");
    std::fs::write(&file, "one").unwrap();
    let update = scope.update("f", Default::default()).unwrap();
    std::fs::write(&file, "another").unwrap();
    assert!(matches!(update.remove(), Err(FileError::ChangedMeanwhile { .. })));
    assert_eq!(std::fs::read(&file).unwrap(), b"another");
    drop(update);
    let update = scope.update("f", Default::default()).unwrap();
    update.remove().unwrap();
    assert!(!file.exists());
    assert!(update.remove().is_err());
}
