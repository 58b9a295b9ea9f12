//! `Processes` is the engine: it runs commands to their end, or keeps them as sessions.

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
use crate::command::{Capture, Command, MAX_BEYOND_CUT, Stdin};
use crate::detached::exit_reports::UnacknowledgedExits;
use crate::error::ProcessError;
use crate::keeper::control_protocol::Output;
use crate::log::LogPage;
use crate::log::budget::LogBudget;
use crate::log::directory::LogDirectory;
use crate::options::ProcessesOptions;
use crate::session::directory::SessionsDirectory;
use crate::session::starting_log::StartingLog;
use crate::session::{Ended, Finished, Kept, Session, SessionId, Snapshot, Written};
use crate::supervise::spare_keeper::Keepers;
use crate::supervise::{EndedCommand, KeepWiring, Supervised, SupervisorRequest, Wiring, supervise};
use crate::text::Tail;

/// How soon a waiting poll notices new output.
const OUTPUT_CHECK: Duration = Duration::from_millis(20);

/// A keeper that has not started its command by then is stuck.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(30);

/// `Waited` is the result of `wait`.
#[derive(Debug, Clone)]
pub enum Waited {
    Finished(Finished),
    Running(Snapshot),
}

/// `Processes` is a handle to the engine; clones share it. Dropping the last one ends every session
/// that was not detached.
#[derive(Clone)]
pub struct Processes {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) keepers: Arc<Keepers>,
    pub(crate) logs: Arc<LogDirectory>,
    sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
    /// Has one permit for each session that may run.
    pub(crate) live: Arc<Semaphore>,
    /// `shutdown` cancels this; foreground commands listen to it.
    pub(crate) stop: CancellationToken,
    pub(crate) stopping: AtomicBool,
    /// `shutdown` waits for the piped commands in here.
    pub(crate) piped: TaskTracker,
    pub(crate) exits: Arc<UnacknowledgedExits>,
    pub(crate) warnings: Vec<String>,
    /// The directory of sessions that can be detached. It is the last field, so that it is unlocked
    /// after the sessions above are dropped.
    pub(crate) sessions_directory: Option<SessionsDirectory>,
}

impl Processes {
    /// Creates an engine whose sessions end with it. [`Processes::recover`] creates one whose
    /// sessions can outlive it.
    pub fn new(options: ProcessesOptions) -> Self {
        Self::with(options, None, Vec::new())
    }

