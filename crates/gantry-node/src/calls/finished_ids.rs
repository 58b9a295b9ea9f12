//! [`FinishedIds`] remembers the ids of the newest finished calls, so that none runs twice.

use std::collections::{HashSet, VecDeque};

const MAX_IDS: usize = 4_096;

#[derive(Default)]
pub(super) struct FinishedIds {
    ids: HashSet<String>,
    order: VecDeque<String>,
}

impl FinishedIds {
    pub(super) fn contains(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    pub(super) fn add(&mut self, id: &str) {
        if !self.ids.insert(id.to_owned()) {
            return;
        }
        self.order.push_back(id.to_owned());
        if self.order.len() > MAX_IDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }
}
