//! The engine: runs commands to their end, or keeps them as sessions.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::capture::{Captured, Collector, Spill, SpillState};
use crate::command::{Capture, Command, Stdin};
use crate::ends::Ledger;
use crate::error::ProcessError;
use crate::keepers::Keepers;
use crate::log::LogPage;
use crate::log_budget::LogBudget;
use crate::log_directory::LogDirectory;
use crate::options::ProcessesOptions;
use crate::order::Output;
use crate::provisional::Provisional;
use crate::session::{Ended, Finished, Kept, Session, SessionId, Snapshot, Written};
use crate::sessions_directory::SessionsDirectory;
use crate::supervise::{Ask, KeepWiring, Over, Supervised, Wiring, supervise};

/// How soon a waiting poll notices new output.
const OUTPUT_CHECK: Duration = Duration::from_millis(20);

/// A keeper that has not started its command by then was stopped.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(30);

/// What `wait` came back with.
#[derive(Debug, Clone)]
pub enum Waited {
    Finished(Finished),
    Running(Snapshot),
}

/// A handle to the engine; clones share it. When the last one goes, every session is ended that was not detached.
#[derive(Clone)]
pub struct Processes {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) keepers: Arc<Keepers>,
    pub(crate) logs: Arc<LogDirectory>,
    sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
    /// One permit for each session that may run.
    pub(crate) live: Arc<Semaphore>,
    /// Cancelled by `shutdown`; foreground commands listen.
    pub(crate) stop: CancellationToken,
    pub(crate) stopping: AtomicBool,
    /// The ends of piped commands, for `shutdown` to wait for.
    pub(crate) piped: TaskTracker,
    pub(crate) ends: Arc<Ledger>,
    pub(crate) warnings: Vec<String>,
    /// Where sessions can be detached. Last, so that it is unlocked when the sessions above are let go.
    pub(crate) surviving: Option<SessionsDirectory>,
}

impl Processes {
    /// An engine whose sessions end with it; see [`Processes::recover`] for one whose sessions need not.
    pub fn new(options: ProcessesOptions) -> Self {
        Self::with(options, None, Vec::new())
    }

