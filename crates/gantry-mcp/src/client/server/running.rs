//! The life of a server: started when it is needed, listened to while it runs, stopped when it is not, started again
//! with longer and longer pauses if it fails.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::super::connection::{Connection, Hearer, TalkError};
use super::{MAX_CALLS, Server, ServerError};

/// For the handshake and the first list; programs that fetch themselves first take their time.
const START_LIMIT: Duration = Duration::from_secs(60);
const ENDED: &str = "it has ended by itself";
/// After a failure; doubled with each that follows.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A call waits this long for a server that may be tried again; longer waits are told instead.
const PATIENCE: Duration = Duration::from_secs(2);
/// A server that ran for so long has shown that it can.
const PROVEN: Duration = Duration::from_secs(60);
/// A list is read again at most this often, however often a server says that it has changed.
const LIST_PAUSE: Duration = Duration::from_secs(1);
/// For a server to say what it offers now, when the tool that is called is held.
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
    /// What runs now, if it is this.
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
    /// The running server, started if it is not. The start goes on when whoever asked for it has left.
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
            // Whoever ends it must not wait for it to begin.
            () = self.stopping.cancelled() => Err(TalkError::Lost(ENDED.to_owned())),
        };
        match opened {
            Ok(connection) => {
                tracing::info!(server = self.name(), pid = connection.pid(), "mcp_server_started");
                let running = Running { connection: Arc::new(connection), since: Instant::now() };
                slot.connection = Some(running.clone());
                *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                tokio::spawn(attend(Arc::downgrade(&self), running.clone(), heard));
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

    /// The process that runs now, if there is one.
    pub(in crate::client) async fn pid(&self) -> Option<i32> {
        self.slot.lock().await.connection.as_ref()?.connection.pid()
    }

    /// Has its list read anew, unless that was done just now. `None` if there is nothing new to know.
    pub(super) async fn look_again(self: &Arc<Self>) -> Option<()> {
        let listed = || *self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let before = listed();
        if before.is_some_and(|listed| listed.elapsed() < LIST_PAUSE) {
            return None;
        }
        let looking = async {
            let connection = self.connected().await.ok()?;
            // A server that was started for this has been listed.
            if listed() == before {
                self.note(&connection, connection.list().await.ok()?).ok()?;
            }
            Some(())
        };
        tokio::time::timeout(LOOK_LIMIT, looking).await.ok()?
    }

    /// For good: nothing starts it again, and whoever is still calling is told why.
    pub(in crate::client) async fn stop(&self, why: &'static str) {
        let _ = self.stopped.set(why);
        self.stopping.cancel();
        let running = self.slot.lock().await.connection.take();
        if let Some(running) = running {
            running.connection.close().await;
        }
    }

    /// When it may be stopped for want of work; in the future while there is any.
    fn idle_at(&self) -> Instant {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let since = if self.busy.available_permits() == MAX_CALLS { used } else { Instant::now() };
        since + self.spec.idle
    }
}

/// Looks after a server that runs: hears that its tools have changed, that it has ended, that nobody needs it.
async fn attend(server: Weak<Server>, running: Running, mut heard: watch::Receiver<u64>) {
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
            // Whoever tells is part of the connection, so it cannot be gone before it.
            _ = changed => {
                let Some(server) = server.upgrade() else { continue };
                list_after = Instant::now() + LIST_PAUSE;
                if let Ok(listing) = running.connection.list().await {
                    // A list that cannot be written down is read again with the next start.
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
