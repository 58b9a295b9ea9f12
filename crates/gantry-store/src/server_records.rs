//! What is known of MCP servers: the definitions of tools that the operator has accepted, and those last offered.
//!
//! One file a server, so that a list of tools needs no server to run, and so that what was held stays held. What a
//! definition means, and whether two are the same, is not decided here.

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

/// What is more was not written here.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The records of a data directory. Several processes may use them at once.
#[derive(Debug, Clone)]
pub struct ServerRecords {
    data: DataDir,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerRecord {
    /// By the tool's name.
    pub accepted: BTreeMap<String, Pin>,
    /// Definitions as they were on the wire when the tools were listed last, in the server's order.
    pub offered: Vec<Value>,
    /// Milliseconds since 1970; 0 before the first time.
    pub listed: i64,
    /// What the server calls itself, and the revision it spoke.
    pub about: Option<Value>,
    /// How its tokens are renewed; the tokens themselves are secrets.
    pub login: Option<Value>,
    /// What it said when it wanted another login than it was given.
    pub wanted: Option<String>,
}

/// A definition that the operator has accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pin {
    /// Of the definition in its canonical form.
    pub hash: String,
    pub definition: Value,
    /// Milliseconds since 1970.
    pub accepted: i64,
}

/// Tells one state of a record from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordVersion(Option<FileVersion>);

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("cannot use {}: {cause}", .path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error("{} is damaged: {reason}; `gantry mcp remove {name}` and `gantry mcp add` begin anew", .path.display())]
    Damaged { path: PathBuf, name: String, reason: String },
}

impl ServerRecords {
    pub fn new(data: &DataDir) -> ServerRecords {
        ServerRecords { data: data.clone() }
    }

    /// As it is on disk now; empty for a server that nothing is known of.
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

    /// Changes a record under a lock; what it returns is on disk.
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

    /// True when there was one.
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
    fn what_was_changed_is_read_by_whoever_comes_next() {
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
    fn a_damaged_record_is_told_and_stays() {
        let (_dir, records) = records();
        records.change("a", |record| record.listed = 1).unwrap();
        std::fs::write(records.data.server_record("a"), "{").unwrap();
        assert!(records.read("a").unwrap_err().to_string().contains("is damaged"));
        assert!(records.change("a", |record| record.listed = 2).is_err());
        assert_eq!(std::fs::read_to_string(records.data.server_record("a")).unwrap(), "{");
    }
}
