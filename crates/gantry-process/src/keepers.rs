//! Keepers to order from: a fresh one for each command, and one started ahead while the engine is idle.
//!
//! A spare has been told nothing yet, so it fits any command; it hides the time a process takes to start.

use std::io::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::link::Link;
use crate::options::ProcessesOptions;

pub(crate) struct Keepers {
    pub(crate) options: ProcessesOptions,
    spare: Mutex<Spare>,
}

#[derive(Default)]
enum Spare {
    #[default]
    None,
    Ready(Box<Link>),
    /// The engine is shutting down: there will be no next command.
    Dismissed,
}

impl Keepers {
    pub(crate) fn new(options: ProcessesOptions) -> Self {
        Self { options, spare: Mutex::default() }
    }

    /// The spare if it is there and alive, else a keeper started now.
    pub(crate) fn take(&self) -> Result<Link, Error> {
        let mut spare = self.spare();
        match std::mem::take(&mut *spare) {
            Spare::Ready(mut link) => {
                if link.is_alive() {
                    return Ok(*link);
                }
            }
            Spare::Dismissed => *spare = Spare::Dismissed,
            Spare::None => {}
        }
        Link::start(&self.options)
    }

    /// Starts a spare for the next command. When that fails the next command finds out for itself.
    pub(crate) fn start_spare(&self) {
        let mut spare = self.spare();
        if self.options.spare_keeper && matches!(*spare, Spare::None) {
            *spare = Link::start(&self.options).map_or(Spare::None, |link| Spare::Ready(Box::new(link)));
        }
    }

    /// Lets the spare go for good: its control socket closes, and it ends.
    pub(crate) fn dismiss_spare(&self) {
        *self.spare() = Spare::Dismissed;
    }

    fn spare(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
