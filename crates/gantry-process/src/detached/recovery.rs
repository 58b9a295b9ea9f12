//! Recovers the sessions that previous engines left.
//!
//! Running sessions are adopted. Ended ones are kept for the rest of their retention time. Sessions
//! that were never detached are removed once their keeper is gone.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime};

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::command::MAX_BEYOND_CUT;
use crate::detached::exit_reports::{KEPT_FOR, PendingExit};
use crate::error::ProcessError;
use crate::log::Log;
use crate::options::ProcessesOptions;
use crate::processes::{Inner, Processes};
use crate::session::directory::SessionsDirectory;
use crate::session::folder::SessionFolder;
use crate::session::record::{EndRecord, SessionRecord};
use crate::session::{Ended, Kept, Session, SessionId};
use crate::supervise::{Adopted, adopt};

/// How long `recover` waits for keepers to answer. A separate task waits for the others.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// By then a keeper has decided: it was asked to detach, or it noticed that its engine is gone.
const DECISION_LIMIT: Duration = Duration::from_millis(500);
/// How long a directory may stay locked by a dead engine.
const LOCK_LIMIT: Duration = Duration::from_millis(250);

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How long a keeper without an engine may take to end its command. After that the next engine
/// checks again.
const SWEEP_LIMIT: Duration = Duration::from_secs(60);

impl Processes {
    /// Creates an engine whose detached sessions outlive it. It adopts those that previous engines
    /// left in the same directory, and fails while another engine uses that directory.
    pub async fn recover(options: ProcessesOptions) -> Result<Self, ProcessError> {
        let directory = wait_for_directory(&options).await?;
        let folders = directory.folders()?;
        let mut warnings = Vec::new();
        let (mut found, mut undecided) = (Vec::new(), Vec::new());
        for (id, folder) in folders {
            match folder.record() {
                Ok(Some(record)) => found.push((id, folder, record)),
                Ok(None) if folder.keeper_lives() => undecided.push((id, folder)),
                Ok(None) => folder.remove(),
                Err(err) => {
                    warnings.push(format!("skipped {}: {err}", folder.path().display()));
                    if is_old(&folder) && !folder.keeper_lives() {
                        folder.remove();
                    }
                }
            }
        }
        let deadline = Instant::now() + DECISION_LIMIT;
        while !undecided.is_empty() && Instant::now() < deadline {
            tokio::time::sleep(LOOK_EVERY).await;
            let mut still = Vec::new();
            for (id, folder) in undecided {
                let lives = folder.keeper_lives();
                match folder.record() {
                    Ok(Some(record)) => found.push((id, folder, record)),
                    _ if lives => still.push((id, folder)),
                    _ => folder.remove(),
                }
            }
            undecided = still;
        }
        for (_, folder, _) in &found {
            if folder.keeper_lives() && matches!(folder.key(), Ok(None)) {
                let path = folder.path().display();
                warnings
                    .push(format!("{path} is lost and its command is ended: the session's key is missing"));
            }
        }
        let processes = Self::with(options, Some(directory), warnings);
        // Sorts by time of exit, which is the order in which exits are offered.
        found.sort_by_key(|(_, folder, record)| folder.end().map_or(record.started_at, |end| end.ended_at));
        let answers: Vec<_> = found
            .into_iter()
            .filter_map(|(id, folder, record)| processes.restore(id, folder, record))
            .collect();
        for (id, folder) in undecided {
            tokio::spawn(await_orphaned_keeper(Arc::downgrade(&processes.inner), id, folder));
        }
        let answered = async {
            for answer in answers {
                let _ = answer.await;
            }
        };
        let _ = tokio::time::timeout(ANSWER_LIMIT, answered).await;
        Ok(processes)
    }

    /// Lists what could not be recovered, and why.
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    /// For a running session, returns a receiver that fires when its keeper has answered.
    fn restore(
        &self,
        id: SessionId,
        folder: SessionFolder,
        record: SessionRecord,
    ) -> Option<oneshot::Receiver<()>> {
        let (folder, record) = (Arc::new(folder), Arc::new(record));
        match folder.end() {
            Some(end) => {
                self.restore_ended(id, folder, record, &end);
                None
            }
            None => self.restore_running(id, folder, record),
        }
    }

