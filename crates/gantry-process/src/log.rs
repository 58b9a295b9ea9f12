//! Reads an output log by line while it grows, with stable line numbers and exact totals. It holds
//! one page in memory.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::{Mode, OFlags};

use crate::error::ProcessError;
use crate::log::budget::Reservation;
use crate::text::{self, CharCounter, Tail, TailSize};

pub(crate) mod budget;
pub(crate) mod directory;
pub(crate) mod layout;

/// `LogPage` is a range of a log's lines, numbered over the whole log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPage {
    /// The lines, without their line endings.
    pub lines: Vec<String>,
    /// The number of the first line, counted from 0.
    pub offset: u64,
    pub total_lines: u64,
    pub total_chars: u64,
    /// Where to continue reading; `None` if this page has the last line so far.
    pub next_offset: Option<u64>,
    /// The number of a line that is longer than a page. Only its beginning is returned.
    pub cut_line: Option<u64>,
    /// What follows the beginning of the line in `cut_line`, or a part of it.
    pub beyond: String,
    /// How many bytes of output follow the `total_lines` but are in no page, because the log is
    /// full. The last line may then lack its end. The newest of these bytes are in the session's
    /// tail.
    pub dropped_bytes: u64,
}

/// A page ends early, at the end of a line, if it would hold more than this.
const PAGE_BYTES: usize = 1 << 20;
/// How much of a line longer than a page is returned separately. It holds any stored secret, also in base64.
const BEYOND_PAGE: usize = 96 * 1024;
const CHUNK: usize = 64 * 1024;
/// When there are more marks, every other one is removed.
const MAX_MARKS: usize = 4096;

#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) path: PathBuf,
    reader: Mutex<LogReader>,
    reservation: Reservation,
}

impl Log {
    pub(crate) fn new(file: File, path: PathBuf, reservation: Reservation) -> Self {
        let index = Index { limit: reservation.limit(), ..Index::default() };
        Self { path, reader: Mutex::new(LogReader { file: Some(file), index }), reservation }
    }

    /// How many bytes pages can show. The rest is dropped, except for its tail.
    pub(crate) fn limit(&self) -> u64 {
        self.reservation.limit()
    }

    /// Returns the unused part of the reservation, and closes the descriptor: nobody writes any
    /// more, and each reader opens the file. A removed log keeps its descriptor, which is the only
    /// way to read it.
    pub(crate) fn release_unused(&self) {
        self.reservation.release_unused(self.size());
        let mut reader = self.reader();
        reader.file = reader.file.take().filter(|file| !is_at(file, &self.path));
    }

    /// The size on disk in bytes.
    pub(crate) fn size(&self) -> u64 {
        let metadata = match &self.reader().file {
            Some(file) => file.metadata(),
            None => std::fs::symlink_metadata(&self.path),
        };
        metadata.map_or(0, |metadata| metadata.len())
    }

    pub(crate) async fn page(self: &Arc<Self>, offset: u64, limit: usize) -> Result<LogPage, ProcessError> {
        self.with(move |index, file| page(index, file, offset, limit.max(1))).await
    }

    /// Returns the last characters, and the length of all output in bytes.
    pub(crate) async fn tail(self: &Arc<Self>, size: TailSize) -> Result<(Tail, u64), ProcessError> {
        self.with(move |index, file| tail(file, index.limit, size)).await
    }

    /// Counts all characters so far, up to the log's limit.
    pub(crate) async fn chars(self: &Arc<Self>) -> Result<u64, ProcessError> {
        self.with(|index, file| {
            index.advance(file)?;
            Ok(index.chars.total())
        })
        .await
    }

    /// The length of all output in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.reader().with(&self.path, |_, file| layout::total(file, self.limit())).unwrap_or(0)
    }

    fn reader(&self) -> MutexGuard<'_, LogReader> {
        self.reader.lock().unwrap_or_else(|err| err.into_inner())
    }

    async fn with<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut Index, &File) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, ProcessError> {
        let log = Arc::clone(self);
        let task = tokio::task::spawn_blocking(move || log.reader().with(&log.path, work));
        let result = task.await.unwrap_or_else(|err| Err(Error::other(err)));
        result.map_err(|cause| ProcessError::Log { path: self.path.clone(), cause })
    }
}

