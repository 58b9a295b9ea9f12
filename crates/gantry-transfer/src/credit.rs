//! [`Credit`] is how far a sender may send. Its thread blocks until the receiver grants more.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::TransferError;

#[derive(Debug, Default)]
pub(crate) struct Credit {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    granted: u64,
    ended: Option<String>,
}

impl Credit {
    pub(crate) fn new(granted: u64) -> Credit {
        Credit { state: Mutex::new(State { granted, ended: None }), changed: Condvar::new() }
    }

    /// Blocks until the credit exceeds `offset`, and returns the credit.
    pub(crate) fn beyond(&self, offset: u64) -> Result<u64, TransferError> {
        let mut state = self.lock();
        loop {
            if let Some(reason) = &state.ended {
                return Err(TransferError::Ended(reason.clone()));
            }
            if state.granted > offset {
                return Ok(state.granted);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns an error with the reason if the stream has ended.
    pub(crate) fn check(&self) -> Result<(), TransferError> {
        self.lock().ended.as_ref().map_or(Ok(()), |reason| Err(TransferError::Ended(reason.clone())))
    }

    pub(crate) fn grant(&self, up_to: u64) {
        let mut state = self.lock();
        state.granted = state.granted.max(up_to);
        self.changed.notify_all();
    }

    /// Ends the stream. Only the first reason is kept.
    pub(crate) fn end(&self, reason: &str) {
        self.lock().ended.get_or_insert_with(|| reason.to_owned());
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
