//! Validates object keys, and derives a content type from a key's extension.

use super::ObjectError;

const MAX_KEY_BYTES: usize = 1024;
/// The limit of file systems.
const MAX_SEGMENT_BYTES: usize = 255;

/// Rejects a key that could be read as another path: `..`, absolute, empty segments, NUL, backslash.
pub fn check_key(key: &str) -> Result<(), ObjectError> {
    let refused = |why: &str| {
        let shown: String = key.chars().take(200).collect();
        Err(ObjectError::BadKey(format!("{shown:?} cannot be used: {why}")))
    };
    if key.is_empty() {
        return refused("it is empty");
    }
    if key.len() > MAX_KEY_BYTES {
        return refused("it is longer than 1024 bytes");
    }
    if key.starts_with('/') {
        return refused("it is absolute");
    }
    if key.contains('\\') {
        return refused("it holds a back-slash");
    }
    if key.chars().any(char::is_control) {
        return refused("it holds a control character");
    }
    for segment in key.split('/') {
        match segment {
            "" => return refused("it has an empty segment"),
            "." | ".." => return refused("it holds . or .. as a segment"),
            _ if segment.len() > MAX_SEGMENT_BYTES => return refused("a segment is longer than 255 bytes"),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the content type for a key's extension; text if it is unknown.
pub fn content_type(key: &str) -> &'static str {
    let name = key.rsplit('/').next().unwrap_or(key);
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    match ending.as_deref() {
        Some("md") => "text/markdown",
        Some("json") => "application/json",
        Some("yaml" | "yml") => "text/yaml",
        Some("html" | "htm") => "text/html",
        Some("csv") => "text/csv",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("pdf") => "application/pdf",
        Some("zip") => "application/zip",
        Some("gz" | "tgz") => "application/gzip",
        Some("tar") => "application/x-tar",
        Some("mp3") => "audio/mpeg",
        Some("mp4") => "video/mp4",
        Some("bin" | "exe" | "so" | "o") => "application/octet-stream",
        _ => "text/plain",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_keys_are_rejected() {
        let segment = "s".repeat(255);
        for good in ["a", "agents/main/SOUL.md", "ünï/ä b", ".hidden/..x/...", "a%2e", &segment] {
            assert!(check_key(good).is_ok(), "{good}");
        }
        let (long, deep) = ("s".repeat(256), "s/".repeat(600) + "s");
        for bad in ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a\0b", "a\nb", &long, &deep] {
            assert!(matches!(check_key(bad), Err(ObjectError::BadKey(_))), "{bad:?}");
        }
    }

    #[test]
    fn extension_decides_the_content_type() {
        for (key, expected) in [
            ("a/SOUL.MD", "text/markdown"),
            ("a.json", "application/json"),
            ("a.yml", "text/yaml"),
            ("a.yaml", "text/yaml"),
            ("notes", "text/plain"),
            ("a.md/notes", "text/plain"),
            ("a.rs", "text/plain"),
        ] {
            assert_eq!(content_type(key), expected, "{key}");
        }
    }
}
