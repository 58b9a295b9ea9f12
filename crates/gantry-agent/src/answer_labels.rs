//! What agents answered to callers who keep the conversation themselves, and say the answers again with their next message:
//! their labels have to come back with them. Of an answer that is not known any more, or was changed, the worst is said.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use gantry_tool::Label;

/// Answers that are remembered; the oldest make room.
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
            // The same words may come from either.
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

    /// Of all these together.
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

/// Clients keep the words, but not always the space around them.
fn hash(text: &str) -> blake3::Hash {
    blake3::hash(text.trim().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_its_labels_and_a_strange_one_all() {
        let answers = AnswerLabels::default();
        let labels = |texts: &[&str]| answers.labels(texts.iter().map(|&text| text.to_owned()));
        assert_eq!(labels(&[]), []);
        assert_eq!(labels(&["hello"]), [Label::Untrusted, Label::Private]);
        answers.note("hello\n", &[]);
        answers.note("a page", &[Label::Untrusted]);
        assert_eq!(labels(&["hello"]), []);
        assert_eq!(labels(&["hello", "a page", "hello"]), [Label::Untrusted]);
        answers.note("hello", &[Label::Private]);
        assert_eq!(labels(&["hello"]), [Label::Private], "who of the two said it is not known");
        for number in 0..REMEMBERED {
            answers.note(&number.to_string(), &[]);
        }
        assert_eq!(labels(&["hello"]), [Label::Untrusted, Label::Private], "it was long ago");
    }
}
