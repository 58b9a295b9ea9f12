//! Results that are too long for a model are kept behind a handle. `gantry-store` implements [`ResultStore`].

use std::io;

use serde::{Deserialize, Serialize};

pub(crate) mod budget;
pub(crate) mod envelope;

/// The name under which a result is kept.
pub type Handle = String;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptResult {
    pub handle: Handle,
    pub owner: String,
    pub tool: String,
    pub characters: usize,
}

/// Part of a kept result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultPage {
    pub text: String,
    pub total_characters: usize,
    /// The offset of the next page.
    pub next_offset: Option<usize>,
    /// How many passages matched, when a pattern was given.
    pub matches: Option<usize>,
}

#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    #[error("no kept result {0}; results are kept for 7 days and only their caller can read them")]
    NotFound(Handle),
    #[error("{0}")]
    BadPattern(String),
    #[error("cannot access kept results: {0}")]
    Storage(String),
}

/// The length of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextLength {
    pub characters: usize,
    pub bytes: usize,
}

impl TextLength {
    pub fn of(text: &str) -> TextLength {
        TextLength { characters: text.chars().count(), bytes: text.len() }
    }
}

/// Writes a text of a known length.
pub type WriteText<'a> = &'a mut dyn FnMut(&mut dyn io::Write) -> io::Result<()>;

/// Keeps whole results. The methods block.
pub trait ResultStore: Send + Sync {
    /// Keeps the text that `write` writes, which need not be in memory as a whole.
    fn keep_written(
        &self,
        owner: &str,
        tool: &str,
        length: TextLength,
        write: WriteText<'_>,
    ) -> Result<KeptResult, ResultError>;

    fn keep(&self, owner: &str, tool: &str, text: &str) -> Result<KeptResult, ResultError> {
        self.keep_written(owner, tool, TextLength::of(text), &mut |file| file.write_all(text.as_bytes()))
    }

    /// Reads characters from `offset`, at most `limit`; or passages that match `grep`, from the `offset`th on.
    ///
    /// `reader` is the principal; only the owner may read, and the operator, whose disk it is.
    fn read(
        &self,
        reader: &str,
        handle: &str,
        offset: usize,
        limit: usize,
        grep: Option<&str>,
    ) -> Result<ResultPage, ResultError>;
}
