//! Who may have how much of the room for messages under way. The operator, clients and nodes have room of their own each, so
//! that none of them is kept waiting by the others; one client or node may have half of theirs.

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

pub(crate) struct Accounts {
    operator: Pool,
    clients: Pool,
    nodes: Pool,
    known: Mutex<HashMap<String, Account>>,
}

impl Default for Accounts {
    fn default() -> Self {
        let operator = Pool::default();
        Accounts {
            clients: operator.separate(),
            nodes: operator.separate(),
            operator,
            known: Mutex::default(),
        }
    }
}

impl Accounts {
    /// Over all connections and requests with one token.
    pub(crate) fn of(&self, identity: &Identity) -> Account {
        match identity {
            Identity::Operator => self.find("operator", || self.operator.whole()),
            Identity::Client(token) => self.find(&format!("client {}", token.id), || self.clients.half()),
        }
    }

    pub(crate) fn of_node(&self, id: &str) -> Account {
        self.find(&format!("node {id}"), || self.nodes.half())
    }

    /// After a burst the memory it took goes back to the system also if nothing else happens: an allocator that waits a while
    /// before it does so looks at the clock when a large block is freed.
    pub(crate) async fn settle(&self, stop: CancellationToken) {
        let settling = async {
            loop {
                self.operator.released().await;
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

    fn find(&self, name: &str, open: impl FnOnce() -> Account) -> Account {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = known.get(name) {
            return account.clone();
        }
        if known.len() >= REMEMBERED {
            known.retain(|_, account| !account.is_unused());
        }
        known.entry(name.to_owned()).or_insert_with(open).clone()
    }
}

/// For a link that is paid for by somebody.
pub(crate) fn paid_by(account: Account) -> LinkOptions {
    LinkOptions { account: Some(account), ..LinkOptions::default() }
}
