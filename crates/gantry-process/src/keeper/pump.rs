//! Copies a session's output from its pipe into the log. Beyond the log's limit it keeps the newest
//! part.
//!
//! A failed write, for example on a full disk, does not end the log. Copying resumes once there is
//! space, after a line that says how much is missing.

use std::fs::File;
use std::io::{Error, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::keeper::control_protocol::LogReport;
use crate::log::layout::{self, MAX_WRITE};

/// At the end a pipe holds at most its capacity, whose usual maximum is 1 MiB. Anything beyond this
/// limit comes from a process outside the command's tree.
const DRAIN_LIMIT: u64 = 16 << 20;

pub(super) struct Pump {
    /// `None` once the pipe has ended.
    source: Option<OwnedFd>,
    log: File,
    max: u64,
    /// How many bytes of output are in the log, up to its limit.
    written: u64,
    /// How many bytes are in the log, including the lines that report missing output. Beyond the
    /// limit it counts everything that went through the ring.
    position: u64,
    /// How many bytes of output were lost since the last byte in the log.
    missing: u64,
    /// The rest of a partly written line that reports missing output.
    unwritten_notice: Vec<u8>,
    report: LogReport,
    buffer: Vec<u8>,
}

impl Pump {
    /// Returns the pump and the pipe end that the command writes to.
    pub(super) fn new(log: OwnedFd, max: u64) -> Result<(Self, OwnedFd), Error> {
        let (source, sink) = pipe()?;
        rustix::fs::fcntl_setfl(&source, OFlags::NONBLOCK)?;
        let pump = Self {
            source: Some(source),
            log: File::from(log),
            max,
            written: 0,
            position: 0,
            missing: 0,
            unwritten_notice: Vec::new(),
            report: LogReport::default(),
            buffer: vec![0; MAX_WRITE],
        };
        Ok((pump, sink))
    }

    pub(super) fn source(&self) -> Option<BorrowedFd<'_>> {
        self.source.as_ref().map(AsFd::as_fd)
    }

    /// Copies at most one buffer, so that a flood of output cannot block the keeper's other work.
    pub(super) fn copy_available(&mut self) -> Copied {
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

    /// Copies what the ended command left in the pipe.
    pub(super) fn drain(&mut self) {
        let before = self.report.total;
        while self.copy_available() == Copied::Some && self.report.total - before < DRAIN_LIMIT {}
    }

    pub(super) fn finish(self) -> LogReport {
        self.report
    }

    fn store(&mut self, count: usize) {
        self.report.total += count as u64;
        let mut stored = 0;
        if let Err(err) = self.write_missing_notice().and_then(|()| self.store_output(count, &mut stored)) {
            self.missing += (count - stored) as u64;
            self.report.error.get_or_insert_with(|| format!("writing the log failed: {err}"));
        }
        self.report.dropped = self.report.total - self.written;
    }

    /// Adds to `stored` what was written, also if the rest fails.
    fn store_output(&mut self, count: usize, stored: &mut usize) -> Result<(), Error> {
        let (kept, beyond) = self.buffer[..count].split_at(count.min(self.room()));
        while *stored < kept.len() {
            let written = write(&mut self.log, &kept[*stored..])?;
            *stored += written;
            self.written += written as u64;
            self.position += written as u64;
        }
        if !beyond.is_empty() {
            layout::write_ring(&self.log, self.max, self.position, beyond)?;
            *stored += beyond.len();
            self.position += beyond.len() as u64;
        }
        Ok(())
    }

    fn write_missing_notice(&mut self) -> Result<(), Error> {
        self.finish_notice()?;
        if self.missing == 0 {
            return Ok(());
        }
        let line =
            format!("\n[{} bytes of output are missing here: the log could not be written]\n", self.missing);
        // If the log has no room for the line, the engine reports the missing bytes.
        if line.len() <= self.room() {
            // Until part of the line is written, its count can still grow.
            let written = write(&mut self.log, line.as_bytes())?;
            self.position += written as u64;
            self.unwritten_notice = line.into_bytes().split_off(written);
        }
        self.missing = 0;
        self.finish_notice()
    }

    fn finish_notice(&mut self) -> Result<(), Error> {
        while !self.unwritten_notice.is_empty() {
            let written = write(&mut self.log, &self.unwritten_notice)?;
            self.unwritten_notice.drain(..written);
            self.position += written as u64;
        }
        Ok(())
    }

    fn room(&self) -> usize {
        usize::try_from(self.max.saturating_sub(self.position)).unwrap_or(usize::MAX)
    }
}

/// Writes at least one byte of `bytes`, or returns the error.
fn write(log: &mut File, bytes: &[u8]) -> Result<usize, Error> {
    loop {
        match log.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Err(err) if err.kind() == ErrorKind::Interrupted => {}
            written => return written,
        }
    }
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

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// A full pipe plays a full disk, and a drained pipe plays a disk with free space.
    #[test]
    fn log_resumes_after_a_full_disk_and_notes_the_gap() {
        let (disk, log) = pipe().unwrap();
        for end in [&disk, &log] {
            rustix::fs::fcntl_setfl(end, OFlags::NONBLOCK).unwrap();
        }
        let (mut pump, sink) = Pump::new(log, 1 << 30).unwrap();
        let (mut disk, mut sink) = (File::from(disk), File::from(sink));
        let (mut kept, mut wrote, mut number) = (Vec::new(), 0, 0);
        for _ in 0..3 {
            for _ in 0..3_000 {
                number += 1;
                let line = format!("line {number:>44}\n");
                sink.write_all(line.as_bytes()).unwrap();
                wrote += line.len() as u64;
                while pump.copy_available() == Copied::Some {}
            }
            assert!(pump.missing > 0, "the disk is full");
            let _ = disk.read_to_end(&mut kept);
        }
        sink.write_all(b"the end\n").unwrap();
        drop(sink);
        pump.drain();
        let _ = disk.read_to_end(&mut kept);
        let kept = String::from_utf8(kept).unwrap();
        assert!(kept.starts_with("line ") && kept.ends_with("]\nthe end\n"), "{}", &kept[kept.len() - 200..]);
        let missing = |line: &str| {
            line.strip_prefix('[')?.split_once(" bytes of output are missing here")?.0.parse().ok()
        };
        let said: Vec<u64> = kept.lines().filter_map(missing).collect();
        let report = pump.finish();
        assert_eq!((said.len(), said.iter().sum::<u64>()), (3, report.dropped), "{said:?}");
        assert_eq!(report.total, wrote + 8);
        assert!(report.error.is_some_and(|error| error.starts_with("writing the log failed")));
    }

    #[test]
    fn lost_output_leaves_no_hole_before_the_limit() {
        let log = tempfile::tempfile().unwrap();
        let (mut pump, sink) = Pump::new(log.try_clone().unwrap().into(), 1_000).unwrap();
        let mut sink = File::from(sink);
        pump.missing = 5_000;
        pump.report.total = 5_000;
        sink.write_all(&[b'x'; 3_000]).unwrap();
        drop(sink);
        pump.drain();
        let report = pump.finish();
        let (text, total) = layout::end(&log, 1_000, u64::MAX).unwrap();
        let (said, output) = text.split_at(text.iter().rposition(|byte| *byte == b'\n').unwrap() + 1);
        assert!(said.starts_with(b"\n[5000 bytes"), "{}", String::from_utf8_lossy(said));
        assert!(output.len() == 3_000 && output.iter().all(|byte| *byte == b'x'));
        assert_eq!((total, report.total), (text.len() as u64, 8_000));
        assert_eq!(report.dropped, 8_000 - (1_000 - said.len() as u64));
    }
}
