//! The messages that a person typed, per directory, in a private file below the data directory. Answers to questions are not
//! in it.

use std::io::Read;

use gantry_store::{DataDir, PrivateFolder};

use crate::line_editor::MAX_HISTORY;

/// The folder in the data directory.
const FOLDER: &str = "chat-history";
/// A longer message is not kept.
const MAX_ENTRY: usize = 16 * 1024;
/// The largest size of a file. Older messages are dropped first.
const MAX_FILE: usize = 1024 * 1024;

pub(super) struct MessageHistory {
    folder: PrivateFolder,
    file: String,
}

impl MessageHistory {
    /// The history of a directory. The file's name does not tell the directory.
    pub(super) fn of(data: &DataDir, directory: &str) -> MessageHistory {
        let name = blake3::hash(directory.as_bytes()).to_hex();
        MessageHistory { folder: data.private_folder(FOLDER), file: format!("{}.jsonl", &name[..32]) }
    }

    /// Returns the messages, oldest first. A file that cannot be read counts as empty.
    pub(super) fn load(&self) -> Vec<String> {
        let mut text = String::new();
        let Ok(file) = self.folder.open(&self.file) else { return Vec::new() };
        if file.take(MAX_FILE as u64).read_to_string(&mut text).is_err() {
            return Vec::new();
        }
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Adds a message. Several conversations in one directory share the file.
    pub(super) fn add(&self, message: &str) -> std::io::Result<()> {
        if message.len() > MAX_ENTRY {
            return Ok(());
        }
        self.folder.create()?;
        let _lock = self.folder.lock()?;
        let mut messages = self.load();
        if messages.last().is_some_and(|last| last == message) {
            return Ok(());
        }
        messages.push(message.to_owned());
        let mut lines: Vec<String> = Vec::new();
        let mut bytes = 0;
        for message in messages.iter().rev().take(MAX_HISTORY) {
            let line = format!("{}\n", serde_json::json!(message));
            bytes += line.len();
            if bytes > MAX_FILE {
                break;
            }
            lines.push(line);
        }
        lines.reverse();
        self.folder.replace(&self.file, lines.concat().as_bytes())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests read the file")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn history_is_per_directory_private_and_bounded() {
        let home = tempfile::tempdir().unwrap();
        let data = DataDir::new(home.path().join("data"));
        data.create().unwrap();
        let (here, there) = (MessageHistory::of(&data, "/here"), MessageHistory::of(&data, "/there"));
        for message in ["one", "two\nlines", "two\nlines"] {
            here.add(message).unwrap();
        }
        assert_eq!(here.load(), ["one", "two\nlines"]);
        assert_eq!(there.load(), [""; 0]);
        let file = home.path().join("data").join(FOLDER).join(&here.file);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        here.add(&"x".repeat(MAX_ENTRY + 1)).unwrap();
        assert_eq!(here.load().len(), 2);
        for number in 0..100 {
            here.add(&format!("{number} {}", "x".repeat(MAX_ENTRY - 10))).unwrap();
        }
        assert!(std::fs::metadata(&file).unwrap().len() <= MAX_FILE as u64);
        assert!(here.load().last().unwrap().starts_with("99 "));
        // A broken line costs that line only.
        std::fs::write(&file, "\"kept\"\nbroken\n").unwrap();
        assert_eq!(here.load(), ["kept"]);
    }
}
