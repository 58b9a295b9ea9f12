//! What is asked at the terminal: whether a call may run, and what an agent wants to know.

use serde_json::Value;

use super::text_of;
use crate::output::printable;

/// Asks whoever sits here.
pub(super) fn approval_prompt(asked: &Value) -> String {
    printable(&format!(
        "\n{} wants to run with {}\n{} (rule {})\nallow? [y]es, [n]o, [a]lways with these arguments: ",
        text_of(&asked["tool"]),
        asked["input"],
        text_of(&asked["reason"]),
        text_of(&asked["rule"])
    ))
}

pub(super) fn word(line: &str) -> Option<&'static str> {
    match line.trim().to_lowercase().as_str() {
        "y" | "yes" => Some("yes"),
        "n" | "no" => Some("no"),
        "a" | "always" => Some("always"),
        _ => None,
    }
}

/// What an agent asks, and what was answered so far.
pub(super) struct Asks {
    pub(super) id: String,
    /// The child that asks, if it is one.
    child: Option<String>,
    questions: Vec<Value>,
    pub(super) answers: Vec<String>,
}

impl Asks {
    pub(super) fn new(asked: &Value) -> Asks {
        let questions = asked["questions"].as_array().cloned().unwrap_or_default();
        let child = asked["child"]["name"].as_str().map(str::to_owned);
        Asks { id: text_of(&asked["id"]), child, questions, answers: Vec::new() }
    }

    /// The next question, as it is put.
    pub(super) fn prompt(&self) -> Option<String> {
        let next = self.questions.get(self.answers.len())?;
        let options = next["options"].as_array().into_iter().flatten().enumerate();
        let options = options.map(|(at, option)| format!("\n  {}. {}", at + 1, text_of(option)));
        let options: String = options.collect();
        let who = self.child.as_ref().map_or(String::new(), |child| format!("{child} asks: "));
        Some(printable(&format!("\n{who}{}{options}\n? ", text_of(&next["question"]))))
    }

    /// An answer: a number of an option, or words. Whether all are given.
    pub(super) fn take(&mut self, line: &str) -> bool {
        let options = self.questions.get(self.answers.len()).map(|next| next["options"].clone());
        let chosen = line.trim().parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let chosen = chosen.and_then(|at| options?.get(at).map(text_of));
        let answer = chosen.unwrap_or_else(|| line.trim().to_owned());
        if !answer.is_empty() {
            self.answers.push(answer);
        }
        self.answers.len() >= self.questions.len()
    }
}
