//! Holds the new content of a file as pieces: long stretches of the old content are borrowed, and
//! added lines are owned.
//!
//! This avoids holding a file of many megabytes twice. The pieces are written one after the other.

use std::borrow::Cow;

#[derive(Debug, Default)]
pub(super) struct Pieces<'a> {
    parts: Vec<Cow<'a, [u8]>>,
}

impl<'a> Pieces<'a> {
    pub(super) fn borrow(&mut self, bytes: &'a [u8]) {
        if !bytes.is_empty() {
            self.parts.push(Cow::Borrowed(bytes));
        }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        match self.parts.last_mut() {
            _ if bytes.is_empty() => {}
            Some(Cow::Owned(last)) => last.extend_from_slice(bytes),
            _ => self.parts.push(Cow::Owned(bytes.to_vec())),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn ends_with_newline(&self) -> bool {
        self.parts.last().is_some_and(|part| part.ends_with(b"\n"))
    }

    /// Removes the newline at the end. A piece ends with a whole line, so its ending is never split
    /// over two pieces.
    pub(super) fn strip_newline(&mut self) {
        let Some(part) = self.parts.last_mut() else { return };
        let kept = part.strip_suffix(b"\r\n").or_else(|| part.strip_suffix(b"\n")).map(<[u8]>::len);
        let Some(kept) = kept else { return };
        match part {
            Cow::Borrowed(bytes) => *bytes = bytes.get(..kept).unwrap_or_default(),
            Cow::Owned(bytes) => bytes.truncate(kept),
        }
        if kept == 0 {
            self.parts.pop();
        }
    }

    pub(super) fn into_parts(self) -> Vec<Cow<'a, [u8]>> {
        self.parts
    }
}
