//! The page's files: embedded in the binary, or read from a directory on each request while the page is developed.
//!
//! Files lie below `/ui/{hash of all files}/` and never change there. `index.html` names them with `{hash}`, which is
//! replaced.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use gantry_files::{Files, FilesOptions};

const EMBEDDED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

pub(crate) const INDEX: &str = "index.html";

/// Stands for the hash in `index.html`.
const HASH_MARK: &str = "{hash}";

/// The "hash" of files that are read from a directory.
const DEVELOPED: &str = "dev";

const HASH_CHARS: usize = 16;

/// The longest file that is read from a directory.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Where the page comes from.
pub(crate) enum PageFiles {
    Embedded { hash: String, files: BTreeMap<&'static str, Embedded> },
    Folder(PathBuf),
}

pub(crate) struct Embedded {
    bytes: Cow<'static, [u8]>,
    etag: String,
    /// Compressed at the first request. `None` inside if that does not make it shorter.
    gzip: OnceLock<Option<Bytes>>,
}

/// A file as it is sent.
pub(crate) struct PageFile {
    pub(crate) bytes: Bytes,
    pub(crate) gzip: Option<Bytes>,
    /// Missing for files that may change with each request.
    pub(crate) etag: Option<String>,
}

impl PageFiles {
    pub(crate) fn embedded() -> PageFiles {
        let mut hasher = blake3::Hasher::new();
        for (name, bytes) in EMBEDDED {
            hasher.update(blake3::hash(name.as_bytes()).as_bytes());
            hasher.update(blake3::hash(bytes).as_bytes());
        }
        let hash: String = hasher.finalize().to_hex().chars().take(HASH_CHARS).collect();
        let file = |(name, bytes): &(&'static str, &'static [u8])| {
            let bytes = match *name == INDEX {
                true => Cow::Owned(with_hash(bytes, &hash)),
                false => Cow::Borrowed(*bytes),
            };
            let etag = format!("\"{}\"", &blake3::hash(&bytes).to_hex()[..HASH_CHARS]);
            (*name, Embedded { bytes, etag, gzip: OnceLock::new() })
        };
        let files = EMBEDDED.iter().map(file).collect();
        PageFiles::Embedded { hash, files }
    }

    /// Reads the files from a directory, which may change at any time.
    pub(crate) fn folder(folder: PathBuf) -> PageFiles {
        PageFiles::Folder(folder)
    }

    pub(crate) fn hash(&self) -> &str {
        match self {
            PageFiles::Embedded { hash, .. } => hash,
            PageFiles::Folder(_) => DEVELOPED,
        }
    }

    /// Returns a file by its path below the page's folder.
    pub(crate) fn get(&self, name: &str) -> Option<PageFile> {
        match self {
            PageFiles::Embedded { files, .. } => files.get(name).map(Embedded::file),
            PageFiles::Folder(folder) => read(folder, name).map(|bytes| {
                let bytes = if name == INDEX { with_hash(&bytes, DEVELOPED) } else { bytes };
                PageFile { bytes: bytes.into(), gzip: None, etag: None }
            }),
        }
    }
}

impl Embedded {
    fn file(&self) -> PageFile {
        let gzip = self.gzip.get_or_init(|| gzip(&self.bytes).filter(|short| short.len() < self.bytes.len()));
        let bytes = match &self.bytes {
            Cow::Borrowed(bytes) => Bytes::from_static(bytes),
            Cow::Owned(bytes) => Bytes::copy_from_slice(bytes),
        };
        PageFile { bytes, gzip: gzip.clone(), etag: Some(self.etag.clone()) }
    }
}

/// `None` for a file that is missing, unreadable or outside the folder.
fn read(folder: &Path, name: &str) -> Option<Vec<u8>> {
    let files = Files::new(FilesOptions::default()).ok()?;
    files.contained(folder).ok()?.open(name).ok()?.read_all(MAX_FILE_BYTES).ok()
}

fn with_hash(index: &[u8], hash: &str) -> Vec<u8> {
    String::from_utf8_lossy(index).replace(HASH_MARK, hash).into_bytes()
}

fn gzip(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// The type of a file by the end of its name.
pub(crate) fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json") => "application/json",
        Some("webmanifest") => "application/manifest+json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("txt") => "text/plain; charset=utf-8",
        _ => UNKNOWN_TYPE,
    }
}

