//! `Label` marks where the content of a result comes from.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Label {
    /// Content that others may have written.
    Untrusted,
    /// The owner's own data.
    Private,
}
