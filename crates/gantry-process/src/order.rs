//! What the engine and a keeper say to each other over the control socket.
//!
//! Down: one [`Order`] (a length and JSON, its descriptors beside it), then single bytes, [`TERMINATE`] or [`KILL`].
//! Up: [`Report`]s, one line of JSON each.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::sandbox::Sandbox;

/// SIGTERM first, SIGKILL after the grace.
pub(crate) const TERMINATE: u8 = b'T';
/// SIGKILL at once.
pub(crate) const KILL: u8 = b'K';

/// An order longer than this cannot be started by any kernel we know (the arguments alone are limited to a few MiB).
pub(crate) const MAX_ORDER_BYTES: usize = 32 << 20;

/// At most stdin, stdout, stderr or log, and the directory.
pub(crate) const MAX_DESCRIPTORS: usize = 4;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) program: Text,
    pub(crate) args: Vec<Text>,
    pub(crate) env: Vec<(Text, Text)>,
    /// `None`: the last descriptor is the directory.
    pub(crate) cwd: Option<Text>,
    /// The first descriptor is standard input; otherwise it is empty.
    pub(crate) stdin: bool,
    pub(crate) output: Output,
    pub(crate) sandbox: Sandbox,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Output {
    /// One descriptor is both stdout and stderr.
    Merged,
    /// Two descriptors, stdout then stderr.
    Separate,
    /// One descriptor is the log: the keeper copies the merged output into it, at most `max` bytes.
    Log { max: u64 },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    Started {
        pid: i32,
    },
    /// The command never ran.
    Refused {
        step: Step,
        errno: Option<i32>,
        reason: String,
    },
    /// The command and everything it left behind are gone and reaped.
    Ended {
        code: Option<i32>,
        signal: Option<i32>,
        /// Processes that even SIGKILL did not end in time (stuck in the kernel).
        survivors: usize,
        /// What the output log lacks, when the keeper wrote one.
        log: LogReport,
    },
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogReport {
    /// Bytes the command wrote.
    pub(crate) total: u64,
    /// Bytes that are not in the file.
    pub(crate) dropped: u64,
    /// Why, when it was not the size limit.
    pub(crate) error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    Order,
    Directory,
    Sandbox,
    Program,
}

/// A string of the operating system: JSON text when it is UTF-8, else an array of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) OsString);

impl Text {
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(&self.0)
    }
}

impl<T: AsRef<OsStr>> From<T> for Text {
    fn from(text: T) -> Self {
        Self(text.as_ref().to_owned())
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => self.0.as_bytes().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an array of bytes")
            }
            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.into()))
            }
            fn visit_string<E>(self, text: String) -> Result<Text, E> {
                Ok(Text(text.into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Text, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = items.next_element()? {
                    bytes.push(byte);
                }
                Ok(Text(OsString::from_vec(bytes)))
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives_the_wire_whatever_its_bytes() {
        for bytes in [&b"plain"[..], "h\u{e9}llo".as_bytes(), &[0xff, 0x00, b'a'], b""] {
            let text = Text(OsString::from_vec(bytes.to_vec()));
            let wire = serde_json::to_string(&text).unwrap();
            assert_eq!(serde_json::from_str::<Text>(&wire).unwrap(), text);
        }
    }
}
