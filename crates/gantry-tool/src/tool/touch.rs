//! `Touch` is a path that a call is about to read or write, as policy sees it.

use std::path::{Path, PathBuf};

use crate::error::Violation;

/// The reason why the paths of a call are unknown.
#[derive(Debug)]
pub(crate) enum Unjudged {
    /// The tool's type rejects the input.
    Invalid(Violation),
    Unknown(String),
}

impl From<Violation> for Unjudged {
    fn from(violation: Violation) -> Unjudged {
        Unjudged::Invalid(violation)
    }
}

/// A path that a call is about to touch. The file engine has resolved its links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    pub path: PathBuf,
    pub access: Access,
    /// A tool writes here itself, and the path is outside the workspace: a border crossing.
    pub outside: bool,
    /// The path was compared with the workspace.
    pub judged: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

impl Touch {
    pub fn read(path: PathBuf) -> Self {
        Touch { path, access: Access::Read, outside: false, judged: false }
    }

    pub fn write(path: PathBuf) -> Self {
        Touch { path, access: Access::Write, outside: false, judged: false }
    }

    /// Compares a written path with the workspace. Both have their links resolved.
    pub fn judged_against(mut self, workspace: &Path) -> Self {
        self.outside = self.access == Access::Write && !self.path.starts_with(workspace);
        self.judged = true;
        self
    }
}
