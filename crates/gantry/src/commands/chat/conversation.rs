//! A conversation: what is typed, what the session does and questions, until the person leaves.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use gantry_protocol::{ListenResult, Question, SessionEvent};

use super::connection::Heard;
use super::history::MessageHistory;
use super::questions::{self, Waiting};
use super::{Chat, completion};
use crate::commands::interrupted;
use crate::exit::Exit;
use crate::line_editor::{CheckAnswer, Expected, Typed, is_remembered};
use crate::live_screen::columns;
use crate::output::{Tone, question};
use crate::terminal_input::Typing;

/// Messages and answers that are remembered, to tell them from what is new after a reconnection.
const MAX_REMEMBERED: usize = 100;

/// The state of a conversation beside the session's.
struct Talk {
    typing: Typing,
    history: MessageHistory,
    /// What was typed while the gateway was away.
    later: VecDeque<Typed>,
    /// Messages that are not answered yet.
    open: Vec<String>,
    waiting: Waiting,
    /// The question that is on the screen.
    shown_question: Option<String>,
    is_running: bool,
    /// Ctrl-C was pressed, and the next one leaves.
    leaves: bool,
    /// The gateway stayed away, so its events are not awaited.
    is_offline: bool,
}

/// Whether the conversation continues.
enum Next {
    Continue,
    Leave,
}

