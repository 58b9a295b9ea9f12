//! [`ServerRecords`] stores the accepted and the last offered tool definitions of MCP servers.
//!
//! One file per server lets tools be listed without starting the server, and keeps blocked tools blocked. This module
//! does not interpret or compare definitions.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::DataDir;
use crate::data_dir::{FileVersion, open_file, replace_private};

/// The largest record that is read. This program never writes a larger one.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The records of a data directory. Several processes may use them at once.
#[derive(Debug, Clone)]
pub struct ServerRecords {
    data: DataDir,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerRecord {
    /// Accepted definitions by tool name.
    pub accepted: BTreeMap<String, Pin>,
    /// The definitions of the last tool list, unchanged and in the server's order.
    pub offered: Vec<Value>,
    /// When the tools were listed, in milliseconds since 1970; 0 if never.
    pub listed: i64,
    /// The server's name for itself, and its protocol revision.
    pub about: Option<Value>,
    /// How to renew its tokens. The tokens themselves are stored as secrets.
    pub login: Option<Value>,
    /// The server's message when it rejected the login.
    pub wanted: Option<String>,
}

/// A definition that the operator has accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pin {
    /// The hash of the canonical definition.
    pub hash: String,
    pub definition: Value,
    /// Milliseconds since 1970.
    pub accepted: i64,
}

/// Differs between two states of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordVersion(Option<FileVersion>);

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("cannot use {}: {cause}", .path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error("{} is damaged: {reason}; `gantry mcp remove {name}` and `gantry mcp add` start over", .path.display())]
    Damaged { path: PathBuf, name: String, reason: String },
}

impl ServerRecords {
    pub fn new(data: &DataDir) -> ServerRecords {
        ServerRecords { data: data.clone() }
    }

    /// Returns the record as it is on disk now, or an empty one.
    pub fn read(&self, server: &str) -> Result<ServerRecord, RecordError> {
        let path = self.data.server_record(server);
        let failed = |cause| RecordError::Io { path: path.clone(), cause };
        let file = match open_file(&path) {
            Ok(file) => file,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(ServerRecord::default()),
            Err(err) => return Err(failed(err)),
        };
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        let damaged = |err: serde_json::Error| RecordError::Damaged {
            path: path.clone(),
            name: server.to_owned(),
            reason: err.to_string(),
        };
        serde_json::from_slice(&bytes).map_err(damaged)
    }

    /// Changes a record under a lock. The change is on disk when this returns.
    pub fn change<T>(
        &self,
        server: &str,
        change: impl FnOnce(&mut ServerRecord) -> T,
    ) -> Result<T, RecordError> {
        let path = self.data.server_record(server);
        let _lock = self.lock()?;
        let before = self.read(server)?;
        let mut record = before.clone();
        let changed = change(&mut record);
        if record != before {
            let failed = |cause| RecordError::Io { path: path.clone(), cause };
            let bytes = serde_json::to_vec(&record).map_err(|err| failed(io::Error::other(err)))?;
            if bytes.len() as u64 >= MAX_FILE_BYTES {
                return Err(failed(io::Error::other("the definitions take more than 64 MiB")));
            }
            replace_private(&path, &bytes).map_err(failed)?;
        }
        Ok(changed)
    }

    /// Returns true when the record existed.
    pub fn remove(&self, server: &str) -> Result<bool, RecordError> {
        let path = self.data.server_record(server);
        let _lock = self.lock()?;
        match std::fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(cause) => Err(RecordError::Io { path, cause }),
        }
    }

    pub fn version(&self, server: &str) -> RecordVersion {
        RecordVersion(FileVersion::of_file(&self.data.server_record(server)))
    }

    fn lock(&self) -> Result<File, RecordError> {
        let path = self.data.server_records().join("lock");
        let failed = |cause| RecordError::Io { path: path.clone(), cause };
        self.data.create().map_err(|err| failed(err.into()))?;
        std::fs::create_dir_all(self.data.server_records()).map_err(failed)?;
        let mut options = File::options();
        let lock = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lock = lock.open(&path).map_err(failed)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|err| failed(err.into()))?;
        Ok(lock)
    }
}

impl DataDir {
    fn server_records(&self) -> PathBuf {
        self.root().join("mcp")
    }

    fn server_record(&self, server: &str) -> PathBuf {
        self.server_records().join(format!("{server}.json"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn records() -> (tempfile::TempDir, ServerRecords) {
        let dir = tempfile::tempdir().unwrap();
        let records = ServerRecords::new(&DataDir::new(dir.path().join("data")));
        (dir, records)
    }

    #[test]
    fn changes_are_visible_to_later_reads() {
        let (_dir, records) = records();
        let before = records.version("a");
        assert_eq!(records.read("a").unwrap(), ServerRecord::default());
        records.change("a", |record| record.offered = vec![json!({"name": "x"})]).unwrap();
        assert_ne!(records.version("a"), before);
        let changed = records.version("a");
        records.change("a", |_| ()).unwrap();
        assert_eq!(records.version("a"), changed, "nothing changed, so nothing was written");
        assert_eq!(records.clone().read("a").unwrap().offered, [json!({"name": "x"})]);
        assert_eq!(records.read("b").unwrap(), ServerRecord::default());
        assert!(records.remove("a").unwrap() && !records.remove("a").unwrap());
    }

    #[test]
    fn damaged_record_is_reported_and_kept() {
        let (_dir, records) = records();
        records.change("a", |record| record.listed = 1).unwrap();
        std::fs::write(records.data.server_record("a"), "{").unwrap();
        assert!(records.read("a").unwrap_err().to_string().contains("is damaged"));
        assert!(records.change("a", |record| record.listed = 2).is_err());
        assert_eq!(std::fs::read_to_string(records.data.server_record("a")).unwrap(), "{");
    }
}
