//! Resolves two node processes with the same id. The newest process wins; older ones may join again when it has gone.
//!
//! Otherwise the two would replace each other forever, and end each other's calls each time.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Live, Node};

/// Maximum replaced processes that are remembered per node. A forgotten one may join and becomes the newest.
const MAX_REMEMBERED: usize = 16;

/// `Replaced` holds the instances of a node that a newer process has replaced.
#[derive(Default)]
pub(super) struct Replaced(Mutex<VecDeque<String>>);

impl Replaced {
    fn instances(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    /// Makes a connection the node's current one. Returns the previous one.
    pub(super) fn take_place(&self, live: Live) -> Option<Live> {
        let mut replaced = self.replaced.instances();
        replaced.retain(|instance| *instance != live.instance);
        let instance = live.instance.clone();
        let old = self.live.send_replace(Some(live));
        // A new connection of the same process replaces nothing.
        if let Some(old) = old.as_ref().filter(|old| old.instance != instance) {
            replaced.push_back(old.instance.clone());
            if replaced.len() > MAX_REMEMBERED {
                replaced.pop_front();
            }
        }
        old
    }

    /// Returns whether another process has replaced this one and is still connected.
    pub(crate) fn is_replaced(&self, instance: &str) -> bool {
        let taken = self.live.borrow().as_ref().is_some_and(|live| live.instance != instance);
        taken && self.replaced.instances().iter().any(|replaced| replaced == instance)
    }
}
