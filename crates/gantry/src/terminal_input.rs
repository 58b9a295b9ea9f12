//! Reads what a person types in a conversation: edited lines at a terminal, plain lines otherwise.

use std::io::{BufRead, IsTerminal};
use std::sync::Arc;

use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use crate::line_editor::{ANSWER_PROMPT, Complete, Expected, Keys, LineEditor, PROMPT, Typed};
use crate::live_screen::LiveScreen;
use crate::output::{question, terminal_code};

const WAITING: usize = 16;

pub(crate) struct Typing {
    typed: mpsc::Receiver<Typed>,
    /// `None` if lines are read as they are.
    editor: Option<LineEditor>,
    /// The terminal's original settings.
    before: Option<Termios>,
    /// Whether a prompt was printed and its line has not arrived.
    has_prompt: bool,
    is_answer: bool,
}

impl Typing {
    /// Starts to read. `screen` is `None` if the terminal cannot move its cursor.
    pub(crate) fn start(
        screen: Option<&Arc<LiveScreen>>,
        keys: Keys,
        history: &[String],
        complete: Complete,
    ) -> Typing {
        let (sender, typed) = mpsc::channel(WAITING);
        let before = screen.and_then(|_| take_keys());
        let editor = screen
            .filter(|_| before.is_some())
            .and_then(|screen| LineEditor::start(screen, keys, history, complete, sender.clone()));
        if editor.is_none() {
            if let Some(before) = &before {
                let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
            }
            std::thread::spawn(move || read_lines(&sender));
        }
        Typing { typed, editor, before, has_prompt: false, is_answer: false }
    }

    pub(crate) async fn next(&mut self) -> Typed {
        let typed = self.typed.recv().await.unwrap_or(Typed::End);
        self.has_prompt = false;
        match typed {
            // Without an editor, the line's meaning is decided when it arrives.
            Typed::Message(line) if self.editor.is_none() && self.is_answer => Typed::Answer(line),
            typed => typed,
        }
    }

    /// Returns whether lines are edited, so that a prompt is always shown.
    pub(crate) fn edits(&self) -> bool {
        self.editor.is_some()
    }

    /// Says what is expected next.
    pub(crate) fn expect(&mut self, expected: Expected) {
        self.is_answer = expected.check.is_some();
        match &self.editor {
            Some(editor) => editor.expect(expected),
            None if !self.has_prompt
                && std::io::stdin().is_terminal()
                && (self.is_answer || !expected.is_running) =>
            {
                question(if self.is_answer { ANSWER_PROMPT } else { PROMPT });
                self.has_prompt = true;
            }
            None => {}
        }
    }
}

impl Drop for Typing {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // Also turns off bracketed paste, which the editor turned on.
            terminal_code("\x1b[?2004l");
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Makes the terminal pass keys on as they are, so that nothing is echoed or changed that is typed between two lines. Ctrl-C
/// still sends a signal. Returns the settings before.
fn take_keys() -> Option<Termios> {
    let before = tcgetattr(std::io::stdin()).ok()?;
    let mut keys = before.clone();
    keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN);
    keys.input_modes.remove(InputModes::ICRNL | InputModes::INLCR);
    tcsetattr(std::io::stdin(), OptionalActions::Now, &keys).ok()?;
    Some(before)
}

/// Reads lines as they are. A line that ends with a backslash continues.
fn read_lines(typed: &mpsc::Sender<Typed>) {
    let mut whole = String::new();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        match line.strip_suffix('\\') {
            Some(begun) => {
                whole.push_str(begun);
                whole.push('\n');
            }
            None => {
                whole.push_str(&line);
                if typed.blocking_send(Typed::Message(std::mem::take(&mut whole))).is_err() {
                    return;
                }
            }
        }
    }
    let _ = typed.blocking_send(Typed::End);
}
