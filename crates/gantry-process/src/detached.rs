//! Lets sessions outlive the engine: detaches them, reports their exits, and ends them all on
//! request.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;
use tokio::time::Instant;
use uuid::Uuid;

use crate::detached::exit_reports::{ExitReports, PendingExit};
use crate::error::ProcessError;
use crate::keeper::control_protocol::TERMINATE;
use crate::keeper::{KILL_LIMIT, TERM_GRACE};
use crate::options::ProcessesOptions;
use crate::processes::{Inner, MAX_WAIT, Processes};
use crate::session::record::{
    Cause, EndRecord, MAX_RECORD_BYTES, Moment, ProcessName, SessionRecord, VERSION,
};
use crate::session::{Ended, Kept, Session, SessionId};
use crate::supervise::SupervisorRequest;

pub(crate) mod exit_reports;
pub(crate) mod recovery;

/// The longest note that a caller may leave with a session.
const MAX_NOTE_BYTES: usize = 64 * 1024;

/// A keeper that has not answered by then is stuck.
const DETACH_LIMIT: Duration = Duration::from_secs(5);

/// How many words of a command are recorded for listings; each word is shortened too.
const RECORDED_WORDS: usize = 16;
const RECORDED_CHARS: usize = 1_000;

impl Processes {
    /// Lets a session outlive the engine. It runs until its own end, and the next engine on the
    /// same directory adopts it. [`Processes::exit_reports`] then reports its exit with `note`.
    /// For an engine without recovery this does nothing.
    pub async fn detach(&self, id: SessionId, note: &str) -> Result<(), ProcessError> {
        let session = self.session(id)?;
        let Some(kept) = &session.kept else { return Ok(()) };
        if note.len() > MAX_NOTE_BYTES {
            return Err(ProcessError::Invalid("the note of a session is too long"));
        }
        let record = Arc::new(record(&session, kept, note));
        let json = serde_json::to_vec(&*record).map_err(|err| ProcessError::Prepare(err.into()))?;
        if json.len() > MAX_RECORD_BYTES {
            return Err(ProcessError::Invalid("the record of a session is too long"));
        }
        // A session is detached only once.
        if kept.record.set(Arc::clone(&record)).is_err() {
            return Ok(());
        }
        let (answer, answered) = oneshot::channel();
        let _ = session.requests.send(SupervisorRequest::Detach(json, answer)).await;
        match tokio::time::timeout(DETACH_LIMIT, answered).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(reason))) => Err(ProcessError::NotDetached { id, reason }),
            Ok(Err(_)) => self.record_past_end(&session, kept, record).await,
            Err(_) => Err(ProcessError::NotDetached { id, reason: "its keeper does not answer".to_owned() }),
        }
    }

    /// Yields the exits of detached sessions that nobody has acknowledged, including those of
    /// previous engines.
    pub fn exit_reports(&self) -> ExitReports {
        self.inner.exits.reports()
    }

    /// Marks an exit as delivered: no engine offers it again. Returns false if there is no such
    /// exit.
    pub async fn acknowledge(&self, event_id: Uuid) -> Result<bool, ProcessError> {
        let inner = Arc::clone(&self.inner);
        let acknowledged = tokio::task::spawn_blocking(move || {
            let Some(end) = inner.exits.find(|end| end.event_id == event_id) else { return Ok(false) };
            end.acknowledge()?;
            inner.exits.take(|end| end.event_id == event_id);
            if !inner.sessions().contains_key(&end.id) {
                end.folder.remove();
            }
            Ok(true)
        });
        acknowledged.await.unwrap_or_else(|err| Err(ProcessError::Prepare(std::io::Error::other(err))))
    }

    /// Returns the note that the caller passed to `detach`.
    pub fn note(&self, id: SessionId) -> Option<String> {
        Some(self.session(id).ok()?.record()?.note.clone())
    }

    /// Like [`Processes::shutdown`], but also ends detached sessions.
    pub async fn end_all(&self) {
        self.inner.stopping.store(true, Ordering::Release);
        self.inner.stop.cancel();
        let sessions: Vec<_> = self.inner.sessions().values().cloned().collect();
        self.end_sessions_in(&sessions).await;
        self.inner.keepers.dismiss_spare();
    }

    pub(crate) async fn end_sessions_in(&self, sessions: &[Arc<Session>]) {
        for session in sessions.iter().filter(|session| !session.has_ended()) {
            let _ = session.requests.try_send(SupervisorRequest::Terminate);
        }
        for session in sessions {
            session.wait(MAX_WAIT).await;
        }
    }

    /// Handles a session that ended before its keeper could detach it. The engine writes the
    /// records that the keeper would have written.
    async fn record_past_end(
        &self,
        session: &Session,
        kept: &Kept,
        record: Arc<SessionRecord>,
    ) -> Result<(), ProcessError> {
        let Some(ended) = session.wait(MAX_WAIT).await else { return Err(ProcessError::ShuttingDown) };
        let end = end_record(&ended);
        let (folder, written) = (Arc::clone(&kept.folder), Arc::clone(&record));
        // The session's record is written last, because it makes the folder one that the next
        // engine adopts.
        let write = move || folder.write_end(&end).and_then(|()| folder.write_record(&written));
        let written =
            tokio::task::spawn_blocking(write).await.unwrap_or_else(|err| Err(std::io::Error::other(err)));
        written.map_err(|err| ProcessError::NotDetached { id: session.id, reason: err.to_string() })?;
        self.inner.offer_end(session, ended);
        Ok(())
    }
}

