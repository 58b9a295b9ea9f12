//! Prints results on standard output and everything else on standard error, with colors only on terminals.
//!
//! Only this module prints. A failed write must not end the program, so nothing here may panic.

use std::cell::Cell;
use std::io::{ErrorKind, IsTerminal, Write};

use gantry_tool::{Refusal, Reply};
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};

use crate::cli::{ColorChoice, Global};
use crate::config::LogLevel;
use crate::exit::Exit;
use crate::live_screen;
use crate::table::Table;
use crate::terminal_text::{one_line, tame_json, unstyled};
pub(crate) use crate::terminal_text::{printable, styled};
use crate::wrapping::wrapped;

pub(crate) struct Output {
    pub(crate) json: bool,
    verbosity: Verbosity,
    stdout_terminal: bool,
    stdout_color: bool,
    stderr_color: bool,
    lost: Cell<bool>,
    left: Cell<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verbosity {
    Quiet,
    Normal,
    Verbose,
}

impl Output {
    pub(crate) fn new(global: &Global) -> Output {
        let wanted = |terminal: bool| match global.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            #[expect(clippy::disallowed_methods, reason = "NO_COLOR is a terminal's convention")]
            ColorChoice::Auto => {
                terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        };
        let stdout_terminal = std::io::stdout().is_terminal();
        Output {
            json: global.json,
            verbosity: match (global.quiet, global.verbose) {
                (true, _) => Verbosity::Quiet,
                (false, true) => Verbosity::Verbose,
                (false, false) => Verbosity::Normal,
            },
            stdout_terminal,
            stdout_color: wanted(stdout_terminal),
            stderr_color: wanted(std::io::stderr().is_terminal()),
            lost: Cell::new(false),
            left: Cell::new(false),
        }
    }

    /// Returns whether standard output is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.stdout_terminal
    }

    /// Returns whether progress is shown: standard error is a terminal and `--quiet` was not given.
    pub(crate) fn shows_progress(&self) -> bool {
        self.verbosity != Verbosity::Quiet && std::io::stderr().is_terminal()
    }

    /// Prints one line. A line break in the text is escaped, so that data cannot forge another line.
    pub(crate) fn line(&self, text: &str) {
        self.write(&format!("{}\n", one_line(text)));
    }

    /// Prints one line like [`Output::line`], wrapped at a terminal's width. Further lines start at the column `hanging`.
    pub(crate) fn prose(&self, text: &str, hanging: usize) {
        let line = one_line(text);
        let line = match self.width() {
            0 => line,
            width => wrapped(&line, hanging, width),
        };
        self.write(&format!("{line}\n"));
    }

    /// Returns whether answers are rendered with styles.
    pub(crate) fn renders(&self) -> bool {
        self.stdout_terminal && self.stdout_color
    }

    /// Prints text whose styles and control characters are the program's own.
    pub(crate) fn rendered(&self, text: &str) {
        if !text.is_empty() {
            self.write(text);
        }
    }

    /// Returns the width of the terminal at standard output, 0 if it is unknown or there is none.
    pub(crate) fn width(&self) -> usize {
        let size = self.stdout_terminal.then(|| tcgetwinsize(std::io::stdout()).ok()).flatten();
        size.map_or(0, |size| usize::from(size.ws_col))
    }

    /// Prints a table, wrapped at a terminal's width.
    pub(crate) fn table(&self, table: &Table) {
        table.lines(self.width()).iter().for_each(|line| self.line(line));
    }

    /// Prints text of several lines.
    pub(crate) fn page(&self, text: &str) {
        self.write(&format!("{}\n", unstyled(text)));
    }

    /// Prints a value as JSON: indented on a terminal, otherwise on one line.
    pub(crate) fn value<T: serde::Serialize + ?Sized>(&self, value: &T) {
        let text = if self.stdout_terminal {
            serde_json::to_string_pretty(value)
        } else {
            serde_json::to_string(value)
        };
        let text = text.unwrap_or_default();
        self.write(&format!("{}\n", if self.stdout_terminal { tame_json(&text) } else { text }));
    }

    pub(crate) fn reply(&self, reply: &Reply) {
        match reply {
            Reply::Json(value) => self.value(value),
            // Text is printed byte for byte. A terminal gets a final line break and no control characters.
            Reply::Text(text) if self.stdout_terminal => {
                let end = if text.ends_with('\n') { "" } else { "\n" };
                self.write(&format!("{}{end}", printable(text)));
            }
            Reply::Text(text) => self.write(text),
        }
    }

    /// Prints a tool's error: as text for a person, as the tool's JSON for a program.
    pub(crate) fn tool_error(&self, reply: &Reply) {
        match words_of(reply).filter(|_| !self.is_for_programs()) {
            Some(words) => self.error(&words),
            None => self.reply(reply),
        }
    }

    /// Prints a refusal as text on standard error, and as an object on standard output for programs.
    pub(crate) fn refusal(&self, refusal: &Refusal) {
        self.error_object(&refusal.to_json());
        self.error(&refusal.to_string());
    }

