//! Scheduled jobs: definitions, admission, runs, the tool `gsv__Cron` and its surfaces.
//!
//! [`plan`] decides without I/O what becomes of a due job. The worker admits it in one transaction and starts runs.

mod definition;
mod info;
mod input;
pub(crate) mod plan;
mod run;
mod service;
mod surfaces;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests set up their own world")]
mod tests;
pub(crate) mod tool;
mod worker;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) use definition::{CatchUp, JobDefinition, JobSpec, Overlap};
pub(crate) use run::backoff_ms;
pub(crate) use surfaces::{methods, routes};
pub(crate) use worker::run;

/// The highest number of jobs.
pub(crate) const MAX_JOBS: i64 = 200;

/// The runs of this process.
#[derive(Default)]
pub(crate) struct Jobs {
    /// Wakes the worker after a change.
    pub(crate) wake: Notify,
    /// When the next run that catches up may start.
    next_catch_up: Mutex<i64>,
    /// Cancels runs, by their ids.
    running: Mutex<HashMap<String, CancellationToken>>,
}

impl Jobs {
    /// Cancels a run of this process. Returns whether it runs here.
    fn cancel(&self, run: &str) -> bool {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.get(run).map(CancellationToken::cancel).is_some()
    }

    fn begin(&self, run: &str) -> CancellationToken {
        let token = CancellationToken::new();
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(run.to_owned(), token.clone());
        token
    }

    fn end(&self, run: &str) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(run);
    }
}
