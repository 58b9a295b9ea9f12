//! Shows a conversation: the answer as it streams, rendered line by line, and what tools do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_protocol::SessionEvent;
use serde_json::Value;

use super::tool_lines::{self, Ended, LineKind};
use crate::live_screen::{LiveScreen, columns, last_rows, one_row};
use crate::output::{Output, Tone, printable};
use crate::terminal_markdown::TerminalMarkdown;

/// How often [`Screen::tick`] is called.
pub(super) const TICK: Duration = Duration::from_millis(200);
/// Rows of an unfinished line that are shown.
const TAIL_ROWS: usize = 8;
/// Running calls that have a row.
const CALL_ROWS: usize = 5;
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

pub(super) struct Screen<'a> {
    output: &'a Output,
    /// Where rows can change. `None` without a terminal that can do so.
    live: Option<Arc<LiveScreen>>,
    answer: Answer,
    /// Running calls in the order of their start.
    calls: Vec<RunningCall>,
    /// When the agent began to think. `None` while it writes, calls a tool or has ended.
    thinks: Option<Instant>,
    /// A question is open, so nothing else moves.
    asks: bool,
    /// Commands can be typed.
    pub(super) is_conversation: bool,
    /// The output of the last call that had one.
    last_output: Option<String>,
    began: Instant,
}

struct RunningCall {
    id: String,
    title: String,
    input: Value,
    began: Instant,
    /// The open question about this call, and when it was asked.
    asked: Option<(String, Instant)>,
    /// How long it waited for answers.
    waited: Duration,
}

impl RunningCall {
    /// How long the call ran, without the time that a person took to answer.
    fn took(&self) -> Duration {
        let open = self.asked.as_ref().map_or(Duration::ZERO, |(_, since)| since.elapsed());
        self.began.elapsed().saturating_sub(self.waited).saturating_sub(open)
    }
}

/// The answer on a terminal.
#[derive(Default)]
struct Answer {
    markdown: Option<TerminalMarkdown>,
    /// The line that has not ended.
    tail: String,
    has_text: bool,
}

