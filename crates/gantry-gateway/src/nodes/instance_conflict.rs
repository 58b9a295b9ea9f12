//! Two processes with one id: the newest start has the place, older ones are let in again when it is free.
//!
//! Without this the two would take the place from each other for ever, each time ending the other's calls.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Live, Node};

/// Of one node. An older one that is forgotten is let in, takes the place, and is not forgotten then.
const MAX_REMEMBERED: usize = 16;

/// The starts of a node's process whose place was taken by another one.
#[derive(Default)]
pub(super) struct Replaced(Mutex<VecDeque<String>>);

impl Replaced {
    fn instances(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    /// Gives the place to a connection; the one that had it.
    pub(super) fn take_place(&self, live: Live) -> Option<Live> {
        let mut replaced = self.replaced.instances();
        replaced.retain(|instance| *instance != live.instance);
        let instance = live.instance.clone();
        let old = self.live.send_replace(Some(live));
        // The same process over a new connection has replaced nobody.
        if let Some(old) = old.as_ref().filter(|old| old.instance != instance) {
            replaced.push_back(old.instance.clone());
            if replaced.len() > MAX_REMEMBERED {
                replaced.pop_front();
            }
        }
        old
    }

    /// Whether another process took the place of this one, and has it still.
    pub(crate) fn is_taken_from(&self, instance: &str) -> bool {
        let taken = self.live.borrow().as_ref().is_some_and(|live| live.instance != instance);
        taken && self.replaced.instances().iter().any(|replaced| replaced == instance)
    }
}
