//! Reads a window: some lines of a file of any size, with the number of all its lines and its tag.
//!
//! One pass reads the whole file in blocks to count lines. Up to [`tag::MAX_HASHED_BYTES`] it also
//! hashes the file and checks that it is UTF-8. The line breaks of each block are stored, so that
//! one block read again yields the window.
//!
//! Memory is the blocks, four bytes per block, and the window. Above the hashing limit only the
//! first block and the window are checked for UTF-8, because checking a gigabyte costs more than
//! counting its lines.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::FileError;
use crate::media;
use crate::scope::{OpenFile, fill_from};
use crate::tag;
use crate::text::{self, Encoding, Ending};

const BLOCK_BYTES: usize = 512 * 1024;
/// UTF-16 is decoded in memory, and so are files that do not report their size, as in `/proc`.
const MAX_IN_MEMORY: u64 = 64 * 1024 * 1024;

/// A file up to this size is read in one go.
const SMALL_BYTES: u64 = 64 * 1024;

/// `Start` says where a window starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At a line, counted from 0.
    Line(u64),
    /// This many lines before the end.
    FromEnd(u64),
}

#[derive(Debug, Clone, Copy)]
pub struct WindowRequest {
    pub start: Start,
    /// The largest number of lines.
    pub limit: Option<u64>,
    /// The largest number of bytes of text. Lines are whole, unless the first alone is longer.
    pub max_bytes: usize,
    /// How many bytes after a cut in a line [`Window::beyond`] returns.
    pub beyond_cut: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The lines with the file's own endings; [`Window::lines`] splits them.
    pub text: String,
    /// The number of the first line, counted from 0. Past the end it is the number of all lines.
    pub first_line: u64,
    pub lines: u64,
    pub total_lines: u64,
    /// The file's size in bytes.
    pub size: u64,
    pub tag: String,
    /// Whether `max_bytes` ended the window before `limit` or the file did.
    pub truncated: bool,
    /// Whether the last line of the window is longer than `max_bytes` and was cut.
    pub cut_line: bool,
    /// What follows the cut in a line that is longer than `max_bytes`.
    pub beyond: String,
    /// The line to continue with, if the file has more.
    pub next: Option<u64>,
}

impl Window {
    /// The lines, each with its ending.
    pub fn lines(&self) -> impl Iterator<Item = (&str, Ending)> {
        text::lines(&self.text)
    }
}

/// Reads a window. Binary content is an error that names its type.
pub fn window(file: &OpenFile, request: &WindowRequest, cancelled: &AtomicBool) -> Result<Window, FileError> {
    if let 1..=SMALL_BYTES = file.meta.size {
        return window_of_bytes(file, file.read_up_to(file.meta.size)?, request, cancelled);
    }
    let head = file.read_up_to(4)?;
    let in_memory = Encoding::of(&head).is_utf16() || file.meta.size == 0;
    if !in_memory {
        let source = CountedBytes::File { file: &file.file, size: file.meta.size };
        return window_of(file, &source, None, request, cancelled);
    }
    window_of_bytes(file, file.read_all(MAX_IN_MEMORY)?, request, cancelled)
}

/// Reads a window of a small text that is in the page cache, without waiting for a disk; `None` for
/// anything else.
pub fn window_if_cached(file: &OpenFile, request: &WindowRequest) -> Option<Window> {
    let bytes = file.read_if_cached(SMALL_BYTES)?;
    window_of_bytes(file, bytes, request, &AtomicBool::new(false)).ok()
}

fn window_of_bytes(
    file: &OpenFile,
    bytes: Vec<u8>,
    request: &WindowRequest,
    cancelled: &AtomicBool,
) -> Result<Window, FileError> {
    let decoded = text::decode(&bytes)
        .map_err(|not_text| FileError::Binary { path: file.path.clone(), mime: not_text.mime })?;
    // Restores the mark for the one case in which `window_of` checks for it.
    let kept_mark = if decoded.encoding == Encoding::Utf8Marked { 3 } else { 0 };
    let whole = if kept_mark > 0 { &bytes[..] } else { decoded.text.as_bytes() };
    let tag = tag::of_bytes(&bytes);
    let mut window = window_of(file, &CountedBytes::Memory(whole), Some(tag), request, cancelled)?;
    window.size = bytes.len() as u64;
    Ok(window)
}

