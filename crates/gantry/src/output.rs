//! What the user sees: results on standard output, everything else on standard error. Colour only on terminals.
//!
//! The one place that prints. What cannot be printed never ends the program: nothing here may panic.

use std::cell::Cell;
use std::io::{ErrorKind, IsTerminal, Write};

use gantry_tool::{Refusal, Reply, is_hidden};
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};

use crate::cli::{ColorChoice, Global};
use crate::config::LogLevel;
use crate::exit::Exit;
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

    /// Whether results are read by a person.
    pub(crate) fn is_terminal(&self) -> bool {
        self.stdout_terminal
    }

    /// Whether somebody watches, who would like to see how far work is.
    pub(crate) fn shows_progress(&self) -> bool {
        self.verbosity != Verbosity::Quiet && std::io::stderr().is_terminal()
    }

    /// One line, of a listing for instance: a line break in it is somebody's attempt at another.
    pub(crate) fn line(&self, text: &str) {
        self.write(&format!("{}\n", one_line(text)));
    }

    /// As [`Output::line`], broken between words at a terminal's width. Further lines begin at the column `hanging`.
    pub(crate) fn prose(&self, text: &str, hanging: usize) {
        let width = self.stdout_terminal.then(|| tcgetwinsize(std::io::stdout()).ok()).flatten();
        let width = width.map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
        let line = one_line(text);
        self.write(&format!("{}\n", width.map_or(line.clone(), |width| wrapped(&line, hanging, width))));
    }

    /// A piece of a text that goes on.
    pub(crate) fn piece(&self, text: &str) {
        self.write(&printable(text));
    }

    /// Text of several lines.
    pub(crate) fn page(&self, text: &str) {
        self.write(&format!("{}\n", unstyled(text)));
    }

    /// Indented on a terminal, one line otherwise.
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
            // Text is the tool's own, byte for byte; but a terminal needs the line ended, and obeys no tool.
            Reply::Text(text) if self.stdout_terminal => {
                let end = if text.ends_with('\n') { "" } else { "\n" };
                self.write(&format!("{}{end}", printable(text)));
            }
            Reply::Text(text) => self.write(text),
        }
    }

    /// A tool's own error: in its shape for programs, in words for a person.
    pub(crate) fn tool_error(&self, reply: &Reply) {
        match words_of(reply).filter(|_| !self.is_for_programs()) {
            Some(words) => self.error(&words),
            None => self.reply(reply),
        }
    }

    /// An error: in words on standard error, and as an object on standard output where a program reads it.
    pub(crate) fn refusal(&self, refusal: &Refusal) {
        self.error_object(&refusal.to_json());
        self.error(&refusal.to_string());
    }

    /// The error object on standard output, for programs alone: a person reads the words.
    pub(crate) fn error_object(&self, object: &Value) {
        if self.is_for_programs() {
            self.value(object);
        }
    }

    fn is_for_programs(&self) -> bool {
        self.json || !self.stdout_terminal
    }

    /// As [`Output::refusal`], with the exit code it means.
    pub(crate) fn refused(&self, refusal: &Refusal) -> Exit {
        self.refusal(refusal);
        refusal.code.into()
    }

    /// Says on standard error that something was done; with `--json` also on standard output.
    pub(crate) fn done(&self, text: &str) {
        if self.json {
            self.value(&json!({"done": true}));
        }
        if self.verbosity != Verbosity::Quiet {
            say(&printable(text));
        }
    }

    pub(crate) fn error(&self, text: &str) {
        say(&format!("{} {}", self.stderr_styled("error:", "1;31"), printable(text)));
    }

    pub(crate) fn warning(&self, text: &str) {
        if self.verbosity != Verbosity::Quiet {
            say(&format!("{} {}", self.stderr_styled("warning:", "1;33"), printable(text)));
        }
    }

    pub(crate) fn note(&self, text: &str) {
        if self.verbosity == Verbosity::Verbose {
            say(text);
        }
    }

    /// Says on standard error what a listing is about, for a person who reads it.
    pub(crate) fn note_on_terminal(&self, text: &str) {
        if self.verbosity == Verbosity::Verbose
            || (self.verbosity == Verbosity::Normal && self.stdout_terminal)
        {
            say(&self.stderr_styled(&printable(text), "2"));
        }
    }

    /// Shows what a long-running command is doing: what goes wrong unless told to be quiet, the rest on a terminal or
    /// when asked to say more.
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

    /// What an agent does, a line each, for who watches: on a terminal, or when asked to say more.
    pub(crate) fn activity(&self, text: &str, tone: Tone) {
        if self.running_notes().all {
            let code = match tone {
                Tone::Quiet => "2",
                Tone::Bad => "1;31",
            };
            say(&self.stderr_styled(&printable(text), code));
        }
    }

    /// Takes the last line of activity away, for one that says more. Only a terminal can.
    pub(crate) fn takes_activity_back(&self) -> bool {
        let can = self.running_notes().all && std::io::stderr().is_terminal();
        if can {
            question("\x1b[1A\r\x1b[J");
        }
        can
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

    fn stderr_styled(&self, text: &str, code: &str) -> String {
        styled(text, code, self.stderr_color)
    }

    /// Whether everything that was printed got there.
    pub(crate) fn is_complete(&self) -> bool {
        !self.lost.get()
    }

    /// Whether somebody is there to read more.
    pub(crate) fn is_read(&self) -> bool {
        !self.lost.get() && !self.left.get()
    }

    /// A reader that went away (`gantry tools | head`) is no error of ours; a full disk is, and is told once.
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

/// How a line of activity looks where there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Quiet,
    Bad,
}

