//! Who is at the door. Tokens are compared in constant time; those who guess are turned away, on loopback too. A right
//! token always works: many who share an address behind a proxy must not be shut out by one of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gantry_domain::{Identity, wait_until};
use gantry_store::{ClientCheck, ClientToken, Database, DatabaseError};
use tokio_util::sync::CancellationToken;

use crate::gateway::now_ms;

/// Wrong tokens an address may try within the window; after that it does not even hear what is wrong with them.
const MAX_FAILURES: u32 = 20;
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are remembered for their failures; the oldest make room.
const MAX_ADDRESSES: usize = 4096;
/// Client tokens that need not be looked up again for a while.
const CACHED_FOR: Duration = Duration::from_secs(10);
const MAX_CACHED: usize = 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthError {
    #[error("a bearer token is needed")]
    Missing,
    #[error("the token is not valid")]
    Wrong,
    #[error("the token has expired")]
    Expired,
    #[error("the token was revoked")]
    Revoked,
    #[error("too many wrong tokens from this address; wait a minute")]
    TooMany,
    #[error("{0}")]
    Database(#[from] DatabaseError),
}

pub(crate) struct Auth {
    operator: blake3::Hash,
    database: Database,
    failures: Mutex<HashMap<IpAddr, Failures>>,
    cache: Mutex<HashMap<blake3::Hash, (Instant, Arc<ClientToken>)>>,
    /// Of the whole gateway: no call outlives it.
    ending: CancellationToken,
    /// What ends the calls of each token that was used, by its id. Those of revoked ones stay, and stay cancelled: a request
    /// that was let in before may make its call after.
    calls: Mutex<HashMap<String, Calls>>,
}

struct Calls {
    token: String,
    ending: CancellationToken,
}

struct Failures {
    since: Instant,
    count: u32,
}

impl Auth {
    pub(crate) fn new(operator_token: &str, database: Database, ending: CancellationToken) -> Auth {
        Auth {
            operator: blake3::hash(operator_token.as_bytes()),
            database,
            failures: Mutex::default(),
            cache: Mutex::default(),
            ending,
            calls: Mutex::default(),
        }
    }

    /// Whose token this is. The operator's is compared by hash, which takes the same time wherever it differs.
    pub(crate) async fn check(&self, token: &str, from: IpAddr) -> Result<Identity, AuthError> {
        let hash = blake3::hash(token.as_bytes());
        if hash == self.operator {
            return Ok(Identity::Operator);
        }
        if let Some(client) = self.cached(&hash) {
            return Ok(Identity::Client(client));
        }
        let failed = match self.database.check_client_token(token, now_ms()).await? {
            ClientCheck::Ok(client) => {
                let client: Arc<ClientToken> = Arc::from(client);
                self.remember(hash, &client);
                let identity = Identity::Client(client);
                // From now on it is known, so that it can be revoked.
                self.ending_of_call(&identity);
                return Ok(identity);
            }
            ClientCheck::Unknown => AuthError::Wrong,
            ClientCheck::Expired => AuthError::Expired,
            ClientCheck::Revoked => AuthError::Revoked,
        };
        Err(self.count_failure(from, failed))
    }

    /// Counts a wrong token. Says what to tell: that it is wrong, or that there were too many.
    pub(crate) fn count_failure(&self, from: IpAddr, failed: AuthError) -> AuthError {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= MAX_ADDRESSES {
            failures.retain(|_, failures| failures.since.elapsed() < WINDOW);
        }
        if failures.len() >= MAX_ADDRESSES {
            let oldest = failures.iter().min_by_key(|(_, failures)| failures.since).map(|(from, _)| *from);
            oldest.map(|from| failures.remove(&from));
        }
        let entry = failures.entry(from).or_insert_with(|| Failures { since: Instant::now(), count: 0 });
        if entry.since.elapsed() >= WINDOW {
            *entry = Failures { since: Instant::now(), count: 0 };
        }
        entry.count = entry.count.saturating_add(1);
        let count = entry.count;
        drop(failures);
        let failed = if count > MAX_FAILURES { AuthError::TooMany } else { failed };
        // Wrong tokens beyond the limit are not logged: an attacker must not fill the log.
        if count <= MAX_FAILURES + 1 {
            tracing::warn!(address = %from, reason = %failed, "login_denied");
        }
        failed
    }

    /// A token was revoked: nothing that was looked up before counts, and what was begun with it ends.
    pub(crate) fn revoked(&self, name: &str) {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.values().filter(|calls| calls.token == name).for_each(|calls| calls.ending.cancel());
    }

    /// Cancelled when the gateway ends, or the token that the call is made with.
    pub(crate) fn ending_of_call(&self, identity: &Identity) -> CancellationToken {
        let Identity::Client(token) = identity else { return self.ending.child_token() };
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let ending = self.ending.child_token();
            if let Some(expires) = token.expires {
                tokio::spawn(end_at(expires, ending.clone()));
            }
            Calls { token: token.name.clone(), ending }
        };
        calls.entry(token.id.clone()).or_insert_with(new).ending.child_token()
    }

    fn cached(&self, hash: &blake3::Hash) -> Option<Arc<ClientToken>> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let (when, client) = cache.get(hash)?;
        let fresh = when.elapsed() < CACHED_FOR && client.expires.is_none_or(|expires| expires > now_ms());
        fresh.then(|| client.clone())
    }

    fn remember(&self, hash: blake3::Hash, client: &Arc<ClientToken>) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(hash, (Instant::now(), client.clone()));
    }
}

/// Ends the calls of a token with it, however they were made; at most one such task for each token.
async fn end_at(expires: i64, ending: CancellationToken) {
    tokio::select! {
        () = wait_until(expires) => ending.cancel(),
        () = ending.cancelled() => {}
    }
}
