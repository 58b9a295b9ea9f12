//! The append-only audit log: numbered lines chained by a keyed hash, one writer at a time.
//!
//! Beside the log lies a sealed head: the number and hash of a line known to be on disk. The log may be longer than
//! the head says, never shorter; that is how a cut tail is found. Reading and verifying is `audit_read`.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gantry_tool::{AuditError, AuditRecord, AuditSink, Durability};
use rustix::fs::{FlockOperation, flock};

/// Lines that need not be on disk at once are there this long after they were written, plus one sync.
const SYNC_WITHIN: Duration = Duration::from_millis(30);
/// The head holds two slots, written in turn: a torn write spoils one of them at most.
const SLOT_BYTES: usize = 256;
/// A line is bounded by the gate; one longer than this in the tail is damage, not a line.
const LONGEST_LINE: u64 = 1 << 20;

pub(crate) const NO_MAC: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The writer. Opening it makes the key (mode 0600) and the log at first use.
pub struct AuditLog {
    shared: Arc<Shared>,
    wake: Option<SyncSender<()>>,
    syncer: Option<JoinHandle<()>>,
}

struct Shared {
    log: File,
    head: File,
    lock: File,
    key: Key,
    tail: Mutex<Tail>,
}

/// Where the log ends, as far as this process has seen.
#[derive(Debug, Clone)]
struct Tail {
    length: u64,
    seq: u64,
    mac: String,
    /// The newest line known to be on disk.
    synced: u64,
}