fn window_of(
    file: &OpenFile,
    source: &CountedBytes<'_>,
    known_tag: Option<String>,
    request: &WindowRequest,
    cancelled: &AtomicBool,
) -> Result<Window, FileError> {
    let fail = |err| FileError::io("read", &file.path, err);
    let binary = || -> FileError {
        let head = file.read_up_to(8192).unwrap_or_default();
        FileError::Binary { path: file.path.clone(), mime: media::mime(&head) }
    };
    let whole = source.size() <= tag::MAX_HASHED_BYTES;
    let counted = if whole {
        count_and_hash(source, known_tag.is_none(), cancelled)
    } else {
        count_on_two_threads(source, cancelled)
    };
    let counted = counted.map_err(fail)?.ok_or(FileError::Cancelled)?;
    if !counted.utf8 {
        return Err(binary());
    }
    let total_lines = counted.total_lines();
    let first_line = match request.start {
        Start::Line(line) => line.min(total_lines),
        Start::FromEnd(lines) => total_lines.saturating_sub(lines),
    };
    let wanted = request.limit.unwrap_or(u64::MAX).min(total_lines - first_line);
    let cut = read_lines(source, &counted, first_line, wanted, request).map_err(fail)?;
    let cut = cut.ok_or_else(binary)?;
    let end = first_line + cut.lines;
    let tag = known_tag.or(counted.tag).unwrap_or_else(|| tag::weak(&file.meta));
    Ok(Window {
        first_line,
        lines: cut.lines,
        total_lines,
        size: counted.size,
        tag,
        truncated: cut.lines < wanted || cut.cut_line,
        cut_line: cut.cut_line,
        beyond: cut.beyond,
        next: (end < total_lines).then_some(end),
        text: cut.text,
    })
}

/// `CountedBytes` is the bytes to count: a file up to its size at opening, or memory.
enum CountedBytes<'a> {
    File { file: &'a File, size: u64 },
    Memory(&'a [u8]),
}

impl CountedBytes<'_> {
    fn size(&self) -> u64 {
        match self {
            CountedBytes::File { size, .. } => *size,
            CountedBytes::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Fills the buffer from `offset`, as far as the source goes. Bytes that were appended since
    /// are ignored.
    fn read_at<'b>(&self, buffer: &'b mut [u8], offset: u64) -> io::Result<&'b [u8]> {
        let left = self.size().saturating_sub(offset);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = &mut buffer[..wanted];
        match self {
            CountedBytes::Memory(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                buffer.copy_from_slice(&bytes[start..start + wanted]);
                Ok(buffer)
            }
            CountedBytes::File { file, .. } => {
                let filled = fill_from(file, buffer, offset)?;
                Ok(&buffer[..filled])
            }
        }
    }
}

/// `Counted` is the result of one pass over the file.
#[derive(Debug, Default)]
struct Counted {
    /// The number of line breaks in each block.
    breaks: Vec<u32>,
    size: u64,
    ends_with_break: bool,
    utf8: bool,
    tag: Option<String>,
}

impl Counted {
    fn total_lines(&self) -> u64 {
        let breaks: u64 = self.breaks.iter().map(|&count| u64::from(count)).sum();
        breaks + u64::from(self.size > 0 && !self.ends_with_break)
    }

    fn add_block(&mut self, block: &[u8]) {
        self.breaks.push(memchr::memchr_iter(b'\n', block).count() as u32);
        self.size += block.len() as u64;
        self.ends_with_break = block.ends_with(b"\n");
    }
}

/// Counts lines, checks UTF-8 and hashes in one pass; `None` if cancelled.
fn count_and_hash(
    source: &CountedBytes<'_>,
    hash: bool,
    cancelled: &AtomicBool,
) -> io::Result<Option<Counted>> {
    let mut counted = Counted { utf8: true, ..Counted::default() };
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; BLOCK_BYTES.min(source.size() as usize)];
    // The start of a character that was split by the end of a block.
    let mut carry: Vec<u8> = Vec::with_capacity(8);
    loop {
        if cancelled.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let block = source.read_at(&mut buffer, counted.size)?;
        if block.is_empty() {
            break;
        }
        if hash {
            hasher.update(block);
        }
        counted.utf8 = counted.utf8 && continues_utf8(&mut carry, block);
        counted.add_block(block);
    }
    counted.utf8 &= carry.is_empty();
    counted.tag = hash.then(|| tag::of_hash(&hasher));
    Ok(Some(counted))
}

/// Reports whether `carry` followed by `block` is UTF-8. The start of a split last character
/// becomes the new carry.
fn continues_utf8(carry: &mut Vec<u8>, block: &[u8]) -> bool {
    let mut rest = block;
    while !carry.is_empty() {
        let Some((&byte, after)) = rest.split_first() else { return true };
        rest = after;
        carry.push(byte);
        match std::str::from_utf8(carry) {
            Ok(_) => carry.clear(),
            Err(err) if err.error_len().is_some() => return false,
            Err(_) => {}
        }
    }
    match std::str::from_utf8(rest) {
        Ok(_) => true,
        Err(err) if err.error_len().is_none() => {
            carry.extend_from_slice(&rest[err.valid_up_to()..]);
            true
        }
        Err(_) => false,
    }
}

