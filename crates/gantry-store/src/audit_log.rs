//! The append-only audit log: numbered lines chained by a keyed hash, one writer at a time.
//!
//! A sealed head next to the log holds the number and hash of a line known to be on disk. The log may be longer than
//! the head says, never shorter; this reveals a truncated log. A full file is renamed and the chain continues in a
//! new one (`audit_rotation`). Retention removes old files (`audit_retention`). `audit_read` reads and verifies.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gantry_tool::{AuditError, AuditRecord, AuditSink, Durability, Phase};
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};

use crate::audit_files::{end_of_last_line, last_line, sync_folder};
use crate::audit_key::{Key, LineHead, Link, SealBroken};
use crate::audit_rotation::FileId;

/// Lines with `Durability::Soon` are on disk after this time plus one sync.
const SYNC_WITHIN: Duration = Duration::from_millis(30);
/// Deferred lines are written after this time.
const WRITE_WITHIN: Duration = Duration::from_millis(5);
/// The most bytes of lines that may wait to be written.
const MAX_UNWRITTEN: usize = 1 << 16;
/// The most records that may wait to be formatted as lines.
const MAX_PUT_OFF: usize = 64;
/// After releasing the lock, this process takes it for single lines only for this long, so that others get it too.
const REST: Duration = Duration::from_millis(2);
/// How often retention looks for old files.
const RETENTION_PAUSE: Duration = Duration::from_secs(3600);

/// The size limit of the log's files, and how long they are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditLimits {
    /// A file of this size is closed, and a new one is started.
    pub max_file_bytes: u64,
    /// A full file whose last line is older is removed; `None` keeps all.
    pub keep: Option<Duration>,
}

impl Default for AuditLimits {
    fn default() -> AuditLimits {
        AuditLimits { max_file_bytes: 64 << 20, keep: Some(Duration::from_secs(90 * 24 * 3600)) }
    }
}

/// The writer. Opening it creates the key (mode 0600) and the log if they are missing.
pub struct AuditLog {
    shared: Arc<Shared>,
    wake: Option<SyncSender<()>>,
    syncer: Option<JoinHandle<()>>,
}

pub(crate) struct Shared {
    pub(crate) path: PathBuf,
    pub(crate) limits: AuditLimits,
    pub(crate) head: File,
    lock: File,
    pub(crate) key: Key,
    tail: Mutex<Tail>,
    /// The sync thread was notified of unsynced lines.
    due: AtomicBool,
}

/// The end of the log, as far as this process has read it.
#[derive(Debug)]
pub(crate) struct Tail {
    /// The current file, as this process knows it.
    pub(crate) log: Arc<File>,
    pub(crate) file: FileId,
    pub(crate) length: u64,
    pub(crate) seq: u64,
    pub(crate) mac: String,
    /// The newest line known to be on disk.
    pub(crate) synced: u64,
    /// A file shorter than this is not closed. It exceeds the limit after a failed attempt.
    pub(crate) rotate_from: u64,
    /// A file was closed since retention last ran.
    pub(crate) rotated: bool,
    /// Records that wait to be formatted as lines, ahead of all later records. Only while the lock is kept.
    put_off: Vec<(Timestamp, AuditRecord)>,
    /// Lines that wait to be written with the next one. Only while the lock is kept, because their numbers are assigned.
    unwritten: Vec<u8>,
    /// A waiting line records the begin of a call. It is written before any end is accepted.
    begins: bool,
    /// Writing the waiting lines failed, so no more lines are deferred.
    stuck: bool,
    /// The lock is kept between lines, until the next sync.
    pub(crate) held: bool,
    /// The lock is not kept again before this time.
    rest_until: Instant,
    /// Why appending is refused: after a failed sync the state on disk is unknown.
    pub(crate) broken: Option<String>,
}

impl AuditLog {
    pub fn open(path: &Path) -> io::Result<AuditLog> {
        AuditLog::open_with(path, AuditLimits::default())
    }

