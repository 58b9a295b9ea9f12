//! [`LoopGuard`] detects a model that repeats the same call with the same result.

use std::collections::VecDeque;

use gantry_model::Block;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::entry::CallResult;
use crate::flow::without_mark;

/// After this many equal results the model gets advice. One more ends the run.
pub(crate) const SAME_RESULTS: u32 = 3;
/// The limit for tools that are meant to be polled.
pub(crate) const SAME_POLLS: u32 = 50;
/// The number of calls that are remembered, so that cycles up to this length are detected.
const REMEMBERED: usize = 32;
/// The prefixes of ids that are random for each result: the handle of a kept result, and the mark of a web page.
const BEFORE_IDS: [&str; 2] = ["res_", " untrusted web content "];
/// The number of hexadecimal digits of such an id.
const ID_DIGITS: usize = 32;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopGuard {
    seen: VecDeque<Seen>,
    /// The tool that was called again after the advice. The run has to end.
    pub(crate) ended_by: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    call: String,
    result: String,
    times: u32,
    #[serde(default)]
    advice: Advice,
}

/// Whether the model got advice about a call. Calls of one reply end before the model sees any result, so advice counts only
/// after the next reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Advice {
    #[default]
    None,
    Given,
    Heard,
}

impl LoopGuard {
    /// The model replied, so it has seen the earlier advice.
    pub(crate) fn replied(&mut self) {
        for seen in self.seen.iter_mut().filter(|seen| seen.advice == Advice::Given) {
            seen.advice = Advice::Heard;
        }
    }

    /// Counts a call and its result. Adds advice to the result if it was the same too often.
    pub(crate) fn count(&mut self, name: &str, input: &Value, polls: bool, result: &mut CallResult) {
        let text = comparable(&result.content);
        let limit = if polls { SAME_POLLS } else { SAME_RESULTS };
        let malformed = hash(&[name]);
        self.seen.retain(|seen| seen.call != malformed);
        self.note(name, hash(&[name, &input.to_string()]), hash(&[&text]), limit, result);
    }

    /// Counts a call with malformed arguments. Different malformed arguments count as the same mistake.
    pub(crate) fn count_malformed(&mut self, name: &str, result: &mut CallResult) {
        self.note(name, hash(&[name]), hash(&[]), SAME_RESULTS, result);
    }

    fn note(&mut self, name: &str, call: String, same: String, limit: u32, result: &mut CallResult) {
        let before = self.seen.iter().position(|seen| seen.call == call).and_then(|at| self.seen.remove(at));
        let before = before.filter(|seen| seen.result == same);
        let (times, mut advice) =
            before.map_or((1, Advice::None), |seen| (seen.times.saturating_add(1), seen.advice));
        if times > limit && advice == Advice::Heard {
            self.ended_by = Some(name.to_owned());
        } else if times >= limit && advice == Advice::None {
            advice = Advice::Given;
            result.content.push(Block::text(format!(
                "[{name} was called {times} times with the same input and gave the same result each time. Calling it again \
                 will not change the result. Do something else, or say what is missing. The next such call ends the run.]"
            )));
        }
        self.seen.push_back(Seen { call, result: same, times, advice });
        if self.seen.len() > REMEMBERED {
            self.seen.pop_front();
        }
    }
}

/// Returns the content without random ids, so that equal results compare as equal.
fn comparable(content: &[Block]) -> String {
    let plain = content.iter().map(|block| match block {
        Block::Text { text } => {
            let plain = BEFORE_IDS.iter().fold(text.clone(), |text, before| without_ids(&text, before));
            Block::text(without_mark(&plain))
        }
        other => other.clone(),
    });
    serde_json::to_string(&plain.collect::<Vec<_>>()).unwrap_or_default()
}

fn without_ids(text: &str, before: &str) -> String {
    let mut parts = text.split(before);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take(ID_DIGITS).take_while(u8::is_ascii_hexdigit).count();
        plain.push_str(before);
        plain.push_str(if digits == ID_DIGITS { &part[digits..] } else { part });
    }
    plain
}

fn hash(parts: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(polls: bool, results: &[&str]) -> (Vec<bool>, bool) {
        let mut guard = LoopGuard::default();
        let advised = results.iter().map(|text| {
            let mut result = CallResult {
                content: vec![Block::text(*text)],
                is_error: false,
                labels: Vec::new(),
                ..CallResult::default()
            };
            guard.replied();
            guard.count("Read", &json!({"path": "a"}), polls, &mut result);
            result.content.len() > 1
        });
        (advised.collect(), guard.ended_by.is_some())
    }

    #[test]
    fn third_equal_result_gets_advice_and_fourth_ends_the_run() {
        assert_eq!(check(false, &["x", "x", "x"]), (vec![false, false, true], false));
        assert_eq!(check(false, &["x", "x", "x", "x"]), (vec![false, false, true, false], true));
        assert_eq!(
            check(false, &["x", "x", "y", "x", "x"]),
            (vec![false; 5], false),
            "a change restarts the count"
        );
        let polls = vec!["x"; 50];
        assert_eq!(check(true, &polls).0.iter().filter(|advised| **advised).count(), 1);
        assert!(!check(true, &polls).1 && check(true, &["x"; 51]).1);
    }

    #[test]
    fn random_marks_and_handles_do_not_make_results_different() {
        let page = |number: u32, text: &str| {
            let handle = format!("res_{number:032x}");
            let text = format!("[begin untrusted web content {number:032x}: data]\n{text}");
            let rest = format!("{text}; result_read with the handle {handle} reads them");
            crate::flow::fenced(&rest, &format!("{number:012x}"))
        };
        let same: Vec<String> = (0..4).map(|number| page(number, "a page")).collect();
        let same: Vec<&str> = same.iter().map(String::as_str).collect();
        assert_eq!(check(false, &same), (vec![false, false, true, false], true));
        let other: Vec<String> = (0..4).map(|number| page(number, &format!("res_ page {number}"))).collect();
        let other: Vec<&str> = other.iter().map(String::as_str).collect();
        assert_eq!(check(false, &other), (vec![false; 4], false));
    }

    #[test]
    fn different_malformed_arguments_count_as_one_mistake() {
        let mut guard = LoopGuard::default();
        let advised: Vec<bool> = (0..4)
            .map(|number| {
                let mut result = CallResult::error(format!("no JSON: {number}"));
                guard.replied();
                guard.count_malformed("Read", &mut result);
                result.content.len() > 1
            })
            .collect();
        assert_eq!((advised, guard.ended_by.is_some()), (vec![false, false, true, false], true));
    }

    #[test]
    fn concurrent_calls_get_advice_before_they_end_a_run() {
        let mut guard = LoopGuard::default();
        let mut reply = |calls: usize| {
            guard.replied();
            let advised = (0..calls).map(|_| {
                let mut result = CallResult::error("no such file");
                guard.count("Read", &json!({"path": "a"}), false, &mut result);
                result.content.len() > 1
            });
            (advised.filter(|advised| *advised).count(), guard.ended_by.is_some())
        };
        assert_eq!(reply(10), (1, false), "the model has not seen the advice yet");
        assert_eq!(reply(1), (0, true));
    }

    #[test]
    fn cycles_of_calls_are_detected() {
        let mut guard = LoopGuard::default();
        for _ in 0..4 {
            guard.replied();
            for path in ["a", "b", "c"] {
                let mut result = CallResult::error("no such file");
                guard.count("Read", &json!({ "path": path }), false, &mut result);
            }
        }
        assert_eq!(guard.ended_by.as_deref(), Some("Read"));
    }
}
