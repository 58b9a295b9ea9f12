//! Reads the last lines of a log from its end. Memory use depends only on the number of requested lines.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{CURRENT, files};

/// Files are read backwards in pieces of this size.
const WINDOW: u64 = 64 * 1024;

/// The most bytes that one answer holds, whatever the length of its lines.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// The most lines that one answer holds.
const MAX_LINES: usize = 5_000;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct LogTail {
    /// Oldest first.
    pub lines: Vec<String>,
    /// Whether older lines exist.
    pub truncated: bool,
}

/// Returns the last `wanted` lines of the log in a folder, including its rotated files.
pub fn tail(folder: &Path, wanted: usize) -> io::Result<LogTail> {
    let wanted = wanted.min(MAX_LINES);
    let mut found = Found { lines: VecDeque::new(), bytes: 0, wanted, truncated: false };
    let mut seen = Vec::new();
    for path in files(folder) {
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
            Err(err) => return Err(err),
        };
        // A file that is rotated between two reads would be read twice.
        let metadata = file.metadata()?;
        if seen.contains(&metadata.ino()) {
            continue;
        }
        seen.push(metadata.ino());
        if !read_backwards(&file, metadata.len(), &mut found)? {
            break;
        }
    }
    Ok(LogTail { lines: found.lines.into(), truncated: found.truncated })
}

struct Found {
    lines: VecDeque<String>,
    bytes: usize,
    wanted: usize,
    truncated: bool,
}

impl Found {
    /// Returns false when the answer is full.
    fn add(&mut self, line: &[u8]) -> bool {
        if self.lines.len() >= self.wanted || self.bytes + line.len() > MAX_BYTES {
            self.truncated = true;
            return false;
        }
        self.bytes += line.len();
        self.lines.push_front(String::from_utf8_lossy(line).into_owned());
        true
    }
}

/// Returns false when enough lines were found.
fn read_backwards(file: &File, length: u64, found: &mut Found) -> io::Result<bool> {
    // The bytes between the end of the last window and the first line end before it.
    let mut rest: Vec<u8> = Vec::new();
    let mut end = length;
    let mut is_last = true;
    while end > 0 {
        let start = end.saturating_sub(WINDOW);
        let mut window = vec![0; usize::try_from(end - start).unwrap_or_default()];
        file.read_exact_at(&mut window, start)?;
        window.extend_from_slice(&rest);
        let mut upto = window.len();
        if is_last {
            // A partial line at the end is still being written.
            let last_end = window.iter().rposition(|byte| *byte == b'\n');
            (upto, is_last) = (last_end.unwrap_or_default(), last_end.is_none());
        }
        while let Some(at) = window[..upto].iter().rposition(|byte| *byte == b'\n') {
            if !found.add(&window[at + 1..upto]) {
                return Ok(false);
            }
            upto = at;
        }
        window.truncate(upto);
        rest = window;
        if rest.len() > MAX_BYTES {
            found.truncated = true;
            return Ok(false);
        }
        end = start;
    }
    Ok(rest.is_empty() || found.add(&rest))
}

pub(super) fn ends_with_newline(path: &Path, length: u64) -> io::Result<bool> {
    let mut last = [0];
    File::open(path)?.read_exact_at(&mut last, length.saturating_sub(1))?;
    Ok(last[0] == b'\n')
}

/// Returns lines as they are written, across rotations.
pub struct Follow {
    folder: PathBuf,
    file: File,
    offset: u64,
    /// The start of a line that is not complete yet.
    rest: Vec<u8>,
}

impl Follow {
    /// Follows from the current end.
    pub fn new(folder: &Path) -> io::Result<Follow> {
        let file = File::open(folder.join(CURRENT))?;
        let offset = file.metadata()?.len();
        Ok(Follow { folder: folder.to_owned(), file, offset, rest: Vec::new() })
    }

    /// Returns the lines written since the last call.
    pub fn lines(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        self.read_on(&mut lines)?;
        let Ok(current) = File::open(self.folder.join(CURRENT)) else { return Ok(lines) };
        if current.metadata()?.ino() != self.file.metadata()?.ino() {
            // The old file may have grown between the last read and the rotation.
            self.read_on(&mut lines)?;
            (self.file, self.offset) = (current, 0);
            self.read_on(&mut lines)?;
        }
        Ok(lines)
    }

    fn read_on(&mut self, lines: &mut Vec<String>) -> io::Result<()> {
        let mut window = vec![0; usize::try_from(WINDOW).unwrap_or_default()];
        loop {
            let read = self.file.read_at(&mut window, self.offset)?;
            if read == 0 {
                return Ok(());
            }
            self.offset += read as u64;
            self.rest.extend_from_slice(&window[..read]);
            while let Some(at) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=at).collect();
                lines.push(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            if lines.len() > MAX_LINES {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail_of(content: &str, wanted: usize) -> LogTail {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(CURRENT), content).unwrap();
        tail(folder.path(), wanted).unwrap()
    }

    fn of(lines: &[&str], truncated: bool) -> LogTail {
        LogTail { lines: lines.iter().map(|line| line.to_string()).collect(), truncated }
    }

    #[test]
    fn last_lines_come_oldest_first() {
        assert_eq!(tail_of("a\nb\nc\n", 2), of(&["b", "c"], true));
        assert_eq!(tail_of("a\nb\nc\n", 3), of(&["a", "b", "c"], false));
        assert_eq!(tail_of("a\nb\nc\n", 9), of(&["a", "b", "c"], false));
        assert_eq!(tail_of("a\nb\nhalf", 9), of(&["a", "b"], false));
        assert_eq!(tail_of("", 9), of(&[], false));
        assert_eq!(tail_of("half", 9), of(&[], false));
        assert_eq!(tail_of(&"half".repeat(50_000), 9), of(&[], false));
        assert_eq!(tail_of("a\n", 0), of(&[], true));
        assert_eq!(tail_of("a\n\nb\n", 2), of(&["", "b"], true));
    }

    #[test]
    fn lines_longer_than_a_window_are_complete() {
        let long = "x".repeat(200_000);
        assert_eq!(tail_of(&format!("a\n{long}\nb\n"), 2), of(&[&long, "b"], true));
    }

    #[test]
    fn no_log_is_an_empty_one() {
        assert_eq!(tail(Path::new("/nonexistent"), 5).unwrap(), LogTail::default());
    }

    #[test]
    fn follow_continues_across_a_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let log = super::super::NodeLog::with_limit(folder.path(), "n", 500).unwrap();
        let tick = |number: i32| serde_json::Map::from_iter([("number".to_owned(), number.into())]);
        log.event(super::super::Level::Info, "before", tick(-1));
        let mut follow = Follow::new(folder.path()).unwrap();
        let mut seen = Vec::new();
        for number in 0..30 {
            log.event(super::super::Level::Info, "tick", tick(number));
            seen.extend(follow.lines().unwrap());
        }
        assert_eq!(seen.len(), 30, "{seen:?}");
        assert!(seen[29].contains("29"));
    }
}
