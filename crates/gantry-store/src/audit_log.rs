//! The append-only audit log: numbered lines chained by a keyed hash, one writer at a time.
//!
//! Beside the log lies a sealed head: the number and hash of a line known to be on disk. The log may be longer than
//! the head says, never shorter; that is how a cut tail is found. Reading and verifying is `audit_read`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gantry_tool::{AuditError, AuditRecord, AuditSink, Durability, Phase};
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};

use crate::clock::Clock;

/// Lines that need not be on disk at once are there this long after they were written, plus one sync.
const SYNC_WITHIN: Duration = Duration::from_millis(30);
/// Lines that need not be written at once are written this long after.
const WRITE_WITHIN: Duration = Duration::from_millis(5);
/// More than this does not wait to be written.
const MAX_UNWRITTEN: usize = 1 << 16;
/// More records than this do not wait to be made into lines.
const MAX_PUT_OFF: usize = 64;
/// After this process has let go of the lock, it takes it for single lines only for this long, so that others get it too.
const REST: Duration = Duration::from_millis(2);
/// The head is one record well below a disk sector, written in place: it is old or new, never half of each.
const HEAD_BYTES: usize = 256;
/// The log is searched backwards for line ends in windows of this size.
const WINDOW: u64 = 1 << 16;

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
    /// The syncing thread knows that there is something to sync.
    due: AtomicBool,
}

