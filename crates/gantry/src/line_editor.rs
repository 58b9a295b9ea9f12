//! Edits lines at a terminal on a thread of its own, with history and completion. `rustyline` does the editing, because it
//! redraws with relative movements; other output goes through [`LiveScreen`] and does not tear the line.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    Cmd, ColorMode, CompletionType, ConditionalEventHandler, Config, Context, EditMode, Editor, Event,
    EventContext, EventHandler, ExternalPrinter, Helper, KeyEvent, Modifiers, Movement, RepeatCount,
};
use tokio::sync::mpsc;

use crate::live_screen::LiveScreen;

pub(crate) const PROMPT: &str = "> ";
/// The prompt while an answer is expected. It must be as wide as [`PROMPT`].
pub(crate) const ANSWER_PROMPT: &str = "? ";
/// Entries in the history.
pub(crate) const MAX_HISTORY: usize = 1_000;
/// Printed to make the editor draw: one row up and down again.
const WAKE: &str = "\x1b[1A\n";

/// The keys that edit a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Keys {
    #[default]
    Emacs,
    Vi,
}

/// What came from the terminal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    Message(String),
    /// The answer to the question that was open when Enter was pressed.
    Answer(String),
    /// Ctrl-C, with nothing typed or during a run.
    Interrupt,
    /// The input has ended.
    End,
}

/// Says whether a text answers the open question: `None` if it does, otherwise a sentence for the person.
pub(crate) type CheckAnswer = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;
/// Returns the start of the word that ends at a position of a line, and what it may become.
pub(crate) type Complete = Arc<dyn Fn(&str, usize) -> (usize, Vec<Candidate>) + Send + Sync>;

/// One way to complete a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) text: String,
    /// The text with its description, as the list shows it.
    pub(crate) shown: String,
}

/// What the conversation expects from the terminal. The editor's thread reads it at each key.
#[derive(Default)]
pub(crate) struct Expected {
    /// Checks answers to the open question. Without a question, a line is a message.
    pub(crate) check: Option<CheckAnswer>,
    /// Whether Ctrl-C stops a run.
    pub(crate) is_running: bool,
}

#[derive(Clone)]
pub(crate) struct LineEditor {
    expected: Arc<Mutex<Expected>>,
}

impl LineEditor {
    /// Starts the thread. Returns `None` if this terminal cannot edit lines.
    pub(crate) fn start(
        screen: &Arc<LiveScreen>,
        keys: Keys,
        history: &[String],
        complete: Complete,
        typed: mpsc::Sender<Typed>,
    ) -> Option<LineEditor> {
        let expected = Arc::new(Mutex::new(Expected::default()));
        let config = Config::builder()
            .edit_mode(match keys {
                Keys::Emacs => EditMode::Emacs,
                Keys::Vi => EditMode::Vi,
            })
            .max_history_size(MAX_HISTORY)
            .ok()?
            .completion_type(CompletionType::List)
            .completion_show_all_if_ambiguous(true)
            // Without colors, the editor would not draw what was printed meanwhile.
            .color_mode(ColorMode::Forced)
            .build();
        let mut editor = Editor::with_history(config, MemHistory::new()).ok()?;
        let mut printer = editor.create_external_printer().ok()?;
        screen.wakes(move || drop(printer.print(WAKE.to_owned())));
        for line in history {
            editor.add_history_entry(line.as_str()).ok()?;
        }
        let is_answer = Arc::new(AtomicBool::new(false));
        editor.set_helper(Some(Terminal {
            screen: screen.clone(),
            expected: expected.clone(),
            is_answer: is_answer.clone(),
            complete,
        }));
        let interrupt = Interrupt { expected: expected.clone(), typed: typed.clone() };
        editor.bind_sequence(KeyEvent::ctrl('C'), EventHandler::Conditional(Box::new(interrupt)));
        editor.bind_sequence(KeyEvent::new('\r', Modifiers::ALT), Cmd::Newline);
        editor.bind_sequence(KeyEvent::ctrl('J'), Cmd::Newline);
        let screen = screen.clone();
        std::thread::spawn(move || read_lines(editor, &screen, &is_answer, &typed));
        Some(LineEditor { expected })
    }

    pub(crate) fn expect(&self, expected: Expected) {
        *lock(&self.expected) = expected;
    }
}

type TerminalEditor = Editor<Terminal, MemHistory>;

fn read_lines(
    mut editor: TerminalEditor,
    screen: &LiveScreen,
    is_answer: &AtomicBool,
    typed: &mpsc::Sender<Typed>,
) {
    loop {
        screen.begin_editing();
        let read = editor.readline(PROMPT);
        let is_answer = is_answer.load(Ordering::Relaxed);
        let prompt = if is_answer { ANSWER_PROMPT } else { PROMPT };
        screen.end_editing(&format!("{prompt}{}", read.as_deref().unwrap_or_default()));
        let line = match read {
            // A backslash continues the message on the next line.
            Ok(line) => line.replace("\\\n", "\n"),
            Err(ReadlineError::Interrupted) => {
                if typed.blocking_send(Typed::Interrupt).is_err() {
                    return;
                }
                continue;
            }
            Err(_) => {
                let _ = typed.blocking_send(Typed::End);
                return;
            }
        };
        let sent = match is_answer {
            true => typed.blocking_send(Typed::Answer(line)),
            false => {
                if is_remembered(&line) {
                    let _ = editor.add_history_entry(line.as_str());
                }
                typed.blocking_send(Typed::Message(line))
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Returns whether a message enters the history: a line that starts with a space does not.
pub(crate) fn is_remembered(line: &str) -> bool {
    !line.trim().is_empty() && !line.starts_with(' ')
}

/// What the editor asks about its line.
struct Terminal {
    screen: Arc<LiveScreen>,
    expected: Arc<Mutex<Expected>>,
    /// Whether a question was open when Enter was pressed. A later question is not answered by the line.
    is_answer: Arc<AtomicBool>,
    complete: Complete,
}

impl Helper for Terminal {}

impl Hinter for Terminal {
    type Hint = String;
}

impl Highlighter for Terminal {
    /// The editor calls this when it draws, with the cursor at the start of the prompt.
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, default: bool) -> Cow<'b, str> {
        let above = self.screen.changes_for_editor();
        let is_answer = default && lock(&self.expected).check.is_some();
        let prompt = if is_answer { ANSWER_PROMPT } else { prompt };
        Cow::Owned(format!("{above}{prompt}"))
    }
}

impl Validator for Terminal {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        let check = lock(&self.expected).check.clone();
        self.is_answer.store(check.is_some(), Ordering::Relaxed);
        if check.is_none() && context.input().ends_with('\\') {
            return Ok(ValidationResult::Incomplete);
        }
        Ok(match check.and_then(|check| check(context.input())) {
            Some(sentence) => ValidationResult::Invalid(Some(format!("\n{sentence}"))),
            None => ValidationResult::Valid(None),
        })
    }
}

impl Completer for Terminal {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, found) = (self.complete)(line, position);
        let pair = |found: Candidate| Pair { display: found.shown, replacement: found.text };
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

/// Ctrl-C stops a run, and otherwise clears the line.
struct Interrupt {
    expected: Arc<Mutex<Expected>>,
    typed: mpsc::Sender<Typed>,
}

impl ConditionalEventHandler for Interrupt {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        if !context.line().is_empty() && !lock(&self.expected).is_running {
            return Some(Cmd::Kill(Movement::WholeBuffer));
        }
        // The typed text stays.
        let _ = self.typed.blocking_send(Typed::Interrupt);
        Some(Cmd::Noop)
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