    /// Prints the error object on standard output if a program reads it.
    pub(crate) fn error_object(&self, object: &Value) {
        if self.is_for_programs() {
            self.value(object);
        }
    }

    fn is_for_programs(&self) -> bool {
        self.json || !self.stdout_terminal
    }

    /// Prints a refusal like [`Output::refusal`] and returns its exit code.
    pub(crate) fn refused(&self, refusal: &Refusal) -> Exit {
        self.refusal(refusal);
        refusal.code.into()
    }

    /// Reports success on standard error; with `--json` also on standard output.
    pub(crate) fn done(&self, text: &str) {
        if self.json {
            self.value(&json!({"done": true}));
        }
        if self.verbosity != Verbosity::Quiet {
            say(&wrapped_to_terminal(&printable(text)));
        }
    }

    pub(crate) fn error(&self, text: &str) {
        say(&wrapped_to_terminal(&format!("{} {}", self.stderr_styled("error:", "1;31"), printable(text))));
    }

    /// Says on standard error why a command failed, for a person.
    pub(crate) fn failure(&self, text: &str) {
        say(&self.stderr_styled(&format!("✗ {text}"), "1;31"));
    }

    pub(crate) fn warning(&self, text: &str) {
        if self.verbosity != Verbosity::Quiet {
            let warning = self.stderr_styled("warning:", "1;33");
            say(&wrapped_to_terminal(&format!("{warning} {}", printable(text))));
        }
    }

    pub(crate) fn note(&self, text: &str) {
        if self.verbosity == Verbosity::Verbose {
            say(text);
        }
    }

    /// Prints a heading of a listing on standard error, if a person reads the listing.
    pub(crate) fn note_on_terminal(&self, text: &str) {
        if self.verbosity == Verbosity::Verbose
            || (self.verbosity == Verbosity::Normal && self.stdout_terminal)
        {
            say(&self.stderr_styled(&printable(text), "2"));
        }
    }

    /// Returns a printer for long-running commands. It prints warnings unless `--quiet` was given, and other notes on a
    /// terminal or with `--verbose`.
    pub(crate) fn running_notes(&self) -> RunningNotes {
        let (warnings, all) = match self.verbosity {
            Verbosity::Quiet => (false, false),
            Verbosity::Normal => (true, std::io::stderr().is_terminal()),
            Verbosity::Verbose => (true, true),
        };
        let log = match self.verbosity {
            Verbosity::Quiet => StderrLog::Errors,
            Verbosity::Normal => StderrLog::Configured,
            Verbosity::Verbose => StderrLog::Everything,
        };
        RunningNotes { warnings, all, log, color: self.stderr_color }
    }

    /// Prints one line about an agent's activity, on a terminal or with `--verbose`.
    pub(crate) fn activity(&self, text: &str, tone: Tone) {
        if self.running_notes().all {
            let code = match tone {
                Tone::Quiet => "2",
                Tone::Bad => "1;31",
                Tone::Added => "32",
                Tone::Removed => "31",
            };
            say(&self.stderr_styled(&wrapped_to_terminal(&printable(text)), code));
        }
    }

    pub(crate) fn styled(&self, text: &str, code: &str) -> String {
        styled(text, code, self.stdout_color)
    }

    pub(crate) fn bold(&self, text: &str) -> String {
        styled(text, "1", self.stdout_color)
    }

    pub(crate) fn dim(&self, text: &str) -> String {
        styled(text, "2", self.stdout_color)
    }

    pub(crate) fn green(&self, text: &str) -> String {
        styled(text, "32", self.stdout_color)
    }

    pub(crate) fn red(&self, text: &str) -> String {
        styled(text, "1;31", self.stdout_color)
    }

    pub(crate) fn yellow(&self, text: &str) -> String {
        styled(text, "33", self.stdout_color)
    }

    pub(crate) fn stderr_styled(&self, text: &str, code: &str) -> String {
        styled(text, code, self.stderr_color)
    }

    /// Returns whether all output was written.
    pub(crate) fn is_complete(&self) -> bool {
        !self.lost.get()
    }

    /// Returns whether the reader still accepts output.
    pub(crate) fn is_read(&self) -> bool {
        !self.lost.get() && !self.left.get()
    }

    /// Writes to standard output. A closed pipe (`gantry tools | head`) is not an error; a full disk is, reported once.
    fn write(&self, text: &str) {
        match print(text) {
            Ok(()) => {}
            Err(err) if is_gone(&err) => self.left.set(true),
            Err(err) => {
                if !self.lost.replace(true) {
                    self.error(&unwritten(&err));
                }
            }
        }
    }
}

/// The style of a line of activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Quiet,
    Bad,
    /// A line that an edit adds.
    Added,
    /// A line that an edit removes.
    Removed,
}

/// `RunningNotes` decides which notes of a long-running command are printed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunningNotes {
    warnings: bool,
    all: bool,
    log: StderrLog,
    color: bool,
}

/// Which part of the log goes to standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StderrLog {
    Nothing,
    Errors,
    /// The configured level. The default is `info` on a terminal, otherwise `warn`.
    Configured,
    Everything,
}

