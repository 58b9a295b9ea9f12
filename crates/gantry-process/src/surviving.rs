//! What an engine can do whose sessions outlive it: detach them, report their ends, end them all.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;
use tokio::time::Instant;
use uuid::Uuid;

use crate::ends::{Ends, Pending};
use crate::error::ProcessError;
use crate::keeper::{KILL_LIMIT, TERM_GRACE};
use crate::options::ProcessesOptions;
use crate::order::TERMINATE;
use crate::processes::{Inner, MAX_WAIT, Processes};
use crate::record::{Cause, EndRecord, MAX_RECORD_BYTES, Moment, ProcessName, SessionRecord, VERSION};
use crate::session::{Ended, Kept, Session, SessionId};
use crate::supervise::Ask;

/// What a caller may leave with a session.
const MAX_NOTE_BYTES: usize = 64 * 1024;

/// A keeper that has not answered by then was stopped.
const DETACH_LIMIT: Duration = Duration::from_secs(5);

/// Of each of at most so many words of a command, for listings.
const RECORDED_WORDS: usize = 16;
const RECORDED_CHARS: usize = 1_000;

impl Processes {
    /// Lets a session outlive the engine: it goes on until its own end, and the next engine on the same directory finds
    /// it. Its end is then offered by [`Processes::ends`], with `note`. Nothing changes for an engine whose sessions end
    /// with it.
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
        // A session is detached once.
        if kept.record.set(Arc::clone(&record)).is_err() {
            return Ok(());
        }
        let (answer, answered) = oneshot::channel();
        let _ = session.asks.send(Ask::Detach(json, answer)).await;
        match tokio::time::timeout(DETACH_LIMIT, answered).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(reason))) => Err(ProcessError::NotDetached { id, reason }),
            Ok(Err(_)) => self.record_past_end(&session, kept, record).await,
            Err(_) => Err(ProcessError::NotDetached { id, reason: "its keeper does not answer".to_owned() }),
        }
    }

    /// The ends of detached sessions that nobody has acknowledged, those of engines before us included.
    pub fn ends(&self) -> Ends {
        self.inner.ends.ends()
    }

    /// Whoever had to hear of this end has: it is not offered again, by no engine. False when there is no such end.
    pub async fn acknowledge(&self, event_id: Uuid) -> Result<bool, ProcessError> {
        let inner = Arc::clone(&self.inner);
        let acknowledged = tokio::task::spawn_blocking(move || {
            let Some(end) = inner.ends.find(|end| end.event_id == event_id) else { return Ok(false) };
            end.acknowledge()?;
            inner.ends.take(|end| end.event_id == event_id);
            if !inner.sessions().contains_key(&end.id) {
                end.folder.remove();
            }
            Ok(true)
        });
        acknowledged.await.unwrap_or_else(|err| Err(ProcessError::Prepare(std::io::Error::other(err))))
    }

    /// What the caller left with a session when it was detached.
    pub fn note(&self, id: SessionId) -> Option<String> {
        Some(self.session(id).ok()?.record()?.note.clone())
    }

    /// As [`Processes::shutdown`], ending detached sessions as well.
    pub async fn end_all(&self) {
        self.inner.stopping.store(true, Ordering::Release);
        self.inner.stop.cancel();
        let sessions: Vec<_> = self.inner.sessions().values().cloned().collect();
        self.end_these(&sessions).await;
        self.inner.keepers.dismiss_spare();
    }

    pub(crate) async fn end_these(&self, sessions: &[Arc<Session>]) {
        for session in sessions.iter().filter(|session| !session.has_ended()) {
            let _ = session.asks.try_send(Ask::Terminate);
        }
        for session in sessions {
            session.wait(MAX_WAIT).await;
        }
    }

    /// A session that was over before its keeper could let it go: here the engine writes what the keeper would have.
    async fn record_past_end(
        &self,
        session: &Session,
        kept: &Kept,
        record: Arc<SessionRecord>,
    ) -> Result<(), ProcessError> {
        let Some(ended) = session.wait(MAX_WAIT).await else { return Err(ProcessError::ShuttingDown) };
        let end = end_record(&ended);
        let (folder, written) = (Arc::clone(&kept.folder), Arc::clone(&record));
        // The session's own record last: with it the folder becomes one that the next engine takes in.
        let write = move || folder.write_end(&end).and_then(|()| folder.write_record(&written));
        let written =
            tokio::task::spawn_blocking(write).await.unwrap_or_else(|err| Err(std::io::Error::other(err)));
        written.map_err(|err| ProcessError::NotDetached { id: session.id, reason: err.to_string() })?;
        self.inner.offer_end(session, ended);
        Ok(())
    }
}

