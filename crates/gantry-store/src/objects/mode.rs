//! The permission bits of an object's original file, stored as an extended attribute or as metadata.
//!
//! They apply when the object becomes a file again. In the store they have no effect.

use std::fs::File;
use std::io;

use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;

const ATTRIBUTE: &str = "user.gantry.mode";
/// The name in a bucket, after `x-amz-meta-`.
pub(super) const METADATA: &str = "gantry-mode";
const BITS: u32 = 0o777;

pub(super) fn to_text(mode: u32) -> String {
    format!("{:o}", mode & BITS)
}

/// Returns `None` for an invalid mode, because others may write to the store too.
pub(super) fn from_text(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= BITS)
}

/// Returns the stored mode of a file, if there is one and the file system supports extended attributes.
pub(super) fn of_file(file: &File) -> Option<u32> {
    let mut value = [0; 8];
    let length = fgetxattr(file, ATTRIBUTE, &mut value[..]).ok()?;
    from_text(std::str::from_utf8(value.get(..length)?).ok()?)
}

/// Stores or removes the mode of a file. A file system without extended attributes ignores it.
pub(super) fn set_on_file(file: &File, mode: Option<u32>) -> io::Result<()> {
    let set = match mode {
        Some(mode) => fsetxattr(file, ATTRIBUTE, to_text(mode).as_bytes(), XattrFlags::empty()),
        None => fremovexattr(file, ATTRIBUTE),
    };
    match set {
        Err(Errno::NOTSUP | Errno::NOSYS | Errno::PERM | Errno::NODATA) => Ok(()),
        set => set.map_err(io::Error::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_permission_bits_are_a_mode() {
        assert_eq!(to_text(0o100_755), "755");
        for mode in [0, 0o600, 0o777] {
            assert_eq!(from_text(&to_text(mode)), Some(mode));
        }
        for text in ["", "rwx", "999", "4755", "-1", "77777777777777"] {
            assert_eq!(from_text(text), None, "{text:?}");
        }
    }

    #[test]
    fn mode_is_stored_until_it_is_removed() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(of_file(&file), None);
        set_on_file(&file, Some(0o640)).unwrap();
        assert_eq!(of_file(&file), Some(0o640));
        set_on_file(&file, None).unwrap();
        set_on_file(&file, None).unwrap();
        assert_eq!(of_file(&file), None);
    }
}
