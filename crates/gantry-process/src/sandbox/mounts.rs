//! The mounts of an isolated command: empty read-only mounts over what it must not see, read-only
//! mounts over what it must not change.

use std::ffi::CStr;
use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;
use rustix::mount::{MountFlags, MountPropagationFlags};

use super::namespaces;

/// The file that is mounted over covered files. It has this name only while the mounts are made.
const EMPTY: &str = "empty";

const TMPFS_OPTIONS: &CStr = c"mode=0555,size=4k,nr_inodes=8";

/// Makes the mounts in a mount namespace of the calling thread.
pub(super) fn apply(covered: &[PathBuf], read_only: &[PathBuf], write: &[PathBuf]) -> Result<(), String> {
    namespaces::unshare_mounts()?;
    // Nothing that happens here may reach the other mounts of the machine.
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .map_err(|err| format!("cannot make the mounts private: {err}"))?;
    let (covered, read_only) = (outermost(covered), outermost(read_only));
    for directory in above(&covered, &read_only, &super::existing(write)) {
        pin(&directory)?;
    }
    let (directories, files): (Vec<_>, Vec<_>) = covered.iter().partition(|path| path.is_dir());
    // Read-only mounts are made first: their paths lead through the covered directories as well.
    for path in read_only {
        if !covered.iter().any(|cover| path.starts_with(cover)) {
            bind_read_only(&path, &path)?;
        }
    }
    for directory in &directories {
        mount_empty(directory)?;
    }
    if !files.is_empty() {
        let Some(first) = directories.first() else {
            return Err("at least one covered path must be a directory".to_owned());
        };
        let empty = create_empty(first)?;
        for file in files {
            bind_read_only(&empty, file)?;
        }
        let _ = std::fs::remove_file(&empty);
    }
    directories.into_iter().try_for_each(|directory| remount_read_only(directory))
}

/// Returns the real paths of those that exist, without those that lie below another one.
fn outermost(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut existing = super::existing(paths);
    existing.sort();
    existing.dedup();
    let mut outermost: Vec<PathBuf> = Vec::new();
    for path in existing {
        if !outermost.iter().any(|outer| path.starts_with(outer)) {
            outermost.push(path);
        }
    }
    outermost
}

/// Returns the directories between a writable directory and the protected paths in it, the outer ones
/// first. Renaming one of them would move what it holds away from its mounts.
fn above(covered: &[PathBuf], read_only: &[PathBuf], write: &[PathBuf]) -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> = Vec::new();
    for path in covered.iter().chain(read_only) {
        for root in write.iter().filter(|root| path.starts_with(root)) {
            let inside = path.ancestors().skip(1).take_while(|above| *above != root.as_path());
            directories.extend(inside.map(Path::to_owned));
        }
    }
    directories.sort();
    directories.dedup();
    directories
}

/// Mounts a directory over itself: a mount point cannot be renamed or removed.
fn pin(directory: &Path) -> Result<(), String> {
    rustix::mount::mount_bind_recursive(directory, directory)
        .map_err(|err| format!("cannot mount over {}: {err}", directory.display()))
}

fn mount_empty(directory: &Path) -> Result<(), String> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount(c"tmpfs", directory, c"tmpfs", flags, TMPFS_OPTIONS)
        .map_err(|err| format!("cannot cover {}: {err}", directory.display()))
}

fn create_empty(directory: &Path) -> Result<PathBuf, String> {
    let path = directory.join(EMPTY);
    let failed = |err: std::io::Error| format!("cannot create an empty file for covered files: {err}");
    // The mount is read-only to everybody but its owner, who makes it writable for this moment.
    std::fs::set_permissions(directory, Permissions::from_mode(0o755)).map_err(failed)?;
    OpenOptions::new().write(true).create_new(true).mode(0o444).open(&path).map_err(failed)?;
    std::fs::set_permissions(directory, Permissions::from_mode(0o555)).map_err(failed)?;
    Ok(path)
}

fn bind_read_only(source: &Path, target: &Path) -> Result<(), String> {
    rustix::mount::mount_bind_recursive(source, target)
        .map_err(|err| format!("cannot mount over {}: {err}", target.display()))?;
    remount_read_only(target)
}

/// Adds the read-only flag. The other flags stay: in a user namespace none of them may be removed.
fn remount_read_only(target: &Path) -> Result<(), String> {
    let failed = |err: rustix::io::Errno| format!("cannot make {} read-only: {err}", target.display());
    let present = rustix::fs::statvfs(target).map_err(failed)?.f_flag;
    let kept = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let kept = kept.into_iter().filter(|(present_flag, _)| present.contains(*present_flag));
    let flags = kept.fold(MountFlags::BIND | MountFlags::RDONLY, |flags, (_, flag)| flags | flag);
    rustix::mount::mount_remount(target, flags, c"").map_err(failed)
}