    pub fn open_with(path: &Path, limits: AuditLimits) -> io::Result<AuditLog> {
        let options = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            options
        };
        let lock = options().open(path.with_extension("lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let (key, made) = Key::load_or_make(path)?;
        let (log, file) = FileId::open(path)?;
        let none = Link::none();
        let shared = Shared {
            path: path.to_owned(),
            limits,
            head: options().open(path.with_extension("head"))?,
            key,
            tail: Mutex::new(Tail {
                log: Arc::new(log),
                file,
                length: 0,
                seq: none.seq,
                mac: none.mac.clone(),
                synced: 0,
                rotate_from: limits.max_file_bytes,
                rotated: false,
                put_off: Vec::new(),
                unwritten: Vec::new(),
                begins: false,
                stuck: false,
                held: false,
                rest_until: Instant::now(),
                broken: None,
            }),
            lock,
            due: AtomicBool::new(false),
        };
        if made {
            // A head that is missing or empty after this point was removed by somebody.
            shared.key.write_head(&shared.head, none.seq, &none.mac)?;
            sync_folder(path)?;
        }
        let opened = shared.catch_up(&mut shared.tail());
        flock(&shared.lock, FlockOperation::Unlock)?;
        opened?;
        let shared = Arc::new(shared);
        let (wake, woken) = sync_channel(1);
        let for_syncer = shared.clone();
        let syncer = std::thread::Builder::new()
            .name("audit-sync".into())
            .spawn(move || for_syncer.keep_synced(&woken))?;
        Ok(AuditLog { shared, wake: Some(wake), syncer: Some(syncer) })
    }
}

impl AuditSink for AuditLog {
    fn append(&self, record: AuditRecord, durability: Durability) -> Result<(), AuditError> {
        let failed = |err: io::Error| AuditError(err.to_string());
        let left = match durability {
            Durability::Later => self.shared.put_off(record).map_err(failed)?,
            Durability::Now | Durability::Soon => Some(record),
        };
        if let Some(record) = left {
            // Formatted before the lock is taken, to hold the lock as briefly as possible.
            self.shared.append(&record.to_text(), durability).map_err(failed)?;
        }
        match durability {
            Durability::Now => self.shared.sync().map_err(failed),
            // One wake-up per window: waking the thread for every call would cost every call a context switch.
            _ if self.shared.due.swap(true, Ordering::AcqRel) => Ok(()),
            Durability::Soon | Durability::Later => match self.wake.as_ref().map(|wake| wake.try_send(())) {
                Some(Ok(()) | Err(TrySendError::Full(()))) => Ok(()),
                // The sync thread has ended, so this line is synced here.
                Some(Err(TrySendError::Disconnected(()))) | None => {
                    self.shared.let_go().and_then(|()| self.shared.sync()).map_err(failed)
                }
            },
        }
    }

    fn settle(&self) {
        let mut tail = self.shared.tail();
        settle(&self.shared.key, &mut tail);
        if tail.begins {
            // A failed write is retried when the call ends, and reported then.
            let _ = self.shared.write_out(&mut tail);
        }
    }

    fn flush(&self) -> Result<(), AuditError> {
        self.shared.let_go().and_then(|()| self.shared.sync()).map_err(|err| AuditError(err.to_string()))
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(syncer) = self.syncer.take() {
            let _ = syncer.join();
        }
    }
}

impl Shared {
    /// Defers a record if that is allowed; otherwise returns it.
    fn put_off(&self, record: AuditRecord) -> io::Result<Option<AuditRecord>> {
        let mut tail = self.tail();
        let room = tail.put_off.len() < MAX_PUT_OFF && tail.unwritten.len() < MAX_UNWRITTEN;
        if !tail.held || !room || tail.stuck || tail.broken.is_some() {
            return Ok(Some(record));
        }
        let begins = record.phase == Phase::Begin;
        tail.put_off.push((Timestamp::now(), record));
        if begins {
            tail.begins = true;
        } else if tail.begins {
            self.write_out(&mut tail)?;
        }
        Ok(None)
    }

    fn append(&self, fields: &str, durability: Durability) -> io::Result<()> {
        let mut tail = self.tail();
        if !tail.held {
            flock(&self.lock, FlockOperation::LockExclusive)?;
        }
        let appended = self
            .catch_up(&mut tail)
            .and_then(|()| self.rotate_if_full(&mut tail))
            .and_then(|()| self.write_line(&mut tail, fields));
        // More lines usually follow before the next sync, so the sync thread releases the lock for all of them.
        let keep = durability != Durability::Now && appended.is_ok();
        tail.held = tail.held || keep && Instant::now() >= tail.rest_until;
        if !tail.held {
            flock(&self.lock, FlockOperation::Unlock)?;
        }
        appended
    }

    /// Runs `work` on the end of the log while no other process appends.
    pub(crate) fn locked<T>(&self, work: impl FnOnce(&mut Tail) -> io::Result<T>) -> io::Result<T> {
        let mut tail = self.tail();
        if !tail.held {
            flock(&self.lock, FlockOperation::LockExclusive)?;
        }
        let done = self.catch_up(&mut tail).and_then(|()| work(&mut tail));
        if !tail.held {
            flock(&self.lock, FlockOperation::Unlock)?;
        }
        done
    }

    /// Releases the lock, so that other processes may append.
    fn let_go(&self) -> io::Result<()> {
        let mut tail = self.tail();
        let written = self.write_out(&mut tail);
        // Lines that could not be written keep their numbers and therefore the lock; the next append retries.
        if written.is_ok() && std::mem::take(&mut tail.held) {
            tail.rest_until = Instant::now() + REST;
            flock(&self.lock, FlockOperation::Unlock)?;
        }
        written
    }

    /// Appends a line after all deferred ones. A line that cannot be written leaves no trace.
    pub(crate) fn write_line(&self, tail: &mut Tail, fields: &str) -> io::Result<()> {
        settle(&self.key, tail);
        let before = (tail.unwritten.len(), tail.seq, tail.mac.clone());
        add_line(&self.key, tail, Timestamp::now(), fields);
        let written = self.write_out(tail);
        if written.is_err() {
            tail.unwritten.truncate(before.0);
            (tail.seq, tail.mac) = (before.1, before.2);
        }
        written
    }

