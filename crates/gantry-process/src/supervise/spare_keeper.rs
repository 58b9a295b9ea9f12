//! Provides a new keeper for each command, and starts one ahead while the engine is idle.
//!
//! The spare keeper is an optimisation: a command does not wait for its keeper to start. A spare
//! has no order yet, so it fits any command.

use std::io::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::options::ProcessesOptions;
use crate::supervise::keeper_link::Link;

pub(crate) struct Keepers {
    pub(crate) options: ProcessesOptions,
    spare: Mutex<Spare>,
}

#[derive(Default)]
enum Spare {
    #[default]
    None,
    Ready(Box<Link>),
    /// The engine is shutting down, so there is no next command.
    Dismissed,
}

impl Keepers {
    pub(crate) fn new(options: ProcessesOptions) -> Self {
        Self { options, spare: Mutex::default() }
    }

    /// Returns the spare if it is alive, or else starts a keeper.
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

    /// Starts a spare for the next command. Errors are ignored: the next command starts its own
    /// keeper and reports them.
    pub(crate) fn start_spare(&self) {
        let mut spare = self.spare();
        if self.options.spare_keeper && matches!(*spare, Spare::None) {
            *spare = Link::start(&self.options).map_or(Spare::None, |link| Spare::Ready(Box::new(link)));
        }
    }

    /// Closes the spare's control socket, which ends it. No other spare follows.
    pub(crate) fn dismiss_spare(&self) {
        *self.spare() = Spare::Dismissed;
    }

    fn spare(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
