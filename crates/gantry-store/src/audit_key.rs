//! The key of the audit log's hash chain. It makes the hashes of lines, the sealed head and the sealed start.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// The head is written in place. It is smaller than a disk sector, so a crash leaves the old or the new record.
const HEAD_BYTES: usize = 256;

pub(crate) const NO_MAC: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A line of the chain: its number and its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) seq: u64,
    pub(crate) mac: String,
}

impl Link {
    /// The link before the first line.
    pub(crate) fn none() -> Link {
        Link { seq: 0, mac: NO_MAC.to_owned() }
    }
}

/// The record is missing or not sealed with this key.
#[derive(Debug)]
pub(crate) struct SealBroken;

/// The number and time of a line, and the hash of the line before it.
pub(crate) struct LineHead<'a> {
    pub(crate) seq: u64,
    pub(crate) previous: &'a str,
    pub(crate) at: Timestamp,
}

pub(crate) struct Key([u8; 32]);

impl Key {
    pub(crate) fn path(log: &Path) -> PathBuf {
        log.with_extension("key")
    }

    pub(crate) fn load(log: &Path) -> io::Result<Key> {
        let (path, mut bytes) = (Key::path(log), [0; 32]);
        crate::data_dir::open_file(&path)?.read_exact(&mut bytes).map_err(|err| match err.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other(format!(
                "{} is too short to be the key of the audit log; put the right one back (a new key, made when the file is \
                 removed, does not verify the lines that are there)",
                path.display()
            )),
            _ => err,
        })?;
        Ok(Key(bytes))
    }

    /// Returns the key, and whether it was created just now.
    pub(crate) fn load_or_make(log: &Path) -> io::Result<(Key, bool)> {
        match Key::load(log) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                let mut bytes = [0; 32];
                File::open("/dev/urandom")?.read_exact(&mut bytes)?;
                crate::data_dir::replace_private(&Key::path(log), &bytes)?;
                Ok((Key(bytes), true))
            }
            loaded => Ok((loaded?, false)),
        }
    }

    /// Appends the line of a record to `lines` and returns its hash, which covers the previous line. `fields` is a
    /// non-empty JSON object.
    pub(crate) fn line(&self, head: LineHead<'_>, fields: &str, lines: &mut Vec<u8>) -> String {
        let LineHead { seq, previous, at } = head;
        let start = lines.len();
        let (mut number, at) = (itoa::Buffer::new(), at.to_string());
        for part in ["{\"seq\":", number.format(seq), ",\"at\":\"", &at, "\",", &fields[1..]] {
            lines.extend_from_slice(part.as_bytes());
        }
        let mac = self.mac(previous, &lines[start..]);
        lines.pop();
        for part in [",\"mac\":\"", &mac, "\"}\n"] {
            lines.extend_from_slice(part.as_bytes());
        }
        mac
    }

    /// Hashes a line's body (the object without its `mac`) together with `previous`, the hash of the line before.
    pub(crate) fn mac(&self, previous: &str, body: impl AsRef<[u8]>) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(previous.as_bytes()).update(body.as_ref());
        hex(hasher.finalize().as_bytes())
    }

    /// Reads the sealed head: the newest line known to be on disk.
    pub(crate) fn read_head(&self, head: &File) -> Result<Link, SealBroken> {
        let mut bytes = [0; HEAD_BYTES];
        head.read_exact_at(&mut bytes, 0).map_err(|_| SealBroken)?;
        self.unsealed("head", std::str::from_utf8(&bytes).map_err(|_| SealBroken)?)
    }

    /// Moves the head forward, never back.
    pub(crate) fn advance_head(&self, head: &File, seq: u64, mac: &str) -> io::Result<()> {
        match self.read_head(head) {
            Ok(current) if current.seq >= seq => Ok(()),
            Ok(_) | Err(SealBroken) => self.write_head(head, seq, mac),
        }
    }

    pub(crate) fn write_head(&self, head: &File, seq: u64, mac: &str) -> io::Result<()> {
        let mut record = self.sealed("head", seq, mac).into_bytes();
        record.resize(HEAD_BYTES, b' ');
        head.write_all_at(&record, 0)
    }

    /// Reads the sealed start: the last line that retention removed. The log begins after it.
    pub(crate) fn read_start(&self, log: &Path) -> Result<Link, SealBroken> {
        let path = log.with_extension("start");
        match std::fs::read_to_string(path) {
            Ok(text) => self.unsealed("start", &text),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(Link::none()),
            Err(_) => Err(SealBroken),
        }
    }

    pub(crate) fn write_start(&self, log: &Path, start: &Link) -> io::Result<()> {
        let record = self.sealed("start", start.seq, &start.mac);
        crate::data_dir::replace_private(&log.with_extension("start"), record.as_bytes())
    }

    fn sealed(&self, what: &str, seq: u64, mac: &str) -> String {
        let seal = self.mac(what, format!("{seq} {mac}"));
        format!("{seq} {mac} {seal}\n")
    }

    fn unsealed(&self, what: &str, record: &str) -> Result<Link, SealBroken> {
        let mut words = record.trim_end().split(' ');
        let (Some(seq), Some(mac), Some(seal)) = (words.next(), words.next(), words.next()) else {
            return Err(SealBroken);
        };
        if self.mac(what, format!("{seq} {mac}")) != seal {
            return Err(SealBroken);
        }
        Ok(Link { seq: seq.parse().map_err(|_| SealBroken)?, mac: mac.to_owned() })
    }
}

/// Formats bytes as hexadecimal. The `to_hex` of blake3 takes as long as hashing a line.
fn hex(bytes: &[u8; 32]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 64];
    for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    // Hexadecimal digits are always valid UTF-8.
    std::str::from_utf8(&text).unwrap_or_default().to_owned()
}