impl RunningNotes {
    /// Keeps the log off standard error, where a conversation is shown, unless `-v` was given.
    pub(crate) fn during_a_conversation(self) -> RunningNotes {
        let log = if self.log == StderrLog::Everything { self.log } else { StderrLog::Nothing };
        RunningNotes { log, ..self }
    }

    /// Returns the level of the log on standard error, or `None` for no log there.
    pub(crate) fn log_level(self, configured: Option<LogLevel>) -> Option<LogLevel> {
        match (self.log, configured) {
            (StderrLog::Nothing, _) => None,
            (StderrLog::Errors, _) => Some(LogLevel::Error),
            (StderrLog::Configured, Some(level)) => Some(level),
            (StderrLog::Configured, None) => Some(if self.all { LogLevel::Info } else { LogLevel::Warn }),
            (StderrLog::Everything, _) => Some(LogLevel::Debug),
        }
    }

    /// Returns whether standard error shows colors.
    pub(crate) fn color(self) -> bool {
        self.color
    }

    pub(crate) fn info(self, text: &str) {
        if self.all {
            say(&printable(text));
        }
    }

    pub(crate) fn warning(self, text: &str) {
        if self.warnings {
            say(&printable(text));
        }
    }
}

/// Returns a tool's error as text, if its JSON has no other fields that a person needs.
fn words_of(reply: &Reply) -> Option<String> {
    const KNOWN: [&str; 6] = ["ok", "success", "error", "path", "command", "node"];
    match reply {
        Reply::Text(text) => Some(text.trim_end().to_owned()),
        Reply::Json(Value::Object(object)) => {
            let is_plain = object.keys().all(|key| KNOWN.contains(&key.as_str()));
            object.get("error").and_then(Value::as_str).filter(|_| is_plain).map(str::to_owned)
        }
        Reply::Json(_) => None,
    }
}

/// Makes an error object. The code `usage` means a wrong command line or configuration.
pub(crate) fn error_object(code: &str, message: &str) -> Value {
    json!({"error": {"code": code, "message": message}})
}

pub(crate) fn error_object_with_hint(code: &str, message: &str, hint: &str) -> Value {
    json!({"error": {"code": code, "message": message, "hint": hint}})
}

/// Prints a question on standard error, without a line break.
pub(crate) fn question(text: &str) {
    if !live_screen::print(text) {
        terminal_code(text);
    }
}

/// Writes to standard error as it is, for codes that the terminal does not show.
pub(crate) fn terminal_code(text: &str) {
    // A failed write is ignored: the answer is read in any case.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Wraps lines between words at the width of the terminal at standard error, if there is one.
fn wrapped_to_terminal(text: &str) -> String {
    let width = std::io::stderr().is_terminal().then(|| tcgetwinsize(std::io::stderr()).ok()).flatten();
    let Some(width) = width.map(|size| usize::from(size.ws_col)).filter(|width| *width > 0) else {
        return text.to_owned();
    };
    text.split('\n').map(|line| wrapped(line, 0, width)).collect::<Vec<_>>().join("\n")
}

/// Prints a line on standard error. A failed write is ignored, because there is no other place to report it.
fn say(text: &str) {
    let line = format!("{text}\n");
    if !live_screen::print(&line) {
        // One write, so that lines of several processes do not mix.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// Prints a line of the log like [`say`]. Characters that are not printable are escaped, except our own colors.
pub(crate) fn say_line(text: &str) {
    say(&one_line(text));
}

/// Writes the text to standard output and flushes it.
fn print(text: &str) -> std::io::Result<()> {
    if live_screen::print(text) {
        return Ok(());
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Returns whether the reader has closed the pipe.
fn is_gone(err: &std::io::Error) -> bool {
    err.kind() == ErrorKind::BrokenPipe
}

fn unwritten(err: &std::io::Error) -> String {
    format!("cannot write the output: {err}")
}

/// Prints the parser's help or version. Returns false if that failed.
pub(crate) fn print_help(help: &clap::Error) -> bool {
    match help.print().and_then(|()| std::io::stdout().flush()) {
        Err(err) if !is_gone(&err) => {
            say(&format!("error: {}", unwritten(&err)));
            false
        }
        _ => true,
    }
}

/// Prints the parser's message on standard error, and the error object on standard output for programs.
pub(crate) fn print_usage_error(err: &clap::Error, json: bool) {
    if json || !std::io::stdout().is_terminal() {
        print_usage_object(err);
    }
    let _ = err.print();
}

fn print_usage_object(err: &clap::Error) {
    let plain = err.render().to_string();
    // The first paragraph is the error. Usage and a pointer to the help follow.
    let paragraph: Vec<&str> = plain.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let message = paragraph.join(" ");
    let object = error_object("usage", message.trim_start_matches("error: "));
    if let Err(err) = print(&format!("{object}\n"))
        && !is_gone(&err)
    {
        say(&format!("error: {}", unwritten(&err)));
    }
}
