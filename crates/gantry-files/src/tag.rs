//! Content tags. A caller shows a tag to prove which version of a file it read.

use std::fmt::Write;

use crate::scope::FileMeta;

/// Up to this size a tag is a hash of the content. Above, it is a hash of inode, size and time,
/// marked `w:` for weak.
pub const MAX_HASHED_BYTES: u64 = 64 * 1024 * 1024;

/// Returns the tag of content that is small enough to be hashed.
pub fn of_bytes(bytes: &[u8]) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytes);
    of_hash(&hasher)
}

pub(crate) fn of_parts(parts: &[&[u8]], meta: &FileMeta) -> String {
    hashed(parts).unwrap_or_else(|| weak(meta))
}

/// Returns the tag of parts that are small enough to be hashed.
pub(crate) fn hashed(parts: &[&[u8]]) -> Option<String> {
    let size: u64 = parts.iter().map(|part| part.len() as u64).sum();
    if size > MAX_HASHED_BYTES {
        return None;
    }
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    Some(of_hash(&hasher))
}

pub(crate) fn of_hash(hasher: &blake3::Hasher) -> String {
    let hash = hasher.finalize();
    let mut tag = String::with_capacity(32);
    for byte in &hash.as_bytes()[..16] {
        // Writing to a string cannot fail.
        let _ = write!(tag, "{byte:02x}");
    }
    tag
}

pub(crate) fn weak(meta: &FileMeta) -> String {
    format!("w:{:x}-{:x}-{:x}", meta.id.ino, meta.size, meta.modified_ns)
}
