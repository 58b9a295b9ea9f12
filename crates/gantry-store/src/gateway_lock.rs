//! The lock of the gateway that runs on a data directory. It ends with its process, so only one gateway runs at a time.
//!
//! The file's content is valid only while the lock is held, so stale content is never used.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::DataDir;

/// A check holds the lock for a moment, and a gateway writes its identity a moment after it takes the lock.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(10);
const MAX_INFO_BYTES: u64 = 64 * 1024;

/// A running gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    pub pid: u32,
    /// The address it listens on; empty until it does.
    pub url: String,
    /// Milliseconds since 1970.
    pub started: i64,
    /// Its TLS key as `sha256//BASE64`, by which commands on this directory recognise it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Held by a gateway while it runs.
#[derive(Debug)]
pub struct GatewayLock {
    file: File,
    running: Running,
}

#[derive(Debug, thiserror::Error)]
pub enum GatewayLockError {
    #[error("a gateway runs on this data directory already: process {pid}{}", at(url))]
    AlreadyRunning { pid: u32, url: String },
    #[error("another gateway is just starting on this data directory")]
    Starting,
    #[error("cannot lock {}: {cause}", .path.display())]
    Io { path: PathBuf, cause: io::Error },
}

impl GatewayLock {
    /// Takes the lock, or returns the gateway that holds it.
    pub fn take(data: &DataDir, running: Running) -> Result<GatewayLock, GatewayLockError> {
        let path = data.gateway_lock();
        let failed = |cause| GatewayLockError::Io { path: path.clone(), cause };
        data.create().map_err(|err| failed(err.into()))?;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        for _ in 0..TRIES {
            let file = options.open(&path).map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    let lock = GatewayLock { file, running };
                    lock.write().map_err(failed)?;
                    return Ok(lock);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(err) => return Err(failed(err.into())),
            }
            if let Look::Held(Some(Running { pid, url, .. })) = look(data) {
                return Err(GatewayLockError::AlreadyRunning { pid, url });
            }
            std::thread::sleep(PAUSE);
        }
        Err(GatewayLockError::Starting)
    }

    /// Writes the address and the key of the gateway.
    pub fn announce(&mut self, url: &str, key: Option<String>) -> io::Result<()> {
        url.clone_into(&mut self.running.url);
        self.running.key = key;
        self.write()
    }

    /// Returns the gateway that runs on a data directory, if there is one.
    pub fn running(data: &DataDir) -> Option<Running> {
        for _ in 0..TRIES {
            match look(data) {
                Look::Free => return None,
                Look::Held(Some(running)) => return Some(running),
                Look::Held(None) => {}
            }
            std::thread::sleep(PAUSE);
        }
        None
    }

    /// Writes one line with one write and truncates after it, so that a reader finds a complete object or none.
    fn write(&self) -> io::Result<()> {
        let text = serde_json::to_string(&self.running)?;
        self.file.set_len(0)?;
        self.file.write_all_at(text.as_bytes(), 0)
    }
}

impl Drop for GatewayLock {
    fn drop(&mut self) {
        // Emptied before the lock is released, so that the next holder is never mistaken for this one.
        let _ = self.file.set_len(0);
    }
}

/// The result of one check of the lock.
enum Look {
    Free,
    /// Held by a gateway that may not have written its identity yet.
    Held(Option<Running>),
}

fn look(data: &DataDir) -> Look {
    let Ok(file) = File::open(data.gateway_lock()) else { return Look::Free };
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return Look::Free;
    }
    let mut text = String::new();
    if file.take(MAX_INFO_BYTES).read_to_string(&mut text).is_err() {
        return Look::Held(None);
    }
    // Content read before the holder has written may come from a dead gateway.
    let running = serde_json::from_str::<Running>(&text).ok();
    Look::Held(running.filter(|running| is_alive(running.pid)))
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    // EPERM means that the process is alive and belongs to another user.
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

fn at(url: &str) -> String {
    if url.is_empty() { String::new() } else { format!(" at {url}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me(url: &str) -> Running {
        Running { pid: std::process::id(), url: url.into(), started: 7, key: None }
    }

    #[test]
    fn second_gateway_is_rejected_with_the_identity_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        assert_eq!(GatewayLock::running(&data), None);
        let mut lock = GatewayLock::take(&data, me("")).unwrap();
        lock.announce("http://127.0.0.1:7770", None).unwrap();
        assert_eq!(GatewayLock::running(&data), Some(me("http://127.0.0.1:7770")));
        let err = GatewayLock::take(&data, me("")).unwrap_err();
        assert!(
            matches!(&err, GatewayLockError::AlreadyRunning { url, .. } if url == "http://127.0.0.1:7770")
        );
        assert!(err.to_string().ends_with("at http://127.0.0.1:7770"), "{err}");
        drop(lock);
        assert_eq!(GatewayLock::running(&data), None);
        GatewayLock::take(&data, me("")).unwrap();
    }

    /// The content of a killed gateway is ignored, both while the lock is free and before the next holder has written.
    #[test]
    fn content_of_a_dead_gateway_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        data.create().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let dead = Running { pid: child.id(), url: "http://old".into(), started: 1, key: None };
        std::fs::write(data.gateway_lock(), serde_json::to_string(&dead).unwrap()).unwrap();
        assert_eq!(GatewayLock::running(&data), None);
        let silent = File::open(data.gateway_lock()).unwrap();
        flock(&silent, FlockOperation::LockExclusive).unwrap();
        assert_eq!(GatewayLock::running(&data), None);
        assert!(matches!(GatewayLock::take(&data, me("x")), Err(GatewayLockError::Starting)));
        drop(silent);
        let _lock = GatewayLock::take(&data, me("http://new")).unwrap();
        assert_eq!(GatewayLock::running(&data), Some(me("http://new")));
    }

    #[test]
    fn checking_the_lock_does_not_block_a_gateway() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        data.create().unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        GatewayLock::running(&data);
                        std::thread::sleep(Duration::from_micros(200));
                    }
                });
            }
            let taken: Vec<_> = (0..50).filter(|_| GatewayLock::take(&data, me("x")).is_err()).collect();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(taken, Vec::<i32>::new());
        });
    }
}
