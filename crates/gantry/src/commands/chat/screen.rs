//! Shows a conversation: the answer as it streams, rendered line by line, and what tools do.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use gantry_protocol::SessionEvent;
use serde_json::Value;

use super::tool_lines::{self, Ended, LineKind};
use crate::output::{Output, Tone, printable};
use crate::terminal_input::columns;
use crate::terminal_markdown::TerminalMarkdown;

/// How often [`Screen::tick`] is called.
pub(super) const TICK: Duration = Duration::from_millis(500);
/// Work that takes longer shows its time.
const SHOWS_TIME: Duration = Duration::from_millis(1_500);
/// An unfinished line is shown up to this many rows.
const MAX_TAIL_ROWS: usize = 8;

pub(super) struct Screen<'a> {
    output: &'a Output,
    answer: Answer,
    /// Running calls.
    calls: HashMap<String, RunningCall>,
    /// What the last line on the screen shows, if it can be replaced.
    last_line: Option<LastLine>,
    /// When the agent began to think. `None` while it writes, calls a tool or has ended.
    thinks: Option<Instant>,
}

struct RunningCall {
    began: Instant,
    title: String,
    input: Value,
}

#[derive(Debug, PartialEq, Eq)]
enum LastLine {
    Call(String),
    Thinking,
}

/// The answer on a terminal.
#[derive(Default)]
struct Answer {
    markdown: Option<TerminalMarkdown>,
    /// The line that has not ended, and how much of it is on the screen.
    tail: String,
    shown: String,
    has_text: bool,
}