    /// Also removes logs that previous engines left.
    pub(crate) fn with(
        options: ProcessesOptions,
        sessions_directory: Option<SessionsDirectory>,
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
            exits: Arc::default(),
            warnings,
            sessions_directory,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Runs a command to its end. Cancelling, or dropping the future, ends it and everything it
    /// started.
    pub async fn run(&self, command: Command, cancel: CancellationToken) -> Result<Finished, ProcessError> {
        command.check()?;
        if command.stdin == Stdin::Pipe {
            return Err(ProcessError::Invalid(
                "a foreground command cannot read standard input; start a session instead",
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
        let command_line = command.command_line();
        let (capture, beyond_cut) = (command.capture, command.beyond_cut.min(MAX_BEYOND_CUT));
        let spill = Spill { directory: Arc::clone(&self.inner.logs), id, state: SpillState::Closed };
        let (collector, sinks, output) =
            Collector::new(capture, beyond_cut, spill).map_err(ProcessError::Prepare)?;
        let wiring = Wiring { stdin: None, sinks, output, keep: None, collector };
        let Supervised { started, ended, requests } =
            supervise(Arc::clone(&self.inner.keepers), command, wiring);
        let finish = async {
            Ok::<_, ProcessError>((supervisor_gone(started.await)??, supervisor_gone(ended.await)?))
        };
        tokio::pin!(finish);
        let (started, EndedCommand { ended, captured, .. }) = tokio::select! {
            finished = &mut finish => finished?,
            () = either_cancelled(&cancel, &self.inner.stop) => {
                let _ = requests.send(SupervisorRequest::Terminate).await;
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
                command: command_line,
                started_at: started.started_at,
                keep_tail,
                beyond_cut,
                log: Arc::new(log),
                stdin: Arc::default(),
                requests,
                ended,
                polled: AtomicU64::new(0),
                kept: None,
            };
            self.sessions().insert(id, Arc::new(session));
            self.retain(id);
        }
        Ok(Finished { id, pid: started.pid, started_at: started.started_at, ended, stdout, stderr, logged })
    }

    /// Starts a session: the command keeps running while its output goes to a log.
    pub async fn start(&self, command: Command) -> Result<SessionId, ProcessError> {
        command.check()?;
        let Capture::Merged { keep_tail } = command.capture else {
            return Err(ProcessError::Invalid("a session needs merged output, because it has one log"));
        };
        if self.inner.stopping.load(Ordering::Acquire) {
            return Err(ProcessError::ShuttingDown);
        }
        let permit = Arc::clone(&self.inner.live)
            .try_acquire_owned()
            .map_err(|_| ProcessError::TooManySessions(self.inner.keepers.options.max_sessions))?;
        let beyond_cut = command.beyond_cut.min(MAX_BEYOND_CUT);
        let id = SessionId::new();
        let command_line = command.command_line();
        let timeout_ms =
            command.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        let inner = Arc::clone(&self.inner);
        let provisional = tokio::task::spawn_blocking(move || {
            StartingLog::create(&inner.logs, inner.sessions_directory.as_ref(), id)
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
        let Supervised { started, ended, requests } =
            supervise(Arc::clone(&self.inner.keepers), command, wiring);
        // Giving up drops `requests`, which ends whatever may have started.
        let started = tokio::time::timeout(START_LIMIT, started).await.map_err(|_| ProcessError::Keeper {
            keeper: self.inner.keepers.options.keeper.clone(),
            source: std::io::Error::other("the keeper does not answer"),
        })?;
        let started = supervisor_gone(started)??;
        let (log, folder) = provisional.keep();
        let (ended_tx, ended_rx) = watch::channel(None);
        let session = Session {
            id,
            pid: started.pid,
            command: command_line,
            started_at: started.started_at,
            keep_tail,
            beyond_cut,
            log,
            stdin: Arc::new(tokio::sync::Mutex::new(feed)),
            requests,
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

    /// Waits at most `up_to` for a session to end.
    pub async fn wait(&self, id: SessionId, up_to: Duration) -> Result<Waited, ProcessError> {
        let session = self.session(id)?;
        match session.wait(up_to).await {
            Some(ended) => Ok(Waited::Finished(session.finished(ended).await?)),
            None => Ok(Waited::Running(session.snapshot().await?)),
        }
    }

    /// Reports whether a session is running or retained.
    pub fn knows(&self, id: SessionId) -> bool {
        self.sessions().contains_key(&id)
    }

    /// Lists all sessions, newest first.
    pub async fn list(&self) -> Result<Vec<Snapshot>, ProcessError> {
        let mut sessions: Vec<_> = self.sessions().values().cloned().collect();
        sessions.sort_by(|a, b| b.started_at.cmp(&a.started_at).then(b.pid.cmp(&a.pid)));
        let mut snapshots = Vec::with_capacity(sessions.len());
        for session in sessions {
            snapshots.push(session.snapshot().await?);
        }
        Ok(snapshots)
    }

    /// Returns a session's state. With `wait`, returns as soon as it ends or has output that no
    /// poll has seen.
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

    /// Returns lines of a session's whole output, from line `offset` (counted from 0) on.
    pub async fn log(&self, id: SessionId, offset: u64, limit: usize) -> Result<LogPage, ProcessError> {
        self.session(id)?.log.page(offset, limit).await
    }

    /// Writes to a session's standard input as much as it accepts within the configured time.
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

    /// Closes a session's standard input.
    pub async fn close_stdin(&self, id: SessionId) -> Result<(), ProcessError> {
        let session = self.session(id)?;
        let limit = self.inner.keepers.options.stdin_timeout;
        let taken = tokio::time::timeout(limit, session.stdin.lock()).await.map(|mut stdin| stdin.take());
        match taken {
            _ if session.has_ended() => Err(ProcessError::HasEnded(id)),
            Ok(Some(feed)) => {
                // Written data must be in the pipe before the last write end closes.
                drop(feed);
                if session.kept.is_some() {
                    let _ = session.requests.send(SupervisorRequest::CloseStdin).await;
                }
                Ok(())
            }
            Ok(None) => Err(ProcessError::StdinClosed(id)),
            Err(_) => Err(ProcessError::StdinBusy(id)),
        }
    }

    /// Sends SIGKILL to the group and all descendants, and returns when they are gone. Returns
    /// false if the session had already ended.
    pub async fn kill(&self, id: SessionId) -> Result<bool, ProcessError> {
        self.end(id, SupervisorRequest::Kill).await
    }

    /// Sends SIGTERM, then SIGKILL, and returns when all processes are gone. Returns false if the
    /// session had already ended.
    pub async fn terminate(&self, id: SessionId) -> Result<bool, ProcessError> {
        self.end(id, SupervisorRequest::Terminate).await
    }

    /// Removes a finished session and its log.
    pub fn forget(&self, id: SessionId) -> Result<(), ProcessError> {
        let session = self.session(id)?;
        if !session.has_ended() {
            return Err(ProcessError::StillRunning(id));
        }
        self.inner.exits.take(|end| end.id == id);
        self.inner.remove(id);
        Ok(())
    }

    /// Starts nothing more and ends everything except detached sessions. Returns when those
    /// sessions are gone; foreground calls return by themselves.
    pub async fn shutdown(&self) {
        self.inner.stopping.store(true, Ordering::Release);
        self.inner.stop.cancel();
        let all = self.sessions().values().cloned().collect::<Vec<_>>();
        let attached: Vec<_> = all.into_iter().filter(|session| session.record().is_none()).collect();
        self.inner.piped.close();
        tokio::join!(self.end_sessions_in(&attached), self.inner.piped.wait());
        self.inner.keepers.dismiss_spare();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.inner.stopping.load(Ordering::Acquire)
    }

    async fn end(&self, id: SessionId, request: SupervisorRequest) -> Result<bool, ProcessError> {
        let session = self.session(id)?;
        if session.has_ended() || session.requests.send(request).await.is_err() {
            return Ok(false);
        }
        let ended = session.wait(MAX_WAIT).await;
        // The session may have ended by itself between the check and the request.
        Ok(ended.is_some_and(|ended| ended.killed || ended.cancelled))
    }

    pub(crate) fn session(&self, id: SessionId) -> Result<Arc<Session>, ProcessError> {
        self.sessions().get(&id).cloned().ok_or(ProcessError::NoSession(id))
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Session>>> {
        self.inner.sessions()
    }

    /// Waits for the end in a separate task, which holds no handle to the engine.
    pub(crate) fn record_end(
        &self,
        id: SessionId,
        ended: oneshot::Receiver<EndedCommand>,
        ended_tx: watch::Sender<Option<Ended>>,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let engine = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            let Ok(EndedCommand { ended, detached, .. }) = ended.await else { return };
            drop(permit);
            ended_tx.send_replace(Some(ended.clone()));
            let Some(inner) = engine.upgrade() else { return };
            let session = inner.sessions().get(&id).cloned();
            if let Some(session) = session.as_ref().filter(|_| detached) {
                inner.offer_end(session, ended);
            }
            Processes { inner }.retain(id);
            if let Some(session) = session {
                // Nobody reads standard input any more. A pending write gets an error and releases
                // the lock.
                session.stdin.lock().await.take();
            }
        });
    }

    /// Keeps a finished session for the retention time, within the limits on number and size.
    pub(crate) fn retain(&self, id: SessionId) {
        let mut finished: Vec<_> = self
            .sessions()
            .values()
            .filter_map(|session| Some((session.ended.borrow().as_ref()?.ended_at, Arc::clone(session))))
            .collect();
        let mut retention = self.inner.keepers.options.retention;
        if let Some((ended_at, session)) = finished.iter().find(|(_, session)| session.id == id) {
            session.log.release_unused();
            // The time counts from the session's end, which may be before this engine started.
            retention = retention.saturating_sub(ended_at.elapsed().unwrap_or_default());
        }
        finished.sort_by_key(|(ended_at, _)| std::cmp::Reverse(*ended_at));
        let room = self.inner.logs.budget.for_finished();
        let mut size = 0_u64;
        for (newer, (_, session)) in finished.into_iter().enumerate() {
            size = size.saturating_add(session.log.size());
            // The newest session always stays: its caller has just received its id.
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
            Some(_) if self.keep_exit_only(id) => {}
            Some(kept) => kept.folder.remove(),
        }
    }

    /// Removes the log of a session whose exit is still to be reported. Returns false if it is not.
    pub(crate) fn keep_exit_only(&self, id: SessionId) -> bool {
        let Some(end) = self.exits.find(|end| end.id == id) else { return false };
        // If the tail cannot be kept, the exit is reported without it.
        let Tail { text, before } = end.tail();
        let _ = end.folder.shrink(&(before + &text));
        true
    }
}

/// Longer than any keeper needs to finish, and than any caller may ask to wait.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(600);

/// A supervisor vanishes only together with its runtime.
pub(crate) fn supervisor_gone<T>(received: Result<T, oneshot::error::RecvError>) -> Result<T, ProcessError> {
    received.map_err(|_| ProcessError::ShuttingDown)
}

async fn either_cancelled(a: &CancellationToken, b: &CancellationToken) {
    tokio::select! {
        () = a.cancelled() => {}
        () = b.cancelled() => {}
    }
}
