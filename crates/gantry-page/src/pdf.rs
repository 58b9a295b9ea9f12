//! Extracts the text of a PDF. A reader with limits first reduces the document to its text. The
//! library that knows fonts and lines sees only the reduced document.

mod reduce;
mod silence_panics;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use pdf_extract::{ConvertToFmt, Document, PlainTextOutput, output_doc_page};

use crate::Unreadable;

/// How many pages are read.
pub(crate) const MAX_PAGES: usize = 2_000;
/// No page is started after this time.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// `PdfText` is the text of a PDF, page by page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PdfText {
    pub text: String,
    /// Whether there is more: characters beyond the limit, pages beyond the 2,000th, or what could
    /// not be read in 20 seconds.
    pub cut: bool,
}

/// Returns at most `max_chars` characters of the text of a PDF.
pub fn pdf_text(bytes: &[u8], max_chars: usize) -> Result<PdfText, Unreadable> {
    let started = Instant::now();
    let reduced = guarded(|| reduce::reduce(bytes)).unwrap_or_else(|| Err(broken()))?;
    let document = guarded(|| Document::load_mem(&reduced.bytes)).and_then(Result::ok).ok_or_else(broken)?;
    let mut text = String::new();
    let (mut room, mut cut) = (max_chars, reduced.cut);
    for page in 1..=reduced.pages {
        if room == 0 || started.elapsed() > TIME_LIMIT {
            cut = true;
            break;
        }
        let mut written = Bounded { text: String::new(), room, over: false };
        let read = guarded(|| output_doc_page(&document, &mut PlainTextOutput::new(&mut written), page));
        if !matches!(read, Some(Ok(()))) && !written.over {
            written.text.push_str(&format!("\n[page {page} could not be read completely]\n"));
        }
        (room, cut) = (written.room, cut || written.over);
        push_page(&mut text, &written.text);
    }
    if text.is_empty() {
        let why = "a PDF without text: its pages are pictures, or use fonts without character codes";
        return Err(Unreadable(why.to_owned()));
    }
    Ok(PdfText { text, cut })
}

fn broken() -> Unreadable {
    Unreadable("a PDF that cannot be read: it is damaged or cut off".to_owned())
}

/// Catches panics, because the libraries panic on some documents. The page or the document is then
/// given up, and none of its state is used again.
fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    silence_panics::quietly(|| catch_unwind(AssertUnwindSafe(work))).ok()
}

/// Trims lines, collapses empty ones, and puts a blank line between pages.
fn push_page(text: &mut String, page: &str) {
    let mut blank = !text.is_empty();
    for line in page.lines().map(str::trim_end) {
        if line.trim_start().is_empty() {
            blank = true;
            continue;
        }
        if !text.is_empty() {
            text.push_str(if blank { "\n\n" } else { "\n" });
        }
        blank = false;
        text.push_str(line);
    }
}

/// `Bounded` accepts as many characters as there is room for.
struct Bounded {
    text: String,
    room: usize,
    over: bool,
}

impl fmt::Write for &mut Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        for character in more.chars() {
            if self.room == 0 {
                self.over = true;
                return Err(fmt::Error);
            }
            self.room -= 1;
            self.text.push(character);
        }
        Ok(())
    }
}

impl<'a> ConvertToFmt for &'a mut Bounded {
    type Writer = &'a mut Bounded;

    fn convert(self) -> Self::Writer {
        self
    }
}
