//! The engine: runs commands to their end, or keeps them as sessions.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::capture::{Captured, Collector, Spill, SpillState};
use crate::command::{Capture, Command, Cwd, Stdin};
use crate::error::ProcessError;
use crate::keepers::Keepers;
use crate::log::{Log, LogPage};
use crate::log_budget::LogBudget;
use crate::log_directory::LogDirectory;
use crate::order::Output;
use crate::session::{Ended, Finished, Session, SessionId, Snapshot, Written};
use crate::supervise::{Ask, Supervised, Wiring, supervise};

/// How soon a waiting poll notices new output.
const OUTPUT_CHECK: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub struct ProcessesOptions {
    /// The program whose `main` is [`crate::keeper::main`] when it is given `keeper_args`.
    pub keeper: PathBuf,
    pub keeper_args: Vec<OsString>,
    /// Made when the first log is.
    pub log_dir: PathBuf,
    /// How long a finished session and its log are kept.
    pub retention: Duration,
    /// Output beyond this is counted and its newest part kept as the tail, but pages of the log do not show it.
    pub max_log_bytes: u64,
    /// What all logs together may take on disk. Finished ones get half of it, and beyond that are forgotten, oldest
    /// first; when much of it is taken, a new log may not grow to `max_log_bytes`, but always to 16 MiB.
    pub max_total_log_bytes: u64,
    pub max_sessions: usize,
    /// Finished sessions beyond this are forgotten, oldest first.
    pub max_finished: usize,
    /// How long `write` waits for a command that does not read.
    pub stdin_timeout: Duration,
    /// Keep one keeper started ahead of the next command. Not worth it for an engine that runs one command and ends.
    pub spare_keeper: bool,
}

impl ProcessesOptions {
    pub fn new(keeper: PathBuf, log_dir: PathBuf) -> Self {
        Self {
            keeper,
            keeper_args: Vec::new(),
            log_dir,
            retention: Duration::from_secs(30 * 60),
            max_log_bytes: 1 << 30,
            max_total_log_bytes: 4 << 30,
            max_sessions: 64,
            max_finished: 256,
            stdin_timeout: Duration::from_secs(5),
            spare_keeper: true,
        }
    }
}

/// What `wait` came back with.
#[derive(Debug, Clone)]
pub enum Waited {
    Finished(Finished),
    Running(Snapshot),
}

/// A handle to the engine; clones share it. When the last one goes, every session is ended.
#[derive(Clone)]
pub struct Processes {
    inner: Arc<Inner>,
}

struct Inner {
    keepers: Arc<Keepers>,
    logs: Arc<LogDirectory>,
    sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
    /// One permit for each session that may run.
    live: Arc<Semaphore>,
    /// Cancelled by `shutdown`; foreground commands listen.
    stop: CancellationToken,
    stopping: AtomicBool,
}

