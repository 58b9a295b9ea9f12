//! What the engine and a keeper say to each other over the control socket.
//!
//! Down: one [`Order`] (a length and JSON, its descriptors beside it), then requests of one byte; only [`DETACH`] has
//! more, a length and a record. Up: [`Report`]s, one line of JSON each. An engine that comes later, over the socket of
//! a detached session, shows the session's key, is greeted with [`WELCOME`] and gives no order.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::record::EndRecord;
use crate::sandbox::Sandbox;

/// SIGTERM first, SIGKILL after the grace.
pub(crate) const TERMINATE: u8 = b'T';
/// SIGKILL at once.
pub(crate) const KILL: u8 = b'K';

/// Closes the keeper's copy of the end that standard input is fed through.
pub(crate) const CLOSE_STDIN: u8 = b'C';
/// From now on the end of the control connection is not the end of the command. A length follows, and the record to
/// leave in the session's folder.
pub(crate) const DETACH: u8 = b'D';

/// To an engine that adopts a session; the end that feeds standard input comes with it while that is open.
pub(crate) const WELCOME: u8 = b'W';

/// A report longer than this is none.
pub(crate) const MAX_REPORT_BYTES: usize = 64 * 1024;

/// An order longer than this cannot be started by any kernel we know (the arguments alone are limited to a few MiB).
pub(crate) const MAX_ORDER_BYTES: usize = 32 << 20;

/// At most stdin, stdout and stderr or log, folder and feed of a kept session, and the directory.
pub(crate) const MAX_DESCRIPTORS: usize = 6;

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
    pub(crate) keep: Option<Keep>,
    pub(crate) sandbox: Sandbox,
}

/// For a session that can be detached: the next descriptor is its folder, and with standard input the one after that
/// is the end that feeds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keep {
    /// Enforced by the keeper, because the engine may be gone by then.
    pub(crate) timeout_ms: Option<u64>,
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
    /// The session will survive us.
    Detached,
    NotDetached {
        reason: String,
    },
    /// The command and everything it left behind are gone and reaped.
    Ended(EndRecord),
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