impl<'a> Screen<'a> {
    pub(super) fn new(output: &'a Output) -> Screen<'a> {
        Screen { output, answer: Answer::default(), calls: HashMap::new(), last_line: None, thinks: None }
    }

    pub(super) fn show(&mut self, event: &SessionEvent) {
        if self.output.json {
            return self.output.value(event);
        }
        let streams = self.output.is_terminal();
        match event {
            SessionEvent::RunBegun { .. } => self.thinks = Some(Instant::now()),
            SessionEvent::Text { delta, .. } if streams => self.text(delta),
            SessionEvent::Restart { reason, .. } => self.note(&format!("retrying: {reason}"), Tone::Bad),
            SessionEvent::ToolStart { call, tool, input, .. } => self.call_began(call, tool, input),
            SessionEvent::ToolEnd { call, is_error, failed, exit_code, result, .. } => {
                self.call_ended(call, |input| {
                    tool_lines::ended(input, *is_error, *failed, *exit_code, result)
                });
                self.thinks = self.calls.is_empty().then(Instant::now);
            }
            SessionEvent::Notice { from, text, .. } => {
                self.note(&format!("notice from {from}:"), Tone::Quiet);
                self.output.page(text);
            }
            SessionEvent::Approval { .. } | SessionEvent::Asked { .. } => {
                self.thinks = None;
                self.end_line();
            }
            SessionEvent::Compacted { .. } => self.note("the conversation was compacted", Tone::Quiet),
            SessionEvent::Final { text, .. } => {
                self.thinks = None;
                match streams && self.answer.has_text {
                    true => self.end_line(),
                    false if streams => {
                        self.text(text);
                        self.end_line();
                    }
                    false => self.output.page(text),
                }
                self.answer.has_text = false;
            }
            SessionEvent::Stopped { .. } => {
                self.thinks = None;
                self.note("stopped", Tone::Quiet);
            }
            SessionEvent::Error { message, .. } => {
                self.thinks = None;
                self.end_line();
                self.output.error(message);
            }
            SessionEvent::Suspended => {
                self.thinks = None;
                self.end_line();
                self.output.warning("the gateway is stopping; the run resumes when it is back");
            }
            _ => {}
        }
    }

    /// Updates the time of what takes long.
    pub(super) fn tick(&mut self) {
        if self.output.json || !self.output.shows_progress() {
            return;
        }
        match &self.last_line {
            Some(LastLine::Call(call)) => {
                let Some(running) = self.calls.get(call) else { return };
                let took = running.began.elapsed();
                if took >= SHOWS_TIME {
                    let line = format!("… {} ({} s)", running.title, took.as_secs());
                    self.output.takes_activity_back();
                    self.output.activity(&line, Tone::Quiet);
                }
            }
            Some(LastLine::Thinking) => {
                self.output.takes_activity_back();
                self.show_thinking();
            }
            None if self.thinks.is_some_and(|since| since.elapsed() >= SHOWS_TIME)
                && self.answer.shown.is_empty() =>
            {
                self.end_line();
                self.show_thinking();
            }
            None => {}
        }
    }

    fn show_thinking(&mut self) {
        let Some(since) = self.thinks else { return };
        self.output.activity(&format!("… thinking ({} s)", since.elapsed().as_secs()), Tone::Quiet);
        self.last_line = Some(LastLine::Thinking);
    }

    /// Removes a line that only said that the agent thinks.
    fn forget_thinking(&mut self) {
        if self.last_line == Some(LastLine::Thinking) {
            self.output.takes_activity_back();
            self.last_line = None;
        }
    }

    /// Shows a piece of the answer. Whole lines are rendered; the rest is shown as it is until its line ends.
    fn text(&mut self, delta: &str) {
        self.thinks = None;
        self.forget_thinking();
        self.last_line = None;
        self.answer.has_text = true;
        if !self.output.renders() {
            self.answer.shown.push_str(delta);
            return self.output.piece(delta);
        }
        self.answer.tail.push_str(delta);
        let Some(end) = self.answer.tail.rfind('\n') else { return self.show_tail() };
        let rest = self.answer.tail.split_off(end + 1);
        let lines = std::mem::replace(&mut self.answer.tail, rest);
        self.erase_tail();
        let markdown = self.answer.markdown.get_or_insert_with(|| TerminalMarkdown::new(columns()));
        let shown: String = lines.lines().map(|line| markdown.line(line)).collect();
        self.output.rendered(&shown);
        self.show_tail();
    }

    fn show_tail(&mut self) {
        let rows = printable(&self.answer.tail).chars().count().div_ceil(columns().max(1));
        if rows > MAX_TAIL_ROWS {
            return;
        }
        let new = printable(&self.answer.tail[self.answer.shown.len().min(self.answer.tail.len())..]);
        self.output.rendered(&new);
        self.answer.shown.clone_from(&self.answer.tail);
    }

    fn erase_tail(&mut self) {
        let shown = std::mem::take(&mut self.answer.shown);
        let rows = printable(&shown).chars().count().div_ceil(columns().max(1));
        if rows > 0 {
            let up = if rows > 1 { format!("\u{1b}[{}A", rows - 1) } else { String::new() };
            self.output.rendered(&format!("\r{up}\u{1b}[J"));
        }
    }

    fn call_began(&mut self, call: &str, tool: &str, input: &Value) {
        self.thinks = None;
        let title = tool_lines::title(tool, input);
        self.note(&format!("… {title}"), Tone::Quiet);
        self.last_line = Some(LastLine::Call(call.to_owned()));
        let running = RunningCall { began: Instant::now(), title, input: input.clone() };
        self.calls.insert(call.to_owned(), running);
    }

    /// Replaces the call's line, if it is still the last one.
    fn call_ended(&mut self, call: &str, ended: impl Fn(&Value) -> Ended) {
        let Some(running) = self.calls.remove(call) else { return };
        let Ended { failure, fact, lines } = ended(&running.input);
        let took = duration(running.began.elapsed());
        if self.last_line.take() == Some(LastLine::Call(call.to_owned())) {
            self.output.takes_activity_back();
        }
        let title = running.title;
        let fact = fact.map_or(String::new(), |fact| format!(": {fact}"));
        match failure {
            None => self.note(&format!("✓ {title}{fact} ({took})"), Tone::Quiet),
            Some(why) => self.note(&format!("✗ {title} ({took}): {why}"), Tone::Bad),
        }
        for line in lines {
            let tone = match line.kind {
                LineKind::Plain => Tone::Quiet,
                LineKind::Added => Tone::Added,
                LineKind::Removed => Tone::Removed,
            };
            self.output.activity(&format!("    {}", line.text), tone);
        }
    }

    /// Prints a line about the agent's activity.
    pub(super) fn note(&mut self, text: &str, tone: Tone) {
        self.end_line();
        self.last_line = None;
        self.output.activity(text, tone);
    }

    /// Ends the line of the answer that is on the screen.
    pub(super) fn end_line(&mut self) {
        self.forget_thinking();
        let tail = std::mem::take(&mut self.answer.tail);
        if !self.output.renders() {
            if !std::mem::take(&mut self.answer.shown).is_empty() {
                self.output.line("");
            }
            return;
        }
        self.erase_tail();
        let Some(mut markdown) = self
            .answer
            .markdown
            .take()
            .or_else(|| (!tail.is_empty()).then(|| TerminalMarkdown::new(columns())))
        else {
            return;
        };
        let mut shown = if tail.is_empty() { String::new() } else { markdown.line(&tail) };
        shown.push_str(&markdown.end());
        self.output.rendered(&shown);
    }
}

fn duration(took: Duration) -> String {
    match took.as_millis() {
        millis @ 0..1_000 => format!("{millis} ms"),
        _ => format!("{:.1} s", took.as_secs_f64()),
    }
}