    /// Also removes logs that engines before us left behind.
    pub(crate) fn with(
        options: ProcessesOptions,
        surviving: Option<SessionsDirectory>,
        warnings: Vec<String>,
    ) -> Self {
        let budget = LogBudget::new(options.max_total_log_bytes, options.max_log_bytes);
        let logs = Arc::new(LogDirectory::new(options.log_dir.clone(), budget));
        let live = Arc::new(Semaphore::new(options.max_sessions.min(Semaphore::MAX_PERMITS)));
        let inner = Inner {
            live,
            keepers: Arc::new(Keepers::new(options)),
            logs,
            sessions: Mutex::default(),
            stop: CancellationToken::new(),
            stopping: AtomicBool::new(false),
            piped: TaskTracker::new(),
            ends: Arc::default(),
            warnings,
            surviving,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Runs a command to its end. Cancelling, or dropping the future, ends it and everything it started.
    pub async fn run(&self, command: Command, cancel: CancellationToken) -> Result<Finished, ProcessError> {
        command.check()?;
        if command.stdin == Stdin::Pipe {
            return Err(ProcessError::Invalid(
                "a foreground command cannot be fed: its standard input is empty",
            ));
        }
        if cancel.is_cancelled() || self.inner.stopping.load(Ordering::Acquire) {
            return Err(if cancel.is_cancelled() {
                ProcessError::Cancelled
            } else {
                ProcessError::ShuttingDown
            });
        }
        let id = SessionId::new();
        let described = command.described();
        let capture = command.capture;
        let spill = Spill { directory: Arc::clone(&self.inner.logs), id, state: SpillState::Closed };
        let (collector, sinks, output) = Collector::new(capture, spill).map_err(ProcessError::Prepare)?;
        let wiring = Wiring { stdin: None, sinks, output, keep: None, collector };
        let Supervised { started, ended, asks } = supervise(Arc::clone(&self.inner.keepers), command, wiring);
        let finish = async { Ok::<_, ProcessError>((gone(started.await)??, gone(ended.await)?)) };
        tokio::pin!(finish);
        let (started, Over { ended, captured, .. }) = tokio::select! {
            finished = &mut finish => finished?,
            () = either(&cancel, &self.inner.stop) => {
                let _ = asks.send(Ask::Terminate).await;
                finish.await?
            }
        };
        let Captured { stdout, stderr, log, .. } = captured;
        let logged = log.is_some();
        if let Some(log) = log {
            let keep_tail = match capture {
                Capture::Merged { keep_tail } => keep_tail,
                Capture::Separate { stdout, .. } => stdout,
            };
            let (_, ended) = watch::channel(Some(ended.clone()));
            let session = Session {
                id,
                pid: started.pid,
                command: described,
                started_at: started.started_at,
                keep_tail,
                log: Arc::new(log),
                stdin: Arc::default(),
                asks,
                ended,
                polled: AtomicU64::new(0),
                kept: None,
            };
            self.sessions().insert(id, Arc::new(session));
            self.retain(id);
        }
        Ok(Finished { id, pid: started.pid, started_at: started.started_at, ended, stdout, stderr, logged })
    }

    /// Starts a session: the command runs on while its output goes to a log.
    pub async fn start(&self, command: Command) -> Result<SessionId, ProcessError> {
        command.check()?;
        let Capture::Merged { keep_tail } = command.capture else {
            return Err(ProcessError::Invalid("a session has one log: its output is merged"));
        };
        if self.inner.stopping.load(Ordering::Acquire) {
            return Err(ProcessError::ShuttingDown);
        }
        let permit = Arc::clone(&self.inner.live)
            .try_acquire_owned()
            .map_err(|_| ProcessError::TooManySessions(self.inner.keepers.options.max_sessions))?;
        let id = SessionId::new();
        let described = command.described();
        let timeout_ms =
            command.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        let inner = Arc::clone(&self.inner);
        let provisional = tokio::task::spawn_blocking(move || {
            Provisional::create(&inner.logs, inner.surviving.as_ref(), id)
        })
        .await
        .map_err(|err| ProcessError::Prepare(std::io::Error::other(err)))?;
        let (file, handle, provisional) = provisional?;
        let (stdin, feed) = match command.stdin {
            Stdin::Empty => (None, None),
            Stdin::Pipe => {
                let (source, sink) = std::io::pipe().map_err(ProcessError::Prepare)?;
                (Some(source.into()), Some(OwnedFd::from(sink)))
            }
        };
        let mut keep = None;
        if let (Some(folder), Some(handle)) = (&provisional.folder, handle) {
            let feed = feed.as_ref().map(OwnedFd::try_clone).transpose().map_err(ProcessError::Prepare)?;
            keep = Some(KeepWiring { folder: Arc::clone(folder), handle, feed, timeout_ms });
        }
        let feed = feed.map(pipe::Sender::from_owned_fd).transpose().map_err(ProcessError::Prepare)?;
        let output = Output::Log { max: provisional.log.limit() };
        let wiring = Wiring { stdin, sinks: vec![file.into()], output, keep, collector: Collector::Nothing };
        let Supervised { started, ended, asks } = supervise(Arc::clone(&self.inner.keepers), command, wiring);
        // Giving up drops `asks`, which ends whatever may have been started.
        let started = tokio::time::timeout(START_LIMIT, started).await.map_err(|_| ProcessError::Keeper {
            keeper: self.inner.keepers.options.keeper.clone(),
            source: std::io::Error::other("it does not answer"),
        })?;
        let started = gone(started)??;
        let (log, folder) = provisional.keep();
        let (ended_tx, ended_rx) = watch::channel(None);
        let session = Session {
            id,
            pid: started.pid,
            command: described,
            started_at: started.started_at,
            keep_tail,
            log,
            stdin: Arc::new(tokio::sync::Mutex::new(feed)),
            asks,
            ended: ended_rx,
            polled: AtomicU64::new(0),
            kept: folder.map(|folder| Kept {
                folder,
                timeout_ms,
                guard: started.guard,
                record: OnceLock::new(),
            }),
        };
        self.sessions().insert(id, Arc::new(session));
        self.record_end(id, ended, ended_tx, Some(permit));
        Ok(id)
    }

    /// Waits for a session's end, at most `up_to`.
    pub async fn wait(&self, id: SessionId, up_to: Duration) -> Result<Waited, ProcessError> {
        let session = self.session(id)?;
        match session.wait(up_to).await {
            Some(ended) => Ok(Waited::Finished(session.finished(ended).await?)),
            None => Ok(Waited::Running(session.snapshot().await?)),
        }
    }

    /// Whether a session is still running or retained.
    pub fn knows(&self, id: SessionId) -> bool {
        self.sessions().contains_key(&id)
    }

    /// All sessions, newest first.
    pub async fn list(&self) -> Result<Vec<Snapshot>, ProcessError> {
        let mut sessions: Vec<_> = self.sessions().values().cloned().collect();
        sessions.sort_by(|a, b| b.started_at.cmp(&a.started_at).then(b.pid.cmp(&a.pid)));
        let mut snapshots = Vec::with_capacity(sessions.len());
        for session in sessions {
            snapshots.push(session.snapshot().await?);
        }
        Ok(snapshots)
    }

    /// A session now; or, with `wait`, as soon as it ends or has written something that no poll has seen.
    pub async fn poll(&self, id: SessionId, wait: Duration) -> Result<Snapshot, ProcessError> {
        let session = self.session(id)?;
        let seen = session.polled.load(Ordering::Acquire);
        let deadline = tokio::time::Instant::now() + wait.min(MAX_WAIT);
        while session.log.len() <= seen {
            let rest = deadline.saturating_duration_since(tokio::time::Instant::now());
            if rest.is_zero() || session.wait(rest.min(OUTPUT_CHECK)).await.is_some() {
                break;
            }
        }
        let snapshot = session.snapshot().await?;
        session.polled.fetch_max(snapshot.total_bytes, Ordering::AcqRel);
        Ok(snapshot)
    }

    /// How a session ended; `None` while it runs.
    pub fn ended(&self, id: SessionId) -> Result<Option<Ended>, ProcessError> {
        Ok(self.session(id)?.ended.borrow().clone())
    }

    /// Lines of a session's whole output, from line `offset` (counted from 0) on.
    pub async fn log(&self, id: SessionId, offset: u64, limit: usize) -> Result<LogPage, ProcessError> {
        self.session(id)?.log.page(offset, limit).await
    }

    /// Writes to a session's standard input, as much as it takes within the configured time.
    pub async fn write(&self, id: SessionId, data: &[u8]) -> Result<Written, ProcessError> {
        let session = self.session(id)?;
        let mut bytes = 0;
        let attempt = async {
            let mut stdin = session.stdin.lock().await;
            if session.has_ended() {
                return Err(ProcessError::HasEnded(id));
            }
            let Some(feed) = stdin.as_mut() else { return Err(ProcessError::StdinClosed(id)) };
            while bytes < data.len() {
                match feed.write(&data[bytes..]).await {
                    Ok(count) => bytes += count,
                    Err(_) => {
                        *stdin = None;
                        return Err(ProcessError::StdinClosed(id));
                    }
                }
            }
            Ok(())
        };
        match tokio::time::timeout(self.inner.keepers.options.stdin_timeout, attempt).await {
            Ok(result) => result?,
            Err(_) => return Ok(Written { bytes, complete: false }),
        }
        Ok(Written { bytes, complete: true })
    }

    /// Ends a session's standard input.
    pub async fn close_stdin(&self, id: SessionId) -> Result<(), ProcessError> {
        let session = self.session(id)?;
        let limit = self.inner.keepers.options.stdin_timeout;
        let taken = tokio::time::timeout(limit, session.stdin.lock()).await.map(|mut stdin| stdin.take());
        match taken {
            _ if session.has_ended() => Err(ProcessError::HasEnded(id)),
            Ok(Some(feed)) => {
                // What was written must be in the pipe before its last end goes.
                drop(feed);
                if session.kept.is_some() {
                    let _ = session.asks.send(Ask::CloseStdin).await;
                }
                Ok(())
            }
            Ok(None) => Err(ProcessError::StdinClosed(id)),
            Err(_) => Err(ProcessError::StdinBusy(id)),
        }
    }

    /// SIGKILL to the group and all descendants; returns when they are gone. False when it had ended before.
    pub async fn kill(&self, id: SessionId) -> Result<bool, ProcessError> {
        self.end(id, Ask::Kill).await
    }

    /// SIGTERM, then SIGKILL; returns when all are gone. False when it had ended before.
    pub async fn terminate(&self, id: SessionId) -> Result<bool, ProcessError> {
        self.end(id, Ask::Terminate).await
    }

    /// Forgets a finished session and removes its log.
    pub fn forget(&self, id: SessionId) -> Result<(), ProcessError> {
        let session = self.session(id)?;
        if !session.has_ended() {
            return Err(ProcessError::StillRunning(id));
        }
        self.inner.ends.take(|end| end.id == id);
        self.inner.remove(id);
        Ok(())
    }

    /// Starts nothing more and ends everything but detached sessions. Returns when those sessions are gone; foreground
    /// calls come back by themselves.
    pub async fn shutdown(&self) {
        self.inner.stopping.store(true, Ordering::Release);
        self.inner.stop.cancel();
        let all = self.sessions().values().cloned().collect::<Vec<_>>();
        let attached: Vec<_> = all.into_iter().filter(|session| session.record().is_none()).collect();
        self.inner.piped.close();
        tokio::join!(self.end_these(&attached), self.inner.piped.wait());
        self.inner.keepers.dismiss_spare();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.inner.stopping.load(Ordering::Acquire)
    }

    async fn end(&self, id: SessionId, ask: Ask) -> Result<bool, ProcessError> {
        let session = self.session(id)?;
        if session.has_ended() || session.asks.send(ask).await.is_err() {
            return Ok(false);
        }
        let ended = session.wait(MAX_WAIT).await;
        // It may have ended by itself between the look and the request.
        Ok(ended.is_some_and(|ended| ended.killed || ended.cancelled))
    }

    pub(crate) fn session(&self, id: SessionId) -> Result<Arc<Session>, ProcessError> {
        self.sessions().get(&id).cloned().ok_or(ProcessError::NoSession(id))
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Session>>> {
        self.inner.sessions()
    }

    /// Waits for the end aside, holding no handle to the engine meanwhile.
    pub(crate) fn record_end(
        &self,
        id: SessionId,
        ended: oneshot::Receiver<Over>,
        ended_tx: watch::Sender<Option<Ended>>,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let engine = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            let Ok(Over { ended, detached, .. }) = ended.await else { return };
            drop(permit);
            ended_tx.send_replace(Some(ended.clone()));
            let Some(inner) = engine.upgrade() else { return };
            let session = inner.sessions().get(&id).cloned();
            if let Some(session) = session.as_ref().filter(|_| detached) {
                inner.offer_end(session, ended);
            }
            Processes { inner }.retain(id);
            if let Some(session) = session {
                // Nobody reads it any more. Whoever is writing to it gets an error and lets go.
                session.stdin.lock().await.take();
            }
        });
    }

    /// Keeps a finished session for its time, and not more of them, nor larger ones, than the limits.
    pub(crate) fn retain(&self, id: SessionId) {
        let mut finished: Vec<_> = self
            .sessions()
            .values()
            .filter_map(|session| Some((session.ended.borrow().as_ref()?.ended_at, Arc::clone(session))))
            .collect();
        let mut retention = self.inner.keepers.options.retention;
        if let Some((ended_at, session)) = finished.iter().find(|(_, session)| session.id == id) {
            session.log.settle();
            // Counted from its end, which may lie before our time.
            retention = retention.saturating_sub(ended_at.elapsed().unwrap_or_default());
        }
        finished.sort_by_key(|(ended_at, _)| std::cmp::Reverse(*ended_at));
        let room = self.inner.logs.budget.for_finished();
        let mut size = 0_u64;
        for (newer, (_, session)) in finished.into_iter().enumerate() {
            size = size.saturating_add(session.log.size());
            // The newest one stays in any case: its caller has just been told of it.
            if newer >= self.inner.keepers.options.max_finished || (newer > 0 && size > room) {
                self.inner.remove(session.id);
            }
        }
        let engine = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            tokio::time::sleep(retention).await;
            if let Some(inner) = engine.upgrade() {
                inner.remove(id);
            }
        });
    }
}

impl Inner {
    pub(crate) fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(|err| err.into_inner())
    }

    fn remove(&self, id: SessionId) {
        let session = self.sessions().remove(&id);
        let Some(session) = session else { return };
        match &session.kept {
            None => {
                let _ = std::fs::remove_file(&session.log.path);
            }
            Some(_) if self.keep_only_the_end(id) => {}
            Some(kept) => kept.folder.remove(),
        }
    }

    /// Lets go of the log of a session whose end is still to be reported. False when it is not.
    pub(crate) fn keep_only_the_end(&self, id: SessionId) -> bool {
        let Some(end) = self.ends.find(|end| end.id == id) else { return false };
        // What cannot be kept is reported without its tail.
        let _ = end.folder.shrink(&end.tail());
        true
    }
}

/// Longer than any keeper takes to finish, and than any caller may ask to wait.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(600);

/// A supervisor only vanishes with the runtime it runs on.
pub(crate) fn gone<T>(received: Result<T, oneshot::error::RecvError>) -> Result<T, ProcessError> {
    received.map_err(|_| ProcessError::ShuttingDown)
}

async fn either(a: &CancellationToken, b: &CancellationToken) {
    tokio::select! {
        () = a.cancelled() => {}
        () = b.cancelled() => {}
    }
}