/// Where the log ends, as far as this process has seen.
#[derive(Debug, Clone)]
struct Tail {
    length: u64,
    seq: u64,
    mac: String,
    /// The newest line known to be on disk.
    synced: u64,
    /// Records that wait to be made into lines, before all that comes after them. Only while the lock is kept.
    put_off: Vec<(Timestamp, AuditRecord)>,
    clock: Clock,
    /// Lines that wait to be written with the next one. Only while the lock is kept: their numbers are taken.
    unwritten: Vec<u8>,
    /// Some of what waits says that a call begins: it is written before any call is said to have ended.
    begins: bool,
    /// What waits could not be written when it was last tried: nothing more is put off.
    stuck: bool,
    /// The lock is kept between lines, until the next sync.
    held: bool,
    /// Not before then is it kept again.
    rest_until: Instant,
    /// Why nothing may be appended any more: after a failed sync nobody knows what is on disk.
    broken: Option<String>,
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
        let (key, made) = Key::load_or_make(path)?;
        let shared = Shared {
            log: options().append(true).open(path)?,
            head: options().open(path.with_extension("head"))?,
            key,
            tail: Mutex::new(Tail {
                length: 0,
                seq: 0,
                mac: NO_MAC.to_owned(),
                synced: 0,
                put_off: Vec::new(),
                clock: Clock::default(),
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
            // From here on a head that is missing or empty was taken away.
            shared.key.write_head(&shared.head, 0, NO_MAC)?;
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
            // Made before the lock is taken, so that it is held for as short as can be.
            self.shared.append(&record.to_text(), durability).map_err(failed)?;
        }
        match durability {
            Durability::Now => self.shared.sync().map_err(failed),
            // One wake-up a window: a thread that is woken by every call costs every call a switch.
            _ if self.shared.due.swap(true, Ordering::AcqRel) => Ok(()),
            Durability::Soon | Durability::Later => match self.wake.as_ref().map(|wake| wake.try_send(())) {
                Some(Ok(()) | Err(TrySendError::Full(()))) => Ok(()),
                // The syncing thread is gone: then this line is synced here.
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
            // What cannot be written is tried again, and told, when the call ends.
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
    /// Keeps a record for later, where that may be; else it is given back.
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
        let appended = self.catch_up(&mut tail).and_then(|()| self.write_line(&mut tail, fields));
        // A line that is synced soon is rarely the last before that: the syncing thread lets go for all of them.
        let keep = durability != Durability::Now && appended.is_ok();
        tail.held = tail.held || keep && Instant::now() >= tail.rest_until;
        if !tail.held {
            flock(&self.lock, FlockOperation::Unlock)?;
        }
        appended
    }

    /// Others may append.
    fn let_go(&self) -> io::Result<()> {
        let mut tail = self.tail();
        let written = self.write_out(&mut tail);
        // Lines that could not be written keep their numbers, and so the lock: the next append tries again.
        if written.is_ok() && std::mem::take(&mut tail.held) {
            tail.rest_until = Instant::now() + REST;
            flock(&self.lock, FlockOperation::Unlock)?;
        }
        written
    }

    /// Appends a line and what waited before it. A line that cannot be written is as if it had never been.
    fn write_line(&self, tail: &mut Tail, fields: &str) -> io::Result<()> {
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

    fn write_out(&self, tail: &mut Tail) -> io::Result<()> {
        settle(&self.key, tail);
        if tail.unwritten.is_empty() {
            return Ok(());
        }
        let written = (&self.log).write_all(&tail.unwritten);
        tail.stuck = written.is_err();
        if let Err(err) = written {
            // Half a line must not stay: the next one would be glued to it.
            self.log.set_len(tail.length)?;
            return Err(err);
        }
        tail.length += tail.unwritten.len() as u64;
        tail.unwritten.clear();
        tail.begins = false;
        Ok(())
    }

    /// Reads on when the log is not as this process left it: others append, and some do worse.
    ///
    /// A last line without its end is what a crash left of a line nobody was told about: it is removed, and the log says
    /// so. A log shorter than its head says was cut: numbering goes on behind the head, so that the gap stays to be seen.
    fn catch_up(&self, tail: &mut Tail) -> io::Result<()> {
        if let Some(reason) = &tail.broken {
            return Err(io::Error::other(reason.clone()));
        }
        if !tail.unwritten.is_empty() {
            // Numbers are taken: what happened to the file meanwhile is looked at after they are written.
            return Ok(());
        }
        let length = self.log.metadata()?.len();
        if length == tail.length && length > 0 {
            return Ok(());
        }
        let whole = end_of_last_line(&self.log, length)?;
        if whole < length {
            self.log.set_len(whole)?;
        }
        let last = last_line(&self.log, whole)?.unwrap_or_else(|| (0, NO_MAC.to_owned()));
        (tail.length, (tail.seq, tail.mac)) = (whole, last);
        match self.key.read_head(&self.head) {
            Ok((seq, mac)) if seq > tail.seq => (tail.seq, tail.mac) = (seq, mac),
            Ok(_) => {}
            // Without a genuine head nobody can say what is missing; a number left out says that something may be.
            Err(HeadForged) => {
                tail.seq += 1;
                self.key.write_head(&self.head, tail.seq, &tail.mac)?;
            }
        }
        if whole < length {
            let note = serde_json::json!({"phase": "recovered", "droppedBytes": length - whole});
            return self.write_line(tail, &note.to_string());
        }
        Ok(())
    }

    /// Puts the log on disk, then moves the head up to what is there.
    fn sync(&self) -> io::Result<()> {
        let (seq, mac) = {
            let mut tail = self.tail();
            self.write_out(&mut tail)?;
            if tail.synced >= tail.seq {
                return Ok(());
            }
            (tail.seq, tail.mac.clone())
        };
        if let Err(err) = self.log.sync_data() {
            self.tail().broken = Some(format!("it could not be put on disk earlier: {err}"));
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
        while woken.recv().is_ok() {
            // Calls that follow within the window share one sync; the end of the log ends the wait.
            let _ = woken.recv_timeout(WRITE_WITHIN);
            let _ = self.write_out(&mut self.tail());
            let _ = woken.recv_timeout(SYNC_WITHIN - WRITE_WITHIN);
            // Before the sync: a line that comes during it needs the next one.
            self.due.store(false, Ordering::Release);
            // A failing disk shows at the next append, which is refused; there is nobody to tell here.
            let _ = self.let_go();
            let _ = self.sync();
        }
        let _ = self.sync();
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes lines of the records that were put off.
fn settle(key: &Key, tail: &mut Tail) {
    let mut put_off = std::mem::take(&mut tail.put_off);
    for (at, record) in put_off.drain(..) {
        add_line(key, tail, at, &record.to_text());
    }
    tail.put_off = put_off;
}

fn add_line(key: &Key, tail: &mut Tail, at: Timestamp, fields: &str) {
    tail.seq += 1;
    let head = LineHead { seq: tail.seq, previous: &tail.mac, at };
    tail.mac = key.line(head, &mut tail.clock, fields, &mut tail.unwritten);
}

/// What a line begins with, and the hash of the one before it.
struct LineHead<'a> {
    seq: u64,
    previous: &'a str,
    at: Timestamp,
}

/// The secret of the chain, and what is made with it.
pub(crate) struct Key([u8; 32]);

impl Key {
    pub(crate) fn path(log: &Path) -> PathBuf {
        log.with_extension("key")
    }

    pub(crate) fn load(log: &Path) -> io::Result<Key> {
        let (path, mut bytes) = (Key::path(log), [0; 32]);
        crate::data_dir::open_file(&path)?.read_exact(&mut bytes).map_err(|err| match err.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other(format!(
                "{} is too short to be the key of the audit log; put the right one back (a new key, made when the file is \
                 removed, does not verify the lines that are there)",
                path.display()
            )),
            _ => err,
        })?;
        Ok(Key(bytes))
    }

    /// The key, and whether it was made just now.
    fn load_or_make(log: &Path) -> io::Result<(Key, bool)> {
        match Key::load(log) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                let mut bytes = [0; 32];
                File::open("/dev/urandom")?.read_exact(&mut bytes)?;
                crate::data_dir::replace_private(&Key::path(log), &bytes)?;
                Ok((Key(bytes), true))
            }
            loaded => Ok((loaded?, false)),
        }
    }

    /// Adds the line for a record and returns its hash, which covers the line before it. `fields` is a JSON object that is
    /// not empty.
    fn line(&self, head: LineHead<'_>, clock: &mut Clock, fields: &str, lines: &mut Vec<u8>) -> String {
        let LineHead { seq, previous, at } = head;
        let start = lines.len();
        let (mut number, at) = (itoa::Buffer::new(), clock.spell(at));
        for part in ["{\"seq\":", number.format(seq), ",\"at\":\"", at, "\",", &fields[1..]] {
            lines.extend_from_slice(part.as_bytes());
        }
        let mac = self.mac(previous, &lines[start..]);
        lines.pop();
        for part in [",\"mac\":\"", &mac, "\"}\n"] {
            lines.extend_from_slice(part.as_bytes());
        }
        mac
    }

    /// The hash of a line's body (the object without its `mac`) after the line whose hash is `previous`.
    pub(crate) fn mac(&self, previous: &str, body: impl AsRef<[u8]>) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(previous.as_bytes()).update(body.as_ref());
        hex(hasher.finalize().as_bytes())
    }

    /// The number and hash the sealed head vouches for.
    pub(crate) fn read_head(&self, head: &File) -> Result<(u64, String), HeadForged> {
        let mut bytes = [0; HEAD_BYTES];
        head.read_exact_at(&mut bytes, 0).map_err(|_| HeadForged)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| HeadForged)?.trim_end();
        let mut words = text.split(' ');
        let (Some(seq), Some(mac), Some(seal)) = (words.next(), words.next(), words.next()) else {
            return Err(HeadForged);
        };
        if self.mac("head", format!("{seq} {mac}")) != seal {
            return Err(HeadForged);
        }
        Ok((seq.parse().map_err(|_| HeadForged)?, mac.to_owned()))
    }

    /// Moves the head up, never down.
    fn advance_head(&self, head: &File, seq: u64, mac: &str) -> io::Result<()> {
        match self.read_head(head) {
            Ok((current, _)) if current >= seq => Ok(()),
            Ok(_) | Err(HeadForged) => self.write_head(head, seq, mac),
        }
    }

    fn write_head(&self, head: &File, seq: u64, mac: &str) -> io::Result<()> {
        let seal = self.mac("head", format!("{seq} {mac}"));
        let mut record = format!("{seq} {mac} {seal}\n").into_bytes();
        record.resize(HEAD_BYTES, b' ');
        head.write_all_at(&record, 0)
    }
}

/// The hash's own way to spell itself takes as long as hashing a line.
fn hex(bytes: &[u8; 32]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 64];
    for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    // Digits are always text.
    std::str::from_utf8(&text).unwrap_or_default().to_owned()
}

/// The head is missing, or not sealed with this key.
#[derive(Debug)]
pub(crate) struct HeadForged;

/// Where the last whole line ends.
fn end_of_last_line(log: &File, length: u64) -> io::Result<u64> {
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(WINDOW);
        let bytes = read_at(log, start, end - start)?;
        if let Some(at) = bytes.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Number and hash of the last line of a log that ends with a whole one.
fn last_line(log: &File, length: u64) -> io::Result<Option<(u64, String)>> {
    #[derive(serde::Deserialize)]
    struct Ends {
        seq: u64,
        mac: String,
    }
    if length == 0 {
        return Ok(None);
    }
    let start = end_of_last_line(log, length - 1)?;
    let line = read_at(log, start, length - start)?;
    let ends: Ends = serde_json::from_slice(&line).map_err(|err| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("its last line is damaged ({err}); run `gantry audit verify`"),
        )
    })?;
    Ok(Some((ends.seq, ends.mac)))
}

fn read_at(log: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    log.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Makes new names in the log's folder last.
fn sync_folder(log: &Path) -> io::Result<()> {
    match log.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