#[derive(Debug)]
struct LogReader {
    /// `None` once the command has ended, so that a finished session holds no descriptor.
    file: Option<File>,
    index: Index,
}

impl LogReader {
    fn with<T>(
        &mut self,
        path: &Path,
        work: impl FnOnce(&mut Index, &File) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match &self.file {
            Some(file) => work(&mut self.index, file),
            None => work(&mut self.index, &open(path)?),
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(file), Ok(found)) = (file.metadata(), std::fs::symlink_metadata(path)) else { return false };
    (file.dev(), file.ino()) == (found.dev(), found.ino())
}

/// Opens a log for reading.
pub(crate) fn open(path: &Path) -> Result<File, Error> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(ErrorKind::InvalidData.into()) }
}

fn page(index: &mut Index, file: &File, offset: u64, limit: usize) -> Result<LogPage, Error> {
    index.advance(file)?;
    let total_lines = index.lines();
    let mut page = LogPage {
        lines: Vec::new(),
        offset,
        total_lines,
        total_chars: index.chars.total(),
        next_offset: None,
        cut_line: None,
        beyond: String::new(),
        dropped_bytes: layout::total(file, index.limit)?.saturating_sub(index.limit),
    };
    if offset >= total_lines {
        return Ok(page);
    }
    let mut lines = LineIterator::new(index.start_of(offset, file)?);
    let mut held = 0;
    while page.lines.len() < limit
        && let Some(line) = lines.next(index, file)?
    {
        held += line.len();
        if held > PAGE_BYTES && !page.lines.is_empty() {
            break;
        }
        if line.len() > PAGE_BYTES {
            page.cut_line = Some(offset);
            let (head, beyond) = text::head(line, PAGE_BYTES);
            page.lines.push(head);
            page.beyond = beyond;
            break;
        }
        page.lines.push(without_ending(line));
    }
    let next = offset + page.lines.len() as u64;
    page.next_offset = (next < total_lines).then_some(next);
    Ok(page)
}

/// Reads the last characters of a log with this limit, and the length of all output in bytes.
pub(crate) fn tail(file: &File, limit: u64, size: TailSize) -> Result<(Tail, u64), Error> {
    let (bytes, total) = layout::end(file, limit, size.bytes() as u64)?;
    let whole = bytes.len() as u64 == total;
    let tail = if whole { text::tail(&bytes, size).0 } else { text::decode_from_cut(&bytes, size) };
    Ok((tail, total))
}

/// `LineIterator` iterates over lines. Of a line longer than a page it keeps just enough to detect that.
struct LineIterator {
    position: u64,
    buffer: Vec<u8>,
    /// The unused part of the buffer.
    rest: std::ops::Range<usize>,
    line: Vec<u8>,
}

impl LineIterator {
    fn new(position: u64) -> Self {
        Self { position, buffer: vec![0; CHUNK], rest: 0..0, line: Vec::new() }
    }

    /// Returns the next line with its ending. A line longer than a page is cut [`BEYOND_PAGE`] bytes
    /// after it.
    fn next(&mut self, index: &Index, file: &File) -> Result<Option<&[u8]>, Error> {
        self.line.clear();
        loop {
            if self.rest.is_empty() {
                let count = index.chunk(file, self.position, &mut self.buffer)?.len();
                if count == 0 {
                    return Ok((!self.line.is_empty()).then_some(&self.line));
                }
                self.position += count as u64;
                self.rest = 0..count;
            }
            let rest = &self.buffer[self.rest.clone()];
            let end = rest.iter().position(|byte| *byte == b'\n').map(|newline| newline + 1);
            let piece = &rest[..end.unwrap_or(rest.len())];
            let room = PAGE_BYTES + BEYOND_PAGE - self.line.len();
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            self.rest.start += piece.len();
            // A line that fills a page ends that page, so nobody reads what follows.
            if end.is_some() || self.line.len() == PAGE_BYTES + BEYOND_PAGE {
                return Ok(Some(&self.line));
            }
        }
    }
}