impl Inner {
    /// Makes the end of a detached session known to whoever listens.
    pub(crate) fn offer_end(&self, session: &Session, ended: Ended) {
        let Some(kept) = &session.kept else { return };
        let Some((record, event_id)) =
            kept.record.get().and_then(|record| Some((record, record.event_id()?)))
        else {
            return;
        };
        let (folder, record) = (Arc::clone(&kept.folder), Arc::clone(record));
        self.offer(Pending { event_id, id: session.id, folder, record, ended });
    }

    /// Also lets go of ends that nobody wanted for too long.
    pub(crate) fn offer(&self, end: Pending) {
        for dropped in self.ends.add(end) {
            let _ = dropped.acknowledge();
            if !self.sessions().contains_key(&dropped.id) {
                dropped.folder.remove();
            }
        }
    }
}

/// Ends every session of a directory on which no engine runs, detached ones included. Gives how many there were.
pub async fn end_sessions(log_dir: &Path) -> Result<usize, ProcessError> {
    if !log_dir.exists() {
        return Ok(0);
    }
    // No command is started here, so no keeper is.
    let processes = Processes::recover(ProcessesOptions::new("".into(), log_dir.to_owned())).await?;
    let mut running = processes.inner.sessions().values().filter(|session| !session.has_ended()).count();
    processes.end_all().await;
    let Some(surviving) = &processes.inner.surviving else { return Ok(running) };
    // Those whose record we cannot read are told directly, and stay told for as long as the connection is held.
    let mut connections = Vec::new();
    for (_, folder) in surviving.folders()? {
        if folder.keeper_lives()
            && let Ok((mut connection, _)) = folder.connect().await
            && connection.write_all(&[TERMINATE]).await.is_ok()
        {
            connections.push(connection);
            running += 1;
        }
    }
    // Sessions that were never detached end by themselves when their engine dies; they may be at it.
    let deadline = Instant::now() + TERM_GRACE + KILL_LIMIT;
    while Instant::now() < deadline && surviving.folders()?.iter().any(|(_, folder)| folder.keeper_lives()) {
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
        process: named(session.pid),
        guard: kept.guard.map(named),
        boot: boot(),
        started_at: session.started_at.into(),
        keep_tail: session.keep_tail,
        log_limit: session.log.limit(),
        timeout_ms: kept.timeout_ms,
    }
}

#[cfg(target_os = "linux")]
fn named(pid: i32) -> ProcessName {
    ProcessName { pid, started: crate::process_table::stat(pid).map(|process| process.started) }
}

#[cfg(not(target_os = "linux"))]
fn named(pid: i32) -> ProcessName {
    ProcessName { pid, started: None }
}

#[cfg(target_os = "linux")]
fn boot() -> Option<String> {
    crate::process_table::boot()
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
        log: crate::order::LogReport { total: 0, dropped: ended.log_dropped, error: ended.log_error.clone() },
        cause,
        ended_at: Moment::from(ended.ended_at),
        duration_ms: u64::try_from(ended.duration.as_millis()).unwrap_or(u64::MAX),
    }
}
