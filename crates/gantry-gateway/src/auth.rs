//! Authenticates tokens, compared in constant time. Addresses with too many wrong tokens are rejected, also on loopback. A
//! valid token always works, because clients behind one proxy share an address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gantry_domain::{Identity, wait_until};
use gantry_store::{ClientCheck, ClientToken, Database, DatabaseError};
use tokio_util::sync::CancellationToken;

use crate::gateway::{now_ms, page_name};
use crate::page_claim::PageClaim;

/// Wrong tokens that an address may try within the window. After that the answer does not say what is wrong.
const MAX_FAILURES: u32 = 20;
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum addresses whose failures are counted. The oldest are dropped first.
const MAX_ADDRESSES: usize = 4096;
/// Size and lifetime of the cache of client tokens.
const CACHED_FOR: Duration = Duration::from_secs(10);
const MAX_CACHED: usize = 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthError {
    #[error("a bearer token is required")]
    Missing,
    #[error("the token is invalid")]
    Wrong,
    #[error("the token has expired")]
    Expired,
    #[error("the token was revoked")]
    Revoked,
    #[error("the page session is unknown or over; `gantry page` prints a link for a new one")]
    NoPageSession,
    #[error("a page session counts only for requests of the gateway's own page")]
    NotOwnPage,
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
    /// Cancels every call of the gateway.
    ending: CancellationToken,
    /// Cancellation of the calls of each used token, by token id. Entries of revoked tokens stay cancelled, because a
    /// request that was authenticated before may start its call after.
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

    /// Returns the identity of a token. The operator's token is compared by hash, in constant time.
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
                // The token is registered, so that a revocation can end its calls.
                self.ending_of_call(&identity);
                return Ok(identity);
            }
            ClientCheck::Unknown => AuthError::Wrong,
            ClientCheck::Expired => AuthError::Expired,
            ClientCheck::Revoked => AuthError::Revoked,
        };
        Err(self.count_failure(from, failed))
    }

    /// Returns the identity of a page session, which needs its cookie and its key.
    pub(crate) async fn check_page(
        &self,
        claim: &PageClaim<'_>,
        from: IpAddr,
    ) -> Result<Identity, AuthError> {
        if !claim.is_own_page {
            return Err(self.count_failure(from, AuthError::NotOwnPage));
        }
        for cookie in &claim.cookies {
            let session = self.database.check_page_session(cookie, claim.key, now_ms()).await?;
            if let Some(session) = session {
                let identity = Identity::Page(Arc::new(session));
                // Registered like a token, so that a revocation can end its calls.
                self.ending_of_call(&identity);
                return Ok(identity);
            }
        }
        Err(self.count_failure(from, AuthError::NoPageSession))
    }

    /// Counts a wrong token. Returns the error to report: the failure, or that there were too many.
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

    /// Clears the cache after a revocation and ends the calls of the revoked token.
    pub(crate) fn revoked(&self, name: &str) {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.values().filter(|calls| calls.token == name).for_each(|calls| calls.ending.cancel());
    }

    /// Returns a cancellation token that fires when the gateway ends or the caller's token becomes invalid.
    pub(crate) fn ending_of_call(&self, identity: &Identity) -> CancellationToken {
        let (id, name, expires) = match identity {
            Identity::Operator => return self.ending.child_token(),
            Identity::Page(session) => (&session.id, page_name(&session.id), None),
            Identity::Client(token) => (&token.id, token.name.clone(), token.expires),
        };
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let ending = self.ending.child_token();
            if let Some(expires) = expires {
                tokio::spawn(end_at(expires, ending.clone()));
            }
            Calls { token: name, ending }
        };
        calls.entry(id.clone()).or_insert_with(new).ending.child_token()
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

/// Ends the calls of a token when it expires. There is at most one such task per token.
async fn end_at(expires: i64, ending: CancellationToken) {
    tokio::select! {
        () = wait_until(expires) => ending.cancel(),
        () = ending.cancelled() => {}
    }
}