    pub(crate) fn write_out(&self, tail: &mut Tail) -> io::Result<()> {
        settle(&self.key, tail);
        if tail.unwritten.is_empty() {
            return Ok(());
        }
        let written = (&*tail.log).write_all(&tail.unwritten);
        tail.stuck = written.is_err();
        if let Err(err) = written {
            // A partial line is removed, so that the next line is not appended to it.
            tail.log.set_len(tail.length)?;
            return Err(err);
        }
        tail.length += tail.unwritten.len() as u64;
        tail.unwritten.clear();
        tail.begins = false;
        Ok(())
    }

    /// Catches up when the log is not as this process left it: others may have appended or damaged it.
    ///
    /// A partial last line comes from a crash before its append returned. It is removed, and the log records that. A
    /// log shorter than its head was truncated: numbering continues after the head, so that the gap stays visible.
    fn catch_up(&self, tail: &mut Tail) -> io::Result<()> {
        if let Some(reason) = &tail.broken {
            return Err(io::Error::other(reason.clone()));
        }
        if !tail.unwritten.is_empty() {
            // Numbers are assigned already; changes of the file are checked after these lines are written.
            return Ok(());
        }
        let length = match tail.held {
            // No other process can have closed the file meanwhile.
            true => tail.log.metadata()?.len(),
            false => self.follow_rotation(tail)?,
        };
        if length == tail.length && length > 0 {
            return Ok(());
        }
        let whole = end_of_last_line(&tail.log, length)?;
        if whole < length {
            tail.log.set_len(whole)?;
        }
        let last = match last_line(&tail.log, whole)? {
            Some((last, _)) => last,
            None => self.before_the_file()?,
        };
        (tail.length, tail.seq, tail.mac) = (whole, last.seq, last.mac);
        match self.key.read_head(&self.head) {
            Ok(head) if head.seq > tail.seq => (tail.seq, tail.mac) = (head.seq, head.mac),
            Ok(_) => {}
            // Without a valid head it is unknown what is missing; a skipped number marks that something may be.
            Err(SealBroken) => {
                tail.seq = tail.seq.saturating_add(1);
                self.key.write_head(&self.head, tail.seq, &tail.mac)?;
            }
        }
        if whole < length {
            let note = serde_json::json!({"phase": "recovered", "droppedBytes": length - whole});
            return self.write_line(tail, &note.to_string());
        }
        Ok(())
    }

    /// Syncs the log, then moves the head to the last synced line.
    fn sync(&self) -> io::Result<()> {
        let (seq, mac, log) = {
            let mut tail = self.tail();
            self.write_out(&mut tail)?;
            if tail.synced >= tail.seq {
                return Ok(());
            }
            // A file that is closed meanwhile was synced before.
            (tail.seq, tail.mac.clone(), tail.log.clone())
        };
        if let Err(err) = log.sync_data() {
            self.tail().broken = Some(unsynced(&err));
            return Err(err);
        }
        let mut tail = self.tail();
        tail.synced = tail.synced.max(seq);
        if tail.held {
            return self.key.advance_head(&self.head, seq, &mac);
        }
        flock(&self.lock, FlockOperation::LockExclusive)?;
        let moved = self.key.advance_head(&self.head, seq, &mac);
        flock(&self.lock, FlockOperation::Unlock)?;
        moved
    }

    fn keep_synced(&self, woken: &Receiver<()>) {
        let mut retained: Option<Instant> = None;
        while woken.recv().is_ok() {
            // Calls that follow within the window share one sync; the end of the log ends the wait.
            let _ = woken.recv_timeout(WRITE_WITHIN);
            let _ = self.write_out(&mut self.tail());
            let _ = woken.recv_timeout(SYNC_WITHIN - WRITE_WITHIN);
            // Cleared before the sync: a line that arrives during the sync needs the next one.
            self.due.store(false, Ordering::Release);
            // A sync error makes the next append fail; this thread has no caller to report it to.
            let _ = self.let_go();
            let _ = self.sync();
            let is_due = retained.is_none_or(|at| at.elapsed() >= RETENTION_PAUSE);
            if std::mem::take(&mut self.tail().rotated) || is_due {
                // A failed removal is retried later.
                let _ = self.remove_old_files(Timestamp::now());
                let _ = self.sync();
                retained = Some(Instant::now());
            }
        }
        let _ = self.sync();
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Formats the deferred records as lines.
fn settle(key: &Key, tail: &mut Tail) {
    let mut put_off = std::mem::take(&mut tail.put_off);
    for (at, record) in put_off.drain(..) {
        add_line(key, tail, at, &record.to_text());
    }
    tail.put_off = put_off;
}

fn add_line(key: &Key, tail: &mut Tail, at: Timestamp, fields: &str) {
    tail.seq = tail.seq.saturating_add(1);
    let head = LineHead { seq: tail.seq, previous: &tail.mac, at };
    tail.mac = key.line(head, fields, &mut tail.unwritten);
}

/// The error of a log that accepts no more lines.
pub(crate) fn unsynced(err: &io::Error) -> String {
    format!("it could not be put on disk earlier: {err}")
}
