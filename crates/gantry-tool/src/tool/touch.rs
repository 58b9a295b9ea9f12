//! `Touch` is a path that a call is about to read or write, as policy sees it.

use std::path::PathBuf;

use crate::error::Violation;

/// Why nobody can say what a call would touch.
#[derive(Debug)]
pub(crate) enum Unjudged {
    /// The input breaks its schema after all.
    Invalid(Violation),
    Unknown(String),
}

impl From<Violation> for Unjudged {
    fn from(violation: Violation) -> Unjudged {
        Unjudged::Invalid(violation)
    }
}

/// A path a call is about to touch, as resolved by the file engine: links followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    pub path: PathBuf,
    pub access: Access,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

impl Touch {
    pub fn read(path: PathBuf) -> Self {
        Touch { path, access: Access::Read }
    }

    pub fn write(path: PathBuf) -> Self {
        Touch { path, access: Access::Write }
    }
}
