//! What answers carried that went to clients which send them back as history. Such a conversation has no session here, so its
//! labels are found again by the words. An answer that is not known, or no longer, counts as carrying everything.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use gantry_tool::Label;

/// The oldest make room.
const KEPT: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct AnswersGiven(Mutex<Given>);

#[derive(Debug, Default)]
struct Given {
    labels: HashMap<blake3::Hash, Vec<Label>>,
    order: VecDeque<blake3::Hash>,
}

impl AnswersGiven {
    pub(crate) fn remember(&self, answer: blake3::Hash, labels: Vec<Label>) {
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match given.labels.get_mut(&answer) {
            // The same words in another conversation: what either carried.
            Some(known) => known.extend(labels),
            None => {
                given.labels.insert(answer, labels);
                given.order.push_back(answer);
            }
        }
        while given.order.len() > KEPT {
            if let Some(oldest) = given.order.pop_front() {
                given.labels.remove(&oldest);
            }
        }
    }

    /// What these answers carried, in all.
    pub(crate) fn labels<'a>(&self, answers: impl Iterator<Item = &'a str>) -> Vec<Label> {
        let given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let everything = [Label::Untrusted, Label::Private];
        let carried: Vec<Label> = answers
            .flat_map(|text| {
                let known = given.labels.get(&blake3::hash(text.as_bytes()));
                known.map_or(everything.as_slice(), Vec::as_slice).to_vec()
            })
            .collect();
        everything.into_iter().filter(|label| carried.contains(label)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_carries_everything_and_the_oldest_is_forgotten() {
        let given = AnswersGiven::default();
        let remember =
            |text: &str, labels: &[Label]| given.remember(blake3::hash(text.as_bytes()), labels.to_vec());
        remember("clean", &[]);
        remember("page", &[Label::Untrusted]);
        let labels = |texts: &[&str]| given.labels(texts.iter().copied());
        assert_eq!(labels(&[]), []);
        assert_eq!(labels(&["clean"]), []);
        assert_eq!(labels(&["clean", "page"]), [Label::Untrusted]);
        assert_eq!(labels(&["clean", "who said this?"]), [Label::Untrusted, Label::Private]);
        remember("clean", &[Label::Private]);
        assert_eq!(labels(&["clean"]), [Label::Private]);
        for number in 0..KEPT {
            remember(&number.to_string(), &[]);
        }
        assert_eq!(labels(&["page"]).len(), 2);
        assert_eq!(labels(&["1"]), []);
    }
}