impl Chat<'_> {
    /// Runs the conversation until the input ends.
    pub(super) async fn converse(mut self) -> Result<Exit> {
        self.screen.is_conversation = true;
        self.greet().await;
        let directory = self.workspace.clone().map_or(self.environment.current_dir.clone(), PathBuf::from);
        let history = MessageHistory::of(&self.environment.data, &directory.to_string_lossy());
        let complete = completion::complete(self.environment, directory);
        let screen = self.live.as_deref();
        let mut talk = Talk {
            typing: Typing::start(screen, self.keys, &history.load(), complete),
            history,
            later: VecDeque::new(),
            open: Vec::new(),
            waiting: Waiting::of(self.status.clone()),
            shown_question: None,
            is_running: matches!(&self.status, ListenResult::Known(status) if status.running.is_some()),
            leaves: false,
            is_offline: false,
        };
        if let ListenResult::Known(status) = &self.status {
            self.shown_events = status.events;
        }
        loop {
            self.expect(&mut talk);
            let first = talk.open.first().cloned();
            let next = match talk.later.pop_front() {
                Some(typed) => self.typed(typed, &mut talk).await?,
                None => tokio::select! {
                    heard = self.connection.next_event(first.as_deref()), if !talk.is_offline => {
                        self.heard(heard?, &mut talk).await
                    }
                    typed = talk.typing.next() => self.typed(typed, &mut talk).await?,
                    () = interrupted() => self.typed(Typed::Interrupt, &mut talk).await?,
                },
            };
            if let Next::Leave = next {
                if talk.is_running {
                    let goes_on = match self.has_own_gateway {
                        true => "the run goes on when a gateway starts again",
                        false => "the run goes on",
                    };
                    self.output.activity(&format!("{goes_on}; {}", self.read_later()), Tone::Quiet);
                }
                return Ok(Exit::Success);
            }
        }
    }

    /// Shows the next question and says what the next line means.
    fn expect(&mut self, talk: &mut Talk) {
        let question_id = talk.waiting.next_id();
        self.screen.asks(question_id.is_some());
        let expected = Expected { check: check(&talk.waiting), is_running: talk.is_running };
        let is_new = question_id != talk.shown_question;
        talk.shown_question = question_id;
        let prompt = if is_new { talk.waiting.prompt(columns()) } else { None };
        // The editor draws the question together with the prompt of the answer; otherwise the prompt comes after it.
        if talk.typing.edits() {
            talk.typing.expect(expected);
            self.ask(prompt);
        } else {
            self.ask(prompt);
            talk.typing.expect(expected);
        }
    }

    fn ask(&mut self, prompt: Option<String>) {
        if let Some(prompt) = prompt {
            self.screen.end_line();
            question(&prompt);
        }
    }

    async fn heard(&mut self, heard: Heard, talk: &mut Talk) -> Next {
        let event = match heard {
            Heard::Event(event) => event,
            Heard::Nothing => {
                self.screen.tick();
                return Next::Continue;
            }
            Heard::Lost => {
                self.reconnect(talk).await;
                return Next::Continue;
            }
        };
        self.screen.show(&event);
        talk.waiting.on_event(&event);
        match &*event {
            SessionEvent::RunBegun { .. } => talk.is_running = true,
            SessionEvent::Final { .. } | SessionEvent::Stopped { .. } | SessionEvent::Error { .. } => {
                if self.live.is_some() {
                    // Parts the answer from what is typed next.
                    self.output.page("");
                }
                if let SessionEvent::Final { text, .. } = &*event {
                    remember(&mut self.answers, text.clone());
                }
                talk.open.retain(|id| !event.settles(id));
                (talk.is_running, talk.leaves) = (false, false);
                // What is asked no longer matters to a run that ended.
                talk.waiting = Waiting::default();
                self.remember_shown().await;
            }
            _ => {}
        }
        Next::Continue
    }

    async fn typed(&mut self, typed: Typed, talk: &mut Talk) -> Result<Next> {
        match typed {
            Typed::End => return Ok(Next::Leave),
            Typed::Interrupt => return self.interrupt(talk).await,
            Typed::Answer(line) => self.take_answer(&line, talk).await,
            Typed::Message(line) => {
                talk.leaves = false;
                match line.trim() {
                    "" => {}
                    "/quit" | "/exit" => return Ok(Next::Leave),
                    "/output" => self.show_output(),
                    _ => self.message(&line, talk).await,
                }
            }
        }
        Ok(Next::Continue)
    }

    /// Stops the run, or leaves at the second time.
    async fn interrupt(&mut self, talk: &mut Talk) -> Result<Next> {
        if std::mem::replace(&mut talk.leaves, true) {
            return Ok(Next::Leave);
        }
        if !talk.is_running {
            self.output.activity("Press Ctrl-C again to quit", Tone::Quiet);
            return Ok(Next::Continue);
        }
        self.screen.end_line();
        if let Err(err) = self.stop().await {
            self.failed(&err);
        }
        Ok(Next::Continue)
    }

    fn show_output(&mut self) {
        match self.screen.last_output() {
            Some(output) => self.output.page(output.trim_end()),
            None => {
                self.output.activity("No tool has printed anything in this conversation yet.", Tone::Quiet)
            }
        }
    }

    async fn message(&mut self, line: &str, talk: &mut Talk) {
        if is_remembered(line)
            && let Err(err) = talk.history.add(line)
        {
            self.output.warning(&format!("cannot save the message in the history: {err}"));
        }
        let was_running = talk.is_running;
        match self.say(line, talk).await {
            Ok(Some(id)) => {
                remember(&mut self.own, line.to_owned());
                talk.open.push(id);
                talk.is_running = true;
                if was_running {
                    self.output.activity("queued: the agent reads it when this run has ended", Tone::Quiet);
                }
            }
            Ok(None) => {
                if line.trim() == "/help" && !self.output.json {
                    completion::own_help().iter().for_each(|line| self.command_answer(line));
                }
            }
            Err(err) => self.failed(&err),
        }
    }

    /// Sends a message, and sends it again after a restart of the gateway.
    async fn say(&mut self, text: &str, talk: &mut Talk) -> Result<Option<String>> {
        let id = self.next_id();
        match self.send(text, &id).await {
            Err(err) if self.connection.is_lost() => match self.reconnect(talk).await {
                true => self.send(text, &id).await,
                false => Err(err),
            },
            sent => sent,
        }
    }

    async fn take_answer(&mut self, line: &str, talk: &mut Talk) {
        let answered = if let Some(asks) = talk.waiting.asks.front_mut() {
            match asks.take(line) {
                true => {
                    let asks = talk.waiting.asks.pop_front();
                    match asks {
                        Some(asks) => self.reply(&asks).await,
                        None => Ok(()),
                    }
                }
                // The next of several questions.
                false => {
                    talk.shown_question = None;
                    Ok(())
                }
            }
        } else if let Some(asked) = talk.waiting.approvals.front().cloned() {
            self.approve(&asked, line, talk).await
        } else {
            Ok(())
        };
        if let Err(err) = answered {
            self.failed(&err);
        }
    }

    async fn approve(&mut self, asked: &Question, line: &str, talk: &mut Talk) -> Result<()> {
        match questions::answer(asked, line) {
            Some(answer) => {
                if self.answer(asked, answer).await?.is_none() {
                    talk.waiting.is_answered(&asked.id);
                }
            }
            // Other commands, such as /status, do not answer the question.
            None if line.trim_start().starts_with('/') => {
                self.say(line, talk).await?;
            }
            None => self.screen.note(&questions::valid_answers(asked), Tone::Quiet),
        }
        Ok(())
    }

    /// Waits until the gateway is back, and shows what was missed. What is typed meanwhile is sent afterwards. Returns false
    /// if the gateway stays away, or Ctrl-C ended the wait.
    async fn reconnect(&mut self, talk: &mut Talk) -> bool {
        self.screen.reset();
        self.output.warning("the connection to the gateway was lost; reconnecting (Ctrl-C to stop waiting)");
        let is_back = {
            let reopening = self.connection.reopen();
            tokio::pin!(reopening);
            loop {
                tokio::select! {
                    reopened = &mut reopening => break reopened,
                    typed = talk.typing.next() => match typed {
                        Typed::Interrupt => break Err(anyhow::anyhow!("not connected")),
                        Typed::End => {
                            talk.later.push_back(Typed::End);
                            break Err(anyhow::anyhow!("not connected"));
                        }
                        typed => talk.later.push_back(typed),
                    },
                    () = interrupted() => break Err(anyhow::anyhow!("not connected")),
                }
            }
        };
        talk.is_offline = is_back.is_err();
        let status = match is_back {
            Ok(status) => status,
            Err(err) => {
                self.output.error(&format!("{err:#}\nhint: {}", self.read_later()));
                return false;
            }
        };
        self.output.activity("reconnected", Tone::Quiet);
        if let Err(err) = self.show_missed(&status, !talk.open.is_empty()).await {
            self.output.warning(&format!("cannot show what was missed: {err:#}"));
        }
        talk.is_running = matches!(&status, ListenResult::Known(status) if status.running.is_some());
        talk.waiting = Waiting::of(status);
        talk.shown_question = None;
        true
    }
}

fn remember(texts: &mut Vec<String>, text: String) {
    if texts.len() == MAX_REMEMBERED {
        texts.remove(0);
    }
    texts.push(text);
}

/// Returns the check of answers to the first open question.
fn check(waiting: &Waiting) -> Option<CheckAnswer> {
    if !waiting.asks.is_empty() {
        return Some(Arc::new(|line: &str| {
            line.trim().is_empty().then(|| "Type an answer; Ctrl-C stops the run.".to_owned())
        }));
    }
    let asked = waiting.approvals.front()?.clone();
    Some(Arc::new(move |line: &str| {
        let is_valid = questions::answer(&asked, line).is_some() || line.trim_start().starts_with('/');
        (!is_valid).then(|| questions::valid_answers(&asked))
    }))
}