/// Only counts lines; `None` if cancelled. Only files above the hashing limit come here. Each half
/// is counted on a separate thread, so that a large file does not wait for one core.
fn count_on_two_threads(source: &CountedBytes<'_>, cancelled: &AtomicBool) -> io::Result<Option<Counted>> {
    let CountedBytes::File { file, size } = *source else { return count_and_hash(source, false, cancelled) };
    let blocks = size.div_ceil(BLOCK_BYTES as u64);
    let middle = blocks / 2 * BLOCK_BYTES as u64;
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| count_range(file, middle, size, cancelled));
        let first = count_range(file, 0, middle, cancelled);
        (first, second.join().unwrap_or_else(|_| Err(io::Error::other("the counting thread panicked"))))
    });
    let (Some(mut first), Some(second)) = (first?, second?) else { return Ok(None) };
    if first.size == middle {
        first.breaks.extend(second.breaks);
        first.size += second.size;
        first.ends_with_break = second.ends_with_break;
    }
    let mut head = vec![0; BLOCK_BYTES];
    first.utf8 = text::whole_characters(source.read_at(&mut head, 0)?).is_some();
    Ok(Some(first))
}

fn count_range(file: &File, start: u64, end: u64, cancelled: &AtomicBool) -> io::Result<Option<Counted>> {
    let source = CountedBytes::File { file, size: end };
    let mut counted = Counted::default();
    let mut buffer = vec![0; BLOCK_BYTES];
    loop {
        if cancelled.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let block = source.read_at(&mut buffer, start + counted.size)?;
        if block.is_empty() {
            return Ok(Some(counted));
        }
        counted.add_block(block);
    }
}

struct CutLines {
    text: String,
    lines: u64,
    cut_line: bool,
    beyond: String,
}

/// Reads `wanted` lines from `first_line` on; `None` if they are not UTF-8.
fn read_lines(
    source: &CountedBytes<'_>,
    counted: &Counted,
    first_line: u64,
    wanted: u64,
    request: &WindowRequest,
) -> io::Result<Option<CutLines>> {
    let max_bytes = request.max_bytes;
    let mut buffer = vec![0; BLOCK_BYTES.min(source.size() as usize)];
    let mut bytes: Vec<u8> = Vec::new();
    let mut lines = 0;
    if wanted == 0 {
        return Ok(Some(CutLines { text: String::new(), lines: 0, cut_line: false, beyond: String::new() }));
    }
    let mut offset = offset_of_line(source, counted, first_line, &mut buffer)?;
    if offset == 0 && Encoding::of(source.read_at(&mut buffer, 0)?) == Encoding::Utf8Marked {
        offset = Encoding::Utf8Marked.mark().len() as u64;
    }
    let start = offset;
    // One byte more than fits distinguishes a full window from a cut one.
    while lines < wanted && bytes.len() <= max_bytes {
        let block = source.read_at(&mut buffer, offset)?;
        if block.is_empty() {
            break;
        }
        offset += block.len() as u64;
        let mut used = 0;
        for end in memchr::memchr_iter(b'\n', block) {
            lines += 1;
            used = end + 1;
            if lines == wanted {
                break;
            }
        }
        let taken = if lines == wanted { used } else { block.len() };
        bytes.extend_from_slice(&block[..taken.min(max_bytes.saturating_add(1) - bytes.len())]);
    }
    let cut_line = fit(&mut bytes, max_bytes);
    // The cut in an overlong last line may have split a character.
    let text = if cut_line { text::whole_characters(&bytes) } else { std::str::from_utf8(&bytes).ok() };
    let Some(text) = text else { return Ok(None) };
    let mut beyond = vec![0; if cut_line { request.beyond_cut } else { 0 }];
    let beyond = source.read_at(&mut beyond, start + text.len() as u64)?;
    Ok(Some(CutLines {
        lines: text::count_lines(text).max(u64::from(cut_line)),
        text: text.to_owned(),
        cut_line,
        beyond: String::from_utf8_lossy(beyond).into_owned(),
    }))
}

/// Shortens to whole lines within `max_bytes`; returns true if the first line alone is longer and
/// was cut.
fn fit(bytes: &mut Vec<u8>, max_bytes: usize) -> bool {
    if bytes.len() <= max_bytes {
        return false;
    }
    bytes.truncate(max_bytes);
    match memchr::memrchr(b'\n', bytes) {
        Some(end) => {
            bytes.truncate(end + 1);
            false
        }
        None => true,
    }
}

/// Returns the byte at which a line starts.
fn offset_of_line(
    source: &CountedBytes<'_>,
    counted: &Counted,
    line: u64,
    buffer: &mut [u8],
) -> io::Result<u64> {
    if line == 0 {
        return Ok(0);
    }
    let mut before = 0;
    for (index, &breaks) in counted.breaks.iter().enumerate() {
        let in_block = line - before;
        if in_block <= u64::from(breaks) {
            let start = index as u64 * BLOCK_BYTES as u64;
            let block = source.read_at(buffer, start)?;
            let nth = memchr::memchr_iter(b'\n', block).nth(in_block as usize - 1);
            return Ok(nth.map_or(counted.size, |at| start + at as u64 + 1));
        }
        before += u64::from(breaks);
    }
    Ok(counted.size)
}
