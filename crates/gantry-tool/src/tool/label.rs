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

impl Label {
    pub const BOTH: [Label; 2] = [Label::Untrusted, Label::Private];

    pub fn name(self) -> &'static str {
        match self {
            Label::Untrusted => "untrusted",
            Label::Private => "private",
        }
    }

    pub fn from_name(name: &str) -> Option<Label> {
        Label::BOTH.into_iter().find(|label| label.name() == name)
    }
}
