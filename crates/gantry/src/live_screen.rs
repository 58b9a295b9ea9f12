//! The bottom of a conversation's terminal: rows that change, such as an unfinished answer and a spinner, and the prompt.
//!
//! Finished text goes above these rows, so neither the rows nor the typed text are torn. While a line is edited, only the
//! editor draws: other threads leave their text here and wake it. All movements are relative to the cursor, so the terminal
//! is never asked for a position.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::termios::tcgetwinsize;
use unicode_width::UnicodeWidthChar;

use crate::output::printable;

/// Width that is assumed when the terminal does not report one.
const USUAL_COLUMNS: usize = 80;

/// The screen of this process, if a conversation is shown. [`crate::output`] prints through it.
static CURRENT: Mutex<Option<Arc<LiveScreen>>> = Mutex::new(None);

pub(crate) struct LiveScreen {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Finished text that waits until the editor draws.
    pending: String,
    /// The rows that change. Each fits the width.
    rows: Vec<String>,
    /// How many of them are on the screen.
    drawn: usize,
    /// Makes the editor draw.
    wake: Option<Box<dyn FnMut() + Send>>,
    /// The editor was woken and has not drawn since.
    is_woken: bool,
    /// A line is edited, so the cursor is in it.
    is_editing: bool,
}

/// Removes the screen when the conversation ends.
pub(crate) struct ShownScreen {
    screen: Arc<LiveScreen>,
}

impl LiveScreen {
    /// Makes all output of this process go through a new screen, until the returned value is dropped.
    pub(crate) fn show() -> ShownScreen {
        let screen = Arc::new(LiveScreen { state: Mutex::default() });
        *lock(&CURRENT) = Some(screen.clone());
        ShownScreen { screen }
    }

    /// Prints finished text above the changing rows.
    pub(crate) fn print(&self, text: &str) {
        let mut state = lock(&self.state);
        state.pending.push_str(text);
        if state.is_editing {
            if !state.pending.is_empty() && !state.pending.ends_with('\n') {
                state.pending.push('\n');
            }
            return state.wake();
        }
        write(&state.changes());
    }

    /// Replaces the changing rows. Rows wider than the terminal are cut.
    pub(crate) fn set_rows(&self, rows: Vec<String>) {
        let mut state = lock(&self.state);
        if state.rows == rows {
            return;
        }
        state.rows = rows;
        if state.is_editing {
            return state.wake();
        }
        write(&state.changes());
    }

    /// Sets how the editor is made to draw.
    pub(crate) fn wakes(&self, wake: impl FnMut() + Send + 'static) {
        lock(&self.state).wake = Some(Box::new(wake));
    }

    /// From now on, only the editor draws.
    pub(crate) fn begin_editing(&self) {
        lock(&self.state).is_editing = true;
    }

    /// Returns what the editor has to print at the start of its first row, before it draws its line.
    pub(crate) fn changes_for_editor(&self) -> String {
        let mut state = lock(&self.state);
        state.is_woken = false;
        state.changes()
    }

    /// Called when the line was entered. The cursor is at the start of the row below it. Changing rows that were above the
    /// line move below it.
    pub(crate) fn end_editing(&self, line: &str) {
        let mut state = lock(&self.state);
        (state.is_editing, state.is_woken) = (false, false);
        if state.drawn == 0 && state.pending.is_empty() {
            return;
        }
        let line = printable(line);
        let rows = place(&line, columns()).0 + 1 + std::mem::take(&mut state.drawn);
        let pending = std::mem::take(&mut state.pending);
        state.pending = format!("\x1b[{rows}A\r\x1b[J{pending}{line}\n");
        write(&state.changes());
    }
}

impl State {
    fn wake(&mut self) {
        if !std::mem::replace(&mut self.is_woken, true)
            && let Some(wake) = &mut self.wake
        {
            wake();
        }
    }

    /// Returns the output that erases the old rows, prints the finished text and draws the new rows.
    fn changes(&mut self) -> String {
        let pending = std::mem::take(&mut self.pending);
        let mut text = match self.drawn {
            0 => String::new(),
            drawn => format!("\x1b[{drawn}A\r\x1b[J"),
        };
        // After an unfinished line there is no place for rows.
        let is_whole = pending.is_empty() || pending.ends_with('\n');
        text.push_str(&pending);
        self.drawn = 0;
        if is_whole {
            for row in &self.rows {
                text.push_str(row);
                text.push('\n');
            }
            self.drawn = self.rows.len();
        }
        text
    }
}

