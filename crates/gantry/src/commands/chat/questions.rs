//! What is asked at the terminal: whether a call may run, and what an agent wants to know.

use std::collections::VecDeque;

use gantry_agent::Always;
use serde_json::{Value, json};

use super::text_of;
use crate::output::printable;

/// Asks whoever sits here.
pub(super) fn approval_prompt(asked: &Value) -> String {
    let what = if command(asked).is_some() { "command" } else { "call" };
    // What goes out with both labels is allowed as it is, or not at all.
    let any = if asked["rule"] == "flow-labels" { String::new() } else { format!(" · 'a any' any {what}") };
    printable(&format!(
        "\n{}\n{} (rule {})\nallow? [y]es, [n]o, [a]lways this exact {what} · 'a 8h' for 8 hours{any}: ",
        proposal(asked),
        text_of(&asked["reason"]),
        text_of(&asked["rule"])
    ))
}

/// What the agent wants to do: the command itself, or the call.
pub(crate) fn proposal(asked: &Value) -> String {
    let tool = text_of(&asked["tool"]);
    let place = tool.split_once("__").map_or(String::new(), |(node, _)| format!(" on {node}"));
    match command(asked) {
        Some(command) => format!("Run{place}?  $ {command}"),
        None => format!("Run {tool}?  {}", asked["input"]),
    }
}

/// The command line, of a tool that runs one.
fn command(asked: &Value) -> Option<&str> {
    let command = asked["input"]["command"].as_str()?;
    let tool = asked["tool"].as_str()?;
    let bare = tool.rsplit_once("__").map_or(tool, |(_, bare)| bare);
    ["Bash", "bash", "exec", "tool::shell_exec"].contains(&bare).then_some(command)
}

/// What was answered, as the gateway takes it; nothing for what is no answer.
pub(super) fn answer(line: &str) -> Option<Value> {
    let line = line.trim().to_lowercase();
    let mut words = line.split_whitespace();
    let word = match words.next()? {
        "y" | "yes" => "yes",
        "n" | "no" => "no",
        "a" | "always" => {
            let (always, left) = Always::parse(words);
            return left.is_empty().then(|| {
                let mut answer = json!({"answer": "always"});
                if let Some(scope) = always.scope {
                    answer["scope"] = json!(scope);
                }
                if let Some(hours) = always.hours {
                    answer["hours"] = json!(hours);
                }
                answer
            });
        }
        _ => return None,
    };
    words.next().is_none().then(|| json!({ "answer": word }))
}

/// What waits for an answer here, one after the other: calls that run side by side may each ask.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) asks: VecDeque<Asks>,
    pub(super) approvals: VecDeque<Value>,
}

impl Waiting {
    /// What a session waits for, as its status says.
    pub(super) fn of(status: &Value) -> Waiting {
        let listed = |key: &str| status[key].as_array().cloned().unwrap_or_default();
        Waiting {
            asks: listed("asks").iter().map(Asks::new).collect(),
            approvals: listed("questions").into(),
        }
    }

    pub(super) fn hear(&mut self, event: &Value) {
        match event["event"].as_str().unwrap_or_default() {
            "approval" => {
                self.is_answered(&event["question"]["id"]);
                self.approvals.push_back(event["question"].clone());
            }
            "asked" => self.asks.push_back(Asks::new(&event["asked"])),
            "approval_answered" | "asked_answered" => self.is_answered(&event["question"]),
            _ => {}
        }
    }

    /// Here or elsewhere.
    pub(super) fn is_answered(&mut self, id: &Value) {
        self.approvals.retain(|open| open["id"] != *id);
        self.asks.retain(|open| open.id != text_of(id));
    }

    pub(super) fn prompt(&self) -> Option<String> {
        let asks = self.asks.front().and_then(Asks::prompt);
        asks.or_else(|| self.approvals.front().map(approval_prompt))
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
        let heading = next["heading"].as_str().map_or(String::new(), |heading| format!("{heading}\n"));
        Some(printable(&format!("\n{heading}{who}{}{options}\n? ", text_of(&next["question"]))))
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
