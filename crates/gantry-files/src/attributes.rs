//! Copies owner, extended attributes (access lists among them) and mode to a file's replacement.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Gid, Mode, Stat, Uid, XattrFlags};
use rustix::io::Errno;

use crate::error::FileError;

/// The kernel's limits for a list of names and for one value.
const MAX_XATTR_BYTES: usize = 64 * 1024;
const ACCESS_LIST: &CStr = c"system.posix_acl_access";

/// Gives `new` the attributes of the file it is about to replace.
pub(crate) fn keep(old: &OwnedFd, old_stat: &Stat, new: &File, path: &Path) -> Result<(), FileError> {
    let fail = |err| FileError::io("keep the attributes of", path, err);
    let new_stat = rustix::fs::fstat(new).map_err(fail)?;
    if (old_stat.st_uid, old_stat.st_gid) != (new_stat.st_uid, new_stat.st_gid) {
        let owner = (Uid::from_raw(old_stat.st_uid), Gid::from_raw(old_stat.st_gid));
        rustix::fs::fchown(new, Some(owner.0), Some(owner.1)).map_err(|_| FileError::OwnerNotKept {
            path: path.into(),
            uid: old_stat.st_uid,
            gid: old_stat.st_gid,
        })?;
    }
    keep_xattrs(old, new).map_err(fail)?;
    // As with any write by an ordinary user, new content does not keep setuid and setgid.
    let kept = if rustix::process::geteuid().is_root() { 0o7777 } else { 0o1777 };
    #[expect(clippy::unnecessary_cast, reason = "the field types differ between platforms")]
    let mode = Mode::from_raw_mode((old_stat.st_mode as u32 & kept) as rustix::fs::RawMode);
    rustix::fs::fchmod(new, mode).map_err(fail)
}

fn keep_xattrs(old: &OwnedFd, new: &File) -> Result<(), Errno> {
    let names = names(old)?;
    // The directory's default access list may have given the new file one that the old file never
    // had.
    for name in self::names(new)? {
        if name.as_c_str() == ACCESS_LIST && !names.contains(&name) {
            rustix::fs::fremovexattr(new, name)?;
        }
    }
    let mut value = vec![0u8; if names.is_empty() { 0 } else { MAX_XATTR_BYTES }];
    for name in names {
        // Capabilities belong to the old content. The kernel drops them on any write.
        if name.as_c_str() == c"security.capability" {
            continue;
        }
        let copied = rustix::fs::fgetxattr(old, &name, value.as_mut_slice())
            .and_then(|length| rustix::fs::fsetxattr(new, &name, &value[..length], XattrFlags::empty()));
        match copied {
            Ok(()) | Err(Errno::NODATA) => {}
            // The system assigns the labels of security modules, so a failure here is ignored.
            Err(_) if !must_keep(&name) => {}
            Err(err) => return Err(err),
        }
    }
    Ok(())
}

fn must_keep(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"user.") || name == ACCESS_LIST
}

fn names(file: impl AsFd) -> Result<Vec<CString>, Errno> {
    let mut list = vec![0u8; MAX_XATTR_BYTES];
    match rustix::fs::flistxattr(file, list.as_mut_slice()) {
        Ok(length) => Ok(list[..length]
            .split(|&byte| byte == 0)
            .filter(|name| !name.is_empty())
            .filter_map(|name| CString::new(name).ok())
            .collect()),
        Err(Errno::NOTSUP | Errno::NOSYS) => Ok(Vec::new()),
        Err(err) => Err(err),
    }
}