impl Processes {
    /// Also removes logs that engines before us left behind.
    pub fn new(options: ProcessesOptions) -> Self {
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
        };
        Self { inner: Arc::new(inner) }
    }

    /// Runs a command to its end. Cancelling, or dropping the future, ends it and everything it started.
    pub async fn run(&self, command: Command, cancel: CancellationToken) -> Result<Finished, ProcessError> {
        check(&command)?;
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
        let described = describe(&command);
        let capture = command.capture;
        let spill = Spill { directory: Arc::clone(&self.inner.logs), id, state: SpillState::Closed };
        let (collector, sinks, output) = Collector::new(capture, spill).map_err(ProcessError::Prepare)?;
        let wiring = Wiring { stdin: None, sinks, output, collector };
        let Supervised { started, ended, asks } = supervise(Arc::clone(&self.inner.keepers), command, wiring);
        let finish = async { Ok::<_, ProcessError>((gone(started.await)??, gone(ended.await)?)) };
        tokio::pin!(finish);
        let (started, (ended, captured)) = tokio::select! {
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
                stdin: tokio::sync::Mutex::new(None),
                asks,
                ended,
                polled: AtomicU64::new(0),
            };
            self.sessions().insert(id, Arc::new(session));
            self.retain(id);
        }
        Ok(Finished { id, pid: started.pid, started_at: started.started_at, ended, stdout, stderr, logged })
    }

    /// Starts a session: the command runs on while its output goes to a log.
    pub async fn start(&self, command: Command) -> Result<SessionId, ProcessError> {
        check(&command)?;
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
        let described = describe(&command);
        let logs = Arc::clone(&self.inner.logs);
        let (file, log) = tokio::task::spawn_blocking(move || logs.create(id))
            .await
            .map_err(|err| ProcessError::Prepare(std::io::Error::other(err)))??;
        let log = Provisional { log: Arc::new(log), keep: false };
        let (stdin, feed) = match command.stdin {
            Stdin::Empty => (None, None),
            Stdin::Pipe => {
                let (source, sink) = std::io::pipe().map_err(ProcessError::Prepare)?;
                let feed = pipe::Sender::from_owned_fd(sink.into()).map_err(ProcessError::Prepare)?;
                (Some(source.into()), Some(feed))
            }
        };
        let output = Output::Log { max: log.log.limit() };
        let wiring = Wiring { stdin, sinks: vec![file.into()], output, collector: Collector::Nothing };
        let Supervised { started, ended, asks } = supervise(Arc::clone(&self.inner.keepers), command, wiring);
        let started = gone(started.await)??;
        let (ended_tx, ended_rx) = watch::channel(None);
        let session = Session {
            id,
            pid: started.pid,
            command: described,
            started_at: started.started_at,
            keep_tail,
            log: log.keep(),
            stdin: tokio::sync::Mutex::new(feed),
            asks,
            ended: ended_rx,
            polled: AtomicU64::new(0),
        };
        self.sessions().insert(id, Arc::new(session));
        self.record_end(id, ended, ended_tx, permit);
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
        match session.stdin.lock().await.take() {
            _ if session.has_ended() => Err(ProcessError::HasEnded(id)),
            Some(_) => Ok(()),
            None => Err(ProcessError::StdinClosed(id)),
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
        if !self.session(id)?.has_ended() {
            return Err(ProcessError::StillRunning(id));
        }
        self.inner.remove(id);
        Ok(())
    }

    /// Starts nothing more and ends everything. Returns when the sessions are gone; foreground calls come back by
    /// themselves.
    pub async fn shutdown(&self) {
        self.inner.stopping.store(true, Ordering::Release);
        self.inner.stop.cancel();
        let sessions: Vec<_> = self.sessions().values().cloned().collect();
        for session in &sessions {
            let _ = session.asks.try_send(Ask::Terminate);
        }
        for session in sessions {
            session.wait(MAX_WAIT).await;
        }
        self.inner.keepers.dismiss_spare();
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

    fn session(&self, id: SessionId) -> Result<Arc<Session>, ProcessError> {
        self.sessions().get(&id).cloned().ok_or(ProcessError::NoSession(id))
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Session>>> {
        self.inner.sessions()
    }

    /// Waits for the end aside, holding no handle to the engine meanwhile.
    fn record_end(
        &self,
        id: SessionId,
        ended: oneshot::Receiver<(Ended, Captured)>,
        ended_tx: watch::Sender<Option<Ended>>,
        permit: OwnedSemaphorePermit,
    ) {
        let engine = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            let Ok((ended, _)) = ended.await else { return };
            drop(permit);
            ended_tx.send_replace(Some(ended));
            if let Some(inner) = engine.upgrade() {
                Processes { inner }.retain(id);
            }
        });
    }

    /// Keeps a finished session for its time, and not more of them, nor larger ones, than the limits.
    fn retain(&self, id: SessionId) {
        let mut finished: Vec<_> = self
            .sessions()
            .values()
            .filter_map(|session| Some((session.ended.borrow().as_ref()?.ended_at, Arc::clone(session))))
            .collect();
        if let Some((_, session)) = finished.iter().find(|(_, session)| session.id == id) {
            session.log.settle();
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
        let retention = self.inner.keepers.options.retention;
        tokio::spawn(async move {
            tokio::time::sleep(retention).await;
            if let Some(inner) = engine.upgrade() {
                inner.remove(id);
            }
        });
    }
}

impl Inner {
    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(|err| err.into_inner())
    }

    fn remove(&self, id: SessionId) {
        let session = self.sessions().remove(&id);
        if let Some(session) = session {
            let _ = std::fs::remove_file(&session.log.path);
        }
    }
}

/// Longer than any keeper takes to finish, and than any caller may ask to wait.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// A log whose command never started is of no use to anyone.
struct Provisional {
    log: Arc<Log>,
    keep: bool,
}

impl Provisional {
    fn keep(mut self) -> Arc<Log> {
        self.keep = true;
        Arc::clone(&self.log)
    }
}

impl Drop for Provisional {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_file(&self.log.path);
        }
    }
}

/// A supervisor only vanishes with the runtime it runs on.
fn gone<T>(received: Result<T, oneshot::error::RecvError>) -> Result<T, ProcessError> {
    received.map_err(|_| ProcessError::ShuttingDown)
}

async fn either(a: &CancellationToken, b: &CancellationToken) {
    tokio::select! {
        () = a.cancelled() => {}
        () = b.cancelled() => {}
    }
}

fn describe(command: &Command) -> Vec<String> {
    let text = |text: &OsString| text.to_string_lossy().into_owned();
    std::iter::once(text(&command.program)).chain(command.args.iter().map(text)).collect()
}

/// Refuses what no kernel could be told.
fn check(command: &Command) -> Result<(), ProcessError> {
    let has_nul = |text: &OsStr| text.as_bytes().contains(&0);
    if command.program.is_empty() {
        return Err(ProcessError::Invalid("the program is empty"));
    }
    if has_nul(&command.program) || command.args.iter().any(|arg| has_nul(arg)) {
        return Err(ProcessError::Invalid("an argument contains a NUL byte"));
    }
    if let Cwd::Path(path) = &command.cwd
        && has_nul(path.as_os_str())
    {
        return Err(ProcessError::Invalid("the directory contains a NUL byte"));
    }
    for (name, value) in &command.env {
        if name.is_empty() || has_nul(name) || has_nul(value) || name.as_bytes().contains(&b'=') {
            return Err(ProcessError::Invalid(
                "an environment variable has an empty or broken name, or a NUL byte",
            ));
        }
    }
    Ok(())
}