impl Inner {
    /// Offers the exit of a detached session to listeners.
    pub(crate) fn offer_end(&self, session: &Session, ended: Ended) {
        let Some(kept) = &session.kept else { return };
        let Some((record, event_id)) =
            kept.record.get().and_then(|record| Some((record, record.event_id()?)))
        else {
            return;
        };
        let (folder, record) = (Arc::clone(&kept.folder), Arc::clone(record));
        self.offer(PendingExit { event_id, id: session.id, folder, record, ended });
    }

    /// Also drops exits that nobody acknowledged for too long.
    pub(crate) fn offer(&self, end: PendingExit) {
        for dropped in self.exits.add(end) {
            let _ = dropped.acknowledge();
            if !self.sessions().contains_key(&dropped.id) {
                dropped.folder.remove();
            }
        }
    }
}

/// Ends every session of a directory without a running engine, detached ones included. Returns how
/// many there were.
pub async fn end_sessions(log_dir: &Path) -> Result<usize, ProcessError> {
    if !log_dir.exists() {
        return Ok(0);
    }
    // This engine starts no commands, so it needs no keeper program.
    let processes = Processes::recover(ProcessesOptions::new("".into(), log_dir.to_owned())).await?;
    let mut running = processes.inner.sessions().values().filter(|session| !session.has_ended()).count();
    processes.end_all().await;
    let Some(sessions_directory) = &processes.inner.sessions_directory else { return Ok(running) };
    // A session whose record cannot be read gets its request directly. The request holds while the
    // connection is open, so the connections are kept.
    let mut connections = Vec::new();
    for (_, folder) in sessions_directory.folders()? {
        if folder.keeper_lives()
            && let Ok((mut connection, _)) = folder.connect().await
            && connection.write_all(&[TERMINATE]).await.is_ok()
        {
            connections.push(connection);
            running += 1;
        }
    }
    // Sessions that were never detached end by themselves when their engine dies. They may still be
    // ending.
    let deadline = Instant::now() + TERM_GRACE + KILL_LIMIT;
    while Instant::now() < deadline
        && sessions_directory.folders()?.iter().any(|(_, folder)| folder.keeper_lives())
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(running)
}

fn record(session: &Session, kept: &Kept, note: &str) -> SessionRecord {
    SessionRecord {
        version: VERSION,
        event_id: Uuid::new_v4().to_string(),
        note: note.to_owned(),
        command: session
            .command
            .iter()
            .take(RECORDED_WORDS)
            .map(|word| word.chars().take(RECORDED_CHARS).collect())
            .collect(),
        process: process_name(session.pid),
        guard: kept.guard.map(process_name),
        boot: boot(),
        started_at: session.started_at.into(),
        keep_tail: session.keep_tail,
        beyond_cut: session.beyond_cut,
        log_limit: session.log.limit(),
        timeout_ms: kept.timeout_ms,
    }
}

#[cfg(target_os = "linux")]
fn process_name(pid: i32) -> ProcessName {
    ProcessName { pid, started: crate::os::process_table::stat(pid).map(|process| process.started) }
}

#[cfg(not(target_os = "linux"))]
fn process_name(pid: i32) -> ProcessName {
    ProcessName { pid, started: None }
}

#[cfg(target_os = "linux")]
fn boot() -> Option<String> {
    crate::os::process_table::boot()
}

#[cfg(not(target_os = "linux"))]
fn boot() -> Option<String> {
    None
}

fn end_record(ended: &Ended) -> EndRecord {
    let cause = match ended {
        Ended { keeper_lost: true, .. } => Cause::KeeperLost,
        Ended { timed_out: true, .. } => Cause::TimedOut,
        Ended { killed: true, .. } => Cause::Killed,
        Ended { cancelled: true, .. } => Cause::Terminated,
        _ => Cause::Own,
    };
    EndRecord {
        code: ended.exit.code,
        signal: ended.exit.signal.map(|signal| signal.0),
        survivors: ended.survivors,
        log: crate::keeper::control_protocol::LogReport {
            total: 0,
            dropped: ended.log_dropped,
            error: ended.log_error.clone(),
        },
        cause,
        ended_at: Moment::from(ended.ended_at),
        duration_ms: u64::try_from(ended.duration.as_millis()).unwrap_or(u64::MAX),
        quarantined: ended.quarantined.clone(),
    }
}
