//! The log file of a node or a gateway: JSON lines in files that rotate. The gate of a node also
//! records its calls here.
//!
//! Code emits `tracing` events; the binary's subscriber writes them with [`NodeLog::event`]. A line is
//! written when the call returns. Lines that must be on disk first wait for one shared sync.
#![expect(clippy::disallowed_methods, reason = "the node's own folder, which no caller names")]

mod tail;

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_tool::{AuditError, AuditRecord, AuditSink, Durability};
use serde_json::{Map, Value, json};

pub use tail::{Follow, LogTail, tail};

/// A file is rotated at this length.
pub const MAX_FILE_BYTES: u64 = 10 * 1024 * 1024;

/// The number of files, including the current one.
pub const MAX_FILES: usize = 5;

/// Lines without a sync are on disk after this time.
const SYNC_WITHIN: Duration = Duration::from_millis(30);

/// The longest logged value of a field that comes from outside.
const MAX_FIELD_CHARS: usize = 2_000;

const CURRENT: &str = "node.log";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Debug,
    Info,
    Warning,
    Error,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// A handle to the log. Clones share the log.
#[derive(Clone)]
pub struct NodeLog {
    inner: Arc<Inner>,
}

struct Inner {
    node: String,
    folder: PathBuf,
    max_file_bytes: u64,
    open: Mutex<Open>,
    /// The number of the last written line, and of the last line known to be on disk.
    written: AtomicU64,
    synced: Mutex<u64>,
    syncing_soon: AtomicBool,
}

struct Open {
    file: Arc<File>,
    bytes: u64,
}

impl NodeLog {
    pub fn open(folder: &Path, node: &str) -> io::Result<NodeLog> {
        NodeLog::with_limit(folder, node, MAX_FILE_BYTES)
    }

    /// As [`NodeLog::open`], with files of at most `max_file_bytes` each.
    pub fn with_limit(folder: &Path, node: &str, max_file_bytes: u64) -> io::Result<NodeLog> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let open = Open::current(folder)?;
        Ok(NodeLog {
            inner: Arc::new(Inner {
                node: node.to_owned(),
                folder: folder.to_owned(),
                max_file_bytes,
                open: Mutex::new(open),
                written: AtomicU64::new(0),
                synced: Mutex::new(0),
                syncing_soon: AtomicBool::new(false),
            }),
        })
    }

    /// Appends one event. Text fields are cut at 2,000 characters. A failure to write is ignored: it
    /// must not stop the program, and the gate refuses calls that it cannot record.
    pub fn event(&self, level: Level, event: &str, mut fields: Map<String, Value>) {
        for value in fields.values_mut() {
            if let Value::String(text) = value
                && text.len() > MAX_FIELD_CHARS
            {
                *text = bounded(text);
            }
        }
        let _ = self.inner.write(level, event, Value::Object(fields));
        self.sync_soon();
    }

    /// Returns the last lines of all files, oldest first.
    pub fn tail(&self, lines: usize) -> io::Result<LogTail> {
        tail(&self.inner.folder, lines)
    }

    pub fn flush(&self) -> io::Result<()> {
        self.inner.sync(self.inner.written.load(Ordering::Acquire))
    }

    fn sync_soon(&self) {
        if self.inner.syncing_soon.swap(true, Ordering::AcqRel) {
            return;
        }
        let log = self.clone();
        let sync = move || {
            std::thread::sleep(SYNC_WITHIN);
            log.inner.syncing_soon.store(false, Ordering::Release);
            let _ = log.flush();
        };
        if std::thread::Builder::new().name("node-log".into()).spawn(sync).is_err() {
            self.inner.syncing_soon.store(false, Ordering::Release);
            let _ = self.flush();
        }
    }
}

impl AuditSink for NodeLog {
    fn append(&self, record: AuditRecord, durability: Durability) -> Result<(), AuditError> {
        let failed = |err: io::Error| AuditError(err.to_string());
        let fields = serde_json::to_value(record).map_err(|err| AuditError(err.to_string()))?;
        let number = self.inner.write(Level::Info, "call", fields).map_err(failed)?;
        match durability {
            Durability::Now => self.inner.sync(number).map_err(failed),
            Durability::Soon | Durability::Later => {
                self.sync_soon();
                Ok(())
            }
        }
    }

    fn flush(&self) -> Result<(), AuditError> {
        NodeLog::flush(self).map_err(|err| AuditError(err.to_string()))
    }
}

