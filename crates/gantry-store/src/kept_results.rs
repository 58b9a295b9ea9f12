//! Stores results, one private file each, for 7 days and up to 1 GiB in total.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use gantry_tool::{KeptResult, ResultError, ResultPage, ResultStore, TextLength, WriteText};
use regex::RegexBuilder;

use crate::data_dir::replace_private_with;

const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
const KEPT_BYTES: u64 = 1 << 30;
/// Characters shown on each side of a match.
const CONTEXT_CHARS: usize = 120;
const WRITE_BYTES: usize = 64 * 1024;
const OPERATOR: &str = "operator";

/// A file is one line of JSON about the result, then the result.
#[derive(Debug)]
pub struct KeptResults {
    folder: PathBuf,
    kept_for: Duration,
    kept_bytes: u64,
}

impl KeptResults {
    /// Uses the folder, which is created with the first result.
    pub fn new(folder: PathBuf) -> KeptResults {
        KeptResults { folder, kept_for: KEPT_FOR, kept_bytes: KEPT_BYTES }
    }

    /// Removes expired results.
    pub fn sweep(&self) -> io::Result<()> {
        match self.make_room(0) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
            swept => swept,
        }
    }

    /// Removes expired results, then the oldest ones until `needed` more bytes fit.
    fn make_room(&self, needed: u64) -> io::Result<()> {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if let Ok(metadata) = entry.metadata() {
                files.push((metadata.modified()?, metadata.len(), entry.path()));
            }
        }
        files.sort();
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum::<u64>() + needed;
        for (modified, bytes, path) in files {
            let expired = modified.elapsed().is_ok_and(|age| age > self.kept_for);
            if expired || total > self.kept_bytes {
                // Another process may have removed the same file.
                match fs::remove_file(path) {
                    Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
                    _ => total -= bytes,
                }
            }
        }
        Ok(())
    }

    fn path(&self, handle: &str) -> Option<PathBuf> {
        let known = handle
            .strip_prefix("res_")
            .is_some_and(|id| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()));
        known.then(|| self.folder.join(handle))
    }

    fn load(&self, reader: &str, handle: &str) -> Option<String> {
        let path = self.path(handle)?;
        if fs::metadata(&path).ok()?.modified().ok()?.elapsed().is_ok_and(|age| age > self.kept_for) {
            return None;
        }
        let mut file = fs::read_to_string(path).ok()?;
        let (about, _) = file.split_once('\n')?;
        let length = about.len() + 1;
        let about: KeptResult = serde_json::from_str(about).ok()?;
        file.drain(..length);
        (reader == OPERATOR || reader == about.owner).then_some(file)
    }
}

impl ResultStore for KeptResults {
    fn keep_written(
        &self,
        owner: &str,
        tool: &str,
        length: TextLength,
        write: WriteText<'_>,
    ) -> Result<KeptResult, ResultError> {
        let failed = |err: io::Error| ResultError::Storage(err.to_string());
        let kept = KeptResult {
            handle: format!("res_{}", uuid::Uuid::new_v4().simple()),
            owner: owner.to_owned(),
            tool: tool.to_owned(),
            characters: length.characters,
        };
        let about = serde_json::to_string(&kept).map_err(|err| ResultError::Storage(err.to_string()))?;
        let bytes = (about.len() + 1 + length.bytes) as u64;
        if bytes > self.kept_bytes {
            return Err(ResultError::Storage(format!(
                "it has {bytes} bytes, and {} are kept in all",
                self.kept_bytes
            )));
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(failed)?;
        self.make_room(bytes).map_err(failed)?;
        replace_private_with(&self.folder.join(&kept.handle), |file| {
            let mut file = io::BufWriter::with_capacity(WRITE_BYTES, file);
            writeln!(file, "{about}")?;
            write(&mut file)?;
            file.flush()
        })
        .map_err(failed)?;
        Ok(kept)
    }

    fn read(
        &self,
        reader: &str,
        handle: &str,
        offset: usize,
        limit: usize,
        grep: Option<&str>,
    ) -> Result<ResultPage, ResultError> {
        let text = self.load(reader, handle).ok_or_else(|| ResultError::NotFound(handle.to_owned()))?;
        match grep {
            None => Ok(page(&text, offset, limit)),
            Some(pattern) => passages(&text, pattern, offset, limit),
        }
    }
}

fn page(text: &str, offset: usize, limit: usize) -> ResultPage {
    let total_characters = text.chars().count();
    let shown: String = text.chars().skip(offset).take(limit).collect();
    let next = offset.saturating_add(limit);
    ResultPage {
        text: shown,
        total_characters,
        next_offset: (next < total_characters).then_some(next),
        matches: None,
    }
}

/// Returns each match with the text around it. A result may be one long line, so lines are not used as units.
fn passages(text: &str, pattern: &str, skip: usize, limit: usize) -> Result<ResultPage, ResultError> {
    let regex = RegexBuilder::new(pattern)
        .multi_line(true)
        .build()
        .map_err(|err| ResultError::BadPattern(format!("the pattern does not parse: {err}")))?;
    let mut shown = String::new();
    let mut next_offset = None;
    let (mut matches, mut budget) = (0, limit);
    let (mut last_byte, mut last_char) = (0, 0);
    for found in regex.find_iter(text) {
        last_char += text[last_byte..found.start()].chars().count();
        last_byte = found.start();
        let number = matches;
        matches += 1;
        if number < skip || next_offset.is_some() {
            continue;
        }
        let passage = format!("{last_char}: {}\n", surroundings(text, found.start(), found.end()));
        let length = passage.chars().count();
        if length > budget && number > skip {
            next_offset = Some(number);
            continue;
        }
        budget = budget.saturating_sub(length);
        shown.push_str(&passage);
    }
    Ok(ResultPage {
        text: shown,
        total_characters: text.chars().count(),
        next_offset,
        matches: Some(matches),
    })
}

/// A match with the text around it. A long match is cut.
fn surroundings(text: &str, start: usize, end: usize) -> &str {
    let end = text[start..end].char_indices().nth(CONTEXT_CHARS).map_or(end, |(at, _)| start + at);
    let from = text[..start].char_indices().rev().nth(CONTEXT_CHARS - 1).map_or(0, |(at, _)| at);
    let to = text[end..].char_indices().nth(CONTEXT_CHARS).map_or(text.len(), |(at, _)| end + at);
    &text[from..to]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, KeptResults) {
        let folder = tempfile::tempdir().unwrap();
        let results = KeptResults::new(folder.path().join("results"));
        (folder, results)
    }

