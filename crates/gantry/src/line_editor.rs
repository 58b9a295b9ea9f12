//! Edits one line of input and keeps a history. It knows nothing about terminals.

/// Lines in the history.
const MAX_HISTORY: usize = 1_000;
/// Maximum characters of one message; more are ignored.
const MAX_CHARS: usize = 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    Enter,
    /// A line break in the message.
    NewLine,
    Backspace,
    Delete,
    Left,
    Right,
    Up,
    Down,
    Home,
    End,
    EraseWord,
    EraseBefore,
    EraseAfter,
    EndOfInput,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// The line is not complete yet.
    More,
    Line(String),
    /// The input has ended.
    End,
}

#[derive(Debug, Default)]
pub(crate) struct LineEditor {
    text: Vec<char>,
    /// The position of the cursor.
    at: usize,
    history: Vec<String>,
    /// The history entry that is shown; the history's length for the current draft.
    place: usize,
    /// The draft that was replaced by a history entry.
    draft: Vec<char>,
}

impl LineEditor {
    pub(crate) fn text(&self) -> String {
        self.text.iter().collect()
    }

    /// Returns the text before the cursor.
    pub(crate) fn before(&self) -> String {
        self.text.iter().take(self.at).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.set(Vec::new());
        self.place = self.history.len();
    }

    pub(crate) fn key(&mut self, key: Key) -> Typed {
        match key {
            Key::Char(c) => self.insert(c),
            Key::NewLine => self.insert('\n'),
            Key::Enter => return self.enter(),
            Key::Backspace if self.at > 0 => {
                self.at -= 1;
                self.text.remove(self.at);
            }
            Key::Delete if self.at < self.text.len() => drop(self.text.remove(self.at)),
            Key::Left => self.at = self.at.saturating_sub(1),
            Key::Right => self.at = (self.at + 1).min(self.text.len()),
            Key::Home => self.at = self.line_start(),
            Key::End => {
                let rest = self.text[self.at..].iter().position(|c| *c == '\n');
                self.at = rest.map_or(self.text.len(), |rest| self.at + rest);
            }
            Key::EraseBefore => {
                let start = self.line_start();
                self.text.drain(start..self.at);
                self.at = start;
            }
            Key::EraseAfter => self.text.truncate(self.at),
            Key::EraseWord => {
                let is_space = |at: usize| self.text[at].is_whitespace();
                let mut start = self.at;
                while start > 0 && is_space(start - 1) {
                    start -= 1;
                }
                while start > 0 && !is_space(start - 1) {
                    start -= 1;
                }
                self.text.drain(start..self.at);
                self.at = start;
            }
            Key::Up if self.place > 0 => self.look(self.place - 1),
            Key::Down if self.place < self.history.len() => self.look(self.place + 1),
            Key::EndOfInput if self.text.is_empty() => return Typed::End,
            Key::Backspace | Key::Delete | Key::Up | Key::Down | Key::EndOfInput => {}
        }
        Typed::More
    }

    fn insert(&mut self, c: char) {
        if self.text.len() < MAX_CHARS {
            self.text.insert(self.at, c);
            self.at += 1;
        }
    }

    /// Completes the line, unless it ends with a backslash.
    fn enter(&mut self) -> Typed {
        if self.at == self.text.len() && self.text.last() == Some(&'\\') {
            self.text.pop();
            self.at -= 1;
            self.insert('\n');
            return Typed::More;
        }
        let line = self.text();
        if !line.trim().is_empty() && self.history.last() != Some(&line) {
            self.history.push(line.clone());
            if self.history.len() > MAX_HISTORY {
                self.history.remove(0);
            }
        }
        self.clear();
        Typed::Line(line)
    }

    fn look(&mut self, place: usize) {
        if self.place == self.history.len() {
            self.draft = self.text.clone();
        }
        self.place = place;
        let text = self.history.get(place).map(|line| line.chars().collect());
        self.set(text.unwrap_or_else(|| self.draft.clone()));
    }

    fn set(&mut self, text: Vec<char>) {
        self.at = text.len();
        self.text = text;
    }

    fn line_start(&self) -> usize {
        self.text[..self.at].iter().rposition(|c| *c == '\n').map_or(0, |before| before + 1)
    }
}

/// Converts the bytes of a terminal to keys.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// An incomplete character or escape sequence.
    begun: Vec<u8>,
    /// Whether the input is pasted. Line breaks in pasted text do not send the message.
    pasting: bool,
}

/// Maximum length of an escape sequence.
const MAX_SEQUENCE: usize = 16;

impl Keys {
    pub(crate) fn take(&mut self, byte: u8) -> Option<Key> {
        self.begun.push(byte);
        if self.begun[0] == 0x1b {
            return self.escape();
        }
        let key = match std::str::from_utf8(&self.begun) {
            Ok(text) => text.chars().next().and_then(|c| self.plain(c)),
            Err(err) if err.error_len().is_none() && self.begun.len() < 4 => return None,
            Err(_) => None,
        };
        self.begun.clear();
        key
    }

