//! Indexes a file as lines with their endings, in one pass.

use memchr::memchr_iter;

/// `Ending` says how a line ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Lf,
    CrLf,
    /// The last line of a file without a final newline.
    None,
}

impl Ending {
    pub(super) fn bytes(self) -> &'static [u8] {
        match self {
            Self::Lf => b"\n",
            Self::CrLf => b"\r\n",
            Self::None => b"",
        }
    }
}

pub(super) struct Lines<'a> {
    bytes: &'a [u8],
    /// Where each line starts, and where the last one ends.
    starts: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) content: &'a [u8],
    pub(super) ending: Ending,
}

/// `Endings` says which endings occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Endings {
    pub(super) lf: bool,
    pub(super) crlf: bool,
}

impl<'a> Lines<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        let mut starts = Vec::with_capacity(bytes.len() / 32 + 2);
        starts.push(0);
        starts.extend(memchr_iter(b'\n', bytes).map(|newline| newline + 1));
        if starts.last() != Some(&bytes.len()) {
            starts.push(bytes.len());
        }
        Self { bytes, starts }
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the bytes of the lines `from..to`.
    pub(super) fn bytes(&self, from: usize, to: usize) -> &'a [u8] {
        match (self.starts.get(from), self.starts.get(to)) {
            (Some(start), Some(end)) => self.bytes.get(*start..*end).unwrap_or_default(),
            _ => &[],
        }
    }

    pub(super) fn get(&self, index: usize) -> Line<'a> {
        let bytes = self.bytes(index, index + 1);
        match bytes {
            [content @ .., b'\r', b'\n'] => Line { content, ending: Ending::CrLf },
            [content @ .., b'\n'] => Line { content, ending: Ending::Lf },
            content => Line { content, ending: Ending::None },
        }
    }

    pub(super) fn endings(&self) -> Endings {
        let mut endings = Endings { lf: false, crlf: false };
        for start in self.starts.iter().skip(1) {
            match self.bytes.get(..*start) {
                Some([.., b'\r', b'\n']) => endings.crlf = true,
                Some([.., b'\n']) => endings.lf = true,
                _ => {}
            }
        }
        endings
    }
}