impl<'a> Screen<'a> {
    pub(super) fn new(output: &'a Output, live: Option<Arc<LiveScreen>>) -> Screen<'a> {
        Screen {
            output,
            live,
            answer: Answer::default(),
            calls: Vec::new(),
            thinks: None,
            asks: false,
            is_conversation: false,
            last_output: None,
            began: Instant::now(),
        }
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
            SessionEvent::Approval { question, .. } => {
                self.thinks = None;
                if let Some(call) = self.calls.iter_mut().find(|call| call.id == question.call) {
                    call.asked = Some((question.id.clone(), Instant::now()));
                }
                self.end_line();
            }
            SessionEvent::ApprovalAnswered { question, .. } => self.answered(question),
            SessionEvent::Asked { .. } => {
                self.thinks = None;
                self.end_line();
            }
            SessionEvent::Compacted { .. } => self.note("the conversation was compacted", Tone::Quiet),
            SessionEvent::Final { text, .. } => {
                self.thinks = None;
                self.calls.clear();
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
                self.calls.clear();
                self.note("stopped", Tone::Quiet);
            }
            SessionEvent::Error { message, .. } => {
                self.thinks = None;
                self.calls.clear();
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
        self.tick();
    }

    /// Updates the rows that show what goes on.
    pub(super) fn tick(&mut self) {
        let Some(live) = &self.live else { return };
        let columns = columns();
        let mut rows = last_rows(&printable(&self.answer.tail), columns, TAIL_ROWS);
        rows.retain(|row| !row.is_empty());
        if !self.asks && self.output.shows_progress() {
            let frame =
                SPINNER[(self.began.elapsed().as_millis() / TICK.as_millis()) as usize % SPINNER.len()];
            let row = |what: &str, took: Duration| {
                let time =
                    if took.as_secs() > 0 { format!(" ({} s)", took.as_secs()) } else { String::new() };
                let what = one_row(what, columns.saturating_sub(time.len() + 2));
                self.output.dim(&printable(&format!("{frame} {what}{time}")))
            };
            rows.extend(self.calls.iter().take(CALL_ROWS).map(|call| row(&call.title, call.took())));
            if self.calls.len() > CALL_ROWS {
                rows.push(self.output.dim(&format!("  and {} more", self.calls.len() - CALL_ROWS)));
            }
            rows.extend(
                self.thinks
                    .filter(|_| self.answer.tail.is_empty())
                    .map(|since| row("thinking", since.elapsed())),
            );
        }
        live.set_rows(rows);
    }

    /// Says whether a question is open.
    pub(super) fn asks(&mut self, asks: bool) {
        if std::mem::replace(&mut self.asks, asks) != asks {
            self.tick();
        }
    }

    /// Nothing runs any more, as far as this terminal knows.
    pub(super) fn reset(&mut self) {
        self.end_line();
        self.answer.has_text = false;
        self.thinks = None;
        self.calls.clear();
        self.tick();
    }

    /// Shows an answer that was not streamed.
    pub(super) fn whole_answer(&mut self, text: &str) {
        self.end_line();
        self.lines(text);
        self.end_line();
    }

    /// Returns the output of the last call that had one.
    pub(super) fn last_output(&self) -> Option<&str> {
        self.last_output.as_deref()
    }

    fn answered(&mut self, question: &str) {
        for call in &mut self.calls {
            if let Some((_, since)) = call.asked.take_if(|(id, _)| id == question) {
                call.waited += since.elapsed();
            }
        }
    }

    /// Shows a piece of the answer. Whole lines are printed; the rest stays in the changing rows until its line ends.
    fn text(&mut self, delta: &str) {
        self.thinks = None;
        self.answer.has_text = true;
        self.answer.tail.push_str(delta);
        let Some(end) = self.answer.tail.rfind('\n') else { return };
        let rest = self.answer.tail.split_off(end + 1);
        let lines = std::mem::replace(&mut self.answer.tail, rest);
        self.lines(&lines);
    }

    /// Prints whole lines of the answer.
    fn lines(&mut self, lines: &str) {
        if !self.output.renders() {
            return lines.lines().for_each(|line| self.output.page(line));
        }
        let markdown = self.answer.markdown.get_or_insert_with(|| TerminalMarkdown::new(columns()));
        let shown: String = lines.lines().map(|line| markdown.line(line)).collect();
        self.output.rendered(&shown);
    }

    fn call_began(&mut self, call: &str, tool: &str, input: &Value) {
        self.end_line();
        self.thinks = None;
        self.calls.push(RunningCall {
            id: call.to_owned(),
            title: tool_lines::title(tool, input),
            input: input.clone(),
            began: Instant::now(),
            asked: None,
            waited: Duration::ZERO,
        });
    }

    fn call_ended(&mut self, call: &str, ended: impl Fn(&Value) -> Ended) {
        let Some(at) = self.calls.iter().position(|running| running.id == call) else { return };
        let running = self.calls.remove(at);
        let Ended { failure, fact, lines, whole } = ended(&running.input);
        let took = duration(running.took());
        let title = running.title;
        let fact = fact.map_or(String::new(), |fact| format!(": {fact}"));
        match failure {
            None => self.note(&format!("✓ {title}{fact} ({took})"), Tone::Quiet),
            Some(why) => self.note(&format!("✗ {title} ({took}): {why}"), Tone::Bad),
        }
        for line in lines {
            let tone = match line.kind {
                LineKind::Plain | LineKind::Folded => Tone::Quiet,
                LineKind::Added => Tone::Added,
                LineKind::Removed => Tone::Removed,
            };
            let hint = if line.kind == LineKind::Folded && self.is_conversation {
                "; /output shows all"
            } else {
                ""
            };
            self.output.activity(&format!("    {}{hint}", line.text), tone);
        }
        if whole.is_some() {
            self.last_output = whole;
        }
    }

    /// Prints a line about the agent's activity.
    pub(super) fn note(&mut self, text: &str, tone: Tone) {
        self.end_line();
        self.output.activity(text, tone);
    }

    /// Ends the unfinished line of the answer.
    pub(super) fn end_line(&mut self) {
        let tail = std::mem::take(&mut self.answer.tail);
        if !tail.is_empty() {
            if let Some(live) = &self.live {
                live.set_rows(Vec::new());
            }
            self.lines(&tail);
        }
        if let Some(mut markdown) = self.answer.markdown.take() {
            self.output.rendered(&markdown.end());
        }
    }
}

fn duration(took: Duration) -> String {
    match took.as_millis() {
        millis @ 0..1_000 => format!("{millis} ms"),
        _ => format!("{:.1} s", took.as_secs_f64()),
    }
}
