//! Reads the audit log over all of its files: filtered listing, and verification of the whole chain. It streams and
//! never writes.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::audit_files::{RotatedFile, last_line_of, rotated_files};
use crate::audit_key::{Key, Link, SealBroken};
use crate::audit_rotation::FileId;

/// Problems beyond this many are counted, not described.
const DESCRIBED_PROBLEMS: usize = 100;

/// How long to wait for a writer, which finishes a line much faster.
const WRITER_LIMIT: Duration = Duration::from_secs(2);
const WRITER_PAUSE: Duration = Duration::from_millis(1);

/// Which lines to list. A missing field matches everything.
#[derive(Debug, Default, Clone)]
pub struct AuditFilter {
    /// Part of the tool's name.
    pub tool: Option<String>,
    /// Part of the principal, such as `agent:` or `operator`.
    pub principal: Option<String>,
    pub agent: Option<String>,
    pub status: Option<String>,
    pub call: Option<String>,
    /// RFC 3339. Earlier lines are skipped.
    pub since: Option<jiff::Timestamp>,
    /// A text anywhere in the line, in upper or lower case.
    pub text: Option<String>,
    pub until: Option<jiff::Timestamp>,
    /// Only lines before this number.
    pub before: Option<u64>,
    /// How many of the newest lines to list.
    pub limit: usize,
}

pub type AuditLine = Value;

/// Returns the newest lines that match the filter, oldest first. Reads files from the newest back, as far as needed.
pub fn list(log: &Path, filter: &AuditFilter) -> io::Result<Vec<AuditLine>> {
    let mut newest = VecDeque::new();
    for file in LogFiles::open(log)?.all.into_iter().rev() {
        let room = filter.limit - newest.len();
        let is_over = filter.since.is_some_and(|since| {
            let last = file.rotated.as_ref().and_then(|rotated| last_line_of(&rotated.path).ok().flatten());
            last.and_then(|(_, at)| at).is_some_and(|at| at < since)
        });
        if room == 0 || is_over {
            break;
        }
        let mut found = list_file(file.file, filter, room)?;
        found.append(&mut newest);
        newest = found;
    }
    Ok(newest.into())
}

fn list_file(file: File, filter: &AuditFilter, limit: usize) -> io::Result<VecDeque<AuditLine>> {
    let mut newest = VecDeque::new();
    for line in BufReader::new(file).split(b'\n') {
        let value = audit_line(&line?);
        if filter.lets_through(&value) {
            newest.push_back(value);
            if newest.len() > limit {
                newest.pop_front();
            }
        }
    }
    Ok(newest)
}

/// Calls `visit` with every line that matches the filter, oldest first. The filter's limit is ignored, because lines are not
/// kept.
pub fn visit(log: &Path, filter: &AuditFilter, mut visit: impl FnMut(AuditLine)) -> io::Result<()> {
    for file in LogFiles::open(log)?.all {
        for line in BufReader::new(file.file).split(b'\n') {
            let value = audit_line(&line?);
            if filter.lets_through(&value) {
                visit(value);
            }
        }
    }
    Ok(())
}

/// Parses a line. An invalid line is kept as it is; verification reports what is wrong with it.
fn audit_line(line: &[u8]) -> AuditLine {
    serde_json::from_slice(line)
        .unwrap_or_else(|_| serde_json::json!({"damaged": String::from_utf8_lossy(line)}))
}

/// The open files of a log. A rotation during opening hides none of them.
struct LogFiles {
    /// The oldest first.
    all: Vec<LogFile>,
}

struct LogFile {
    file: File,
    path: PathBuf,
    /// `None` for the current file.
    rotated: Option<RotatedFile>,
}

impl LogFiles {
    /// Opens the current file first. If it is closed meanwhile, it is found again under its new name.
    fn open(log: &Path) -> io::Result<LogFiles> {
        let growing = open_regular(log)?;
        let growing_id =
            growing.as_ref().map(|file| file.metadata().map(|data| FileId::of(&data))).transpose()?;
        let mut all = Vec::new();
        let mut was_closed = false;
        for rotated in rotated_files(log)? {
            // Retention may have removed it meanwhile. The sealed start is read later and records that.
            let Some(file) = open_regular(&rotated.path)? else { continue };
            was_closed |= Some(FileId::of(&file.metadata()?)) == growing_id;
            all.push(LogFile { file, path: rotated.path.clone(), rotated: Some(rotated) });
        }
        if let Some(file) = growing.filter(|_| !was_closed) {
            all.push(LogFile { file, path: log.to_owned(), rotated: None });
        }
        Ok(LogFiles { all })
    }
}

/// Opens the log, if there is one. Pipes and devices are rejected, because reading them would never end.
fn open_regular(log: &Path) -> io::Result<Option<File>> {
    match std::fs::metadata(log) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(io::Error::other("it is not a regular file")),
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(err),
    }
    match File::open(log) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

