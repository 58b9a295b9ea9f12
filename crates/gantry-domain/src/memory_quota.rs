//! How much memory the messages of each caller may take.
//!
//! The operator, clients and nodes have one pool each, so that none of them waits for the others. A
//! single client or node may take half of its pool.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gantry_link::{Account, Pool};
use tokio_util::sync::CancellationToken;

use crate::identity::Identity;

/// Unused accounts are dropped when there are more than this.
const MAX_ACCOUNTS: usize = 1024;

/// How often, and how long after a burst, [`MemoryQuota::settle`] frees a large block.
const SETTLING_TIMES: usize = 3;
const SETTLING_PAUSE: Duration = Duration::from_millis(1_200);
const LARGE_BLOCK: usize = 8 << 20;

pub struct MemoryQuota {
    operator: Pool,
    clients: Pool,
    nodes: Pool,
    known: Mutex<HashMap<String, Account>>,
}

impl Default for MemoryQuota {
    fn default() -> Self {
        let operator = Pool::default();
        MemoryQuota {
            clients: operator.separate(),
            nodes: operator.separate(),
            operator,
            known: Mutex::default(),
        }
    }
}

impl MemoryQuota {
    /// The account of one token, shared by all its connections and requests.
    pub fn of(&self, identity: &Identity) -> Account {
        match identity {
            Identity::Operator | Identity::Page(_) => self.find("operator", || self.operator.whole()),
            Identity::Client(token) => self.find(&format!("client {}", token.id), || self.clients.half()),
        }
    }

    pub fn of_node(&self, id: &str) -> Account {
        self.find(&format!("node {id}"), || self.nodes.half())
    }

    /// Returns memory to the system after a burst, also when the process is idle afterwards.
    ///
    /// mimalloc returns freed memory after a delay, but checks the delay only while it is used. Freeing
    /// a large block makes it check. Measured with eight messages of 16 MiB and their parsed values (a
    /// peak of 760 MiB, two runs): 6 s later the idle process has 6 and 15 MiB with this, and 757 and
    /// 104 MiB without. The cost is three allocations of 8 MiB that are never touched.
    pub async fn settle(&self, stop: CancellationToken) {
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
        if known.len() >= MAX_ACCOUNTS {
            known.retain(|_, account| !account.is_unused());
        }
        known.entry(name.to_owned()).or_insert_with(open).clone()
    }
}
