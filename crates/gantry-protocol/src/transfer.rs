//! Requests of the gateway to both ends of a transfer. The bytes travel as [`crate::StreamFrame`]s.
//!
//! `open` and `prepare` name a path and a caller. Later requests name the transfer, and the `entry` within a directory.
//! All of them may be repeated after a disconnect.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::methods::Caller;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SentKind {
    File,
    Directory,
}

/// `params` of `transfer.open`, to the source.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TransferOpen {
    pub transfer: String,
    pub path: String,
    pub caller: Caller,
    /// Rules whose question was approved. Only between a gateway and its own machine, which share one policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approved: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransferOpened {
    pub kind: SentKind,
    /// Bytes of a file; 0 for a directory.
    pub size: u64,
    /// Permission bits, and the sticky bit of a directory.
    pub mode: u32,
    /// Changes when the content changes.
    pub version: String,
    /// The path with links resolved.
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
}

/// `params` of `transfer.prepare`, to the destination.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TransferPrepare {
    pub transfer: String,
    pub path: String,
    pub kind: SentKind,
    /// Permission bits and sticky bit of a directory that is created. An existing directory keeps its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    pub caller: Caller,
    /// The resolved path of the source, if it is on the same machine. A file cannot be sent to itself or into itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// As in [`TransferOpen`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approved: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransferPrepared {
    /// The path with links resolved.
    pub path: String,
}

/// `params` of `transfer.manifest`, to the source: the next entries of an opened directory.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferManifest {
    pub transfer: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ManifestPage {
    /// Parents come before their children. Names are in byte order.
    pub entries: Vec<WireEntry>,
    /// Whether this is the last page.
    pub last: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WireEntry {
    /// Below the directory, with `/` between names.
    pub path: String,
    #[serde(flatten)]
    pub kind: WireEntryKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum WireEntryKind {
    File { size: u64, mode: u32 },
    Directory { mode: u32 },
    Link { target: String },
    Skipped { reason: String },
}

/// `params` of `transfer.make`, to the destination: a directory or a link of a tree.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferMake {
    pub transfer: String,
    pub entry: String,
    /// Set for a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Set for a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// `params` of `transfer.have`, to the destination: asks how much of a file has arrived.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TransferHave {
    pub transfer: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransferHas {
    pub have: u64,
    /// BLAKE3 of those bytes in hexadecimal. Absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_hash: Option<String>,
}

/// `params` of `transfer.send`, to the source. Answered when everything is sent.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TransferSend {
    pub transfer: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    pub stream: u32,
    pub from: u64,
    /// The source's own bytes before `from` must have this hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_hash: Option<String>,
    /// The first credit of the receiver: everything before this offset may be sent.
    pub credit: u64,
}

/// `params` of `transfer.receive`, to the destination. Ready when the first credit comes over the stream; answered when
/// the file is whole, verified, and has its final name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TransferReceive {
    pub transfer: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    pub stream: u32,
    pub from: u64,
    pub mode: u32,
    /// The length of the whole file, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// `result` of `transfer.send` and `transfer.receive`: the whole file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TransferDone {
    pub bytes: u64,
    /// BLAKE3 in hexadecimal.
    pub hash: String,
}

/// `params` of `transfer.finish` and `transfer.abandon`, to either end, which then forgets the transfer. `abandon` removes
/// its parts.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferOver {
    pub transfer: String,
    /// For `abandon`: files of a directory that may have arrived in part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<String>,
}

/// `result` of `transfer.parts`: the transfers of which a destination has parts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TransferParts {
    pub transfers: Vec<String>,
    /// Whether there are more. They are listed once some of these are gone.
    #[serde(default)]
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_as_they_are_written() {
        for (kind, text) in [
            (
                WireEntryKind::File { size: 7, mode: 0o644 },
                r#"{"path":"a/b","kind":"file","size":7,"mode":420}"#,
            ),
            (
                WireEntryKind::Link { target: "../c".into() },
                r#"{"path":"a/b","kind":"link","target":"../c"}"#,
            ),
        ] {
            let entry = WireEntry { path: "a/b".into(), kind };
            assert_eq!(serde_json::to_string(&entry).unwrap(), text);
            assert_eq!(serde_json::from_str::<WireEntry>(text).unwrap(), entry);
        }
    }
}