impl AuditFilter {
    fn lets_through(&self, line: &Value) -> bool {
        let field = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
        let has = |wanted: &Option<String>, name| {
            wanted.as_deref().is_none_or(|wanted| field(name).contains(wanted))
        };
        let is = |wanted: &Option<String>, name| wanted.as_deref().is_none_or(|wanted| field(name) == wanted);
        let recent =
            self.since.is_none_or(|since| field("at").parse::<jiff::Timestamp>().is_ok_and(|at| at >= since));
        let early =
            self.until.is_none_or(|until| field("at").parse::<jiff::Timestamp>().is_ok_and(|at| at < until))
                && self.before.is_none_or(|before| {
                    line.get("seq").and_then(Value::as_u64).is_some_and(|number| number < before)
                });
        early
            && has(&self.tool, "tool")
            && has(&self.principal, "principal")
            && is(&self.agent, "agent")
            && is(&self.status, "status")
            && is(&self.call, "call")
            && recent
            && self
                .text
                .as_deref()
                .is_none_or(|text| line.to_string().to_ascii_lowercase().contains(&text.to_ascii_lowercase()))
    }
}

/// The result of verifying the whole log.
#[derive(Debug, Default)]
pub struct Verification {
    pub lines: u64,
    /// Files that were read.
    pub files: usize,
    /// The last line that retention has removed.
    pub removed_to: u64,
    /// The bytes of a partial last line after a crash. The next writer removes them and records that.
    pub torn_bytes: u64,
    /// The newest line known to have been on disk.
    pub head: Option<u64>,
    pub problems: Vec<Problem>,
    /// The number of problems that are not described.
    pub further_problems: u64,
}

impl Verification {
    pub fn is_intact(&self) -> bool {
        self.problems.is_empty()
    }

    fn report(&mut self, line: u64, kind: ProblemKind) {
        self.report_in("", line, kind);
    }

