//! One message and its answer.

use std::io::IsTerminal;

use anyhow::Result;
use gantry_protocol::{ListenResult, Question, SessionEvent, UserAsked};
use gantry_tool::{QuestionText, Refusal, RefusalCode};

use super::Chat;
use super::connection::Heard;
use super::questions::{self, Asks, approval_prompt};
use crate::commands::interrupted;
use crate::exit::{Exit, Refused};
use crate::live_screen::columns;
use crate::output::question;

/// The outcome of a message.
enum Turn {
    Settled(Exit),
    /// The run waits for an answer that cannot be given here.
    Waits(PendingQuestion),
}

/// The question that a run waits for.
enum PendingQuestion {
    Approval(Box<Question>),
    Answer(UserAsked),
}

impl Chat<'_> {
    /// Sends one message and prints the answer.
    pub(super) async fn once(mut self, text: String) -> Result<Exit> {
        let asks = std::io::stdin().is_terminal() && !self.output.json;
        // The run that waits for these would also hold up the message, and nobody would say so.
        let open = if text.starts_with('/') { Vec::new() } else { self.open_questions() };
        for question in open {
            match question {
                question if !asks => return Ok(self.refuse(question, "; the message was not sent")),
                PendingQuestion::Answer(asked) => self.ask_user(Asks::new(asked)).await?,
                PendingQuestion::Approval(asked) => self.ask_approval(*asked).await?,
            }
        }
        let id = self.next_id();
        let Some(id) = self.send(&text, &id).await? else { return Ok(Exit::Success) };
        match self.until_settled(&id, asks).await? {
            Turn::Settled(exit) => Ok(exit),
            Turn::Waits(question) => Ok(self.refuse(question, "")),
        }
    }

    /// The questions that were open when the session was opened.
    fn open_questions(&self) -> Vec<PendingQuestion> {
        let ListenResult::Known(status) = &self.status else { return Vec::new() };
        let approvals =
            status.questions.iter().cloned().map(|asked| PendingQuestion::Approval(Box::new(asked)));
        approvals.chain(status.asks.iter().cloned().map(PendingQuestion::Answer)).collect()
    }

    /// Reports an open question and the command that answers it.
    fn refuse(&self, question: PendingQuestion, consequence: &str) -> Exit {
        let (id, message, answers) = match question {
            PendingQuestion::Answer(asked) => {
                let questions = asked.questions.iter().map(|one| one.question.as_str());
                let questions = questions.collect::<Vec<_>>().join(" / ");
                (asked.id, format!("the agent asks: {questions}"), "ANSWER…")
            }
            PendingQuestion::Approval(asked) => {
                let (what, Question { tool, reason, .. }) = (QuestionText::new(&asked.action()), &*asked);
                let message = format!("{tool} needs approval: {} ({reason})", what.whole());
                (asked.id, message, "yes|no|always")
            }
        };
        let hint = format!("gantry sessions answer {} --question {id} {answers}", self.connection.key);
        let refusal =
            Refusal::new(RefusalCode::ApprovalNeeded, format!("{message}{consequence}")).with_hint(hint);
        self.output.refused(&refusal)
    }

    async fn until_settled(&mut self, id: &str, asks: bool) -> Result<Turn> {
        let mut stopping = false;
        loop {
            let event = tokio::select! {
                heard = self.connection.next_event(Some(id)) => match heard? {
                    Heard::Event(event) => event,
                    Heard::Nothing => {
                        self.screen.tick();
                        continue;
                    }
                    Heard::Lost => return Err(self.lost()),
                },
                () = interrupted() => {
                    if std::mem::replace(&mut stopping, true) {
                        return Ok(Turn::Settled(Exit::Failure));
                    }
                    self.stop().await?;
                    continue;
                }
            };
            self.screen.show(&event);
            if *event == SessionEvent::Suspended {
                self.output.warning(&self.read_later());
                return Ok(Turn::Settled(Exit::Failure));
            }
            if event.settles(id) {
                return Ok(Turn::Settled(match *event {
                    SessionEvent::Final { .. } => Exit::Success,
                    _ => Exit::Failure,
                }));
            }
            match *event {
                SessionEvent::Asked { asked, .. } if !asks => {
                    return Ok(Turn::Waits(PendingQuestion::Answer(asked)));
                }
                SessionEvent::Asked { asked, .. } => self.ask_user(Asks::new(asked)).await?,
                SessionEvent::Approval { question, .. } if !asks => {
                    return Ok(Turn::Waits(PendingQuestion::Approval(Box::new(question))));
                }
                SessionEvent::Approval { question, .. } => self.ask_approval(question).await?,
                _ => {}
            }
        }
    }

    /// Asks the user the agent's questions.
    async fn ask_user(&mut self, mut asked: Asks) -> Result<()> {
        loop {
            question(&format!("{}? ", asked.prompt(columns()).unwrap_or_default()));
            let mut line = String::new();
            let read = tokio::task::block_in_place(|| std::io::stdin().read_line(&mut line));
            if !matches!(read, Ok(1..)) || asked.take(&line) {
                break;
            }
        }
        self.reply(&asked).await
    }

    /// Asks the user whether a call may run. The end of the input means no.
    async fn ask_approval(&mut self, asked: Question) -> Result<()> {
        let mut asked = Some(asked);
        while let Some(open) = asked.take() {
            question(&format!("{}? ", approval_prompt(&open, columns())));
            let mut line = String::new();
            let read = tokio::task::block_in_place(|| std::io::stdin().read_line(&mut line));
            asked = match (read, questions::answer(&open, &line)) {
                (Ok(0) | Err(_), _) => self.answer(&open, questions::answer_of("no")).await?,
                (Ok(_), Some(answer)) => self.answer(&open, answer).await?,
                (Ok(_), None) => Some(open),
            };
        }
        Ok(())
    }

    /// The connection was lost during a run. The gateway resumes the run by itself.
    fn lost(&mut self) -> anyhow::Error {
        self.screen.end_line();
        let message = "the connection to the gateway was lost; the run continues there";
        Refused(Refusal::new(RefusalCode::Unavailable, message).with_hint(self.read_later())).into()
    }
}
