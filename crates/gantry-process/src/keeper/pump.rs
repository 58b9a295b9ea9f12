//! Copies a session's output from its pipe into the log; of what goes beyond its limit the newest part is kept.

use std::fs::File;
use std::io::{Error, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::log_layout::{self, MAX_WRITE};
use crate::order::LogReport;

/// At the end a pipe holds at most its capacity (1 MiB for most systems' maximum); anything beyond this is written by
/// somebody who is none of ours.
const DRAIN_LIMIT: u64 = 16 << 20;

pub(super) struct Pump {
    /// `None` after its end.
    source: Option<OwnedFd>,
    log: File,
    max: u64,
    written: u64,
    report: LogReport,
    buffer: Vec<u8>,
}

impl Pump {
    /// Also gives the end that the command writes to.
    pub(super) fn new(log: OwnedFd, max: u64) -> Result<(Self, OwnedFd), Error> {
        let (source, sink) = pipe()?;
        rustix::fs::fcntl_setfl(&source, OFlags::NONBLOCK)?;
        let pump = Self {
            source: Some(source),
            log: File::from(log),
            max,
            written: 0,
            report: LogReport::default(),
            buffer: vec![0; MAX_WRITE],
        };
        Ok((pump, sink))
    }

    pub(super) fn source(&self) -> Option<BorrowedFd<'_>> {
        self.source.as_ref().map(AsFd::as_fd)
    }

    /// One buffer's worth at most, so that a flood of output cannot keep the keeper from its other duties.
    pub(super) fn copy_what_is_there(&mut self) -> Copied {
        let Some(source) = &self.source else { return Copied::Nothing };
        match rustix::io::read(source, &mut self.buffer[..]) {
            Ok(0) => {
                self.source = None;
                Copied::Nothing
            }
            Ok(count) => {
                self.store(count);
                Copied::Some
            }
            Err(Errno::INTR) => Copied::Some,
            Err(Errno::AGAIN) => Copied::Nothing,
            Err(err) => {
                self.report.error.get_or_insert_with(|| format!("reading the output failed: {err}"));
                self.source = None;
                Copied::Nothing
            }
        }
    }

    /// Takes what the ended command left in the pipe.
    pub(super) fn drain(&mut self) {
        let before = self.report.total;
        while self.copy_what_is_there() == Copied::Some && self.report.total - before < DRAIN_LIMIT {}
    }

    pub(super) fn finish(self) -> LogReport {
        self.report
    }

    fn store(&mut self, count: usize) {
        let position = self.report.total;
        self.report.total += count as u64;
        let room = usize::try_from(self.max.saturating_sub(position)).unwrap_or(usize::MAX);
        let (kept, beyond) = self.buffer[..count].split_at(count.min(room));
        if self.report.error.is_none() {
            let stored = store_kept(&mut self.log, kept, &mut self.written).and_then(|()| match beyond {
                [] => Ok(()),
                _ => log_layout::write_ring(&self.log, self.max, position + kept.len() as u64, beyond),
            });
            self.report.error = stored.err().map(|err| format!("writing the log failed: {err}"));
        }
        self.report.dropped = self.report.total - self.written;
    }
}

/// Counts what was written also when the rest fails.
fn store_kept(log: &mut File, mut bytes: &[u8], written: &mut u64) -> Result<(), Error> {
    while !bytes.is_empty() {
        match log.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => {
                *written += count as u64;
                bytes = &bytes[count..];
            }
            Err(err) if err.kind() == ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    Ok(())
}

#[derive(PartialEq, Eq)]
pub(super) enum Copied {
    Some,
    Nothing,
}

#[cfg(target_os = "linux")]
fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

#[cfg(not(target_os = "linux"))]
fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    let (source, sink) = rustix::pipe::pipe()?;
    rustix::io::fcntl_setfd(&source, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::fcntl_setfd(&sink, rustix::io::FdFlags::CLOEXEC)?;
    Ok((source, sink))
}