    fn restore_ended(
        &self,
        id: SessionId,
        folder: Arc<SessionFolder>,
        record: Arc<SessionRecord>,
        end: &EndRecord,
    ) {
        let ended = Ended::from(end);
        let acknowledged = folder.is_acknowledged();
        let age = ended.ended_at.elapsed().unwrap_or_default();
        let log = self.log_of(&folder, &record).filter(|_| age < self.inner.keepers.options.retention);
        if let Some(event_id) = record.event_id().filter(|_| !acknowledged && age < KEPT_FOR) {
            let (folder, record, ended) = (Arc::clone(&folder), Arc::clone(&record), ended.clone());
            self.inner.offer(PendingExit { event_id, id, folder, record, ended });
        } else if log.is_none() {
            return folder.remove();
        }
        match log {
            Some(log) => {
                let (requests, _) = mpsc::channel(1);
                let (_, ended) = watch::channel(Some(ended));
                let session = session_from_record(id, log, &folder, &record, requests, ended);
                self.inner.sessions().insert(id, Arc::new(session));
                self.retain(id);
            }
            None => {
                self.inner.keep_exit_only(id);
            }
        }
    }

    fn restore_running(
        &self,
        id: SessionId,
        folder: Arc<SessionFolder>,
        record: Arc<SessionRecord>,
    ) -> Option<oneshot::Receiver<()>> {
        // Somebody may have removed the log. The session must still be reachable.
        let log = self.log_of(&folder, &record).or_else(|| {
            folder.create_log().ok()?;
            self.log_of(&folder, &record)
        })?;
        let (ended_tx, ended_rx) = watch::channel(None);
        let stdin = Arc::new(tokio::sync::Mutex::new(None));
        let feeding = Arc::clone(&stdin).try_lock_owned().ok()?;
        let Adopted { ended, requests, ready } = adopt(Arc::clone(&folder), Arc::clone(&record), feeding);
        let session = Session { stdin, ..session_from_record(id, log, &folder, &record, requests, ended_rx) };
        self.inner.sessions().insert(id, Arc::new(session));
        // A recovered session runs even beyond the session limit.
        let permit: Option<OwnedSemaphorePermit> = Arc::clone(&self.inner.live).try_acquire_owned().ok();
        self.record_end(id, ended, ended_tx, permit);
        Some(ready)
    }

    fn log_of(&self, folder: &SessionFolder, record: &SessionRecord) -> Option<Arc<Log>> {
        let file = folder.open_log().ok()?;
        Some(Arc::new(Log::new(file, folder.log(), self.inner.logs.budget.adopt(record.log_limit))))
    }
}

/// Retries for a moment: an engine that was killed while it started a process leaves its lock to
/// that process.
async fn wait_for_directory(options: &ProcessesOptions) -> Result<SessionsDirectory, ProcessError> {
    let deadline = Instant::now() + LOCK_LIMIT;
    loop {
        match SessionsDirectory::open(&options.log_dir) {
            Err(ProcessError::InUse { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(LOOK_EVERY).await
            }
            taken => return taken,
        }
    }
}

fn session_from_record(
    id: SessionId,
    log: Arc<Log>,
    folder: &Arc<SessionFolder>,
    record: &Arc<SessionRecord>,
    requests: mpsc::Sender<crate::supervise::SupervisorRequest>,
    ended: watch::Receiver<Option<Ended>>,
) -> Session {
    Session {
        id,
        pid: record.process.pid,
        command: record.command.clone(),
        started_at: record.started_at.time(),
        keep_tail: record.keep_tail,
        beyond_cut: record.beyond_cut.min(MAX_BEYOND_CUT),
        log,
        stdin: Arc::default(),
        requests,
        ended,
        polled: AtomicU64::new(0),
        kept: Some(Kept {
            folder: Arc::clone(folder),
            timeout_ms: record.timeout_ms,
            guard: record.guard.map(|guard| guard.pid),
            record: OnceLock::from(Arc::clone(record)),
        }),
    }
}

/// Waits for a keeper that lost its engine and may not have received the request to detach.
async fn await_orphaned_keeper(engine: Weak<Inner>, id: SessionId, folder: SessionFolder) {
    let deadline = Instant::now() + SWEEP_LIMIT;
    while Instant::now() < deadline {
        let lives = folder.keeper_lives();
        let Some(inner) = engine.upgrade() else { return };
        match folder.record() {
            Ok(Some(record)) => {
                Processes { inner }.restore(id, folder, record);
                return;
            }
            _ if lives => {}
            _ => return folder.remove(),
        }
        drop(inner);
        tokio::time::sleep(10 * LOOK_EVERY).await;
    }
}

fn is_old(folder: &SessionFolder) -> bool {
    let changed = folder.path().metadata().and_then(|metadata| metadata.modified());
    changed.is_ok_and(|changed| SystemTime::now().duration_since(changed).is_ok_and(|age| age > KEPT_FOR))
}
