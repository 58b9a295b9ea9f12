//! Questions at the terminal: approvals of calls, and questions of an agent.

use std::collections::VecDeque;

use gantry_agent::LastingApproval;
use gantry_protocol::{AnswerParams, ListenResult, Question, SessionEvent, UserAsked, UserQuestion};
use gantry_tool::QuestionText;

use crate::output::printable;
use crate::wrapping::wrapped;

/// Returns the prompt for an approval, for a terminal of that width. The call itself is shown as it is.
pub(super) fn approval_prompt(asked: &Question, columns: usize) -> String {
    let question = QuestionText::new(&asked.action()).whole();
    let reason = format!("{} (rule {})", asked.reason, asked.rule);
    let offers = asked.offers.iter().map(|offer| format!("\n  [{}] {}", offer.key, offer.label));
    let offers: String = offers.map(|offer| wrapped_lines(&offer, columns)).collect();
    printable(&format!("\n{question}\n{}\n  [y]es  [n]o{offers}\n", wrapped_lines(&reason, columns)))
}

fn wrapped_lines(text: &str, columns: usize) -> String {
    text.lines().map(|line| wrapped(line, 0, columns)).collect::<Vec<_>>().join("\n")
}

/// Parses an answer: yes, no, the number of an offer, or `a` with a time and `any`. The commands `/approve`, `/deny` and
/// `/always` are answers too. Returns `None` if the line is not a valid answer.
pub(super) fn answer(asked: &Question, line: &str) -> Option<AnswerParams> {
    let line = line.trim().to_lowercase();
    if let Some(offer) = asked.offers.iter().find(|offer| offer.key == line) {
        return Some(AnswerParams { offer: Some(offer.key.clone()), ..answer_of("always") });
    }
    let mut words = line.split_whitespace();
    let word = match words.next()? {
        "y" | "yes" | "/yes" | "/approve" => "yes",
        "n" | "no" | "/no" | "/deny" => "no",
        "a" | "always" | "/always" => {
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

/// Says which answers a question takes.
pub(super) fn valid_answers(asked: &Question) -> String {
    let offers: String = asked.offers.iter().map(|offer| format!(", {}", offer.key)).collect();
    format!("Answer y, n{offers}; Ctrl-C stops the run.")
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
                asks: status.status.asks.into_iter().map(Asks::new).collect(),
                approvals: status.status.questions.into(),
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

    /// Identifies the next question.
    pub(super) fn next_id(&self) -> Option<String> {
        let asks = self.asks.front().map(|asks| format!("{}/{}", asks.id, asks.answers.len()));
        asks.or_else(|| self.approvals.front().map(|asked| asked.id.clone()))
    }

    /// Returns the prompt for the next question, for a terminal of that width.
    pub(super) fn prompt(&self, columns: usize) -> Option<String> {
        let asks = self.asks.front().and_then(|asks| asks.prompt(columns));
        asks.or_else(|| self.approvals.front().map(|asked| approval_prompt(asked, columns)))
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

    /// Returns the prompt for the next question, for a terminal of that width.
    pub(super) fn prompt(&self, columns: usize) -> Option<String> {
        let next = self.questions.get(self.answers.len())?;
        let options = next.options.iter().enumerate();
        let options: String = options.map(|(at, option)| format!("\n  {}. {option}", at + 1)).collect();
        let who = self.child.as_ref().map_or(String::new(), |child| format!("{child} asks: "));
        let heading = next.heading.as_ref().map_or(String::new(), |heading| format!("{heading}\n"));
        let asked = wrapped_lines(&format!("{heading}{who}{}{options}", next.question), columns);
        Some(printable(&format!("\n{asked}\n")))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_may_be_words_numbers_or_commands() {
        let asked: Question = serde_json::from_value(json!({
            "id": "q", "call": "c", "tool": "Bash", "rule": "border", "reason": "r", "input": {},
            "fingerprint": "", "exact": "", "expires": 0,
            "offers": [{"key": "1", "label": "this host for the session", "scope": "call", "reach": "session", "hours": 8}],
        }))
        .unwrap();
        let word = |line: &str| answer(&asked, line).and_then(|answer| answer.answer);
        for yes in ["y", " Yes ", "/approve", "/yes"] {
            assert_eq!(word(yes).as_deref(), Some("yes"), "{yes}");
        }
        for no in ["n", "no", "/deny", "/no"] {
            assert_eq!(word(no).as_deref(), Some("no"), "{no}");
        }
        for offer in ["1", "/always 1", "always 1"] {
            let given = answer(&asked, offer).unwrap();
            assert_eq!(
                (given.answer.as_deref(), given.offer.as_deref()),
                (Some("always"), Some("1")),
                "{offer}"
            );
        }
        for other in ["", "maybe", "/status", "yes please", "2"] {
            assert!(answer(&asked, other).is_none(), "{other}");
        }
    }
}
