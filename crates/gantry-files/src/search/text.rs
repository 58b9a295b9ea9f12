//! Reads one file's text in a bounded buffer: UTF-8, or decoded UTF-16. Anything else counts as
//! binary and has no lines.
//!
//! Whether a file is text from start to end is checked only if something in it matches.

use std::os::fd::BorrowedFd;

use encoding_rs::{Decoder, DecoderResult, UTF_16BE, UTF_16LE};
use memchr::{memchr, memrchr};
use rustix::io::{Errno, pread};

use super::lines::{LineMatcher, MatchingLine};

/// The longest line that is searched. Longer ones are skipped and counted.
pub const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// How much is read at a time, unless a line is longer.
const CHUNK_BYTES: usize = 64 * 1024;
/// A NUL in these first bytes shows early that a file is binary.
const BINARY_HEAD: usize = 4096;

/// `FileMatches` is the result of searching one file.
#[derive(Debug, Default)]
pub(super) struct FileMatches {
    pub(super) lines: Vec<MatchingLine>,
    pub(super) long_lines: u64,
    pub(super) unreadable: bool,
}

/// `Scratch` holds buffers that a thread reuses for one file after the other.
#[derive(Default)]
pub(super) struct Scratch {
    text: Vec<u8>,
    raw: Vec<u8>,
}

/// `Stopped` says why reading a file's text ended early.
enum Stopped {
    Binary,
    Unreadable,
}

impl Scratch {
    /// Finds the first `wanted` matching lines of a file. On cancellation it returns what it has.
    pub(super) fn search(
        &mut self,
        file: BorrowedFd<'_>,
        matcher: &LineMatcher,
        wanted: usize,
        give_up: &dyn Fn() -> bool,
    ) -> FileMatches {
        let mut outcome = FileMatches::default();
        match self.scan(file, matcher, wanted, give_up, &mut outcome) {
            Ok(()) => {}
            Err(Stopped::Binary) => outcome = FileMatches::default(),
            Err(Stopped::Unreadable) => outcome = FileMatches { unreadable: true, ..FileMatches::default() },
        }
        outcome
    }

    fn scan(
        &mut self,
        file: BorrowedFd<'_>,
        matcher: &LineMatcher,
        wanted: usize,
        give_up: &dyn Fn() -> bool,
        outcome: &mut FileMatches,
    ) -> Result<(), Stopped> {
        let Self { text, raw } = self;
        if text.len() < CHUNK_BYTES {
            text.resize(CHUNK_BYTES, 0);
        }
        let mut source = TextReader::new(file, raw);
        let mut filled = source.begin(text)?;
        let whole = source.at_end;
        let mut number = 1;
        let mut skipping = false;
        loop {
            let ready = if source.at_end {
                filled
            } else {
                memrchr(b'\n', text.get(..filled).unwrap_or_default()).map_or(0, |newline| newline + 1)
            };
            let mut begin = 0;
            if skipping {
                let rest = text.get(..filled).unwrap_or_default();
                match memchr(b'\n', rest) {
                    Some(newline) => {
                        (begin, skipping) = (newline + 1, false);
                        number += 1;
                    }
                    None => begin = filled,
                }
            }
            matcher.scan(text.get(begin..ready).unwrap_or_default(), &mut number, &mut outcome.lines, wanted);
            if source.at_end || outcome.lines.len() >= wanted || give_up() {
                break;
            }
            if skipping {
                filled = 0;
            } else {
                text.copy_within(ready..filled, 0);
                filled -= ready;
            }
            // A decoder needs room for a whole character.
            if text.len() - filled < 4 {
                if text.len() >= MAX_LINE_BYTES {
                    outcome.long_lines += 1;
                    (skipping, filled) = (true, 0);
                } else {
                    text.resize((2 * text.len()).min(MAX_LINE_BYTES), 0);
                }
            }
            filled = source.fill(text, filled)?;
        }
        if text.len() > CHUNK_BYTES && filled < CHUNK_BYTES {
            text.truncate(CHUNK_BYTES);
            text.shrink_to_fit();
        }
        if outcome.lines.is_empty() && outcome.long_lines == 0 {
            return Ok(());
        }
        if whole && source.decoder.is_none() {
            return if is_text(text.get(..filled).unwrap_or_default()) {
                Ok(())
            } else {
                Err(Stopped::Binary)
            };
        }
        check_whole(source, text, give_up)
    }
}

fn is_text(bytes: &[u8]) -> bool {
    memchr(0, bytes).is_none() && std::str::from_utf8(bytes).is_ok()
}

