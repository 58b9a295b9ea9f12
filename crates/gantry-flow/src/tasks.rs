//! Tasks: things to do, for people and for agents in the background.
//!
//! - [`definition`] is what a task is, and checks the fields of callers.
//! - [`actions`] creates, changes and starts tasks. Tools, methods and routes call it.
//! - [`worker`] runs what is due, [`watch`] looks at pages.
//! - [`texts`] describes tasks to models and people.

mod actions;
mod api;
mod config;
mod confirmation;
mod definition;
pub(crate) mod http;
pub(crate) mod methods;
mod notices;
mod pipeline_run;
#[cfg(test)]
mod tests;
mod texts;
pub(crate) mod tools;
mod watch;
pub(crate) mod worker;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_net::{Client, NetworkPolicy};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub use config::TasksConfig;

/// How pages are fetched: the guarded client, and the hosts that an agent may reach.
#[derive(Clone)]
pub struct PageAccess {
    pub client: Client,
    pub policy: Arc<dyn Fn(&str) -> NetworkPolicy + Send + Sync>,
}

/// The shared state of tasks in this process.
pub(crate) struct Tasks {
    pub(crate) config: TasksConfig,
    pub(crate) pages: PageAccess,
    /// The worker looks for work when this is notified.
    pub(crate) wake: Notify,
    /// Stops the runs of this process.
    running: Mutex<HashMap<String, CancellationToken>>,
}

impl Tasks {
    pub(crate) fn new(config: TasksConfig, pages: PageAccess) -> Tasks {
        Tasks { config, pages, wake: Notify::new(), running: Mutex::default() }
    }

    fn stops(&self) -> std::sync::MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
