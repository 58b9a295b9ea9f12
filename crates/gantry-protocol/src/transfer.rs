//! What the gateway asks of both ends of a transfer. Bytes themselves travel as [`crate::StreamFrame`]s.
//!
//! `open` and `prepare` name a path and on whose behalf; everything later names the transfer, and below a directory the
//! `entry`. All of them may be asked again after a cut.

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
    /// Rules that asked about it and were answered with a yes. Only between a gateway and its own machine, which have one policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approved: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransferOpened {
    pub kind: SentKind,
    /// Bytes of a file; 0 for a directory.
    pub size: u64,
    /// Permission bits; of a directory also the sticky one.
    pub mode: u32,
    /// Another one means other content.
    pub version: String,
    /// Where it really is: links followed.
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
    /// Permission bits, and the sticky one, of a directory that is made for it; one that is there keeps its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    pub caller: Caller,
    /// Where the source really is, when it is on the same machine: nothing is sent to itself, or into itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// As in [`TransferOpen`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approved: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransferPrepared {
    /// Where it will really be: links followed.
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
    /// Parents before what they hold, names in byte order.
    pub entries: Vec<WireEntry>,
    /// There are no more.
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

/// `params` of `transfer.have`, to the destination: what has come of a file.
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
    /// BLAKE3 of those bytes in hexadecimal; absent when there are none.
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
    /// What the receiver has granted at first: everything before this offset.
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
    /// How long the whole file has to be, when that is known.
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

/// `params` of `transfer.finish` and `transfer.abandon`, to either end: it may forget the transfer. Abandoned parts are
/// removed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferOver {
    pub transfer: String,
    /// For `abandon`: files below a directory of which a part may have come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<String>,
}

/// `result` of `transfer.parts`, which asks a destination: of which transfers parts lie there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TransferParts {
    pub transfers: Vec<String>,
    /// There are others, to be told when some of these are gone.
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