fn without_ending(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()
}

/// `Index` records how far the log was scanned, with marks that find lines without reading from the
/// start.
#[derive(Debug)]
struct Index {
    /// Bytes beyond the limit are not in output order.
    limit: u64,
    scanned: u64,
    newlines: u64,
    ends_in_line: bool,
    chars: CharCounter,
    /// Positions with the number of line ends before them, at least `stride` bytes apart.
    marks: Vec<LineMark>,
    stride: u64,
}

#[derive(Debug, Clone, Copy)]
struct LineMark {
    position: u64,
    newlines: u64,
}

impl Default for Index {
    fn default() -> Self {
        let chars = CharCounter::default();
        Self {
            limit: u64::MAX,
            scanned: 0,
            newlines: 0,
            ends_in_line: false,
            chars,
            marks: Vec::new(),
            stride: CHUNK as u64,
        }
    }
}

impl Index {
    fn lines(&self) -> u64 {
        self.newlines + u64::from(self.ends_in_line)
    }

    /// Scans what was written since the last call.
    fn advance(&mut self, file: &File) -> Result<(), Error> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let room = usize::try_from(self.limit - self.scanned).unwrap_or(CHUNK).min(CHUNK);
            let count = file.read_at(&mut buffer[..room], self.scanned)?;
            let Some(last) = buffer[..count].last() else { return Ok(()) };
            if self.marks.last().is_none_or(|mark| self.scanned - mark.position >= self.stride) {
                self.marks.push(LineMark { position: self.scanned, newlines: self.newlines });
            }
            self.ends_in_line = *last != b'\n';
            self.newlines += buffer[..count].iter().filter(|byte| **byte == b'\n').count() as u64;
            self.chars.feed(&buffer[..count]);
            self.scanned += count as u64;
            if self.marks.len() > MAX_MARKS {
                let mut keep = false;
                self.marks.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.stride *= 2;
            }
        }
    }

    fn start_of(&self, line: u64, file: &File) -> Result<u64, Error> {
        if line == 0 {
            return Ok(0);
        }
        let before = self.marks.partition_point(|mark| mark.newlines < line);
        let mark = self.marks[..before].last().copied().unwrap_or(LineMark { position: 0, newlines: 0 });
        let mut missing = line - mark.newlines;
        let mut position = mark.position;
        let mut buffer = vec![0; CHUNK];
        while position < self.scanned {
            let chunk = self.chunk(file, position, &mut buffer)?;
            for (index, _) in chunk.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
                missing -= 1;
                if missing == 0 {
                    return Ok(position + index as u64 + 1);
                }
            }
            position += chunk.len() as u64;
        }
        Ok(self.scanned)
    }

    /// Returns scanned bytes from `position` on, at most one buffer.
    fn chunk<'a>(&self, file: &File, position: u64, buffer: &'a mut [u8]) -> Result<&'a [u8], Error> {
        let length = usize::try_from(self.scanned - position).unwrap_or(usize::MAX).min(buffer.len());
        file.read_exact_at(&mut buffer[..length], position)?;
        Ok(&buffer[..length])
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The lines have 64 bytes, so that marks fall exactly on line starts.
    #[tokio::test]
    async fn lines_at_marks_are_found() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for line in 0..6_000 {
            writeln!(file, "{line:063}").unwrap();
        }
        let space = budget::LogBudget::new(0, 1 << 20).reserve();
        let log = Arc::new(Log::new(file.reopen().unwrap(), file.path().to_owned(), space));
        for line in (0..6_000).filter(|line| matches!(line % 1024, 0 | 1 | 1023)) {
            let page = log.page(line, 1).await.unwrap();
            assert_eq!(
                (page.lines.as_slice(), page.total_lines),
                ([format!("{line:063}")].as_slice(), 6_000)
            );
        }
    }
}
