//! The lifecycle of a server: it is started when needed, watched while it runs, stopped when idle, and restarted with
//! growing pauses if it fails.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::super::connection::{Connection, Hearer, TalkError};
use super::{MAX_CALLS, Server, ServerError};

/// Timeout of the handshake and the first list. Some programs download themselves first.
const START_LIMIT: Duration = Duration::from_secs(60);
const ENDED: &str = "it exited by itself";
/// Pause after a failure, doubled with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How long a call waits for a retry. If the pause is longer, the call fails.
const PATIENCE: Duration = Duration::from_secs(2);
/// After running this long, a server's earlier failures are forgotten.
const PROVEN: Duration = Duration::from_secs(60);
/// Minimum time between two reads of the list, however often the server reports changes.
const LIST_PAUSE: Duration = Duration::from_secs(1);
/// Timeout of a new list when a blocked tool is called.
const LOOK_LIMIT: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Slot {
    connection: Option<Running>,
    failures: u32,
    again: Option<Instant>,
    reason: String,
}

#[derive(Clone)]
pub(super) struct Running {
    connection: Arc<Connection>,
    since: Instant,
}

impl Slot {
    /// Returns the running server, if it uses this connection.
    pub(super) fn running(&self, connection: &Arc<Connection>) -> Option<Running> {
        self.connection.clone().filter(|now| Arc::ptr_eq(&now.connection, connection))
    }

    fn failed(&mut self, reason: String) {
        let doubled = FIRST_WAIT.saturating_mul(1 << self.failures.min(8));
        self.failures += 1;
        self.again = Some(Instant::now() + doubled.min(LONGEST_WAIT));
        self.reason = reason;
    }
}

impl Server {
    /// Returns the connection of the running server, and starts it if needed. The start continues if the caller leaves.
    pub(in crate::client) async fn connected(self: &Arc<Self>) -> Result<Arc<Connection>, ServerError> {
        let server = self.clone();
        match tokio::spawn(async move { server.start().await }).await {
            Ok(started) => started,
            Err(err) => Err(ServerError::Failed { server: self.name().to_owned(), reason: err.to_string() }),
        }
    }

    async fn start(self: Arc<Self>) -> Result<Arc<Connection>, ServerError> {
        let mut slot = self.slot.lock().await;
        if let Some(running) = slot.connection.clone() {
            if !running.connection.is_lost() {
                return Ok(running.connection);
            }
            self.lost(&mut slot, &running, ENDED);
        }
        if let Some(why) = self.stopped.get() {
            return Err(ServerError::Failed { server: self.name().to_owned(), reason: (*why).to_owned() });
        }
        if let Some(again) = slot.again {
            let wait = again.saturating_duration_since(Instant::now());
            if wait > PATIENCE {
                return Err(ServerError::Resting {
                    server: self.name().to_owned(),
                    wait,
                    reason: slot.reason.clone(),
                });
            }
            tokio::time::sleep(wait).await;
        }
        let (hearer, heard) = Hearer::new(self.around.version);
        let opened = tokio::select! {
            opened = tokio::time::timeout(START_LIMIT, self.open(hearer)) => {
                opened.unwrap_or(Err(TalkError::Silent(START_LIMIT)))
            }
            // A stop must not wait for the start.
            () = self.stopping.cancelled() => Err(TalkError::Lost(ENDED.to_owned())),
        };
        match opened {
            Ok(connection) => {
                tracing::info!(server = self.name(), pid = connection.pid(), "mcp_server_started");
                let running = Running { connection: Arc::new(connection), since: Instant::now() };
                slot.connection = Some(running.clone());
                *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                tokio::spawn(watch_server(Arc::downgrade(&self), running.clone(), heard));
                Ok(running.connection)
            }
            Err(err) => {
                let confinement = self.confinement().filter(|_| matches!(err, TalkError::Lost(_)));
                let err = match (self.failed(err), confinement) {
                    (ServerError::Failed { server, reason }, Some(confinement)) => {
                        ServerError::Confined { server, reason, confinement }
                    }
                    (err, _) => err,
                };
                slot.failed(err.to_string());
                tracing::warn!(server = self.name(), reason = slot.reason, "mcp_server_failed");
                Err(err)
            }
        }
    }

    pub(super) fn lost(&self, slot: &mut Slot, running: &Running, why: &str) {
        slot.connection = None;
        if running.since.elapsed() >= PROVEN {
            slot.failures = 0;
        }
        tracing::warn!(server = self.name(), reason = why, "mcp_server_lost");
        slot.failed(why.to_owned());
    }

    /// Returns the process id of the running server, if any.
    pub(in crate::client) async fn pid(&self) -> Option<i32> {
        self.slot.lock().await.connection.as_ref()?.connection.pid()
    }

    /// Reads the list again, unless it was just read. Returns `None` if nothing new was read.
    pub(super) async fn refresh_list(self: &Arc<Self>) -> Option<()> {
        let listed = || *self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let before = listed();
        if before.is_some_and(|listed| listed.elapsed() < LIST_PAUSE) {
            return None;
        }
        let looking = async {
            let connection = self.connected().await.ok()?;
            // A server that was just started has been listed.
            if listed() == before {
                self.note(&connection, connection.list().await.ok()?).ok()?;
            }
            Some(())
        };
        tokio::time::timeout(LOOK_LIMIT, looking).await.ok()?
    }

    /// Stops the server for good. Running calls fail with this reason.
    pub(in crate::client) async fn stop(&self, why: &'static str) {
        let _ = self.stopped.set(why);
        self.stopping.cancel();
        let running = self.slot.lock().await.connection.take();
        if let Some(running) = running {
            running.connection.close().await;
        }
    }

    /// Returns when the server may be stopped as idle. It is in the future while calls run.
    fn idle_at(&self) -> Instant {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let since = if self.busy.available_permits() == MAX_CALLS { used } else { Instant::now() };
        since + self.spec.idle
    }
}

/// Watches a running server: follows changes of its tools, its exit and its idle time.
async fn watch_server(server: Weak<Server>, running: Running, mut heard: watch::Receiver<u64>) {
    let mut list_after = Instant::now();
    loop {
        let Some(idle_at) = server.upgrade().map(|server| server.idle_at()) else {
            return running.connection.close().await;
        };
        let changed = async {
            let changed = heard.changed().await;
            tokio::time::sleep_until(list_after).await;
            changed
        };
        tokio::select! {
            () = running.connection.ended() => {
                if let Some(server) = server.upgrade() {
                    let mut slot = server.slot.lock().await;
                    if slot.running(&running.connection).is_some() {
                        server.lost(&mut slot, &running, ENDED);
                    }
                }
                return running.connection.close().await;
            }
            // The sender is part of the connection, so it cannot be dropped before it.
            _ = changed => {
                let Some(server) = server.upgrade() else { continue };
                list_after = Instant::now() + LIST_PAUSE;
                if let Ok(listing) = running.connection.list().await {
                    // A list that cannot be stored is read again with the next start.
                    let _ = server.note(&running.connection, listing);
                }
            }
            () = tokio::time::sleep_until(idle_at) => {
                let Some(server) = server.upgrade() else { continue };
                let mut slot = server.slot.lock().await;
                if server.idle_at() > Instant::now() {
                    continue;
                }
                if slot.running(&running.connection).is_some() {
                    slot.connection = None;
                    (slot.failures, slot.again) = (0, None);
                }
                drop(slot);
                return running.connection.close().await;
            }
        }
    }
}
