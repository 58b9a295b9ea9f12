//! Transfers between machines as people see them, and files that go to and come from a client.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `result` of `transfers.list` and `transfers.listen`, and data of `transfers.changed`: the newest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TransferList {
    pub transfers: Vec<TransferInfo>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransferInfo {
    pub id: String,
    pub agent: String,
    pub principal: String,
    pub source: String,
    pub destination: String,
    /// `running`, `done` or `failed`.
    pub state: String,
    /// In bytes; null while it is not known.
    pub size: Option<u64>,
    pub bytes_done: u64,
    /// The node that a running transfer waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub created: i64,
    pub updated: i64,
}

/// `params` and `result` of `transfers.cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferId {
    pub id: String,
}

/// `params` of `uploads.begin`: a file of the client becomes a file in an agent's storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UploadBegin {
    /// `main` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// In the agent's storage, such as `inbox/photo.png`. An existing file is replaced when the upload is finished.
    pub path: String,
    pub size: u64,
    /// An interrupted upload that continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<String>,
}

/// `result` of `uploads.begin`, and the answer of `PUT /v1/uploads/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UploadState {
    pub upload: String,
    /// Bytes that have arrived. The next piece begins here.
    pub have: u64,
}

/// `params` of `uploads.finish` and `uploads.cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UploadId {
    pub upload: String,
}

/// `result` of `uploads.finish`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UploadDone {
    /// As the Transfer tool takes it, such as `gsv:inbox/photo.png`.
    pub path: String,
    pub size: u64,
    /// The BLAKE3 hash of the file, in hexadecimal.
    pub hash: String,
}

/// `params` of `downloads.link`: a file in an agent's storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DownloadFile {
    /// `main` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    pub path: String,
    /// Where the download begins; 0 when left out. An interrupted one continues there.
    #[serde(default)]
    pub offset: u64,
    /// The version that an interrupted download began with. Another one is `conflict`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
}

/// `result` of `downloads.link`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DownloadLink {
    /// Works for one request within 60 seconds, without further authentication.
    pub url: String,
    pub name: String,
    /// Of the whole file.
    pub size: u64,
    pub etag: String,
}

/// Links stay out of logs.
impl std::fmt::Debug for DownloadLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DownloadLink").field("name", &self.name).finish_non_exhaustive()
    }
}
