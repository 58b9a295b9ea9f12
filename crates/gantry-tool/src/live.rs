//! [`Live`] is a value that a changed configuration replaces while calls read it.

use std::sync::{Arc, PoisonError, RwLock};

/// A shared value. Clones share it. A reader keeps what it got, so one call sees one value.
#[derive(Debug)]
pub struct Live<T>(Arc<RwLock<Arc<T>>>);

impl<T> Live<T> {
    pub fn new(value: T) -> Live<T> {
        Live(Arc::new(RwLock::new(Arc::new(value))))
    }

    pub fn get(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value for readers that come later.
    pub fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}

impl<T> Clone for Live<T> {
    fn clone(&self) -> Live<T> {
        Live(self.0.clone())
    }
}

impl<T: Default> Default for Live<T> {
    fn default() -> Live<T> {
        Live::new(T::default())
    }
}