/// How much of what a long-running command does is shown.
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
    /// What the configuration says. Without it: `info` where a person reads, else `warn`.
    Configured,
    Everything,
}

impl RunningNotes {
    /// Keeps the log off standard error, where a conversation is shown, unless `-v` was given.
    pub(crate) fn during_a_conversation(self) -> RunningNotes {
        let log = if self.log == StderrLog::Everything { self.log } else { StderrLog::Nothing };
        RunningNotes { log, ..self }
    }

    /// The level of the log on standard error; `None` for no log there.
    pub(crate) fn log_level(self, configured: Option<LogLevel>) -> Option<LogLevel> {
        match (self.log, configured) {
            (StderrLog::Nothing, _) => None,
            (StderrLog::Errors, _) => Some(LogLevel::Error),
            (StderrLog::Configured, Some(level)) => Some(level),
            (StderrLog::Configured, None) => Some(if self.all { LogLevel::Info } else { LogLevel::Warn }),
            (StderrLog::Everything, _) => Some(LogLevel::Debug),
        }
    }

    /// Whether standard error takes colours.
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

/// What an error says, if saying it leaves nothing out that a person needs.
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

/// `usage` is the code of a command line or configuration that cannot be used.
pub(crate) fn error_object(code: &str, message: &str) -> Value {
    json!({"error": {"code": code, "message": message}})
}

/// Asks on standard error, where the answer is typed.
pub(crate) fn question(text: &str) {
    // The answer is waited for in any case.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// A line on standard error. When that cannot be written, there is nobody left to tell.
fn say(text: &str) {
    // In one piece, so that lines of several processes do not mix.
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// As [`say`], for a line of the log: what is not printable is escaped, but for our own colours.
pub(crate) fn say_line(text: &str) {
    say(&one_line(text));
}

/// All of it, now.
fn print(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Whether the reader has seen enough.
fn is_gone(err: &std::io::Error) -> bool {
    err.kind() == ErrorKind::BrokenPipe
}

fn unwritten(err: &std::io::Error) -> String {
    format!("the output could not be written: {err}")
}

/// Help or the version, as the parser words it. False when it did not get there.
pub(crate) fn print_help(help: &clap::Error) -> bool {
    match help.print().and_then(|()| std::io::stdout().flush()) {
        Err(err) if !is_gone(&err) => {
            say(&format!("error: {}", unwritten(&err)));
            false
        }
        _ => true,
    }
}

/// The parser's own words on standard error, and the error object on standard output where a program reads it.
pub(crate) fn print_usage_error(err: &clap::Error, json: bool) {
    if json || !std::io::stdout().is_terminal() {
        print_usage_object(err);
    }
    let _ = err.print();
}

fn print_usage_object(err: &clap::Error) {
    let plain = err.render().to_string();
    // The first paragraph says what is wrong; usage and a pointer to the help follow.
    let paragraph: Vec<&str> = plain.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let message = paragraph.join(" ");
    let object = error_object("usage", message.trim_start_matches("error: "));
    if let Err(err) = print(&format!("{object}\n"))
        && !is_gone(&err)
    {
        say(&format!("error: {}", unwritten(&err)));
    }
}

/// Control characters spelled out: text that callers chose must not drive the reader's terminal.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = None;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\n' | '\t' => shown.push(c),
            '\r' if rest.peek() == Some(&'\n') => shown.push(c),
            c if c.is_control() || is_hidden(before, c) => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
        before = Some(c);
    }
    shown
}

/// Neither a line break nor a carriage return, which would let the end of a line overwrite its beginning.
fn one_line(text: &str) -> String {
    unstyled(text).replace('\r', "\\r").replace('\n', "\\n")
}

/// As [`printable`], but for the colours that we put there ourselves.
fn unstyled(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (index, part) in text.split("\u{1b}[").enumerate() {
        let code = STYLES
            .iter()
            .chain(&["0"])
            .find(|code| index > 0 && part.strip_prefix(**code).is_some_and(|after| after.starts_with('m')));
        match (code, index) {
            (Some(code), _) => {
                shown.push_str(&format!("\u{1b}[{code}m{}", printable(&part[code.len() + 1..])));
            }
            (None, 0) => shown.push_str(&printable(part)),
            (None, _) => shown.push_str(&printable(&format!("\u{1b}[{part}"))),
        }
    }
    shown
}

/// JSON leaves the upper control characters and DEL as they are; in its strings they can be escaped.
fn tame_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = None;
    for c in text.chars() {
        match c {
            '\n' => shown.push(c),
            c if c.is_control() || is_hidden(before, c) => {
                let units = c
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .map(|unit| format!("\\u{unit:04x}"))
                    .collect::<String>();
                shown.push_str(&units);
            }
            c => shown.push(c),
        }
        before = Some(c);
    }
    shown
}

/// Bold, dim, and the colours.
const STYLES: [&str; 5] = ["1", "2", "32", "33", "1;31"];

pub(crate) fn styled(text: &str, code: &str, color: bool) -> String {
    if color { format!("\u{1b}[{code}m{}\u{1b}[0m", printable(text)) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_cannot_be_overwritten_or_become_two() {
        assert_eq!(one_line("good\r\nevil"), "good\\r\\nevil");
        assert_eq!(one_line("good\revil\u{1b}[2K"), "good\\revil\\u{1b}[2K");
    }
}