/// Reads a file from its beginning and fails unless all of it is text.
fn check_whole(
    mut source: TextReader<'_>,
    text: &mut Vec<u8>,
    give_up: &dyn Fn() -> bool,
) -> Result<(), Stopped> {
    text.resize(text.len().max(CHUNK_BYTES), 0);
    source.restart();
    let mut filled = source.begin(text)?;
    loop {
        let bytes = text.get(..filled).unwrap_or_default();
        if memchr(0, bytes).is_some() {
            return Err(Stopped::Binary);
        }
        // The end of the buffer may split a character, but the end of the file may not.
        let valid = match std::str::from_utf8(bytes) {
            Ok(_) => filled,
            Err(error) if error.error_len().is_none() && !source.at_end => error.valid_up_to(),
            Err(_) => return Err(Stopped::Binary),
        };
        if source.at_end || give_up() {
            return Ok(());
        }
        text.copy_within(valid..filled, 0);
        filled = source.fill(text, filled - valid)?;
    }
}

/// `TextReader` yields a file's bytes as UTF-8.
struct TextReader<'a> {
    file: BorrowedFd<'a>,
    offset: u64,
    at_end: bool,
    /// Set for UTF-16, whose bytes wait in `raw[raw_start..raw_end]`.
    decoder: Option<Decoder>,
    raw: &'a mut Vec<u8>,
    raw_start: usize,
    raw_end: usize,
}

impl<'a> TextReader<'a> {
    fn new(file: BorrowedFd<'a>, raw: &'a mut Vec<u8>) -> Self {
        Self { file, offset: 0, at_end: false, decoder: None, raw, raw_start: 0, raw_end: 0 }
    }

    fn restart(&mut self) {
        (self.offset, self.at_end, self.decoder) = (0, false, None);
        (self.raw_start, self.raw_end) = (0, 0);
    }

    /// Reads the beginning, which determines the encoding, without its byte-order mark.
    fn begin(&mut self, text: &mut [u8]) -> Result<usize, Stopped> {
        let filled = self.fill(text, 0)?;
        let head = text.get(..filled).unwrap_or_default();
        let (encoding, mark) = match head {
            [0xff, 0xfe, ..] => (Some(UTF_16LE), 2),
            [0xfe, 0xff, ..] => (Some(UTF_16BE), 2),
            [0xef, 0xbb, 0xbf, ..] => (None, 3),
            _ => (None, 0),
        };
        if let Some(encoding) = encoding {
            self.restart();
            self.offset = mark as u64;
            self.decoder = Some(encoding.new_decoder_without_bom_handling());
            return self.fill(text, 0);
        }
        if memchr(0, head.get(..BINARY_HEAD).unwrap_or(head)).is_some() {
            return Err(Stopped::Binary);
        }
        text.copy_within(mark..filled, 0);
        Ok(filled - mark)
    }

    /// Fills `text` from `filled` on until it is full or the file ends. Returns how far it is
    /// filled.
    fn fill(&mut self, text: &mut [u8], mut filled: usize) -> Result<usize, Stopped> {
        while !self.at_end && filled < text.len() {
            let free = text.get_mut(filled..).unwrap_or_default();
            let count = match self.decoder {
                None => {
                    let count = read(self.file, free, self.offset)?;
                    self.offset += count as u64;
                    self.at_end = count == 0;
                    count
                }
                Some(_) if free.len() < 4 => break,
                Some(_) => self.decode(free)?,
            };
            filled += count;
        }
        Ok(filled)
    }

    fn decode(&mut self, free: &mut [u8]) -> Result<usize, Stopped> {
        let Some(decoder) = &mut self.decoder else { return Ok(0) };
        if self.raw_start == self.raw_end {
            self.raw.resize(CHUNK_BYTES, 0);
            self.raw_start = 0;
            self.raw_end = read(self.file, self.raw, self.offset)?;
            self.offset += self.raw_end as u64;
        }
        let last = self.raw_end == 0;
        let waiting = self.raw.get(self.raw_start..self.raw_end).unwrap_or_default();
        let (result, used, written) = decoder.decode_to_utf8_without_replacement(waiting, free, last);
        self.raw_start += used;
        match result {
            DecoderResult::InputEmpty => self.at_end = last,
            DecoderResult::OutputFull => {}
            DecoderResult::Malformed(..) => return Err(Stopped::Binary),
        }
        Ok(written)
    }
}

fn read(file: BorrowedFd<'_>, into: &mut [u8], offset: u64) -> Result<usize, Stopped> {
    loop {
        match pread(file, &mut *into, offset) {
            Ok(count) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(_) => return Err(Stopped::Unreadable),
        }
    }
}
