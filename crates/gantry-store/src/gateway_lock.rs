//! Which gateway runs on a data directory: one at a time, known by a lock that dies with its process.
//!
//! The file's content counts only while the lock is held, so nothing stale can be believed.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::DataDir;

/// A look at the lock takes it for a moment, and a gateway writes who it is a moment after it took it.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(10);
const MAX_INFO_BYTES: u64 = 64 * 1024;

/// A gateway at work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    pub pid: u32,
    /// Where it listens; empty until it does.
    pub url: String,
    /// Milliseconds since 1970.
    pub started: i64,
    /// The fingerprint of its certificate, by which commands on this directory know it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// Held by a gateway as long as it runs.
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
    /// Takes the lock, or names who has it.
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

    /// Says where the gateway listens, and with which certificate.
    pub fn announce(&mut self, url: &str, certificate: Option<String>) -> io::Result<()> {
        url.clone_into(&mut self.running.url);
        self.running.certificate = certificate;
        self.write()
    }

    /// The gateway that runs on a data directory, if one does.
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

    /// One write of one line, the rest cut after it: a reader finds a whole object, or none.
    fn write(&self) -> io::Result<()> {
        let text = serde_json::to_string(&self.running)?;
        self.file.set_len(0)?;
        self.file.write_all_at(text.as_bytes(), 0)
    }
}

impl Drop for GatewayLock {
    fn drop(&mut self) {
        // Emptied before the lock goes, so that the next holder is never taken for this one.
        let _ = self.file.set_len(0);
    }
}

/// What one look at the lock tells.
enum Look {
    Free,
    /// By one that may not have said yet who it is.
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
    // What is read before the holder has written may be from one that died.
    let running = serde_json::from_str::<Running>(&text).ok();
    Look::Held(running.filter(|running| is_alive(running.pid)))
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    // A process of another user answers EPERM, and is alive.
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

fn at(url: &str) -> String {
    if url.is_empty() { String::new() } else { format!(" at {url}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me(url: &str) -> Running {
        Running { pid: std::process::id(), url: url.into(), started: 7, certificate: None }
    }

    #[test]
    fn one_at_a_time_and_the_second_is_told_who() {
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

    /// What a killed gateway left says nothing: neither while nobody holds the lock, nor before the next one has spoken.
    #[test]
    fn what_a_dead_gateway_left_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        data.create().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let dead = Running { pid: child.id(), url: "http://old".into(), started: 1, certificate: None };
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
    fn looking_does_not_keep_anyone_out() {
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
