//! Finds the sessions that engines before us left: running ones are adopted, ended ones kept for what is left of their
//! time, and what was never detached is swept once its keeper is gone.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime};

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::ends::{KEPT_FOR, Pending};
use crate::error::ProcessError;
use crate::log::Log;
use crate::options::ProcessesOptions;
use crate::processes::{Inner, Processes};
use crate::record::{EndRecord, SessionRecord};
use crate::session::{Ended, Kept, Session, SessionId};
use crate::session_folder::SessionFolder;
use crate::sessions_directory::SessionsDirectory;
use crate::supervise::{Adopted, adopt};

/// How long `recover` waits for keepers to answer; those that do not are waited for aside.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// A keeper that was told to detach, or lost its engine before, has decided by then.
const DECISION_LIMIT: Duration = Duration::from_millis(500);
/// How long a directory may stay locked by an engine that is gone.
const LOCK_LIMIT: Duration = Duration::from_millis(250);

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How long a keeper without an engine may take to end its command; after that the next engine looks again.
const SWEEP_LIMIT: Duration = Duration::from_secs(60);

impl Processes {
    /// An engine whose detached sessions outlive it. Takes over those that engines before it left in the same
    /// directory, and refuses while another one has them.
    pub async fn recover(options: ProcessesOptions) -> Result<Self, ProcessError> {
        let directory = take_directory(&options).await?;
        let folders = directory.folders()?;
        let mut warnings = Vec::new();
        let (mut found, mut undecided) = (Vec::new(), Vec::new());
        for (id, folder) in folders {
            match folder.record() {
                Ok(Some(record)) => found.push((id, folder, record)),
                Ok(None) if folder.keeper_lives() => undecided.push((id, folder)),
                Ok(None) => folder.remove(),
                Err(err) => {
                    warnings.push(format!("{} was passed over: {err}", folder.path().display()));
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
                warnings.push(format!("{path} counts as lost, and its command is ended: it has no key that its keeper would hear"));
            }
        }
        let processes = Self::with(options, Some(directory), warnings);
        // Oldest end first, which is the order in which ends are offered.
        found.sort_by_key(|(_, folder, record)| folder.end().map_or(record.started_at, |end| end.ended_at));
        let answers: Vec<_> = found
            .into_iter()
            .filter_map(|(id, folder, record)| processes.take_in(id, folder, record))
            .collect();
        for (id, folder) in undecided {
            tokio::spawn(decide(Arc::downgrade(&processes.inner), id, folder));
        }
        let answered = async {
            for answer in answers {
                let _ = answer.await;
            }
        };
        let _ = tokio::time::timeout(ANSWER_LIMIT, answered).await;
        Ok(processes)
    }

    /// What could not be recovered, and why.
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    /// Gives when its keeper has answered, for a session that runs.
    fn take_in(
        &self,
        id: SessionId,
        folder: SessionFolder,
        record: SessionRecord,
    ) -> Option<oneshot::Receiver<()>> {
        let (folder, record) = (Arc::new(folder), Arc::new(record));
        match folder.end() {
            Some(end) => {
                self.take_in_ended(id, folder, record, &end);
                None
            }
            None => self.take_in_running(id, folder, record),
        }
    }

    fn take_in_ended(
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
            self.inner.offer(Pending { event_id, id, folder, record, ended });
        } else if log.is_none() {
            return folder.remove();
        }
        match log {
            Some(log) => {
                let (asks, _) = mpsc::channel(1);
                let (_, ended) = watch::channel(Some(ended));
                let session = found(id, log, &folder, &record, asks, ended);
                self.inner.sessions().insert(id, Arc::new(session));
                self.retain(id);
            }
            None => {
                self.inner.keep_only_the_end(id);
            }
        }
    }

    fn take_in_running(
        &self,
        id: SessionId,
        folder: Arc<SessionFolder>,
        record: Arc<SessionRecord>,
    ) -> Option<oneshot::Receiver<()>> {
        // Somebody may have removed it; the session must be in reach all the same.
        let log = self.log_of(&folder, &record).or_else(|| {
            folder.create_log().ok()?;
            self.log_of(&folder, &record)
        })?;
        let (ended_tx, ended_rx) = watch::channel(None);
        let stdin = Arc::new(tokio::sync::Mutex::new(None));
        let feeding = Arc::clone(&stdin).try_lock_owned().ok()?;
        let Adopted { ended, asks, ready } = adopt(Arc::clone(&folder), Arc::clone(&record), feeding);
        let session = Session { stdin, ..found(id, log, &folder, &record, asks, ended_rx) };
        self.inner.sessions().insert(id, Arc::new(session));
        // Beyond the limit it runs all the same.
        let permit: Option<OwnedSemaphorePermit> = Arc::clone(&self.inner.live).try_acquire_owned().ok();
        self.record_end(id, ended, ended_tx, permit);
        Some(ready)
    }

    fn log_of(&self, folder: &SessionFolder, record: &SessionRecord) -> Option<Arc<Log>> {
        let file = folder.open_log().ok()?;
        Some(Arc::new(Log::new(file, folder.log(), self.inner.logs.budget.adopt(record.log_limit))))
    }
}

/// An engine that was killed while it started a process leaves its lock to that process for a moment.
async fn take_directory(options: &ProcessesOptions) -> Result<SessionsDirectory, ProcessError> {
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

fn found(
    id: SessionId,
    log: Arc<Log>,
    folder: &Arc<SessionFolder>,
    record: &Arc<SessionRecord>,
    asks: mpsc::Sender<crate::supervise::Ask>,
    ended: watch::Receiver<Option<Ended>>,
) -> Session {
    Session {
        id,
        pid: record.process.pid,
        command: record.command.clone(),
        started_at: record.started_at.time(),
        keep_tail: record.keep_tail,
        log,
        stdin: Arc::default(),
        asks,
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

/// Waits for a keeper that has lost its engine and may not have heard it say to detach.
async fn decide(engine: Weak<Inner>, id: SessionId, folder: SessionFolder) {
    let deadline = Instant::now() + SWEEP_LIMIT;
    while Instant::now() < deadline {
        let lives = folder.keeper_lives();
        let Some(inner) = engine.upgrade() else { return };
        match folder.record() {
            Ok(Some(record)) => {
                Processes { inner }.take_in(id, folder, record);
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
