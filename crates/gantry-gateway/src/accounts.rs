//! Who may have how much of the room for messages under way: the operator all of it, everybody else half.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use gantry_link::{Account, LinkOptions, Pool};

use crate::auth::Identity;

/// Accounts that nobody uses are forgotten when there are more than this.
const REMEMBERED: usize = 1024;

#[derive(Default)]
pub(crate) struct Accounts {
    pool: Pool,
    known: Mutex<HashMap<String, Account>>,
}

impl Accounts {
    /// Over all connections and requests with one token.
    pub(crate) fn of(&self, identity: &Identity) -> Account {
        match identity {
            Identity::Operator => self.find("operator", Pool::whole),
            Identity::Client(token) => self.find(&format!("client {}", token.id), Pool::half),
        }
    }

    pub(crate) fn of_node(&self, id: &str) -> Account {
        self.find(&format!("node {id}"), Pool::half)
    }

    fn find(&self, name: &str, open: impl FnOnce(&Pool) -> Account) -> Account {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = known.get(name) {
            return account.clone();
        }
        if known.len() >= REMEMBERED {
            known.retain(|_, account| !account.is_unused());
        }
        known.entry(name.to_owned()).or_insert_with(|| open(&self.pool)).clone()
    }
}

/// For a link that is paid for by somebody.
pub(crate) fn paid_by(account: Account) -> LinkOptions {
    LinkOptions { account: Some(account), ..LinkOptions::default() }
}