impl std::ops::Deref for ShownScreen {
    type Target = Arc<LiveScreen>;

    fn deref(&self) -> &Arc<LiveScreen> {
        &self.screen
    }
}

impl Drop for ShownScreen {
    fn drop(&mut self) {
        self.screen.set_rows(Vec::new());
        *lock(&CURRENT) = None;
        let mut state = lock(&self.screen.state);
        if std::mem::take(&mut state.is_editing) {
            // The line that is still edited goes away with its conversation.
            write("\r\x1b[J");
        }
        write(&state.changes());
    }
}

/// Prints through the screen of a conversation. Returns false if none is shown.
pub(crate) fn print(text: &str) -> bool {
    let current = lock(&CURRENT).clone();
    current.inspect(|screen| screen.print(text)).is_some()
}

/// Returns the width of the terminal at standard error.
pub(crate) fn columns() -> usize {
    let size = tcgetwinsize(std::io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(USUAL_COLUMNS)
}

/// Returns the last rows of a text, as the terminal breaks it at this width.
pub(crate) fn last_rows(text: &str, columns: usize, limit: usize) -> Vec<String> {
    let mut rows = Vec::new();
    for line in text.split('\n') {
        let (mut row, mut column) = (String::new(), 0);
        for c in line.chars() {
            let width = c.width().unwrap_or(0);
            if column + width >= columns {
                rows.push(std::mem::take(&mut row));
                column = 0;
            }
            row.push(c);
            column += width;
        }
        rows.push(row);
    }
    rows.split_off(rows.len().saturating_sub(limit))
}

/// Cuts a text so that it fits into one row.
pub(crate) fn one_row(text: &str, columns: usize) -> String {
    let mut left = columns.saturating_sub(2);
    let mut row = String::new();
    for c in text.chars() {
        let width = c.width().unwrap_or(0);
        if width > left {
            row.push('…');
            break;
        }
        left -= width;
        row.push(c);
    }
    row
}

/// Returns the cursor's row and column after a text.
fn place(text: &str, columns: usize) -> (usize, usize) {
    let (mut row, mut column) = (0, 0);
    for c in text.chars() {
        if c == '\n' {
            (row, column) = (row + 1, 0);
            continue;
        }
        let width = c.width().unwrap_or(0);
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

fn write(text: &str) {
    if text.is_empty() {
        return;
    }
    let mut stdout = std::io::stdout().lock();
    // A failed write is ignored: the terminal is gone, and the next read of it ends the conversation.
    let _ = stdout.write_all(text.as_bytes());
    let _ = stdout.flush();
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn rows_are_replaced_and_finished_text_stays_above_them() {
        let mut state = State { rows: vec!["thinking".into()], ..State::default() };
        assert_eq!(state.changes(), "thinking\n");
        state.pending = "done\n".into();
        state.rows = vec!["one".into(), "two".into()];
        assert_eq!(state.changes(), "\u{1b}[1A\r\u{1b}[Jdone\none\ntwo\n");
        state.rows.clear();
        assert_eq!(state.changes(), "\u{1b}[2A\r\u{1b}[J");
        assert_eq!(state.changes(), "");
        // A question is not followed by rows until its line ends.
        state.rows = vec!["later".into()];
        state.pending = "Which? ".into();
        assert_eq!(state.changes(), "Which? ");
    }

    #[test]
    fn text_printed_while_a_line_is_edited_waits_for_the_editor() {
        let screen = LiveScreen { state: Mutex::default() };
        let woken = Arc::new(Mutex::new(0));
        let counted = woken.clone();
        screen.wakes(move || *lock(&counted) += 1);
        screen.begin_editing();
        screen.print("one");
        screen.print("two\n");
        screen.set_rows(vec!["spinner".into()]);
        assert_eq!(*lock(&woken), 1, "the editor is woken once");
        assert_eq!(screen.changes_for_editor(), "one\ntwo\nspinner\n");
        screen.print("three\n");
        assert_eq!(*lock(&woken), 2);
    }

    #[test]
    fn unfinished_answer_shows_its_last_rows() {
        assert_eq!(last_rows("abcdefgh", 5, 9), ["abcd", "efgh"]);
        assert_eq!(last_rows("abcdefghij", 5, 2), ["efgh", "ij"]);
        assert_eq!(one_row("a long command line", 10), "a long c…");
        assert_eq!(one_row("short", 10), "short");
    }
}
