//! Who may have how much of the room for messages under way: the operator all of it, everybody else half.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gantry_link::{Account, LinkOptions, Pool};
use tokio_util::sync::CancellationToken;

use crate::auth::Identity;

/// Accounts that nobody uses are forgotten when there are more than this.
const REMEMBERED: usize = 1024;

/// How often, and how much later, freed memory is looked after.
const SETTLING_TIMES: usize = 3;
const SETTLING_PAUSE: Duration = Duration::from_millis(1_200);
const LARGE_BLOCK: usize = 8 << 20;

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

    /// After a burst the memory it took goes back to the system also if nothing else happens: an allocator that waits a while
    /// before it does so looks at the clock when a large block is freed.
    pub(crate) async fn settle(&self, stop: CancellationToken) {
        let settling = async {
            loop {
                self.pool.given_back().await;
                for _ in 0..SETTLING_TIMES {
                    tokio::time::sleep(SETTLING_PAUSE).await;
                    drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGE_BLOCK)));
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = settling => {}
        }
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