const UNKNOWN_TYPE: &str = "application/octet-stream";

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test prepares the directory that is read")]
mod tests {
    use super::*;

    /// All files that load before anything was clicked, gzipped.
    const MAX_START_BYTES: usize = 60 * 1024;
    const MAX_ALL_BYTES: usize = 400 * 1024;

    #[test]
    fn page_stays_within_its_budget() {
        let files = PageFiles::embedded();
        let index = files.get(INDEX).unwrap();
        let index_text = String::from_utf8(index.bytes.to_vec()).unwrap();
        let below = format!("/ui/{}/", files.hash());
        let named = index_text.split(&below).skip(1).map(|rest| rest.split(['"', '\'', '>']).next().unwrap());
        let named: std::collections::BTreeSet<&str> = named.collect();
        assert!(named.len() >= 2, "index.html names its script and its style: {named:?}");
        let start: Vec<(&str, usize)> = std::iter::once(INDEX)
            .chain(named)
            .map(|name| {
                let file = files.get(name).unwrap_or_else(|| panic!("index.html names {name}"));
                (name, file.gzip.unwrap_or(file.bytes).len())
            })
            .collect();
        let sum: usize = start.iter().map(|(_, bytes)| bytes).sum();
        assert!(sum <= MAX_START_BYTES, "{sum} bytes at start: {start:?}");
        let all: usize = EMBEDDED.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(all <= MAX_ALL_BYTES, "{all} bytes in all");
    }

    #[test]
    fn every_file_has_a_known_type() {
        let unknown = EMBEDDED.iter().filter(|(name, _)| content_type(name) == UNKNOWN_TYPE);
        assert_eq!(unknown.map(|(name, _)| *name).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn hash_is_in_the_index() {
        let files = PageFiles::embedded();
        let index = String::from_utf8(files.get(INDEX).unwrap().bytes.to_vec()).unwrap();
        assert!(!index.contains(HASH_MARK) && index.contains(files.hash()), "{index}");
        assert_eq!(files.hash().len(), HASH_CHARS);
    }

    #[test]
    fn compressed_file_is_the_same_file() {
        let file = PageFiles::embedded().get("app.js").unwrap();
        let mut plain = Vec::new();
        if let Some(gzip) = file.gzip {
            std::io::copy(&mut flate2::read::GzDecoder::new(&gzip[..]), &mut plain).unwrap();
            assert_eq!(plain, file.bytes);
        }
    }

    #[test]
    fn folder_is_read_anew_and_never_left() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page");
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        std::fs::create_dir(&page).unwrap();
        write("secret.txt", "secret");
        write("page/index.html", "<script src=\"/ui/{hash}/app.js\">");
        write("page/app.js", "one");
        std::os::unix::fs::symlink("../secret.txt", page.join("link.txt")).unwrap();
        let files = PageFiles::folder(page);
        let text = |name: &str| files.get(name).map(|file| String::from_utf8(file.bytes.to_vec()).unwrap());
        assert_eq!(text(INDEX).as_deref(), Some("<script src=\"/ui/dev/app.js\">"));
        assert_eq!(text("app.js").as_deref(), Some("one"));
        write("page/app.js", "two");
        assert_eq!(text("app.js").as_deref(), Some("two"));
        for name in ["../secret.txt", "link.txt", "/etc/hostname", "none.js", ""] {
            assert_eq!(text(name), None, "{name}");
        }
    }
}
