//! [`AnswerLabels`] remembers the labels of answers to clients that keep the conversation themselves. Such clients send
//! earlier answers again with their next message, and the labels have to come back with them.
//!
//! An unknown or edited answer counts as both untrusted and private.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use gantry_tool::Label;

/// The number of answers that are remembered. The oldest are dropped first.
const REMEMBERED: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct AnswerLabels {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    labels: HashMap<blake3::Hash, Vec<Label>>,
    /// The oldest first.
    order: VecDeque<blake3::Hash>,
}

impl AnswerLabels {
    pub(crate) fn note(&self, text: &str, labels: &[Label]) {
        let hash = hash(text);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = known.labels.get_mut(&hash) {
            // The same text may come from either answer.
            add(before, labels);
            return;
        }
        if known.order.len() >= REMEMBERED
            && let Some(oldest) = known.order.pop_front()
        {
            known.labels.remove(&oldest);
        }
        known.order.push_back(hash);
        known.labels.insert(hash, labels.to_vec());
    }

    /// Returns the labels of all these texts together.
    pub(crate) fn labels(&self, texts: impl Iterator<Item = String>) -> Vec<Label> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut labels = Vec::new();
        for text in texts {
            match known.labels.get(&hash(&text)) {
                Some(found) => add(&mut labels, found),
                None => return vec![Label::Untrusted, Label::Private],
            }
        }
        labels
    }
}

fn add(labels: &mut Vec<Label>, more: &[Label]) {
    for label in more {
        if !labels.contains(label) {
            labels.push(*label);
        }
    }
}

/// Trims the text, because clients may change the space around it.
fn hash(text: &str) -> blake3::Hash {
    blake3::hash(text.trim().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_answers_carry_both_labels() {
        let answers = AnswerLabels::default();
        let labels = |texts: &[&str]| answers.labels(texts.iter().map(|&text| text.to_owned()));
        assert_eq!(labels(&[]), []);
        assert_eq!(labels(&["hello"]), [Label::Untrusted, Label::Private]);
        answers.note("hello\n", &[]);
        answers.note("a page", &[Label::Untrusted]);
        assert_eq!(labels(&["hello"]), []);
        assert_eq!(labels(&["hello", "a page", "hello"]), [Label::Untrusted]);
        answers.note("hello", &[Label::Private]);
        assert_eq!(labels(&["hello"]), [Label::Private], "the text may come from either answer");
        for number in 0..REMEMBERED {
            answers.note(&number.to_string(), &[]);
        }
        assert_eq!(labels(&["hello"]), [Label::Untrusted, Label::Private], "the oldest answers are dropped");
    }
}