impl AuditLog {
    pub fn open(path: &Path) -> io::Result<AuditLog> {
        let options = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            options
        };
        let lock = options().open(path.with_extension("lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let key = Key::load_or_make(path)?;
        let shared = Shared {
            log: options().append(true).open(path)?,
            head: options().open(path.with_extension("head"))?,
            key,
            tail: Mutex::new(Tail { length: 0, seq: 0, mac: NO_MAC.to_owned(), synced: 0 }),
            lock,
        };
        let opened = shared.recover();
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
    fn append(&self, record: &AuditRecord, durability: Durability) -> Result<(), AuditError> {
        let failed = |err: io::Error| AuditError(err.to_string());
        let record = serde_json::to_value(record).map_err(|err| AuditError(err.to_string()))?;
        self.shared.append(record).map_err(failed)?;
        match durability {
            Durability::Now => self.shared.sync().map_err(failed),
            Durability::Soon => match self.wake.as_ref().map(|wake| wake.try_send(())) {
                Some(Ok(()) | Err(TrySendError::Full(()))) => Ok(()),
                // The syncing thread is gone: then this line is synced here.
                Some(Err(TrySendError::Disconnected(()))) | None => self.shared.sync().map_err(failed),
            },
        }
    }

    fn flush(&self) -> Result<(), AuditError> {
        self.shared.sync().map_err(|err| AuditError(err.to_string()))
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
    fn append(&self, record: serde_json::Value) -> io::Result<()> {
        let mut tail = self.tail();
        flock(&self.lock, FlockOperation::LockExclusive)?;
        let appended = self.catch_up(&mut tail).and_then(|()| self.write_line(&mut tail, record));
        flock(&self.lock, FlockOperation::Unlock)?;
        appended
    }

    fn write_line(&self, tail: &mut Tail, record: serde_json::Value) -> io::Result<()> {
        let seq = tail.seq + 1;
        let (line, mac) = self.key.line(seq, &tail.mac, record)?;
        if let Err(err) = (&self.log).write_all(line.as_bytes()) {
            // Half a line must not stay: the next one would be glued to it.
            self.log.set_len(tail.length)?;
            return Err(err);
        }
        *tail = Tail { length: tail.length + line.len() as u64, seq, mac, synced: tail.synced };
        Ok(())
    }

    /// Reads on when another process has appended since.
    fn catch_up(&self, tail: &mut Tail) -> io::Result<()> {
        let length = self.log.metadata()?.len();
        if length != tail.length {
            let (seq, mac) = last_line(&self.log, length)?.unwrap_or_else(|| (0, NO_MAC.to_owned()));
            *tail = Tail { length, seq, mac, synced: tail.synced };
        }
        Ok(())
    }

    /// At start: a last line without its end is what a crash left of a line nobody was told about. It is removed,
    /// and the log says so.
    fn recover(&self) -> io::Result<()> {
        let mut tail = self.tail();
        let length = self.log.metadata()?.len();
        let whole = end_of_last_line(&self.log, length)?;
        if whole < length {
            self.log.set_len(whole)?;
            self.catch_up(&mut tail)?;
            let note = serde_json::json!({"phase": "recovered", "droppedBytes": length - whole});
            return self.write_line(&mut tail, note);
        }
        self.catch_up(&mut tail)
    }

    /// Puts the log on disk, then moves the head up to what is there.
    fn sync(&self) -> io::Result<()> {
        let (seq, mac) = {
            let tail = self.tail();
            if tail.synced >= tail.seq {
                return Ok(());
            }
            (tail.seq, tail.mac.clone())
        };
        self.log.sync_data()?;
        let mut tail = self.tail();
        tail.synced = tail.synced.max(seq);
        flock(&self.lock, FlockOperation::LockExclusive)?;
        let moved = self.key.advance_head(&self.head, seq, &mac);
        flock(&self.lock, FlockOperation::Unlock)?;
        moved
    }

    fn keep_synced(&self, woken: &Receiver<()>) {
        while woken.recv().is_ok() {
            // Calls that follow within the window share one sync; the end of the log ends the wait.
            let until = Instant::now() + SYNC_WITHIN;
            while woken.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
            // A failing disk shows at the next append, which is refused; there is nobody to tell here.
            let _ = self.sync();
        }
        let _ = self.sync();
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The secret of the chain, and what is made with it.
pub(crate) struct Key([u8; 32]);

impl Key {
    pub(crate) fn path(log: &Path) -> PathBuf {
        log.with_extension("key")
    }

    pub(crate) fn load(log: &Path) -> io::Result<Key> {
        let mut bytes = [0; 32];
        let mut file = File::open(Key::path(log))?;
        file.read_exact(&mut bytes)?;
        Ok(Key(bytes))
    }

    fn load_or_make(log: &Path) -> io::Result<Key> {
        match Key::load(log) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                let mut bytes = [0; 32];
                File::open("/dev/urandom")?.read_exact(&mut bytes)?;
                crate::data_dir::replace_private(&Key::path(log), &bytes)?;
                Ok(Key(bytes))
            }
            loaded => loaded,
        }
    }

    /// The line for a record, and its hash, which covers the line before it.
    fn line(&self, seq: u64, previous: &str, record: serde_json::Value) -> io::Result<(String, String)> {
        let mut object = serde_json::Map::new();
        object.insert("seq".into(), seq.into());
        object.insert("at".into(), jiff::Timestamp::now().to_string().into());
        if let serde_json::Value::Object(fields) = record {
            object.extend(fields);
        }
        let mut line = serde_json::to_string(&object)?;
        let mac = self.mac(previous, &line);
        line.truncate(line.len() - 1);
        line.push_str(&format!(",\"mac\":\"{mac}\"}}\n"));
        Ok((line, mac))
    }

    /// The hash of a line's body (the object without its `mac`) after the line whose hash is `previous`.
    pub(crate) fn mac(&self, previous: &str, body: &str) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(previous.as_bytes()).update(body.as_bytes());
        hasher.finalize().to_hex().to_string()
    }

    /// The newest sealed head; `None` for an empty head file, an error when neither slot is genuine.
    pub(crate) fn read_head(&self, head: &File) -> Result<Option<(u64, String)>, HeadForged> {
        let mut bytes = [0; 2 * SLOT_BYTES];
        let mut filled = 0;
        while let Ok(read) = head.read_at(&mut bytes[filled..], filled as u64) {
            filled += read;
            if read == 0 || filled == bytes.len() {
                break;
            }
        }
        if filled == 0 {
            return Ok(None);
        }
        let newest =
            bytes.chunks(SLOT_BYTES).filter_map(|slot| self.open_slot(slot)).max_by_key(|(seq, _)| *seq);
        newest.map(Some).ok_or(HeadForged)
    }

    fn advance_head(&self, head: &File, seq: u64, mac: &str) -> io::Result<()> {
        let current = self.read_head(head).ok().flatten().map_or(0, |(seq, _)| seq);
        if seq <= current {
            return Ok(());
        }
        let slot = self.seal(seq, mac);
        let offset = if self.slot_of(head, current) == 0 { SLOT_BYTES } else { 0 };
        head.write_all_at(&slot, offset as u64)
    }

    /// Which slot holds `seq`, so that the other one is written next.
    fn slot_of(&self, head: &File, seq: u64) -> usize {
        let mut second = [0; SLOT_BYTES];
        let read = head.read_exact_at(&mut second, SLOT_BYTES as u64);
        match read.ok().and_then(|()| self.open_slot(&second)) {
            Some((found, _)) if found == seq => 1,
            _ => 0,
        }
    }

    fn seal(&self, seq: u64, mac: &str) -> Vec<u8> {
        let seal = self.mac("head", &format!("{seq} {mac}"));
        let mut slot = format!("{seq} {mac} {seal}\n").into_bytes();
        slot.resize(SLOT_BYTES, b' ');
        slot
    }

    fn open_slot(&self, slot: &[u8]) -> Option<(u64, String)> {
        let text = std::str::from_utf8(slot).ok()?.trim();
        let mut words = text.split(' ');
        let (seq, mac, seal) = (words.next()?, words.next()?, words.next()?);
        (self.mac("head", &format!("{seq} {mac}")) == seal)
            .then(|| Some((seq.parse().ok()?, mac.to_owned())))?
    }
}

/// The head file is there and neither of its slots is sealed with this key.
#[derive(Debug)]
pub(crate) struct HeadForged;

/// Where the last whole line ends.
fn end_of_last_line(log: &File, length: u64) -> io::Result<u64> {
    let window = length.min(LONGEST_LINE);
    let bytes = read_at(log, length - window, window)?;
    Ok(match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(at) => length - window + at as u64 + 1,
        None => length - window,
    })
}

/// Number and hash of the last line.
fn last_line(log: &File, length: u64) -> io::Result<Option<(u64, String)>> {
    if length == 0 {
        return Ok(None);
    }
    let window = length.min(LONGEST_LINE);
    let bytes = read_at(log, length - window, window)?;
    let line =
        bytes.strip_suffix(b"\n").unwrap_or(&bytes).rsplit(|byte| *byte == b'\n').next().unwrap_or(&bytes);
    #[derive(serde::Deserialize)]
    struct Ends {
        seq: u64,
        mac: String,
    }
    let ends: Ends = serde_json::from_slice(line).map_err(|err| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("its last line is damaged ({err}); run `gantry audit verify`"),
        )
    })?;
    Ok(Some((ends.seq, ends.mac)))
}

fn read_at(mut log: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    log.seek(SeekFrom::Start(offset))?;
    log.read_exact(&mut bytes)?;
    Ok(bytes)
}
