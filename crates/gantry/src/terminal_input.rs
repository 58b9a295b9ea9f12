//! Reads lines from a terminal with a line editor while other output may be printed. The line is erased before other output
//! and drawn again after it. Without a terminal, lines are read as they are.

use std::io::{BufRead, IsTerminal, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

use crate::line_editor::{Key, Keys, LineEditor, Typed};
use crate::output::{printable, question};

const WAITING: usize = 16;
/// Width that is assumed when the terminal does not report one.
const USUAL_COLUMNS: usize = 80;

pub(crate) struct Typing {
    lines: mpsc::Receiver<String>,
    line: Arc<Mutex<Line>>,
    /// The terminal's original settings. `None` if there is no terminal, or it cannot be changed.
    before: Option<Termios>,
}

/// The line as drawn on the screen.
#[derive(Default)]
struct Line {
    editor: LineEditor,
    /// The prompt. Without one, the line is not drawn.
    prompt: Option<String>,
    /// Rows from the first row of the line to the cursor.
    rows_above: usize,
    edits: bool,
}

impl Typing {
    pub(crate) fn start() -> Typing {
        let before = raw_terminal();
        let (typed, lines) = mpsc::channel(WAITING);
        let line = Arc::new(Mutex::new(Line { edits: before.is_some(), ..Line::default() }));
        let shared = line.clone();
        let edits = before.is_some();
        std::thread::spawn(move || if edits { read_keys(&shared, &typed) } else { read_lines(&typed) });
        Typing { lines, line, before }
    }

    /// Returns the next line, or `None` when the input has ended.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    /// Shows a prompt for a line.
    pub(crate) fn ask(&self, prompt: &str) {
        let mut line = lock(&self.line);
        line.erase();
        line.prompt = Some(prompt.to_owned());
        line.draw();
    }

    /// Erases the line from the screen before other output. The typed text is kept.
    pub(crate) fn put_away(&self) {
        let mut line = lock(&self.line);
        line.erase();
        line.prompt = None;
    }

    /// Discards the typed text. Returns whether there was any.
    pub(crate) fn clear(&self) -> bool {
        let mut line = lock(&self.line);
        let was_empty = line.editor.is_empty();
        line.erase();
        line.editor.clear();
        line.draw();
        !was_empty
    }
}

impl Drop for Typing {
    fn drop(&mut self) {
        self.put_away();
        if let Some(before) = &self.before {
            question("\x1b[?2004l");
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Turns off line buffering and echo. Ctrl-C still sends a signal.
fn raw_terminal() -> Option<Termios> {
    let (stdin, stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return None;
    }
    let before = tcgetattr(&stdin).ok()?;
    let mut raw = before.clone();
    raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN);
    raw.input_modes.remove(InputModes::ICRNL | InputModes::INLCR);
    tcsetattr(&stdin, OptionalActions::Now, &raw).ok()?;
    // Enables bracketed paste.
    question("\x1b[?2004h");
    Some(before)
}

fn read_keys(line: &Mutex<Line>, typed: &mpsc::Sender<String>) {
    let mut keys = Keys::default();
    let mut bytes = [0; 1024];
    loop {
        let Ok(read @ 1..) = std::io::stdin().read(&mut bytes) else { return };
        for byte in &bytes[..read] {
            let Some(key) = keys.take(*byte) else { continue };
            let done = lock(line).key(key);
            let goes_on = match done {
                Typed::More => true,
                Typed::Line(line) => typed.blocking_send(line).is_ok(),
                Typed::End => false,
            };
            if !goes_on {
                return;
            }
        }
    }
}

/// Reads lines without a terminal. A line that ends with a backslash continues.
fn read_lines(typed: &mpsc::Sender<String>) {
    let mut whole = String::new();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        match line.strip_suffix('\\') {
            Some(begun) => {
                whole.push_str(begun);
                whole.push('\n');
            }
            None => {
                whole.push_str(&line);
                if typed.blocking_send(std::mem::take(&mut whole)).is_err() {
                    return;
                }
            }
        }
    }
}

impl Line {
    fn key(&mut self, key: Key) -> Typed {
        let shown = self.editor.text();
        self.erase();
        let typed = self.editor.key(key);
        match &typed {
            Typed::Line(_) => {
                // The completed line stays on the screen, and the prompt ends.
                if let Some(prompt) = self.prompt.take() {
                    question(&format!("{prompt}{}\n", printable(&shown)));
                }
            }
            Typed::More | Typed::End => self.draw(),
        }
        typed
    }

    fn draw(&mut self) {
        let Some(prompt) = &self.prompt else { return };
        if !self.edits {
            return question(prompt);
        }
        let columns = columns();
        let (text, before) = (printable(&self.editor.text()), printable(&self.editor.before()));
        let (end_row, end_column) = place(&format!("{prompt}{text}"), columns);
        let (row, column) = place(&format!("{prompt}{before}"), columns);
        let mut drawn = format!("{prompt}{text}");
        if end_column == 0 && end_row > 0 && !text.ends_with('\n') {
            // After a full row the cursor stays on it until another character follows.
            drawn.push('\n');
        }
        if end_row > row {
            drawn.push_str(&format!("\x1b[{}A", end_row - row));
        }
        drawn.push('\r');
        if column > 0 {
            drawn.push_str(&format!("\x1b[{column}C"));
        }
        question(&drawn);
        self.rows_above = row;
    }

    fn erase(&mut self) {
        if self.prompt.is_none() || !self.edits {
            return;
        }
        let up = std::mem::take(&mut self.rows_above);
        let up = if up > 0 { format!("\x1b[{up}A") } else { String::new() };
        question(&format!("{up}\r\x1b[J"));
    }
}

/// Returns the width of the terminal at standard error.
pub(crate) fn columns() -> usize {
    let size = tcgetwinsize(std::io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(USUAL_COLUMNS)
}

/// Returns the cursor's row and column after a text.
fn place(text: &str, columns: usize) -> (usize, usize) {
    let (mut row, mut column) = (0, 0);
    for c in text.chars() {
        if c == '\n' {
            (row, column) = (row + 1, 0);
            continue;
        }
        let width = width(c);
        if column + width > columns {
            (row, column) = (row + 1, 0);
        }
        column += width;
        if column >= columns {
            (row, column) = (row + 1, 0);
        }
    }
    (row, column)
}

/// Returns the columns of a character: two for wide scripts and emoji, none for combining marks.
fn width(c: char) -> usize {
    match u32::from(c) {
        0x300..=0x36F | 0x200B..=0x200F | 0xFE00..=0xFE0F => 0,
        0x1100..=0x115F | 0x2E80..=0xA4CF | 0xAC00..=0xD7A3 | 0xF900..=0xFAFF => 2,
        0xFE30..=0xFE6F | 0xFF00..=0xFF60 | 0xFFE0..=0xFFE6 | 0x1F300..=0x1FAFF | 0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_position_matches_the_terminal() {
        for (text, at) in [
            ("", (0, 0)),
            ("> abc", (0, 5)),
            ("one\ntwo", (1, 3)),
            ("0123456789", (1, 0)),
            ("0123456789a", (1, 1)),
            ("012345678\u{4e2d}", (1, 2)),
            ("e\u{301}", (0, 1)),
        ] {
            assert_eq!(place(text, 10), at, "{text:?}");
        }
    }
}
