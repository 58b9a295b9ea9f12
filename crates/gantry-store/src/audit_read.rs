//! Reading the audit log: filtered listing, and verification of the whole chain. Streams; never writes.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde_json::Value;

use crate::audit_log::{HeadForged, Key, NO_MAC};

/// Problems beyond this many are counted, not described.
const DESCRIBED_PROBLEMS: usize = 100;

/// Which lines to list. Absent fields let everything through.
#[derive(Debug, Default, Clone)]
pub struct AuditFilter {
    /// Part of the tool's name.
    pub tool: Option<String>,
    /// Part of the principal, such as `agent:` or `operator`.
    pub principal: Option<String>,
    pub agent: Option<String>,
    pub status: Option<String>,
    pub call: Option<String>,
    /// RFC 3339; lines before it are left out.
    pub since: Option<jiff::Timestamp>,
    /// The newest this many.
    pub limit: usize,
}

pub type AuditLine = Value;

/// The newest lines that pass the filter, oldest first.
pub fn list(log: &Path, filter: &AuditFilter) -> io::Result<Vec<AuditLine>> {
    let Some(file) = open_regular(log)? else { return Ok(Vec::new()) };
    let mut newest = VecDeque::new();
    for line in BufReader::new(file).split(b'\n') {
        // A line that does not parse is shown as such: verification says what is wrong with it.
        let line = line?;
        let value = serde_json::from_slice(&line)
            .unwrap_or_else(|_| serde_json::json!({"damaged": String::from_utf8_lossy(&line)}));
        if filter.lets_through(&value) {
            newest.push_back(value);
            if newest.len() > filter.limit {
                newest.pop_front();
            }
        }
    }
    Ok(newest.into())
}

/// The log, if there is one. A pipe or a device in its place would be read for ever.
fn open_regular(log: &Path) -> io::Result<Option<File>> {
    match std::fs::metadata(log) {
        Ok(metadata) if metadata.is_file() => File::open(log).map(Some),
        Ok(_) => Err(io::Error::other("it is not a regular file")),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(err),
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
        has(&self.tool, "tool")
            && has(&self.principal, "principal")
            && is(&self.agent, "agent")
            && is(&self.status, "status")
            && is(&self.call, "call")
            && recent
    }
}

/// What a check of the whole log found.
#[derive(Debug, Default)]
pub struct Verification {
    pub lines: u64,
    /// The newest line known to have been on disk.
    pub head: Option<u64>,
    pub problems: Vec<Problem>,
    /// Problems beyond the described ones.
    pub further_problems: u64,
}

impl Verification {
    pub fn is_intact(&self) -> bool {
        self.problems.is_empty()
    }

    fn report(&mut self, line: u64, kind: ProblemKind) {
        if self.problems.len() < DESCRIBED_PROBLEMS {
            self.problems.push(Problem { line, kind });
        } else {
            self.further_problems += 1;
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Counted from 1 in the file as it is.
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
    #[error("the log is missing, and its head says it held {head} lines")]
    LogMissing { head: u64 },
}

/// Checks every line against the chain, and the end against the sealed head.
pub fn verify(log: &Path) -> io::Result<Verification> {
    let mut found = Verification::default();
    let key = match Key::load(log) {
        Ok(key) => key,
        Err(err) if err.kind() == io::ErrorKind::NotFound && !log.exists() => return Ok(found),
        Err(err) => {
            let text = format!("the key {} cannot be read: {err}", Key::path(log).display());
            return Err(io::Error::new(err.kind(), text));
        }
    };
    // The head first: lines may be added while we read, and then the log is longer than the head says.
    let head =
        File::open(log.with_extension("head")).map_err(|_| HeadForged).and_then(|head| key.read_head(&head));
    let vouched = head.as_ref().ok().map(|(seq, _)| *seq);
    let chain = match open_regular(log)? {
        Some(file) => follow_chain(&key, file, vouched, &mut found)?,
        None => Chain::default(),
    };
    match head {
        Err(HeadForged) => found.report(0, ProblemKind::HeadForged),
        Ok((0, _)) => found.head = Some(0),
        Ok((seq, mac)) => {
            found.head = Some(seq);
            if found.lines == 0 {
                found.report(0, ProblemKind::LogMissing { head: seq });
            } else if chain.last_seq < seq {
                found.report(found.lines, ProblemKind::CutTail { last: chain.last_seq, head: seq });
            } else if chain.mac_at_head.as_ref() != Some(&mac) {
                found.report(0, ProblemKind::Rewritten { seq });
            }
        }
    }
    Ok(found)
}

#[derive(Default)]
struct Chain {
    last_seq: u64,
    mac_at_head: Option<String>,
}

fn follow_chain(key: &Key, file: File, head: Option<u64>, found: &mut Verification) -> io::Result<Chain> {
    let mut chain = Chain::default();
    let mut previous = NO_MAC.to_owned();
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(chain);
        }
        // A line being written right now has no end yet.
        if line.last() != Some(&b'\n') && head.is_none_or(|head| chain.last_seq >= head) {
            return Ok(chain);
        }
        found.lines += 1;
        let Some(parsed) = Parsed::new(&line) else {
            found.report(found.lines, ProblemKind::Unreadable);
            continue;
        };
        let expected = chain.last_seq + 1;
        if parsed.seq > expected {
            found.report(found.lines, ProblemKind::Removed { from: expected, to: parsed.seq - 1 });
        } else if parsed.seq < expected {
            found.report(found.lines, ProblemKind::OutOfOrder { found: parsed.seq, expected });
            continue;
        } else if key.mac(&previous, &parsed.body) != parsed.mac {
            found.report(found.lines, ProblemKind::Changed);
        }
        if head == Some(parsed.seq) {
            chain.mac_at_head = Some(parsed.mac.clone());
        }
        chain.last_seq = parsed.seq;
        // The stated hash goes on, so that one bad line is one problem and not all that follow.
        previous = parsed.mac;
    }
}

struct Parsed {
    seq: u64,
    mac: String,
    /// The object as it was hashed: without `mac`, which is always last.
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
