//! Questions at the terminal: approvals of calls, and questions of an agent.

use std::collections::VecDeque;

use gantry_agent::LastingApproval;
use gantry_protocol::{AnswerParams, ListenResult, Question, SessionEvent, UserAsked, UserQuestion};
use gantry_tool::QuestionText;

use crate::output::printable;

/// Returns the prompt for an approval.
pub(super) fn approval_prompt(asked: &Question) -> String {
    let question = QuestionText::new(&asked.action()).whole();
    let offers = asked.offers.iter().map(|offer| format!("  [{}] {}", offer.key, offer.label));
    printable(&format!(
        "\n{question}\n{} (rule {})\n[y]es  [n]o{}: ",
        asked.reason,
        asked.rule,
        offers.collect::<String>()
    ))
}

/// Parses an answer: yes, no, the number of an offer, or `a` with a time and `any`. Returns `None` if the line is not a
/// valid answer.
pub(super) fn answer(asked: &Question, line: &str) -> Option<AnswerParams> {
    let line = line.trim().to_lowercase();
    if let Some(offer) = asked.offers.iter().find(|offer| offer.key == line) {
        return Some(AnswerParams { offer: Some(offer.key.clone()), ..answer_of("always") });
    }
    let mut words = line.split_whitespace();
    let word = match words.next()? {
        "y" | "yes" => "yes",
        "n" | "no" => "no",
        "a" | "always" => {
            let (always, left) = LastingApproval::parse(words);
            return left.is_empty().then(|| AnswerParams {
                scope: always.scope,
                hours: always.hours,
                offer: always.offer,
                ..answer_of("always")
            });
        }
        _ => return None,
    };
    words.next().is_none().then(|| answer_of(word))
}

pub(super) fn answer_of(word: &str) -> AnswerParams {
    AnswerParams { answer: Some(word.to_owned()), ..AnswerParams::default() }
}

/// Open questions in order. Several calls that run at once may each ask.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) asks: VecDeque<Asks>,
    pub(super) approvals: VecDeque<Question>,
}

impl Waiting {
    /// Returns the open questions of a session's status.
    pub(super) fn of(listened: ListenResult) -> Waiting {
        match listened {
            ListenResult::Known(status) => Waiting {
                asks: status.asks.into_iter().map(Asks::new).collect(),
                approvals: status.questions.into(),
            },
            ListenResult::New(_) => Waiting::default(),
        }
    }

    pub(super) fn on_event(&mut self, event: &SessionEvent) {
        match event {
            SessionEvent::Approval { question, .. } => {
                self.is_answered(&question.id);
                self.approvals.push_back(question.clone());
            }
            SessionEvent::Asked { asked, .. } => self.asks.push_back(Asks::new(asked.clone())),
            SessionEvent::ApprovalAnswered { question, .. }
            | SessionEvent::AskedAnswered { question, .. } => self.is_answered(question),
            _ => {}
        }
    }

    /// Removes a question that was answered, here or by another client.
    pub(super) fn is_answered(&mut self, id: &str) {
        self.approvals.retain(|open| open.id != id);
        self.asks.retain(|open| open.id != id);
    }

    pub(super) fn prompt(&self) -> Option<String> {
        let asks = self.asks.front().and_then(Asks::prompt);
        asks.or_else(|| self.approvals.front().map(approval_prompt))
    }
}

/// Questions of an agent, and the answers given so far.
pub(super) struct Asks {
    pub(super) id: String,
    /// The name of the child session that asks, if any.
    child: Option<String>,
    questions: Vec<UserQuestion>,
    pub(super) answers: Vec<String>,
}

impl Asks {
    pub(super) fn new(asked: UserAsked) -> Asks {
        let child = asked.child.map(|child| child.name);
        Asks { id: asked.id, child, questions: asked.questions, answers: Vec::new() }
    }

    /// Returns the prompt for the next question.
    pub(super) fn prompt(&self) -> Option<String> {
        let next = self.questions.get(self.answers.len())?;
        let options = next.options.iter().enumerate();
        let options: String = options.map(|(at, option)| format!("\n  {}. {option}", at + 1)).collect();
        let who = self.child.as_ref().map_or(String::new(), |child| format!("{child} asks: "));
        let heading = next.heading.as_ref().map_or(String::new(), |heading| format!("{heading}\n"));
        Some(printable(&format!("\n{heading}{who}{}{options}\n? ", next.question)))
    }

    /// Takes an answer: the number of an option, or text. Returns whether all questions are answered.
    pub(super) fn take(&mut self, line: &str) -> bool {
        let next = self.questions.get(self.answers.len());
        let chosen = line.trim().parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let chosen = chosen.and_then(|at| next?.options.get(at).cloned());
        let answer = chosen.unwrap_or_else(|| line.trim().to_owned());
        if !answer.is_empty() {
            self.answers.push(answer);
        }
        self.answers.len() >= self.questions.len()
    }
}
