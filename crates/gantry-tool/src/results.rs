//! Results too long for a model, kept behind a handle. `gantry-store` keeps them.

use serde::{Deserialize, Serialize};

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
    /// The offset that reads on.
    pub next_offset: Option<usize>,
    /// How many passages matched, when a pattern was given.
    pub matches: Option<usize>,
}

#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    #[error("no kept result {0}; results are kept for 7 days, for whoever made the call")]
    NotFound(Handle),
    #[error("{0}")]
    BadPattern(String),
    #[error("kept results cannot be used: {0}")]
    Storage(String),
}

/// Keeps whole results. Blocking.
pub trait ResultStore: Send + Sync {
    fn keep(&self, owner: &str, tool: &str, text: &str) -> Result<KeptResult, ResultError>;

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
