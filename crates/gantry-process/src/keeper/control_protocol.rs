//! The control protocol between the engine and a keeper.
//!
//! The engine sends one [`Order`] (a length, then JSON, with descriptors attached), then requests
//! of one byte. Only [`DETACH`] is longer: a length and a record follow. The keeper sends
//! [`Report`]s, each one line of JSON.
//!
//! A later engine connects to the socket of a detached session, shows the session's key, receives
//! [`WELCOME`] and sends no order.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::sandbox::Sandbox;
use crate::session::record::EndRecord;

/// Sends SIGTERM, and SIGKILL after the grace period.
pub(crate) const TERMINATE: u8 = b'T';
/// Sends SIGKILL at once.
pub(crate) const KILL: u8 = b'K';

/// Closes the keeper's copy of the write end of standard input.
pub(crate) const CLOSE_STDIN: u8 = b'C';
/// From now on the end of the control connection does not end the command. A length follows, then
/// the record to write into the session's folder.
pub(crate) const DETACH: u8 = b'D';

/// The keeper's answer to an engine that adopts a session. While standard input is open, its write
/// end is attached.
pub(crate) const WELCOME: u8 = b'W';

/// A longer report is invalid.
pub(crate) const MAX_REPORT_BYTES: usize = 64 * 1024;

/// No known kernel can start a longer order: the arguments alone are limited to a few MiB.
pub(crate) const MAX_ORDER_BYTES: usize = 32 << 20;

/// At most: stdin, stdout, and stderr or log; the folder and the standard input of a kept session;
/// the user and network namespaces; the directory.
pub(crate) const MAX_DESCRIPTORS: usize = 8;

/// A new network: the user namespace, the network namespace, the listening socket.
pub(crate) const MAX_NETWORK_DESCRIPTORS: usize = 3;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) program: OsText,
    pub(crate) args: Vec<OsText>,
    pub(crate) env: Vec<(OsText, OsText)>,
    /// If `None`, the last descriptor is the directory.
    pub(crate) cwd: Option<OsText>,
    /// If true, the first descriptor is standard input. Otherwise standard input is empty.
    pub(crate) stdin: bool,
    pub(crate) output: Output,
    pub(crate) keep: Option<Keep>,
    pub(crate) sandbox: Sandbox,
    /// The network to run in. Its descriptors come before the directory's.
    #[serde(default)]
    pub(crate) network: Option<JoinNetwork>,
    /// If true, the keeper runs no command. It creates a network and answers with
    /// [`NetworkReport`].
    #[serde(default)]
    pub(crate) create_network: bool,
    /// If present, the keeper runs no command. It joins `network` and answers with [`VisitReport`].
    #[serde(default)]
    pub(crate) visit: Option<Visit>,
}

/// `Visit` is what a keeper does in the network of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Visit {
    /// Lists the listening TCP sockets.
    Listeners,
    /// Connects to a port of the loopback. The socket travels with the answer.
    Connect { port: u16 },
}

/// `VisitReport` is the answer to a visit, on one line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum VisitReport {
    Listeners { sockets: Vec<ListeningSocket> },
    Connected,
    Failed { reason: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListeningSocket {
    pub(crate) port: u16,
    pub(crate) inode: u64,
}

/// `JoinNetwork` says which descriptors of a network an order carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JoinNetwork {
    /// If true, the user namespace comes before the network namespace.
    pub(crate) with_user: bool,
}

/// `NetworkReport` is the answer to an order that creates a network, on one line. The descriptors
/// travel with it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum NetworkReport {
    Created { with_user: bool },
    Failed { reason: String },
}

/// `Keep` is present for a session that can be detached. The next descriptor is its folder. If
/// standard input is a pipe, the descriptor after that is its write end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keep {
    /// The keeper enforces the timeout, because the engine may be gone by then.
    pub(crate) timeout_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Output {
    /// One descriptor is both stdout and stderr.
    Merged,
    /// Two descriptors, stdout then stderr.
    Separate,
    /// One descriptor is the log. The keeper copies at most `max` bytes of the merged output into
    /// it.
    Log { max: u64 },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    Started {
        pid: i32,
    },
    /// The command never ran.
    Refused {
        step: LaunchStep,
        errno: Option<i32>,
        reason: String,
    },
    /// The session will outlive the engine.
    Detached,
    NotDetached {
        reason: String,
    },
    /// The command and everything it left behind are gone and reaped.
    Ended(EndRecord),
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogReport {
    /// How many bytes the command wrote.
    pub(crate) total: u64,
    /// How many bytes are not in the file.
    pub(crate) dropped: u64,
    /// Why bytes are missing, if the size limit is not the reason.
    pub(crate) error: Option<String>,
}

/// `LaunchStep` is the step at which a launch failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LaunchStep {
    Order,
    Directory,
    Sandbox,
    Program,
}

/// `OsText` is a string of the operating system: JSON text if it is UTF-8, otherwise an array of
/// bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OsText(pub(crate) OsString);

impl OsText {
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(&self.0)
    }
}

impl<T: AsRef<OsStr>> From<T> for OsText {
    fn from(text: T) -> Self {
        Self(text.as_ref().to_owned())
    }
}

impl Serialize for OsText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => self.0.as_bytes().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for OsText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = OsText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an array of bytes")
            }
            fn visit_str<E>(self, text: &str) -> Result<OsText, E> {
                Ok(OsText(text.into()))
            }
            fn visit_string<E>(self, text: String) -> Result<OsText, E> {
                Ok(OsText(text.into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<OsText, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = items.next_element()? {
                    bytes.push(byte);
                }
                Ok(OsText(OsString::from_vec(bytes)))
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_with_any_bytes_survives_serialization() {
        for bytes in [&b"plain"[..], "h\u{e9}llo".as_bytes(), &[0xff, 0x00, b'a'], b""] {
            let text = OsText(OsString::from_vec(bytes.to_vec()));
            let wire = serde_json::to_string(&text).unwrap();
            assert_eq!(serde_json::from_str::<OsText>(&wire).unwrap(), text);
        }
    }
}