    fn plain(&self, c: char) -> Option<Key> {
        Some(match c {
            '\r' if self.pasting => Key::NewLine,
            '\r' => Key::Enter,
            '\n' => Key::NewLine,
            '\t' => Key::Char(' '),
            '\u{7f}' | '\u{8}' => Key::Backspace,
            '\u{1}' => Key::Home,
            '\u{2}' => Key::Left,
            '\u{4}' => Key::EndOfInput,
            '\u{5}' => Key::End,
            '\u{6}' => Key::Right,
            '\u{b}' => Key::EraseAfter,
            '\u{e}' => Key::Down,
            '\u{10}' => Key::Up,
            '\u{15}' => Key::EraseBefore,
            '\u{17}' => Key::EraseWord,
            c if c.is_control() => return None,
            c => Key::Char(c),
        })
    }

    fn escape(&mut self) -> Option<Key> {
        let key = match &self.begun[1..] {
            [] | [b'[' | b'O'] => return None,
            [b'\r' | b'\n'] => Some(Key::NewLine),
            [b'[' | b'O', parameters @ .., last] if (0x40..=0x7e).contains(last) => {
                match (last, parameters) {
                    (b'A', _) => Some(Key::Up),
                    (b'B', _) => Some(Key::Down),
                    (b'C', _) => Some(Key::Right),
                    (b'D', _) => Some(Key::Left),
                    (b'H', _) | (b'~', b"1" | b"7") => Some(Key::Home),
                    (b'F', _) | (b'~', b"4" | b"8") => Some(Key::End),
                    (b'~', b"3") => Some(Key::Delete),
                    (b'~', b"200" | b"201") => {
                        self.pasting = parameters == b"200";
                        None
                    }
                    _ => None,
                }
            }
            [b'[' | b'O', ..] if self.begun.len() < MAX_SEQUENCE => return None,
            _ => None,
        };
        self.begun.clear();
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types bytes and checks the completed lines and the rest.
    fn check(editor: &mut LineEditor, bytes: &[u8], lines: &[&str], left: &str) {
        let mut keys = Keys::default();
        let typed = bytes.iter().filter_map(|byte| keys.take(*byte)).map(|key| editor.key(key));
        let found: Vec<String> = typed
            .filter_map(|typed| match typed {
                Typed::Line(line) => Some(line),
                Typed::More => None,
                Typed::End => Some("END".into()),
            })
            .collect();
        assert_eq!(
            (found, editor.text().as_str()),
            (lines.iter().map(|&line| line.to_owned()).collect(), left)
        );
    }

    #[test]
    fn keys_edit_the_line() {
        let editor = &mut LineEditor::default();
        check(editor, b"helo\x1b[Dl\r", &["hello"], "");
        check(editor, "gr\u{fc}\u{df}e \u{1f600}\r".as_bytes(), &["gr\u{fc}\u{df}e \u{1f600}"], "");
        check(editor, b"one two\x17\x7f\r", &["one"], "");
        check(editor, b"abc\x01X\x05Y\x02\x0b\r", &["XabcY".trim_end_matches('Y')], "");
        check(editor, b"abc\x15d\x1b[3~\x1b[1~\x1b[3~\r", &[""], "");
        check(editor, b"x\x04", &[], "x");
        check(editor, b"\x7f\x7f\x04", &["END"], "");
    }

    #[test]
    fn message_can_have_several_lines() {
        let editor = &mut LineEditor::default();
        check(editor, b"one\\\rtwo\r", &["one\ntwo"], "");
        check(editor, b"one\x1b\rtwo\nthree\r", &["one\ntwo\nthree"], "");
        check(editor, b"\x1b[200~pasted\rlines\r\x1b[201~", &[], "pasted\nlines\n");
        check(editor, b"\x1b[A\x1b[B\x0b\r", &["pasted\nlines\n"], "");
    }

    #[test]
    fn arrow_keys_show_the_history_and_then_the_draft() {
        let editor = &mut LineEditor::default();
        check(editor, b"first\rsecond\rsecond\r  \r", &["first", "second", "second", "  "], "");
        check(editor, b"draft\x1b[A\x1b[A\x1b[A", &[], "first");
        check(editor, b"\x1b[B\x1bOB\x1b[B", &[], "draft");
        check(editor, b"\x1b[A!\r", &["second!"], "");
    }

    #[test]
    fn any_bytes_are_accepted() {
        let mut keys = Keys::default();
        let mut editor = LineEditor::default();
        let mut seed = 7_u32;
        for _ in 0..100_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if let Some(key) = keys.take((seed >> 24) as u8) {
                editor.key(key);
            }
            assert!(editor.before().chars().count() <= editor.text().chars().count());
        }
    }
}