    fn report_in(&mut self, file: &str, line: u64, kind: ProblemKind) {
        if self.problems.len() < DESCRIBED_PROBLEMS {
            self.problems.push(Problem { file: file.to_owned(), line, kind });
        } else {
            self.further_problems += 1;
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The name of a full file; empty for the current file and for a problem of the whole log.
    pub file: String,
    /// Counted from 1 in the file as it is; 0 for a problem of the whole log.
    pub line: u64,
    pub kind: ProblemKind,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProblemKind {
    #[error("its content was changed")]
    Changed,
    #[error("is not a line of the log: it was inserted or damaged")]
    Unreadable,
    #[error("lines {from} to {to} before it were removed")]
    Removed { from: u64, to: u64 },
    #[error("carries number {found} where {expected} was due: it was inserted or moved")]
    OutOfOrder { found: u64, expected: u64 },
    #[error("the log was cut: it ends at number {last}, and {head} had been written")]
    CutTail { last: u64, head: u64 },
    #[error("line {seq} is not the one the sealed head vouches for: the log was rewritten")]
    Rewritten { seq: u64 },
    #[error("the sealed head is missing or forged")]
    HeadForged,
    #[error("the log is missing; according to its head it had {head} lines")]
    LogMissing { head: u64 },
    #[error("the sealed start is forged, so it is unknown which files retention has removed")]
    StartForged,
    #[error("{bytes} bytes that are not part of a line were appended")]
    Appended { bytes: u64 },
}

/// Whether neither a file of the log nor a sealed head exists.
fn never_written(log: &Path) -> io::Result<bool> {
    let has_head = log.with_extension("head").exists();
    Ok(!has_head && !log.exists() && rotated_files(log)?.is_empty())
}

/// Checks every line against the chain, and the end against the sealed head.
pub fn verify(log: &Path) -> io::Result<Verification> {
    let mut found = Verification::default();
    let key = match Key::load(log) {
        Ok(key) => key,
        Err(err) if err.kind() == io::ErrorKind::NotFound && never_written(log)? => return Ok(found),
        Err(err) => {
            let text = format!("the key {} cannot be read: {err}", Key::path(log).display());
            return Err(io::Error::new(err.kind(), text));
        }
    };
    // The head is read first: lines may be added while we read, and a log may be longer than its head.
    let head =
        File::open(log.with_extension("head")).map_err(|_| SealBroken).and_then(|head| key.read_head(&head));
    // The start is read last: retention moves it before it removes a file.
    let files = LogFiles::open(log)?;
    let start = key.read_start(log).unwrap_or_else(|SealBroken| {
        found.report(0, ProblemKind::StartForged);
        Link::none()
    });
    found.removed_to = start.seq;
    let mut chain = Chain::after(start, head.as_ref().ok().map(|head| head.seq));
    let last = files.all.len().saturating_sub(1);
    for (number, file) in files.all.into_iter().enumerate() {
        // An interrupted removal left this file.
        if file.rotated.as_ref().is_some_and(|rotated| rotated.last <= found.removed_to) {
            continue;
        }
        found.files += 1;
        let name = match &file.rotated {
            Some(_) => file.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            None => String::new(),
        };
        let lock = (number == last).then(|| log.with_extension("lock"));
        follow_chain(&key, file.file, &name, lock.as_deref(), &mut chain, &mut found)?;
    }
    match head {
        Err(SealBroken) => found.report(0, ProblemKind::HeadForged),
        Ok(head) => {
            found.head = Some(head.seq);
            if head.seq > 0 && chain.last.seq < head.seq {
                let kind = match found.lines {
                    0 => ProblemKind::LogMissing { head: head.seq },
                    _ => ProblemKind::CutTail { last: chain.last.seq, head: head.seq },
                };
                found.report(chain.lines, kind);
            } else if head.seq > found.removed_to && chain.mac_at_head.as_ref() != Some(&head.mac) {
                found.report(0, ProblemKind::Rewritten { seq: head.seq });
            }
        }
    }
    Ok(found)
}

/// Returns the last line of a full file if the whole file is valid and follows `before`.
pub(crate) fn ends_intact(key: &Key, file: &RotatedFile, before: &Link) -> io::Result<Option<Link>> {
    let Some(opened) = open_regular(&file.path)? else { return Ok(None) };
    let (mut found, mut chain) = (Verification::default(), Chain::after(before.clone(), None));
    follow_chain(key, opened, "", None, &mut chain, &mut found)?;
    let is_intact = found.is_intact() && chain.last.seq == file.last;
    Ok(is_intact.then_some(chain.last))
}

/// The position in the chain during verification.
struct Chain {
    last: Link,
    /// How many lines of the current file were read.
    lines: u64,
    /// The line that the sealed head names, and its hash once it was read.
    head: Option<u64>,
    mac_at_head: Option<String>,
}

impl Chain {
    fn after(last: Link, head: Option<u64>) -> Chain {
        let mac_at_head = (head == Some(last.seq)).then(|| last.mac.clone());
        Chain { last, lines: 0, head, mac_at_head }
    }
}

/// Follows the chain through one file. `lock` is given for the last file, whose last line may be incomplete.
fn follow_chain(
    key: &Key,
    file: File,
    name: &str,
    lock: Option<&Path>,
    chain: &mut Chain,
    found: &mut Verification,
) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut line = Vec::new();
    chain.lines = 0;
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let is_new = chain.head.is_none_or(|head| chain.last.seq >= head);
        if line.last() != Some(&b'\n')
            && is_new
            && let Some(lock) = lock
        {
            let is_settled = wait_for_writer(lock);
            reader.read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                if is_settled {
                    report_torn(&line, name, chain, found);
                }
                return Ok(());
            }
        }
        chain.lines += 1;
        found.lines += 1;
        let Some(parsed) = Parsed::new(&line) else {
            found.report_in(name, chain.lines, ProblemKind::Unreadable);
            continue;
        };
        let expected = chain.last.seq.saturating_add(1);
        if parsed.seq > expected {
            let kind = ProblemKind::Removed { from: expected, to: parsed.seq - 1 };
            found.report_in(name, chain.lines, kind);
        } else if parsed.seq < expected {
            let kind = ProblemKind::OutOfOrder { found: parsed.seq, expected };
            found.report_in(name, chain.lines, kind);
            continue;
        } else if key.mac(&chain.last.mac, &parsed.body) != parsed.mac {
            found.report_in(name, chain.lines, ProblemKind::Changed);
        }
        if chain.head == Some(parsed.seq) {
            chain.mac_at_head = Some(parsed.mac.clone());
        }
        // The chain continues with the stated hash, so that one bad line is one problem.
        chain.last = Link { seq: parsed.seq, mac: parsed.mac };
    }
}

/// Waits until no writer holds the lock. Returns false if that takes too long.
fn wait_for_writer(lock: &Path) -> bool {
    let Ok(lock) = File::open(lock) else { return true };
    let until = Instant::now() + WRITER_LIMIT;
    while flock(&lock, FlockOperation::NonBlockingLockShared).is_err() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(WRITER_PAUSE);
    }
    true
}

/// Whether the bytes are the start of the next line, as a crash leaves it. Other bytes are tampering.
fn report_torn(line: &[u8], name: &str, chain: &Chain, found: &mut Verification) {
    let bytes = line.len() as u64;
    let next = format!("{{\"seq\":{},\"at\":\"", chain.last.seq.saturating_add(1)).into_bytes();
    match line.starts_with(&next) || next.starts_with(line) {
        true => found.torn_bytes = bytes,
        false => found.report_in(name, chain.lines + 1, ProblemKind::Appended { bytes }),
    }
}

struct Parsed {
    seq: u64,
    mac: String,
    /// The object as it was hashed: without `mac`, which is always the last field.
    body: String,
}

impl Parsed {
    fn new(line: &[u8]) -> Option<Parsed> {
        let text = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
        let value: Value = serde_json::from_str(text).ok()?;
        let (seq, mac) = (value.get("seq")?.as_u64()?, value.get("mac")?.as_str()?.to_owned());
        let body = format!("{}}}", text.strip_suffix(&format!(",\"mac\":\"{mac}\"}}"))?);
        Some(Parsed { seq, mac, body })
    }
}