    #[test]
    fn only_owner_and_operator_can_read_pages() {
        let (_folder, results) = store();
        let kept = results.keep("agent:a", "T", "äbcdef").unwrap();
        let page = results.read("agent:a", &kept.handle, 0, 4, None).unwrap();
        assert_eq!((page.text.as_str(), page.total_characters, page.next_offset), ("äbcd", 6, Some(4)));
        let page = results.read("operator", &kept.handle, 4, 10, None).unwrap();
        assert_eq!((page.text.as_str(), page.next_offset), ("ef", None));
        assert!(matches!(results.read("agent:b", &kept.handle, 0, 4, None), Err(ResultError::NotFound(_))));
        for bad in ["../../etc/passwd", "res_x", ""] {
            assert!(
                matches!(results.read("operator", bad, 0, 4, None), Err(ResultError::NotFound(_))),
                "{bad}"
            );
        }
    }

    #[test]
    fn grep_returns_passages_and_continues() {
        let (_folder, results) = store();
        let text = format!("{}needle-1{}needle-2", "é".repeat(500), "x".repeat(500));
        let kept = results.keep("operator", "T", &text).unwrap();
        let page = results.read("operator", &kept.handle, 0, 300, Some("needle-\\d")).unwrap();
        assert_eq!((page.matches, page.next_offset), (Some(2), Some(1)));
        assert!(
            page.text.starts_with("500: ")
                && page.text.contains("needle-1")
                && !page.text.contains("needle-2")
        );
        let page = results.read("operator", &kept.handle, 1, 300, Some("needle-\\d")).unwrap();
        assert!(page.text.contains("needle-2") && page.next_offset.is_none());
        assert!(matches!(
            results.read("operator", &kept.handle, 0, 9, Some("(")),
            Err(ResultError::BadPattern(_))
        ));
    }

    #[test]
    fn old_results_are_removed_and_the_total_is_bounded() {
        let (_folder, mut results) = store();
        results.kept_bytes = 3_000;
        let first = results.keep("operator", "T", &"a".repeat(1_000)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let second = results.keep("operator", "T", &"b".repeat(1_000)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        results.keep("operator", "T", &"c".repeat(1_000)).unwrap();
        assert!(results.read("operator", &first.handle, 0, 1, None).is_err(), "the oldest makes room");
        assert!(results.read("operator", &second.handle, 0, 1, None).is_ok());
        assert!(
            results.keep("operator", "T", &"d".repeat(3_000)).is_err(),
            "the result alone exceeds the limit"
        );
        assert!(results.read("operator", &second.handle, 0, 1, None).is_ok(), "and nothing went for it");
        results.kept_for = Duration::ZERO;
        assert!(results.read("operator", &second.handle, 0, 1, None).is_err(), "expired");
    }
}