impl Inner {
    /// Returns the line's number.
    fn write(&self, level: Level, event: &str, fields: Value) -> io::Result<u64> {
        let mut line = Map::new();
        line.insert(
            "ts".into(),
            json!(jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()),
        );
        line.insert("level".into(), json!(level.name()));
        line.insert("event".into(), json!(event));
        line.insert("nodeId".into(), json!(self.node));
        if let Value::Object(fields) = fields {
            for (name, value) in fields {
                line.entry(name).or_insert(value);
            }
        }
        let line = format!("{}\n", Value::Object(line));

        let mut open = self.open();
        if open.bytes > 0 && open.bytes + line.len() as u64 > self.max_file_bytes {
            // The rotated file is synced before a later line is reported as synced.
            open.file.sync_data()?;
            rotate(&self.folder)?;
            *open = Open::current(&self.folder)?;
        }
        if let Err(err) = (&*open.file).write_all(line.as_bytes()) {
            // A partial line is removed, so that the next line is not appended to it.
            open.file.set_len(open.bytes)?;
            return Err(err);
        }
        open.bytes += line.len() as u64;
        Ok(self.written.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// Returns when the line with this number is on disk. Concurrent callers share one sync.
    fn sync(&self, number: u64) -> io::Result<()> {
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        if *synced >= number {
            return Ok(());
        }
        let (file, upto) = {
            let open = self.open();
            (Arc::clone(&open.file), self.written.load(Ordering::Acquire))
        };
        file.sync_data()?;
        *synced = upto;
        Ok(())
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn current(folder: &Path) -> io::Result<Open> {
        let mut options = File::options();
        options.append(true).create(true).mode(0o600);
        let file = options.open(folder.join(CURRENT))?;
        let mut bytes = file.metadata()?.len();
        // A crash may have left a partial line.
        if bytes > 0 && !tail::ends_with_newline(&folder.join(CURRENT), bytes)? {
            (&file).write_all(b"\n")?;
            bytes += 1;
        }
        Ok(Open { file: Arc::new(file), bytes })
    }
}

/// The paths of a log's files, newest first, whether or not they exist.
fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let folder = folder.to_owned();
    (0..MAX_FILES).map(move |age| match age {
        0 => folder.join(CURRENT),
        age => folder.join(format!("{CURRENT}.{age}")),
    })
}

fn rotate(folder: &Path) -> io::Result<()> {
    let files: Vec<PathBuf> = files(folder).collect();
    for pair in files.windows(2).rev() {
        match std::fs::rename(&pair[0], &pair[1]) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the first 2,000 characters of a text, for one field of a log line.
pub fn bounded(text: &str) -> String {
    match text.char_indices().nth(MAX_FIELD_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(log: &NodeLog, count: usize) -> Vec<Value> {
        log.tail(count).unwrap().lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn info(log: &NodeLog, event: &str, fields: Value) {
        log.event(Level::Info, event, fields.as_object().unwrap().clone());
    }

    #[test]
    fn lines_are_json_with_node_and_time() {
        let folder = tempfile::tempdir().unwrap();
        let log = NodeLog::open(folder.path(), "laptop").unwrap();
        info(&log, "connected", json!({"gateway": "http://x", "ts": "not this one"}));
        log.event(Level::Warning, "odd", Map::new());
        log.event(Level::Debug, "long", Map::from_iter([("text".to_owned(), json!("x".repeat(5_000)))]));
        let lines = lines(&log, 10);
        assert_eq!(lines.len(), 3);
        assert_eq!(
            (lines[0]["event"].as_str(), lines[0]["nodeId"].as_str(), lines[0]["level"].as_str()),
            (Some("connected"), Some("laptop"), Some("info"))
        );
        assert!(lines[0]["ts"].as_str().unwrap().starts_with("20"), "{}", lines[0]);
        assert_eq!(lines[1]["level"], "warning");
        assert_eq!(lines[2]["text"].as_str().unwrap().chars().count(), MAX_FIELD_CHARS + 1);
    }

    #[test]
    fn files_rotate_and_the_oldest_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let log = NodeLog::with_limit(folder.path(), "n", 2_000).unwrap();
        for number in 0..200 {
            info(&log, "tick", json!({"number": number, "text": "x".repeat(40)}));
        }
        let sizes: Vec<u64> =
            files(folder.path()).map(|file| std::fs::metadata(file).unwrap().len()).collect();
        assert_eq!(sizes.len(), MAX_FILES);
        assert!(sizes.iter().all(|size| *size <= 2_000), "{sizes:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), MAX_FILES);
        // No line is missing where one file ends and the next begins.
        let numbers: Vec<i64> = lines(&log, 40).iter().map(|line| line["number"].as_i64().unwrap()).collect();
        assert_eq!(numbers, (160..200).collect::<Vec<_>>());
        let all = log.tail(1_000).unwrap();
        assert!(!all.truncated && all.lines.len() < 200);
    }

    #[test]
    fn partial_line_after_a_crash_does_not_damage_the_next() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(CURRENT), "{\"event\":\"wh").unwrap();
        let log = NodeLog::open(folder.path(), "n").unwrap();
        info(&log, "next", json!({}));
        let last = log.tail(1).unwrap().lines;
        assert_eq!(serde_json::from_str::<Value>(&last[0]).unwrap()["event"], "next");
    }

    #[test]
    fn concurrent_records_are_complete_and_synced() {
        let folder = tempfile::tempdir().unwrap();
        let log = NodeLog::open(folder.path(), "n").unwrap();
        let record = AuditRecord {
            call: "c".into(),
            phase: gantry_tool::Phase::Begin,
            principal: "operator".into(),
            agent: "main".into(),
            surface: "websocket".into(),
            tool: "Bash".into(),
            input: None,
            rule: None,
            status: None,
            error: None,
            duration_ms: None,
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        log.append(record.clone(), Durability::Now).unwrap();
                    }
                });
            }
        });
        let synced = *log.inner.synced.lock().unwrap();
        assert_eq!(synced, 160);
        assert!(lines(&log, 200).iter().all(|line| line["event"] == "call" && line["tool"] == "Bash"));
        assert_eq!(lines(&log, 200).len(), 160);
    }
}
